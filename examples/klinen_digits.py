"""Recognise handwritten digits: a training loop with nothing but a model and optax.

    python examples/klinen_digits.py

The model carries its parameters, its random keys and its mode, so that the loop passes
one object around.
"""

import flax.linen as nn
import jax
import numpy as np
import optax
from sklearn.datasets import load_digits

from kauldron import klinen as knn


class Classifier(knn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(128)(x))
        x = nn.Dropout(0.2)(x, deterministic=not self.training)
        return nn.Dense(10)(x)


@jax.jit
def train_step(model, opt_state, x, y):
    def loss_fn(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    grads = jax.grad(loss_fn)(model)
    updates, opt_state = optimizer.update(grads, opt_state, model)
    return optax.apply_updates(model, updates).with_rng(), opt_state


rng = np.random.default_rng(0)
images, labels = load_digits(return_X_y=True)
order = rng.permutation(len(labels))
x, y = images[order].astype(np.float32) / 16, labels[order]

model = Classifier().init_bind(0, x[:1]).with_rng(1)
optimizer = optax.adam(3e-3)
opt_state = optimizer.init(model)
for _ in range(200):
    batch = rng.integers(0, 1400, 64)  # the last 397 images are for testing
    model, opt_state = train_step(model, opt_state, x[batch], y[batch])

accuracy = (model.eval()(x[1400:]).argmax(-1) == y[1400:]).mean()
print(f"test accuracy: {accuracy:.1%}")
