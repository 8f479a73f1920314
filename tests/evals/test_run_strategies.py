"""When and where evaluators run."""

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest

from kauldron import kd, konfig
from kauldron.evals.run_strategies import job_groups


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
