"""Which of its forms a pipeline may use of a transform."""

import dataclasses
import pickle

import numpy as np

from kauldron.data import transforms as T


class UpperRange(T.ValueRange):
    def map_element(self, element):
        return np.asarray(element) + 1000


class UpperRangeWithBatch(UpperRange):
    def map_element_batch(self, elements):
        return np.asarray(elements) + 1000


class OnlyMap(T.Cast):
    def map(self, features):
        return {"mine": 1}


class CropBackwards(T.RandomCrop):
    def random_map_element(self, element, rng):
        return super().random_map_element(element, rng)[::-1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gamma(T.ElementWiseTransform):
    gamma: float

    def map_element(self, element):
        return element**self.gamma

    map_element_batch = map_element


class WithoutBatch(T.MapTransform):
    def map(self, element):
        return element


class WithBatch(WithoutBatch):
    def map_batch(self, batch):
        return batch


class OverriddenAgain(WithBatch):
    def map(self, element):
        return {}


class WholeRecordBatch(T.Cast):
    """Writes the batch form one level higher than its parent."""

    def map_batch(self, features):
        return {k: np.asarray(v, self.dtype) for k, v in features.items()}


class WholeRecordBatchOverridden(WholeRecordBatch):
    def map_element(self, element):
        return 0


class Even(T.FilterTransform):
    def filter(self, element):
        return element["x"] % 2 == 0


class EvenInBatches(Even):
    def filter_batch(self, batch):
        return batch["x"] % 2 == 0


def test_subclass_that_overrides_only_the_record_method_has_it_called():
    transform = UpperRange(key="x", vrange=(0, 1))
    assert T.batch_form(transform) is None
    assert T.jax_form(transform) is None
    assert transform.map({"x": 1})["x"] == 1001


def test_subclass_of_a_random_built_in_that_overrides_only_the_record_method():
    assert T.batch_form(CropBackwards(key="x", shape=(2,))) is None


def test_batch_method_of_a_more_derived_class_is_used():
    form = T.batch_form(UpperRangeWithBatch(key="x", vrange=(0, 1)))
    assert form is not None
    assert form({"x": np.arange(2)})["x"].tolist() == [1000, 1001]


def test_overriding_map_turns_the_inherited_element_batch_off():
    assert T.batch_form(OnlyMap(key="x", dtype="int32")) is None


def test_batch_method_as_an_alias_in_the_class_body_counts():
    form = T.batch_form(Gamma(key="x", gamma=2.0))
    assert form is not None
    np.testing.assert_array_equal(form({"x": np.array([2.0, 3.0])})["x"], [4.0, 9.0])


def test_plain_map_transforms_follow_the_same_rule():
    assert T.batch_form(WithoutBatch()) is None
    assert T.batch_form(WithBatch()) is not None
    assert T.batch_form(OverriddenAgain()) is None


def test_map_batch_above_an_overridden_element_method_is_not_used():
    assert T.batch_form(WholeRecordBatch(key="x", dtype="int32")) is not None
    assert T.batch_form(WholeRecordBatchOverridden(key="x", dtype="int32")) is None


def test_filters_may_have_a_batch_form():
    assert T.batch_form(Even()) is None
    form = T.batch_form(EvenInBatches())
    assert form is not None
    assert form({"x": np.arange(3)}).tolist() == [True, False, True]


def test_functions_and_foreign_objects_have_no_batch_form():
    assert T.batch_form(lambda record: record) is None
    assert T.batch_form(object()) is None
    assert T.jax_form(len) is None


def test_user_transforms_are_traceable_only_on_request():
    class Traceable(Gamma):
        traceable = True
        map_element_batch = Gamma.map_element

    class DeclaredBelowTheBatchMethod(T.ValueRange):
        def map_element(self, element):
            return element

        map_element_batch = map_element  # ValueRange says traceable, this class not

    assert T.jax_form(Gamma(key="x", gamma=2.0)) is None
    assert T.jax_form(Traceable(key="x", gamma=2.0)) is not None
    assert T.jax_form(DeclaredBelowTheBatchMethod(key="x", vrange=(0, 1))) is None


def test_method_set_on_the_instance_wins_over_the_batch_method():
    transform = WithBatch()
    transform.map = lambda element: {"other": 1}
    assert T.batch_form(transform) is None


def test_batch_forms_can_be_pickled():
    form = pickle.loads(pickle.dumps(T.batch_form(Gamma(key="x", gamma=2.0))))
    assert form({"x": np.array([3.0])})["x"] == 9.0


def test_warm_up_takes_anything():
    for entry in (T.Rearrange(key="x", pattern="a -> a"), len, WithBatch()):
        T.warm_up(entry)
