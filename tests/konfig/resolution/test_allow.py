"""`resolve(allow=...)`: configs that are not trusted."""

import dataclasses
import enum
import json
import os
import subprocess
import sys

import pytest

from kauldron import kd, konfig


@dataclasses.dataclass(frozen=True)
class Point:
    x: int


class Color(enum.Enum):
    RED = 1


def make_point():
    raise AssertionError("must not be called")


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
    cfg = {"__qualname__": "tests.konfig.resolution.test_allow:Point", "x": 3}
    assert konfig.resolve(cfg, allow=["tests"]).x == 3
    color = {"__const__": "tests.konfig.resolution.test_allow:Color.RED"}
    assert konfig.resolve(color, allow=["tests.konfig"]) is Color.RED


def test_other_symbols_are_named_one_by_one():
    cfg = {"__qualname__": "fractions:Fraction", "0": 1, "1": 3}
    with pytest.raises(
        konfig.NotAllowedError, match="'fractions:Fraction' in the list"
    ):
        konfig.resolve(cfg, allow=["fractions"])
    assert konfig.resolve(cfg, allow=["fractions:Fraction"]).denominator == 3
    with pytest.raises(konfig.NotAllowedError, match="not from an allowed package"):
        konfig.resolve({"__const__": "fractions:Decimal"}, allow=["fractions:Fraction"])


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
        {"__const__": "kauldron.kd:train.Setup"}, allow=["kauldron"]
    )
    assert symbol is kd.train.Setup


# ------------------------------------------------------------------------------------
# Hostile configs, under the list that folders of other users get
# ------------------------------------------------------------------------------------

_HERE = "tests.konfig.resolution.test_allow"
_EVIL = json.dumps({"__qualname__": "os:system", "0": "true"})
_HOSTILE = [
    # Other packages.
    "os:system",
    "os:popen",
    "os:remove",
    "posix:system",
    "shutil:rmtree",
    "subprocess:check_output",
    "builtins:open",
    "builtins:eval",
    "builtins:exec",
    "builtins:compile",
    "builtins:__import__",
    "builtins:getattr",
    "builtins:setattr",
    "importlib:import_module",
    "runpy:run_path",
    "pickle:loads",
    "marshal:loads",
    "ctypes:CDLL",
    "code:interact",
    "webbrowser:open",
    "urllib.request:urlretrieve",
    "socket:socket",
    "threading:Thread",
    "types:FunctionType",
    "functools:reduce",
    "operator:attrgetter",
    "operator:methodcaller",
    "pathlib:Path.write_text",
    "pathlib:Path.unlink",
    # What an allowed package loads, resolves, opens or runs.
    "kauldron.konfig:resolve",
    "kauldron.konfig:ConfigDict.from_json",
    "kauldron.konfig:apply_overrides",
    "kauldron.konfig:get_config_from_module",
    "kauldron.konfig.overrides.config_files:load_module",
    "kauldron.konfig.overrides.config_files:make_importable",
    "kauldron.konfig.overrides.py_expressions:parse_py",
    "kauldron.konfig.symbols:import_qualname",
    "kauldron.kd:konfig.resolve",
    "kauldron.kd:from_workdir.get_trainer",
    "kauldron.from_workdir:get_state",
    "kauldron.cli.main:main",
    "kauldron.cli.loading:SubCommand",
    "kauldron.main:main",
    "kauldron.kd:train.Trainer.train",
    "kauldron.kd:data.py.Npz.__init__",
    "kauldron.lazy_namespace:older_modules",
    "kauldron.lazy_namespace:lazy_imports",
    "flax.io:GFile",
    "flax.io:makedirs",
    "flax.io:rmtree",
    "flax.serialization:msgpack_restore",
    "flax.serialization:from_bytes",
    "flax.training.checkpoints:restore_checkpoint",
    "flax.core:freeze",
    "flax.linen:Module.apply",
    "flax.linen:jit",
    "jax:pure_callback",
    "jax:jit",
    "jax.experimental:io_callback",
    "jax.debug:callback",
    "jax.profiler:start_trace",
    "jax.numpy:load",
    "jax.numpy:save",
    "numpy:load",
    "numpy:save",
    "numpy:savez",
    "numpy:fromfile",
    "numpy:memmap",
    "numpy:loadtxt",
    "numpy:genfromtxt",
    "numpy:frompyfunc",
    "numpy:vectorize",
    "numpy:apply_along_axis",
    "numpy:fromfunction",
    "numpy.lib.format:open_memmap",
    "numpy.ctypeslib:load_library",
    "numpy.testing:rundocs",
    "numpy.testing:measure",
    # Reached through what an allowed package has imported, or by another name.
    "kauldron.konfig.overrides.config_files:os.system",
    "kauldron.from_workdir:os.system",
    "kauldron.from_workdir.os:system",
    "kauldron.from_workdir.konfig.resolve",
    "kauldron.kd.konfig.resolve",
    "flax.io:os.remove",
    "flax.io:shutil.rmtree",
    "numpy.ctypeslib._ctypeslib:os.remove",
    "numpy.testing._private.utils:os.remove",
    "flax.training.checkpoints:os.remove",
    "jax:__builtins__",
    "jax.__builtins__.eval",
    "optax:adam.__globals__",
    "optax:adam.__class__",
    "optax:adam.__call__",
    "kauldron.kd:train.Trainer.__init__.__globals__",
    # Functions of the user's own package, and malformed names.
    f"{_HERE}:make_point",
    f"{_HERE}:konfig.resolve",
    f"{_HERE}:subprocess.run",
    "numpy",
    "os",
    "a:b:c",
    ":system",
    "",
]


@pytest.mark.parametrize("form", ["__qualname__", "__const__"])
@pytest.mark.parametrize("qualname", _HOSTILE)
def test_hostile_symbol_is_refused(qualname, form):
    cfg = {"model": {"layers": [{form: qualname}]}}
    with pytest.raises(konfig.NotAllowedError, match=r"cfg\.model\.layers\[0\]"):
        konfig.resolve(cfg, allow=[*konfig.COMMON_PACKAGES, "tests"])


def _call(qualname, *args, **kwargs):
    positional = {str(index): arg for index, arg in enumerate(args)}
    return {"__qualname__": qualname, **positional, **kwargs}


_NESTED = {
    "resolve of a text": _call(
        "kauldron.konfig:resolve", _call("kauldron.konfig:ConfigDict.from_json", _EVIL)
    ),
    "argument of an allowed call": _call(
        "kauldron.kd:train.Setup", tqdm_info=_call("os:system", "true")
    ),
    "allowed call with a hostile function": _call(
        "functools:partial", {"__const__": "os:system"}, "true"
    ),
    "in a tuple in a dict": {"a": {"b": ({"c": _call("os:system", "true")},)}},
    "behind an older path": _call("kauldron.konfig.module_configdict:load_module", "f"),
    "another class with the name of an allowed one": _call(
        "kauldron.cli.commands.train:Train", cfg={}
    ),
    "both forms in one node": {
        "__const__": "numpy:float32",
        "__qualname__": "os:abort",
    },
    "in the optimizer": _call(
        "optax:chain", _call("optax:stateless", _call("os:abort"))
    ),
}


@pytest.mark.parametrize("name", _NESTED)
def test_nested_hostile_config_is_refused(name):
    with pytest.raises(konfig.NotAllowedError):
        konfig.resolve(konfig.ConfigDict(_NESTED[name]), allow=konfig.COMMON_PACKAGES)


@pytest.mark.parametrize("form", ["resolve", "check"])
def test_nothing_hostile_is_imported_or_called(tmp_path, form):
    (tmp_path / "evil_module.py").write_text("open('imported', 'w')")
    script = f"""
import sys
from kauldron import konfig
sys.path.insert(0, {str(tmp_path)!r})
cfg = konfig.ConfigDict({{"__qualname__": "evil_module:f"}})
try:
    with konfig.restricted(konfig.COMMON_PACKAGES):
        konfig.{form}(cfg)
except konfig.NotAllowedError:
    print("refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "refused\n", done.stderr
    assert not (tmp_path / "imported").exists()


# ------------------------------------------------------------------------------------
# What configs are made of
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "qualname, kwargs",
    [
        ("kauldron.kd:train.Setup", {}),
        ("kauldron.kd:data.ValueRange", {"key": "image", "vrange": (0, 1)}),
        ("kauldron.kd:losses.L2", {"preds": "preds", "targets": "batch.x"}),
        ("kauldron.kd:nn.Identity", {}),
        ("kauldron.kd:optim.exclude", {"0": "encoder"}),
        ("kauldron.metrics.norm:Norm", {"tensor": "a"}),
        ("flax.linen:Dense", {"features": 3}),
        ("flax.linen:initializers.normal", {"stddev": 0.1}),
        ("optax:adam", {"learning_rate": 0.1}),
        ("optax:cosine_decay_schedule", {"init_value": 1, "decay_steps": 1}),
        ("optax:clip_by_global_norm", {"0": 1.0}),
        ("numpy:array", {"0": [1, 2]}),
        ("numpy:float32", {"0": 1}),
        ("jax.numpy:bfloat16", {"0": 1}),
        ("pathlib:Path", {"0": "a"}),
    ],
)
def test_what_configs_are_made_of_is_built(qualname, kwargs):
    built = konfig.resolve(
        {"__qualname__": qualname, **kwargs}, allow=konfig.COMMON_PACKAGES
    )
    assert built is not None


@pytest.mark.parametrize(
    "qualname",
    [
        "flax.linen:relu",
        "flax.linen:gelu",
        "jax.nn:silu",
        "jax.numpy:float32",
        "numpy:int8",
        "kauldron.kd:sharding.REPLICATED",
        "optax:adam",
    ],
)
def test_constants_of_configs_are_accepted(qualname):
    allow = konfig.COMMON_PACKAGES
    value = konfig.resolve({"__const__": qualname}, allow=allow)
    assert value is konfig.resolve({"__const__": qualname})


def test_a_list_applies_to_what_is_resolved_inside():
    cfg = konfig.ConfigDict({"__const__": f"{_HERE}:make_point"})
    assert konfig.resolve(cfg) is make_point
    with konfig.restricted(["tests"]), pytest.raises(konfig.NotAllowedError):
        konfig.resolve(cfg, allow=["*"])  # cannot be widened
    with konfig.restricted(["*"]):
        assert konfig.resolve(cfg) is make_point
        with pytest.raises(konfig.NotAllowedError):
            konfig.resolve(cfg, allow=["tests"])


@pytest.mark.parametrize("more", [{}, {"allow": ["*"]}])
def test_a_list_applies_to_the_folder_of_a_run_that_a_config_names(tmp_path, more):
    (tmp_path / "config.json").write_text(json.dumps({"model": json.loads(_EVIL)}))
    cfg = _call("kauldron.from_workdir:get_resolved", str(tmp_path), "model", **more)
    with pytest.raises(konfig.NotAllowedError, match="os:system"):
        konfig.resolve(cfg, allow=["kauldron", "optax"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to others")
def test_folder_of_another_user_is_restricted(tmp_path):
    cfg = konfig.ConfigDict({"model": {"__const__": f"{_HERE}:make_point"}})
    file = tmp_path / "config.json"
    file.write_text(cfg.to_json())
    assert kd.from_workdir.get_resolved(tmp_path, "model") is make_point
    os.chown(file, 12345, 12345)
    with pytest.raises(konfig.NotAllowedError, match="Another user owns"):
        kd.from_workdir.get_resolved(tmp_path, "model")
    for allow in (["*"], ["tests:konfig.resolution.test_allow.make_point"]):
        found = kd.from_workdir.get_resolved(tmp_path, "model", allow=allow)
        assert found is make_point
