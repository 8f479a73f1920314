"""`konfig.check`: all problems at once, nothing built."""

import collections.abc
import dataclasses
import enum
import pathlib
import typing
from typing import Any, Literal, Optional

import pytest

from kauldron import konfig
from kauldron.konfig.signatures import misfit

HERE = __name__


class Color(enum.Enum):
    RED = 1


class Mode(enum.StrEnum):
    FAST = "fast"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Net:
    """Counts its instances, to show that none is built."""

    width: int
    rate: float = 0.1
    name: str = "net"
    act: Any = None
    mode: Literal["a", "b"] = "a"
    sizes: tuple[int, ...] = ()
    strange: "NotDefinedAnywhere" = None

    def __post_init__(self):
        raise AssertionError("must not be built")


def positional(a: int, b: str = "x", /, c: float = 1.0, *rest, d: bool = False):
    raise AssertionError("must not be called")


def anything(a: int, **kwargs):
    raise AssertionError("must not be called")


class Holder:
    """Keeps one field unresolved."""

    __konfig_resolve_exclude_fields__ = ("job",)

    def __init__(self, job=None, n: int = 0):
        raise AssertionError("must not be built")


NOT_CALLABLE = 3


def call(symbol, /, *args, **fields):
    positional_fields = {str(i): arg for i, arg in enumerate(args)}
    return {"__qualname__": f"{HERE}:{symbol}", **positional_fields, **fields}


def problems_of(**fields):
    return konfig.check(konfig.ConfigDict(fields))


def test_good_config_has_no_problems():
    cfg = konfig.ConfigDict(
        {
            "net": call("Net", width=3, rate=1, sizes=[1, 2], mode="b"),
            "fn": call("positional", 1, "y", 2.0, 3, d=True),
            "kind": {"__const__": f"{HERE}:Net"},
            "plain": {"a": [1, (2, None), {3}], 7: ...},
            "file": pathlib.PurePosixPath("x"),
            "free": call("anything", a=1, b=2),
        }
    )
    cfg.same = cfg.net
    cfg.ref_to = cfg.ref.plain.a
    assert konfig.check(cfg) == []


@pytest.mark.parametrize(
    "node, path, words",
    [
        (
            call("Net", widht=3, width=2),
            "x.widht",
            ["'widht'", "'width'", "It accepts"],
        ),
        (call("Net"), "x", ["needs 'width'"]),
        (call("Nett", width=3), "x", ["'Nett'", "'Net'"]),
        ({"__qualname__": "no_such_package.x:f"}, "x", ["no_such_package"]),
        ({"__const__": f"{HERE}:Nope"}, "x", ["Nope"]),
        ({"__qualname__": "a:b:c"}, "x", ["colon"]),
        ({"__const__": "math:pi", "n": 1}, "x", ["__const__"]),
        (call("NOT_CALLABLE"), "x", ["cannot be called"]),
        (call("positional"), "x", ["needs 'a'"]),
        (call("positional", 1, a=2), "x.a", ["no parameter 'a'"]),
        (call("positional", 1, "y", 2.0, c=3.0), "x.c", ["by position and by name"]),
        (call("Net", 3, width=1), "x[0]", ["takes at most 0 positional"]),
        (call("Net", width="wide"), "x.width", ["expected int", "'wide'"]),
        (call("Net", width=1.5), "x.width", ["expected int", "float 1.5"]),
        (call("Net", width=3, rate="1e-3"), "x.rate", ["expected float"]),
        (call("Net", width=3, mode="c"), "x.mode", ["'a', 'b'", "'c'"]),
        (call("Net", width=3, sizes=[1, "2"]), "x.sizes", ["item [1]", "expected int"]),
        (call("Net", width=3, name=None), "x.name", ["expected str, got None"]),
        (call("positional", "1"), "x[0]", ["a: expected int"]),
        (call("anything", a="1"), "x.a", ["expected int"]),
    ],
)
def test_problem_names_path_and_reason(node, path, words):
    problems = problems_of(x=node)
    assert [problem.path for problem in problems] == [path]
    for word in words:
        assert word in str(problems[0])


def test_all_problems_are_reported_at_once_in_order():
    problems = problems_of(
        a=call("Net", width="x"), b=call("Nope"), c={"d": [call("Net", width=1, z=1)]}
    )
    assert [problem.path for problem in problems] == ["a.width", "b", "c.d[0].z"]


def test_shared_node_is_reported_once():
    cfg = konfig.ConfigDict({"a": call("Nope")})
    cfg.b = cfg.a
    assert [problem.path for problem in konfig.check(cfg)] == ["a"]


def test_problem_tells_where_the_value_was_set():
    cfg = konfig.ConfigDict({"x": call("Net", width=3)})
    with cfg.x.ignore_type():
        cfg.x.width = "wide"  # this line
    (problem,) = konfig.check(cfg)
    file, line = problem.location.rsplit(":", 1)
    assert pathlib.Path(file).name == "test_problems.py"
    assert "# this line" in pathlib.Path(file).read_text().splitlines()[int(line) - 1]


def test_problem_names_the_flag_that_caused_it():
    cfg = konfig.ConfigDict({"x": call("Net", width=3)})
    konfig.apply_overrides(cfg, {"x.rte": 0.5})
    (problem,) = konfig.check(cfg)
    assert problem.location == "x.rte=0.5"
    assert "'rate'" in problem.suggestion


# ------------------------------------------------------------------------------------
# References, required fields, cycles, values
# ------------------------------------------------------------------------------------


def test_unset_required_field_is_reported_with_the_flag():
    cfg = konfig.ConfigDict({"x": call("Net", width=konfig.required(int))})
    (problem,) = konfig.check(cfg)
    assert problem.path == "x.width"
    assert "--cfg.x.width=" in problem.suggestion


def test_unset_placeholder_is_not_judged():
    cfg = konfig.ConfigDict({"x": call("Net", width=konfig.placeholder(int))})
    assert konfig.check(cfg) == []
    cfg.x.width = 3
    assert konfig.check(cfg) == []


def test_reference_to_an_unset_field_is_not_reported_twice():
    cfg = konfig.ConfigDict({"x": konfig.placeholder(int, required=True)})
    cfg.y = cfg.ref.x + 1
    assert [problem.path for problem in konfig.check(cfg)] == ["x"]


def test_dangling_reference_is_reported():
    cfg = konfig.ConfigDict({"a": 1})
    cfg.b = {"c": cfg.ref.nope.x}
    (problem,) = konfig.check(cfg)
    assert problem.path == "b.c"
    assert "nope" in problem.message


def test_dangling_reference_in_a_list_is_reported():
    cfg = konfig.ConfigDict({"a": 1})
    cfg.b = [1, cfg.ref.nope]
    assert [problem.path for problem in konfig.check(cfg)] == ["b[1]"]


def test_cyclic_reference_is_reported():
    cfg = konfig.ConfigDict({})
    cfg.a = cfg.ref.b
    cfg.b = cfg.ref.a
    assert [problem.path for problem in konfig.check(cfg)] == ["a", "b"]


def test_config_that_contains_itself_is_reported():
    cfg = konfig.ConfigDict({"a": {}})
    cfg.a.b = cfg
    (problem,) = konfig.check(cfg)
    assert problem.path == "a.b"
    assert "contains itself" in problem.message


def test_real_object_that_came_in_through_a_list_is_reported():
    cfg = konfig.ConfigDict({"l": [1]})
    cfg.l.append(object())
    (problem,) = konfig.check(cfg)
    assert problem.path == "l[1]"
    assert "object" in problem.message


def test_reference_is_judged_by_its_value():
    cfg = konfig.ConfigDict({"n": "wide"})
    cfg.x = call("Net")
    cfg.x.width = cfg.ref.n
    assert [problem.path for problem in konfig.check(cfg)] == ["x.width"]


def test_excluded_field_is_left_alone():
    job = {"__qualname__": "no_such_launcher:Job"}
    assert problems_of(x=call("Holder", job=job)) == []
    problems = problems_of(x=call("Holder", job=job, n="x"))
    assert [problem.path for problem in problems] == ["x.n"]


def test_import_that_fails_is_reported_with_its_error(tmp_path, monkeypatch):
    (tmp_path / "module_that_fails.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    (problem,) = problems_of(x={"__qualname__": "module_that_fails:f"})
    assert "ZeroDivisionError" in problem.message


def test_raise_error_lists_all():
    cfg = konfig.ConfigDict({"a": call("Nope"), "b": call("Net")})
    with pytest.raises(ValueError) as caught:
        konfig.check(cfg, raise_error=True)
    assert "2 problems" in str(caught.value)
    assert "cfg.a:" in str(caught.value)
    assert "cfg.b:" in str(caught.value)


def test_raise_error_without_problems_returns():
    assert konfig.check({"a": 1}, raise_error=True) == []


def test_config_is_not_changed():
    cfg = konfig.ConfigDict({"a": call("Nope"), "b": call("Net", x=konfig.required())})
    before = repr(cfg)
    konfig.check(cfg)
    assert repr(cfg) == before


# ------------------------------------------------------------------------------------
# Judging values
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, annotation",
    [
        (1, int),
        (True, int),
        (1, float),
        (True, bool),
        ("a", str),
        (None, None),
        (None, Optional[int]),  # noqa: UP045
        (1, int | str),
        ([1], list[int]),
        ((1,), list[int]),
        ([1], tuple[int, ...]),
        ([1, "a"], tuple[int, str]),
        ([], tuple[()]),
        ({1}, frozenset[int]),
        ([1], collections.abc.Sequence[int]),
        ("ab", collections.abc.Sequence[str]),
        ([1], collections.abc.Iterable),
        ({"a": 1}, dict[str, int]),
        (konfig.ConfigDict({"a": 1}), collections.abc.Mapping[str, int]),
        ("a", Literal["a", 1]),
        ("fast", Mode),
        ("x", pathlib.Path),
        (1, typing.Annotated[int, "note"]),
        (object(), int),
        (konfig.ConfigDict({"__qualname__": "m:f"}), int),
        (konfig.ConfigDict({"__const__": "m:f"}), list[str]),
        ([konfig.ConfigDict({"__qualname__": "m:f"})], list[int]),
        ("a", Any),
        (3, dataclasses.dataclass),
        (3, Net),
        (3, typing.TypeVar("T")),
        (3, type[int]),
        (3, collections.abc.Callable[[int], int]),
        (3, "int"),
        (3, typing.NewType("Name", str)),
    ],
)
def test_value_fits(value, annotation):
    assert misfit(value, annotation) is None


@pytest.mark.parametrize(
    "value, annotation, words",
    [
        ("1", int, "expected int, got str '1'"),
        (1.0, int, "expected int, got float 1.0"),
        ("1", float, "expected float"),
        (1, bool, "expected bool, got int 1"),
        (1, str, "expected str"),
        (None, int, "expected int, got None"),
        (1, None, "expected None"),
        ("a", int | None, "expected int | None"),
        (1, list[int], "expected list[int], got int 1"),
        ("ab", list[str], "expected list[str], got str 'ab'"),
        ([1, "x"], list[int], "item [1]: expected int"),
        ([1], tuple[int, str], "of length 1"),
        ([1, 2], tuple[int, str], "item [1]: expected str"),
        ([1], set[int], "expected set[int]"),
        ({"a": "b"}, dict[str, int], "item ['a']: expected int"),
        ([1], dict[str, int], "expected dict"),
        (1, collections.abc.Sequence[int], "expected Sequence[int]"),
        ("c", Literal["a", "b"], "expected one of 'a', 'b'"),
        (True, Literal[1], "expected one of 1"),
        ("RED", Color, "expected Color"),
        ("slow", Mode, "expected Mode"),
        (3, pathlib.Path, "expected Path"),
        ("x" * 100, int, "..."),
    ],
)
def test_value_does_not_fit(value, annotation, words):
    assert words in misfit(value, annotation)


def test_part_of_a_config_is_named_by_its_place_in_the_whole():
    cfg = konfig.ConfigDict({"m": {"p": konfig.required(int)}, "l": [{"q": 1}]})
    cfg.l[0].q = konfig.required(int)
    for part, path in ((cfg.m, "m.p"), (cfg.l[0], "l[0].q")):
        (problem,) = konfig.check(part)
        assert problem.path == path
        assert problem.suggestion == f"Set it: --cfg.{path}=..."
        assert str(problem).startswith(f"cfg.{path}: is required")


def test_message_of_a_problem_is_left_as_it_is():
    problem = konfig.Problem(path="[0].a", message="see cfg.[1]")
    assert str(problem) == "cfg[0].a: see cfg.[1]"


def test_name_of_an_annotation_keeps_the_packages_that_end_in_typing():
    assert (
        misfit(1, list["mytyping.Size"]) == "expected list['mytyping.Size'], got int 1"
    )


def test_value_computed_from_a_required_one_is_not_a_problem_of_its_own():
    cfg = konfig.ConfigDict({"a": konfig.required(int)})
    cfg.b = cfg.ref.a + 1
    assert [problem.path for problem in konfig.check(cfg)] == ["a"]
    cfg = konfig.ConfigDict({"b": konfig.required(int) + 1})
    (problem,) = konfig.check(cfg)
    assert problem.message == "is required but not set."
    assert problem.suggestion == "Set it: --cfg.b=..."
