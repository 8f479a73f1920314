"""Values of metrics."""

import jax


def value_of(metric, **inputs):
    """What `metric(**inputs)` gives, by one program as in a training step."""
    return jax.jit(metric.get_state)(**inputs).compute()


def values_of(*measured):
    """What metrics give, from pairs of a metric and its inputs.

    They are all in one program, as in a training step: many take longer to compile.
    """
    chosen = [metric for metric, _ in measured]

    @jax.jit
    def get_states(all_inputs):
        return [
            metric.get_state(**inputs)
            for metric, inputs in zip(chosen, all_inputs, strict=True)
        ]

    states = get_states([inputs for _, inputs in measured])
    return [state.compute() for state in states]
