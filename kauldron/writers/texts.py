"""A run in words: lines of the log, and tables that describe it."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext

_SHORT = {"learning_rate": "lr", "accuracy": "acc"}
_TOTAL = "losses/total"
_KINDS = ("metrics/", "schedules/", "losses/")  # after the total loss
_PERF = "perf_stats/"
_LEAST_WAIT_TO_TELL = 0.05
_LARGEST_FAMILY = 3  # values of one metric, such as one per class


def value_line(step: int, collection: str, values: Mapping[str, float]) -> str:
    """Return one line with the values of a step.

    Entries of arrays (`name/0`, `name/1`, ...) are left to the files.

    Example:
      >>> value_line(50, "train", {"losses/total": 2.12, "losses/xent": 2.12})
      '[50] train  loss 2.120'
    """
    names = short_names(values)
    parts = [f"{name} {number(values[key])}" for key, name in names.items()]
    speed = values.get(f"{_PERF}steps_per_sec")
    if speed is not None:
        parts.append(f"{rate(speed)} steps/s")
    wait = values.get(f"{_PERF}data_wait_fraction")
    if wait is not None and wait >= _LEAST_WAIT_TO_TELL:
        parts.append(f"data wait {percent(wait)}")
    return "  ".join([f"[{step}] {collection}", *parts])


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Return short names of the values worth a place, in the order to show them.

    Times, entries of arrays and metrics with many values are left out, and a single
    loss, which is the total.

    Example:
      >>> short_names(["losses/total", "losses/a", "metrics/accuracy", "metrics/iou/3"])
      {'losses/total': 'loss', 'metrics/accuracy': 'acc'}
    """
    keys = [key for key in keys if not key.startswith(_PERF) and not _is_entry(key)]
    families = collections.Counter(map(_family, keys))
    keys = [key for key in keys if families[_family(key)] <= _LARGEST_FAMILY]
    losses = [key for key in keys if key.startswith("losses/")]
    if _TOTAL in losses and len(losses) == 2:
        keys = [key for key in keys if key not in losses or key == _TOTAL]
    keys = sorted(keys, key=_place)
    names = {key: _short(key) for key in keys}
    for key, name in names.items():
        if list(names.values()).count(name) > 1:
            names[key] = _without_kind(key) if key.startswith("metrics/") else key
    return names


def is_better_lower(key: str) -> bool | None:
    """Return whether a smaller value is better; `None` if its name does not tell."""
    name = key.lower().replace("-", "_")
    if key.startswith("losses/"):
        return True
    words = set(name.replace("/", "_").split("_"))
    if words & _LOWER:
        return True
    return False if words & _HIGHER else None


_LOWER = {"loss", "error", "err", "mse", "rmse", "mae", "perplexity", "fid", "lpips"}
_HIGHER = {
    *("acc", "accuracy", "auc", "f1", "precision", "recall", "iou", "miou", "psnr"),
    *("ssim", "map", "ari", "rocauc", "top1", "top5"),
}


def number(value: float) -> str:
    """Return a number in at most seven characters.

    Example:
      >>> [number(x) for x in (2.12, 0.0113, 3e-3, 2.4e-5, 151306.0, 8.1e9, 0.0)]
      ['2.120', '0.0113', '0.0030', '2.4e-5', '151306', '8.1e9', '0']
    """
    size = abs(value)
    if not math.isfinite(size):
        return str(float(value))
    if size == 0:
        return "0"
    if size < 0.001 or size >= 1e6:
        text = _scientific(value, 1)
        return text if len(text) <= 7 else _scientific(value, 0)
    if size < 0.1:
        return f"{value:.4f}"
    digits = 3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0
    return f"{value:.{digits}f}"


def rate(per_second: float) -> str:
    """Return a speed with three digits.

    Example:
      >>> rate(0.5), rate(8.25), rate(1612.3)
      ('0.5', '8.25', '1612')
    """
    return f"{per_second:.3g}" if per_second < 1000 else f"{per_second:.0f}"


def percent(fraction: float) -> str:
    """Return a fraction as `12 %`."""
    return f"{100 * fraction:.0f} %"


def _scientific(value: float, digits: int) -> str:
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _family(key: str) -> str:
    """Return the metric that a value is part of: `metrics/iou` for `metrics/iou/cat`.

    Any other value is a family of its own.
    """
    kind, _, name = key.partition("/")
    metric, _, rest = name.partition("/")
    return f"{kind}/{metric}" if kind == "metrics" and rest else key


def _is_entry(key: str) -> bool:
    return key.rpartition("/")[2].isdecimal()


def _place(key: str) -> int:
    if key == _TOTAL:
        return -1
    kinds = [index for index, kind in enumerate(_KINDS) if key.startswith(kind)]
    return kinds[0] if kinds else len(_KINDS)


def _without_kind(key: str) -> str:
    for kind in _KINDS:
        key = key.removeprefix(kind)
    return key


def _short(key: str) -> str:
    if key == _TOTAL:
        return "loss"
    name = _without_kind(key)
    head, _, last = name.rpartition("/")
    last = _SHORT.get(last, last)
    return f"{head}/{last}" if head else last


#
# Descriptions of a run, as Markdown
#


_QUICK_TO_COPY_BYTES = 16 * 2**20  # compiling a program takes longer


def describe_config(config: Any) -> str:
    """Return the config as it would be written in Python."""
    return f"```python\n{config!r}\n```"


def describe_params(params: Any) -> tuple[str, int]:
    """Return a table of the parameters, and their number."""
    flat = kontext.flatten_with_path(params)
    statistics = _statistics(flat)
    rows = [
        (
            path,
            _shape(value),
            str(value.dtype),
            f"{math.prod(value.shape):,}",
            f"{statistics[path][0]:.3g}",
            f"{statistics[path][1]:.3g}",
        )
        for path, value in flat.items()
    ]
    count = sum(math.prod(value.shape) for value in flat.values())
    table = _table(("path", "shape", "dtype", "size", "mean", "std"), rows)
    return f"{table}\n\nTotal: {count:,}", count


def describe_specs(tree: Any) -> str:
    """Return a table of the paths, shapes and dtypes of a tree."""
    flat = kontext.flatten_with_path(tree)
    rows = [
        (path, _shape(leaf), str(getattr(leaf, "dtype", type(leaf).__name__)))
        for path, leaf in flat.items()
    ]
    return _table(("path", "shape", "dtype"), rows)


def describe_context(context: Any) -> str:
    """Return a table of what keys can name; gradients look like the parameters."""
    note = "Same structure as `params`."
    parts = [describe_specs(context.replace(grads=None, updates=None))]
    parts += [
        f"`{name}`: {note}"
        for name in ("grads", "updates")
        if getattr(context, name) is not None
    ]
    return "\n\n".join(parts)


def _statistics(flat: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of each array, computed where that is quickest."""
    is_small = sum(value.nbytes for value in flat.values()) <= _QUICK_TO_COPY_BYTES
    are_here = all(getattr(v, "is_fully_addressable", True) for v in flat.values())
    if is_small and are_here:
        flat = jax.device_get(flat)
        return {path: _mean_and_std(value, np) for path, value in flat.items()}
    return jax.device_get(_all_mean_and_std(flat))


@jax.jit
def _all_mean_and_std(flat: Mapping[str, jax.Array]) -> dict[str, tuple[Any, Any]]:
    return {path: _mean_and_std(value, jnp) for path, value in flat.items()}


def _mean_and_std(value: Any, numpy: Any) -> tuple[Any, Any]:
    value = value.astype(np.float32)
    return numpy.mean(value), numpy.std(value)


def _shape(leaf: Any) -> str:
    return "(" + ", ".join(map(str, getattr(leaf, "shape", ()))) + ")"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
