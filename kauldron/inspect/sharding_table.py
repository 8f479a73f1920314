"""Where the state of an experiment lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from kauldron import kontext
from kauldron.inspect.spec_tree import array_spec_text
from kauldron.inspect.tables import make_table
from kauldron.inspect.views import show

if TYPE_CHECKING:
    from kauldron.train import Trainer

_COLUMNS = ("Path", "Spec", "Sharding", "Per Device")


def plot_sharding(trainer: Trainer) -> Any:
    """Show how each array of the state is spread over the devices.

    Nothing is computed: shapes and the sharding strategy are enough.

    Args:
      trainer: The experiment.

    Returns:
      In a notebook nothing, it is displayed. Elsewhere a table with a row per array:
      `Path`, `Spec` (dtype and shape), `Sharding` (the axes of the mesh that its
      dimensions are split over) and `Per Device` (the part that one device holds).
    """
    return show(sharding_table(trainer))


def sharding_table(trainer: Trainer) -> Any:
    """The table that `plot_sharding` shows."""
    flat = kontext.flatten_with_path(trainer.state_specs)
    return make_table(
        _COLUMNS, [describe_leaf(path, leaf) for path, leaf in flat.items()]
    )


def describe_leaf(path: str, spec: Any) -> dict[str, str]:
    """The row of one array."""
    sharding = spec.sharding
    part = spec.shape if sharding is None else sharding.shard_shape(spec.shape)
    return {
        "Path": path,
        "Spec": array_spec_text(spec),
        "Sharding": _describe(sharding),
        "Per Device": array_spec_text(jax.ShapeDtypeStruct(part, spec.dtype)),
    }


def _describe(sharding: Any) -> str:
    if sharding is None:
        return "left to jax"
    if sharding.is_fully_replicated:
        return f"replicated on {sharding.num_devices}"
    spec = getattr(sharding, "spec", None)
    return str(sharding) if spec is None else f"{spec} on {sharding.num_devices}"
