"""Masks over parameters, chosen by their paths."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

_REGEX_SIGNS = frozenset(r"()[]?+*^$|\\")


def select(pattern: str | Sequence[str]) -> PathMask:
    r"""Make a mask that is True for parameters whose path matches.

    The path of a parameter is its keys, joined by dots: `encoder.layers.0.kernel`. A
    pattern matches whole segments, anywhere in the path; so a pattern that names a
    module selects everything in it.

    Args:
      pattern: A text (`"encoder.layers"`), or a regular expression if it has one of the
        signs `( ) [ ] ? + * ^ $ | \` (`"layers\.[01]"`, `"^decoder"`, `"kernel|scale"`).
        In an expression `.` stands for any character. With `**` as a segment it is a
        glob instead: `**` stands for any number of segments, `*` for one
        (`"encoder.**.bias"`). Several patterns select what any of them matches.

    Returns:
      A function from a tree to a tree of bools; a value that can be compared, hashed
      and pickled.

    Example:
      >>> params = {"encoder": {"kernel": 1.0, "bias": 0.0}, "head": {"bias": 0.0}}
      >>> select("encoder")(params)
      {'encoder': {'kernel': True, 'bias': True}, 'head': {'bias': False}}
      >>> select(r"encoder\..*bias")(params)["encoder"]
      {'kernel': False, 'bias': True}
      >>> select("encoder.**.bias")(params)["head"]
      {'bias': False}
    """
    return PathMask(_as_patterns(pattern))


def exclude(pattern: str | Sequence[str]) -> PathMask:
    """Make a mask that is False for parameters whose path matches.

    Args:
      pattern: As for `select`.

    Returns:
      A function from a tree to a tree of bools.

    Example:
      >>> exclude("bias")({"kernel": 1.0, "bias": 0.0})
      {'kernel': True, 'bias': False}
    """
    return PathMask(_as_patterns(pattern), negated=True)


@dataclasses.dataclass(frozen=True)
class PathMask:
    """The mask that `select` and `exclude` give."""

    patterns: tuple[str, ...]
    negated: bool = False

    def __post_init__(self) -> None:
        _compiled(self.patterns)  # complain early

    def __call__(self, tree: Any) -> Any:
        record("mask", self)
        expression = _compiled(self.patterns)
        return _map_with_path(
            lambda path: bool(expression.search(path)) != self.negated, tree, ()
        )

    def __repr__(self) -> str:
        name = "exclude" if self.negated else "select"
        patterns = list(self.patterns)
        return f"{name}({patterns if len(patterns) > 1 else patterns[0]!r})"


def _as_patterns(pattern: str | Sequence[str]) -> tuple[str, ...]:
    patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern)
    for item in patterns:
        if not isinstance(item, str):
            raise TypeError(
                f"A pattern is a string, not {type(item).__name__}: {item!r}."
            )
    if not patterns or not all(patterns):
        raise ValueError(f"No pattern to match paths with: {pattern!r}.")
    return patterns


@functools.lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return one expression for all patterns, at segment boundaries on both sides."""
    alternatives = []
    for pattern in patterns:
        if _REGEX_SIGNS.isdisjoint(pattern):
            alternatives.append(re.escape(pattern))
            continue
        if "**" in pattern.split("."):  # never a regular expression
            alternatives.append(_glob_expression(pattern))
            continue
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(
                f"Not a regular expression: {pattern!r} ({error}). To match such signs "
                "literally, write a backslash before them."
            ) from error
        alternatives.append(f"(?:{pattern})")
    return re.compile(rf"(?<![^.])(?:{'|'.join(alternatives)})(?![^.])")


def _glob_expression(pattern: str) -> str:
    """Return the regular expression of a glob; a module stands for all in it."""
    groups: list[list[str]] = [[]]
    for segment in pattern.split("."):
        if segment == "**":
            groups.append([])
        else:
            groups[-1].append(re.escape(segment).replace(r"\*", "[^.]*"))
    parts = [r"\.".join(group) for group in groups if group]
    return r"\.(?:[^.]+\.)*".join(parts) or "[^.]+"


def _map_with_path(
    function: Callable[[str], bool], node: Any, path: tuple[str, ...]
) -> Any:
    """Return the tree with each leaf replaced by `function(its path)`."""
    if type(node) is dict:  # jax cannot flatten one with keys of several types
        return {
            key: _map_with_path(function, child, (*path, str(key)))
            for key, child in node.items()
        }
    children, structure = jax.tree_util.tree_flatten_with_path(
        node, is_leaf=lambda x: x is not node
    )
    if children and not children[0][0]:
        return function(".".join(path))
    return jax.tree.unflatten(
        structure,
        [
            _map_with_path(function, child, (*path, _segment(key)))
            for (key,), child in children
        ],
    )


def _segment(key: Any) -> str:
    match key:
        case DictKey(key=name) | FlattenedIndexKey(key=name):
            return str(name)
        case GetAttrKey(name=name):
            return name
        case SequenceKey(idx=index):
            return str(index)
    raise TypeError(
        f"A path through a key of type {type(key).__name__} ({key!r}) has no text."
    )


#
# Records of what the parts of an optimizer are called with
#


_RECORDS: contextvars.ContextVar[list[tuple[str, Any]] | None] = contextvars.ContextVar(
    "records", default=None
)


def record(kind: str, value: Any) -> None:
    """Add to the list of `recorded`, if there is one."""
    records = _RECORDS.get()
    if records is not None:
        records.append((kind, value))


@contextlib.contextmanager
def recorded() -> Iterator[list[tuple[str, Any]]]:
    """Yield a list of the kinds and values that are recorded in the block."""
    records: list[tuple[str, Any]] = []
    token = _RECORDS.set(records)
    try:
        yield records
    finally:
        _RECORDS.reset(token)
