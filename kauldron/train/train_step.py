"""`TrainStep`: how the state begins, and one step of optimisation."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import checkify
from jax.sharding import NamedSharding, Sharding

from kauldron import config_base, kontext
from kauldron import sharding as kd_sharding
from kauldron.ckpts.init_transforms import check_only_values_changed
from kauldron.data import model_inputs
from kauldron.errors import a_type, error_prefix
from kauldron.losses import compute_losses
from kauldron.optim.problems import explained_optimizer_init
from kauldron.optim.updates import scan_parts, update, with_zeros
from kauldron.sharding import device_mesh
from kauldron.sharding.tree import ShardingTree, flatten_with_shardings
from kauldron.train.compat import ModelWithAux
from kauldron.train.forward import (
    checkify_ignore,
    forward_with_loss,
    model_hints,
    warn_if_constant,
)
from kauldron.train.forward import forward as forward  # users take it from here
from kauldron.train.programs import compute_in_parts, is_tracing, jit_method
from kauldron.train.state import Auxiliaries, AuxiliariesState, Context, TrainState

if TYPE_CHECKING:
    import flax.linen as nn

    from kauldron import ckpts
    from kauldron.train.rng_streams import RngStreams


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainStep(config_base.UpdateFromRootCfg):
    """How the state starts, and how a batch changes it.

    To change what a step does, override `_step`. All fields are the trainer's unless
    given.

    Attributes:
      model: The flax module.
      optimizer: The optax transformation; `None` for evaluation only.
      rng_streams: Where random keys come from.
      sharding: Where arrays live.
      init_transform: Changes the initial state, for example by loading weights.
      num_microbatches: In how many parts, one after the other, a batch is computed.
      aux: Losses, metrics and summaries.
    """

    model: nn.Module = config_base.ROOT_CFG_REF.model
    optimizer: optax.GradientTransformation = config_base.ROOT_CFG_REF.optimizer
    rng_streams: RngStreams = config_base.ROOT_CFG_REF.rng_streams
    sharding: kd_sharding.ShardingStrategy = config_base.ROOT_CFG_REF.sharding
    init_transform: ckpts.InitTransform = config_base.ROOT_CFG_REF.init_transform
    num_microbatches: int = config_base.ROOT_CFG_REF.num_microbatches
    aux: Auxiliaries = dataclasses.field(default_factory=Auxiliaries)

    #
    # Initialisation
    #

    def init(
        self,
        elem_spec: Any,
        *,
        model_method: str | None = None,
        skip_transforms: bool = False,
        skip_optimizer: bool = False,
    ) -> TrainState:
        """Return the state before the first step.

        Args:
          elem_spec: Specs of one (process-local) batch.
          model_method: Method of the model to initialise with, instead of `__call__`.
          skip_transforms: Whether to leave out `init_transform`.
          skip_optimizer: Whether to leave `opt_state` as `None`.

        Returns:
          The state at step 0 (or at the step that a transform loaded).
        """
        self._assert_root_cfg_resolved()
        if self.model is None:
            raise ValueError("`trainer.model` is not set; set `cfg.model = ...`.")
        check_arrays(elem_spec)
        state = self._init_model(elem_spec, model_method=model_method)
        if not skip_transforms:
            state = self._init_transform(state)
        if self.optimizer is not None and not skip_optimizer:
            state = self._init_optimizer(state)
        if not skip_transforms:
            state = self._init_transform_after_optimizer(state)
        return state

    def _init_model(self, elem_spec: Any, *, model_method: str | None) -> TrainState:
        specs, structure = jax.tree.flatten(elem_spec)
        arguments = (tuple(specs), structure, model_method)
        if is_tracing():
            return self._init_variables(*arguments)
        traced = self._init_variables.trace(*arguments)
        return compute_in_parts(traced, self._state_shardings)

    @jit_method(inline=True, static_argnums=(0, 1, 2))
    def _init_variables(
        self, specs: tuple[Any, ...], structure: Any, model_method: str | None
    ) -> TrainState:
        """Initialise the model; traced once for the specs of a state and its values."""
        elem_spec = jax.tree.unflatten(structure, specs)
        elem_spec = model_inputs.get_global_elem_spec(elem_spec, self.sharding.batch)
        check_divisible(elem_spec, self.sharding.batch)
        batch = model_inputs.mock_batch_from_elem_spec(elem_spec, self.sharding.batch)
        args, kwargs = model_inputs.get_model_inputs_from_batch(self.model, batch)
        on_what = " on the whole batch (it has no `kontext.Key` fields)" if args else ""

        @checkify_ignore
        def init(rngs: Any, args: Any, kwargs: Any) -> Any:
            return self.model.init(
                rngs,
                *args,
                **kwargs,
                method=model_method,
                is_training_property=True,
                capture_intermediates=True,
            )

        with (
            self.sharding.set_global_mesh(),
            model_hints(),
            error_prefix(
                lambda: f"Initialising {type(self.model).__name__}{on_what} failed: "
            ),
        ):
            variables = dict(init(self.rng_streams.init_rngs(), args, kwargs))
        variables.pop("intermediates", None)
        params = variables.pop("params", {})
        return self._constrain(
            TrainState(
                step=jnp.zeros((), jnp.int32), params=params, collections=variables
            )
        )

    def _init_transform(self, state: TrainState) -> TrainState:
        return self._constrain_if_changed(state, self.init_transform.transform(state))

    @jit_method(donate_argnames="state")
    def _init_optimizer(self, state: TrainState) -> TrainState:
        with (
            self.sharding.set_global_mesh(),
            explained_optimizer_init(),
        ):
            state = state.replace(opt_state=self.optimizer.init(state.params))
        return self._constrain(state)

    def _init_transform_after_optimizer(self, state: TrainState) -> TrainState:
        transformed = self.init_transform.transform_after_optimizer(state)
        return self._constrain_if_changed(state, transformed)

    def _constrain_if_changed(
        self, state: TrainState, transformed: TrainState
    ) -> TrainState:
        if transformed is state:
            return state
        check_only_values_changed(self.init_transform, state, transformed)
        return self._constrain(transformed)

    def _constrain(self, state: TrainState) -> TrainState:
        shardings = jax.tree.unflatten(
            jax.tree.structure(state), self._state_shardings(state)
        )
        return kd_sharding.with_sharding_constraint(state, shardings)

    def _state_shardings(self, state: TrainState) -> list[Sharding]:
        """Return a sharding for each array of the state; XLA chooses none.

        What it chose would be known only after compiling, and might change from one
        step to the next, which compiles the step again. So what the strategy does not
        place is replicated, as the step number is.
        """
        shardings = self.sharding.state
        default: Any = shardings.step
        if shardings.opt_state is None and state.opt_state is not None:
            opt_state = follow_params(
                state.opt_state, state.params, shardings.params, default=default
            )
            shardings = shardings.replace(opt_state=opt_state)
        return [
            default if leaf.sharding is None else leaf.sharding
            for leaf in flatten_with_shardings(state, shardings)
        ]

    #
    # Steps
    #

    @jit_method(
        static_argnames=(
            "return_losses",
            "return_metrics",
            "return_summaries",
            "checkify_error_categories",
        ),
        donate_argnames="state",
    )
    def step(
        self,
        state: TrainState,
        batch: Any,
        *,
        return_losses: bool = False,
        return_metrics: bool = False,
        return_summaries: bool = False,
        checkify_error_categories: frozenset[Any] = frozenset(),
    ) -> tuple[TrainState, AuxiliariesState]:
        """Apply one update. The state that is passed in is consumed: do not reuse it.

        Args:
          state: The state before the update; its memory is given to the new one.
          batch: The batch, on the devices.
          return_losses: Whether to return the states of the losses.
          return_metrics: Whether to return the states of the metrics.
          return_summaries: Whether to return the states of the summaries.
          checkify_error_categories: Which run-time checks to make.

        Returns:
          The state after the update, and the states that were asked for.
        """
        error = None
        with self.sharding.set_global_mesh():
            if checkify_error_categories:
                checked = checkify.checkify(
                    self._checked_step, errors=checkify_error_categories
                )
                error, (state, context) = checked(state, batch)
            else:
                state, context = self._checked_step(state, batch)
        aux = context.get_aux_state(
            return_losses=return_losses,
            return_metrics=return_metrics,
            return_summaries=return_summaries,
        )
        aux = kd_sharding.with_sharding_constraint(aux, self.sharding.aux)
        return self._constrain(state), aux.replace(error=error)

    @jit_method(inline=True)
    def _checked_step(
        self, state: TrainState, batch: Any
    ) -> tuple[TrainState, Context]:
        """`_step`, whose result may be that of a subclass; traced once for all uses."""
        result: Any = self._step(state, batch)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise TypeError(
                f"{type(self).__name__}._step must return (state, context), got "
                f"{type(result).__name__}."
            )
        if not isinstance(result[1], Context):
            raise TypeError(
                f"{type(self).__name__}._step must return a kd.train.Context (or a "
                f"subclass) after the state, got {type(result[1]).__name__}."
            )
        return result

    def _step(self, state: TrainState, batch: Any) -> tuple[TrainState, Context]:
        """One step inside `jit`: the method to override.

        Args:
          state: The state before the update.
          batch: The batch.

        Returns:
          The state after the update, and the context that keys look into.
        """
        start = Context.from_state_and_batch(state=state, batch=batch)

        loss, context, grads = self._gradients(start)
        updates, opt_state = self._optimizer_update(
            grads,
            state,
            value=loss,
            grad=grads,
            value_fn=lambda params: self._loss_of_params(params, start)[0],
        )
        next_state = state.replace(
            step=state.step + 1,
            params=optax.apply_updates(state.params, updates),
            opt_state=opt_state,
            collections=context.collections,
        )
        context = context.replace(
            grads=grads, updates=updates, opt_state=state.opt_state
        )
        return next_state, self.aux.update_context(context)

    def _gradients(self, start: Context) -> tuple[jax.Array, Context, Any]:
        """Return the loss, the context after the forward pass, and the gradients."""

        def loss_of(params: Any, context: Context, part: Any) -> Any:
            total, context = self._loss_of_params(params, context, part=part)
            if self.aux.losses:
                warn_if_constant(total, params, "The loss")
            return total, context

        def differentiate(context: Context, part: Any = None) -> Any:
            (loss, new_context), grads = jax.value_and_grad(
                loss_of, has_aux=True, allow_int=True
            )(start.params, context, part)
            return loss, new_context, with_zeros(grads, start.params)

        if self.num_microbatches == 1:
            return differentiate(start)

        def of_part(collections: Any, part: Any, batch: Any) -> Any:
            context = start.replace(batch=batch, collections=collections)
            loss, context, grads = differentiate(context, part)
            return context.collections, (loss, grads), (context.preds, context.interms)

        collections, (loss, grads), (preds, interms) = scan_parts(
            of_part, start.collections, start.batch, self.num_microbatches
        )
        context = start.replace(collections=collections, preds=preds, interms=interms)
        _, states = compute_losses(self.aux.losses, context)
        return loss, context.replace(loss_states=states, loss_total=loss), grads

    def _loss_of_params(
        self, params: Any, context: Context, *, part: Any = None
    ) -> tuple[jax.Array, Context]:
        rngs = self.rng_streams.train_rngs(context.step)
        if part is not None:
            rngs = {name: jax.random.fold_in(rng, part) for name, rng in rngs.items()}
        total, new_context = forward_with_loss(
            context.replace(params=params),
            model=self.model,
            losses=self.aux.losses,
            rngs=rngs,
            is_training=True,
        )
        # Keys read the parameters of this step, not a differentiation tracer.
        return total, new_context.replace(params=context.params)

    def _optimizer_update(
        self, grads: Any, state: TrainState, **extra_args: Any
    ) -> tuple[Any, Any]:
        if self.optimizer is None:
            raise ValueError(
                "`trainer.optimizer` is not set; set `cfg.optimizer = ...`."
            )
        with error_prefix("The update of `trainer.optimizer` failed: "):
            return update(
                self.optimizer, grads, state.opt_state, state.params, **extra_args
            )

    @property
    def model_with_aux(self) -> ModelWithAux:
        """The model together with what is measured on it."""
        return ModelWithAux.of(self)


#
# Batches that cannot be trained on, found from their specs
#


def check_numbers(spec: Any) -> None:
    """Refuse texts, which cannot be put on a device."""
    check_arrays(spec)
    for path, leaf in kontext.flatten_with_path(spec).items():
        if np.dtype(leaf.dtype).kind in "OSU":
            raise TypeError(
                f"`trainer.train_ds` gives texts under {path!r}, which cannot be put on "
                f"a device. Drop them: `kd.data.Elements(drop=[{path!r}])`."
            )


def check_arrays(spec: Any) -> None:
    """Refuse lists and plain numbers."""
    for path, leaf in kontext.flatten_with_path(spec).items():
        if not hasattr(leaf, "dtype"):
            raise TypeError(
                f"`trainer.train_ds` gives {a_type(leaf)} under {path!r}: "
                "batches hold arrays, such as `np.asarray(...)` makes."
            )


def check_divisible(spec: Any, sharding: Any) -> None:
    """Refuse batches, over all processes, that the devices cannot share."""
    default = device_mesh.FIRST_DIM
    for leaf in flatten_with_shardings(spec, default if sharding is None else sharding):
        here = leaf.sharding or default
        if not isinstance(here, NamedSharding) or None in leaf.value.shape:
            continue
        try:
            here.shard_shape(tuple(leaf.value.shape))
        except (ValueError, IndexError) as error:
            raise ValueError(
                f"`batch` of shape {tuple(leaf.value.shape)} at {leaf.name} cannot be "
                f"divided among {here.mesh.size} devices by {here.spec}: its first "
                "dimension must be a multiple of their number. Change "
                "`cfg.train_ds.batch_size`, or `cfg.sharding.batch`."
            ) from error


#
# Where the state of an optimizer lives, when only the parameters' place was given
#


def follow_params(
    opt_state: Any, params: Any, shardings: ShardingTree, *, default: Any
) -> ShardingTree:
    """Place the moments of an optimizer state where their parameters are.

    Initial moments are constants, which XLA would put on every device as a whole; and a
    state that moves after the first step would be compiled for twice. What is called and
    shaped like a parameter, below whatever the optimizer puts around it, belongs to that
    parameter; the rest, such as a count of steps, gets the `default`.
    """
    of_param = {
        (_names(leaf.path), np.shape(leaf.value)): leaf.sharding
        for leaf in flatten_with_shardings(params, shardings)
    }

    def find(path: Any, value: Any) -> Any:
        names, shape = _names(path), np.shape(value)
        suffixes = (names[start:] for start in range(len(names)))
        owners = (of_param[s, shape] for s in suffixes if (s, shape) in of_param)
        return next(owners, default)

    return jax.tree_util.tree_map_with_path(find, opt_state)


def _names(path: Any) -> tuple[str, ...]:
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
