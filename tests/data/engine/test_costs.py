"""What stages cost, and `num_workers="auto"`."""

import dataclasses
import logging
import sys
import time

import cloudpickle
import numpy as np
import pytest

from kauldron import kd
from kauldron.data.engine import costs
from kauldron.data.engine.costs import Cost, Costs


class Numbers:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return {"x": index}


# Workers cannot import this module by name: send it by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def compute(record):
    import numpy as np

    total = sum(i * i for i in range(3000))
    return {"x": record["x"], "y": np.full(1000, total % 7)}


def wait(record):
    time.sleep(0.002)
    return record


def make_ds(*transforms, **kwargs):
    kwargs = {"shuffle": True, "seed": 1, "num_epochs": 1, "batch_size": 8} | kwargs
    return kd.data.py.DataSource(Numbers(), **{"transforms": transforms} | kwargs)


def test_the_cost_of_each_stage_is_measured():
    measured = make_ds(compute, wait).profile(seconds=0.1)
    names = [
        "source",
        "transforms[0] function",
        "transforms[1] function",
        "batching",
        "transport: worker",
        "transport: parent",
    ]
    assert list(measured.stages) == names
    source, computing, waiting, *_ = measured.stages.values()
    assert computing.computing > source.computing
    assert waiting.waiting > 0.0015 > waiting.computing
    assert measured.batch_size == 8
    assert measured.num_records > 0


def test_few_slow_records_are_measured():
    seen = []

    def slow(record):
        seen.append(record)
        time.sleep(0.1)
        return record

    assert make_ds(slow).profile(seconds=0.05).num_records == 1
    assert len(seen) <= 6


def test_stages_of_named_transforms_mixtures_and_single_records():
    ds = make_ds(transforms={"work": compute}, batch_size=None)
    assert "transforms['work'] function" in ds.profile(seconds=0.05).stages
    mixed = kd.data.py.Mix([make_ds(compute), make_ds(compute)], batch_size=4, seed=0)
    assert list(mixed.profile(seconds=0.05).stages)[:2] == ["source", "batching"]

    class Odd(kd.data.FilterTransform):
        def filter(self, element):
            return element["x"] % 2 == 1

    assert "transforms[0] Odd" in make_ds(Odd()).profile(seconds=0.05).stages


def test_data_without_records_cannot_be_measured():
    empty = kd.data.py.DataSource([], shuffle=False, num_epochs=1, batch_size=2)
    with pytest.raises(ValueError, match="no records"):
        empty.profile()


@pytest.mark.parametrize(
    "cost, speedup, cores, expected",
    [
        (Cost(1e-6), 1.0, 16, ("threads", 1)),
        (Cost(1e-3, 1e-2), 1.0, 2, ("threads", 8)),
        (Cost(1e-3, 1e-2), 1.0, 16, ("threads", 32)),
        (Cost(1e-3), 1.0, 1, ("threads", 1)),
        (Cost(1e-3), 1.9, 2, ("threads", 2)),
        (Cost(1e-3), 1.1, 2, ("processes", 1)),
        (Cost(1e-3), 1.9, 16, ("processes", 14)),
    ],
)
def test_who_builds_follows_from_the_costs(cost, speedup, cores, expected):
    measured = Costs({"source": cost, costs.SEND: Cost(9.0)}, 8, 32, speedup)
    builders = costs.choose(measured, cores)
    assert (builders.kind, builders.count) == expected


@pytest.mark.parametrize("kind, count", [("threads", 3), ("processes", 2)])
def test_auto_builds_the_same_stream_with_what_it_chose(
    monkeypatch, caplog, kind, count
):
    monkeypatch.setattr(
        costs, "choose", lambda *_: costs.Builders(kind, count, "the test says so")
    )
    ds = make_ds(compute, num_workers="auto")
    expected = list(dataclasses.replace(ds, num_workers=0, prefetch_batches=0))
    with caplog.at_level(logging.INFO), iter(ds) as iterator:
        first = next(iterator)
        executor = iterator.iter._executor
        names = {"threads": "_threads", "processes": "_workers"}
        assert len(getattr(executor, names[kind])) == count
        np.testing.assert_equal([first, *iterator], expected)
    (message,) = [m for m in caplog.messages if "auto" in m]
    assert "the test says so" in message
    assert "transforms[0] function" in message


def test_auto_measures_once_and_not_for_each_iterator(monkeypatch, caplog):
    monkeypatch.setattr(
        costs, "choose", lambda *_: costs.Builders("threads", 1, "the test says so")
    )
    ds = make_ds(compute, num_workers="auto")
    with caplog.at_level(logging.INFO):
        assert len(list(ds)) == len(list(ds)) == 5
    assert len([m for m in caplog.messages if "auto" in m]) == 1


def test_an_error_while_measuring_is_raised_at_its_place():
    def fail(record):
        if record["x"] == 3:
            raise ValueError("three")
        return record

    ds = make_ds(fail, shuffle=False, batch_size=2, num_workers="auto")
    with iter(ds) as iterator:
        assert next(iterator)["x"].tolist() == [0, 1]
        with pytest.raises(ValueError, match="three"):
            next(iterator)


def test_bad_records_that_were_met_while_measuring_count_once():
    def fail(record):
        if record["x"] == 3:
            raise ValueError("three")
        return record

    ds = make_ds(
        fail, shuffle=False, batch_size=2, num_workers="auto", max_bad_records=1
    )
    assert [batch["x"].tolist() for batch in ds][:2] == [[0, 1], [2, 4]]


def test_arrays_in_memory_are_not_measured(monkeypatch):
    monkeypatch.setattr(costs, "measure", None)
    ds = kd.data.py.Arrays(
        {"x": np.arange(4)}, shuffle=False, batch_size=2, num_workers="auto"
    )
    with iter(ds) as iterator:
        assert next(iterator)["x"].tolist() == [0, 1]


def test_another_word_than_auto_is_refused():
    with pytest.raises(ValueError, match=r"num_workers='all'.*'auto'"):
        make_ds(num_workers="all")
