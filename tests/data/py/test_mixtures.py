import collections
import dataclasses
import pickle
import types
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron import kd
from kauldron.data.engine.batches import DropRemainder
from kauldron.data.engine.mixtures import integer_shares


def part(name, count, **kwargs):
    records = [{"x": f"{name}{i}"} for i in range(count)]
    return kd.data.py.DataSource(records, **{"shuffle": False} | kwargs)


def numbers(start, count, **kwargs):
    data = {"x": np.arange(start, start + count)}
    return kd.data.py.Arrays(data, **{"shuffle": False} | kwargs)


def names(ds):
    return [str(record["x"]) for record in ds]


def reference_selection(position, shares):
    """The rule as it is written down, for one position."""
    remaining, before, after = sum(shares), position, position + 1
    for number, share in enumerate(shares):
        later_before = before * (remaining - share) // remaining
        later_after = after * (remaining - share) // remaining
        if before - later_before != after - later_after:
            return number, after - later_after - 1
        remaining -= share
        before, after = later_before, later_after
    raise AssertionError


@given(
    weights=st.lists(st.floats(0.1, 10), min_size=1, max_size=4),
    sizes=st.data(),
)
def test_children_are_drawn_by_the_rule(weights, sizes):
    lengths = [sizes.draw(st.integers(1, 20)) for _ in weights]
    children = [numbers(1000 * i, n) for i, n in enumerate(lengths)]
    mix = kd.data.py.Mix(children, weights=weights, shuffle=False, num_epochs=2)
    shares = integer_shares(weights, len(weights))
    epoch = int(min(n / (q / sum(shares)) for n, q in zip(lengths, shares)))
    assert len(mix) == 2 * epoch
    for position, record in enumerate(mix):
        child, index = reference_selection(position, shares)
        assert record["x"] == 1000 * child + index % lengths[child]


def test_equal_weights_alternate():
    mix = kd.data.py.Mix([part("a", 3), part("b", 3)], shuffle=False, num_epochs=1)
    assert names(mix) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_no_child_is_repeated_within_an_epoch_and_all_go_on_in_the_next():
    mix = kd.data.py.Mix(
        [part("a", 10), part("b", 2)], shuffle=False, num_epochs=2, weights=[1, 1]
    )
    seen = names(mix)
    assert len(seen) == 8
    assert seen[:4] == ["a0", "b0", "a1", "b1"]
    assert seen[4:] == ["a2", "b0", "a3", "b1"]


def test_a_shuffled_mixture_permutes_each_epoch():
    mix = kd.data.py.Mix([part("a", 6), part("b", 6)], num_epochs=2, seed=1)
    seen = names(mix)
    assert sorted(seen[:12]) == sorted(seen[12:])
    assert seen[:12] != seen[12:]
    assert collections.Counter(name[0] for name in seen[:12]) == {"a": 6, "b": 6}


def test_children_keep_their_own_transforms_and_shuffle():
    a = part("a", 4, transforms=[lambda r: {"x": r["x"].upper()}], shuffle=True)
    mix = kd.data.py.Mix(
        [a, part("b", 4)],
        shuffle=False,
        num_epochs=1,
        transforms=[lambda r: {"x": r["x"] + "!"}],
    )
    seen = names(mix)
    assert sorted(seen[::2]) == ["A0!", "A1!", "A2!", "A3!"]
    assert seen[1::2] == ["b0!", "b1!", "b2!", "b3!"]


def test_arrays_and_records_mix():
    records = kd.data.py.DataSource([{"x": 100 + i} for i in range(3)], shuffle=False)
    mix = kd.data.py.Mix(
        [numbers(0, 3), records], shuffle=False, num_epochs=1, batch_size=6
    )
    (batch,) = mix
    assert batch["x"].tolist() == [0, 100, 1, 101, 2, 102]


def test_mixing_arrays_stays_columnar_and_equals_mixing_records():
    kwargs = {"weights": [2, 1], "num_epochs": 2, "batch_size": 7, "seed": 3}
    arrays = kd.data.py.Mix([numbers(0, 20), numbers(100, 20)], **kwargs)
    records = [
        kd.data.py.DataSource([{"x": s + i} for i in range(20)], shuffle=False)
        for s in (0, 100)
    ]
    assert arrays._is_in_memory
    for a, b in zip(arrays, kd.data.py.Mix(records, **kwargs), strict=True):
        np.testing.assert_array_equal(a["x"], b["x"])


def test_fields_of_children_that_are_ignored_give_a_warning():
    child = part("a", 4, batch_size=2, num_epochs=3)
    with pytest.warns(UserWarning, match=r"datasets\[0\].*batch_size, num_epochs"):
        mix = kd.data.py.Mix([child, part("b", 4)], num_epochs=1)
    assert len(names(mix)) == 8


def test_children_that_set_nothing_give_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kd.data.py.Mix([part("a", 4)])


def test_a_mixture_in_a_trainer_inherits_its_seed_without_a_warning():
    mix = kd.data.py.Mix([part("a", 4, shuffle=True), part("b", 4)], num_epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mix = mix.update_from_root_cfg(types.SimpleNamespace(seed=5))
        mix = mix.update_from_root_cfg(types.SimpleNamespace(seed=6))
    assert mix.seed == 6


@pytest.mark.parametrize(
    "weights, words",
    [
        ([1], "1 weights for 2"),
        ([1, 0], r"weights\[1\] of DataSource is 0"),
        ([-1, 1], r"weights\[0\] of DataSource is -1"),
        ([1, float("nan")], r"weights\[1\].*nan"),
    ],
)
def test_wrong_weights_are_refused(weights, words):
    with pytest.raises(ValueError, match=words):
        kd.data.py.Mix([part("a", 4), part("b", 4)], weights=weights)


def test_mixing_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        kd.data.py.Mix([])


def test_an_empty_child_is_named():
    mix = kd.data.py.Mix([part("a", 4), part("b", 0)], num_epochs=1)
    with pytest.raises(ValueError, match=r"datasets\[1\].*no records"):
        list(mix)


def test_a_child_of_another_kind_is_refused():
    child = kd.data.InMemoryPipeline(loader=lambda: {"x": np.zeros(2)})
    with pytest.raises(TypeError, match=r"datasets\[0\].*InMemoryPipeline"):
        kd.data.py.Mix([child])


def test_children_of_different_structure_are_an_error_only_in_a_batch():
    other = kd.data.py.DataSource([{"y": 1}] * 4, shuffle=False)
    mix = kd.data.py.Mix([part("a", 4), other], shuffle=False, num_epochs=1)
    assert len(list(mix)) == 8
    with pytest.raises(ValueError, match=r"\['x'\].*\['y'\].*AddConstants"):
        list(dataclasses.replace(mix, batch_size=4))


def test_mixtures_nest():
    inner = kd.data.py.Mix([part("a", 2), part("b", 2)], shuffle=False)
    outer = kd.data.py.Mix([inner, part("c", 4)], shuffle=False, num_epochs=1)
    assert names(outer) == ["a0", "c0", "b0", "c1", "a1", "c2", "b1", "c3"]


def test_a_slice_on_a_mixture_slices_the_mixture():
    mix = kd.data.py.Mix(
        [part("a", 3), part("b", 3)],
        shuffle=False,
        num_epochs=2,
        transforms=[kd.data.py.SliceDataset(2)],
    )
    assert names(mix) == ["a0", "b0", "a0", "b0"]


class Selection:
    def __len__(self):
        return 3

    def __getitem__(self, position):
        return (position % 2, position // 2)


def test_a_selection_map_says_what_stands_where():
    ds = kd.data.py.SelectFromDatasets(
        [part("a", 3), part("b", 3)],
        selection_map=Selection(),
        shuffle=False,
        num_epochs=2,
    )
    assert names(ds) == ["a0", "b0", "a1", "b1", "a2", "b2"]


@pytest.mark.parametrize(
    "table, error, words",
    [
        ([(0, 0), (5, 0)], IndexError, "child 5 at position 1"),
        ([(0, 0)], IndexError, "position 1"),
    ],
)
def test_a_selection_map_that_has_no_answer_is_told(table, error, words):
    ds = kd.data.py.SelectFromDatasets(
        [part("a", 3)], selection_map=table, shuffle=False, num_epochs=2
    )
    with pytest.raises(error) as info:
        names(ds)
    assert words in str(info.value) + "".join(getattr(info.value, "__notes__", []))


def test_concatenation_has_one_after_another():
    ds = kd.data.py.Concatenate(
        [part("a", 2), part("b", 3, shuffle=True)], shuffle=False, num_epochs=2
    )
    seen = names(ds)
    assert seen[:2] == seen[5:7] == ["a0", "a1"]
    assert sorted(seen[2:5]) == sorted(seen[7:]) == ["b0", "b1", "b2"]
    assert len(ds) == 10


def test_a_shuffled_concatenation_has_every_record_once_per_epoch():
    ds = kd.data.py.Concatenate([part("a", 5), part("b", 7)], num_epochs=1)
    seen = names(ds)
    assert len(set(seen)) == 12
    assert seen != sorted(seen)


def test_zipped_records_hold_one_record_of_each():
    ds = kd.data.py.ZipDatasets(
        {"left": numbers(0, 4), "right": numbers(100, 3)},
        num_epochs=2,
        batch_size=3,
        seed=1,
    )
    assert len(ds) == 2
    for batch in ds:
        assert (batch["right"]["x"] - batch["left"]["x"]).tolist() == [100] * 3
        assert sorted(batch["left"]["x"].tolist()) == [0, 1, 2]


def test_zipping_leaves_out_what_one_side_lacks():
    class Even(kd.data.FilterTransform):
        def filter(self, element):
            return element["x"] % 2 == 0

    ds = kd.data.py.ZipDatasets(
        {"a": numbers(0, 6, transforms=[Even()]), "b": numbers(100, 6)},
        shuffle=False,
        num_epochs=1,
    )
    assert [(int(r["a"]["x"]), int(r["b"]["x"])) for r in ds] == [
        (0, 100),
        (2, 102),
        (4, 104),
    ]


def test_zipping_a_list_is_refused():
    with pytest.raises(TypeError, match="takes a dict"):
        kd.data.py.ZipDatasets([part("a", 2)])


def test_errors_in_a_mixture_name_the_child_and_its_record():
    def fail(record):
        if record["x"] == "b1":
            raise RuntimeError("no")
        return record

    mix = kd.data.py.Mix(
        [part("a", 3), part("b", 3)], num_epochs=1, transforms=[fail], batch_size=6
    )
    with pytest.raises(RuntimeError) as info:
        list(mix)
    assert "record 1 of DataSource(list)" in "".join(info.value.__notes__)


#
# Names of classes
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class Labelled(kd.data.py.DataSourceBase):
    class_names: tuple[str, ...]
    shuffle: bool = False

    @property
    def data_source(self):
        return [{"label": label} for label in range(4)]


CATS, DOGS = Labelled(class_names=("cat", "dog")), Labelled(class_names=("dog",))
UNNAMED = part("a", 4)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [((CATS, CATS), ("cat", "dog")), ((CATS, DOGS), None), ((CATS, UNNAMED), None)],
)
@pytest.mark.parametrize("mixture", [kd.data.py.Mix, kd.data.py.Concatenate])
def test_mixtures_know_the_class_names_on_which_all_parts_agree(
    mixture, parts, expected
):
    assert mixture(parts).class_names == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"a": CATS, "b": UNNAMED}, ("cat", "dog")),
        ({"a": CATS, "b": DOGS}, None),
        ({"a": UNNAMED}, None),
    ],
)
def test_zipped_records_have_the_class_names_of_the_parts_that_know_them(
    parts, expected
):
    assert kd.data.py.ZipDatasets(parts).class_names == expected


def test_operations_pass_class_names_on():
    mix = kd.data.py.Mix([CATS, CATS], num_epochs=1, batch_size=3)
    for ds in (
        mix.take(1).map(lambda batch: batch).cache().prefetch().device_put(),
        mix.with_remainder(DropRemainder.PAD),
    ):
        assert ds.class_names == ("cat", "dog")
    assert UNNAMED.take(1).class_names is None


def test_a_field_of_class_names_is_kept_in_copies():
    assert pickle.loads(pickle.dumps(CATS)).class_names == ("cat", "dog")
