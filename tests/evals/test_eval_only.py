"""Evaluating an earlier run with `Trainer.eval_only`."""

import json
import shutil
import threading

import pytest

from kauldron import kd, konfig
from tests.evals.experiments import eval_data, make_cfg, points, resolve, steps
from tests.evals.experiments import kd as kd_cfg


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete run with checkpoints 0, 4, 8, 10, evaluated along the way."""
    workdir = tmp_path_factory.mktemp("finished")
    along = kd_cfg.evals.Evaluator(run=kd_cfg.evals.EveryNSteps(2))
    keep = kd_cfg.ckpts.Checkpointer(save_interval_steps=4, max_to_keep=None)
    cfg = make_cfg(workdir, evals={"along": along}, checkpointer=keep)
    resolve(cfg).train()
    return workdir


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the run that may be changed."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def eval_only(run=None, **kwargs):
    """The config, as users write it."""
    return kd_cfg.train.Trainer.eval_only(
        evals={
            "my_eval": kd_cfg.evals.Evaluator(
                run=run or kd_cfg.evals.StandaloneLastCheckpoint(),
                num_batches=None,
                ds=eval_data(),
            ),
        },
        **kwargs,
    )


def evaluate(cfg, source, target):
    cfg.aux.workdir = str(source)
    cfg.workdir = str(target)
    trainer = konfig.resolve(cfg)
    return trainer.continuous_eval(list(trainer.evals))


def test_last_checkpoint_is_evaluated_under_its_step_with_the_values_of_training(
    finished, tmp_path
):
    result = evaluate(eval_only(), finished, tmp_path)
    assert points(tmp_path, "my_eval") == points(finished, "along")[-1:]
    assert steps(tmp_path, "my_eval", "metrics/norm") == [10]
    assert result["my_eval"].compute().loss_values["losses/l2"] == pytest.approx(
        points(finished, "along")[-1][1]
    )


@pytest.mark.parametrize(
    "strategy",
    [
        kd_cfg.evals.EveryNSteps(3),
        kd_cfg.evals.Once(7),
        kd_cfg.evals.Final(),
    ],
    ids=["every", "once", "final"],
)
def test_along_train_strategies_mean_once(finished, tmp_path, strategy):
    evaluate(eval_only(run=strategy), finished, tmp_path)
    assert steps(tmp_path, "my_eval") == [10]


def test_chosen_step_is_evaluated(finished, tmp_path):
    cfg = eval_only()
    cfg.aux.step = 4
    evaluate(cfg, finished, tmp_path)
    assert points(tmp_path, "my_eval") == points(finished, "along")[2:3]


def test_evaluating_again_replaces_the_values(finished, tmp_path):
    for _ in range(2):
        evaluate(eval_only(), finished, tmp_path)
    assert steps(tmp_path, "my_eval") == [10]
    cfg = eval_only()
    cfg.aux.step = 4
    evaluate(cfg, finished, tmp_path)
    assert steps(tmp_path, "my_eval") == [10, 4]  # what is later stays


def test_every_checkpoint_of_the_earlier_run_is_followed(finished, tmp_path):
    every = kd_cfg.evals.StandaloneEveryCheckpoint(
        seconds_to_sleep=0.02, skip_missed=False
    )
    evaluate(eval_only(run=every), finished, tmp_path)
    expected = dict(points(finished, "along"))
    assert points(tmp_path, "my_eval") == [(s, expected[s]) for s in (0, 4, 8, 10)]


def test_following_goes_on_until_the_marker_of_the_earlier_run(run, tmp_path):
    (run / "train_complete.txt").unlink()
    every = kd_cfg.evals.StandaloneEveryCheckpoint(
        seconds_to_sleep=0.02, timeout_secs=0.1
    )
    with pytest.raises(TimeoutError, match="after step 10"):
        evaluate(eval_only(run=every), run, tmp_path / "results")


def test_running_run_is_followed_to_its_last_checkpoint(tmp_path):
    source = resolve(make_cfg(tmp_path / "run", num_train_steps=22))
    source.replace(stop_after_steps=4).train()
    (tmp_path / "run" / "train_complete.txt").unlink()  # it goes on
    every = kd_cfg.evals.StandaloneEveryCheckpoint(
        seconds_to_sleep=0.02, timeout_secs=60
    )
    training = threading.Thread(target=source.train)
    training.start()
    try:
        evaluate(eval_only(run=every), tmp_path / "run", tmp_path / "results")
    finally:
        training.join(timeout=60)
    evaluated = steps(tmp_path / "results", "my_eval")
    assert evaluated == sorted(set(evaluated)) and evaluated[-1] == 22
    assert set(evaluated) <= {*range(0, 22, 4), 22}


def test_following_needs_a_transform_with_a_workdir(finished, tmp_path):
    cfg = eval_only(run=kd_cfg.evals.StandaloneEveryCheckpoint())
    cfg.init_transform = kd_cfg.ckpts.NoopTransform()
    with pytest.raises(
        ValueError, match=r"cfg\.init_transform.*workdir.*NoopTransform"
    ):
        evaluate(cfg, finished, tmp_path)


#
# Which run
#


def test_all_ways_to_name_the_run_are_the_same(finished, tmp_path):
    def by_field():
        cfg = eval_only()
        cfg.aux.workdir = str(finished)
        return cfg

    def by_whole():
        cfg = eval_only()
        cfg.aux = {"workdir": str(finished)}
        return cfg

    def by_argument():
        return eval_only(aux={"workdir": str(finished)})

    def by_flag():
        cfg = eval_only()
        konfig.apply_overrides(cfg, {"aux.workdir": str(finished)})
        return cfg

    for make in (by_field, by_whole, by_argument, by_flag):
        cfg = make()
        cfg.workdir = str(tmp_path)
        trainer = konfig.resolve(cfg)
        assert str(trainer.init_transform.workdir) == str(finished)
        assert trainer.init_transform.step == -1
        assert trainer.model == kd.from_workdir.get_resolved(finished, "model")


def test_no_folder_at_all_names_the_field():
    with pytest.raises(ValueError, match=r"cfg\.aux\.workdir"):
        konfig.resolve(eval_only())


def test_id_that_is_not_known_names_the_field(tmp_path, monkeypatch):
    monkeypatch.setenv("KAULDRON_HOME", str(tmp_path / "home"))
    cfg = eval_only(aux={"xid": 123})
    cfg.workdir = str(tmp_path)
    with pytest.raises(LookupError, match=r"cfg\.aux\.workdir.*no experiment 123"):
        konfig.resolve(cfg)


def test_folder_that_is_no_run_says_what_is_there(tmp_path):
    (tmp_path / "photo.png").write_text("")
    with pytest.raises(
        FileNotFoundError, match=r"no config\.json\. It holds: photo\.png"
    ):
        evaluate(eval_only(), tmp_path, tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="There is no such folder"):
        evaluate(eval_only(), tmp_path / "nowhere", tmp_path / "out")


def test_run_without_a_checkpoint_says_where_it_looked(run, tmp_path):
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(FileNotFoundError, match=r"no checkpoint in .*run/checkpoints"):
        evaluate(eval_only(), run, tmp_path / "out")


def test_missing_step_says_which_there_are(finished, tmp_path):
    cfg = eval_only(aux={"step": 5})
    with pytest.raises(FileNotFoundError, match=r"step 5 .*0, 4, 8, 10"):
        evaluate(cfg, finished, tmp_path)


def test_only_allowed_packages_of_the_earlier_config_are_used(finished, tmp_path):
    cfg = eval_only(aux={"workdir": str(finished), "allow": ["kauldron", "flax"]})
    cfg.workdir = str(tmp_path)
    with pytest.raises(konfig.NotAllowedError, match=r"tests\.train\.toy"):
        konfig.resolve(cfg)
    cfg.aux.allow = ["kauldron", "flax", "tests"]
    assert konfig.resolve(cfg).model is not None


#
# Files
#


def test_evaluating_into_the_folder_of_the_run_leaves_its_files_alone(run):
    names = ("config.json", "element_spec.json", "train_complete.txt", "run_info.json")
    before = {name: (run / name).read_bytes() for name in names}
    checkpoints = sorted(p.name for p in (run / "checkpoints").rglob("*"))
    cfg = eval_only()
    cfg.workdir = str(run)  # and no `aux.workdir`
    konfig.resolve(cfg).continuous_eval(["my_eval"])
    assert {name: (run / name).read_bytes() for name in names} == before
    assert sorted(p.name for p in (run / "checkpoints").rglob("*")) == checkpoints
    assert steps(run, "my_eval") == [10]
    written = json.loads((run / "eval_only_config.json").read_text())
    assert written["evals"]["my_eval"]["num_batches"] is None


def test_nothing_is_read_before_resolve():
    cfg = eval_only(aux={"workdir": "/nowhere/at/all"})
    assert "my_eval" in cfg.to_json()


#
# The trainer
#


def test_real_class_outside_of_configs_says_so():
    with pytest.raises(ValueError, match="meant for configs"):
        kd.train.Trainer.eval_only(evals={})


def test_setup_that_forgets_eval_only_is_refused(finished, tmp_path):
    cfg = eval_only(setup=kd_cfg.train.Setup())
    cfg.setup.eval_only = False
    with pytest.raises(ValueError, match=r"Setup\(eval_only=True\)"):
        evaluate(cfg, finished, tmp_path)


def test_it_cannot_train_and_has_no_optimizer_state(finished, tmp_path):
    cfg = eval_only()
    cfg.aux.workdir = str(finished)
    cfg.workdir = str(tmp_path)
    trainer = konfig.resolve(cfg)
    with pytest.raises(ValueError, match="continuous_eval"):
        trainer.train()
    state = trainer.init_state()
    assert state.opt_state is None and int(state.step) == 10


def test_parts_of_the_earlier_config_that_are_gone_do_not_matter(run, tmp_path):
    config = json.loads((run / "config.json").read_text())
    config["train_ds"] = {"__qualname__": "a_package_that_is_gone:Data"}
    (run / "config.json").write_text(json.dumps(config))
    evaluate(eval_only(), run, tmp_path / "out")
    assert steps(tmp_path / "out", "my_eval") == [10]


def test_part_that_is_gone_but_needed_is_named_with_its_file(run, tmp_path):
    config = json.loads((run / "config.json").read_text())
    config["model"]["__qualname__"] = "a_package_that_is_gone:Model"
    (run / "config.json").write_text(json.dumps(config))
    message = r"(?s)run/config\.json: model: .*a_package_that_is_gone"
    with pytest.raises(ImportError, match=message):
        evaluate(eval_only(), run, tmp_path / "out")


def test_losses_under_their_other_names_are_inherited(run, tmp_path):
    config = json.loads((run / "config.json").read_text())
    config["train_loss"] = config.pop("train_losses")["l2"]
    (run / "config.json").write_text(json.dumps(config))
    evaluate(eval_only(), run, tmp_path / "out")
    assert steps(tmp_path / "out", "my_eval", "losses/loss") == [10]


def test_fields_can_be_overridden(finished, tmp_path):
    cfg = eval_only(train_metrics={"other": kd_cfg.metrics.Norm(tensor="preds.y")})
    cfg.seed = 5
    cfg.aux.workdir = str(finished)
    cfg.workdir = str(tmp_path)
    trainer = konfig.resolve(cfg)
    assert trainer.seed == 5 and list(trainer.evals["my_eval"].metrics) == ["other"]
