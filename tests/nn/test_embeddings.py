"""Patches and position embeddings: shapes, order, values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd
from tests.nn.param_shapes import param_shapes, random_variables

KEY = jax.random.key(0)


#
# Patches
#


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_patches_are_in_the_order_of_rows_columns_channels(batch):
    images = np.arange(np.prod(batch, dtype=int) * 4 * 6 * 3, dtype=np.float32)
    images = images.reshape(*batch, 4, 6, 3)
    patches = np.asarray(kd.nn.Patchify(patch_size=[2, 3]).apply({}, images))
    assert patches.shape == (*batch, 4, 18)
    np.testing.assert_array_equal(
        patches[..., 1, :], images[..., :2, 3:, :].reshape(*batch, 18)
    )
    np.testing.assert_array_equal(
        patches[..., 2, :], images[..., 2:, :3, :].reshape(*batch, 18)
    )


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_embedded_patches_are_patches_times_the_kernel(batch):
    images = np.random.default_rng(1).normal(size=(*batch, 4, 6, 3)).astype(np.float32)
    module = kd.nn.PatchifyEmbed(patch_size=(2, 3), hidden_size=8)
    variables = random_variables(module, images)
    patches = np.asarray(kd.nn.Patchify(patch_size=(2, 3)).apply({}, images))
    params = variables["params"]["patchifier"]
    expected = patches @ params["kernel"].reshape(18, 8) + params["bias"]
    out = jax.jit(module.apply)(variables, images)
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_params_of_embedded_patches():
    module = kd.nn.PatchifyEmbed(patch_size=(2, 3), hidden_size=8)
    assert param_shapes(module, np.ones((1, 4, 6, 3), np.float32)) == {
        "patchifier/kernel": (2, 3, 3, 8),
        "patchifier/bias": (8,),
    }


def test_image_that_patches_do_not_fill():
    images = np.random.default_rng(1).normal(size=(1, 5, 7, 3)).astype(np.float32)
    with pytest.raises(ValueError, match=r"5 x 7 pixels.*patches of 2 x 3"):
        kd.nn.Patchify(patch_size=(2, 3)).apply({}, images)
    module = kd.nn.PatchifyEmbed(patch_size=(2, 3), hidden_size=8)
    variables = random_variables(module, images)
    apply = jax.jit(module.apply)
    np.testing.assert_allclose(
        apply(variables, images), apply(variables, images[:, :4, :6]), atol=1e-6
    )


def test_modules_with_sizes_from_lists_can_be_hashed():
    assert hash(kd.nn.Patchify(patch_size=[2, 3]))
    assert hash(kd.nn.AddEmbedding(emb=kd.nn.ZeroEmbedding(), axis=[-2, -3]))


#
# Positions
#


@pytest.mark.parametrize(
    "shape, axis, param",
    [
        ((2, 5, 8), -2, (5, 8)),
        ((2, 4, 5, 8), (-3,), (4, 1, 8)),
        ((2, 4, 5, 8), [-3, -2], (4, 5, 8)),
        ((2, 4, 5, 8), (-4, -2), (2, 1, 5, 8)),
        ((2, 1, 8), -2, (8,)),
    ],
)
def test_learned_embedding_has_entries_along_its_axes(shape, axis, param):
    module = kd.nn.LearnedEmbedding()
    variables = random_variables(module, shape, axis=axis)
    embeddings = variables["params"]["embeddings"]
    assert embeddings.shape == param
    out = module.apply(variables, shape, axis=axis)
    np.testing.assert_array_equal(out, np.broadcast_to(embeddings, shape))


def test_learned_embedding_starts_small_under_a_name_of_its_own():
    module = kd.nn.LearnedEmbedding(emb_name="table", dtype=jnp.bfloat16)
    variables = jax.jit(lambda: module.init(KEY, (1, 100, 100), axis=-2))()
    param = variables["params"]["table"]
    assert param.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(param, np.float32).std(), 0.02, rtol=0.05)


@pytest.mark.parametrize("axis", [-1, (-2, -1), 1, (0, -2)])
def test_axes_that_make_no_sense(axis):
    with pytest.raises(ValueError, match=r"axis=.*(Leave -1 out|write -)"):
        kd.nn.LearnedEmbedding().init(KEY, (2, 5, 8), axis=axis)


def test_fourier_embedding_by_hand():
    module = kd.nn.FourierEmbedding(num_fourier_bases=3)
    shape = (2, 4, 5, 8)
    variables = random_variables(module, shape, axis=(-3, -2))
    out = jax.jit(lambda v: module.apply(v, shape, axis=(-3, -2)))(variables)
    dense = variables["params"]["dense_pe"]
    assert dense["kernel"].shape == (12, 8)
    y, x = np.linspace(-np.pi, np.pi, 4)[1], np.linspace(-np.pi, np.pi, 5)[3]
    angles = np.array([y, x, 2 * y, 2 * x, 4 * y, 4 * x])
    features = np.concatenate([np.sin(angles), np.cos(angles)])
    expected = features @ dense["kernel"] + dense["bias"]
    np.testing.assert_allclose(np.asarray(out)[1, 1, 3], expected, atol=1e-5)
    assert out.shape == shape


@pytest.mark.parametrize(
    "shape, axis, features",
    [((2, 4, 5, 8), -3, 6), ((2, 1, 8), -2, 6), ((2, 1, 1, 8), (-3, -2), 12)],
)
def test_fourier_embedding_of_other_axes(shape, axis, features):
    module = kd.nn.FourierEmbedding(num_fourier_bases=3)
    variables = random_variables(module, shape, axis=axis)
    out = jax.jit(lambda v: module.apply(v, shape, axis=axis))(variables)
    assert variables["params"]["dense_pe"]["kernel"].shape == (features, 8)
    assert out.shape == shape and np.isfinite(np.asarray(out)).all()


def test_zero_embedding():
    out, variables = kd.nn.ZeroEmbedding().init_with_output(KEY, (2, 3))
    np.testing.assert_array_equal(out, np.zeros((2, 3)))
    assert variables == {}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_added_embedding_keeps_the_dtype(dtype):
    inputs = np.random.default_rng(1).normal(size=(2, 5, 8)).astype(dtype)
    module = kd.nn.AddEmbedding(emb=kd.nn.LearnedEmbedding(), axis=-2)
    variables = random_variables(module, inputs)
    out = module.apply(variables, inputs)
    added = variables["params"]["emb"]["embeddings"].astype(dtype)
    np.testing.assert_array_equal(out, inputs + added)
    assert out.dtype == dtype


def test_older_added_embedding_warns():
    inputs = np.random.default_rng(1).normal(size=(2, 5, 8)).astype(jnp.bfloat16)
    init = jax.jit(kd.nn.AddLearnedEmbedding().init_with_output)
    with pytest.warns(DeprecationWarning, match="AddEmbedding"):
        out, variables = jax.device_get(init(KEY, inputs))
    param = variables["params"]["embeddings"]
    assert (param.shape, param.dtype) == ((5, 8), jnp.bfloat16)
    np.testing.assert_array_equal(out, inputs + param)


def test_fourier_features_are_sines_and_cosines_of_doubled_angles():
    angles = np.random.default_rng(1).uniform(-np.pi, np.pi, (3, 2))
    angles = angles.astype(np.float32)
    out = kd.nn.convert_to_fourier_features(angles, basis_degree=2)
    scaled = np.concatenate([angles, 2 * angles], axis=-1)
    expected = np.concatenate([np.sin(scaled), np.cos(scaled)], axis=-1)
    np.testing.assert_allclose(out, expected, atol=1e-6)
