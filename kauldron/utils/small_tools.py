"""Small tools, reached as `kd.utils.utils`."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


def checkify_ignore(fn: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Make `fn` run its `checkify.check` calls without effect.

    A function with such checks cannot be jitted as it is. This makes it possible, for
    example to initialise a model, at the price of dropping what the checks find.

    Args:
      fn: Any function of JAX arrays.

    Returns:
      The function, with the same signature and name.

    Example:
      >>> import jax
      >>> from jax.experimental import checkify
      >>> @jax.jit
      ... @checkify_ignore
      ... def root(x):
      ...     checkify.check(x >= 0, "negative")
      ...     return x**0.5
      >>> float(root(4.0))
      2.0
    """
    from jax.experimental import checkify

    checked = checkify.checkify(fn, errors=checkify.user_checks)

    @functools.wraps(fn)
    def ignoring(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        _, result = checked(*args, **kwargs)
        return result

    return ignoring


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
