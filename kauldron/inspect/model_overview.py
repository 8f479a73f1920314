"""The modules of a model as a table, and its train step as the compiler sees it."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax

from kauldron import konfig
from kauldron.data import model_inputs
from kauldron.inspect.specs import array_spec_text
from kauldron.inspect.views import Table, make_table
from kauldron.train import trainer_fields
from kauldron.train.forward import checkify_ignore

if TYPE_CHECKING:
    from kauldron.train import Trainer

#
# A table of the modules
#


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
    """Return a table with a row per call of a module. Nothing is computed.

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
    """Return the rows of the table."""
    spec = model_inputs.get_global_elem_spec(train_ds.element_spec, ds_sharding)

    def make_inputs() -> Any:
        batch = model_inputs.mock_batch_from_elem_spec(spec, ds_sharding)
        return model_inputs.get_model_inputs_from_batch(model, batch)

    calls, paths, params = record_calls(model, rngs, make_inputs)
    seen: set[Path] = set()
    for path, row in calls:
        below = {} if path in seen else _subtree(params, path)
        seen.add(path)
        own = _own_params(below, path, paths)
        row["Parameter Shapes"] = specs_text(own)
        row |= {"Own Params": _count(own), "Total Params": _count(below)}
    return [row for _, row in calls]


def _subtree(params: Any, path: Path) -> Any:
    for name in path:
        params = params.get(name, {}) if isinstance(params, Mapping) else {}
    return params


def _own_params(params: Any, path: Path, modules: set[Path]) -> dict[str, Any]:
    """Return the parameters that belong to no module inside."""
    if not isinstance(params, Mapping):
        return {}
    return {name: p for name, p in params.items() if (*path, name) not in modules}


def _count(params: Any) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def _config_at(model_config: Any, path: str) -> str:
    """Return the config of the module, if its fields have the module's names."""
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


#
# Which modules a model calls, found without computing anything
#


_LONGEST = 8  # lines of one cell

Path = tuple[str, ...]


def record_calls(
    model: nn.Module, rngs: Mapping[str, Any], make_inputs: Callable[[], Any]
) -> tuple[list[tuple[Path, dict[str, Any]]], set[Path], Any]:
    """Return the calls in `model.init`, all modules, and the shapes of the parameters.

    A call is the path of the module and what a row says of it, outer calls first.
    `make_inputs` gives `(args, kwargs)` of the model and is only traced.
    """
    calls: list[tuple[Path, dict[str, Any]]] = []
    paths: set[Path] = set()
    running: list[Any] = []

    def record(
        function: Callable[..., Any], args: Any, kwargs: Any, context: Any
    ) -> Any:
        module, name = context.module, context.method_name
        path = tuple(module.path)
        paths.add(path)
        is_own_detail = bool(running) and running[-1] is module
        if is_own_detail or name == "setup":
            return function(*args, **kwargs)
        cls = type(module).__name__
        row = {
            "Path": ".".join(path),
            "Module": cls if name == "__call__" else f"{cls}.{name}",
            "Inputs": specs_text(_arguments(args, kwargs)),
            "Outputs": "",  # stays if the call raises what its caller catches
        }
        calls.append((path, row))
        running.append(module)
        try:
            result = function(*args, **kwargs)
        finally:
            running.pop()
        row["Outputs"] = specs_text(result)
        return result

    @checkify_ignore
    def init() -> Any:
        args, kwargs = make_inputs()
        return model.init(dict(rngs), *args, **kwargs, is_training_property=True)

    with nn.intercept_methods(record):
        variables = jax.eval_shape(init)
    return calls, paths, variables.get("params", {})


def specs_text(tree: Any) -> str:
    """Return the shapes of a tree: one, or a line for each with its path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    lines = []
    for path, leaf in leaves:
        is_array = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
        spec = array_spec_text(leaf) if is_array else repr(leaf)
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        lines.append(f"{name}: {spec}" if name else spec)
    if len(lines) > _LONGEST:
        more = len(lines) - _LONGEST + 1
        lines = [*lines[: _LONGEST - 1], f"and {more} more"]
    return "\n".join(lines)


def _arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if len(args) == 1 and not kwargs:
        return args[0]
    return {**{str(index): arg for index, arg in enumerate(args)}, **kwargs}


#
# The train step as the compiler sees it
#


def lower_trainstep(trainer: Trainer, **flags: Any) -> jax.stages.Lowered:
    """Lower `trainer.trainstep.step`, without data and without parameters.

    Args:
      trainer: The experiment.
      **flags: Of `TrainStep.step`, such as `return_metrics=True`.

    Returns:
      The lowered step. `.as_text()` shows it; `.compile()` gives its costs
      (`cost_analysis()`) and its memory (`memory_analysis()`).
    """
    return trainer.trainstep.step.lower(
        trainer.state_specs, trainer_fields.batch_specs(trainer), **flags
    )
