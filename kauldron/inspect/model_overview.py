"""A table of the modules of a model."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Mapping
from typing import Any

import jax

from kauldron import konfig
from kauldron.data import utils as data_utils
from kauldron.inspect.module_calls import Path, record_calls, specs_text
from kauldron.inspect.tables import Table, make_table

_COLUMNS = (
    "Path",
    "Module",
    "Inputs",
    "Outputs",
    "Parameter Shapes",
    "Own Params",
    "Total Params",
)
_CONFIG_WIDTH = 200


def get_colab_model_overview(
    *,
    model: Any,
    train_ds: Any,
    ds_sharding: Any,
    model_config: Any = None,
    rngs: Mapping[str, Any],
) -> Any:
    """A table with a row per call of a module. Nothing is computed.

    Args:
      model: The flax module.
      train_ds: Data set whose batches the model gets.
      ds_sharding: Sharding of the batches.
      model_config: The config that the model was made from, for the column `Cfg`.
      rngs: Keys by stream name, such as `trainer.rng_streams.init_rngs()`.

    Returns:
      A styled DataFrame (`.data` is the DataFrame; without pandas, a plain table). Its
      columns are `Cfg` (if a config is given), `Path`, `Module`, `Inputs`, `Outputs`,
      `Parameter Shapes`, `Own Params` (without those of modules inside) and `Total
      Params`. Parameters count in the first row of their module, so that `Own Params`
      sums up to the total of the root, which is that of the model.
    """
    rows = overview_rows(
        model=model, train_ds=train_ds, ds_sharding=ds_sharding, rngs=rngs
    )
    columns = _COLUMNS
    if model_config is not None:
        columns = ("Cfg", *_COLUMNS)
        for row in rows:
            row["Cfg"] = _config_at(model_config, row["Path"])
    return _styled(make_table(columns, rows))


def overview_rows(
    *, model: Any, train_ds: Any, ds_sharding: Any, rngs: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The rows of the table."""
    spec = data_utils.get_global_elem_spec(train_ds.element_spec, ds_sharding)

    def make_inputs() -> Any:
        batch = data_utils.mock_batch_from_elem_spec(spec, ds_sharding)
        return data_utils.get_model_inputs_from_batch(model, batch)

    recorder, params = record_calls(model, rngs, make_inputs)
    seen: set[Path] = set()
    rows = []
    for call in recorder.calls:
        below = {} if call.path in seen else _subtree(params, call.path)
        seen.add(call.path)
        own = _own_params(below, call.path, recorder.paths)
        row = (
            ".".join(call.path),
            call.module,
            call.inputs,
            call.outputs,
            specs_text(own),
            _count(own),
            _count(below),
        )
        rows.append(dict(zip(_COLUMNS, row)))
    return rows


def _subtree(params: Any, path: Path) -> Any:
    for name in path:
        params = params.get(name, {}) if isinstance(params, Mapping) else {}
    return params


def _own_params(params: Any, path: Path, modules: set[Path]) -> dict[str, Any]:
    """The parameters that belong to no module inside."""
    if not isinstance(params, Mapping):
        return {}
    return {name: p for name, p in params.items() if (*path, name) not in modules}


def _count(params: Any) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def _config_at(model_config: Any, path: str) -> str:
    """What the config says about the module, if its fields have the module's names."""
    indexed = re.sub(r"_(\d+)(?=\.|$)", r"[\1]", path)  # layers_0 is layers[0]
    for candidate in (path, indexed):
        try:
            node = konfig.get_by_path(model_config, candidate) if path else model_config
        except (KeyError, TypeError, ValueError):
            continue
        text = repr(node)
        is_long = len(text) > _CONFIG_WIDTH
        return f"{text[: _CONFIG_WIDTH - 3]}..." if is_long else text
    return ""


def _styled(table: Any) -> Any:
    if isinstance(table, Table) or importlib.util.find_spec("jinja2") is None:
        return table
    style = table.style.hide(axis="index")
    return style.set_properties(
        **{"white-space": "pre-line", "text-align": "left", "vertical-align": "top"}
    )
