"""Other train steps: an optimizer for each loss, as GANs need, and none at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn, Self

import jax
import jax.numpy as jnp
import optax

from kauldron import kontext, status
from kauldron.errors import did_you_mean
from kauldron.losses import compute_losses
from kauldron.optim.updates import update, with_zeros
from kauldron.train.forward import forward, warn_if_constant
from kauldron.train.state import Context, TrainState
from kauldron.train.train_step import TrainStep


class MultiGradientTransformation(optax.GradientTransformationExtraArgs):
    """The optimizer that `multi_optimizer` returns.

    Attributes:
      loss_to_optimizer: The optimizers by the name of their loss.
    """

    loss_to_optimizer: Mapping[str, optax.GradientTransformation]


def multi_optimizer(
    **loss_to_optimizer: optax.GradientTransformation,
) -> MultiGradientTransformation:
    """Return an optimizer that has another one for each loss, for example in a GAN.

    To be used with `trainstep=kd.contrib.train.MultiTrainStep()`, which computes the
    gradients of each loss.

    Args:
      **loss_to_optimizer: Optimizers by the name of a loss. Usually each is restricted
        to some parameters by `kd.optim.partial_update`.

    Returns:
      A transformation whose state is a dict from the names to the optimizers' states.

    Example:
      >>> from kauldron import kd
      >>> optimizer = multi_optimizer(
      ...     discriminator=kd.optim.partial_update(
      ...         optimizer=optax.adam(1e-4), mask=kd.optim.select("discriminator")
      ...     ),
      ...     generator=kd.optim.partial_update(
      ...         optimizer=optax.adam(1e-4), mask=kd.optim.select("generator")
      ...     ),
      ... )
      >>> list(optimizer.init({"discriminator": 1.0, "generator": 1.0}))
      ['discriminator', 'generator']
    """
    if not loss_to_optimizer:
        raise ValueError(
            "multi_optimizer() needs at least one optimizer: "
            "`multi_optimizer(loss_name=optax.adam(1e-3))`."
        )

    def init(params: Any) -> dict[str, optax.OptState]:
        return {name: tx.init(params) for name, tx in loss_to_optimizer.items()}

    transform = MultiGradientTransformation(init, _refuse_update)
    transform.loss_to_optimizer = MappingProxyType(loss_to_optimizer)
    return transform


def _refuse_update(*args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        "The optimizer is a `multi_optimizer`, which needs the gradients of each loss: "
        "use it with `cfg.trainstep = kd.contrib.train.MultiTrainStep()`."
    )


class MultiContext(Context):
    """A context with what each loss contributes.

    Attributes:
      subgrads: Gradients of each loss by its name.
      subupdates: Updates of each loss's optimizer by its name.
    """

    subgrads: Any = None
    subupdates: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MultiTrainStep(TrainStep):
    """A train step for `kd.contrib.train.multi_optimizer(loss_name=optimizer, ...)`.

    Each loss is differentiated on its own, at the same parameters, and updated by its
    own optimizer; the updates are added up. A loss may read the gradients of the losses
    before it under `"subgrads.<loss>"`.
    """

    def update_from_root_cfg(self, root_cfg: Any) -> Self:
        """Return a copy for this trainer, whose losses must include those with optimizers."""
        updated = super().update_from_root_cfg(root_cfg)
        if updated.num_microbatches != 1:
            raise ValueError(
                "MultiTrainStep computes whole batches: `cfg.num_microbatches` must be 1."
            )
        if isinstance(updated.optimizer, MultiGradientTransformation):
            updated._optimizers()
        return updated

    def _step(self, state: TrainState, batch: Any) -> tuple[TrainState, Context]:
        optimizers = self._optimizers()
        idle = [name for name in self.aux.losses if name not in optimizers]
        if idle:
            status.warn(
                f"No optimizer for the losses {', '.join(idle)}: nothing is trained by them."
            )
        start = MultiContext.from_state_and_batch(state=state, batch=batch)
        if any(_reads_subgrads(loss) for loss in self.aux.losses.values()):
            context, values, subgrads = self._nested_gradients(start, list(optimizers))
        else:
            context, values, subgrads = self._shared_gradients(start, list(optimizers))
        subupdates, opt_state = {}, {}
        for name, optimizer in optimizers.items():
            subgrads[name] = with_zeros(subgrads[name], state.params)
            subupdates[name], opt_state[name] = update(
                optimizer,
                subgrads[name],
                state.opt_state[name],
                state.params,
                value=values[name],
                grad=subgrads[name],
                value_fn=lambda params, name=name: self._loss_at(params, name, start),
            )
        updates = _add_up(subupdates)
        next_state = state.replace(
            step=state.step + 1,
            params=optax.apply_updates(state.params, updates),
            opt_state=opt_state,
            collections=context.collections,
        )
        context = context.replace(
            params=state.params,
            grads=_add_up(subgrads),
            updates=updates,
            subgrads=subgrads,
            subupdates=subupdates,
            opt_state=state.opt_state,
        )
        return next_state, self.aux.update_context(context)

    def _optimizers(self) -> Mapping[str, optax.GradientTransformation]:
        if not isinstance(self.optimizer, MultiGradientTransformation):
            raise ValueError(
                "MultiTrainStep needs `cfg.optimizer = "
                "kd.contrib.train.multi_optimizer(loss_name=...)`, got "
                f"{type(self.optimizer).__name__}."
            )
        optimizers = self.optimizer.loss_to_optimizer
        unknown = [name for name in optimizers if name not in self.aux.losses]
        if unknown:
            raise ValueError(
                f"`trainer.optimizer`: multi_optimizer names {', '.join(unknown)}, which "
                f"is not the name of a loss.{did_you_mean(unknown[0], self.aux.losses)} "
                f"Losses: {', '.join(self.aux.losses) or 'none'}."
            )
        return optimizers

    def _forward(self, params: Any, context: MultiContext) -> MultiContext:
        return forward(
            context.replace(params=params),
            model=self.model,
            rngs=self.rng_streams.train_rngs(context.step),
            is_training=True,
        )

    def _with_losses(
        self, context: MultiContext
    ) -> tuple[dict[str, jax.Array], MultiContext]:
        totals, states = {}, {}
        for name, loss in self.aux.losses.items():
            totals[name], state = compute_losses({name: loss}, context)
            states |= state
        return totals, context.replace(
            loss_states=states, loss_total=sum(totals.values())
        )

    def _shared_gradients(
        self, context: MultiContext, names: list[str]
    ) -> tuple[MultiContext, dict[str, jax.Array], dict[str, Any]]:
        """Differentiate with one forward pass, and one backward pass per loss."""

        def losses_of(params: Any) -> tuple[dict[str, jax.Array], MultiContext]:
            totals, ctx = self._with_losses(self._forward(params, context))
            for name in names:
                warn_if_constant(totals[name], params, f"The loss {name!r}")
            return {name: totals[name] for name in names}, ctx

        totals, pull_back, new_context = jax.vjp(
            losses_of, context.params, has_aux=True
        )
        zeros = {name: jax.numpy.zeros_like(total) for name, total in totals.items()}
        subgrads = {
            name: pull_back({**zeros, name: jax.numpy.ones_like(totals[name])})[0]
            for name in names
        }
        return new_context, totals, subgrads

    def _nested_gradients(
        self, context: MultiContext, names: list[str]
    ) -> tuple[MultiContext, dict[str, jax.Array], dict[str, Any]]:
        """Differentiate losses that read earlier gradients, through those as well."""
        subgrads = self._gradients(context.params, names, context)
        context = self._forward(context.params, context).replace(subgrads=subgrads)
        totals, context = self._with_losses(context)
        return context, totals, subgrads

    def _gradients(
        self, params: Any, names: list[str], context: MultiContext
    ) -> dict[str, Any]:
        grad = jax.grad(self._loss_at, allow_int=True)
        return {name: grad(params, name, context) for name in names}

    def _loss_at(self, params: Any, name: str, context: MultiContext) -> jax.Array:
        """Compute one loss at other parameters."""
        ctx = self._forward(params, context)
        if _reads_subgrads(self.aux.losses[name]):
            names = list(self._optimizers())
            earlier = names[: names.index(name)]
            ctx = ctx.replace(subgrads=self._gradients(params, earlier, context))
        return compute_losses({name: self.aux.losses[name]}, ctx)[0]


def _reads_subgrads(loss: Any) -> bool:
    keys = jax.tree.leaves(kontext.get_keypaths(loss))
    return any(str(key).split(".")[0] == "subgrads" for key in keys)


def _add_up(trees: Mapping[str, Any]) -> Any:
    return jax.tree.map(lambda *leaves: sum(leaves), *trees.values())


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoopTrainStep(TrainStep):
    """Counts steps and computes nothing, to measure how fast the data comes.

    The state has no parameters, and nothing is measured: losses, metrics and summaries
    of the trainer are left out.
    """

    def init(self, elem_spec: Any, **kwargs: Any) -> TrainState:
        del elem_spec, kwargs
        return TrainState(
            step=jnp.zeros((), jnp.int32), params={}, collections={}, opt_state={}
        )

    def _step(self, state: TrainState, batch: Any) -> tuple[TrainState, Context]:
        context = Context.from_state_and_batch(state=state, batch=batch)
        return state.replace(step=state.step + 1), context.replace(
            loss_states={}, metric_states={}, summary_states={}
        )
