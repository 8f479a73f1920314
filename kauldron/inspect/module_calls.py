"""Which modules a model calls, with what, found without computing anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax

from kauldron.inspect.spec_tree import array_spec_text
from kauldron.utils.checkify_ignore import checkify_ignore

_LONGEST = 8  # lines of one cell

Path = tuple[str, ...]


@dataclasses.dataclass
class ModuleCall:
    """One call of a module.

    Attributes:
      path: Where the module is in the model.
      module: Name of its class, with the method unless it is `__call__`.
      inputs: Shapes of the arguments.
      outputs: Shapes of the result.
    """

    path: Path
    module: str
    inputs: str
    outputs: str = ""


class CallRecorder:
    """Writes down the calls of modules, outer ones first."""

    def __init__(self) -> None:
        self.calls: list[ModuleCall] = []
        self.paths: set[Path] = set()
        self._open: list[Any] = []

    def __call__(
        self, function: Callable[..., Any], args: Any, kwargs: Any, context: Any
    ) -> Any:
        """An interceptor as `nn.intercept_methods` wants it."""
        module, name = context.module, context.method_name
        path = tuple(module.path)
        self.paths.add(path)
        is_own_detail = bool(self._open) and self._open[-1] is module
        if is_own_detail or name == "setup":
            return function(*args, **kwargs)
        cls = type(module).__name__
        call = ModuleCall(
            path=path,
            module=cls if name == "__call__" else f"{cls}.{name}",
            inputs=specs_text(_arguments(args, kwargs)),
        )
        self.calls.append(call)
        self._open.append(module)
        try:
            result = function(*args, **kwargs)
        finally:
            self._open.pop()
        call.outputs = specs_text(result)
        return result


def record_calls(
    model: nn.Module, rngs: Mapping[str, Any], make_inputs: Callable[[], Any]
) -> tuple[CallRecorder, Any]:
    """The calls of `model.init`, and the shapes of the parameters it makes.

    Args:
      model: The model.
      rngs: Keys by stream name.
      make_inputs: Gives `(args, kwargs)` of the model; it is only traced.

    Returns:
      The recorder, and the parameters as `jax.ShapeDtypeStruct`s.
    """
    recorder = CallRecorder()

    @checkify_ignore
    def init() -> Any:
        args, kwargs = make_inputs()
        return model.init(dict(rngs), *args, **kwargs, is_training_property=True)

    with nn.intercept_methods(recorder):
        variables = jax.eval_shape(init)
    return recorder, variables.get("params", {})


def specs_text(tree: Any) -> str:
    """Shapes of a tree: one, or a line for each with its path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    lines = []
    for path, leaf in leaves:
        is_array = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
        spec = array_spec_text(leaf) if is_array else repr(leaf)
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        lines.append(f"{name}: {spec}" if name else spec)
    if len(lines) > _LONGEST:
        more = len(lines) - _LONGEST + 1
        lines = [*lines[: _LONGEST - 1], f"and {more} more"]
    return "\n".join(lines)


def _arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if len(args) == 1 and not kwargs:
        return args[0]
    return {**{str(index): arg for index, arg in enumerate(args)}, **kwargs}
