"""Search spaces: grid, random and adaptive sweeps."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self

from kauldron import konfig
from kauldron.errors import did_you_mean
from kauldron.konfig.symbols import normalize_qualname
from kauldron.kxm.command import config_text, plain, text_of
from kauldron.kxm.sweeps.items import (
    SweepInfo,
    SweepItem,
    check_order,
    display_value,
)

ADAPTIVE = ("tpe", "gp", "cmaes", "qmc", "nsga2")
# What samplers of Optuna import beyond what is installed with it.
SAMPLER_PACKAGES = {"gp": ("scipy", "torch"), "cmaes": ("cmaes",), "qmc": ("scipy",)}
_METHODS = ("grid", "random", *ADAPTIVE)
_PRUNERS = ("median", "asha")


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several values.

    Attributes:
      options: The values; config nodes too.

    Example:
      >>> Choice(["relu", "gelu"])
      Choice(options=['relu', 'gelu'])
    """

    options: Sequence[Any]

    def __post_init__(self) -> None:
        if isinstance(self.options, str) or not len(self.options):
            raise ValueError(f"Choice needs a list of options, got {self.options!r}.")

    def grid(self) -> list[Any]:
        """Return all values."""
        return list(self.options)

    def draw(self, generator: random.Random) -> Any:
        """Return a random value."""
        return self.options[generator.randrange(len(self.options))]


@dataclasses.dataclass(frozen=True)
class Range:
    """A number between two others, both included. Integers if both are.

    Attributes:
      low: The smallest value.
      high: The largest value.
      log: Whether to draw values uniformly on a logarithmic scale.
      step: The distance between two values.

    Example:
      >>> Range(64, 256, step=64).grid()
      [64, 128, 192, 256]
    """

    low: float
    high: float
    _: dataclasses.KW_ONLY
    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        for value in (self.low, self.high):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"Range: {value!r} is not a number.")
            if not math.isfinite(value):
                raise ValueError(f"Range: {value!r} is not finite.")
        if self.low > self.high:
            raise ValueError(f"Range: low={self.low} is more than high={self.high}.")
        if self.log and self.low <= 0:
            raise ValueError(f"Range: log=True needs a positive low, got {self.low}.")
        if self.step is not None and self.step <= 0:
            raise ValueError(f"Range: the step must be positive, got {self.step}.")
        if self.log and self.step is not None:
            raise ValueError("Range: log=True and step cannot be combined.")
        if self.is_integer and isinstance(self.step, float):
            raise ValueError("Range: the step between integers must be an integer.")

    @property
    def is_integer(self) -> bool:
        """Whether the values are integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def grid(self) -> list[Any]:
        """Return all values.

        Raises:
          ValueError: There are infinitely many.
        """
        if self.is_integer:
            return list(range(int(self.low), int(self.high) + 1, int(self.step or 1)))
        if self.step is None:
            raise ValueError(
                f"Range({self.low}, {self.high}) has infinitely many values: for a "
                "grid, give step=..., or use kxm.Choice([...])."
            )
        count = math.floor((self.high - self.low) / self.step + 1e-9)
        return [float(f"{self.low + i * self.step:.12g}") for i in range(count + 1)]

    def draw(self, generator: random.Random) -> Any:
        """Return a random value."""
        if self.step is not None:
            grid = self.grid()
            return grid[generator.randrange(len(grid))]
        if not self.log:
            if self.is_integer:
                return generator.randint(int(self.low), int(self.high))
            return generator.uniform(self.low, self.high)
        low, high = math.log(self.low), math.log(self.high)
        value = math.exp(generator.uniform(low, high))
        if self.is_integer:
            return min(max(round(value), int(self.low)), int(self.high))
        return min(max(value, self.low), self.high)


@dataclasses.dataclass(frozen=True)
class Search(SweepInfo):
    """A search over a space of values.

    A sweep function of a config may return one.

    Attributes:
      space: From the path of a value to a `Choice`, a `Range`, or a constant.
      method: `grid`, `random`, or adaptive: `tpe`, `gp`, `cmaes`, `qmc`, `nsga2`, which
        need Optuna.
      num_trials: How many work units; not for `grid`.
      seed: Of the random choices.
      metric: What is optimised: `<collection>/<scalar>`, or a name of `kxm.report`.
      goal: `min` or `max`.
      reduce: Which value of a run counts: `last` or `best`.
      prune: Stop runs that are not promising: `median` or `asha`.

    Example:
      >>> search = Search({"seed": Range(0, 1), "act": Choice(["relu", "gelu"])},
      ...                 method="grid")
      >>> [tuple(item.job_kwargs.values()) for item in search]
      [(0, 'relu'), (0, 'gelu'), (1, 'relu'), (1, 'gelu')]
    """

    space: Mapping[str, Any]
    _: dataclasses.KW_ONLY
    method: Any = "random"
    num_trials: int | None = None
    seed: int = 0
    metric: str | None = None
    goal: str = "min"
    reduce: str = "last"
    prune: str | None = None
    prefix: str = dataclasses.field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.space:
            raise ValueError(
                "Search has nothing to vary: give its `space`, such as "
                "{'optimizer.learning_rate': kxm.Range(1e-4, 1e-2, log=True)}."
            )
        if isinstance(self.method, str) and self.method not in _METHODS:
            raise ValueError(
                f"method={self.method!r}: expected one of {', '.join(_METHODS)}, or a "
                f"sampler of Optuna.{did_you_mean(self.method, _METHODS)}"
            )
        if self.goal not in ("min", "max"):
            raise ValueError(f"goal={self.goal!r}: expected 'min' or 'max'.")
        if self.reduce not in ("last", "best"):
            raise ValueError(f"reduce={self.reduce!r}: expected 'last' or 'best'.")
        if self.prune is not None and self.prune not in _PRUNERS:
            raise ValueError(
                f"prune={self.prune!r}: expected one of {', '.join(_PRUNERS)}."
                f"{did_you_mean(self.prune, _PRUNERS)}"
            )
        if self.method == "grid":
            if self.num_trials is not None:
                raise ValueError(
                    "method='grid' tries every combination: leave out "
                    f"num_trials={self.num_trials!r}."
                )
            for key in self.space:
                self._grid_of(key)
        elif not isinstance(self.num_trials, int) or self.num_trials < 1:
            raise ValueError(f"method={self.method!r} needs num_trials of at least 1.")
        if self.adaptive is not None and self.metric is None:
            raise ValueError(
                f"method={self.method!r} optimises a metric: give metric=..."
            )
        if self.prune is not None and self.adaptive is None:
            raise ValueError("prune= works with adaptive methods only.")
        check_order([f"{self.prefix}{key}" for key in self.space], "Search")

    @property
    def adaptive(self) -> Search | None:
        is_adaptive = not isinstance(self.method, str) or self.method in ADAPTIVE
        return self if is_adaptive else None

    def with_prefix(self, prefix: str) -> Self:
        """Return the search with `prefix` in front of the names of flags."""
        space = {key.removeprefix(prefix): value for key, value in self.space.items()}
        return dataclasses.replace(self, space=space, prefix=prefix)

    def _grid_of(self, key: str) -> list[Any]:
        value = self.space[key]
        return value.grid() if isinstance(value, Choice | Range) else [value]

    def __iter__(self) -> Iterator[SweepItem]:
        if self.adaptive is not None:
            for index in range(self.num_trials or 0):
                yield SweepItem({}, origin=f"trial {index}")
        elif self.method == "grid":
            grids = [self._grid_of(key) for key in self.space]
            for index, values in enumerate(itertools.product(*grids)):
                yield self.item(dict(zip(self.space, values)), f"point {index}")
        else:
            for index in range(self.num_trials or 0):
                generator = random.Random(f"{self.seed}/{index}")
                values = {
                    key: v.draw(generator) if isinstance(v, Choice | Range) else v
                    for key, v in self.space.items()
                }
                yield self.item(values, f"trial {index}")

    def probes(self) -> Iterator[SweepItem]:
        """Yield items that have every option and every bound, to be checked."""
        for key, value in self.space.items():
            ends = [value]
            if isinstance(value, Choice):
                ends = list(value.options)
            elif isinstance(value, Range):
                ends = [value.low, value.high]
            for end in ends:
                yield self.item({key: end}, "search space")

    def without(self, flags: Collection[str]) -> Search:
        """Return the search without what flags of the user decide."""
        space = self.space.items()
        kept = {key: v for key, v in space if f"{self.prefix}{key}" not in flags}
        is_whole = len(kept) == len(self.space)
        return self if is_whole else dataclasses.replace(self, space=kept)

    def to_json(self) -> dict[str, Any]:
        """Return what the runners of an adaptive search need to know."""
        space = {
            key: _entry(value, is_config=bool(self.prefix))
            for key, value in self.space.items()
        }
        names = ("metric", "goal", "reduce", "seed", "prune", "prefix", "num_trials")
        fields = {name: getattr(self, name) for name in names}
        return {"schema": 1, "space": space, "method": plain(self.method), **fields}

    def item(self, values: Mapping[str, Any], origin: str = "") -> SweepItem:
        """Return the item with these values."""
        kwargs = {f"{self.prefix}{key}": value for key, value in values.items()}
        shown = {key: display_value(value) for key, value in values.items()}
        return SweepItem(kwargs, xm_ui_kwargs=shown, origin=origin)


def _entry(value: Any, *, is_config: bool) -> dict[str, Any]:
    """Return a part of the space as JSON, with the text of each option as a flag."""
    if isinstance(value, Range):
        kind = "integers" if value.is_integer else "numbers"
        return {"kind": kind, **dataclasses.asdict(value)}
    options = list(value.options) if isinstance(value, Choice) else [value]
    text = config_text if is_config else text_of
    return {
        "kind": "choice",
        "options": [
            {"value": plain(o), "text": text(o), "shown": display_value(o)}
            for o in options
        ],
    }


def as_search(value: Any) -> Any:
    """Return the `Search` that a node of a config file describes; others unchanged.

    Only names of this package are resolved: the options of a choice stay config nodes.
    """
    names = {"Search": Search, "Choice": Choice, "Range": Range}
    if not isinstance(value, konfig.ConfigDict):
        return value
    package, _, name = normalize_qualname(value.get("__qualname__", "")).rpartition(".")
    if package not in ("kauldron.kxm", "kauldron.xm") or name not in names:
        return value
    args, kwargs = [], {}
    for key, item in value.items():
        if key == "__qualname__":
            continue
        if isinstance(item, konfig.ConfigDict) and "__qualname__" not in item:
            item = {k: as_search(v) for k, v in item.items()}
        if str(key).isdecimal():
            args.append(item)
        else:
            kwargs[key] = item
    return names[name](*args, **kwargs)
