"""`kd.utils`: lower parts of the library that extensions may use, by their older names."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from kauldron.lazy_namespace import older_modules, suggest_names

if TYPE_CHECKING:
    from kauldron import config_base as config_util  # noqa: F401
    from kauldron import immutabledict as immutabledict
    from kauldron import status as status
    from kauldron import utils as utils
    from kauldron.cli import job as error_utils  # noqa: F401
    from kauldron.train.forward import checkify_ignore as checkify_ignore
    from kauldron.train.run import chrono as chrono
    from kauldron.train.run import workdir_files as constants  # noqa: F401

_PUBLIC = (
    *("chrono", "colab", "config_util", "constants", "error_utils", "immutabledict"),
    *("status", "utils", "enum_iter", "json_list_to_tuple"),
)

older_modules(
    __name__,
    {
        "base_config": "kauldron.config_base",
        "batch_mask": "kauldron.batch_mask",
        "chrono": "kauldron.train.run.chrono kauldron.train.compat",
        "chrono_utils": "kauldron.train.run.chrono",
        "colab": "kauldron.kxm.sweeps.notebook",
        "config_util": "kauldron.config_base",
        "constants": "kauldron.train.run.workdir_files",
        "error_context": "kauldron.errors",
        "error_utils": "kauldron.cli.job kauldron.errors",
        "explained_arguments": "kauldron.errors",
        "immutabledict": "kauldron.immutabledict",
        "interms_property": "kauldron.nn.properties",
        "pd_utils": "kauldron.inspect.styled_frame",
        "root_cfg_ref": "kauldron.config_base",
        "sharding_utils": "kauldron.kd kauldron.sharding",
        "small_tools": "kauldron.utils kauldron.train.forward",
        "status": "kauldron.status",
        "status_utils": "kauldron.status",
        "train_property": "kauldron.nn.properties",
        "update_from_root": "kauldron.config_base",
        "utils": "kauldron.utils kauldron.train.forward",
        "whole_files": "kauldron.files",
    },
)

_Element = TypeVar("_Element")


def enum_iter(
    iter: Iterable[_Element],
    *,
    init_step: int = 0,
    total_steps: int | None = None,
    desc: str | None = None,
    log_xm: bool = False,
    **tqdm_kwargs: Any,
) -> Iterator[tuple[int, _Element]]:
    """Yield `(step, element)` pairs and show the progress.

    Args:
      iter: The elements. No element is skipped for `init_step`, and none is taken
        without being yielded.
      init_step: Number of the first step.
      total_steps: Stop before this step. `None` or negative: at the end of the data.
      desc: Text beside the bar.
      log_xm: Ignored.
      **tqdm_kwargs: Options of `tqdm`. Only `disable=True`, for no bar, and `total` have
        an effect.

    Yields:
      The step and the element.

    Example:
      >>> elements = __builtins__["iter"]("abc")
      >>> list(enum_iter(elements, total_steps=2, disable=True))
      [(0, 'a'), (1, 'b')]
      >>> next(elements)
      'c'
    """
    del log_xm
    if total_steps is not None and total_steps < 0:
        total_steps = None
    bar_total = tqdm_kwargs.get("total", total_steps)
    if bar_total is None and (size := operator.length_hint(iter, -1)) >= 0:
        bar_total = init_step + size
    steps = (
        itertools.count(init_step)
        if total_steps is None
        else range(init_step, total_steps)
    )
    # `zip` asks the steps first, so it takes no element after the last step.
    pairs = zip(steps, iter)
    if tqdm_kwargs.get("disable"):
        yield from pairs
        return
    yield from _with_bar(pairs, desc=desc or "", start=init_step, total=bar_total)


def _with_bar(
    pairs: Iterable[tuple[int, _Element]], *, desc: str, start: int, total: int | None
) -> Iterator[tuple[int, _Element]]:
    import rich.console
    import rich.progress

    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeRemainingColumn(),
    )
    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(*columns, console=console) as progress:
        task = progress.add_task(desc, total=total, completed=start)
        for step, element in pairs:
            yield step, element
            progress.update(task, completed=step + 1)


def json_list_to_tuple(value: Any) -> Any:
    """Turn the lists of decoded JSON into tuples, at all depths.

    >>> json_list_to_tuple({"shape": [1, [2, 3]]})
    {'shape': (1, (2, 3))}
    """
    if isinstance(value, dict):
        return {key: json_list_to_tuple(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(json_list_to_tuple(item) for item in value)
    return value


def __dir__() -> list[str]:
    return sorted({*_PUBLIC, *(name for name in globals() if name[:2] == "__")})


suggest_names(__name__)
