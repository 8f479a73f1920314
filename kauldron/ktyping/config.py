"""Settings: whether and how strictly to check, for everything or per module.

kt.CONFIG.typechecking_enabled = False                # everywhere
kt.add_config_override(r"my_project\\.slow", kt.Config(typechecking_enabled=False))
with kt.Config(typechecking_enabled=False):           # during a block
  ...
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import os
import re
from typing import Any

from kauldron.errors import ReadableKeyError


class Missing:
    """The type of `MISSING`."""

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Any = Missing()


class ReportingPolicy(enum.StrEnum):
    """What to do when something dubious is found."""

    IGNORE = "IGNORE"
    LOG_INFO = "LOG_INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class _Version:
    """Counts the changes of the configuration, so that it need not be compared."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 1


VERSION = _Version()


@dataclasses.dataclass
class Config:
    """Settings; those left out are inherited. As a context manager: for a block.

    Attributes:
      typechecking_enabled: Whether anything is checked. `kt.dim` and `kt.shape` work
        either way.
      jaxtyping_annotations: What to do about a `jaxtyping` annotation.
      collection_check: Check the `"first"` item of a list or dict, or `"all"`.
    """

    _: dataclasses.KW_ONLY
    typechecking_enabled: bool = MISSING
    jaxtyping_annotations: ReportingPolicy = MISSING
    collection_check: str = MISSING

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "collection_check" and value not in (MISSING, "first", "all"):
            raise ValueError(f"collection_check is 'first' or 'all', not {value!r}")
        if name == "jaxtyping_annotations" and value is not MISSING:
            value = ReportingPolicy(value)
        changes = name in vars(self)  # not while it is being made
        object.__setattr__(self, name, value)
        VERSION.number += changes

    def update(self, other: Config) -> Config:
        """Return a copy with those settings of `other` that are not missing."""
        given = {k: v for k, v in vars(other).items() if v is not MISSING}
        return self.replace(**given)

    def replace(self, **changes: Any) -> Config:
        """Return a copy with some settings changed."""
        return dataclasses.replace(self, **changes)

    def __enter__(self) -> Config:
        identifier = add_config_override(".*", self)
        _open_blocks.setdefault(id(self), []).append(identifier)
        return self

    def __exit__(self, *_: Any) -> None:
        remove_config_override(_open_blocks[id(self)].pop())


_open_blocks: dict[int, list[int]] = {}


CONFIG = Config(
    typechecking_enabled=os.environ.get("KAULDRON_TYPECHECK", "1") != "0",
    jaxtyping_annotations=ReportingPolicy.ERROR,
    collection_check="first",
)
"""The settings for everything; assign its attributes to change them."""

CONFIG_OVERRIDES: dict[int, tuple[re.Pattern[str], Config]] = {}
_new_id = itertools.count(1)


def add_config_override(module_regex: str, config: Config) -> int:
    """Change the settings for modules whose name matches; later overrides win.

    Args:
      module_regex: Matched with `re.match`: anchored at the start only.
      config: The settings to overlay.

    Returns:
      An id for `remove_config_override`.
    """
    identifier = next(_new_id)
    CONFIG_OVERRIDES[identifier] = re.compile(module_regex), config
    VERSION.number += 1
    return identifier


def remove_config_override(identifier: int, missing_ok: bool = False) -> None:
    """Undo `add_config_override`.

    Raises:
      KeyError: If there is no such override and `missing_ok` is false.
    """
    if identifier not in CONFIG_OVERRIDES and not missing_ok:
        raise ReadableKeyError(
            f"There is no configuration override with id {identifier}"
        )
    CONFIG_OVERRIDES.pop(identifier, None)
    VERSION.number += 1


def get_config(module_name: str | None = None) -> Config:
    """Return the settings that hold for a module, or those for all."""
    config = CONFIG
    overrides = tuple(CONFIG_OVERRIDES.values())  # other threads may add some
    for pattern, override in overrides:
        if pattern.match(module_name or ""):
            config = config.update(override)
    return config


#
# The rules of the two flavours
#


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
