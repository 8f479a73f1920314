"""NNX models that train in the same trainer as those of linen."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import flax.core.scope
import jax.numpy as jnp
from flax import nnx

from kauldron import kontext
from kauldron.contrib.nn import nnx_collections
from kauldron.nn import set_train_property
from kauldron.nn.adapters import cast_floats


class KdNnxModule(nnx.Module):
    """Base class of NNX models for a config.

    The fields of the dataclass are settings and keys. What has parameters is made in
    `setup`, so that a config can be resolved without computing anything. Besides what
    every `nnx.Module` does, it has the `init` and `apply` of linen, which leave the
    object itself as it is.

    Values that modules store with `self.sow(nnx.Intermediate, "hidden", x)` are found by
    keys such as `interms.hidden[0]`.

    Example:
      >>> import jax
      >>> from kauldron import kontext
      >>> @dataclasses.dataclass(kw_only=True)
      ... class Classifier(KdNnxModule):
      ...     num_classes: int
      ...     image: kontext.Key = "batch.image"
      ...
      ...     def setup(self, rngs):
      ...         self.head = nnx.Linear(4, self.num_classes, rngs=rngs)
      ...
      ...     def __call__(self, image):
      ...         return self.head(image)
      >>> model = Classifier(num_classes=3)
      >>> images = jax.numpy.ones((2, 4))
      >>> variables = model.init(jax.random.key(0), images)
      >>> sorted(variables["params"]["head"])
      ['bias', 'kernel']
      >>> model.apply(variables, images).shape
      (2, 3)
    """

    __dynamic_module__: ClassVar[bool] = True
    """Whether a call may change the structure of the module. If it does not, `False`
    keeps the structure that `init` returned, whatever mode the module is in."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not callable(getattr(cls, "setup", None)):
            raise TypeError(
                f"{cls.__qualname__} has no method `setup(self, rngs)`, in which a "
                "KdNnxModule makes its layers."
            )

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # `dataclass` compares by fields, which takes the hash away.
        if cls.__hash__ is None:
            cls.__hash__, cls.__eq__ = object.__hash__, object.__eq__
        return super().__new__(cls)

    def init(
        self,
        rngs: Any = None,
        *args: Any,
        method: Any = None,
        mutable: Any = True,
        capture_intermediates: Any = False,
        is_training_property: bool | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the variables of a new model. Nothing is called but `setup`.

        Args:
          rngs: Keys by the name of their stream, or a single one for `params`; by
            default those of the seed 0.
          *args: Arguments of a call; not needed, as for the other keywords.
          method: Not needed.
          mutable: Which collections to return, as a flax filter.
          capture_intermediates: Not needed.
          is_training_property: The mode in which the model is stored.
          **kwargs: Not needed.

        Returns:
          The collections `params` and `nnx`.
        """
        del args, kwargs, method, capture_intermediates
        module = self._fresh_copy()
        with nnx_collections.naming_missing_streams(type(self).__qualname__):
            if nnx_collections.takes_rngs(module.setup):
                module.setup(rngs=nnx_collections.make_rngs(rngs))
            else:
                warnings.warn(
                    f"{type(self).__qualname__}.setup has no parameter `rngs`: the "
                    "random keys of the trainer are not used.",
                    stacklevel=2,
                )
                module.setup()
        nnx_collections.set_mode(module, is_training_property)
        return _filtered(nnx_collections.split(module), mutable)

    def apply(
        self,
        variables: Mapping[str, Any],
        *args: Any,
        rngs: Mapping[str, Any] | None = None,
        method: str | Callable[..., Any] | None = None,
        mutable: Any = False,
        capture_intermediates: Any = False,
        is_training_property: bool | None = True,
        **kwargs: Any,
    ) -> Any:
        """Call the model with the given variables.

        Args:
          variables: What `init` returned; it is not changed.
          *args: Arguments of the call.
          rngs: Keys by the name of their stream. Streams of the model that are named
            here start from the new key, others from the stored one.
          method: Another method, or its name, instead of `__call__`.
          mutable: Which collections to return too, as a flax filter.
          capture_intermediates: Whether to return the values that modules stored.
          is_training_property: The mode; `None` for the stored one.
          **kwargs: Arguments of the call.

        Returns:
          The result, or a pair of it and the collections if `mutable` is set.
        """
        module = nnx_collections.merge(variables, rngs)
        nnx_collections.set_mode(module, is_training_property)
        method = "__call__" if method is None else method
        function = getattr(type(self), method) if isinstance(method, str) else method
        with _training_mode(is_training_property):
            result, interms = nnx_collections.call(function, module, *args, **kwargs)
        if not mutable:
            return result
        changed = nnx_collections.split(module)
        if not self.__dynamic_module__:
            changed["nnx"]["graphdef"] = variables["nnx"]["graphdef"]
        changed["intermediates"] = interms if capture_intermediates else {}
        others = {name: variables[name] for name in variables if name not in changed}
        return result, _filtered(others | changed, mutable)

    def _fresh_copy(self) -> Any:
        """Return the module before its `setup`, without copying the settings.

        They are part of the structure, which two calls of `init` must agree about.
        """
        if not dataclasses.is_dataclass(self):
            raise TypeError(
                f"{type(self).__qualname__} is not a dataclass: put "
                "`@dataclasses.dataclass(kw_only=True)` above the class."
            )
        fields = [field.name for field in dataclasses.fields(self) if field.init]
        values = {name: getattr(self, name) for name in fields}
        return type(self)(
            **{
                name: nnx.clone(value) if isinstance(value, nnx.Module) else value
                for name, value in values.items()
            }
        )


@dataclasses.dataclass
class LinenModuleFromNnxDef(KdNnxModule):
    """An NNX module of any class, as a model for the trainer.

    The module is the attribute `module`, below which its parameters are.

    Attributes:
      nnx_init: The class, or a `functools.partial` of it with all arguments but `rngs`.
    """

    nnx_init: Callable[..., nnx.Module]

    def setup(self, rngs: nnx.Rngs) -> None:
        """Make the module."""
        takes_rngs = nnx_collections.takes_rngs(self.nnx_init)
        self.module: Any = self.nnx_init(**({"rngs": rngs} if takes_rngs else {}))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MixedPrecision:
    """Computes an NNX model in 16 bits, as `kd.nn.MixedPrecision` does for linen.

    Parameters, other variables and outputs keep 32 bits; what is passed to the model and
    its parameters are rounded when it is called. Layers that ask for a dtype compute in
    it.

    Attributes:
      model: The model.
      compute_dtype: What the model computes in.
      output_dtype: What its outputs are converted to.
    """

    model: KdNnxModule
    compute_dtype: Any = jnp.bfloat16
    output_dtype: Any = jnp.float32

    def __kontext_keys__(self) -> dict[str, Any]:
        return kontext.get_keypaths(self.model)

    def init(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the variables of the model, as `KdNnxModule.init`."""
        return self.model.init(*args, **kwargs)

    def apply(
        self,
        variables: Mapping[str, Any],
        *args: Any,
        mutable: Any = False,
        **kwargs: Any,
    ) -> Any:
        """Call the model, as `KdNnxModule.apply`."""
        params = variables.get("params", {})
        rounded = {**variables, "params": cast_floats(params, self.compute_dtype)}
        args, kwargs = cast_floats((args, kwargs), self.compute_dtype)
        output = self.model.apply(rounded, *args, mutable=mutable, **kwargs)
        if not mutable:
            return cast_floats(output, self.output_dtype)
        result, changed = output
        if "params" in changed:
            changed["params"] = params
        return cast_floats(result, self.output_dtype), changed


def _training_mode(is_training: bool | None) -> Any:
    """Let linen modules inside know the mode as well."""
    if is_training is None:
        return contextlib.nullcontext()
    return set_train_property(is_training)


def _filtered(variables: dict[str, Any], mutable: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in variables.items()
        if flax.core.scope.in_filter(mutable, name)
    }
