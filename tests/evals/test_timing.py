"""Whatever the timing of the two processes, nothing is missed and nothing repeated."""

import dataclasses

import hypothesis
import hypothesis.strategies as st
import pytest
from etils import epath

from kauldron import kd
from kauldron.evals import standalone
from kauldron.evals.standalone import EvaluatorGroup, Follower
from kauldron.evals.standalone_files import (
    CheckpointSource,
    EvalProgress,
    KeptCheckpoints,
)


class Script(CheckpointSource):
    """A training run whose events happen at chosen looks of the evaluator.

    Attributes:
      saved: From step to the look at which its checkpoint appears.
      deleted: From step to the look at which it disappears.
      complete: The look at which the marker appears, not before the last checkpoint.
    """

    def __init__(self, saved, deleted, complete):
        super().__init__(epath.Path("run"), kd.ckpts.NoopCheckpointer())
        self.now = 0
        self.saved, self.deleted, self.complete = saved, deleted, complete

    def steps(self):
        self.now += 1
        return self.existing()

    def existing(self):
        return [
            step
            for step, since in self.saved.items()
            if since <= self.now < self.deleted.get(step, 10**9)
        ]

    def is_complete(self):
        self.now += 1
        return self.now >= self.complete

    def load(self, step, *, workdir=None):
        self.now += 1
        if step not in self.existing():
            raise FileNotFoundError(step)
        return step


class Recorder(kd.evals.EvaluatorBase):
    steps: list = dataclasses.field(default_factory=list)

    def evaluate(self, state, step):
        assert state == step
        self.steps.append(step)


@st.composite
def scripts(draw):
    looks = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6).map(sorted))
    saved = {10 * number: look for number, look in enumerate(looks)}
    last = max(saved)
    deleted = {
        step: look + draw(st.integers(1, 9))
        for step, look in saved.items()
        if step != last and draw(st.booleans())
    }
    return Script(saved, deleted, looks[-1] + draw(st.integers(0, 9)))


def follow(folder, script, **strategies):
    evaluators = {
        name: Recorder(run=run, name=name, writer=kd.train.NoopWriter(workdir=folder))
        for name, run in strategies.items()
    }
    progress = EvalProgress(epath.Path(folder) / "_eval_x", list(evaluators))
    group = EvaluatorGroup(evaluators, progress)
    kept = KeptCheckpoints(epath.Path(folder) / "_eval_x")
    Follower(script, group, kd.train.Setup(), kept).run()
    return {name: evaluator.steps for name, evaluator in evaluators.items()}


@pytest.fixture(autouse=True)
def waiting_takes_no_time(monkeypatch):
    monkeypatch.setattr(standalone.time, "sleep", lambda seconds: None)


@hypothesis.settings(
    max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(script=scripts())
def test_last_checkpoint_is_evaluated_once_and_steps_ascend(tmp_path_factory, script):
    evaluated = follow(
        tmp_path_factory.mktemp("run"),
        script,
        newest=kd.evals.StandaloneEveryCheckpoint(seconds_to_sleep=0),
        every=kd.evals.StandaloneEveryCheckpoint(seconds_to_sleep=0, skip_missed=False),
        last=kd.evals.StandaloneLastCheckpoint(),
    )
    last = max(script.saved)
    for steps in evaluated.values():
        assert steps[-1] == last
        assert steps == sorted(set(steps))
    assert evaluated["last"] == [last]
    kept = set(script.saved) - set(script.deleted)
    assert kept <= set(evaluated["every"])
