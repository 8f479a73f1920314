"""What a model is called with."""

from __future__ import annotations

import dataclasses
from typing import Any

from kauldron import kontext
from kauldron.utils.batch_mask import without_mask


def get_model_inputs(
    model: Any, context: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of the model's call.

    Args:
      model: With keys (`kontext.Key` fields), it gets what they name in the context;
        without, the whole batch as its only argument (less the mask of its filler).
      context: Has at least a `batch`.

    Returns:
      Positional arguments and keyword arguments.
    """
    if not kontext.is_key_annotated(model):
        return (without_mask(context.batch),), {}
    call = model.__call__ if callable(model) else None
    return (), kontext.resolve_from_keyed_obj(context, model, func=call)


def get_model_inputs_from_batch(
    model: Any, batch: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of the model's call where there is nothing but a batch."""
    return get_model_inputs(model, _BatchContext(batch=batch))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _BatchContext:
    """The context before the first step."""

    batch: Any
    step: int = 0
