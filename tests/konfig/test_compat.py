"""Module paths that configs, pickles and other code of the past name."""

import importlib
import pickle

import pytest

from kauldron import konfig


@pytest.mark.parametrize(
    "module, name",
    [
        ("checking", "Problem"),
        ("configdict", "ConfigDict"),
        ("configdict_proxy", "QUALNAME_KEY"),
        ("configdict_proxy", "CONST_KEY"),
        ("configdict_proxy", "ConfigDictProxyObject"),
        ("diffing", "ConfigDiff"),
        ("module_configdict", "ModuleConfigDict"),
        ("placeholders", "Variable"),
        ("ref_functions", "_Followed"),
        ("references", "Operation"),
        ("set_events", "SetEvent"),
        ("shipped_defaults", "_item_of"),
    ],
)
def test_an_old_module_path_leads_to_the_same_thing(module, name):
    old = importlib.import_module(f"kauldron.konfig.{module}")
    assert getattr(konfig, module) is old
    assert hasattr(old, name)


def test_pickles_that_name_old_modules_are_read():
    cfg = konfig.ConfigDict({"n": konfig.placeholder(int, default=3)})
    cfg.m = cfg.ref.n + 1
    text = pickle.dumps(cfg, protocol=0)
    assert b"kauldron.konfig.tree." in text
    read = pickle.loads(text.replace(b"kauldron.konfig.tree.", b"kauldron.konfig."))
    assert read == cfg and type(read) is konfig.ConfigDict
    read.n = 5
    assert read.m == 6
