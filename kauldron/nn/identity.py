"""A named point in a model."""

from __future__ import annotations

from typing import Any

import flax.linen as nn


class Identity(nn.Module):
    """Returns its first argument; its output appears among the intermediates."""

    @nn.compact
    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        return inputs
