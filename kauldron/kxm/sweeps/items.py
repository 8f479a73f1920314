"""Sweeps as iterables of work units, and products of them."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from kauldron import konfig
from kauldron.errors import a_type
from kauldron.kxm.kauldron_jobs import JobsProvider

# What `--xp.sweep` may be.
Names = bool | str | Sequence[str] | None


@dataclasses.dataclass(frozen=True)
class SweepItem:
    """What one work unit changes.

    Attributes:
      job_kwargs: From the name of a flag of the program to its value.
      xm_ui_kwargs: What is shown for it, and used in folder names.
      origin: Where it comes from, for messages.
    """

    job_kwargs: Mapping[str, Any]
    _: dataclasses.KW_ONLY
    xm_ui_kwargs: Mapping[str, Any] | None = None
    origin: str = ""

    def __post_init__(self) -> None:
        if self.xm_ui_kwargs is None:
            shown = {key: display_value(v) for key, v in self.job_kwargs.items()}
            object.__setattr__(self, "xm_ui_kwargs", shown)
        check_order(list(self.job_kwargs), self.origin)


def check_order(flags: Sequence[str], origin: str) -> None:
    """Refuse to set a part of a node before the node itself, which would undo it.

    Raises:
      ValueError: A part comes before its node.
    """
    for index, flag in enumerate(flags):
        inner = (f"{flag}.", f"{flag}[")
        undone = [earlier for earlier in flags[:index] if earlier.startswith(inner)]
        if undone and flag.startswith("cfg."):
            raise ValueError(
                f"{origin}: {flag} replaces {undone[0]}, which varies as well. Give "
                f"{flag} first."
            )


def display_value(value: Any) -> Any:
    """Return what is shown of a value: scalars as they are, others as text.

    Example:
      >>> display_value(konfig.ConfigDict({"__qualname__": "flax.linen:Dense", "0": 3}))
      'nn.Dense(3)'
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    text = repr(value)
    if isinstance(value, konfig.ConfigDict):
        text = text.removeprefix("<ConfigDict[").removesuffix("]>")
    return re.sub(r"\s+", " ", text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepInfo:
    """Base of the sweeps: a repeatable iterable of `SweepItem`."""

    def __iter__(self) -> Iterator[SweepItem]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__.")

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def tags(self) -> list[str]:
        """Tags that the experiment gets."""
        return ["sweep"]

    @property
    def adaptive(self) -> Any:
        """The `kxm.Search` that chooses values when a work unit starts, if there is one."""
        return None

    def replace_with_jobs_provider(self, provider: JobsProvider) -> Self:
        """Return a sweep that knows where the jobs come from."""
        del provider
        return self

    def with_names(self, sweep: Names) -> SweepInfo:
        """Return the sweep for a value of `xp.sweep`."""
        return NoSweep() if sweep is False else self


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoSweep(SweepInfo):
    """One work unit that changes nothing."""

    def __iter__(self) -> Iterator[SweepItem]:
        return iter([SweepItem({})])

    @property
    def tags(self) -> list[str]:
        return []

    def with_names(self, sweep: Names) -> SweepInfo:
        if sweep in (None, False):
            return self
        raise ValueError(
            f"sweep={sweep!r}: the experiment has no sweep to choose from. Set "
            "`sweep_info=`, such as kxm.SweepFromCfg()."
        )


@dataclasses.dataclass(frozen=True, init=False)
class SimpleSweep(SweepInfo):
    """A list of work units.

    Attributes:
      items: One dict for each, from the name of a flag of the program to its value.

    Example:
      >>> len(SimpleSweep([{"seed": 0}, {"seed": 1}]))
      2
    """

    items: tuple[SweepItem, ...]

    def __init__(self, items: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        dicts = items() if callable(items) else items
        made = tuple(checked_items(dicts, "SimpleSweep"))
        if not made:
            raise ValueError("SimpleSweep has no items: give it at least one dict.")
        object.__setattr__(self, "items", made)

    def __iter__(self) -> Iterator[SweepItem]:
        return iter(self.items)


def checked_items(dicts: Any, origin: str, prefix: str = "") -> Iterator[SweepItem]:
    """Yield checked items, with `prefix` in front of the names."""
    if isinstance(dicts, Mapping | str) or not isinstance(dicts, Iterable):
        raise TypeError(f"{origin} gives {a_type(dicts)}, not a list of dicts.")
    for index, item in enumerate(dicts):
        where = f"{origin}, item {index}"
        if isinstance(item, SweepItem):
            yield item
            continue
        if not isinstance(item, Mapping) or isinstance(item, konfig.ConfigDict):
            raise TypeError(f"{where}: expected a dict, got {item!r:.80}.")
        for key in item:
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} must be a str.")
        names = {key: key.removeprefix(prefix) for key in item}
        kwargs = {f"{prefix}{names[key]}": value for key, value in item.items()}
        shown = {names[key]: display_value(value) for key, value in item.items()}
        yield SweepItem(kwargs, xm_ui_kwargs=shown, origin=where)


def product(parts: Sequence[SweepInfo]) -> list[SweepItem]:
    """Return the product of sweeps, the last one varying fastest.

    Raises:
      ValueError: Two of them give different values to one key.
    """
    if any(part.adaptive is not None for part in parts):
        if len(parts) > 1:
            raise ValueError("An adaptive search cannot be combined with other sweeps.")
        return list(parts[0])
    return [_combined(items) for items in itertools.product(*parts)]


def _combined(items: Sequence[SweepItem]) -> SweepItem:
    if len(items) == 1:
        return items[0]
    kwargs: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    for item in items:
        for key, value in item.job_kwargs.items():
            if key in kwargs and kwargs[key] != value:
                places = " and ".join(i.origin for i in items if key in i.job_kwargs)
                raise ValueError(f"{key!r} is set to different values by {places}.")
        kwargs.update(item.job_kwargs)
        shown.update(item.xm_ui_kwargs or {})
    origin = " x ".join(item.origin for item in items)
    return SweepItem(kwargs, xm_ui_kwargs=shown, origin=origin)
