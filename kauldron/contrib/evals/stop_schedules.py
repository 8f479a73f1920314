"""How long to train a readout, by how long its model was trained."""

from __future__ import annotations


def default_stop_after_steps_schedule_fn(step: int, num_train_steps: int) -> int:
    """Always all steps.

    >>> default_stop_after_steps_schedule_fn(10, 500)
    500
    """
    del step
    return num_train_steps


def linear_stop_after_steps_schedule_fn(
    step: int, num_train_steps: int, ramp_up_for_num_pre_training_steps: int = 100_000
) -> int:
    """Few steps for an early model, all of them from the end of the ramp on.

    Args:
      step: Step of the model.
      num_train_steps: Steps of the readout's config.
      ramp_up_for_num_pre_training_steps: Step of the model from which on the readout
        gets all its steps.

    Returns:
      The number of steps, at least 1.

    Example:
      >>> linear_stop_after_steps_schedule_fn(50_000, 500)
      250
      >>> linear_stop_after_steps_schedule_fn(0, 500)
      1
    """
    steps = int(num_train_steps * step / ramp_up_for_num_pre_training_steps)
    return min(max(steps, 1), num_train_steps)
