"""Readout heads on a model that is frozen, or trained along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax.core
import flax.linen as nn
import jax

from kauldron import kontext
from kauldron.errors import ReadableKeyError, did_you_mean

_INTERNAL = ("preds", "interms")


class ReadoutWrapper(nn.Module, kw_only=True):  # pyright: ignore
    """A model with heads that read its results and intermediate values.

    The result is that of the model, and under `readouts` those of the heads. Parameters
    are under `model` and `readout_heads_<head>`.

    A path of a head that begins with `preds` is looked up in the result of the inner
    model, one that begins with `interms` among the intermediate values of this module:
    `interms.model.encoder.__call__[0]`. All others are keys of the trainer's context,
    such as `batch.image`.

    Attributes:
      model: The inner model; it returns a dict.
      model_inputs: From the model's arguments to keys; by default the model's own keys.
      readout_heads: The heads by name.
      readout_inputs: From the name of a head to its arguments and their paths; `None`,
        or no entry, for the head's own keys.
      finetune: Whether the losses of the heads train the model too.

    Example:
      ```
      cfg.model = kd.contrib.nn.ReadoutWrapper(
          model=kd.contrib.nn.get_model_from_workdir("runs/1"),
          readout_heads={"label": nn.Dense(features=10)},
          readout_inputs={"label": {"inputs": "interms.model.encoder.__call__[0]"}},
      )
      ```
    """

    model: nn.Module
    model_inputs: Mapping[str, str | None] | None = None
    readout_heads: Mapping[str, nn.Module]
    readout_inputs: Mapping[str, Mapping[str, str | None] | None]
    finetune: bool = False

    def __post_init__(self) -> None:
        unknown = [
            head for head in self.readout_inputs if head not in self.readout_heads
        ]
        if unknown:
            raise ValueError(
                f"readout_inputs: there is no head {unknown[0]!r} among "
                f"{sorted(self.readout_heads)}."
                + did_you_mean(unknown[0], self.readout_heads)
            )
        # The name of a head is that of its entry.
        self.readout_heads = flax.core.freeze(
            {
                name: head
                if head.name is None or head.parent is not None
                else head.clone(name=None)
                for name, head in self.readout_heads.items()
            }
        )
        self.readout_inputs = flax.core.freeze(dict(self.readout_inputs))
        if self.model_inputs is not None:
            self.model_inputs = flax.core.freeze(dict(self.model_inputs))
        super().__post_init__()

    @nn.compact
    def __call__(self, **inputs: Any) -> dict[str, Any]:
        before: Any = self.variables.get("intermediates", {})
        before = flax.core.unfreeze(before)  # a copy
        preds = self.model(
            **{arg: inputs[name] for name, arg, _ in self._model_keys if name in inputs}
        )
        self._check_result(preds)
        found = {
            "preds": preds,
            "interms": _added(self.variables.get("intermediates", {}), before),
        }
        readouts = {}
        for head, module in self.readout_heads.items():
            values = {
                arg: inputs[name] if _is_external(path) else _find(found, path, head)
                for name, arg, path in self._head_keys(head)
                if (name in inputs if _is_external(path) else path is not None)
            }
            if not self.finetune:
                values = jax.lax.stop_gradient(values)
            readouts[head] = module(**values)
        return {**preds, "readouts": readouts}

    def __kontext_keys__(self) -> dict[str, Any]:
        keys: dict[str, Any] = {}
        of_heads = [
            key
            for head in self.readout_heads
            for key in self._head_keys(head)
            if _is_external(key[-1])
        ]
        for name, _, path in [*self._model_keys, *of_heads]:
            if keys.setdefault(name, path) != path:
                raise ValueError(
                    f"Two heads have an argument that is called {name!r} here, from "
                    f"{keys[name]!r} and {path!r}: rename one of them."
                )
        return keys

    @property
    def _model_keys(self) -> list[tuple[str, str, Any]]:
        """Name here, argument and path of each input of the model."""
        keys = self.model_inputs
        if keys is None:
            keys = kontext.get_keypaths(self.model)
        if not keys:
            raise ValueError(
                f"{type(self.model).__name__} has no keys: tell where its inputs are, "
                "`ReadoutWrapper(model_inputs={'image': 'batch.image'}, ...)`."
            )
        return [(f"model_{arg}", arg, path) for arg, path in keys.items()]

    def _head_keys(self, head: str) -> list[tuple[str, str, Any]]:
        keys = self.readout_inputs.get(head)
        if keys is None:
            keys = kontext.get_keypaths(self.readout_heads[head])
        return [(f"readout_{head}_{arg}", arg, path) for arg, path in keys.items()]

    def _check_result(self, preds: Any) -> None:
        name = type(self.model).__name__
        if not isinstance(preds, Mapping):
            raise ValueError(
                f"ReadoutWrapper: {name} must return a dict, to which the readouts are "
                f"added, not {type(preds).__name__}."
            )
        if "readouts" in preds:
            raise ValueError(
                f"ReadoutWrapper: the result of {name} has a field 'readouts', which is "
                "the name of what the heads return."
            )


def _is_external(path: Any) -> bool:
    if path is None:
        return False
    if not isinstance(path, str) or not path:
        return True  # a missing key: the trainer tells
    return kontext.Path.from_str(path).parts[0] not in _INTERNAL


def _find(found: Mapping[str, Any], path: str, head: str) -> Any:
    try:
        return kontext.get_by_path(found, path)
    except (KeyError, IndexError, AttributeError, TypeError) as error:
        available = [
            f"{part}.{name}"
            for part in _INTERNAL
            for name in kontext.flatten_with_path(found[part])
        ]
        hint = did_you_mean(path, available)
        if path.startswith("interms") and not found["interms"]:
            hint = (
                " No intermediate values are collected: pass "
                "`capture_intermediates=True` to `init` and `apply`, as the trainer does."
            )
        raise ReadableKeyError(
            f"The readout head {head!r} reads {path!r}, which the model does not have."
            f"{hint} There is: {', '.join(available)}."
        ) from error


def _added(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was stored since; values of an earlier call may have been passed in."""
    result: dict[str, Any] = {}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping):
            value = _added(value, old if isinstance(old, Mapping) else {})
        elif isinstance(value, tuple) and isinstance(old, tuple):
            value = value[len(old) :]
        if not (isinstance(value, Mapping | tuple) and not value):
            result[name] = value
    return result
