"""Config files and modules: loading, entry points, arguments."""

import dataclasses
import sys
import textwrap
import types

import pytest

from kauldron import konfig
from kauldron.konfig.overrides.config_files import ConfigSource, ModuleConfigDict
from kauldron.konfig.overrides.overrides import match_override

WITH_ARGS = """
    import dataclasses
    from typing import Literal, Optional
    from kauldron import konfig

    @dataclasses.dataclass(frozen=True)
    class ConfigArgs:
        dataset: str = "mnist"
        layers: int = 2
        rate: float = 0.1
        fast: bool = False
        mode: Literal["a", "b"] = "a"
        sizes: tuple[int, ...] = (1,)
        limit: Optional[int] = None
        extra: dict = dataclasses.field(default_factory=dict)

    def get_config(args=ConfigArgs()):
        cfg = konfig.ConfigDict({"from_args": args.layers * 2})
        cfg.aux = args
        return cfg
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a config file into the working directory and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write_file(source, name="config.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return name

    return write_file


def build(file, *overrides):
    found = tuple(match_override(text, "cfg") for text in overrides)
    return ConfigSource(file=file, overrides=found).build()


# ------------------------------------------------------------------------------------
# Files
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["get_config", "config"])
def test_entry_point_is_called(write, name):
    file = write(f"def {name}():\n    return {{'a': 1}}")
    assert build(file) == {"a": 1}


def test_get_config_comes_before_config(write):
    source = "def config():\n    return {}\n\ndef get_config():\n    return {'a': 1}"
    assert build(write(source)) == {"a": 1}


def test_proxy_called_config_is_no_entry_point(write):
    source = """
        from kauldron import konfig
        with konfig.imports():
            from logging import config
    """
    with pytest.raises(AttributeError, match="get_config"):
        build(write(source))


def test_text_after_the_colon_is_passed(write):
    file = write("def get_config(text='none'):\n    return {'text': text}")
    assert build(f"{file}:a=1:b") == {"text": "a=1:b"}
    assert build(file) == {"text": "none"}


def test_file_in_a_folder_with_a_colon_is_found(write):
    file = write("def get_config(text=''):\n    return {'t': text}", "c:drive/x.py")
    assert build(f"{file}:hello") == {"t": "hello"}


def test_classes_of_the_file_can_be_resolved(write):
    source = """
        import dataclasses
        from kauldron import konfig

        @dataclasses.dataclass
        class Point:
            x: int

        def get_config():
            return konfig.ConfigDict({"__qualname__": f"{__name__}:Point", "x": 3})
    """
    point = konfig.resolve(build(write(source)))
    assert point == sys.modules["cfg_config"].Point(3)


def test_every_load_starts_afresh(write):
    file = write("def get_config():\n    return {'a': 1}")
    assert build(file) == {"a": 1}
    write("def other():\n    return {'a': 1}")
    with pytest.raises(AttributeError, match="get_config"):
        build(file)


def test_edit_of_equal_length_is_seen(write):
    for number in (1, 2):
        file = write(f"def get_config():\n    return {{'a': {number}}}")
        assert build(file) == {"a": number}


def test_failed_load_leaves_the_last_module(write):
    build(write("def get_config():\n    return {}"))
    before = sys.modules["cfg_config"]
    with pytest.raises(ZeroDivisionError):
        build(write("1 / 0", "broken.py"))
    assert sys.modules["cfg_config"] is before


def test_saved_config_is_loaded_with_overrides(write):
    cfg = konfig.ConfigDict({"a": {"n": 1}})
    cfg.b = cfg.a
    file = write(cfg.to_json(), "run/config.json")
    loaded = build(file, "--cfg.a.n=2")
    assert loaded == {"a": {"n": 2}, "b": {"n": 2}}
    assert loaded.a is loaded.b
    assert build("run") == cfg


def test_dotted_module_is_loaded(write, monkeypatch, tmp_path):
    write("", "package_of_configs/__init__.py")
    write("def get_config(t=''):\n    return {'t': t}", "package_of_configs/small.py")
    monkeypatch.syspath_prepend(tmp_path)
    assert build("package_of_configs.small") == {"t": ""}
    assert build("package_of_configs.small:x") == {"t": "x"}


@pytest.mark.parametrize(
    "source, kind, words",
    [
        ("def get_confg():\n    pass", AttributeError, ["config.py", "'get_confg'"]),
        ("def get_config():\n    pass", ValueError, ["config.py", "Forgot to return"]),
        ("def get_config():\n    return 3", ValueError, ["returned an int"]),
        (
            "def get_config():\n    return nope",
            NameError,
            ["get_config()", "config.py"],
        ),
        (
            "def get_config(a, b):\n    pass",
            TypeError,
            ["config.py", "missing a required"],
        ),
        (
            "import no_such_module_here",
            ImportError,
            ["config.py", "no_such_module_here"],
        ),
        ("def get_config(:\n    pass", SyntaxError, ["config.py"]),
        ("raise OSError(2, 'gone', 'x')", OSError, ["config.py", "gone"]),
    ],
)
def test_error_in_a_file_keeps_its_type_and_names_the_file(write, source, kind, words):
    file = write(source)
    with pytest.raises(kind) as caught:
        build(file)
    for word in words:
        assert word in str(caught.value)


def test_exception_class_with_its_own_text_keeps_its_type(write):
    source = """
        class Odd(Exception):
            def __init__(self, a, b):
                super().__init__(a, b)
            def __str__(self):
                return "odd text"
        def get_config():
            raise Odd(1, 2)
    """
    file = write(source)
    with pytest.raises(Exception, match="odd text") as caught:
        build(file)
    assert type(caught.value).__name__ == "Odd"
    notes = getattr(caught.value, "__notes__", [])
    assert "config.py" in "".join([str(caught.value), *notes])


@pytest.mark.parametrize(
    "file, kind, words",
    [
        ("confg.py", OSError, ["confg.py", "'config.py'"]),
        ("nowhere/config.py", OSError, ["nowhere/config.py", "no folder 'nowhere'"]),
        ("config", OSError, ["config.py"]),
        ("some/config", OSError, ["some/config", ".py file"]),
        ("nope.json", OSError, ["nope.json"]),
        ("no_such_module.config", ImportError, ["no_such_module"]),
    ],
)
def test_missing_file_is_named(write, file, kind, words):
    write("def get_config():\n    return {}")
    with pytest.raises(kind) as caught:
        build(file)
    for word in words:
        assert word in str(caught.value)


def test_no_file_at_all_is_a_value_error():
    with pytest.raises(ValueError, match="--cfg="):
        ConfigSource().build()


# ------------------------------------------------------------------------------------
# ConfigArgs
# ------------------------------------------------------------------------------------


def args_of(file, *overrides):
    return build(file, *overrides).aux.to_dict()


def test_arguments_have_defaults(write):
    assert args_of(write(WITH_ARGS))["dataset"] == "mnist"


@pytest.mark.parametrize(
    "text, name, value",
    [
        ('dataset="x=y,z"', "dataset", "x=y,z"),
        ("dataset=imagenet", "dataset", "imagenet"),
        ("dataset=123", "dataset", "123"),
        ("layers=3", "layers", 3),
        ("layers=1e2", "layers", 100),
        ("rate=1", "rate", 1.0),
        ("fast=true", "fast", True),
        ("fast=1", "fast", True),
        ("mode=b", "mode", "b"),
        ("sizes=(1,2)", "sizes", (1, 2)),
        ("sizes=[1,2]", "sizes", (1, 2)),
        ("limit=5", "limit", 5),
        ("limit=1e3", "limit", 1000),
        ("limit=None", "limit", None),
        ("extra={'a': 1}", "extra", {"a": 1}),
        ("layers=3,", "layers", 3),
    ],
)
def test_argument_can_be_given_in_both_ways(write, text, name, value):
    file = write(WITH_ARGS)
    flag = f"--cfg.__args__.{text.rstrip(',')}"
    for found in (args_of(f"{file}:{text}")[name], args_of(file, flag)[name]):
        assert found == value
        assert type(found) is type(value)


def test_flag_comes_after_the_text(write):
    file = write(WITH_ARGS)
    cfg = build(
        f"{file}:layers=3,dataset=x", "--cfg.__args__.layers=4", "--cfg.aux.rate=9"
    )
    assert cfg.from_args == 8
    assert (cfg.aux.dataset, cfg.aux.rate) == ("x", 9.0)


def test_bare_flag_sets_a_boolean_argument(write):
    file = write(WITH_ARGS)
    assert args_of(file, "--cfg.__args__.fast")["fast"] is True
    assert args_of(f"{file}:fast=true", "--nocfg.__args__.fast")["fast"] is False


@pytest.mark.parametrize(
    "text, words",
    [
        ("layrs=3", ["'layrs'", "'layers'"]),
        ("layers=many", ["layers", "expected int", "'many'"]),
        ("layers=1.5", ["expected int"]),
        ("fast=maybe", ["expected bool"]),
        ("mode=c", ["'a', 'b'"]),
        ("sizes=3", ["expected tuple[int, ...]"]),
        ("layers", ["name=value"]),
        ("=3", ["name=value"]),
        ("layers=[1,2", ["not closed"]),
        ("dataset='x", ["not closed"]),
        ("layers=1,layers=2", ["twice"]),
        ("a b=1", ["name=value"]),
    ],
)
def test_wrong_text_is_a_value_error(write, text, words):
    file = write(WITH_ARGS)
    with pytest.raises(ValueError) as caught:
        build(f"{file}:{text}")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "flag, words",
    [
        ("--cfg.__args__.layrs=3", ["'layers'"]),
        ("--cfg.__args__.layers=x", ["expected int"]),
        ("--cfg.__args__.extra.a=1", ["as a whole"]),
        ("--cfg.__args__={}", ["as a whole"]),
    ],
)
def test_wrong_argument_flag_is_a_value_error_that_quotes_it(write, flag, words):
    file = write(WITH_ARGS)
    with pytest.raises(ValueError) as caught:
        build(file, flag)
    assert str(caught.value).startswith(f"{flag}: ")
    for word in words:
        assert word in str(caught.value)


def test_argument_flag_without_config_args_is_an_error(write):
    file = write("def get_config():\n    return {}")
    with pytest.raises(ValueError, match="defines no dataclass ConfigArgs"):
        build(file, "--cfg.__args__.x=1")


def test_argument_flag_for_a_saved_config_is_an_error(write):
    file = write("{}", "config.json")
    with pytest.raises(ValueError, match="saved config"):
        build(file, "--cfg.__args__.x=1")


# ------------------------------------------------------------------------------------
# Modules
# ------------------------------------------------------------------------------------


@dataclasses.dataclass
class ConfigArgs:
    n: int = 1


def make_module(get_config, **fields):
    module = types.ModuleType("config_in_memory")
    vars(module).update(get_config=get_config, **fields)
    return module


def test_config_from_module():
    module = make_module(lambda args: {"n": args.n}, ConfigArgs=ConfigArgs)
    assert konfig.get_config_from_module(module) == {"n": 1}
    assert konfig.get_config_from_module(module, "n=5") == {"n": 5}


def test_config_from_module_with_plain_text():
    module = make_module(lambda text="": {"text": text})
    assert konfig.get_config_from_module(module, "abc") == {"text": "abc"}


def test_pending_config_takes_overrides_by_path():
    module = make_module(
        lambda args: {"n": args.n, "d": {"x": 0}, "l": [{"m": 1}]},
        ConfigArgs=ConfigArgs,
    )
    pending = ModuleConfigDict(module=module, cli_str_arg="n=2")
    konfig.set_by_path(pending, "d.x", 5)
    pending["l.*.m"] = 6
    pending.update({"__args__.n": 3, "d.y": "py::m.f(1)", "d.z": "123"})
    cfg = pending.get_module_config()
    assert cfg == {
        "n": 3,
        "d": {"x": 5, "y": {"__qualname__": "m:f", "0": 1}, "z": "123"},
        "l": [{"m": 6}],
    }
    assert pending.get_module_config() is not cfg


def test_pending_config_reports_the_path():
    pending = ModuleConfigDict(module=make_module(lambda: {"d": {}}))
    pending["e.x"] = 1
    with pytest.raises(KeyError, match=r"e\.x=1: There is no cfg\.e\.x"):
        pending.get_module_config()
