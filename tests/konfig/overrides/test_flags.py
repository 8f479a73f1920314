"""`DEFINE_config_file`: the absl flag, its overrides, and its serialised form."""

import copy
import subprocess
import sys
import textwrap

import pytest
from absl import flags
from absl.testing import flagsaver
from ml_collections.config_flags import config_flags

from kauldron import konfig

CONFIG = """
from kauldron import konfig

calls = []

def get_config():
    calls.append(1)
    return konfig.ConfigDict({
        "seed": 0,
        "name": "net",
        "debug": False,
        "nested": {"n": 1},
        "sizes": [1, 2],
    })
"""


@pytest.fixture
def config_file(tmp_path):
    file = tmp_path / "config.py"
    file.write_text(CONFIG)
    return str(file)


def define(name="cfg", **kwargs):
    values = flags.FlagValues()
    return values, konfig.DEFINE_config_file(name, flag_values=values, **kwargs)


def parse(*arguments, **kwargs):
    """The value of a new `--cfg` flag for a command line."""
    values, holder = define(**kwargs)
    values(["program", *arguments])
    return holder.value


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A working directory with modules that are not installed, as the current one."""
    (tmp_path / "kauldron_flags_parts.py").write_text(
        "def make(n):\n    return n + 1\n"
    )
    (tmp_path / "kauldron_flags_configs").mkdir()
    (tmp_path / "kauldron_flags_configs" / "small.py").write_text(
        "def get_config():\n"
        "    return {'x': {'__qualname__': 'kauldron_flags_parts:make', '0': 1}}\n"
    )
    (tmp_path / "config.json").write_text(
        '{"x": {"__qualname__": "kauldron_flags_parts:make", "0": 1}}'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("kauldron_flags_")]:
        del sys.modules[name]


# ------------------------------------------------------------------------------------
# The value
# ------------------------------------------------------------------------------------


def test_value_is_the_config_of_the_file(config_file):
    for arguments in (
        [f"--cfg={config_file}"],
        ["--cfg", config_file],
        [f"-cfg={config_file}"],
    ):
        cfg = parse(*arguments)
        assert isinstance(cfg, konfig.ConfigDict)
        assert cfg.seed == 0


def test_overrides_are_applied(config_file):
    cfg = parse(
        f"--cfg={config_file}",
        "--cfg.seed=3",
        "--cfg.nested.n=4",
        "--cfg.debug",
        "--cfg.sizes[-1]=7",
    )
    assert (cfg.seed, cfg.nested.n, cfg.debug, cfg.sizes) == (3, 4, True, [1, 7])


def test_no_flag_sets_false(config_file):
    cfg = parse(f"--cfg={config_file}", "--cfg.debug", "--nocfg.debug")
    assert cfg.debug is False


def test_overrides_may_stand_before_the_file(config_file):
    assert parse("--cfg.seed=3", f"--cfg={config_file}").seed == 3


def test_value_is_the_same_object_at_every_access(config_file):
    values, holder = define()
    values(["program", f"--cfg={config_file}"])
    holder.value.seed = 7
    assert holder.value is holder.value is values.cfg is values["cfg"].value
    assert holder.value.seed == 7


def test_file_is_loaded_when_the_value_is_first_read(config_file):
    values, holder = define()
    values(["program", f"--cfg={config_file}"])
    sys.modules.pop("cfg_config", None)
    assert "cfg_config" not in sys.modules
    assert holder.value is not None
    assert len(sys.modules["cfg_config"].calls) == 1
    assert holder.value is not None
    assert len(sys.modules["cfg_config"].calls) == 1


@pytest.mark.parametrize("file", ["config.json", "kauldron_flags_configs.small"])
def test_modules_of_the_working_directory_are_found(project, file):
    assert str(project) not in sys.path
    assert konfig.resolve(parse(f"--cfg={file}")).x == 2
    assert sys.path[-1] == str(project)  # last: it hides no installed module


def test_file_uses_the_modules_beside_it_not_those_where_it_is_started(project):
    beside = project / "kauldron_flags_configs" / "kauldron_flags_parts.py"
    beside.write_text("def make(n):\n    return -n\n")
    assert konfig.resolve(parse("--cfg=kauldron_flags_configs/small.py")).x == -1


def test_setting_the_flag_again_loads_again(config_file, tmp_path):
    other = tmp_path / "other.py"
    other.write_text("def get_config():\n    return {'seed': 9}")
    values, holder = define()
    values(["program", f"--cfg={config_file}"])
    assert holder.value.seed == 0
    values.cfg = str(other)
    assert holder.value == {"seed": 9}
    values(["program", f"--cfg={config_file}", "--cfg.seed=2"])
    assert holder.value.seed == 2


def test_new_file_starts_without_the_overrides_of_the_last(config_file):
    values, holder = define()
    values(["program", f"--cfg={config_file}", "--cfg.seed=2"])
    values(["program"])
    assert holder.value.seed == 2
    values(["program", f"--cfg={config_file}"])
    assert holder.value.seed == 0


def test_flag_can_be_set_to_a_config():
    values, holder = define()
    values(["program"])
    cfg = konfig.ConfigDict({"a": 1})
    values.cfg = cfg
    assert holder.value is cfg


def test_without_a_file_the_value_is_none():
    assert parse() is None


def test_default_file_is_used(config_file):
    assert parse("--cfg.seed=4", default=config_file).seed == 4


def test_required_flag_that_is_missing_is_an_absl_error():
    values, _ = define(required=True)
    with pytest.raises(flags.IllegalFlagValueError, match="--cfg must have a value"):
        values(["program"])


def test_required_flag_does_not_load_the_file_while_parsing(tmp_path):
    values, holder = define(required=True)
    values(["program", f"--cfg={tmp_path / 'missing.py'}"])
    with pytest.raises(OSError, match=r"missing\.py"):
        holder.value


def test_lock_config_is_refused():
    with pytest.raises(ValueError, match="lock_config"):
        define(lock_config=True)


def test_legacy_flag_is_that_of_ml_collections(config_file, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program"])
    values, holder = define(use_legacy_flag=True)
    values(["program", f"--cfg={config_file}"])
    assert config_flags.is_config_flag(values["cfg"])
    assert holder.value.seed == 0


# ------------------------------------------------------------------------------------
# With other flags
# ------------------------------------------------------------------------------------


def test_other_flags_and_arguments_are_untouched(config_file):
    values, holder = define()
    flags.DEFINE_string("note", None, "", flag_values=values)
    flags.DEFINE_bool("fast", False, "", flag_values=values)
    rest = values(
        ["program", "word", f"--cfg={config_file}", "--note", "--cfg.seed=5", "--fast"]
        + ["--cfg.seed=6", "--", "--cfg.seed=7"]
    )
    assert rest == ["program", "word", "--cfg.seed=7"]
    assert values.note == "--cfg.seed=5"
    assert values.fast
    assert holder.value.seed == 6


def test_unknown_flag_is_an_absl_error(config_file):
    values, _ = define()
    with pytest.raises(flags.UnrecognizedFlagError, match="cgf"):
        values(["program", "--cgf.seed=3"])


def test_known_only_returns_unknown_flags(config_file):
    values, holder = define()
    rest = values(
        ["program", "--other=1", f"--cfg={config_file}", "--cfg.seed=3"],
        known_only=True,
    )
    assert rest == ["program", "--other=1"]
    assert holder.value.seed == 3


def test_two_config_flags_keep_their_overrides(config_file):
    values, cfg = define("cfg")
    other = konfig.DEFINE_config_file("other", flag_values=values)
    values(
        ["program", f"--cfg={config_file}", f"--other={config_file}"]
        + ["--cfg.seed=1", "--other.seed=2"]
    )
    assert (cfg.value.seed, other.value.seed) == (1, 2)


def test_malformed_path_is_an_absl_error():
    values, _ = define()
    with pytest.raises(flags.IllegalFlagValueError, match=r"--cfg\.a\.\.b=1: "):
        values(["program", "--cfg.a..b=1"])


def test_global_flags_of_absl_work(config_file):
    holder = konfig.DEFINE_config_file("config_for_this_test")
    try:
        with flagsaver.flagsaver():
            flags.FLAGS(
                ["program", f"--config_for_this_test={config_file}"]
                + ["--config_for_this_test.seed=3"]
            )
            assert holder.value.seed == 3
    finally:
        delattr(flags.FLAGS, "config_for_this_test")


# ------------------------------------------------------------------------------------
# What the flag knows
# ------------------------------------------------------------------------------------


def test_filename_and_overrides_can_be_asked_for():
    values, _ = define()
    values(
        ["program", "--cfg=a.py:x", "--cfg.a=1", "--cfg.b=py::m.f(1)", "--cfg.c.d=true"]
        + ["--cfg.e", "--nocfg.f", "--cfg.a=2"]
    )
    assert values["cfg"].config_filename == "a.py:x"
    assert list(values["cfg"].override_values.items()) == [
        ("b", "py::m.f(1)"),
        ("c.d", True),
        ("e", True),
        ("f", False),
        ("a", 2),
    ]


def test_override_error_names_the_flag(config_file):
    with pytest.raises(KeyError, match=r"--cfg\.nestd\.n=1: .*'nested'"):
        parse(f"--cfg={config_file}", "--cfg.nestd.n=1")


def test_parent_after_child_is_an_order_error(config_file):
    with pytest.raises(config_flags.FlagOrderError):
        parse(f"--cfg={config_file}", "--cfg.nested.n=1", "--cfg.nested={}")


@pytest.mark.filterwarnings("error")
def test_flagsaver_saves_and_restores(config_file):
    holder = konfig.DEFINE_config_file("config_for_this_test")
    try:
        flags.FLAGS(["program", f"--config_for_this_test={config_file}"])
        before = holder.value
        with flagsaver.flagsaver():
            arguments = [
                f"--config_for_this_test={config_file}",
                "--config_for_this_test.seed=5",
            ]
            flags.FLAGS(["program", *arguments])
            assert holder.value.seed == 5
        assert holder.value.seed == 0
        assert holder.value is before
        with flagsaver.flagsaver(config_for_this_test=None):
            assert holder.value is None
        assert holder.value.seed == 0
        with flagsaver.as_parsed(config_for_this_test=config_file):
            assert holder.value.seed == 0
    finally:
        delattr(flags.FLAGS, "config_for_this_test")


def test_unparsing_forgets_everything(config_file):
    values, _ = define()
    values(["program", f"--cfg={config_file}", "--cfg.seed=3"])
    values.unparse_flags()
    values(["program"])
    assert values.cfg is None
    assert values["cfg"].override_values == {}


def test_flag_values_can_be_copied(config_file):
    values, _ = define()
    values(["program", f"--cfg={config_file}", "--cfg.seed=3"])
    copied = copy.deepcopy(values)
    copied(["program", "--cfg.seed=4"])
    assert (values.cfg.seed, copied.cfg.seed) == (3, 4)


# ------------------------------------------------------------------------------------
# Serialising
# ------------------------------------------------------------------------------------

OVERRIDES = [
    "--cfg.seed=3",
    "--cfg.name=123",
    "--cfg.new='quoted '",
    "--cfg.text= padded",
    "--cfg.lines=a\nb",
    "--cfg.debug",
    "--nocfg.off",
    "--cfg.nested={'n': 2,\n 'm': None}",
    "--cfg.call=py::fractions.Fraction(1, denominator=3)",
    '--cfg["odd = key"]=1',
    "--cfg.empty=",
    "--cfg.sizes=[3]",
    "--cfg.sizes[0]=4",
]


def test_serialised_flags_give_the_same_config(config_file):
    values, _ = define()
    values(["program", f"--cfg={config_file}", *OVERRIDES])
    again, _ = define()
    again(["program", *values.flags_into_string().splitlines()])
    assert again.cfg == values.cfg
    assert again["cfg"].override_values == values["cfg"].override_values


def test_flag_file_gives_the_same_config_in_a_new_process(config_file, tmp_path):
    values, _ = define()
    values(["program", f"--cfg={config_file}", *OVERRIDES])
    flag_file = tmp_path / "flags.txt"
    values.append_flags_into_file(str(flag_file))
    program = """
        import sys
        from absl import flags
        from kauldron import konfig
        holder = konfig.DEFINE_config_file("cfg")
        flags.FLAGS(sys.argv)
        print(holder.value.to_json())
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), f"--flagfile={flag_file}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert konfig.ConfigDict.from_json(result.stdout) == values.cfg


def test_single_flag_is_serialised_with_its_overrides(config_file):
    values, holder = define()
    values(["program", "--cfg=a.py", "--cfg.seed=3", "--nocfg.x"])
    assert values["cfg"].serialize().splitlines() == [
        "--cfg=a.py",
        "--cfg.seed=3",
        "--nocfg.x",
    ]
