"""TensorFlow, imported when something of it is first used."""

from __future__ import annotations

import importlib
from typing import Any


class _LazyTensorFlow:
    """Stands for the module `tensorflow`, which is an optional dependency."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspection must not load TensorFlow
            raise AttributeError(name)
        try:
            return getattr(importlib.import_module("tensorflow"), name)
        except ModuleNotFoundError as error:
            raise ImportError(
                'kd.data.tf needs TensorFlow: pip install "kauldron[tf]"'
            ) from error


tf: Any = _LazyTensorFlow()
