# Every target sets up what it needs in .venv, once, from python3 alone.
#
#   make demo    train a real model and show what comes out
#   make test    run the tests
#   make lint    format check, linter, types, import contract
#   make torture kill, stop, damage and starve runs, ROUNDS=300 times (SEED=0, JOBS=2)
#   make bench   print the benchmark figures (TINY=1 for a quick look)
#   make docs    build the site into docs/_build/html
#
# Another Python, with the newest versions it can get:
#   make test PYTHON=python3.13 VENV=.venv313 CONSTRAINTS=

PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
WORKERS ?= 3
ROUNDS ?= 300
SEED ?= 0
JOBS ?= 2

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PIN := $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))

.PHONY: setup demo test torture lint format bench docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@echo "Setting up $(VENV) (once; about two minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --editable ".[dev]" $(PIN)
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@$(PIP) install --editable ".[docs]" $(PIN)
	@touch $@

demo: $(STAMP)
	@rm -rf workdir/demo
	@$(BIN)/kauldron train --cfg=examples/digits_autoencoder.py --cfg.workdir=workdir/demo
	@$(BIN)/python examples/show_reconstructions.py workdir/demo

# Bytecode is kept even where the shell says otherwise: tests start some 200 processes.
test: $(STAMP)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --quiet --numprocesses $(WORKERS) --dist worksteal $(ARGS)

torture: $(STAMP)
	@$(BIN)/python -m tests.faults --rounds $(ROUNDS) --seed $(SEED) --jobs $(JOBS)

lint: $(STAMP)
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/lint-imports --config .importlinter --no-cache --no-logo
	@$(BIN)/pyright --warnings
	@echo "lint: clean"

format: $(STAMP)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(STAMP)
	@for script in $(filter-out %/figures.py,$(wildcard benchmarks/*.py)); do \
	  $(BIN)/python $$script $(if $(TINY),--tiny) || exit 1; \
	done

docs: $(DOCS_STAMP)
	@$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

clean:
	rm -rf $(VENV) docs/_build .pytest_cache .ruff_cache .hypothesis
