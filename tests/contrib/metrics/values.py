"""Values of metrics."""

import jax


def value_of(metric, **inputs):
    """What `metric(**inputs)` gives, by one program as in a training step."""
    return jax.jit(metric.get_state)(**inputs).compute()
