"""Everything about an experiment on one page."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kauldron import konfig
from kauldron.inspect.batches import batch_view, get_batch_stats
from kauldron.inspect.charts import get_connection_graph
from kauldron.inspect.model_overview import get_colab_model_overview
from kauldron.inspect.specs import sharding_table, view_context
from kauldron.inspect.views import View, format_table, html_table, rows_of, show

if TYPE_CHECKING:
    from kauldron.train import Trainer


def show_trainer_info(
    trainer: Trainer,
    *,
    print_cfg: bool = True,
    inspect_dataset: bool = True,
    inspect_params: bool = True,
    inspect_sharding: bool = True,
    inspect_connected: bool = True,
    profile_statix: bool = True,
) -> Any:
    """Show an experiment: config, data, model, shardings, keys.

    Only the data is really read (one batch); the rest is found from shapes. A part that
    cannot be shown says why, and the others are shown.

    Args:
      trainer: The experiment.
      print_cfg: Whether to show the config.
      inspect_dataset: Whether to show the first batch of `train_ds`.
      inspect_params: Whether to show the modules and their parameters.
      inspect_sharding: Whether to show where the state lives.
      inspect_connected: Whether to show what keys can name, and which part reads what.
      profile_statix: Accepted for older code; has no effect.

    Returns:
      In a notebook nothing, it is displayed in parts that fold. Elsewhere a view that
      prints as text; `view.save("experiment.html")` writes a page.
    """
    del profile_statix
    sections: dict[str, tuple[bool, Callable[[Trainer], View]]] = {
        "Config": (print_cfg, _view_config),
        "Data": (inspect_dataset, _view_data),
        "Model": (inspect_params, _view_model),
        "Sharding": (inspect_sharding, _view_sharding),
        "Context": (inspect_connected, view_context),
        "Keys": (inspect_connected, _view_keys),
    }
    views = {
        title: _guarded(make, trainer)
        for title, (is_shown, make) in sections.items()
        if is_shown
    }
    return show(_join(views))


def _guarded(make: Callable[[Trainer], View], trainer: Trainer) -> View:
    try:
        return make(trainer)
    except Exception as error:
        return _text_view(f"This cannot be shown: {type(error).__name__}: {error}")


def _join(views: dict[str, View]) -> View:
    pages = [
        f"<details open><summary><b>{title}</b></summary>{view.html}</details>"
        for title, view in views.items()
    ]
    texts = [
        f"{title}\n{'-' * len(title)}\n{view.text}" for title, view in views.items()
    ]
    return View(html="".join(pages), text="\n\n".join(texts), title="Experiment")


def _view_config(trainer: Trainer) -> View:
    if trainer.raw_cfg is None:
        return _text_view(repr(trainer))
    return View(html=konfig.to_html(trainer.raw_cfg), text=repr(trainer.raw_cfg))


def _view_data(trainer: Trainer) -> View:
    batch = next(iter(trainer.train_ds))
    statistics, pictures = _table_view(get_batch_stats(batch)), batch_view(batch)
    return View(
        html=statistics.html + pictures.html,
        text=f"{statistics.text}\n{pictures.text}",
    )


def _view_model(trainer: Trainer) -> View:
    overview = get_colab_model_overview(
        model=trainer.model,
        train_ds=trainer.train_ds,
        ds_sharding=trainer.sharding.batch,
        rngs=trainer.rng_streams.init_rngs(),
    )
    return _table_view(getattr(overview, "data", overview))


def _view_sharding(trainer: Trainer) -> View:
    return _table_view(sharding_table(trainer))


def _view_keys(trainer: Trainer) -> View:
    graph = get_connection_graph(trainer)
    view = _text_view(graph.source)
    try:
        return View(html=graph.pipe(format="svg", encoding="utf-8"), text=view.text)
    except Exception:  # no graphviz, or not the program that draws
        return view


def _table_view(table: Any) -> View:
    columns, rows = rows_of(table)
    return View(html=html_table(columns, rows), text=format_table(columns, rows))


def _text_view(text: str) -> View:
    return View(html=f"<pre>{html.escape(text)}</pre>", text=text)
