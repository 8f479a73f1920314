"""`PyTree[T]` and `PyTree[T, "$S"]`."""

import collections
import dataclasses
import typing

import flax.struct
import jax
import numpy as np
import pytest

import kauldron.ktyping as kt
from kauldron.ktyping import Float, PyTree


@flax.struct.dataclass
class Layer:
    kernel: typing.Any
    bias: typing.Any


@kt.typechecked
def sizes(tree: PyTree[Float["_ n"]]):
    return kt.dim["n"]


# --------------------------------------------------------------------------------------
# Leaves
# --------------------------------------------------------------------------------------


def test_every_leaf_is_checked_and_binds():
    assert sizes({"a": [np.ones((1, 3))], "b": (np.ones((2, 3)), None)}) == 3
    with pytest.raises(
        kt.KTypeCheckError, match=r"value of tree leaf at path \['b'\]\[0\]"
    ):
        sizes({"a": [np.ones((1, 3))], "b": (np.ones((2, 4)), None)})


def test_last_leaf_of_many_is_checked():
    leaves = [np.ones((1, 3)) for _ in range(50)]
    assert sizes(leaves) == 3
    with pytest.raises(kt.KTypeCheckError, match=r"\[50\]"):
        sizes([*leaves, np.ones((1, 4))])


def test_path_uses_the_text_of_jax():
    tree = {"enc": [Layer(np.ones((1, 3)), "wrong")]}
    with pytest.raises(
        kt.KTypeCheckError, match=r"path \['enc'\]\[0\]\.bias of argument"
    ):
        sizes(tree)


def test_node_that_matches_is_a_leaf():
    @kt.typechecked
    def f(tree: PyTree[Layer]):
        return True

    assert f({"a": Layer(1, 2), "b": [Layer("x", None)]})
    assert f(Layer(1, 2))
    with pytest.raises(kt.KTypeCheckError, match="is not an instance of Layer"):
        f({"a": 3})


def test_leaf_types_that_are_containers():
    @kt.typechecked
    def f(tree: PyTree[tuple[int, str]]):
        return True

    assert f({"a": (1, "x"), "b": [(2, "y")]})
    with pytest.raises(kt.KTypeCheckError):
        f({"a": (1, 2)})


def test_none_is_an_empty_subtree():
    @kt.typechecked
    def f(tree: PyTree[int]):
        return True

    assert f(None) and f({"a": None, "b": 1})


def test_none_is_a_leaf_if_the_type_accepts_it():
    @kt.typechecked
    def f(a: PyTree[int | None, "$S"], b: PyTree[int, "$S"]):
        return True

    assert f({"x": 1}, {"x": 1})
    with pytest.raises(kt.KTypeCheckError, match="tree structure"):
        f({"x": None}, {"x": None})


@pytest.mark.parametrize("annotation", [PyTree, PyTree[typing.Any]])
def test_bare_tree_accepts_everything(annotation):
    value = object()
    assert kt.check_type(value, annotation, nested_ok=True) is value
    assert isinstance({"a": value}, annotation)


def test_custom_nodes_with_keys():
    @jax.tree_util.register_pytree_with_keys_class
    class Node:
        def __init__(self, x):
            self.x = x

        def tree_flatten_with_keys(self):
            return [(jax.tree_util.FlattenedIndexKey(0), self.x)], None

        @classmethod
        def tree_unflatten(cls, aux, children):
            return cls(*children)

    with pytest.raises(kt.KTypeCheckError, match="value of tree leaf at path"):
        sizes(Node("wrong"))


def test_trees_of_shape_structs():
    @kt.typechecked
    def f(spec: kt.ElementSpec):
        return True

    struct = jax.ShapeDtypeStruct((2,), "float32")
    assert f({"a": struct, "b": [struct]})
    with pytest.raises(kt.KTypeCheckError):
        f({"a": np.ones(2)})


# --------------------------------------------------------------------------------------
# Structures
# --------------------------------------------------------------------------------------


@kt.typechecked
def same(a: PyTree[int, "$S"], b: PyTree[str, "$S"], c: PyTree[typing.Any, "$T"] = 0):
    return True


def test_structure_binds_and_compares():
    assert same({"x": 1, "y": [2]}, {"x": "a", "y": ["b"]})
    with pytest.raises(kt.KTypeCheckError) as caught:
        same({"x": 1, "y": [2]}, {"x": "a", "z": ["b"]})
    text = str(caught.value)
    assert "tree structure does not match previously bound structure for '$S'" in text
    assert "first difference: ['y'][0] is missing" in text
    assert "Tree Structures:\n  $S: PyTreeDef({'x': *, 'y': [*]})" in text


def test_structures_of_other_names_are_independent():
    assert same({"x": 1}, {"x": "a"}, [1, 2, 3])


def test_structure_of_any_is_that_of_the_whole_tree():
    @kt.typechecked
    def f(a: PyTree[typing.Any, "$S"], b: PyTree[typing.Any, "$S"]):
        return True

    assert f({"x": 1}, {"x": object()})
    with pytest.raises(kt.KTypeCheckError):
        f({"x": 1}, {"x": [1]})


def test_structure_per_candidate_of_a_union():
    Leaf = collections.namedtuple("Leaf", "v")

    @kt.typechecked
    def f(a: PyTree[Leaf, "$S"] | PyTree[int, "$S"], b: PyTree[str, "$S"]):
        return True

    tree = {"x": Leaf(1)}
    assert f(tree, {"x": "one leaf"})
    assert f(tree, {"x": Leaf("inside")})
    with pytest.raises(kt.KTypeCheckError):
        f(tree, {"x": ["other"]})


# --------------------------------------------------------------------------------------
# The type itself
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "item, words",
    [
        ((int, 3), "must be a string"),
        ((int, "S"), r"must start with '\$'"),
        ((int, " $ "), "at least one character"),
        ((int, "$S", 3), "3 arguments"),
    ],
)
def test_wrong_subscripts(item, words):
    with pytest.raises(TypeError, match=words):
        PyTree[item]


def test_subscripting_twice_and_calling_are_refused():
    with pytest.raises(TypeError, match="already subscripted"):
        PyTree[int][int]
    with pytest.raises(RuntimeError, match="cannot be instantiated"):
        PyTree(int)


def test_text_and_attributes():
    assert repr(PyTree[int]) == "PyTree[int]"
    assert repr(PyTree[Float["b"], " $S "]) == "PyTree[Float['b'], '$S']"
    assert repr(PyTree[int | str, "$S"]) == "PyTree[int | str, '$S']"
    tree_type = PyTree[int, "$S"]
    assert tree_type.leaf_type is int and tree_type.structure_spec == "$S"
    assert PyTree[int].structure_spec is PyTree.leaf_type


def test_builtin_isinstance_checks_each_leaf_by_itself():
    assert isinstance({"a": np.ones(2), "b": np.ones(3)}, PyTree[Float["n"]])
    assert not isinstance({"a": np.ones(2), "b": 3}, PyTree[Float["n"]])
    assert isinstance([["a"]], PyTree[list[str]])
    with kt.typechecked():
        isinstance([np.ones(2)], PyTree[Float["n"], "$S"])
        assert "n" not in kt.dim


@pytest.mark.parametrize(
    "value, leaf_type, expected",
    [
        (1, float, False),
        (2.3, float, True),
        (1, int | float, True),
        (1.0, complex, False),
        (bytearray(b"a"), bytes, False),
        ([1], list[float], False),
        (True, int, True),
    ],
)
def test_builtin_isinstance_takes_classes_as_the_builtin_does(
    value, leaf_type, expected
):
    assert isinstance({"a": value, "b": value}, PyTree[leaf_type]) is expected


def test_an_int_is_a_float_for_annotations_but_not_for_the_builtin():
    tree = {"a": 1, "b": 2.3}
    assert not isinstance(tree, PyTree[float])
    assert kt.isinstance(tree, PyTree[float])


def test_leaf_that_is_a_checked_dataclass():
    @kt.typechecked
    @dataclasses.dataclass
    class Point:
        x: Float["n"]
        y: Float["n"]

    @kt.typechecked
    def f(tree: PyTree[Point]):
        return True

    points = {"a": Point(np.ones(2), np.ones(2)), "b": Point(np.ones(3), np.ones(3))}
    assert f(points)
    points["b"].y = np.ones(4)
    with pytest.raises(kt.KTypeCheckError):
        f(points)
