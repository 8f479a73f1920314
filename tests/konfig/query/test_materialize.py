"""`materialize_defaults`."""

import dataclasses
from typing import Any

import pytest

from kauldron import konfig

HERE = __name__


@dataclasses.dataclass(frozen=True)
class Net:
    width: int
    rate: float = 0.1
    sizes: tuple[int, ...] = (1, 2)
    tags: list[str] = dataclasses.field(default_factory=list)
    act: Any = dataclasses.field(default_factory=object)
    fn: Any = len


def function(a, /, b=1, *args, c="x", _hidden=3, **kwargs):
    return a, b, args, c, kwargs


def call(symbol, /, *args, **fields):
    positional = {str(i): arg for i, arg in enumerate(args)}
    return {"__qualname__": f"{HERE}:{symbol}", **positional, **fields}


def test_plain_defaults_are_filled_in():
    cfg = konfig.ConfigDict({"net": call("Net", width=3)})
    filled = konfig.materialize_defaults(cfg)
    assert filled == {"net": call("Net", width=3, rate=0.1, sizes=(1, 2), tags=[])}
    assert cfg == {"net": call("Net", width=3)}


def test_given_arguments_stay():
    cfg = konfig.ConfigDict(call("Net", 3, 0.5))
    assert konfig.materialize_defaults(cfg) == call(
        "Net", 3, 0.5, sizes=(1, 2), tags=[]
    )


def test_private_and_variadic_parameters_are_left_out():
    cfg = konfig.ConfigDict(call("function", 1))
    assert konfig.materialize_defaults(cfg) == call("function", 1, b=1, c="x")


def test_result_resolves_to_the_same():
    cfg = konfig.ConfigDict(call("function", 1, c="y"))
    assert konfig.resolve(konfig.materialize_defaults(cfg)) == konfig.resolve(cfg)


@pytest.mark.parametrize("name", ["not_there:f", f"{HERE}:nope", "builtins:print"])
def test_what_has_no_readable_defaults_stays(name):
    cfg = konfig.ConfigDict({"a": {"__qualname__": name, "sep": 1}})
    assert konfig.materialize_defaults(cfg).a.sep == 1


@pytest.mark.parametrize("what", ["everything", "a part"])
def test_defaults_of_a_locked_config_are_filled_in(what):
    cfg = konfig.ConfigDict({"net": call("Net", width=1)})
    (cfg if what == "everything" else cfg.net).lock()
    full = konfig.materialize_defaults(cfg)
    assert full.net.rate == 0.1
    assert full.is_locked == cfg.is_locked and full.net.is_locked
    assert "rate" not in cfg.net


def test_unlocked_block_leaves_every_lock_as_it_was():
    cfg = konfig.ConfigDict({"a": {"x": 1}, "b": {"x": 1}})
    cfg.a.lock()
    with cfg.unlocked():
        cfg.a.y = 1
    assert (cfg.is_locked, cfg.a.is_locked, cfg.b.is_locked) == (False, True, False)
    with cfg.a.unlocked():
        cfg.a.new = {}
    assert cfg.a.new.is_locked
