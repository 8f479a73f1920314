"""`kt.shape` and `kt.get_current_scope`: read the active scope."""

from __future__ import annotations

import functools
import sys

from kauldron.ktyping.checkers.array_checker import SpecSource
from kauldron.ktyping.scopes.scope import ShapeScope
from kauldron.ktyping.scopes.visibility import require_scope
from kauldron.ktyping.shapes.evaluation import evaluate
from kauldron.ktyping.shapes.matching import State
from kauldron.ktyping.shapes.sizes import Sizes


def shape(spec: str, *, nested_ok: bool = False) -> Sizes:
    """The sizes that a spec describes, from the dims in scope.

    >>> import numpy as np
    >>> from kauldron import ktyping as kt
    >>> @kt.typechecked
    ... def grow(x: kt.Float["*b n"]):
    ...     return kt.shape("*b n+1 -1")
    >>> grow(np.ones((4, 5, 6)))
    (4, 5, 7, -1)

    Args:
      spec: A shape spec of known dims.
      nested_ok: Whether the scope may belong to a function further up.

    Returns:
      Python ints (or symbolic sizes), so they are static under `jit`.

    Raises:
      ShapeError: If a dim is unknown, or several shapes are possible.
      NoActiveScopeError: If the caller has no scope.
    """
    return evaluate_in(spec, require_scope(sys._getframe(1), nested_ok))


def evaluate_in(spec: str, scope: ShapeScope, *, take_first: bool = False) -> Sizes:
    """Evaluate a spec in a given scope."""
    question = _asked(spec)
    state = scope.state
    answered_for, sizes = question.answer
    if answered_for is state:
        return sizes
    sizes = evaluate(question.spec.resolve(scope).spec, state, take_first=take_first)
    if question.spec.template is None and len(state) == 1:
        question.answer = state, sizes  # at once, as threads may ask the same
    return sizes


class _Question:
    """A spec and its last answer: calls with the same shapes share their state."""

    __slots__ = ("answer", "spec")

    def __init__(self, spec: str):
        self.spec = SpecSource(spec)
        self.answer: tuple[State | None, Sizes] = None, ()


@functools.lru_cache(maxsize=1024)
def _asked(spec: str) -> _Question:
    return _Question(spec)


def get_current_scope(nested_ok: bool = False, stacklevel: int = 0) -> ShapeScope:
    """The scope of the calling function.

    Args:
      nested_ok: Whether the scope may belong to a function further up.
      stacklevel: How many more frames up the function that needs the scope is.

    Raises:
      NoActiveScopeError: If the caller has no scope.
    """
    return require_scope(sys._getframe(1 + stacklevel), nested_ok)
