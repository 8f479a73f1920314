"""Policies that decide which checkpoints are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron import kd, konfig
from kauldron.ckpts import retention
from tests.ckpts.states import make_checkpointer, make_state


def _kept(policy, steps, metrics=None):
    infos = [
        retention.StepInfo(step, metrics=(metrics or {}).get(step)) for step in steps
    ]
    deleted = retention.steps_to_delete([policy], infos)
    return [step for step in steps if step not in deleted]


def test_exp_step_keeps_zero_the_powers_and_the_newest(tmp_path):
    checkpointer = make_checkpointer(
        tmp_path, preservation_policy=kd.contrib.ckpts.ExpStep(interval=100, base=2)
    )
    for step in (0, 50, 100, 150, 200, 300, 400, 600, 800, 900):
        checkpointer.save(make_state(step), step=step)
    checkpointer.close()
    assert checkpointer.all_steps == [0, 100, 200, 400, 800, 900]


@given(st.integers(1, 200), st.integers(2, 5), st.integers(0, 50_000))
def test_exp_step_equals_its_definition(interval, base, step):
    powers = {0} | {interval * base**k for k in range(20)}
    assert kd.contrib.ckpts.ExpStep(interval, base).keeps(step) == (step in powers)


@pytest.mark.parametrize("kwargs", [{"interval": 0}, {"base": 1}, {"base": 1.5}])
def test_exp_step_refuses_what_makes_no_sense(kwargs):
    with pytest.raises(ValueError, match="must be an integer of at least"):
        kd.contrib.ckpts.ExpStep(**kwargs)


METRICS = {1: {"e": {"m": 0.1}}, 2: {"e": {"m": 0.9}}, 3: {"e": {"m": 0.5}}}


@pytest.mark.parametrize(
    "kwargs, kept",
    [
        ({"n": 1}, [2, 4, 5]),
        ({"n": 1, "reverse": True}, [1, 4, 5]),
        ({"n": 2, "keep_checkpoints_without_metrics": False}, [2, 3, 5]),
        ({"n": None}, [1, 2, 3, 4, 5]),
    ],
)
def test_best_n(kwargs, kept):
    policy = kd.contrib.ckpts.keep_best_n("e.m", **kwargs)
    assert _kept(policy, [1, 2, 3, 4, 5], METRICS) == kept


def test_best_n_and_exp_step():
    policy = kd.contrib.ckpts.keep_exp_step_and_best_n(
        2, "e.m", n=1, reverse=True, keep_checkpoints_without_metrics=False
    )
    steps = [0, 1, 2, 3, 4, 5, 6, 7]
    assert _kept(policy, steps, METRICS) == [0, 1, 2, 4, 7]


def test_metrics_are_stored_for_a_policy_and_found_again(tmp_path):
    def make():
        policy = kd.contrib.ckpts.keep_best_n("e.m", n=1)
        return make_checkpointer(tmp_path, preservation_policy=policy)

    for step, value in enumerate([0.1, 0.9, 0.5, 0.2]):
        with make() as checkpointer:
            checkpointer.save(make_state(step), step=step, metrics={"e": {"m": value}})
    assert make().all_steps == [1, 3]


def test_policies_of_orbax_are_here_and_the_newest_stays(tmp_path):
    policies = kd.contrib.checkpoints
    assert policies.BestN is kd.contrib.ckpts.BestN
    any_of = policies.AnyPreservationPolicy(
        [policies.CustomSteps([1]), policies.EveryNSteps(4)]
    )
    assert _kept(any_of, [0, 1, 2, 3, 4, 5]) == [0, 1, 4, 5]
    assert _kept(policies.LatestN(0), [1, 2]) == [2]
    best = policies.BestN(get_metric_fn=lambda m: m["e"]["m"], n=1)
    assert _kept(best, [1, 2, 3], METRICS) == [2, 3]
    assert policies.EveryNSeconds(60).interval_secs == 60


def test_policies_come_from_configs():
    with konfig.imports():
        from kauldron import kd as kd_cfg
    cfg = kd_cfg.ckpts.Checkpointer(
        save_interval_steps=1,
        preservation_policy=kd_cfg.contrib.ckpts.keep_best_n("e.m", n=2),
    )
    checkpointer = konfig.resolve(cfg)
    assert checkpointer.preservation_policy.n == 2
    assert checkpointer == konfig.resolve(cfg)
