"""How configs are shown."""

import textwrap

import pytest

from kauldron import konfig

with konfig.imports():
    import fractions
    import pathlib

    import numpy as np
    from flax import linen as nn


def shown(value):
    return repr(konfig.ConfigDict({"x": value}))


@pytest.mark.parametrize(
    "value, text",
    [
        (1, "1"),
        ("a", "'a'"),
        (None, "None"),
        (..., "..."),
        ([], "[]"),
        ({}, "{}"),
        ((), "()"),
        ((1,), "(1,)"),
        ([1, 2], "[1, 2]"),
        ({1}, "{1}"),
        ({"y": [1]}, "{'y': [1]}"),
        (nn.Dense(3), "nn.Dense(3)"),
        (nn.Dense(features=3), "nn.Dense(features=3)"),
        (np.float32, "np.float32"),
        (np.random.normal(), "np.random.normal()"),
        (pathlib.Path.home(), "pathlib.Path.home()"),
        (fractions, "fractions"),
    ],
)
def test_values_are_shown_as_they_would_be_written(value, text):
    assert shown(value) == f"<ConfigDict[{{'x': {text}}}]>"
    assert str(konfig.ConfigDict({"x": value})) == shown(value)


def test_few_short_children_stay_on_one_line():
    cfg = fractions.Fraction(1, denominator=234)
    assert repr(cfg) == "<ConfigDict[fractions.Fraction(1, denominator=234)]>"


def test_otherwise_there_is_one_child_per_line():
    cfg = konfig.ConfigDict({"m": nn.Dense(features=3, use_bias=False), "l": [1, 2, 3]})
    assert repr(cfg) == textwrap.dedent(
        """\
        <ConfigDict[{
            'm': nn.Dense(
                features=3,
                use_bias=False,
            ),
            'l': [1, 2, 3],
        }]>"""
    )


def test_a_child_that_spans_lines_is_indented():
    cfg = konfig.ConfigDict({"m": nn.Dense(features=3, use_bias=False)})
    assert repr(cfg) == textwrap.dedent(
        """\
        <ConfigDict[{
            'm': nn.Dense(
                features=3,
                use_bias=False,
            ),
        }]>"""
    )


def test_what_occurs_twice_is_shown_once():
    node = nn.Dense(3)
    items = [1]
    cfg = konfig.ConfigDict({"a": node, "b": [node]})
    assert repr(cfg) == textwrap.dedent(
        """\
        <ConfigDict[{
            'a': &id001 nn.Dense(3),
            'b': [*id001],
        }]>"""
    )
    cfg = konfig.ConfigDict({"l": items})
    cfg.m = cfg.ref.l
    assert "'l': &id001 [1],\n    'm': *id001,\n" in repr(cfg)


def test_a_shared_value_is_marked_and_a_lazy_reference_is_not():
    cfg = konfig.ConfigDict({"a": 1})
    cfg.b = cfg.ref.a
    assert repr(cfg) == "<ConfigDict[{'a': 1, 'b': 1}]>"
    cfg = konfig.ConfigDict({"a": 1})
    cfg.b = cfg.get_ref("a")
    assert "'a': &id001 1,\n    'b': *id001,\n" in repr(cfg)


def test_cycles_unset_and_dangling_values_are_shown():
    cfg = konfig.ConfigDict({"n": konfig.required(int)})
    cfg.me = cfg
    cfg.p = konfig.placeholder(str, required=True)
    cfg.free = konfig.placeholder(str)
    cfg.bad = cfg.ref.a.b
    cfg.sum = cfg.ref.bad + 1
    cfg.self = cfg.ref.self
    cfg.l = [cfg.ref.nope]
    assert repr(cfg) == textwrap.dedent(
        """\
        <ConfigDict[&id001 {
            'n': <required: int>,
            'me': *id001,
            'p': <required: str>,
            'free': None,
            'bad': <unresolved ref: cfg.a.b>,
            'sum': <unresolved ref: (cfg.bad + 1)>,
            'self': <unresolved ref: cfg.self>,
            'l': [<unresolved ref: cfg.nope>],
        }]>"""
    )


def test_an_object_with_a_failing_repr_does_not_matter():
    class Rude:
        def __repr__(self):
            raise RuntimeError

    cfg = konfig.ConfigDict({"l": []})
    cfg.l.append(Rude())
    assert "Rude whose repr raises RuntimeError" in repr(cfg)


def test_malformed_nodes_are_shown_as_dicts():
    cfg = konfig.ConfigDict({"__const__": "a:b", "x": 1})
    assert "'__const__': 'a:b',\n    'x': 1,\n" in repr(cfg)


def test_aliases_replace_whole_prefixes_and_the_longest_wins():
    konfig.register_aliases({"repr_test": "rt", "repr_test.deep": "rd"})
    for name, text in {
        "repr_test:f": "rt.f",
        "repr_test.deep:f": "rd.f",
        "repr_test:deep.f": "rd.f",
        "repr_test.deeper:f": "rt.deeper.f",
        "repr_tests:f": "repr_tests.f",
        "a.repr_test:f": "a.repr_test.f",
        "jax.numpy:zeros": "jnp.zeros",
    }.items():
        assert repr(konfig.ConfigDict({"__const__": name})) == f"<ConfigDict[{text}]>"


def test_a_notebook_gets_html():
    html = konfig.ConfigDict({"model": nn.Dense(3)})._repr_html_()
    assert "<" in html
    assert "Dense" in html
