"""Models as `jax.export` files."""

from __future__ import annotations

import dataclasses
import importlib.util
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
from etils import epath

from kauldron import kontext
from kauldron.export import plain_trees, symbolic_inputs
from kauldron.train.context import Context
from kauldron.train.exporter import ModelExporter
from kauldron.train.forward import forward_on_inputs
from kauldron.utils import config_util, status
from kauldron.utils.checkify_ignore import checkify_ignore
from kauldron.utils.whole_files import write_atomically

if TYPE_CHECKING:
    from kauldron.train.train_state import TrainState

_OWN_ARGUMENTS = ("params", "key", "collections")


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxModelExporter(ModelExporter):
    """Writes the forward pass to a file that `jax.export.deserialize` reads.

    Whoever loads the file needs jax, and neither kauldron nor the model's code:

        exported = jax.export.deserialize(path.read_bytes())
        outputs = exported.call(params=params, key=jax.random.PRNGKey(0), image=image)
        outputs["preds"], outputs["interms"]

    The arguments are those of the model's `__call__` (`batch` for a model without
    keys), `params`, `key`, and `collections` if the model has any. What depends on
    random streams depends on `key` (`uint32[2]`). A training pass also returns the new
    `collections`.

    The file runs on one device, whatever the sharding of the training run.

    Attributes:
      batch_specs: Which sizes stay open: a text for all arrays of the batch, or a tree
        of such texts, a prefix of the batch, as in `jax.export.symbolic_shape`.
        `"b, ..."` leaves the batch size open.
      model_method: Method of the model instead of `__call__`.
      platforms: Where the file can run: `"cpu"`, `"cuda"`, `"rocm"`, `"tpu"`. By
        default the platform of this process and `"cpu"`.
      vjp_order: How many times what is loaded can be differentiated.
      path_template: The file; filled in with `workdir`, `name` and `train_or_eval`.
      is_training: Which forward pass to write; `None` for the one that the trainer asks
        for (training).
      strict: Whether a model that cannot be exported stops the run. Otherwise this is
        logged.
      ds_sharding: Accepted for older configs; has no effect.
    """

    batch_specs: Any = "b, ..."
    model_method: str | None = None
    platforms: Sequence[str] | None = None
    vjp_order: int = 1
    path_template: str = "{workdir}/{name}.jax_exported"
    is_training: bool | None = None
    strict: bool = False
    ds_sharding: Any = config_util.ROOT_CFG_REF.sharding.batch

    def path(self, *, is_training: bool = True) -> epath.Path:
        """Where the file is written.

        Args:
          is_training: What the trainer asks for; the exporter's own `is_training` wins.
        """
        is_training = is_training if self.is_training is None else self.is_training
        try:
            text = self.path_template.format(
                workdir=self.workdir,
                name=self.name,
                train_or_eval="train" if is_training else "eval",
            )
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(
                f"JaxModelExporter.path_template={self.path_template!r} cannot be filled "
                f"in ({error!r}): it may name {{workdir}}, {{name}}, {{train_or_eval}}."
            ) from None
        return epath.Path(text)

    def export(
        self, *, model: Any, state: TrainState, element_spec: Any, is_training: bool
    ) -> None:
        """Write the file; on the lead host only.

        Args:
          model: The flax module.
          state: Its parameters and collections; only their shapes matter.
          element_spec: Specs of a (global) batch.
          is_training: Which forward pass; the exporter's own `is_training` wins.
        """
        if not status.is_lead_host:
            return
        if self.is_training is not None:
            is_training = self.is_training
        path = self.path(is_training=is_training)
        try:
            _require_flatbuffers()
            exported = self._exported(model, state, element_spec, is_training)
            blob = exported.serialize(vjp_order=self.vjp_order)
            write_atomically(path, bytes(blob))
        except Exception as error:
            if self.strict:
                error.add_note(f"Raised while exporting the model to {path}.")
                raise
            status.log_error(
                f"The model is not exported to {path}; training goes on.\n"
                + traceback.format_exc()
            )
            return
        status.log(f"Exported the model to {path} for {', '.join(exported.platforms)}.")

    def _exported(
        self, model: Any, state: TrainState, element_spec: Any, is_training: bool
    ) -> jax.export.Exported:
        batch = symbolic_inputs.batch_structs(element_spec, self.batch_specs)
        inputs = symbolic_inputs.model_inputs(model, batch)
        clashes = [name for name in inputs if name in _OWN_ARGUMENTS]
        if clashes:
            raise ValueError(
                f"The model has an argument called {clashes[0]!r}, as the exported "
                f"function has. Rename it: {', '.join(_OWN_ARGUMENTS)} are taken."
            )
        variables = {"params": symbolic_inputs.structs(state.params)}
        if state.collections:
            variables["collections"] = symbolic_inputs.structs(state.collections)
        function = self._function(model, is_training)
        export = jax.export.export(jax.jit(function), platforms=self._platforms())
        key = jax.ShapeDtypeStruct((2,), "uint32")
        return export(key=key, **variables, **inputs)

    def _platforms(self) -> list[str]:
        if self.platforms is None:
            platforms = [jax.export.default_export_platform(), "cpu"]
        else:
            platforms = ["cuda" if name == "gpu" else name for name in self.platforms]
        return list(dict.fromkeys(platforms))

    def _function(self, model: Any, is_training: bool) -> Any:
        """The pure function that is exported; its arguments are keywords."""

        def function(
            *, params: Any, key: Any, collections: Any = None, **inputs: Any
        ) -> dict[str, Any]:
            rngs = {
                name: _fold_in_key(stream_key, key)
                for name, stream_key in self.get_rngs(is_training).items()
            }
            context = Context(
                step=0, batch=None, params=params, collections=collections
            )
            takes_batch = not kontext.is_key_annotated(model)
            context = forward_on_inputs(
                context,
                (inputs["batch"],) if takes_batch else (),
                {} if takes_batch else inputs,
                model=model,
                rngs=rngs,
                is_training=is_training,
                method=self.model_method,
            )
            outputs = {"preds": context.preds, "interms": context.interms}
            if is_training:
                outputs["collections"] = context.collections
            return plain_trees.to_plain(outputs)

        function.__name__ = self.model_method or "__call__"
        return checkify_ignore(function)


def _require_flatbuffers() -> None:
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError(
            "jax writes exported models with flatbuffers, which is not installed: "
            'pip install "kauldron[export]"'
        )


def _fold_in_key(key: Any, other: Any) -> Any:
    """A key that depends on both."""
    return jax.random.fold_in(jax.random.fold_in(key, other[0]), other[1])
