"""Read and store intermediate values from inside a flax module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kauldron import kontext
from kauldron.nn.in_call_property import InCallProperty

_COLLECTION = "intermediates"

# What a call stores while the collection is not mutable is kept on its root scope, so
# that it lives exactly as long as the call.
_SIDE_TABLE = "_kauldron_interms"


def interms_property() -> Any:
    """Property of a flax module to store intermediate values and read them back.

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
            raise KeyError(
                f"No intermediate {name!r} was stored by module "
                f"{_display(self._scope.path)}. It stored: {sorted(stored)}."
                + self._capture_hint()
            )
        values = stored[name]
        return values[-1] if isinstance(values, tuple) else values

    def __contains__(self, name: str) -> bool:
        return name in self._stored_here()

    __iter__ = None

    def get_by_path(self, path: str) -> Any:
        """The value at a path, in the syntax of `kontext`.

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
            raise KeyError(
                f"{path!r} is outside of the lifted transform (nn.scan, nn.jit, ...) "
                f"around module {_display(self._root_path())}: only intermediates of "
                "that module can be read in here."
            )
        try:
            return kontext.get_by_path(self._tree(), where[inside:])
        except KeyError as error:
            raise KeyError(
                f"No intermediate at {path!r}, seen from module "
                f"{_display(self._scope.path)}. Stored so far: "
                f"{list(_leaf_paths(self._tree(), self._root_path()))}."
                + self._capture_hint()
            ) from error

    def _start(self, num_dots: int, path: str) -> tuple[str, ...]:
        here = self._scope.path
        if num_dots == 0:
            return ()
        if num_dots - 1 > len(here):
            raise ValueError(
                f"{path!r} climbs above the root: module {_display(here)} has "
                f"{len(here)} parents."
            )
        return here[: len(here) - (num_dots - 1)]

    def _tree(self) -> Mapping[str, Any]:
        """All that was stored below the root scope, as nested mappings."""
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

    def _root_path(self) -> tuple[str, ...]:
        """Where the root scope is: inside a lifted transform not at the root module."""
        return self._scope.root.path

    def _path_in_root(self) -> tuple[str, ...]:
        return self._scope.path[len(self._root_path()) :]

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
