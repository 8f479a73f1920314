"""Random transforms take generators and seeds."""

import numpy as np
import pytest

from kauldron import kd

IMAGE = np.arange(48, dtype=np.float32).reshape(4, 4, 3)


@pytest.mark.parametrize(
    "transform",
    [
        kd.data.py.RandomCrop(key="image", shape=(2, 2, None)),
        kd.contrib.data.GaussianBlur(key="image"),
        kd.contrib.data.RandomResize(key="image"),
    ],
    ids=lambda transform: type(transform).__name__,
)
@pytest.mark.parametrize("seed", [3, (0, 1), [5, 6]], ids=str)
def test_seed_stands_for_its_generator(transform, seed):
    results = [
        transform.random_map({"image": IMAGE}, np.random.default_rng(seed)),
        transform.random_map({"image": IMAGE}, seed),
        transform.random_map({"image": IMAGE}, rng=seed),
        transform.random_map({"image": IMAGE}, seed=seed),
        transform.random_map({"image": IMAGE}, seed=np.random.default_rng(seed)),
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result["image"], results[0]["image"])


def test_own_transforms_take_seeds_too():
    class Noise(kd.data.RandomMapTransform):
        def random_map(self, element, rng):
            return element + rng.normal()

    assert Noise().random_map(0.0, seed=1) == Noise().random_map(0.0, seed=1)
    assert Noise().random_map(0.0, seed=1) != Noise().random_map(0.0, seed=(1, 2))
