"""Configs made small, and commands as objects."""

import dataclasses

import pytest

from kauldron import kd, konfig
from kauldron.cli.job import distributed_options


@pytest.fixture
def cfg(folder):
    """The toy config."""
    from kauldron.cli.loading import load_config, source_from_arguments

    source, _ = source_from_arguments(["--cfg=toy.py"], "cfg")
    return load_config(source, import_nothing=True)


def test_default_patch_makes_everything_small(cfg):
    before = cfg.to_json()
    patched, changes = kd.cli.PatchConfig(batch_size=2)(cfg)
    once = {"__qualname__": "kauldron.kd:evals.Once", "0": 0}
    assert {p: v for p, v in changes.items() if not p.endswith(".run")} == {
        "stop_after_steps": 1,
        "train_ds.batch_size": 2,
        "eval_ds.batch_size": 2,
        "evals.test.num_batches": 1,
        "checkpointer": None,
        "setup.add_flatboard": False,
    }
    assert changes["evals.test.run"].to_dict() == once
    assert patched.evals.test.run is not patched.evals.alone.run
    assert patched.checkpointer is None
    assert cfg.to_json() == before


def test_batch_size_of_the_devices(cfg):
    import jax

    patched, _ = kd.cli.PatchConfig()(cfg)
    assert kd.cli.BATCH_SIZE_DEVICES == "devices"
    assert patched.train_ds.batch_size == jax.local_device_count()


def test_none_leaves_values_alone(cfg):
    patch = kd.cli.PatchConfig(
        stop_after_steps=None,
        batch_size=None,
        num_batches=None,
        eval_run_once=False,
        skip_checkpointer=False,
        skip_flatboard=False,
    )
    patched, changes = patch(cfg)
    assert changes == {}
    assert patched.to_json() == cfg.to_json()


def test_nested_data_sets_are_found():
    cfg = konfig.ConfigDict(
        {
            "train_ds": {"inner": [{"batch_size": 64, "shuffle_buffer_size": 900}]},
            "evals": {"a": {"ds": {"batch_size": 32}, "num_batches": None}},
        }
    )
    _, changes = kd.cli.PatchConfig(batch_size=3)(cfg)
    assert changes == {
        "stop_after_steps": 1,
        "train_ds.inner[0].batch_size": 3,
        "train_ds.inner[0].shuffle_buffer_size": 1,
        "evals.a.ds.batch_size": 3,
        "evals.a.num_batches": 1,
    }


def test_parts_can_be_left_out(cfg):
    cfg.evals.test.metrics = {"m": 1}
    cfg.train_summaries = {"s": 1}
    patch = kd.cli.PatchConfig(skip_metrics=True, skip_summaries=True, batch_size=1)
    patched, _ = patch(cfg)
    assert len(patched.train_metrics) == len(patched.train_summaries) == 0
    assert len(patched.evals.test.metrics) == 0
    assert "summaries" not in patched.evals.test
    patched, changes = kd.cli.PatchConfig(skip_eval=True, batch_size=1)(cfg)
    assert len(patched.evals) == 0
    assert not [path for path in changes if path.startswith("evals.")]


def test_profile_and_checks(cfg):
    patched, _ = kd.cli.PatchConfig(profile=True, checkify=True, batch_size=1)(cfg)
    assert patched.stop_after_steps == 17
    trainer = konfig.resolve(patched)
    assert trainer.profiler.profile_duration_ms is None
    assert trainer.profiler.on_colab
    assert trainer.checkify_error_categories


def test_what_is_kept_is_not_patched(cfg):
    patch = kd.cli.PatchConfig(batch_size=1)
    _, changes = patch(cfg, keep=["train_ds.batch_size", "evals.*.num_batches"])
    assert "train_ds.batch_size" not in changes
    assert "evals.test.num_batches" not in changes
    assert changes["eval_ds.batch_size"] == 1


def test_config_with_nothing_in_it():
    _, changes = kd.cli.PatchConfig()(konfig.ConfigDict({"setup": None}))
    assert changes == {"stop_after_steps": 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_size": "device"},
        {"num_batches": -1},
        {"skip_eval": 1},
        {"batch_size": True},
    ],
)
def test_wrong_values_are_refused(fields):
    with pytest.raises(ValueError, match=f"PatchConfig.{next(iter(fields))} must be"):
        kd.cli.PatchConfig(**fields)


def test_patch_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        kd.cli.PatchConfig().profile = True


#
# On the command line
#


def test_show_is_unchanged_without_patch_flags(kauldron):
    plain = kauldron("config", "show", "--cfg=toy.py", "--json")[1]
    assert konfig.ConfigDict.from_json(plain).train_ds.batch_size == 16
    assert "stop_after_steps" not in plain


def test_show_with_patch_flags(kauldron):
    _, out, _ = kauldron(
        "config",
        "show",
        "--cfg=toy.py",
        "--patch.skip_eval",
        "--cfg.train_ds.batch_size=8",
        "--nopatch.skip_checkpointer",
    )
    assert "# --cfg.train_ds.batch_size=8\n# patched: stop_after_steps=1\n" in out
    assert "evals={}" in out
    assert "batch_size=8" in out
    assert "checkpointer=kd.ckpts.Checkpointer" in out
    _, out, _ = kauldron("config", "show", "--cfg=toy.py", "--patch", "--history")
    assert "set by --patch (stop_after_steps)" in out


def test_patched_config_resolves(kauldron):
    code, out, _ = kauldron("config", "resolve", "--cfg=toy.py", "--patch")
    assert code == 0
    assert "stop_after_steps=1" in out


def test_patched_training_takes_one_step_in_a_temporary_folder(
    kauldron, folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    code, out, _ = kauldron("run", "train", "--cfg=toy.py", "--patch")
    assert code == 0
    (workdir,) = (tmp_path / "temporary").glob("kauldron-*")
    assert out.splitlines()[-1] == f"Everything is in {workdir}"
    assert '"step": 1' in (workdir / "train_complete.txt").read_text()
    assert not (workdir / "checkpoints").exists()


def test_user_overrides_win(kauldron, folder):
    code, _, _ = kauldron(
        "run",
        "train",
        "--cfg=toy.py",
        "--cfg.workdir=new",
        "--patch",
        "--cfg.stop_after_steps=3",
    )
    assert code == 0
    assert '"step": 3' in (folder / "new/train_complete.txt").read_text()


def test_patched_training_never_touches_a_real_run(kauldron, folder):
    kauldron("train", "--cfg=toy.py", "--cfg.workdir=run", "--cfg.num_train_steps=1")
    before = {p: p.read_bytes() for p in (folder / "run").glob("*.json")}
    code, _, err = kauldron("train", "--cfg=toy.py", "--cfg.workdir=run", "--patch")
    assert code == 2
    assert "There is a run in run" in err
    assert {p: p.read_bytes() for p in (folder / "run").glob("*.json")} == before


#
# Python side
#


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


def test_timed_says_what_is_done(capsys):
    with kd.cli.timed("Counting"):
        pass
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Counting ..."
    assert lines[1].startswith("Counting: ")


#
# Several processes
#


@pytest.mark.parametrize(
    "environment, options",
    [
        ({}, None),
        ({"SLURM_NTASKS": "8"}, None),
        ({"SLURM_STEP_NUM_TASKS": "1"}, None),
        ({"SLURM_STEP_NUM_TASKS": "2"}, {}),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, {}),
        ({"TPU_WORKER_HOSTNAMES": "a"}, None),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, {}),
        ({"JAX_COORDINATOR_ADDRESS": "a:1"}, {}),
        ({"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "1"}, None),
        ({"JAX_COORDINATOR_ADDRESS": "a:1", "KXM_NUM_PROCESSES": "1"}, None),
        (
            {
                "JAX_COORDINATOR_ADDRESS": "a:1",
                "KXM_NUM_PROCESSES": "3",
                "KXM_PROCESS_ID": "2",
            },
            {"coordinator_address": "a:1", "num_processes": 3, "process_id": 2},
        ),
    ],
)
def test_processes_are_joined_only_if_there_are_several(environment, options):
    assert distributed_options(environment) == options


def test_processes_can_be_joined_by_force():
    assert distributed_options({}, force=True) == {}
