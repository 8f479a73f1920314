"""What to do about errors of flax that a trainer knows more about."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import flax.errors

_HINTS = {
    "deterministic": "Use `kd.nn.Dropout`, which knows whether the model is training.",
    "use_running_average": (
        "Declare `is_training = kd.nn.train_property()` in the model, and call "
        "`nn.BatchNorm(use_running_average=not self.is_training)(x)`."
    ),
}


@contextlib.contextmanager
def model_hints() -> Iterator[None]:
    """Around calls of a model: add what to do to errors of flax."""
    try:
        yield
    except flax.errors.InvalidRngError as error:
        error.add_note(
            "The model asks for a random stream that it is not given here. Name it in "
            "`cfg.rng_streams = kd.train.RngStreams([kd.train.RngStream('...')])`, with "
            "`eval=True` if evaluations need it too."
        )
        raise
    except ValueError as error:
        missing = re.search(r'Parameter "(\w+)" must be passed', str(error))
        if missing and missing[1] in _HINTS:
            error.add_note(_HINTS[missing[1]])
        raise
