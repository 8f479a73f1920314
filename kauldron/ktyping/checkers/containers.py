"""Checkers of lists, dicts, tuples, the extra arguments of a call, and trees."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.array_type_meta import PyTreeMeta
from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.config import MISSING
from kauldron.ktyping.shapes.sizes import State, merged
from kauldron.ktyping.values import format_value, library_marker

if TYPE_CHECKING:
    from kauldron.ktyping.scopes import ShapeScope


# A value inside another: what must hold for it, what it is, and where it is (words and a
# key, made into text only for a message).
Part = tuple[c.Checker, Any, str, Any]


class PartsChecker(c.Checker):
    """A value whose parts have types of their own."""

    def problem(self, value: Any) -> str:
        """Return why the parts need not even be looked at, '' if they must be."""
        raise NotImplementedError

    def parts(self, value: Any, /) -> Iterable[Part]:
        raise NotImplementedError

    def enter(
        self, value: Any, state: State, scope: ShapeScope
    ) -> tuple[Any, State, ShapeScope]:
        """Return how the parts are checked, from which state and in which scope."""
        return c.thread, state, scope

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        if self.problem(value):
            return None
        parts = [part[:2] for part in self.parts(value)]
        check, start, inner = self.enter(value, state, scope)
        after, failed = check(parts, start, inner)
        if failed is not None:
            return None
        return after if inner is scope else state

    def explain(self, value: Any, state: State, scope: ShapeScope) -> c.Failure:
        if reason := self.problem(value):
            return c.Failure(reason, state)
        parts = list(self.parts(value))
        check, state, scope = self.enter(value, state, scope)
        state, failed = check([part[:2] for part in parts], state, scope)
        if failed is None:
            return super().explain(value, state, scope)
        checker, item, words, key = parts[failed]
        failure = checker.explain(item, state, scope)
        if words:
            return failure.inside(f"{words} {format_value(key)}")
        failure.subject = f"[{key!r}]", item  # one of `*args`
        return failure


class ContainerChecker(PartsChecker):
    """A container class.

    Args:
      annotation: For messages.
      container: The class.
      parts: From a container to its parts, such as `item_parts` below.
      length: How many items there must be.
    """

    def __init__(
        self,
        annotation: Any,
        container: type,
        parts: Callable[[Any], Iterable[Part]],
        length: int | None = None,
    ):
        super().__init__(annotation)
        self.container = container
        self.parts = parts
        self.length = length

    def problem(self, value: Any) -> str:
        if not isinstance(value, self.container):
            return f"is not an instance of {self.container.__name__}"
        if self.length is None or len(value) == self.length:
            return ""
        return (
            "tuple has wrong number of elements "
            f"(expected {self.length}, got {len(value)} instead)"
        )


def item_parts(item: c.Checker, limit: int | None, value: Any) -> Iterable[Part]:
    """`list[T]`, `set[T]`, `Sequence[T]`, `tuple[T, ...]`: up to `limit` items."""
    if library_marker(value) is not None:  # never look at values of an array
        return
    for index, x in enumerate(itertools.islice(value, limit)):
        yield item, x, "item", index


def mapping_parts(
    key: c.Checker, item: c.Checker, limit: int | None, value: Any
) -> Iterable[Part]:
    """`dict[K, V]`, `Mapping[K, V]`: up to `limit` keys and their values."""
    for name, x in itertools.islice(value.items(), limit):
        yield key, name, "key", name
        yield item, x, "value of key", name


def tuple_parts(items: list[c.Checker], value: Any) -> Iterable[Part]:
    """`tuple[A, B]`: every item."""
    for index, (checker, x) in enumerate(zip(items, value)):
        yield checker, x, "item", index


def argument_parts(item: c.Checker, value: Any) -> Iterable[Part]:
    """`*args: T` and `**kwargs: T`: every value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, x in pairs:
        yield item, x, "", key


#
# Trees
#


class PyTreeChecker(c.Checker):
    """`PyTree[T]`, `PyTree[T, "$S"]`"""

    def __init__(self, annotation: PyTreeMeta, leaf: c.Checker):
        super().__init__(annotation)
        self.leaf = leaf
        self.structure = annotation.structure_spec
        self.leaf_is_any = isinstance(leaf, c.AnyChecker)

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        if self.leaf_is_any and self.structure is MISSING:
            return state
        import jax

        is_leaf = self._leaf_test(state, scope)
        leaves, structure = jax.tree.flatten(value, is_leaf=is_leaf)
        if not self.leaf_is_any:
            after = self._check_leaves(leaves, state, scope)
            if after is None:
                return None
            state = after
        return self._bind_structure(structure, state)

    def _leaf_test(self, state: State, scope: ShapeScope) -> Any:
        """Return jax's `is_leaf`: a node that matches is a leaf, as a container may."""
        if self.leaf_is_any or self.leaf.is_atomic:
            return None
        return lambda node: self.leaf.check(node, state, scope) is not None

    def _check_leaves(
        self, leaves: list[Any], state: State, scope: ShapeScope
    ) -> State | None:
        remembered = self.leaf.memo_kind in (c.BY_ARRAY, c.BY_ANY)
        seen: set[Any] = set()  # leaves that leave the present state as it is
        for index, leaf in enumerate(leaves):
            key = _array_key(leaf) if remembered else None
            if key is not None and key in seen:
                continue
            scope.undetermined = False
            after = self.leaf.check(leaf, state, scope)
            if after is None:
                if not scope.undetermined:
                    return None
                waiting = [(self.leaf, leaf) for leaf in leaves[index:]]
                state, failed = c.thread(waiting, state, scope)
                return state if failed is None else None
            if after != state:
                seen.clear()
                state = after
            elif key is not None:
                seen.add(key)
        return state

    def _bind_structure(self, structure: Any, state: State) -> State | None:
        name = self.structure
        if name is MISSING:
            return state
        if len(state) == 1 and name in state[0] and state[0][name] == structure:
            return state
        return merged(
            {**dims, name: structure}
            for dims in state
            if dims.get(name, structure) == structure
        )

    def explain(self, value: Any, state: State, scope: ShapeScope) -> c.Failure:
        import jax

        paths, structure = jax.tree_util.tree_flatten_with_path(
            value, is_leaf=self._leaf_test(state, scope)
        )
        if not self.leaf_is_any:
            parts = [(self.leaf, leaf) for _, leaf in paths]
            state, failed = c.thread(parts, state, scope)
            if failed is not None:
                path, leaf = paths[failed]
                failure = self.leaf.explain(leaf, state, scope)
                text = jax.tree_util.keystr(path)
                return failure.inside(f"value of tree leaf at path {text}")
        reason = (
            "tree structure does not match previously bound structure for "
            f"'{self.structure}'"
        )
        bound = next(dims[self.structure] for dims in state if self.structure in dims)
        detail = _first_difference(bound, structure)
        return c.Failure(reason, state, detail=detail)


def _array_key(leaf: Any) -> Any:
    try:
        key = type(leaf), leaf.dtype, leaf.shape
        hash(key)
        return key
    except Exception:  # not an array: checked each time
        return None


def _first_difference(bound: Any, found: Any) -> str:
    """Return where two structures differ first, as JAX writes key paths."""
    import jax

    def key_paths(structure: Any) -> list[str]:
        tree = jax.tree.unflatten(structure, [0] * structure.num_leaves)
        leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
        return [jax.tree_util.keystr(path) for path, _ in leaves]

    try:
        before, now = key_paths(bound), key_paths(found)
    except Exception:  # a node class that refuses these leaves
        return f"bound: {bound}, found: {found}"
    for path in [*before, *now]:
        if path not in before:
            return f"first difference: {path or 'the root'} is new"
        if path not in now:
            return f"first difference: {path or 'the root'} is missing"
    return f"bound: {bound}, found: {found}"


def every_leaf_matches(value: Any, annotation: PyTreeMeta) -> bool:
    """Answer the built-in `isinstance`: each leaf by itself, whatever the structure."""
    import jax

    from kauldron.ktyping.checks import is_instance

    if annotation.leaf_type in (MISSING, Any, object):
        return True
    test = lambda node: is_instance(node, annotation.leaf_type)  # noqa: E731
    leaves = jax.tree.leaves(value, is_leaf=test)
    return all(map(test, leaves))
