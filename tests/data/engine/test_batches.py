import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kauldron.data.engine.batches import DensePlan, DropRemainder, Share, SparsePlan

REMAINDERS = st.sampled_from(list(DropRemainder))
PLANS = st.fixed_dictionaries(
    {
        "length": st.integers(0, 40),
        "num_epochs": st.integers(1, 4),
        "batch_size": st.one_of(st.none(), st.integers(1, 12)),
        "remainder": REMAINDERS,
        "cut_epochs": st.booleans(),
    }
)


def units_of(plan):
    return [list(plan.positions(unit)) for unit in range(plan.num_units)]


@given(plan=PLANS, count=st.sampled_from([2, 3, 4]))
def test_parts_of_the_processes_make_up_the_whole_batches(plan, count):
    assume(plan["batch_size"] is None or plan["batch_size"] % count == 0)
    if plan["batch_size"] is None:
        plan = {**plan, "remainder": DropRemainder.DROP}
    whole = DensePlan(**{**plan, "batch_size": plan["batch_size"] or count})
    parts = [DensePlan(**plan, share=Share(index=p, count=count)) for p in range(count)]
    assert {part.num_units for part in parts} == {whole.num_units}
    for unit in range(whole.num_units):
        joined = [k for part in parts for k in part.positions(unit)]
        assert joined == list(whole.positions(unit))


@given(plan=PLANS)
def test_keeping_the_remainder_yields_every_position_once(plan):
    plan = DensePlan(**{**plan, "remainder": DropRemainder.KEEP})
    seen = [k for unit in units_of(plan) for k in unit]
    assert seen == list(range(plan.total))


@given(plan=PLANS)
def test_no_batch_spans_two_epochs_that_are_cut(plan):
    plan = DensePlan(**{**plan, "cut_epochs": True})
    for unit in units_of(plan):
        assert len({k // plan.length for k in unit}) == 1


@given(plan=PLANS, consumed=st.integers(0, 30))
def test_starting_later_gives_the_rest(plan, consumed):
    plan = DensePlan(**plan)
    assume(plan.length and consumed <= plan.num_units)
    rest = dataclasses.replace(plan, start=plan.position_after(consumed))
    assert units_of(rest) == units_of(plan)[consumed:]


@given(
    length=st.integers(1, 30),
    epochs=st.integers(1, 3),
    count=st.integers(1, 4),
    batch_size=st.one_of(st.none(), st.integers(1, 5)),
)
def test_processes_of_a_sparse_stream_walk_all_positions_once(
    length, epochs, count, batch_size
):
    walked = []
    for index in range(count):
        plan = SparsePlan(
            length=length,
            num_epochs=epochs,
            batch_size=None if batch_size is None else batch_size * count,
            share=Share(index=index, count=count),
        )
        walked += [k for unit in units_of(plan) for k in unit]
    assert sorted(walked) == list(range(length * epochs))


@pytest.mark.parametrize("cut_epochs", [False, True])
def test_single_records_of_uneven_processes_are_all_there_if_kept(cut_epochs):
    def count_of(index, remainder):
        share = Share(index=index, count=2)
        return DensePlan(
            length=5,
            num_epochs=1,
            batch_size=None,
            share=share,
            remainder=remainder,
            cut_epochs=cut_epochs,
        ).num_units

    assert [count_of(p, DropRemainder.DROP) for p in range(2)] == [2, 2]
    assert [count_of(p, DropRemainder.KEEP) for p in range(2)] == [3, 2]


def test_endless_plans_have_no_number_of_units():
    endless = {"length": 3, "num_epochs": None, "batch_size": 2}
    cut = DensePlan(**endless, cut_epochs=True)
    for plan in (DensePlan(**endless), cut, SparsePlan(**endless)):
        assert plan.num_units is None
        assert np.array(plan.positions(10**9)).size > 0
