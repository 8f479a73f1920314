"""Pictures of noise with random labels, to see how fast a model trains."""

import numpy as np


def make(count: int, size: int, num_classes: int) -> dict[str, np.ndarray]:
    """Return `count` pictures of `size` x `size` pixels, and their labels."""
    rng = np.random.default_rng(0)
    return {
        "image": rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8),
        "label": rng.integers(0, num_classes, (count, 1), dtype=np.int32),
    }
