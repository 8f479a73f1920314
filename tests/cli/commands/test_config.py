"""`kauldron config show | resolve | check | diff | paths`."""

import json
import shlex
import xml.etree.ElementTree as ElementTree

import pytest

from kauldron import konfig

# ------------------------------------------------------------------------------------
# show
# ------------------------------------------------------------------------------------


def test_show_prints_origin_and_config(kauldron):
    code, out, err = kauldron("config", "show", "--cfg=good.py", "--cfg.seed=3")
    assert (code, err) == (0, "")
    assert out.startswith("# --cfg=good.py\n# --cfg.seed=3\n<ConfigDict[{")
    assert "'seed': 3" in out
    assert "'twice': 6" in out


def test_show_as_json_can_be_loaded(kauldron):
    code, out, _ = kauldron("config", "show", "--cfg=good.py", "--json")
    assert code == 0
    assert konfig.ConfigDict.from_json(out).ratio.denominator == 3


def test_show_with_history_names_line_and_flag(kauldron):
    _, out, _ = kauldron("config", "show", "--cfg=good.py", "--cfg.seed=3", "--history")
    lines = out.splitlines()
    assert any("'seed': 3" in line and "set by --cfg.seed=3" in line for line in lines)
    assert any("'name'" in line and "set at good.py:8" in line for line in lines)


def test_show_writes_a_page(kauldron, folder):
    code, out, _ = kauldron("config", "show", "--cfg=good.py", "--html=page.html")
    assert code == 0
    assert "page.html" in out
    page = (folder / "page.html").read_text()
    ElementTree.fromstring(page[page.index("<div") : page.index("</body>")])


def test_show_imports_nothing_that_the_config_names(kauldron):
    code, out, _ = kauldron("config", "show", "--cfg=missing_module.py")
    assert code == 0
    assert "no_such_package_at_all.f()" in out


# ------------------------------------------------------------------------------------
# resolve
# ------------------------------------------------------------------------------------


def test_resolve_prints_what_was_built(kauldron):
    code, out, _ = kauldron("config", "resolve", "--cfg=good.py")
    assert code == 0
    assert "Fraction(1, 3)" in out
    assert out.splitlines()[-1].startswith("good.py resolves to")


def test_resolve_can_be_quiet(kauldron):
    code, out, _ = kauldron("config", "resolve", "--cfg=good.py", "--no-verbose")
    assert code == 0
    assert len(out.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--cfg=required.py"], ["cfg.a.n", "--cfg.a.n="]),
        (["--cfg=cycle.py"], ["contains itself", "a.b"]),
        (
            ["--cfg=wrong_name.py"],
            ["cfg.x.y", "Fracton", "'Fraction'", "wrong_name.py:8"],
        ),
        (
            ["--cfg=good.py", "--cfg.ratio.numeratr=2"],
            ["cfg.ratio", "'numerator'", "--cfg.ratio.numeratr=2"],
        ),
        (
            ["--cfg=missing_module.py"],
            ["no_such_package_at_all", "missing_module.py:5"],
        ),
    ],
)
def test_resolve_of_a_bad_config_tells_path_and_line(kauldron, arguments, words):
    code, out, err = kauldron("config", "resolve", *arguments)
    assert (code, out) == (2, "")
    for word in words:
        assert word in err
    assert "Traceback" not in err


# ------------------------------------------------------------------------------------
# check
# ------------------------------------------------------------------------------------


def test_check_of_a_good_config(kauldron):
    assert kauldron("config", "check", "--cfg=good.py") == (
        0,
        "No problems found in good.py\n",
        "",
    )


def test_check_lists_all_problems(kauldron):
    code, out, _ = kauldron(
        "config",
        "check",
        "--cfg=good.py",
        "--cfg.ratio.numeratr=2",
        "--cfg.x=py::a.b()",
    )
    assert code == 1
    lines = out.splitlines()
    assert "cfg.ratio.numeratr" in lines[0]
    assert "--cfg.ratio.numeratr=2" in lines[0]
    assert "cfg.x" in lines[1]
    assert lines[-1] == "2 problems in good.py"


def test_check_as_json(kauldron):
    code, out, _ = kauldron("config", "check", "--cfg=required.py", "--json")
    (problem,) = json.loads(out)
    assert code == 1
    assert problem["path"] == "a.n"
    assert problem["location"].endswith("required.py:5")


def test_check_of_a_cycle(kauldron):
    code, out, _ = kauldron("config", "check", "--cfg=cycle.py")
    assert code == 1
    assert "contains itself" in out


# ------------------------------------------------------------------------------------
# diff
# ------------------------------------------------------------------------------------


def test_diff_of_equal_configs_is_silent(kauldron):
    assert kauldron("config", "diff", "--cfg=good.py", "--other=good.py") == (0, "", "")


def test_diff_with_overrides_on_both_sides(kauldron):
    code, out, _ = kauldron(
        "config",
        "diff",
        "--cfg=good.py",
        "--cfg.new=1",
        "--other=good.py",
        "--other.seed=3",
    )
    assert code == 1
    assert out.splitlines() == ["~ seed: 42 -> 3", "~ twice: 84 -> 6", "- new: 1"]


@pytest.mark.parametrize("other", ["run", "run/config.json"])
def test_diff_with_a_saved_config(kauldron, folder, other):
    _, text, _ = kauldron("config", "show", "--cfg=good.py", "--json")
    (folder / "run").mkdir()
    (folder / "run" / "config.json").write_text(text)
    assert kauldron("config", "diff", "--cfg=good.py", f"--other={other}")[0] == 0
    code, out, _ = kauldron(
        "config", "diff", "--cfg=good.py", "--cfg.rate=1", f"--other={other}"
    )
    assert (code, out) == (1, "~ rate: 1.0 -> 0.001\n")


def test_flags_of_a_diff_turn_one_config_into_the_other(kauldron):
    arguments = ["--other=good.py", "--other.seed=3", "--other.name=7"]
    arguments += ["--other.ratio=py::decimal.Decimal('1')", "--other.nested.m=[None]"]
    code, out, _ = kauldron("config", "diff", "--cfg=good.py", *arguments, "--flags")
    assert code == 1
    flags = shlex.split(out)  # as a shell reads what is pasted
    assert "--cfg.name='7'" in flags
    assert kauldron("config", "diff", "--cfg=good.py", *flags, *arguments)[:2] == (
        0,
        "",
    )


def test_diff_as_json(kauldron):
    code, out, _ = kauldron(
        "config", "diff", "--cfg=good.py", "--other=good.py", "--other.seed=3", "--json"
    )
    assert code == 1
    assert json.loads(out)["changed"]["seed"] == {"old": 42, "new": 3}


# ------------------------------------------------------------------------------------
# paths
# ------------------------------------------------------------------------------------


def test_paths_lists_value_and_origin(kauldron):
    code, out, _ = kauldron("config", "paths", "--cfg=good.py", "--cfg.sizes[1]=5")
    rows = [line.split("\t") for line in out.splitlines()]
    assert code == 0
    assert ["seed", "42", "set at good.py:8"] in rows
    assert ["sizes[0]", "8", "set at good.py:8"] in rows
    assert ["sizes[1]", "5", "set by --cfg.sizes[1]=5"] in rows
    assert ["ratio.__qualname__", "'fractions:Fraction'", "set at good.py:14"] in rows


def test_paths_can_be_filtered(kauldron):
    _, out, _ = kauldron("config", "paths", "--cfg=good.py", "nested.*", "**.numerator")
    assert [line.split("\t")[0] for line in out.splitlines()] == [
        "ratio.numerator",
        "nested.n",
    ]


def test_paths_as_json(kauldron):
    _, out, _ = kauldron("config", "paths", "--cfg=good.py", "seed", "--json")
    assert json.loads(out) == [
        {"path": "seed", "value": "42", "origin": "set at good.py:8"}
    ]


def test_paths_shows_what_is_required(kauldron):
    _, out, _ = kauldron("config", "paths", "--cfg=required.py")
    assert out.split("\t")[:2] == ["a.n", "<required: int>"]


def test_every_path_is_accepted_as_a_flag(kauldron):
    _, out, _ = kauldron("config", "show", "--cfg=good.py", "--json")
    cfg = konfig.ConfigDict.from_json(out)
    flags = [f"--cfg.{path}={value}" for path, value in konfig.flatten(cfg).items()]
    assert (
        kauldron("config", "diff", "--cfg=good.py", *flags, "--other=good.py")[0] == 0
    )


def test_paths_can_show_defaults(kauldron):
    arguments = (
        "config",
        "paths",
        "--cfg=good.py",
        "--cfg.t=py::textwrap.TextWrapper()",
    )
    assert "t.width" not in kauldron(*arguments)[1]
    _, out, _ = kauldron(*arguments, "--defaults")
    assert "t.width\t70" in out
