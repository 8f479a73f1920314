"""`kt.shape` and `kt.get_current_scope`: read the active scope."""

from __future__ import annotations

import functools
import sys

from kauldron.ktyping.checkers.array_checker import SpecSource
from kauldron.ktyping.scopes.scope import ShapeScope
from kauldron.ktyping.scopes.visibility import require_scope
from kauldron.ktyping.shapes.evaluation import evaluate
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
    parsed = _source(spec).resolve(scope).spec
    return evaluate(parsed, scope.state, take_first=take_first)


@functools.lru_cache(maxsize=1024)
def _source(spec: str) -> SpecSource:
    return SpecSource(spec)


def get_current_scope(nested_ok: bool = False, stacklevel: int = 0) -> ShapeScope:
    """The scope of the calling function.

    Args:
      nested_ok: Whether the scope may belong to a function further up.
      stacklevel: How many more frames up the function that needs the scope is.

    Raises:
      NoActiveScopeError: If the caller has no scope.
    """
    return require_scope(sys._getframe(1 + stacklevel), nested_ok)
