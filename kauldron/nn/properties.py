"""Properties of flax modules that mean something inside `init` and `apply`.

`train_property` tells whether the module is called in training, `interms_property`
stores and reads intermediate values.

The mode is a Python bool that modules read while they are traced, so whatever caches
traces has to depend on it. It therefore lives in a JAX user context: local to the
thread, and part of the keys of JAX's tracing and compilation caches. A jitted function
never replays the trace of the other mode.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from kauldron import kontext
from kauldron.errors import ReadableKeyError


class InCallProperty(property):
    """A read-only property for the body of a flax module.

    Args:
      compute: Takes the bound module and returns the value.
      name: What messages call the property until the class body names it.
    """

    def __init__(self, compute: Callable[[Any], Any], name: str):
        super().__init__(self._read)
        self._compute = compute
        self._name = name

    def _read(self, module: Any) -> Any:
        if getattr(module, "scope", None) is None:
            raise ValueError(
                f"The `{self._name}` property can only be called inside `.init` or "
                f"`.apply` of a flax module: this {type(module).__name__} is not bound."
            )
        return self._compute(module)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        if name in inspect.get_annotations(owner):
            raise TypeError(
                f"`{owner.__qualname__}.{name}` has a type annotation, which makes it a "
                f"field of the module. Drop the annotation: `{name} = ...`."
            )


#
# Training or evaluation
#


_mode = jax.make_user_context(default_value=None)


def train_property() -> Any:
    """Make a property of a flax module that tells whether it is called in training.

    The value is what the outermost `init` or `apply` got as `is_training_property=`, or
    what `set_train_property` says. It holds for all sub-modules.

    Returns:
      A descriptor to assign, without annotation, in the body of a flax module.

    Example:
      >>> import flax.linen as nn
      >>> from kauldron import kd
      >>> class Net(nn.Module):
      ...     is_training = kd.nn.train_property()
      ...
      ...     def __call__(self):
      ...         return "train" if self.is_training else "eval"
      >>> Net().apply({}, is_training_property=False)
      'eval'
    """
    return InCallProperty(_current_mode, name="is_training")


@contextlib.contextmanager
def set_train_property(is_training: bool) -> Iterator[None]:
    """Set the mode for what is called inside the `with` block, in this thread.

    Use it in a module to run a sub-module in another mode, or around the call of a
    module by code that does not know the `is_training_property=` keyword.

    Args:
      is_training: A Python or NumPy bool; not a traced value.

    Example:
      >>> import flax.linen as nn
      >>> from kauldron import kd
      >>> class Net(nn.Module):
      ...     is_training = kd.nn.train_property()
      ...
      ...     def __call__(self):
      ...         return self.is_training
      >>> with set_train_property(True):
      ...     Net().apply({})
      True
    """
    with _mode(_as_bool(is_training)):
        yield


def _current_mode(module: Any) -> bool:
    if _mode.value is None:
        raise ValueError(
            "The `is_training_property=` kwargs was not set, so "
            f"{type(module).__name__} cannot know whether it is in training. Give it to "
            "the outermost call, `model.apply(..., is_training_property=True)` (or "
            "`init`), or call the module inside "
            "`with kd.nn.set_train_property(True):`."
        )
    return _mode.value


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    message = f"`is_training_property` must be a bool, not {type(value).__name__}"
    if isinstance(value, jax.core.Tracer):
        raise ValueError(
            f"{message} (a traced value). Make the argument static: "
            '`jax.jit(model.apply, static_argnames="is_training_property")`.'
        )
    raise ValueError(f"{message}: {value!r:.80}.")


def refuse_deterministic(module: Any) -> None:
    """Raise `ValueError` if the mode is fixed in a module that follows the property."""
    if module.deterministic is not None:
        raise ValueError(
            f"{type(module).__name__}(deterministic=...) is not supported: dropout "
            "follows the train property. Give the mode to the outermost call "
            "(`model.apply(..., is_training_property=False)`), or call this module "
            "inside `with kd.nn.set_train_property(False):`."
        )


#
# Intermediate values
#


_COLLECTION = "intermediates"

# What a call stores while the collection is not mutable is kept on its root scope, so
# that it lives exactly as long as the call.
_SIDE_TABLE = "_kauldron_interms"


def interms_property() -> Any:
    """Make a property of a flax module to store and read intermediate values.

    `self.interms["hidden"] = x` is `self.sow("intermediates", "hidden", x)`;
    `self.interms["hidden"]` is the last value stored so; and
    `self.interms.get_by_path(path)` finds values of other modules.

    Returns:
      A descriptor to assign, without annotation, in the body of a flax module.

    Example:
      >>> import flax.linen as nn
      >>> from kauldron import kd
      >>> class Block(nn.Module):
      ...     interms = kd.nn.interms_property()
      ...
      ...     def __call__(self, x):
      ...         self.interms["doubled"] = 2 * x
      ...         return self.interms["doubled"] + 1
      >>> Block().apply({}, 3)
      7
      >>> Block().apply({}, 3, mutable=["intermediates"])
      (7, {'intermediates': {'doubled': (6,)}})
    """
    return InCallProperty(Interms, name="interms")


class Interms:
    """The intermediate values of one call, seen from one module."""

    def __init__(self, module: Any):
        self._module = module
        self._scope = module.scope
        self._is_captured = module.scope.is_mutable_collection(_COLLECTION)

    def __setitem__(self, name: str, value: Any) -> None:
        if self._is_captured:
            self._module.sow(_COLLECTION, name, value)
            return
        node = vars(self._scope.root).setdefault(_SIDE_TABLE, {})
        for part in self._path_in_root():
            node = node.setdefault(part, {})
        node[name] = (*node.get(name, ()), value)

    def __getitem__(self, name: str) -> Any:
        stored = self._stored_here()
        if name not in stored:
            raise ReadableKeyError(
                f"No intermediate {name!r} was stored by module "
                f"{_display(self._path())}. It stored: {sorted(stored)}."
                + self._capture_hint()
            )
        values = stored[name]
        return values[-1] if isinstance(values, tuple) else values

    def __contains__(self, name: str) -> bool:
        return name in self._stored_here()

    __iter__ = None

    def get_by_path(self, path: str) -> Any:
        """Return the value at a path, in the syntax of `kontext`.

        Args:
          path: Without leading dot, from the root module: `encoder.proj.__call__[0]`.
            With one, from this module: `.proj.__call__[0]`. Each further dot goes one
            parent up: `..sibling.hidden[0]`.

        Returns:
          What is stored there; for a module, the mapping of what it stored.
        """
        relative = path.lstrip(".")
        where = (*self._start(len(path) - len(relative), path), *_parse(relative))
        inside = len(self._root_path())
        if where[:inside] != self._root_path():
            raise ReadableKeyError(
                f"{path!r} is outside of the lifted transform (nn.scan, nn.jit, ...) "
                f"around module {_display(self._root_path())}: only intermediates of "
                "that module can be read in here."
            )
        try:
            return kontext.get_by_path(self._tree(), where[inside:])
        except KeyError as error:
            raise ReadableKeyError(
                f"No intermediate at {path!r}, seen from module "
                f"{_display(self._path())}. Stored so far: "
                f"{list(_leaf_paths(self._tree(), self._root_path()))}."
                + self._capture_hint()
            ) from error

    def _start(self, num_dots: int, path: str) -> tuple[str, ...]:
        here = self._path()
        if num_dots == 0:
            return ()
        if num_dots - 1 > len(here):
            raise ValueError(
                f"{path!r} climbs above the root: module {_display(here)} has "
                f"{len(here)} parents."
            )
        return here[: len(here) - (num_dots - 1)]

    def _tree(self) -> Mapping[str, Any]:
        """Return all that was stored below the root scope, as nested mappings."""
        root = self._scope.root
        if self._is_captured:
            return root.variables().get(_COLLECTION, {})
        return vars(root).get(_SIDE_TABLE, {})

    def _stored_here(self) -> dict[str, Any]:
        node: Any = self._tree()
        for part in self._path_in_root():
            node = node.get(part, {})
        # The other entries are those of sub-modules.
        return {k: v for k, v in node.items() if not isinstance(v, Mapping)}

    def _path(self) -> tuple[str, ...]:
        """Return where the module's values are: a wrapper may have moved its scope."""
        names: list[str] = []
        scope = self._scope
        while scope.parent is not None:
            names.insert(0, scope.name)
            scope = scope.parent
        return (*scope.path, *names)

    def _root_path(self) -> tuple[str, ...]:
        """Return the path of the root scope, which lifted transforms move."""
        return self._scope.root.path

    def _path_in_root(self) -> tuple[str, ...]:
        return self._path()[len(self._root_path()) :]

    def _capture_hint(self) -> str:
        if self._is_captured:
            return ""
        return (
            " Intermediates are not captured in this call: outputs of modules are only "
            "there with `capture_intermediates=True`, values stored with `sow` with "
            "`mutable=['intermediates']`."
        )


def _parse(path: str) -> tuple[Any, ...]:
    return kontext.Path.from_str(path).parts


def _display(path: tuple[str, ...]) -> str:
    return repr(".".join(path)) if path else "'' (the root)"


def _leaf_paths(node: Mapping[str, Any], prefix: tuple[str, ...]) -> list[str]:
    paths = []
    for name, value in node.items():
        if isinstance(value, Mapping):
            paths += _leaf_paths(value, (*prefix, name))
        else:
            paths.append(".".join((*prefix, name)))
    return paths
