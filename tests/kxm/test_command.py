"""From job parameters to a command: targets, flags, placeholders."""

import os
import pathlib
import sys

import numpy as np
import pytest

from kauldron import konfig, kxm
from kauldron.konfig.overrides.config_files import ConfigSource, take_overrides
from kauldron.kxm import command


def test_targets(tmp_path):
    script = tmp_path / "fit.py"
    script.write_text("")
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "c.py").write_text("")

    def argv(target, **params):
        return command.target_argv(kxm.Job(target=target, **params), cwd=str(tmp_path))

    python = sys.executable
    assert argv(["a", "b"]) == ["a", "b"]
    assert argv("kauldron.main") == [python, "-m", "kauldron.main"]
    assert argv("module:json", python="py") == ["py", "-m", "json"]
    assert argv("fit.py") == [python, str(script)]
    assert argv("./program") == [str(program)]
    assert argv("sh") == ["sh"]
    assert argv("//tools:c") == [python, str(tmp_path / "tools" / "c.py")]
    info = kxm.InterpreterInfo(script_path="fit.py")
    assert argv("kauldron.main", interpreter_info=info) == [python, str(script)]


@pytest.mark.parametrize("target", ["nowhere.py", "no_such_command", "//a:b", "./x"])
def test_targets_that_cannot_run_are_refused(target, tmp_path):
    with pytest.raises(ValueError, match="target="):
        command.target_argv(kxm.Job(target=target), cwd=str(tmp_path))


def test_a_missing_target_names_the_job():
    with pytest.raises(ValueError, match="'fit' has no target"):
        command.target_argv(kxm.Job(name="fit"), cwd=".")


def test_flags_of_other_programs_are_text_or_json():
    args = {"a": "train[:80%]", "b": True, "c": None, "d": (1, {"x": np.float32(2)})}
    job = kxm.Job(args=args)
    assert command.flags(job, lambda value: value, None) == [
        "--a=train[:80%]",
        "--b=true",
        "--c=null",
        '--d=[1, {"x": 2.0}]',
    ]


def test_values_without_a_text_name_job_and_argument():
    job = kxm.Job(name="fit", args={"f": object()})
    with pytest.raises(TypeError, match="Job 'fit', argument 'f'"):
        command.flags(job, lambda value: value, None)


@pytest.mark.parametrize(
    "value",
    [
        "123",
        "None",
        "true",
        "[1]",
        "",
        "a b",
        "cosine",
        "1,2",
        " x",
        "it's",
        "línea\n2",
        0,
        -3,
        1e-5,
        float("inf"),
        True,
        None,
        [1, None, "2"],
        (1, 2),
        {"a": [True], "b": {"c": "1"}},
        np.int64(3),
        np.array([1, 2]),
    ],
)
def test_values_arrive_in_a_config_as_they_were(value):
    flag = f"--cfg.field={command.config_text(value)}"
    overrides, _ = take_overrides([flag], "cfg")
    cfg = konfig.ConfigDict({"field": None})
    konfig_value = overrides[0]
    source = ConfigSource(overrides=(konfig_value,))
    from kauldron.konfig.overrides.overrides import apply_in_order

    apply_in_order(cfg, source.overrides)
    expected = value.tolist() if hasattr(value, "tolist") else value
    stored = cfg.field
    if isinstance(expected, dict):
        assert stored.to_dict() == expected
    else:
        assert stored == expected
        assert isinstance(stored, type(expected))


def test_config_nodes_arrive_as_nodes():
    node = konfig.ConfigDict({"__qualname__": "flax.linen:Dense", "features": 3})
    overrides, _ = take_overrides([f"--cfg.m={command.config_text(node)}"], "cfg")
    cfg = konfig.ConfigDict({"m": None})
    konfig.apply_overrides(cfg, {"m": overrides[0].value})
    assert cfg.m == node


def test_placeholders_are_filled_in_texts_lists_and_dicts():
    fill = command.placeholder_filler(
        wu_dir="/wu", xp_dir="/xp", files={"c.py": "/f/c.py"}
    )
    value = {"a": [f"{kxm.WU_DIR_PROXY}/x", kxm.XP_DIR_PROXY]}
    assert fill(value) == {"a": ["/wu/x", "/xp"]}
    assert fill(kxm.file_path("c.py") + ":arg") == "/f/c.py:arg"
    with pytest.raises(ValueError, match=r"'d.py'.*'c.py'"):
        fill(kxm.file_path("d.py"))


def test_debug_switches_become_environment_variables(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    debug = kxm.Debug(dump_hlo=True, jax_log_compiles=True, flax_profile=False)

    def env(**params):
        return command.jax_environment(
            kxm.Job(debug=debug, **params),
            wu_dir="/wu",
            xp_dir="/xp",
            compilation_cache=True,
        )

    expected = {"XLA_FLAGS": "--xla_dump_to=/wu/xla_dump", "JAX_LOG_COMPILES": "1"}
    assert env() == expected
    assert env(platform="cpu") == {**expected, "JAX_PLATFORMS": "cpu"}
    cache = os.path.join("/xp", ".kxm", "jax_cache")
    assert env(platform="gpu=1")["JAX_COMPILATION_CACHE_DIR"] == cache
    assert env(add_jax_flags=False) == {}


def test_labels_are_looked_up_at_the_top_of_the_repository():
    here = pathlib.Path(__file__)
    top = command.git_top(here.parent)
    assert top is not None
    path = command.label_file("//tests/kxm:test_command", str(here.parent))
    assert path == str(here)
