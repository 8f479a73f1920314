"""Wrong arguments of classes that users subclass."""

import copy
import dataclasses
import inspect
import pickle

import pytest

from kauldron import kd, konfig, kontext
from kauldron.errors import ExplainedArguments

BASES = [
    kd.metrics.Metric,
    kd.losses.Loss,
    kd.data.MapTransform,
    kd.data.FilterTransform,
    kd.data.RandomMapTransform,
    kd.ckpts.InitTransform,
    kd.train.WriterBase,
    kd.train.TrainStep,
    kd.data.Pipeline,
]


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_missing_decorator_is_named(base):
    cls = type("Mine", (base,), {"__annotations__": {"my_key": kontext.Key}})
    expected = "above `class Mine`"
    with pytest.raises(TypeError, match=expected) as error:
        cls(my_key="batch.x")
    assert "@dataclasses.dataclass(frozen=True, kw_only=True)" in str(error.value)
    assert "Mine declares 'my_key'" in str(error.value)


class Undecorated:
    size: int = 3


def test_missing_decorator_is_a_problem_of_the_config():
    cfg = konfig.ConfigDict({"m": {"__qualname__": f"{__name__}:Undecorated"}})
    cfg.m.size = 4
    (problem,) = konfig.check(cfg)
    assert "Undecorated has no parameter 'size'. The class declares it" in str(problem)
    assert "`@dataclasses.dataclass(frozen=True, kw_only=True)` above" in str(problem)


def test_class_above_that_lacks_its_decorator_is_named():
    class Upper(kd.metrics.Metric):
        upper_key: kontext.Key = "batch.x"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Lower(Upper):
        lower_key: kontext.Key = "batch.y"

    with pytest.raises(TypeError, match="above `class Upper`"):
        Lower(upper_key="a", lower_key="b")


def test_value_by_position_without_decorator():
    class Mine(kd.data.MapTransform):
        size: int

        def map(self, element):
            return element

    with pytest.raises(TypeError, match="takes no arguments") as error:
        Mine(3)
    assert "declares 'size'" in str(error.value)
    assert "above `class Mine`" in str(error.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: kd.metrics.Accuracy(logit="preds.y", labels="batch.y"),
            "Accuracy has no field 'logit'. Did you mean 'logits'?",
        ),
        (
            lambda: kd.data.py.Resize(key="x", sizes=(3, 3)),
            "Resize has no field 'sizes'. Did you mean 'size'?",
        ),
        (
            lambda: kd.ckpts.Checkpointer(save_interval_step=3),
            "Checkpointer has no field 'save_interval_step'. Did you mean "
            "'save_interval_steps'?",
        ),
        (
            lambda: kd.ckpts.NoopTransform(path="x"),
            "NoopTransform has no field 'path'. Its fields: none.",
        ),
    ],
)
def test_nearest_name_is_told(make, message):
    with pytest.raises(TypeError) as error:
        make()
    assert str(error.value) == message


def test_fields_that_are_not_arguments_are_not_blamed_on_the_decorator():
    @dataclasses.dataclass(frozen=True)
    class Mine(ExplainedArguments):
        given: int
        made: int = dataclasses.field(default=0, init=False)

    with pytest.raises(TypeError, match="Mine has no field 'made'"):
        Mine(given=1, made=2)


def test_signature_copy_and_pickle_are_those_of_any_class():
    accuracy = kd.metrics.Accuracy(logits="preds.y", labels="batch.y")
    assert "logits" in inspect.signature(kd.metrics.Accuracy).parameters
    assert "self" not in inspect.signature(kd.metrics.Accuracy).parameters
    assert list(inspect.signature(accuracy).parameters) == ["context", "kwargs"]
    assert copy.copy(accuracy) == accuracy
    assert pickle.loads(pickle.dumps(accuracy)) == accuracy
