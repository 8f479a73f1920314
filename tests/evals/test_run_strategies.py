"""When and where evaluators run."""

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest

from kauldron import kd, konfig
from kauldron.evals.run_strategies import job_groups
from tests.train.toy import make_ds, make_trainer


def chosen(strategy, last=12):
    return [step for step in range(last + 1) if strategy.should_eval_in_train(step)]


def test_every_n_steps_includes_step_zero():
    assert chosen(kd.evals.EveryNSteps(5)) == [0, 5, 10]
    assert chosen(kd.evals.EveryNSteps(n=5)) == [0, 5, 10]


def test_step_may_be_positional_in_configs():
    cfg = {"__qualname__": "kauldron.kd:evals.EveryNSteps", "0": 100}
    assert konfig.resolve(cfg) == kd.evals.EveryNSteps(100)
    assert konfig.resolve({**cfg, "skip_first": True}).skip_first


def test_skip_first_leaves_out_only_step_zero():
    assert chosen(kd.evals.EveryNSteps(5, skip_first=True)) == [5, 10]


def test_once_is_one_step():
    assert chosen(kd.evals.Once(3)) == [3]
    assert chosen(kd.evals.Once(step=0)) == [0]


@pytest.mark.parametrize(
    "strategy",
    [
        kd.evals.Final(),
        kd.evals.StandaloneEveryCheckpoint(),
        kd.evals.StandaloneLastCheckpoint(),
    ],
)
def test_others_never_run_between_steps(strategy):
    assert chosen(strategy) == []


@pytest.mark.parametrize("n", [0, -3])
def test_every_n_steps_refuses_n_below_one_at_construction(n):
    with pytest.raises(ValueError, match=str(n)):
        kd.evals.EveryNSteps(n)


def test_once_refuses_negative_steps():
    with pytest.raises(ValueError, match="-1"):
        kd.evals.Once(-1)


def test_base_class_does_not_say_when():
    with pytest.raises(NotImplementedError, match="should_eval_in_train"):
        kd.evals.RunStrategy().should_eval_in_train(0)


def test_a_rule_of_ones_own_is_a_subclass():
    @dataclasses.dataclass(frozen=True)
    class PowersOfTwo(kd.evals.AlongTrain):
        def should_eval_in_train(self, step):
            return step & (step - 1) == 0

    assert chosen(PowersOfTwo()) == [0, 1, 2, 4, 8]


@pytest.mark.parametrize(
    "make",
    [
        lambda: kd.evals.EveryNSteps(3),
        lambda: kd.evals.Final(free_memory=False),
        lambda: kd.evals.StandaloneLastCheckpoint(timeout_secs=3),
        lambda: kd.evals.StandaloneEveryCheckpoint(
            platform="a100=1", env_vars={"A": "1"}, job_group="g"
        ),
    ],
)
def test_strategies_compare_hash_copy_and_pickle_by_value(make):
    assert make() == make() and hash(make()) == hash(make())
    assert copy.deepcopy(make()) == make()
    assert pickle.loads(pickle.dumps(make())) == make()
    assert dataclasses.replace(make()) == make()


def test_job_parameters_are_kept_and_readable():
    run = kd.evals.StandaloneEveryCheckpoint(platform="a100=1", args={"x": [1]})
    assert run.platform == "a100=1"
    assert run.job_params == {"platform": "a100=1", "args": {"x": (1,)}}
    assert dataclasses.replace(run, job_group="g").platform == "a100=1"
    with pytest.raises(AttributeError, match="env_vars"):
        _ = run.env_vars


def test_job_parameters_of_configs_are_neither_resolved_nor_imported():
    with konfig.imports(lazy=True):
        import no_such_launcher

        from kauldron import kd as kd_cfg
    cfg = kd_cfg.evals.StandaloneEveryCheckpoint(
        platform="a100=1",
        requirements=no_such_launcher.Requirements(ram=1),
        executor=no_such_launcher.Slurm(),
    )
    run = konfig.resolve(cfg)
    assert run.requirements.ram == 1
    assert hash(run) == hash(konfig.resolve(cfg)) and run == konfig.resolve(cfg)


def test_unknown_keyword_names_the_nearest_one():
    with pytest.raises(TypeError, match=r"'platfrm'\. Did you mean 'platform'"):
        kd.evals.StandaloneLastCheckpoint(platfrm="a100")


@pytest.mark.parametrize("name", ["timeout_secs", "seconds_to_sleep"])
def test_negative_times_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}.*-1"):
        kd.evals.StandaloneEveryCheckpoint(**{name: -1})


def test_a_group_cannot_be_called_like_the_training_job():
    with pytest.raises(ValueError, match="'train'"):
        kd.evals.StandaloneLastCheckpoint(job_group="train")


def test_job_groups_keep_the_order_of_the_config():
    both = kd.evals.StandaloneEveryCheckpoint(job_group="both")
    strategies = {
        "a": both,
        "alone": kd.evals.StandaloneLastCheckpoint(),
        "along": kd.evals.EveryNSteps(1),
        "b": kd.evals.StandaloneLastCheckpoint(job_group="both"),
    }
    assert job_groups(strategies) == {"both": ["a", "b"], "alone": ["alone"]}


def test_naming_a_strategy_imports_no_jax():
    code = """
import sys
from kauldron import kd
kd.evals.StandaloneEveryCheckpoint(platform="cpu")
assert "jax" not in sys.modules and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


#
# What evaluators may be called, and what belongs into `evals`
#


def evaluator(**kwargs):
    return kd.evals.Evaluator(**{"run": kd.evals.Once(0), "num_batches": 1, **kwargs})


def trainer_with(tmp_path, evals, **changes):
    return make_trainer(tmp_path, eval_ds=make_ds(), evals=evals, **changes)


@pytest.mark.parametrize("name", ["a", "test-set", "v1.5", "_x"])
def test_key_becomes_the_name_and_the_collection(tmp_path, name):
    trainer = trainer_with(tmp_path, {name: evaluator()})
    assert trainer.evals[name].name == name
    assert trainer.evals[name].writer.collection == name


def test_equal_explicit_name_is_fine_and_another_is_refused(tmp_path):
    assert "a" in trainer_with(tmp_path, {"a": evaluator(name="a")}).evals
    with pytest.raises(ValueError, match="'b'"):
        trainer_with(tmp_path, {"a": evaluator(name="b")})


@pytest.mark.parametrize(
    "name",
    ["train", "checkpoints", "plugins", "evals", "array_dumps", "_eval_x"]
    + ["", "a b", "1st", "a/b", ".", ".."],
)
def test_reserved_and_impossible_names_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be the name of an evaluator") as info:
        trainer_with(tmp_path, {name: evaluator()})
    assert repr(name) in str(info.value)


def test_evals_must_be_a_mapping(tmp_path):
    with pytest.raises(TypeError, match="evals"):
        trainer_with(tmp_path, [evaluator()])


def test_value_that_is_no_evaluator_is_named_by_its_key(tmp_path):
    with pytest.raises(TypeError, match="'oops'"):
        trainer_with(tmp_path, {"oops": kd.evals.Once(0)})


def test_missing_data_names_both_places_to_set_it(tmp_path):
    with pytest.raises(ValueError, match=r"cfg\.evals\.a\.ds.*cfg\.eval_ds"):
        make_trainer(tmp_path, evals={"a": evaluator()})


def test_group_called_like_an_evaluator_outside_of_it_is_refused(tmp_path):
    grouped = kd.evals.StandaloneEveryCheckpoint(job_group="b")
    with pytest.raises(ValueError, match="job group 'b' of evaluator 'a'"):
        trainer_with(tmp_path, {"a": evaluator(run=grouped), "b": evaluator()})
    trainer_with(tmp_path, {"a": evaluator(run=grouped), "b": evaluator(run=grouped)})


def test_evaluator_outside_a_trainer_says_what_is_missing():
    with pytest.raises(ValueError, match=r"`Evaluator\.writer` is not set"):
        evaluator().evaluate(None, 0)


def test_once_after_the_last_step_is_warned_about(tmp_path):
    evals = {"late": evaluator(run=kd.evals.Once(11))}
    with pytest.warns(UserWarning, match="late will never run: it waits for step 11"):
        trainer_with(tmp_path, evals, num_train_steps=2, checkpointer=None).train()


def test_training_says_how_to_start_standalone_evaluators(tmp_path, caplog):
    run = kd.evals.StandaloneEveryCheckpoint(job_group="g")
    evals = {"a": evaluator(run=run), "b": evaluator(run=run)}
    with caplog.at_level("INFO", logger="kauldron"):
        trainer_with(tmp_path, evals, num_train_steps=1).train()
    lines = [r.message for r in caplog.records if "another process" in r.message]
    command = f"kauldron eval --workdir={tmp_path} --eval_names=g"
    assert lines == [f"To evaluate a, b, start another process: {command}"]
