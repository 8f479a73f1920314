"""The perceptual distance, with made-up weights of the right shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import metrics
from kauldron.metrics import lpips

CHANNELS = (4, 4, 8, 8, 8)
PER_BLOCK = (2, 2, 3, 3, 3)


def make_weights(seed=0):
    """A narrow network: the layers of the real one, with few channels."""
    rng = np.random.default_rng(seed)
    weights, features_in = {}, 3
    for block, (num, features) in enumerate(zip(PER_BLOCK, CHANNELS), start=1):
        for index in range(1, num + 1):
            kernel = rng.normal(size=(3, 3, features_in, features)) / 3
            weights[f"conv{block}_{index}/kernel"] = kernel.astype(np.float32)
            bias = rng.normal(size=(features,)) / 10
            weights[f"conv{block}_{index}/bias"] = bias.astype(np.float32)
            features_in = features
        kernel = rng.uniform(size=(1, 1, features, 1))
        weights[f"lin{block}/kernel"] = kernel.astype(np.float32)
    return weights


def reference(pred, target, weights):
    """One image pair, in numpy."""
    shift = (1 + np.array([-0.030, -0.088, -0.188])) / 2
    scale = np.array([0.458, 0.448, 0.450]) / 2
    features = [(image - shift) / scale for image in (pred, target)]
    total = 0.0
    for block, num in enumerate(PER_BLOCK, start=1):
        if block > 1:
            features = [max_pool(f) for f in features]
        for index in range(1, num + 1):
            name = f"conv{block}_{index}"
            features = [
                np.maximum(
                    convolve(f, weights[f"{name}/kernel"]) + weights[f"{name}/bias"], 0
                )
                for f in features
            ]
        a, b = (f / np.sqrt((f**2).sum(-1, keepdims=True) + 1e-5) for f in features)
        total += ((a - b) ** 2 @ weights[f"lin{block}/kernel"][0, 0]).mean()
    return total


def convolve(x, kernel):
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    height, width = x.shape[:2]
    return sum(
        padded[i : i + height, j : j + width] @ kernel[i, j]
        for i in range(3)
        for j in range(3)
    )


def max_pool(x):
    height, width = x.shape[0] // 2 * 2, x.shape[1] // 2 * 2
    x = x[:height, :width]
    return x.reshape(height // 2, 2, width // 2, 2, -1).max((1, 3))


def images(*shape):
    return np.random.default_rng(1).uniform(size=(2, *shape)).astype(np.float32)


def test_matches_numpy():
    weights = make_weights()
    pred, target = images(2, 16, 18, 3)
    expected = np.mean([reference(a, b, weights) for a, b in zip(pred, target)])
    value = metrics.LpipsVgg(weights=weights)(pred=pred, target=target)
    assert value == pytest.approx(expected, rel=1e-4)


def test_value_range_and_mask():
    weights = make_weights()
    pred, target = images(2, 16, 18, 3)
    metric = metrics.LpipsVgg(weights=weights, in_vrange=(-1.0, 1.0))
    mask = np.array([[1.0], [0.0]])
    value = metric(pred=2 * pred - 1, target=2 * target - 1, mask=mask)
    assert value == pytest.approx(reference(pred[0], target[0], weights), rel=1e-4)


def test_equal_images_have_no_distance():
    pred, _ = images(2, 16, 18, 3)
    metric = metrics.LpipsVgg(weights=make_weights())
    assert metric(pred=pred, target=pred) == pytest.approx(0.0, abs=1e-10)


def test_weights_are_read_from_a_file_once(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, **make_weights())
    pred, target = images(2, 16, 18, 3)
    metric = metrics.LpipsVgg(weights=path)
    from_tree = metrics.LpipsVgg(weights=make_weights())(pred=pred, target=target)
    assert metric(pred=pred, target=target) == pytest.approx(from_tree, rel=1e-6)
    path.unlink()
    state = jax.jit(metric.get_state)(
        pred=jnp.asarray(pred), target=jnp.asarray(target)
    )
    assert state.compute() == pytest.approx(from_tree, rel=1e-5)


def test_nested_trees_of_weights_are_accepted_and_have_a_hash():
    nested = {}
    for name, array in make_weights().items():
        layer, leaf = name.split("/")
        nested.setdefault(layer, {})[leaf] = array
    metric = metrics.LpipsVgg(weights=nested)
    pred, target = images(2, 16, 18, 3)
    assert metric(pred=pred, target=target) > 0
    assert isinstance(hash(metric), int)


def test_missing_weights_say_what_to_set():
    pred, target = images(2, 16, 18, 3)
    with pytest.raises(FileNotFoundError) as info:
        metrics.LpipsVgg()(pred=pred, target=target)
    assert str(info.value).startswith("Using `LpipsVgg` requires")
    assert "`weights`" in str(info.value)


def test_incomplete_weights_name_what_is_missing():
    weights = make_weights()
    del weights["lin3/kernel"]
    pred, target = images(2, 16, 18, 3)
    with pytest.raises(ValueError, match="'lin3/kernel'"):
        metrics.LpipsVgg(weights=weights)(pred=pred, target=target)


def test_too_small_images_are_refused():
    with pytest.raises(ValueError, match="15 x 16"):
        pred, target = images(1, 15, 16, 3)
        metrics.LpipsVgg(weights=make_weights())(pred=pred, target=target)


def test_package_ships_no_weights():
    assert not lpips.DEFAULT_WEIGHTS.exists()
