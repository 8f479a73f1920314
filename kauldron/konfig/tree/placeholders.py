"""Fields that are declared before they have a value, and values shared by fields."""

from __future__ import annotations

import copy
import weakref
from typing import Any, Literal

from ml_collections import FieldReference, config_dict

from kauldron.konfig.errors import RequiredValueError
from kauldron.konfig.tree.field_types import convert, type_name
from kauldron.konfig.tree.node import Node, expression, node_path
from kauldron.konfig.tree.references import Reference, are_required_values_enforced

# When an unset value is an error: never, when it is read, or when it is resolved.
Required = Literal["never", "read", "resolve"]


class Variable(Reference):
    """A typed value shared by all the fields that hold it: they write through."""

    _konfig_value: Any
    _konfig_type: Any
    _konfig_required: Required
    _konfig_parents: tuple[weakref.ref[Node], ...]

    def __init__(
        self, value: Any, field_type: Any, required: Required = "never"
    ) -> None:
        super().__init__(
            _konfig_value=None,
            _konfig_type=field_type,
            _konfig_required=required,
            _konfig_parents=(),
        )
        self.set(value)

    def set(self, value: Any, type_safe: bool = True) -> None:
        """Set the value that all holders share.

        Raises:
          TypeError: It does not fit the type (unless `type_safe` is off).
        """
        if type_safe:
            value = convert(value, self._konfig_type)
        self.__dict__["_konfig_value"] = value

    def empty(self) -> bool:
        return self._konfig_value is None

    def get_type(self) -> Any:
        return self._konfig_type

    def _konfig_evaluate(self) -> Any:
        value = self._konfig_value
        if value is None and (
            self._konfig_required == "read"
            or (self._konfig_required == "resolve" and are_required_values_enforced())
        ):
            paths = [self._konfig_text()] if node_path(self) else []
            name = paths[0] if paths else f"A {self._konfig_description()}"
            raise RequiredValueError(f"{name} is required but not set.", paths)
        return value

    def _konfig_text(self, entry: str = ".ref") -> str:
        parts = node_path(self)
        return expression(parts) if parts else f"<{self._konfig_description()}>"

    def _konfig_description(self) -> str:
        return f"placeholder of {type_name(self._konfig_type)}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_konfig_parents": ()}

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        copied = Variable(None, self._konfig_type, self._konfig_required)
        memo[id(self)] = copied
        copied.__dict__["_konfig_value"] = copy.deepcopy(self._konfig_value, memo)
        return copied


def is_shared(value: Any) -> bool:
    """Return whether a field that holds `value` writes through to all holders."""
    return isinstance(value, Variable) or (
        isinstance(value, FieldReference) and not isinstance(value, Reference)
    )


def is_unset_required(value: Any) -> bool:
    """Return whether a stored value is a required placeholder that nobody set."""
    if isinstance(value, Variable):
        return value._konfig_required != "never" and value._konfig_value is None
    try:  # one of ml_collections' own tells only by raising
        if is_shared(value):
            value.get()
    except config_dict.RequiredValueError:
        return True
    return False


def placeholder(
    field_type: Any = object, *, required: bool = False, default: Any = None
) -> Any:
    """Return a field that has a type but no value yet.

    The same placeholder in several fields links them: setting one sets all.

    Args:
      field_type: What may be assigned. It stays when the field is set back to `None`.
      required: Reading it while it is unset raises `RequiredValueError`. Otherwise it
        reads as `None`.
      default: The value until it is set.

    Returns:
      The value to put into a config.

    Example:
      >>> from kauldron import konfig
      >>> cfg = konfig.ConfigDict({"workdir": konfig.placeholder(str)})
      >>> cfg.workdir is None
      True
      >>> cfg.workdir = 3
      Traceback (most recent call last):
      TypeError: Cannot set cfg.workdir to 3: str expected, got int. ...
    """
    return Variable(default, field_type, "read" if required else "never")


def required(field_type: Any = object) -> Any:
    """Return a field that must be set before the config is resolved.

    It reads as `None` while the config is being edited; `konfig.resolve` raises
    `RequiredValueError`, which lists all the unset fields and the flags to set them.

    Args:
      field_type: What may be assigned.

    Returns:
      The value to put into a config.
    """
    return Variable(None, field_type, "resolve")
