"""Matching shapes against specs: every possibility is kept."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron.ktyping.shapes import spec as s
from kauldron.ktyping.shapes.matching import SpecMatcher, matcher_for
from kauldron.ktyping.shapes.sizes import (
    EMPTY_STATE,
    UNKNOWN_DIM,
    UNSIZED_DIM,
    Pending,
    ShapeError,
    static_shape,
)


def match(spec: str, shape, *candidates):
    """The candidates after matching, as a list of dicts; [] on a mismatch."""
    state = candidates or EMPTY_STATE
    return list(
        matcher_for(spec).match(static_shape(shape), state, Pending(settle=True)) or ()
    )


# --------------------------------------------------------------------------------------
# Single forms
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec, shape, expected",
    [
        ("", (), [{}]),
        ("", (1,), []),
        ("7", (7,), [{}]),
        ("7", (8,), []),
        ("n", (3,), [{"n": (3,)}]),
        ("n", (), []),
        ("n n", (3, 3), [{"n": (3,)}]),
        ("n n", (3, 4), []),
        ("*b", (), [{"b": ()}]),
        ("*b", (2, 3), [{"b": (2, 3)}]),
        ("+b", (), []),
        ("+b", (2,), [{"b": (2,)}]),
        ("_ _foo", (2, 3), [{}]),
        ("... c", (1, 2, 3), [{"c": (3,)}]),
        ("+_", (), []),
        ("#5", (5,), [{}]),
        ("#5", (1,), [{}]),
        ("#5", (4,), []),
        ("*b h w", (1, 2, 3, 4), [{"b": (1, 2), "h": (3,), "w": (4,)}]),
        ("name=4", (4,), [{}]),
        ("0 n", (0, 0), [{"n": (0,)}]),
    ],
)
def test_forms_from_nothing_known(spec, shape, expected):
    assert match(spec, shape) == expected


def test_two_variadic_dims_leave_all_splits_in_order():
    assert match("*p *q d", (4, 5, 6)) == [
        {"p": (), "q": (4, 5), "d": (6,)},
        {"p": (4,), "q": (5,), "d": (6,)},
        {"p": (4, 5), "q": (), "d": (6,)},
    ]


def test_later_match_drops_candidates():
    candidates = match("*p *q", (4, 5))
    assert match("*p", (4,), *candidates) == [{"p": (4,), "q": (5,)}]


def test_optional_dim_binds_only_when_present():
    assert match("x? y", (3,)) == [{"y": (3,)}]
    assert match("x? y", (3, 4)) == [{"x": (3,), "y": (4,)}]
    assert match("x? y", (3, 4), {"x": (5,)}) == []


def test_choice_tries_all_alternatives():
    assert match("3|k", (3,)) == [{}, {"k": (3,)}]
    assert match("3|k", (4,)) == [{"k": (4,)}]
    assert match("*a|b", (2,)) == [{"a": (2,)}, {"b": (2,)}]


def test_name_bound_to_several_axes_does_not_match_without_star():
    assert match("b", (2,), {"b": (2, 2)}) == []
    assert match("b", (2,), {"b": (2,)}) == [{"b": (2,)}]
    assert match("+b", (), {"b": ()}) == []


def test_same_name_is_one_variable_whatever_the_sigil():
    assert match("*b", (3,), {"b": (3,)}) == [{"b": (3,)}]
    assert match("#b", (1,), {"b": (3,)}) == [{"b": (3,)}]


# --------------------------------------------------------------------------------------
# Broadcasting, unknown and symbolic sizes
# --------------------------------------------------------------------------------------


def test_broadcast_one_leaves_the_size_open_until_a_real_size_is_seen():
    (seen_one,) = match("#c", (1,))
    assert seen_one == {"c": (UNKNOWN_DIM,)}
    assert match("c", (5,), seen_one) == [{"c": (5,)}]
    assert match("#c", (5,), seen_one) == [{"c": (5,)}]
    assert match("#c", (1,), {"c": (5,)}) == [{"c": (5,)}]


def test_genuine_one_stays_one():
    assert match("#c", (5,), {"c": (1,)}) == []
    assert match("c", (1,), {"c": (UNKNOWN_DIM,)}) == [{"c": (1,)}]


def test_variadic_broadcast_is_element_wise():
    assert match("*#b", (1, 4)) == [{"b": (UNKNOWN_DIM, 4)}]
    assert match("*#b", (1, 4), {"b": (3, 4)}) == [{"b": (3, 4)}]
    assert match("*#b", (2, 4), {"b": (3, 4)}) == []
    assert match("*#b", (4,), {"b": (3, 4)}) == []


def test_none_axes_match_anything_and_never_erase_a_known_size():
    assert match("b 3", (None, 3)) == [{"b": (UNSIZED_DIM,)}]
    assert match("b", (None,), {"b": (7,)}) == [{"b": (7,)}]
    assert match("b", (7,), {"b": (UNSIZED_DIM,)}) == [{"b": (7,)}]
    assert match("b+1", (None,), {"b": (7,)}) == [{"b": (7,)}]


def test_unknown_rank_matches_every_spec_and_binds_nothing():
    assert (
        matcher_for("a b 3").match(None, EMPTY_STATE, Pending(settle=True))
        is EMPTY_STATE
    )


def test_symbolic_sizes_mismatch_only_when_provably_different():
    import jax

    b, t = jax.export.symbolic_shape("B, T")
    assert match("5", (b,)) == [{}]
    assert match("0", (b,)) == []
    assert match("n", (t,), {"n": (b,)}) == [{"n": (b,)}]
    assert match("n", (b + 1,), {"n": (b,)}) == []
    assert match("n", (4,), {"n": (b,)}) == [{"n": (4,)}]
    assert match("n", (b,), {"n": (4,)}) == [{"n": (4,)}]
    assert match("2*n", (2 * b,)) == [{"n": (b,)}]
    assert match("n//2 n", (b, 2 * b)) == [{"n": (2 * b,)}]
    assert match("min(n,3)", (3,), {"n": (b,)}) == [{"n": (b,)}]
    assert match("2**n", (8,), {"n": (b,)}) == [{"n": (b,)}]


# --------------------------------------------------------------------------------------
# Limits
# --------------------------------------------------------------------------------------


def test_too_many_candidates_are_refused_with_advice():
    with pytest.raises(ShapeError, match="name or fix some dims"):
        match("*a *b *c *d *e *f *g", (1,) * 25)


def test_hopeless_search_ends():
    with pytest.raises(ShapeError, match="name or fix some dims"):
        match("*a *b *c *d *e *f *g 7 *h", (1,) * 25)


def test_fixed_last_axis_is_looked_at_before_searching():
    assert match("*a *b *c *d *e *f *g 7", (1,) * 25) == []


# --------------------------------------------------------------------------------------
# Against a matcher that tries everything
# --------------------------------------------------------------------------------------


def _choices(dim):
    """The plain dims that one dim of the spec may stand for, `None`: absent."""
    if isinstance(dim, s.OptionalDim):
        return [None, *_choices(dim.child)]
    if isinstance(dim, s.ChoiceDim):
        return [*_choices(dim.left), *_choices(dim.right)]
    return [dim]


def _segmentations(count, axes):
    """All ways to cut `axes` axes into `count` consecutive pieces."""
    if count == 0:
        return [()] if axes == 0 else []
    return [
        (first, *rest)
        for first in range(axes + 1)
        for rest in _segmentations(count - 1, axes - first)
    ]


def _apply(dim, sizes, dims):
    """The assignment after one plain dim saw `sizes`, `None` on a mismatch."""
    low, high = dim.lengths
    if len(sizes) < low or (high is not None and len(sizes) > high):
        return None
    if isinstance(dim, s.AnonDims):
        return dims
    if isinstance(dim, s.IntDim):
        fits = sizes[0] == dim.value or (dim.broadcastable and sizes[0] == 1)
        return dims if fits else None
    known = dims.get(dim.name)
    if dim.broadcastable:
        if known is None:
            opened = tuple(UNKNOWN_DIM if x == 1 else x for x in sizes)
            return {**dims, dim.name: opened}
        if len(known) != len(sizes):
            return None
        merged = []
        for old, new in zip(known, sizes):
            if new != 1 and old is not UNKNOWN_DIM and old != new:
                return None
            merged.append(new if old is UNKNOWN_DIM and new != 1 else old)
        return {**dims, dim.name: tuple(merged)}
    if known is None:
        return {**dims, dim.name: tuple(sizes)}
    if len(known) != len(sizes):
        return None
    if any(old is not UNKNOWN_DIM and old != new for old, new in zip(known, sizes)):
        return None
    return {**dims, dim.name: tuple(sizes)}


def _brute_force(spec, shape, state):
    found = set()
    for plain in itertools.product(*map(_choices, spec.dims)):
        present = [dim for dim in plain if dim is not None]
        for lengths in _segmentations(len(present), len(shape)):
            for dims in state:
                position = 0
                current = dims
                for dim, length in zip(present, lengths):
                    sizes = shape[position : position + length]
                    position += length
                    current = _apply(dim, sizes, current)
                    if current is None:
                        break
                if current is not None:
                    found.add(frozenset(current.items()))
    return found


_LENGTHS = st.sampled_from([s.SINGLE, s.ANY_NUMBER, s.ONE_OR_MORE])
_PLAIN = st.one_of(
    st.builds(s.IntDim, st.integers(0, 3), st.booleans()),
    st.builds(s.NamedDims, st.sampled_from("abc"), _LENGTHS, st.booleans()),
    st.builds(s.AnonDims, st.just(""), _LENGTHS),
)
_DIM = st.one_of(
    _PLAIN,
    st.builds(s.OptionalDim, _PLAIN),
    st.builds(s.ChoiceDim, _PLAIN, _PLAIN),
)
_SPEC = st.lists(_DIM, max_size=4).map(lambda dims: s.ShapeSpec(tuple(dims)))
_SHAPE = st.lists(st.integers(0, 3), max_size=4).map(tuple)
_SIZES = st.lists(st.integers(0, 3) | st.just(UNKNOWN_DIM), max_size=2).map(tuple)
_STATE = st.lists(
    st.dictionaries(st.sampled_from("abc"), _SIZES, max_size=2), min_size=1, max_size=2
).map(tuple)


@given(_SPEC, _SHAPE, _STATE)
def test_result_is_that_of_trying_everything(spec, shape, state):
    found = SpecMatcher(spec).match(shape, state, Pending(settle=True)) or ()
    as_sets = [frozenset(dims.items()) for dims in found]
    assert set(as_sets) == _brute_force(spec, shape, state)
    assert len(as_sets) == len(set(as_sets)), "each candidate once"


@given(_SPEC, _SHAPE, _STATE)
def test_matching_changes_nothing_it_was_given(spec, shape, state):
    before = tuple(dict(dims) for dims in state)
    SpecMatcher(spec).match(shape, state, Pending(settle=True))
    assert tuple(dict(dims) for dims in state) == before
