"""What a bound model and all handles of its sub-modules have in common."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

import flax.errors
import flax.linen as nn
from flax.core import DenyList, FrozenDict

from kauldron.klinen import errors
from kauldron.klinen.coded_leaves import CodedTree
from kauldron.klinen.definitions import Blueprint, Path
from kauldron.klinen.intermediate_fields import COLLECTION
from kauldron.klinen.training_mode import use_mode


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Root:
    """A model: its definition, variables, random keys and mode.

    Attributes:
      blueprint: The definition.
      params: The parameters.
      collections: All other variables.
      rngs: The key of each random stream.
      training: The mode.
      streams: For which streams `with_rng(key)` makes keys.
      params_only: Whether, as a pytree, the parameters are the only leaves.
      handles: Sub-modules in use, by path: a shared one is one object. Weak, so that
        there is no cycle that keeps arrays alive.
    """

    blueprint: Blueprint
    params: FrozenDict[str, Any]
    collections: CodedTree
    rngs: CodedTree
    training: bool
    streams: tuple[str, ...]
    params_only: bool = False
    handles: weakref.WeakValueDictionary[Path, nn.Module] = dataclasses.field(
        default_factory=weakref.WeakValueDictionary, init=False
    )

    def replace(self, **changes: Any) -> Root:
        """A root with other fields."""
        return dataclasses.replace(self, **changes)

    @property
    def settings(self) -> tuple[Any, ...]:
        """What is neither an array nor part of the definition."""
        return self.training, self.streams, self.params_only

    def __reduce__(self) -> tuple[Any, ...]:
        fields = [field.name for field in dataclasses.fields(self) if field.init]
        return _restore_root, ({name: getattr(self, name) for name in fields},)

    def variables(self) -> dict[str, Any]:
        """Everything that flax needs."""
        return {"params": self.params, **self.collections.values()}

    def run(
        self, fn: Callable[[nn.Module], Any], *, keep_intermediates: bool = False
    ) -> tuple[Any, dict[str, Any]]:
        """Run a function on the module, with its variables, as flax's `apply`.

        Args:
          fn: Takes the module, inside flax.
          keep_intermediates: Whether values stored in `intermediates` are kept.

        Returns:
          What `fn` returns, and all variables as they are afterwards.
        """
        rngs = self.rngs.values()
        denied = set() if keep_intermediates else {COLLECTION}
        if "params" in rngs:  # else a missing parameter would be made, at random
            denied.add("params")

        def run_in_scope(module: nn.Module) -> Any:
            try:
                return fn(module)
            except (errors.MissingRngError, errors.WrongShapeError):
                raise  # of another model, called inside this one
            except flax.errors.InvalidRngError as error:
                raise errors.missing_rng(error, rngs, self.streams) from error
            except flax.errors.ScopeParamShapeError as error:
                raise errors.wrong_shape(error) from error

        apply = nn.apply(
            run_in_scope, self.blueprint.definition, mutable=DenyList(tuple(denied))
        )
        with use_mode(self.training):
            return apply(self.variables(), rngs=rngs)


def _restore_root(fields: dict[str, Any]) -> Root:
    return Root(**fields)
