"""A readout that configs can name."""

import flax.linen as nn
import jax

from kauldron import kontext


class Readout(nn.Module):
    """A linear layer on what a frozen model gives."""

    model: nn.Module
    readout_inputs: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, readout_inputs):
        features = jax.lax.stop_gradient(self.model(readout_inputs)["y"])
        return {"y": nn.Dense(2, name="head")(features)}
