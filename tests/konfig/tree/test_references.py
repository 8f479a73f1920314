"""References: lazy paths, operations, `ref_fn`, `ref_copy`, write-through values."""

import copy
import operator

import hypothesis
import pytest
from hypothesis import strategies as st

from kauldron import konfig

with konfig.imports():
    import fractions


def config(**fields):
    return konfig.ConfigDict(fields)


def test_a_reference_follows_its_target():
    cfg = config(n=1)
    cfg.m = cfg.ref.n
    cfg.n = 2
    assert cfg.m == 2
    assert cfg.items()[1] == ("m", 2)
    assert "2" in repr(cfg)


BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.pow,
    operator.mod,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]


@pytest.mark.parametrize("fn", BINARY, ids=lambda fn: fn.__name__)
def test_binary_operators_are_lazy_on_both_sides(fn):
    cfg = config(n=1)
    cfg.left = fn(cfg.ref.n, 3)
    cfg.right = fn(3, cfg.ref.n)
    cfg.both = fn(cfg.ref.n, cfg.ref.n)
    cfg.n = 6
    assert (cfg.left, cfg.right, cfg.both) == (fn(6, 3), fn(3, 6), fn(6, 6))


@pytest.mark.parametrize("fn", [operator.neg, operator.pos, abs, operator.invert])
def test_unary_operators_are_lazy(fn):
    cfg = config(n=1)
    cfg.x = fn(cfg.ref.n)
    cfg.n = -5
    assert cfg.x == fn(-5)


def test_conversions_and_rounding_are_lazy():
    cfg = config(x=1.26)
    ref = cfg.ref.x
    cfg.update(i=ref.to_int(), s=ref.to_str(), r=round(ref, 1), f=cfg.ref.i.to_float())
    cfg.x = 2.26
    assert (cfg.i, cfg.s, cfg.r, cfg.f) == (2, "2.26", 2.3, 2.0)
    assert ref.get() == 2.26
    assert ref.identity().get() == 2.26


def test_attributes_items_and_calls_are_lazy():
    cfg = config(name="abc", l=[{"x": 1}], call=fractions.Fraction(7, 2))
    cfg.upper = cfg.ref.name.upper()
    cfg.item = cfg.ref.l[0].x
    cfg.arg = cfg.ref.call[0]
    cfg.first = cfg.ref.name[0]
    cfg.name, cfg.l[0].x, cfg.call[0] = "xyz", 2, 9
    assert (cfg.upper, cfg.item, cfg.arg, cfg.first) == ("XYZ", 2, 9, "x")


def test_the_key_of_an_item_may_be_a_reference():
    cfg = config(which="a", table={"a": 1, "b": 2})
    cfg.x = cfg.ref.table[cfg.ref.which]
    cfg.which = "b"
    assert cfg.x == 2


def test_the_target_may_be_defined_later():
    cfg = config()
    cfg.x = cfg.ref.later.y
    cfg.later = {"y": 3}
    assert cfg.x == 3


def test_a_path_follows_replaced_parents_but_one_from_a_child_stays_with_it():
    cfg = config(aux={"x": 1})
    cfg.by_path, cfg.by_child = cfg.ref.aux.x, cfg.aux.ref.x
    cfg.aux = {"x": 5}
    assert cfg.by_path == 5
    assert cfg.by_child == 1


def test_operands_may_belong_to_other_configs():
    a, b = config(n=1), config(n=10)
    a.x = a.ref.n + b.ref.n
    b.n = 20
    assert a.x == 21


def test_overwriting_a_field_that_holds_a_reference_changes_only_that_field():
    cfg = config(n=1)
    shared = cfg.ref.n
    cfg.a, cfg.b = shared, shared + 1
    cfg.c = shared
    cfg.a = 7
    assert (cfg.a, cfg.b, cfg.c, cfg.n) == (7, 2, 1, 1)


def test_a_reference_to_a_node_shares_the_object():
    cfg = config(a=fractions.Fraction(1, 3))
    cfg.b = cfg.ref.a
    resolved = konfig.resolve(cfg)
    assert resolved.a is resolved.b


def test_references_inside_lists_are_evaluated_when_used():
    cfg = config(n=1)
    cfg.l = [cfg.ref.n, (cfg.ref.n + 1,)]
    cfg.n = 4
    assert konfig.resolve(cfg).l == (4, (5,))
    assert konfig.ConfigDict.from_json(cfg.to_json()).l == [4, [5]]
    assert repr(cfg) == "<ConfigDict[{'n': 4, 'l': [4, (5,)]}]>"


def test_a_field_named_like_a_method_is_reached_by_item():
    cfg = config()
    cfg["get"] = 3
    cfg["values"] = 4
    cfg.a, cfg.b = cfg.ref["get"], cfg.ref["values"]
    cfg.c = cfg.ref.values  # references have no such method
    assert (cfg.a, cfg.b, cfg.c) == (3, 4, 4)


# ------------------------------------------------------------------------------------
# Misuse
# ------------------------------------------------------------------------------------


def test_truth_testing_names_the_path_and_the_way_out():
    cfg = config(a={"b": True})
    with pytest.raises(NotImplementedError, match=r"cfg\.ref\.a\.b.*ref_fn"):
        bool(cfg.ref.a.b)
    with pytest.raises(NotImplementedError):
        not (cfg.ref.a.b == 1)  # noqa: SIM201


@pytest.mark.parametrize(
    "misuse",
    [
        lambda ref: f"{ref}",
        lambda ref: f"{ref:>3}",
        lambda ref: str(ref),
        lambda ref: f"run_{ref}",
        int,
        float,
        len,
        range,
        list,
        lambda ref: 1 in ref,
        lambda ref: [1, 2][ref],
    ],
)
def test_what_needs_the_value_now_recommends_ref_fn(misuse):
    cfg = config(x=1)
    with pytest.raises(TypeError, match=r"cfg\.ref\.x.*konfig\.ref_fn"):
        misuse(cfg.ref.x)


def test_references_cannot_be_written_to_or_hashed():
    cfg = config(a={"x": 1})
    with pytest.raises(AttributeError, match=r"without \.ref"):
        cfg.ref.a.x = 2
    with pytest.raises(TypeError, match=r"without \.ref"):
        cfg.ref.a["x"] = 2
    with pytest.raises(AttributeError):
        del cfg.ref.a
    with pytest.raises(AttributeError):
        cfg.ref.a.set(3)
    with pytest.raises(TypeError):
        hash(cfg.ref.a)
    assert cfg.a.x == 1


def test_a_dangling_reference_names_the_field_and_the_target():
    cfg = config(model={"width": 1})
    cfg.a = cfg.ref.model.widht
    with pytest.raises(AttributeError) as error:
        cfg.a
    text = str(error.value)
    assert "cfg.a" in text
    assert "cfg.ref.model.widht" in text
    assert "Did you mean 'width'" in text
    cfg.b = cfg.ref.model["nope"]
    with pytest.raises(KeyError, match=r"cfg\.b.*nope"):
        cfg.b
    cfg.l = [1]
    cfg.c = cfg.ref.l[3]
    with pytest.raises(IndexError, match=r"cfg\.c.*1 items"):
        cfg.c


def test_a_reference_to_itself_is_a_cycle():
    cfg = config()
    cfg.a = cfg.ref.a
    with pytest.raises(konfig.CycleError, match=r"cfg\.ref\.a -> cfg\.ref\.a"):
        cfg.a
    cfg.x, cfg.y = cfg.ref.y + 1, cfg.ref.x + 1
    with pytest.raises(konfig.CycleError):
        cfg.x
    with pytest.raises(ValueError, match="itself"):
        konfig.resolve(cfg)


def test_an_operation_on_an_unset_placeholder_says_which():
    cfg = config(n=konfig.placeholder(int))
    cfg.m = cfg.ref.n + 1
    with pytest.raises(TypeError, match=r"cfg\.ref\.n is not set"):
        cfg.m
    cfg.n = 1
    assert cfg.m == 2


def test_an_error_in_an_operation_keeps_its_type_and_names_the_expression():
    cfg = config(a=1, b=0)
    cfg.c = cfg.ref.a / cfg.ref.b
    with pytest.raises(ZeroDivisionError, match=r"cfg\.c.*(?s:.*)cfg\.ref\.a / cfg"):
        cfg.c


def test_repr_of_a_reference_shows_the_expression():
    cfg = config(a={"b": 1})
    assert repr(cfg.ref.a["b"] * 2 + 1) == "<reference ((cfg.ref.a.b * 2) + 1)>"
    assert repr(cfg.a.ref.b) == "<reference cfg.a.ref.b>"


# ------------------------------------------------------------------------------------
# ref_fn
# ------------------------------------------------------------------------------------


def test_ref_fn_applies_at_once_or_decorates():
    cfg = config(n=2)

    @konfig.ref_fn
    def scaled(x, by=10):
        return x * by

    cfg.a = scaled(cfg.ref.n)
    cfg.b = scaled(cfg.ref.n, by=cfg.ref.n)
    cfg.c = konfig.ref_fn(max, cfg.ref.n, 3)
    cfg.n = 5
    assert (cfg.a, cfg.b, cfg.c) == (50, 25, 5)
    assert scaled.__name__ == "scaled"


def test_a_call_without_arguments_is_lazy_too():
    calls = []

    @konfig.ref_fn
    def count():
        calls.append(1)
        return len(calls)

    cfg = config()
    cfg.x = count()
    assert not calls
    assert cfg.x == 1


def test_references_inside_of_containers_are_evaluated_for_ref_fn():
    cfg = config(a=1, b=2)
    cfg.x = konfig.ref_fn(sum, [cfg.ref.a, cfg.ref.b])
    cfg.y = konfig.ref_fn(lambda d: d["k"][0], {"k": (cfg.ref.b,)})
    cfg.b = 5
    assert (cfg.x, cfg.y) == (6, 5)


def test_the_result_of_ref_fn_is_normalised():
    cfg = config(n=2)
    cfg.d = konfig.ref_fn(lambda n: {"l": [{"n": n}]}, cfg.ref.n)
    assert isinstance(cfg.d, konfig.ConfigDict)
    assert cfg.d.l[0].n == 2
    cfg.bad = konfig.ref_fn(lambda n: object(), cfg.ref.n)
    with pytest.raises(ValueError, match=r"cfg\.bad"):
        cfg.bad


def test_ref_fn_that_makes_a_node_is_evaluated_once_per_field_and_resolve():
    made = []

    def make(n):
        made.append(n)
        return fractions.Fraction(1, n)

    cfg = config(n=3)
    cfg.a = konfig.ref_fn(make, cfg.ref.n)
    resolved = konfig.resolve(cfg)
    assert resolved.a.denominator == 3
    assert made == [3]


# ------------------------------------------------------------------------------------
# ref_copy and write-through references
# ------------------------------------------------------------------------------------


def test_ref_copy_follows_leaves_and_never_writes_back():
    source = config(a={"x": 1}, n=None, l=[1], call=fractions.Fraction(1, 2))
    before = copy.deepcopy(source)
    copied = konfig.ref_copy(source)
    assert source == before
    assert copied == source
    source.a.x, source.n = 2, 3
    assert (copied.a.x, copied.n) == (2, 3)
    copied.a.x = 10
    source.a.x = 4
    assert (copied.a.x, source.a.x) == (10, 4)
    source.new, source.a.new = 1, 1
    assert "new" not in copied
    source.call[0] = 5
    assert konfig.resolve(copied.call) == konfig.resolve(source.call)
    source.a = {"x": 99}
    assert copied.a.x == 10


def test_ref_copy_wants_a_config():
    with pytest.raises(ValueError, match="dict"):
        konfig.ref_copy({"a": 1})


def test_get_ref_writes_through():
    cfg = config(a=1, n=None)
    cfg.b = cfg.get_ref("a")
    cfg.b = 5
    assert cfg.a == 5
    cfg.a = 6
    assert cfg.b == 6
    with pytest.raises(TypeError, match=r"cfg\.b"):
        cfg.b = "text"
    cfg.m = cfg.get_ref("n")
    cfg.m = 3
    assert cfg.n == 3


def test_get_oneway_ref_is_read_only():
    cfg = config(a=1)
    cfg.b = cfg.get_oneway_ref("a")
    cfg.a = 2
    assert cfg.b == 2
    cfg.b = 7
    assert cfg.a == 2
    with pytest.raises(KeyError):
        cfg.get_oneway_ref("nope")


def test_ml_collections_references_work_too():
    import ml_collections

    shared = ml_collections.FieldReference(1)
    cfg = config(a=shared, b=shared)
    cfg.a = 3
    assert cfg.b == 3
    with pytest.raises(TypeError, match=r"cfg\.a"):
        cfg.a = "text"
    assert konfig.resolve(cfg) == {"a": 3, "b": 3}
    assert cfg == config(a=3, b=3)


def test_with_ref_is_for_configs_only():
    class Model(konfig.WithRef):
        pass

    with pytest.raises(RuntimeError, match=r"Model.*konfig\.imports"):
        Model().ref


# ------------------------------------------------------------------------------------
# Properties
# ------------------------------------------------------------------------------------

NUMBERS = st.integers(-50, 50)


@st.composite
def expressions(draw, depth=3):
    """A function of two numbers, built from operators."""
    if depth == 0 or draw(st.booleans()):
        leaf = draw(st.sampled_from(["a", "b"]) | NUMBERS)
        return lambda env: env[leaf] if isinstance(leaf, str) else leaf
    fn = draw(st.sampled_from([operator.add, operator.sub, operator.mul, operator.lt]))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    return lambda env: fn(left(env), right(env))


@hypothesis.given(expressions(), NUMBERS, NUMBERS, NUMBERS)
def test_an_expression_of_references_gives_what_it_gives_on_values(fn, a, b, new):
    cfg = config(a=a, b=b)
    cfg.x = fn({"a": cfg.ref.a, "b": cfg.ref.b})
    assert cfg.x == fn({"a": a, "b": b})
    copied = copy.deepcopy(cfg)
    cfg.a = new
    assert cfg.x == fn({"a": new, "b": b})
    assert copied.x == fn({"a": a, "b": b})


# ------------------------------------------------------------------------------------
# Copies that follow never write back
# ------------------------------------------------------------------------------------


def test_writing_into_the_lists_of_a_followed_copy_leaves_the_source():
    source = config(layers=[{"n": 1}, ({"n": 2},)], sizes=[1, [2]], names={"a"})
    before = source.to_dict()
    followed = konfig.ref_copy(source)
    followed.layers[0].n = 99
    followed.layers[1][0].n = 99
    followed.layers.append({"n": 3})
    followed.sizes.append(5)
    followed.sizes[1][0] = 6
    followed.names.add("b")
    assert source.to_dict() == before
    assert followed.layers[0].n == followed.layers[1][0].n == 99
    assert followed.sizes == [1, [6], 5] and followed.names == {"a", "b"}
    assert len(followed.layers) == 3


def test_lists_of_a_followed_copy_follow_until_they_are_changed():
    source = config(layers=[{"n": 1}, 7], sizes=[1, 2])
    followed = konfig.ref_copy(source)
    assert followed.sizes == [1, 2]
    source.sizes = [3]
    source.sizes.append(4)
    source.layers[0].n = 5
    source.layers[1] = 8
    assert followed.sizes == [3, 4]
    assert konfig.resolve(followed).layers == (konfig.resolve({"n": 5}), 8)
    followed.sizes.append(9)
    source.sizes = [0]
    assert followed.sizes == [3, 4, 9]
    assert copy.deepcopy(followed).sizes == [3, 4, 9]


def test_node_that_a_followed_reference_leads_to_is_not_written_to():
    source = config(a={"x": 1})
    source.b = source.ref.a
    source.late = None
    followed = konfig.ref_copy(source)
    source.late = {"y": 1}
    followed.b.x = 2
    followed.late.y = 2
    assert source.to_dict() == {"a": {"x": 1}, "b": {"x": 1}, "late": {"y": 1}}
    assert (followed.b.x, followed.late.y) == (2, 2)


def test_children_of_a_followed_copy_know_their_place():
    followed = konfig.ref_copy(config(a={"b": {"x": 1}}, layers=[{"n": 1}]))
    with pytest.raises(AttributeError, match=r"cfg\.a\.b has no field 'y'"):
        followed.a.b.y
    with pytest.raises(AttributeError, match=r"cfg\.layers\[0\] has no field 'y'"):
        followed.layers[0].y


# ------------------------------------------------------------------------------------
# Names that contain "ref"
# ------------------------------------------------------------------------------------


def test_node_whose_name_starts_with_ref_is_shown_by_its_name():
    cfg = config(reference={"a": {"x": 1}})
    cfg.bad = cfg.reference.ref.a.y
    cfg.sum = cfg.reference.ref.z + cfg.ref.reference.z
    with pytest.raises(AttributeError, match=r"nowhere: cfg\.reference\.a has no"):
        cfg.bad
    assert "<unresolved ref: cfg.reference.a.y>" in repr(cfg)
    assert "<unresolved ref: (cfg.reference.z + cfg.reference.z)>" in repr(cfg)
