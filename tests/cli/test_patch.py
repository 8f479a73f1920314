"""`PatchConfig` and the `--patch` flags."""

import dataclasses

import pytest

from kauldron import kd, konfig


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
    patch = kd.cli.PatchConfig(batch_size=3, eval_run_once=False)
    _, changes = patch(cfg)
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


@pytest.mark.parametrize("left_out", ["skip_eval", "skip_metrics"])
def test_early_stopping_goes_with_what_it_may_look_at(cfg, left_out):
    with konfig.imports():
        from kauldron import kd as kd_cfg
    stopping = kd_cfg.train.EarlyStopping(metric="test.accuracy", patience=1)
    cfg.hooks = {"stop": stopping, "mine": kd_cfg.train.Hook()}
    patched, _ = kd.cli.PatchConfig(batch_size=1)(cfg)
    assert list(patched.hooks) == ["stop", "mine"]
    patched, _ = kd.cli.PatchConfig(batch_size=1, **{left_out: True})(cfg)
    assert list(patched.hooks) == ["mine"]


def test_profile_and_checks(cfg):
    patched, _ = kd.cli.PatchConfig(profile=True, checkify=True, batch_size=1)(cfg)
    assert patched.stop_after_steps == 17
    trainer = konfig.resolve(patched)
    assert trainer.profiler.profile_duration_ms is None
    assert trainer.profiler.on_colab
    assert trainer.checkify_error_categories


def test_a_profiler_of_the_config_keeps_its_other_fields(cfg):
    with konfig.imports():
        from kauldron import kd as kd_cfg
    cfg.profiler = kd_cfg.inspect.Profiler(first_profile=3, profile_duration_ms=100)
    patched, _ = kd.cli.PatchConfig(profile=True)(cfg)
    assert konfig.resolve(patched.profiler).first_profile == 3
    assert patched.profiler.profile_duration_ms is None


def test_an_evaluator_that_says_not_when_it_runs_runs_once(cfg):
    del cfg.evals.test.run
    patched, _ = kd.cli.PatchConfig()(cfg)
    assert konfig.resolve(patched.evals.test.run) == kd.evals.Once(0)


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
