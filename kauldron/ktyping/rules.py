"""The few points in which `kauldron.ktyping` and `kauldron.typing` differ."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Rules:
    """How annotations are compiled.

    Attributes:
      check_plain_dataclasses: Check the array fields of a dataclass that is not itself
        decorated.
      share_nested_scopes: Fields of dataclasses and TypedDicts share the dims of the
        function, instead of having their own.
      switchable: The wrapper takes `_typecheck=False`.
      all_items: Check every item of a list or dict, not only the first.
      exact_classes: Take classes as the built-in `isinstance` does: an int is not a
        `float`, a bytearray is not `bytes`.
    """

    check_plain_dataclasses: bool = False
    share_nested_scopes: bool = False
    switchable: bool = False
    all_items: bool = False
    exact_classes: bool = False


STRICT = Rules()
BUILTIN = Rules(exact_classes=True)
OLDER = Rules(check_plain_dataclasses=True, share_nested_scopes=True, switchable=True)
