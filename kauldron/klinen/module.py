"""`Module`: a flax module that can carry its parameters."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import flax.errors
import flax.linen as nn
import jax
from flax.core import FrozenDict, freeze

from kauldron.klinen import errors
from kauldron.klinen.definitions import copy_definition, pack, unpack
from kauldron.klinen.intermediate_fields import (
    COLLECTION,
    intermediate_field,
    take_fields,
)
from kauldron.klinen.intermediates import capture
from kauldron.klinen.training_mode import current_mode

if TYPE_CHECKING:
    from kauldron.klinen.intermediates import Intermediates
    from kauldron.klinen.view import View

# Bound models have their `View` under this name, in their instance dict.
VIEW = "_klinen_view"


class Module(nn.Module):
    """A flax module that can be bound to its parameters and then simply be called.

    Write subclasses as those of `flax.linen.Module`: dataclass fields, `@nn.compact` or
    `setup()`. An instance is a plain flax module; `init_bind` returns a *bound* copy
    that carries parameters, random keys and the train/eval flag. A bound model never
    changes: every method below returns a new one. It is a JAX pytree.

    Inside the methods of the class, `self.training` is the mode and `self.params` are
    the parameters.

    Example:
      >>> import jax.numpy as jnp
      >>> from kauldron import klinen as knn
      >>> class MLP(knn.Module):
      ...     features: int
      ...
      ...     @nn.compact
      ...     def __call__(self, x):
      ...         x = nn.relu(nn.Dense(self.features)(x))
      ...         x = nn.Dropout(0.5)(x, deterministic=not self.training)
      ...         return nn.Dense(2)(x)
      >>> model = MLP(features=8).init_bind(0, jnp.zeros((1, 4)))
      >>> model.with_rng(1)(jnp.ones((3, 4))).shape
      (3, 2)
      >>> model.eval()(jnp.ones((3, 4))).shape
      (3, 2)
    """

    def __init_subclass__(cls, kw_only: bool = False, **kwargs: Any) -> None:
        _check_reserved_names(cls)
        intermediates = take_fields(cls, sys._getframe(1))
        super().__init_subclass__(kw_only=kw_only, **kwargs)
        for name, field in intermediates.items():
            setattr(cls, name, field)
        _explain_unbound_calls(cls)

    # ------------------------------------------------------------------------------
    # Making a bound model
    # ------------------------------------------------------------------------------

    @nn.nowrap
    def init_bind(
        self,
        rng: Any,
        /,
        *args: Any,
        streams: tuple[str, ...] = ("dropout", "default"),
        method: str | Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Make parameters and return a copy that carries them.

        Args:
          rng: A seed, a JAX key of either kind, a `kd.random.PRNGKey`, or a dict from
            stream to one of these. The parameters are those that
            `nn.Module.init(key, ...)` makes.
          *args: Example inputs of the model: arrays, or specs such as
            `jax.ShapeDtypeStruct` in their place. Other values are passed on as they
            are.
          streams: The random streams for which `with_rng` will make keys.
          method: What to initialise with, instead of `__call__`.
          **kwargs: More example inputs.

        Returns:
          The bound model, in training mode, without random keys.
        """
        # That file needs this class.
        from kauldron.klinen.init_bind import init_bind

        _not_in_call(self, "init_bind()")
        return init_bind(self, rng, args, kwargs, streams=streams, method=method)

    # ------------------------------------------------------------------------------
    # Randomness
    # ------------------------------------------------------------------------------

    @nn.nowrap
    def with_rng(self, rng: Any = None) -> Self:
        """Return a copy with other random keys.

        Args:
          rng: A seed or a key, from which the key of each stream is derived by its
            name; or a dict with the key of each stream; or nothing, for the keys that
            follow the current ones.

        Returns:
          The model. Its calls draw the same random numbers each time.
        """
        return _view(self, "with_rng()").with_rng(rng)

    @property
    def rngs(self) -> dict[str, jax.Array]:
        """The random key of each stream; empty before `with_rng`."""
        return dict(_view(self, "rngs").root.rngs.values())

    # ------------------------------------------------------------------------------
    # Mode
    # ------------------------------------------------------------------------------

    @nn.nowrap
    def train(self) -> Self:
        """Return a copy in training mode."""
        return _view(self, "train()").derive(training=True)

    @nn.nowrap
    def eval(self) -> Self:
        """Return a copy in evaluation mode."""
        return _view(self, "eval()").derive(training=False)

    @property
    def training(self) -> bool:
        """Whether the model is in training mode."""
        if self.scope is not None:
            return current_mode(self)
        return _view(self, "training").root.training

    # ------------------------------------------------------------------------------
    # Variables
    # ------------------------------------------------------------------------------

    @property
    def params(self) -> FrozenDict[str, Any]:
        """The parameters of this module and those below it."""
        if self.scope is not None:
            return freeze(self.scope.variables().get("params", {}))
        return _view(self, "params").params

    @property
    def collections(self) -> dict[str, FrozenDict[str, Any]]:
        """All other variables, such as the statistics of `nn.BatchNorm`."""
        if self.scope is not None:
            variables = self.scope.variables().items()
            kept = {k: v for k, v in variables if k not in ("params", COLLECTION)}
            return {name: freeze(values) for name, values in kept.items()}
        return _view(self, "collections").collections

    @property
    def variables(self) -> Mapping[str, Any]:
        """Parameters and all other variables, by collection."""
        if self.scope is not None:
            return self.scope.variables()
        return _view(self, "variables").variables

    @nn.nowrap
    def with_params(self, params: Mapping[str, Any]) -> Self:
        """Return a copy with other parameters, of the same structure.

        Args:
          params: As `model.params`. For a sub-module: its part.

        Returns:
          The model, or the sub-module of a new model.
        """
        return _view(self, "with_params()").with_params(params)

    @nn.nowrap
    def with_variables(self, variables: Mapping[str, Any]) -> Self:
        """Return a copy with other variables, of the same structure.

        Args:
          variables: As `model.variables`. For a sub-module: its part.

        Returns:
          The model, or the sub-module of a new model.
        """
        return _view(self, "with_variables()").with_variables(variables)

    @nn.nowrap
    def call_and_update(
        self,
        *args: Any,
        method: str | Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, Self]:
        """Call the model and keep what it writes, such as batch statistics.

        Args:
          *args: Inputs.
          method: What to call instead of `__call__`.
          **kwargs: More inputs.

        Returns:
          The output, and a model whose `collections` hold what the call wrote.
          Parameters stay.
        """
        return _view(self, "call_and_update()").call_and_update(method, args, kwargs)

    # ------------------------------------------------------------------------------
    # Intermediate values
    # ------------------------------------------------------------------------------

    @nn.nowrap
    def call_with_intermediate(
        self,
        *args: Any,
        method: str | Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, Intermediates]:
        """Call the model and also return the intermediate values of the call.

        Args:
          *args: Inputs.
          method: What to call instead of `__call__`.
          **kwargs: More inputs.

        Returns:
          The output, and an object with the attributes of the model:
          `intermediates.encoder.hidden` is what `self.hidden = ...` stored there.
        """
        view = _view(self, "call_with_intermediate()")
        return view.call_with_intermediates(method, args, kwargs)

    call_with_intermediates = call_with_intermediate

    @nn.nowrap
    def capture_intermediates(self) -> contextlib.AbstractContextManager[Intermediates]:
        """Keep the intermediate values of the calls inside a `with` block.

        Returns:
          A context manager. It gives an object that has the values, as
          `call_with_intermediate` returns it, once the block is left. Each part of the
          model is called at most once inside the block.
        """
        return capture(_view(self, "capture_intermediates()"))

    # ------------------------------------------------------------------------------
    # As a pytree
    # ------------------------------------------------------------------------------

    @nn.nowrap
    def param_tree_on(self) -> Self:
        """Return a copy that, as a pytree, has the parameters as its only leaves.

        For optimizers that change every leaf. Everything else is static then, and a
        jitted function that takes such a model is compiled again whenever it changes:
        use it inside one jitted function, and do not return it from there.
        """
        return _view(self, "param_tree_on()").derive(params_only=True)

    @nn.nowrap
    def param_tree_off(self) -> Self:
        """Return a copy that, as a pytree, has all its arrays as leaves."""
        return _view(self, "param_tree_off()").derive(params_only=False)

    @nn.nowrap
    def unbind(self) -> tuple[Self, Mapping[str, Any]]:
        """Return the module without parameters, and its variables."""
        view: View | None = vars(self).get(VIEW)
        if view is None:
            return super().unbind()
        return copy_definition(view.definition), view.variables

    @nn.nowrap
    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.scope is not None:
            return super().__reduce_ex__(protocol)
        return unpack, (pack(copy_definition(self)),)

    # ------------------------------------------------------------------------------
    # Intermediate fields are written and read like attributes
    # ------------------------------------------------------------------------------

    @nn.nowrap
    def sow(self, col: str, name: str, value: Any, *args: Any, **kwargs: Any) -> bool:
        """As in flax. The names of `Intermediate` fields are taken."""
        if col == COLLECTION and intermediate_field(type(self), name) is not None:
            raise ValueError(
                f"`{type(self).__name__}.{name}` is an `Intermediate` field: assign to "
                f"it (`self.{name} = ...`), or sow under another name."
            )
        return super().sow(col, name, value, *args, **kwargs)

    if not TYPE_CHECKING:

        @nn.nowrap
        def __getattr__(self, name: str) -> Any:
            # Python comes here after an AttributeError of a descriptor, and loses it.
            field = intermediate_field(type(self), name)
            if field is not None:
                raise field.read_error(self)
            try:
                return super().__getattr__(name)
            except AttributeError as error:
                if self.scope is not None or type(self).setup is nn.Module.setup:
                    raise
                raise AttributeError(errors.with_init_bind_hint(error)) from None

        @nn.nowrap
        def __setattr__(self, name: str, value: Any) -> None:
            field = intermediate_field(type(self), name)
            if field is not None:
                field.__set__(self, value)
            else:
                super().__setattr__(name, value)


RESERVED_NAMES = frozenset(
    name for name in vars(Module) if not name.startswith("_") and name != "sow"
) - {"scope", "parent", "name"}


def _view(module: Module, what: str) -> View:
    _not_in_call(module, what)
    view = vars(module).get(VIEW)
    if view is None:
        raise errors.before_init_bind(module, what)
    return view


def _not_in_call(module: Module, what: str) -> None:
    if module.scope is not None:
        raise errors.inside_a_call(module, what)


def _check_reserved_names(cls: type) -> None:
    for name in inspect.get_annotations(cls):
        if name in RESERVED_NAMES:
            raise TypeError(
                f"`{cls.__qualname__}` declares the field `{name}`, but "
                f"`knn.Module.{name}` has a meaning of its own: choose another name. "
                f"Reserved are: {', '.join(sorted(RESERVED_NAMES))}."
            )


def _explain_unbound_calls(cls: type[nn.Module]) -> None:
    """Make calls of a module without parameters say what to do."""
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        is_called = name == "__call__" or hasattr(method, "compact")
        if is_called and inspect.isfunction(method) and not hasattr(method, _EXPLAINED):
            setattr(cls, name, _explaining(method))


_EXPLAINED = "__klinen_explained__"


def _explaining(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except flax.errors.CallCompactUnboundModuleError as error:
            is_ours = isinstance(error, errors.UnboundModelError)
            if is_ours or self.scope is not None:
                raise  # about another module, called inside this one
            raise errors.unbound_call(self) from error

    setattr(wrapper, _EXPLAINED, True)
    return wrapper
