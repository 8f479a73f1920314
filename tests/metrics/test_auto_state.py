"""States whose merge rule is declared per field."""

import dataclasses
import pickle
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from kauldron import metrics
from kauldron.metrics import EMPTY


@flax.struct.dataclass(kw_only=True)
class Everything(metrics.AutoState):
    limit: ClassVar[int] = 7
    keep: int = 3
    name: str = "x"
    total: Any = metrics.sum_field(default=None)
    smallest: Any = metrics.min_field(default=None)
    largest: Any = metrics.max_field(default=None)
    pieces: Any = metrics.concat_field(default=None)
    first: Any = metrics.truncate_field(num_field="keep", default=None)
    average: Any = metrics.state_field(default=None)


@flax.struct.dataclass(kw_only=True)
class Sums(metrics.AutoState):
    label: str = "sums"
    total: Any = metrics.sum_field()
    smallest: Any = metrics.min_field()
    largest: Any = metrics.max_field()


def everything(start: float) -> Everything:
    values = jnp.arange(start, start + 2)
    return Everything(
        total={"a": values, "b": values.sum()},
        smallest=values,
        largest=values,
        pieces=values,
        first=values,
        average=metrics.AverageState.from_values(values),
    )


#
# The kinds of fields
#


def test_each_field_merges_by_its_rule():
    merged = everything(0).merge(everything(10)).finalize()
    np.testing.assert_array_equal(merged.total["a"], [10, 12])
    assert merged.total["b"] == 22
    np.testing.assert_array_equal(merged.smallest, [0, 1])
    np.testing.assert_array_equal(merged.largest, [10, 11])
    np.testing.assert_array_equal(merged.pieces, [0, 1, 10, 11])
    np.testing.assert_array_equal(merged.first, [0, 1, 10])
    assert merged.average.compute() == 5.5


def test_compute_gives_data_fields_on_the_host_and_inner_values():
    value = everything(0).merge(everything(10)).compute()
    assert not hasattr(value, "keep")
    assert not hasattr(value, "parent")
    assert value.average == 5.5
    assert all(isinstance(leaf, np.ndarray) for leaf in value.total.values())


def test_compute_of_missing_fields_gives_none():
    value = Everything(total=np.ones(2)).compute()
    assert value.largest is None
    assert Everything.empty().compute().total is None


@pytest.mark.parametrize("reducer", ["sum", "min", "max"])
def test_sums_minima_and_maxima_merge_inside_jit(reducer):
    left = Sums(total=jnp.ones(3), smallest=jnp.ones(3), largest=jnp.ones(3))
    right = Sums(**{n: 2 * jnp.ones(3) for n in ("total", "smallest", "largest")})
    merged = jax.jit(lambda a, b: a.merge(b))(left, right)
    field = {"sum": "total", "min": "smallest", "max": "largest"}[reducer]
    expected = {"sum": 3, "min": 1, "max": 2}[reducer]
    np.testing.assert_array_equal(getattr(merged, field), [expected] * 3)


@pytest.mark.parametrize("field", ["pieces", "first"])
def test_collecting_fields_refuse_to_merge_inside_jit(field):
    state = Everything(**{field: jnp.ones(2)})
    with pytest.raises(RuntimeError, match=r"Everything.*cannot be jit-compiled"):
        jax.jit(lambda a, b: a.merge(b))(state, state)


def test_sums_of_half_floats_and_bools_count_on():
    half = Everything(total=np.asarray(256, ml_dtypes.bfloat16))
    one = Everything(total=np.asarray(1, ml_dtypes.bfloat16))
    yes = Everything(total=jnp.asarray(True))
    assert float(half.merge(one).total) == 257
    assert int(yes.merge(yes).merge(yes).total) == 3


def test_sums_of_python_numbers_are_exact():
    state = Everything(total=2**40)
    assert state.merge(Everything(total=1)).total == 2**40 + 1


def test_concatenation_along_another_axis():
    @flax.struct.dataclass(kw_only=True)
    class Wide(metrics.AutoState):
        x: Any = metrics.concat_field(axis=1)

    merged = Wide(x=jnp.zeros((2, 1))).merge(Wide(x=jnp.ones((2, 3)))).finalize()
    assert merged.x.shape == (2, 4)
    np.testing.assert_array_equal(merged.x[0], [0, 1, 1, 1])


def test_concatenation_of_trees_scalars_and_strings():
    def state(number, word):
        pieces = {"n": jnp.asarray(number), "w": np.array([word], object)}
        return Everything(pieces=pieces)

    merged = state(1, "one").merge(state(2, "twelve")).merge(state(3, "x")).finalize()
    np.testing.assert_array_equal(merged.pieces["n"], [1, 2, 3])
    assert merged.pieces["w"].tolist() == ["one", "twelve", "x"]


def test_scalar_that_is_never_merged_becomes_one_entry():
    assert Everything(pieces=jnp.asarray(1.0)).finalize().pieces.shape == (1,)


def test_truncation_keeps_the_first_entries_across_merges():
    state = Everything(first=np.arange(2))
    for start in (2, 4, 6):
        state = state.merge(Everything(first=np.arange(start, start + 2)))
    np.testing.assert_array_equal(state.finalize().first, [0, 1, 2])


def test_truncation_applies_without_any_merge():
    assert Everything(first=np.arange(9)).finalize().first.shape == (3,)


def test_truncation_without_limit_keeps_everything():
    state = Everything(first=np.arange(9), keep=None)
    assert state.merge(state).finalize().first.shape == (18,)


def test_truncation_along_a_negative_axis():
    @flax.struct.dataclass(kw_only=True)
    class Last(metrics.AutoState):
        x: Any = metrics.truncate_field(num_field="keep", axis=-1)
        keep: int = 3

    state = Last(x=np.zeros((4, 2)))
    assert state.merge(state).finalize().x.shape == (4, 3)


def test_truncation_to_a_negative_number_is_refused():
    with pytest.raises(ValueError, match="'keep' is -1"):
        Everything(first=np.arange(9), keep=-1).finalize()


def test_full_truncated_state_does_not_hold_the_other_side():
    full = Everything(first=jnp.arange(3))
    assert full.merge(Everything(first=jnp.arange(5))).first is full.first


def test_truncation_finds_its_number_when_the_other_side_is_empty():
    state = Everything.empty().merge(Everything(first=np.arange(9), keep=2))
    assert state.keep == 2
    assert state.merge(Everything.empty()).finalize().first.shape == (2,)


#
# Empty states, None, and mismatches
#


@pytest.mark.parametrize("order", ["left", "right"])
def test_empty_is_neutral_for_every_kind_of_field(order):
    state, empty = everything(3), Everything.empty()
    merged = empty.merge(state) if order == "left" else state.merge(empty)
    assert merged.keep == 3
    for field in dataclasses.fields(state):
        assert getattr(merged, field.name) is getattr(state, field.name)


def test_empty_is_neutral_for_fields_that_are_none():
    state = Everything(pieces=None, total=None)
    assert Everything.empty().merge(state).pieces is None
    assert state.merge(Everything.empty()).pieces is None


def test_empty_sets_every_field_to_empty():
    empty = Everything.empty()
    assert {getattr(empty, f.name) for f in dataclasses.fields(empty)} == {EMPTY}


def test_finalized_empty_state_stays_neutral():
    merged = Everything.empty().finalize().merge(everything(0))
    np.testing.assert_array_equal(merged.finalize().pieces, [0, 1])


def test_empty_states_pass_through_jit():
    state = jax.jit(lambda e, s: e.merge(s))(
        Sums.empty(), Sums(total=1.0, smallest=2.0, largest=3.0)
    )
    assert float(state.total) == 1.0
    assert state.label == "sums"


@pytest.mark.parametrize(
    "field, words",
    [
        ("total", "Cannot sum None"),
        ("smallest", "Cannot take the minimum of None"),
        ("largest", "Cannot take the maximum of None"),
        ("pieces", "Cannot concatenate None"),
        ("first", r"Cannot concatenate \(& truncate\) None"),
        ("average", "Cannot merge None"),
    ],
)
def test_none_with_a_value_is_refused_naming_the_field(field, words):
    filled, missing = everything(0), everything(0).replace(**{field: None})
    with pytest.raises(ValueError, match=f"{words}.*'{field}'"):
        filled.merge(missing)
    with pytest.raises(ValueError, match=f"{words}.*'{field}'"):
        missing.merge(filled)


def test_none_with_none_stays_none():
    assert Everything().merge(Everything()).finalize().total is None


def test_sums_of_different_shapes_are_refused_naming_field_and_shapes():
    with pytest.raises(ValueError, match=r"'total'.*\(2,\).*\(3,\)"):
        Everything(total=np.ones(2)).merge(Everything(total=np.ones(3)))


def test_trees_of_different_structure_are_refused_naming_the_field():
    with pytest.raises(ValueError, match=r"'total'.*different"):
        Everything(total={"a": 1}).merge(Everything(total={"b": 1}))
    merged = Everything(pieces={"a": np.ones(1)}).merge(Everything(pieces=np.ones(1)))
    with pytest.raises(ValueError, match=r"'pieces'.*different"):
        merged.finalize()


def test_pieces_that_do_not_fit_are_refused_naming_the_field():
    merged = Everything(pieces=np.ones((1, 2))).merge(
        Everything(pieces=np.ones((1, 3)))
    )
    with pytest.raises(ValueError, match="'pieces'"):
        merged.finalize()


def test_merge_with_another_class_is_refused():
    with pytest.raises(TypeError, match=r"Everything with .*Sums"):
        Everything().merge(Sums.empty())


#
# Static fields
#


def test_static_fields_leave_jit_unchanged():
    state = jax.jit(lambda: Everything(keep=5, name="y", total=jnp.ones(2)))()
    assert state.keep == 5 and type(state.keep) is int
    assert state.name == "y"


@pytest.mark.parametrize("change", [{"keep": 4}, {"name": "other"}])
def test_static_fields_that_differ_are_refused_naming_field_and_values(change):
    (field, value) = next(iter(change.items()))
    with pytest.raises(ValueError) as info:
        Everything().merge(Everything(**change))
    assert repr(field) in str(info.value)
    assert repr(value) in str(info.value)
    assert repr(getattr(Everything(), field)) in str(info.value)


def test_marked_static_fields_may_hold_numpy_values():
    @flax.struct.dataclass(kw_only=True)
    class WithScale(metrics.AutoState):
        scale: Any = metrics.static_field(None)
        x: Any = metrics.sum_field(default=0)

    state = WithScale(scale=np.array([1, 2]), x=1)
    assert state.merge(WithScale(scale=np.array([1, 2]), x=2)).x == 3
    with pytest.raises(ValueError, match="'scale'"):
        state.merge(WithScale(scale=np.array([1, 3]), x=2))


@pytest.mark.parametrize("value", [np.ones(2), jnp.ones(2), [jnp.ones(1)]])
def test_array_in_a_field_without_helper_is_refused_with_advice(value):
    with pytest.raises(TypeError, match=r"'keep'.*sum_field"):
        Everything(keep=value)


def test_tracer_in_a_field_without_helper_is_refused():
    with pytest.raises(TypeError, match=r"'keep'.*sum_field"):
        jax.jit(lambda x: Everything(keep=x))(1)


def test_data_field_without_rule_is_refused_at_class_definition():
    with pytest.raises(TypeError, match=r"'x'.*concat_field"):

        class Bad(metrics.AutoState):
            x: Any = flax.struct.field(pytree_node=True)


def test_plain_dataclass_fields_are_static():
    @flax.struct.dataclass(kw_only=True)
    class Plain(metrics.AutoState):
        options: tuple = dataclasses.field(default=(1, 2))
        required: str
        x: Any = metrics.sum_field(default=0, metadata={"unit": "m"})

    state = Plain(required="r")
    assert jax.tree.leaves(state) == [0]
    metadata = {f.name: f.metadata for f in dataclasses.fields(state)}
    assert metadata["x"]["unit"] == "m"


def test_class_variables_are_no_fields():
    assert Everything.limit == 7
    assert "limit" not in {field.name for field in dataclasses.fields(Everything)}


def test_subclasses_inherit_the_rules():
    @flax.struct.dataclass(kw_only=True)
    class More(Sums):
        extra: Any = metrics.sum_field(default=0)

    state = More(total=1, smallest=1, largest=1, extra=1)
    assert state.merge(state).extra == 2
    assert state.merge(state).total == 2


#
# Collected pieces
#


def test_merged_states_survive_jit_and_pickle():
    state = everything(0).merge(everything(2)).merge(everything(4))
    for copy in (jax.jit(lambda s: s)(state), pickle.loads(pickle.dumps(state))):
        np.testing.assert_array_equal(copy.finalize().pieces, np.arange(6))
        merged = copy.merge(everything(6)).finalize()
        np.testing.assert_array_equal(merged.pieces, np.arange(8))


def test_merging_does_not_change_the_operands():
    left, right = everything(0), everything(2)
    first, second = left.merge(right), left.merge(everything(4))
    np.testing.assert_array_equal(left.finalize().pieces, [0, 1])
    np.testing.assert_array_equal(first.finalize().pieces, [0, 1, 2, 3])
    np.testing.assert_array_equal(second.finalize().pieces, [0, 1, 4, 5])


@pytest.mark.parametrize("reverse", [False, True])
def test_collecting_many_batches_keeps_their_order(reverse):
    state = Everything(pieces=np.zeros(1))
    for i in range(1, 5_000):
        new = Everything(pieces=np.full(1, i))
        state = new.merge(state) if reverse else state.merge(new)
    expected = np.arange(5_000)
    np.testing.assert_array_equal(
        state.finalize().pieces, expected[::-1] if reverse else expected
    )


def test_finalize_is_idempotent_and_finalized_states_merge():
    state = everything(0).merge(everything(2)).finalize()
    again = state.finalize()
    np.testing.assert_array_equal(again.pieces, state.pieces)
    mixed = state.merge(everything(4)).finalize()
    np.testing.assert_array_equal(mixed.pieces, np.arange(6))
    np.testing.assert_array_equal(mixed.first, [0, 1, 2])


def test_finalize_inside_jit_keeps_arrays_traced():
    @jax.jit
    def f(state):
        state = state.finalize()
        return state.pieces.sum(), state.first

    total, first = f(everything(0).merge(everything(2)))
    assert total == 6
    assert first.shape == (3,)


def test_states_can_be_vmapped():
    states = jax.vmap(lambda x: Sums(total=x, smallest=x, largest=x))(jnp.arange(3.0))
    merged = jax.vmap(lambda a, b: a.merge(b))(states, states)
    np.testing.assert_array_equal(merged.total, [0, 2, 4])
    assert merged.label == "sums"


def test_compute_that_fails_for_want_of_data_says_so():
    @flax.struct.dataclass(kw_only=True)
    class Ratio(metrics.AutoState):
        a: Any = metrics.sum_field()
        b: Any = metrics.sum_field()

        def compute(self):
            return self.a / self.b

    assert Ratio(a=1, b=2).compute() == 0.5
    with pytest.raises(ValueError, match=r"Ratio.*at least one batch"):
        Ratio.empty().compute()
