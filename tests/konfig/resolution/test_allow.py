"""`resolve(allow=...)`: configs that are not trusted."""

import subprocess
import sys

import pytest

from kauldron import konfig

REFUSED = [
    "os:system",
    "subprocess:run",
    "builtins:eval",
    "builtins:exec",
    "builtins:__import__",
    "builtins:getattr",
    "importlib:import_module",
    "fractionsx:Fraction",
    "fractions:Fraction.__class__",
    "fractions:Fraction.__init__.__globals__",
    "fractions:__builtins__",
    "fractions:sys.exit",
    "fractions.sys:exit",
    "fractions:operator.attrgetter",
    "fractions:re.compile",
    "json:codecs.open",
    "json.codecs:open",
    "json:decoder.scanner.re",
]


@pytest.mark.parametrize("qualname", REFUSED)
@pytest.mark.parametrize("form", ["__qualname__", "__const__"])
def test_symbols_from_elsewhere_are_refused(qualname, form):
    cfg = konfig.ConfigDict({"a": [{form: qualname}]})
    with pytest.raises(konfig.NotAllowedError, match=r"cfg\.a\[0\]") as error:
        konfig.resolve(cfg, allow=["fractions", "json"])
    assert qualname in str(error.value)


def test_all_refusals_are_listed_at_once_before_anything_is_built():
    built = []
    sys.modules["allow_test"] = type(sys)("allow_test")
    sys.modules["allow_test"].make = lambda: built.append(1)
    cfg = konfig.ConfigDict(
        {
            "ok": {"__qualname__": "allow_test:make"},
            "a": {"__qualname__": "os:system", "0": "true"},
            "b": {"c": [{"__const__": "shutil:rmtree"}]},
        }
    )
    try:
        with pytest.raises(konfig.NotAllowedError) as error:
            konfig.resolve(cfg, allow=("allow_test",))
    finally:
        del sys.modules["allow_test"]
    assert error.value.paths == ("cfg.a", "cfg.b.c[0]")
    assert built == []


def test_what_a_package_merely_imported_is_refused_also_when_it_is_a_function():
    module = sys.modules["allow_test"] = type(sys)("allow_test")
    exec("from os import system\nfrom shutil import rmtree\nimport os", vars(module))
    try:
        for name in ("system", "rmtree", "os", "os.system"):
            with pytest.raises(konfig.NotAllowedError, match=r"belongs to"):
                konfig.resolve(
                    {"__const__": f"allow_test:{name}"}, allow=["allow_test"]
                )
    finally:
        del sys.modules["allow_test"]


def test_symbols_of_the_allowed_packages_are_built():
    cfg = {"__qualname__": "fractions:Fraction", "0": 1, "1": 3}
    assert konfig.resolve(cfg, allow=["fractions"]).denominator == 3
    home = {"__const__": "json:decoder.JSONDecoder.decode"}
    assert konfig.resolve(home, allow=["json"]).__name__ == "decode"


def test_plain_data_is_always_allowed():
    cfg = konfig.ConfigDict(
        {"s": {1, 2}, "b": b"a", "sl": slice(1), "e": ..., "c": 1j, "n": [None, 1]}
    )
    loaded = konfig.ConfigDict.from_json(cfg.to_json())
    assert konfig.resolve(loaded, allow=[]) == konfig.resolve(cfg)


def test_symbols_behind_references_proxies_and_unions_are_seen():
    with konfig.imports():
        import os
    cfg = konfig.ConfigDict({"s": {os.system}, "u": os.PathLike | None})
    cfg.l = []
    cfg.l.append(os.remove)
    cfg.f = konfig.ref_fn(lambda: {"__const__": "os:abort"})()
    with pytest.raises(konfig.NotAllowedError) as error:
        konfig.resolve(cfg, allow=["json"])
    assert set(error.value.paths) == {"cfg.s", "cfg.u", "cfg.l[0]", "cfg.f"}


def test_a_refused_module_is_not_imported():
    script = (
        "import sys\nfrom kauldron import konfig\n"
        "try:\n"
        "    konfig.resolve({'a': {'__qualname__': 'colorsys:rgb_to_hsv'}}, allow=['x'])\n"
        "except konfig.NotAllowedError:\n"
        "    assert 'colorsys' not in sys.modules\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_text_instead_of_a_list_is_refused():
    with pytest.raises(TypeError, match="list"):
        konfig.resolve({}, allow="json")


def test_a_package_reached_through_the_kauldron_namespace():
    cfg = {"__const__": "kauldron.kd:konfig.set_events.os.system"}
    with pytest.raises(konfig.NotAllowedError, match="belongs to 'os'"):
        konfig.resolve(cfg, allow=["kauldron"])
    with pytest.raises(AttributeError):  # konfig itself has no such name
        konfig.resolve(
            {"__const__": "kauldron.kd:konfig.os.system"}, allow=["kauldron"]
        )
    symbol = konfig.resolve(
        {"__const__": "kauldron.kd:konfig.ref_fn"}, allow=["kauldron"]
    )
    assert symbol is konfig.ref_fn
