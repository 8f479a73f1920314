"""One optimizer per loss, as GANs need."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import optax

from kauldron import kontext
from kauldron.contrib.train.loss_optimizers import MultiGradientTransformation
from kauldron.losses import compute_losses
from kauldron.train.context import Context
from kauldron.train.forward import forward
from kauldron.train.train_state import TrainState
from kauldron.train.train_step import TrainStep
from kauldron.utils import status


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

    def _step(self, state: TrainState, batch: Any) -> tuple[TrainState, Context]:
        optimizers = self._optimizers()
        context = MultiContext.from_state_and_batch(state=state, batch=batch)
        if any(_reads_subgrads(loss) for loss in self.aux.losses.values()):
            context, subgrads = self._nested_gradients(context, list(optimizers))
        else:
            context, subgrads = self._shared_gradients(context, list(optimizers))
        subupdates, opt_state = {}, {}
        for name, optimizer in optimizers.items():
            subupdates[name], opt_state[name] = optimizer.update(
                subgrads[name], state.opt_state[name], state.params
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
                f"multi_optimizer names {', '.join(unknown)}, which no loss is called. "
                f"Losses: {', '.join(self.aux.losses)}."
            )
        idle = [name for name in self.aux.losses if name not in optimizers]
        if idle:
            status.warn(
                f"No optimizer for the losses {', '.join(idle)}: nothing is trained by them."
            )
        return optimizers

    def _forward(self, params: Any, context: MultiContext) -> MultiContext:
        return forward(
            context.replace(params=params),
            model=self.model,
            rngs=self.rng_streams.train_rngs(context.step),
            is_training=True,
        )

    def _shared_gradients(
        self, context: MultiContext, names: list[str]
    ) -> tuple[MultiContext, dict[str, Any]]:
        """One forward pass, and one backward pass per loss."""

        def losses_of(params: Any) -> tuple[dict[str, jax.Array], MultiContext]:
            ctx = self._forward(params, context)
            totals, states = {}, {}
            for name, loss in self.aux.losses.items():
                totals[name], state = compute_losses({name: loss}, ctx)
                states |= state
            ctx = ctx.replace(loss_states=states, loss_total=sum(totals.values()))
            return {name: totals[name] for name in names}, ctx

        totals, pull_back, new_context = jax.vjp(
            losses_of, context.params, has_aux=True
        )
        zeros = {name: jax.numpy.zeros_like(total) for name, total in totals.items()}
        subgrads = {
            name: pull_back({**zeros, name: jax.numpy.ones_like(totals[name])})[0]
            for name in names
        }
        return new_context, subgrads

    def _nested_gradients(
        self, context: MultiContext, names: list[str]
    ) -> tuple[MultiContext, dict[str, Any]]:
        """Losses that read earlier gradients: differentiate through those."""

        def gradients_until(params: Any, count: int) -> dict[str, Any]:
            subgrads: dict[str, Any] = {}
            for index in range(count):
                subgrads[names[index]] = jax.grad(
                    lambda p, index=index: loss_at(p, index)
                )(params)
            return subgrads

        def loss_at(params: Any, index: int) -> jax.Array:
            ctx = self._forward(params, context)
            if _reads_subgrads(self.aux.losses[names[index]]):
                ctx = ctx.replace(subgrads=gradients_until(params, index))
            total, _ = compute_losses(
                {names[index]: self.aux.losses[names[index]]}, ctx
            )
            return total

        subgrads = gradients_until(context.params, len(names))
        context = self._forward(context.params, context).replace(subgrads=subgrads)
        total, states = compute_losses(self.aux.losses, context)
        return context.replace(loss_states=states, loss_total=total), subgrads


def _reads_subgrads(loss: Any) -> bool:
    keys = jax.tree.leaves(kontext.get_keypaths(loss))
    return any(str(key).split(".")[0] == "subgrads" for key in keys)


def _add_up(trees: Mapping[str, Any]) -> Any:
    return jax.tree.map(lambda *leaves: sum(leaves), *trees.values())
