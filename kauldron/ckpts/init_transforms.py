"""`InitTransform`: what changes the initial state, such as a loader of weights."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

from kauldron.ckpts import structure
from kauldron.errors import ExplainedArguments, error_prefix
from kauldron.immutabledict import ImmutableDict

_T = TypeVar("_T")


class InitTransform(ExplainedArguments, abc.ABC):
    """Changes values of the initial state; structure, shapes and dtypes stay."""

    @abc.abstractmethod
    def transform(self, state: _T) -> _T:
        """Called after the model is initialised, before the optimizer is."""

    def transform_after_optimizer(self, state: _T) -> _T:
        """Called after the optimizer is initialised."""
        return state

    def find_problems(self, state: Any) -> Iterator[tuple[str, str]]:
        """Yield what cannot work for a state (or its specs). Nothing is read.

        Yields:
          The path below this transform (`""` for itself), and what is wrong.
        """
        del state
        yield from ()

    def check(self, state: Any = None) -> None:
        """Raise what `transform` would, without loading anything.

        Args:
          state: Specs of the state; `None` to look only at what needs no state.
        """
        del state


@dataclasses.dataclass(frozen=True)
class NoopTransform(InitTransform):
    """Changes nothing."""

    def transform(self, state: _T) -> _T:
        return state


@dataclasses.dataclass(frozen=True, init=False)
class MultiTransform(InitTransform):
    """Several transforms, in the order of the keywords.

    Example:
      >>> MultiTransform(first=NoopTransform(), second=NoopTransform()).transform("state")
      'state'
    """

    transforms: ImmutableDict[str, InitTransform]

    def __init__(self, **transforms: InitTransform):
        object.__setattr__(self, "transforms", ImmutableDict(transforms))

    def transform(self, state: Any) -> Any:
        return self._apply("transform", state)

    def transform_after_optimizer(self, state: Any) -> Any:
        return self._apply("transform_after_optimizer", state)

    def find_problems(self, state: Any) -> Iterator[tuple[str, str]]:
        for name, transform in self.transforms.items():
            for path, message in transform.find_problems(state):
                yield f"{name}.{path}".rstrip("."), message

    def check(self, state: Any = None) -> None:
        for name, transform in self.transforms.items():
            with error_prefix(f"Init transform {name!r}: "):
                transform.check(state)

    def _apply(self, method: str, state: Any) -> Any:
        for name, transform in self.transforms.items():
            with error_prefix(f"Init transform {name!r}: "):
                state = getattr(transform, method)(state)
        return state


def check_only_values_changed(
    transform: InitTransform, before: Any, after: Any
) -> None:
    """Raise `ValueError` if a transform changed more of a state than values."""
    if changes := structure.differences(before, after):
        raise ValueError(
            f"The init transform {type(transform).__name__} may change values only."
            + structure.listing("It changed", changes)
        )
