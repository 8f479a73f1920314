"""Models as `jax.export` files."""

from __future__ import annotations

import dataclasses
import importlib.util
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from etils import epath

from kauldron import config_base, kontext, status
from kauldron.data.model_inputs import array_spec_to_jnp_empty, get_model_inputs
from kauldron.files import write_atomically
from kauldron.train.forward import checkify_ignore, forward_on_inputs
from kauldron.train.setup import ModelExporter
from kauldron.train.state import Context

if TYPE_CHECKING:
    from kauldron.train.state import TrainState

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
    ds_sharding: Any = config_base.ROOT_CFG_REF.sharding.batch

    def path(self, *, is_training: bool = True) -> epath.Path:
        """Return the path of the file.

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
                f"The model was not exported to {path}; training continues.\n"
                + traceback.format_exc()
            )
            return
        status.log(f"Exported the model to {path} for {', '.join(exported.platforms)}.")

    def _exported(
        self, model: Any, state: TrainState, element_spec: Any, is_training: bool
    ) -> jax.export.Exported:
        batch = batch_structs(element_spec, self.batch_specs)
        inputs = model_inputs(model, batch)
        clashes = [name for name in inputs if name in _OWN_ARGUMENTS]
        if clashes:
            raise ValueError(
                f"The model has an argument called {clashes[0]!r}, a name that the "
                "exported function needs itself. Rename the argument; reserved names: "
                f"{', '.join(_OWN_ARGUMENTS)}."
            )
        variables = {"params": structs(state.params)}
        if state.collections:
            variables["collections"] = structs(state.collections)
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
        """Return the pure function that is exported; its arguments are keywords."""

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
            return to_plain(outputs)

        function.__name__ = self.model_method or "__call__"
        return checkify_ignore(function)


def _require_flatbuffers() -> None:
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError(
            "jax writes exported models with flatbuffers, which is not installed: "
            'pip install "kauldron[export]"'
        )


def _fold_in_key(key: Any, other: Any) -> Any:
    """Return a key that depends on both."""
    return jax.random.fold_in(jax.random.fold_in(key, other[0]), other[1])


#
# Inputs, with sizes left open
#


def batch_structs(element_spec: Any, batch_specs: Any) -> Any:
    """Return a batch of shapes, some of whose sizes are symbols.

    Args:
      element_spec: Specs of a batch.
      batch_specs: Texts as `jax.export.symbolic_shape` reads them, in a tree that is a
        prefix of the batch. Numbers without a shape have no size to leave open.

    Returns:
      The batch as `jax.ShapeDtypeStruct`s; `None` for texts, which no model reads.

    Raises:
      ValueError: A text cannot be read, or is for another number of dimensions.
    """
    specs, structure = jax.tree.flatten(element_spec)
    texts = jax.tree.leaves(jax.tree.broadcast(batch_specs, element_spec))
    arrays = [_struct(spec) for spec in specs]
    shapes = [
        None if array is None else (text if array.ndim else "")
        for array, text in zip(arrays, texts)
    ]
    try:
        symbolic = jax.export.symbolic_args_specs(arrays, shapes)
    except (ValueError, IndexError) as error:  # whose message names no array
        known = kontext.flatten_with_path(element_spec, prefix="batch")
        sizes = ", ".join(f"{path}: {spec.shape}" for path, spec in known.items())
        raise ValueError(
            f"batch_specs={batch_specs!r} does not fit the batch ({sizes}): {error}"
        ) from error
    return jax.tree.unflatten(structure, symbolic)


def _struct(spec: Any) -> jax.ShapeDtypeStruct | None:
    if spec.dtype == np.dtype(object):
        return None
    return jax.eval_shape(lambda: array_spec_to_jnp_empty(spec))


def model_inputs(model: Any, batch: Any) -> dict[str, Any]:
    """Return the shapes of the arguments of a model, by name.

    The one argument of a model without keys is called `batch`.
    """
    if not kontext.is_key_annotated(model):
        return {"batch": batch}

    def read(step: Any, batch: Any) -> dict[str, Any]:
        _, inputs = get_model_inputs(model, Context(step=step, batch=batch))
        return {name: value for name, value in inputs.items() if value is not None}

    return jax.eval_shape(read, jax.ShapeDtypeStruct((), "int32"), batch)


def structs(tree: Any) -> Any:
    """Return shapes and dtypes of arrays, without their shardings."""
    return jax.tree.map(
        lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), tree
    )


#
# Outputs, in containers that need no classes
#


def to_plain(tree: Any) -> Any:
    """Return the tree with every container of another type replaced by a dict.

    Named tuples and registered dataclasses become dicts by the names of their fields.

    Example:
      >>> import collections
      >>> Point = collections.namedtuple("Point", ["x", "y"])
      >>> to_plain([Point(1, (2, None))])
      [{'x': 1, 'y': (2, None)}]
    """
    if type(tree) in (list, tuple):
        return type(tree)(map(to_plain, tree))
    children = jax.tree_util.tree_leaves_with_path(
        tree, is_leaf=lambda node: node is not tree
    )
    if children and not children[0][0]:  # no container
        return tree
    if not children and tree is None:
        return None
    return {
        jax.tree_util.keystr(path, simple=True): to_plain(child)
        for path, child in children
    }
