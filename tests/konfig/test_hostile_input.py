"""Whatever is thrown at a config: a right answer or a documented error."""

import copy
import pickle

import hypothesis
from hypothesis import strategies as st

from kauldron import konfig

# What resolving a config may raise when it names symbols or passes arguments wrongly.
DOCUMENTED = (ValueError, TypeError, AttributeError, ImportError, LookupError)

SYMBOLS = st.sampled_from(
    [
        "fractions:Fraction",
        "fractions.Fraction",
        "builtins:list",
        "builtins:dict",
        "math:pi",
        "math:nothing",
        "no_such_module:x",
        "collections:OrderedDict",
    ]
)
NAMES = SYMBOLS | st.text(max_size=6) | st.integers() | st.none()
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
KEYS = st.sampled_from(["a", "0", "1", "7", "__id__", "__raw__=1", "x.y", ""]) | (
    st.integers(-2, 2) | st.text(max_size=2)
)


def nodes(values):
    plain = st.dictionaries(KEYS, values, max_size=3)
    named = st.tuples(plain, st.sampled_from(["__qualname__", "__const__"]), NAMES)
    return plain | named.map(lambda t: {**t[0], t[1]: t[2]})


VALUES = st.recursive(
    LEAVES, lambda inner: nodes(inner) | st.lists(inner, max_size=3), max_leaves=10
)


def error_of(function, *args, **kwargs):
    """The documented error that a call raises, or `None`; others fail the test."""
    try:
        function(*args, **kwargs)
    except DOCUMENTED as error:
        return error
    return None


@hypothesis.given(VALUES)
def test_resolving_gives_an_answer_or_a_documented_error(value):
    before = copy.deepcopy(value)
    error = error_of(konfig.resolve, value)
    assert error is None or str(error)
    assert value == before


@hypothesis.given(nodes(VALUES))
def test_a_config_of_anything_can_be_shown_copied_compared_and_saved(fields):
    error = error_of(konfig.ConfigDict, fields)
    if error is not None:
        assert str(error)
        return
    cfg = konfig.ConfigDict(fields)
    assert repr(cfg)
    assert copy.deepcopy(cfg) == cfg
    assert pickle.loads(pickle.dumps(cfg)) == cfg
    assert isinstance(konfig.ConfigDict(cfg) | cfg, konfig.ConfigDict)
    if error_of(cfg.to_json) is not None:
        assert "__id__" in str(fields)  # the id of a node inside itself
    else:
        assert konfig.ConfigDict.from_json(cfg.to_json()) == cfg


@hypothesis.given(st.text(max_size=12))
def test_any_text_as_a_symbol_is_refused_in_words(text):
    error = error_of(konfig.resolve, {"__const__": f"no_such_module.{text}"})
    assert str(error)


@hypothesis.given(nodes(VALUES))
def test_nothing_runs_that_is_not_allowed(fields):
    error = error_of(konfig.resolve, {"root": fields}, allow=["no_such_package"])
    assert error is None or str(error)
    if isinstance(error, konfig.NotAllowedError):
        assert error.paths
