"""Commands as objects, from Python."""

import dataclasses

import pytest

from kauldron import kd, konfig


def test_tracked_update_tells_what_it_changed():
    cfg = konfig.ConfigDict({"a": {"n": 1}, "b": {"n": 2, "m": 1}})
    assert kd.cli.tracked_update(cfg, "**.n", 2) == {"a.n": 2}
    assert kd.cli.tracked_update(cfg, "*.nothing", 2) == {}
    assert kd.cli.tracked_update(cfg, "b.new", 3) == {"b.new": 3}
    with pytest.raises(KeyError, match="no c"):
        kd.cli.tracked_update(cfg, "c.n", 2)


def test_origin_tells_only_what_there_is():
    assert kd.cli.ConfigOrigin().summary() == ""
    origin = kd.cli.ConfigOrigin("a.py", {"x": 1, '["odd key"]': 2}, {"y": 3})
    assert origin.summary().splitlines() == [
        "--cfg=a.py",
        "--cfg.x=1",
        '--cfg["odd key"]=2',
        "patched: y=3",
    ]
    assert "patched" not in origin.summary(include_patches=False)


def test_commands_are_objects(cfg, capsys):
    assert kd.cli.run.EvalShape(cfg)() == 0
    assert "params.layers_0.kernel" in capsys.readouterr().out
    assert kd.cli.config.Show(cfg=cfg, json=True).execute() == 0
    assert capsys.readouterr().out.startswith("{")
    assert kd.cli.config.Resolve(cfg, verbose=False)() == 0
    assert capsys.readouterr().out == "The config resolves to a Trainer.\n"
    assert kd.cli.data.ElementSpec(cfg, ds_path="eval_ds")() == 0
    assert capsys.readouterr().out.startswith("x\tfloat32")


def test_command_of_a_group_gets_the_config(cfg):
    seen = []

    @dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
    class Look(kd.cli.SubCommand):
        option: int = 0

        def __call__(self):
            seen.append(self)
            return 3

    group = kd.cli.CommandGroup(sub_command=Look(option=5))
    origin = kd.cli.ConfigOrigin("toy.py")
    assert kd.cli.execute_command(group, cfg, origin) == 3
    (command,) = seen
    assert (command.cfg, command.origin, command.group) == (cfg, origin, group)
    assert command.option == 5
    assert command.trainer is command.trainer


def test_command_without_a_config_says_so():
    with pytest.raises(ValueError, match="Show needs a config"):
        kd.cli.config.Show()()
    with pytest.raises(NotImplementedError, match="SubCommand"):
        kd.cli.SubCommand()()


def test_older_place_of_the_names():
    from kauldron.cli import cmd_utils

    for name in ("CommandGroup", "SubCommand", "execute_command", "tracked_update"):
        assert getattr(cmd_utils, name) is getattr(kd.cli, name)


def test_older_place_of_the_patches():
    from kauldron.cli.patch_config import ConfigOrigin, PatchConfig

    assert (ConfigOrigin, PatchConfig) == (kd.cli.ConfigOrigin, kd.cli.PatchConfig)


def test_timed_says_what_is_done(capsys):
    with kd.cli.timed("Counting"):
        pass
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Counting ..."
    assert lines[1].startswith("Counting: ")
