"""Mistakes that people make, on the command line and in Python, and the words that help."""

import pytest

from tests.cli.python_mistakes import PYTHON_MISTAKES

SHOW = ("config", "show")
GOOD = (*SHOW, "--cfg=good.py")
TOY = ("train", "--cfg=toy.py", "--cfg.workdir=run")

COMMANDS = {
    "no command": ((), ["name of a command is missing", "config show"]),
    "command misspelt": (("config", "shwo"), ["'config shwo'", "'config show'"]),
    "group misspelt": (("confg", "show", "--cfg=good.py"), ["'config show'"]),
    "group forgotten": (("paths", "--cfg=good.py"), ["'config paths'"]),
    "half a command": (("config",), ["which config command", "config diff"]),
    "no config": (SHOW, ["--cfg=path/to/config.py is missing"]),
    "no value for --cfg": ((*SHOW, "--cfg"), ["--cfg", "missing"]),
    "file misspelt": ((*SHOW, "--cfg=god.py"), ["'god.py'", "'good.py'"]),
    "ending forgotten": ((*SHOW, "--cfg=good"), ["good.py"]),
    "folder misspelt": ((*SHOW, "--cfg=confgs/good.py"), ["no folder 'confgs'"]),
    "folder without a config": ((*SHOW, "--cfg=."), ["config.json"]),
    "json misspelt": ((*SHOW, "--cfg=brokn.json"), ["'broken.json'"]),
    "not json": ((*SHOW, "--cfg=broken.json"), ["broken.json", "line 1 column 2"]),
    "json of something else": ((*SHOW, "--cfg=list.json"), ["list.json", "object"]),
    "module misspelt": ((*SHOW, "--cfg=my_configs.good"), ["my_configs"]),
    "flag misspelt": ((*GOOD, "--cgf.seed=1"), ["'--cgf.seed=1'", "--cfg.seed=1?"]),
    "dashes forgotten": ((*GOOD, "cfg.seed=1"), ["--cfg.seed=1?"]),
    "flag of the file forgotten": ((*SHOW, "good.py"), ["--cfg=good.py?"]),
    "option misspelt": ((*GOOD, "--jsn"), ["--json?"]),
    "option without its value": (
        (*GOOD, "--html"),
        ["--html", "expected one argument"],
    ),
    "options that exclude each other": (
        (*GOOD, "--json", "--history"),
        ["not allowed"],
    ),
    "parent misspelt": (
        (*GOOD, "--cfg.nestd.n=1"),
        ["--cfg.nestd.n=1: ", "cfg has no nestd", "'nested'", "Available: seed"],
    ),
    "below a value": ((*GOOD, "--cfg.seed.n=1"), ["cfg.seed is of type int"]),
    "space instead of =": ((*GOOD, "--cfg.seed", "5"), ["write --cfg.seed=5"]),
    "flag file misspelt": (
        (*GOOD, "--flagfile=nope"),
        ["--flagfile=nope: ", "No such"],
    ),
    "value forgotten": ((*GOOD, "--cfg.seed"), ["needs a value", "--cfg.seed=..."]),
    "empty value": ((*GOOD, "--cfg.seed="), ["--cfg.seed=: ", "int expected"]),
    "text for a number": ((*GOOD, "--cfg.seed=abc"), ["cfg.seed", "int", "'abc'"]),
    "fraction for an integer": ((*GOOD, "--cfg.seed=1.5"), ["int", "float"]),
    "number for a list": ((*GOOD, "--cfg.sizes=3"), ["cfg.sizes", "list", "int"]),
    "words for a list": ((*GOOD, "--cfg.sizes=a,b"), ["cfg.sizes", "list"]),
    "value for a dict": ((*GOOD, "--cfg.nested=3"), ["cfg.nested", "dict"]),
    "no- on a number": ((*GOOD, "--nocfg.seed"), ["True or False"]),
    "no- with a value": ((*GOOD, "--nocfg.debug=1"), ["--nocfg.debug=1", "no value"]),
    "index out of range": ((*GOOD, "--cfg.sizes[2]=1"), ["length 2", "-2 to 1"]),
    "name for an index": ((*GOOD, "--cfg.sizes.n=1"), ["cfg.sizes", "length 2"]),
    "bracket not closed": ((*GOOD, "--cfg.sizes[0=1"), ["--cfg.sizes[0=1", "closed"]),
    "dash in a name": ((*GOOD, "--cfg.my-key=1"), ['["my-key"]']),
    "two dots": ((*GOOD, "--cfg.nested..n=1"), ["empty segment"]),
    "nothing after the dot": ((*GOOD, "--cfg.=1"), ["name of a field is missing"]),
    "wildcard without a match": ((*GOOD, "--cfg.**.m=1"), ["Nothing matches '**.m'"]),
    "wildcard at the end": ((*GOOD, "--cfg.nested.*=1"), ["last part"]),
    "expression without module": (
        (*GOOD, "--cfg.ratio=py::Fraction(1)"),
        ["'py::Fraction(1)'", "position 1", "module.Fraction"],
    ),
    "expression not closed": (
        (*GOOD, "--cfg.ratio=py::fractions.Fraction(1"),
        ["'(' was never closed"],
    ),
    "expression that computes": ((*GOOD, "--cfg.seed=py::1+1"), ["arithmetic"]),
    "parent after child": (
        (*GOOD, "--cfg.nested.n=2", "--cfg.nested={}"),
        ["--cfg.nested={}", "--cfg.nested.n=2", "first"],
    ),
    "text after a file without arguments": (
        (*SHOW, "--cfg=good.py:fast"),
        ["good.py", "'fast'"],
    ),
    "argument of a file without arguments": (
        (*GOOD, "--cfg.__args__.layers=3"),
        ["--cfg.__args__.layers=3: ", "ConfigArgs"],
    ),
    "argument misspelt": (
        (*SHOW, "--cfg=args.py", "--cfg.__args__.layrs=3"),
        ["'layrs'", "'layers'"],
    ),
    "argument of a wrong type": (
        (*SHOW, "--cfg=args.py:layers=many"),
        ["layers", "expected int", "'many'"],
    ),
    "argument without a name": ((*SHOW, "--cfg=args.py:3"), ["name=value"]),
    "syntax error": ((*SHOW, "--cfg=syntax_error.py"), ["syntax_error.py:1", "^"]),
    "entry point misspelt": (
        (*SHOW, "--cfg=no_entry.py"),
        ["no_entry.py", "get_config()", "'get_confg'"],
    ),
    "nothing returned": ((*SHOW, "--cfg=no_return.py"), ["no_return.py", "return cfg"]),
    "undefined name in the file": (
        (*SHOW, "--cfg=name_error.py"),
        ["name_error.py:2", "undefined_name", "NameError"],
    ),
    "real object in the config": (
        (*SHOW, "--cfg=real_object.py"),
        ["cfg.a.ratio", "konfig.imports()", "real_object.py:7"],
    ),
    "missing package": (
        ("config", "resolve", "--cfg=missing_module.py"),
        ["no_such_package_at_all", "missing_module.py:5"],
    ),
    "required value not set": (
        ("config", "resolve", "--cfg=required.py"),
        ["cfg.a.n", "--cfg.a.n="],
    ),
    "second config forgotten": (
        ("config", "diff", "--cfg=good.py"),
        ["--other=path/to/config.py is missing"],
    ),
    "second config missing": (
        ("config", "diff", "--cfg=good.py", "--other=bad.py"),
        ["'bad.py'"],
    ),
    "override of the second config": (
        ("config", "diff", "--cfg=good.py", "--other=good.py", "--other.sed.x=1"),
        ["--other.sed.x=1: ", "'seed'"],
    ),
    "malformed pattern": (("config", "paths", "--cfg=good.py", "a..b"), ["a..b"]),
    "page that cannot be written": ((*GOOD, "--html=no/page.html"), ["no/page.html"]),
    "text for a rate": ((*GOOD, "--cfg.rate=fast"), ["cfg.rate", "float expected"]),
    "maybe": ((*GOOD, "--cfg.debug=maybe"), ["cfg.debug", "bool expected"]),
    "list not closed": ((*GOOD, "--cfg.sizes=[1,"), ["'[1,'", "list expected"]),
    "below a reference": ((*GOOD, "--cfg.twice.x=1"), ["cfg.twice is of type int"]),
    "function without a module": ((*GOOD, "--cfg.name=py::open('x')"), ["'open'"]),
    "class misspelt in the file": (
        ("config", "resolve", "--cfg=wrong_name.py"),
        ["cfg.x.y", "wrong_name.py:8", "'Fraction'"],
    ),
    "config that contains itself": (
        ("config", "resolve", "--cfg=cycle.py"),
        ["cfg.a.b is cfg"],
    ),
    "training without a config": (("train",), ["--cfg=path/to/config.py is missing"]),
    "training without a folder": (("train", "--cfg=toy.py"), ["--cfg.workdir="]),
    "training of something else": (
        ("train", "--cfg=good.py"),
        ["good.py", "kd.train.Trainer"],
    ),
    "training without a required value": (
        ("train", "--cfg=required.py"),
        ["cfg.a.n", "required", "--cfg.a.n="],
    ),
    "steps as a word": (
        (*TOY, "--cfg.num_train_steps=abc"),
        ["cfg.num_train_steps", "int expected"],
    ),
    "steps below zero": (
        (*TOY, "--cfg.num_train_steps=-1"),
        ["at least 0", "set by --cfg.num_train_steps=-1"],
    ),
    "field of the trainer misspelt on the command line": (
        (*TOY, "--cfg.num_train_step=3"),
        ["'num_train_steps'", "set by --cfg.num_train_step=3"],
    ),
    "word for an optimizer": (
        (*TOY, "--cfg.optimizer=adam"),
        ["cfg.optimizer", "optax.adam(1e-3)"],
    ),
    "word for a model": ((*TOY, "--cfg.model=big"), ["cfg.model", "flax module"]),
    "workdir below a file": (
        ("train", "--cfg=toy.py", "--cfg.workdir=good.py/run"),
        ["cfg.workdir", "good.py/run", "Not a directory"],
    ),
    "batch below zero": (
        (*TOY, "--cfg.train_ds.batch_size=-4"),
        ["cfg.train_ds", "--cfg.train_ds.batch_size=-4", "negative"],
    ),
    "field of the data misspelt": (
        (*TOY, "--cfg.train_ds.batch_sise=4"),
        ["'batch_size'", "--cfg.train_ds.batch_sise=4"],
    ),
    "evaluation every zero steps": (
        (*TOY, "--cfg.evals.test.run.n=0"),
        ["cfg.evals.test.run", "toy.py:", "at least 1"],
    ),
    "loss taken away": ((*TOY, "--cfg.train_losses={}"), ["train_losses", "empty"]),
    "input of the model misspelt on the command line": (
        (*TOY, "--cfg.model.inputs=batch.z"),
        ["cfg.model", "'batch.z'", "x: float32"],
    ),
    "seed as a word": ((*TOY, "--cfg.seed=x"), ["cfg.seed", "int", "--cfg.seed=x"]),
    "evaluation of nothing": (("eval",), ["Which run? Give --workdir=path/to/run"]),
    "evaluation without a folder": (
        ("eval", "--cfg=toy.py", "--eval_names=alone"),
        ["Which run?", "--workdir=path/to/run"],
    ),
    "evaluation of a folder that is not there": (
        ("eval", "--workdir=none"),
        ["none is not the folder of a run", "no such folder"],
    ),
    "evaluation of another folder": (
        ("eval", "--workdir=."),
        ["not the folder of a run", "config.json"],
    ),
    "evaluator misspelt": (
        ("eval", "--cfg=toy.py", "--eval_names=tset"),
        ["'tset'", "test, alone"],
    ),
    "project below a file": (
        ("init", "good.py/fancy"),
        ["good.py/fancy cannot be written", "Not a directory"],
    ),
    "check of nothing": (("check",), ["--cfg=path/to/config.py is missing"]),
    "runs of a folder that is not there": (
        ("runs", "none"),
        ["There is no folder none"],
    ),
    "two folders for one": (("runs", ".", "none"), ["'none' is not understood"]),
    "option of data misspelt on the command line": (
        ("data", "show", "--cfg=toy.py", "--split=x"),
        ["'--split=x'"],
    ),
}

MISTAKES = {**COMMANDS, **PYTHON_MISTAKES}


def test_mistakes_are_of_many_kinds():
    assert len(MISTAKES) == len(COMMANDS) + len(PYTHON_MISTAKES) >= 120


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_explained(kauldron, mistake):
    if mistake in COMMANDS:
        arguments, words = COMMANDS[mistake]
        message = refused(kauldron, arguments)
    else:
        do, kind, words = PYTHON_MISTAKES[mistake]
        with pytest.raises(kind) as caught:
            do()
        message = "\n".join(
            [str(caught.value), *getattr(caught.value, "__notes__", ())]
        )
    for word in words:
        assert word in message


def refused(kauldron, arguments):
    """Run a command that is bad input; return what it says."""
    code, out, err = kauldron(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert "Traceback" not in err
    return err
