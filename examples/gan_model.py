"""The model and losses of `gan_multi_optimizer.py`."""

import dataclasses

import flax.linen as nn
import jax

from kauldron import kd, kontext
from kauldron.typing import Float, typechecked


class Generator(nn.Module):
    """From noise to flat pictures with values in [-1, 1]."""

    @nn.compact
    def __call__(self, noise):
        x = nn.leaky_relu(nn.Dense(128)(noise))
        x = nn.leaky_relu(nn.Dense(128)(x))
        return nn.tanh(nn.Dense(64)(x))


class Discriminator(nn.Module):
    """From flat pictures to one logit: is it real?"""

    @nn.compact
    def __call__(self, x):
        x = nn.leaky_relu(nn.Dense(128)(x))
        x = kd.nn.Dropout(0.3)(x)
        x = nn.leaky_relu(nn.Dense(64)(x))
        return nn.Dense(1)(x)


class Gan(nn.Module):
    """Generates as many pictures as it is shown, and judges both."""

    real: kontext.Key = kontext.REQUIRED
    noise_size: int = 16

    def setup(self):
        self.generator = Generator()
        self.discriminator = Discriminator()

    def __call__(self, real):
        noise = jax.random.normal(
            self.make_rng("default"), (real.shape[0], self.noise_size)
        )
        fake = self.generator(noise)
        return {
            "real_logits": self.discriminator(real),
            "fake_logits": self.discriminator(fake),
            "image": fake.reshape(-1, 8, 8, 1),
        }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class DiscriminatorLoss(kd.losses.Loss):
    """Real pictures have high logits, generated ones low."""

    real_logits: kontext.Key = kontext.REQUIRED
    fake_logits: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(
        self, real_logits: Float["b 1"], fake_logits: Float["b 1"]
    ) -> Float["b 1"]:
        return nn.softplus(-real_logits) + nn.softplus(fake_logits)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class GeneratorLoss(kd.losses.Loss):
    """Generated pictures are taken for real."""

    fake_logits: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, fake_logits: Float["b 1"]) -> Float["b 1"]:
        return nn.softplus(-fake_logits)
