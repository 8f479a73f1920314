"""The Vision Transformer: names, parameters, modes, dtypes, configs."""

import functools
import importlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd, konfig
from kauldron.nn.vit import VIT_SIZES, ViTSpec
from tests import processes
from tests.nn.param_shapes import param_shapes, random_variables

KEY = jax.random.key(0)
IMAGE = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)


def tiny(**kwargs):
    sizes = {"num_heads": 2, "hidden_size": 8, "num_layers": 1, "patch_size": 4}
    return kd.nn.VitEncoder.from_spec(**sizes | kwargs)


#
# Names
#


@pytest.mark.parametrize(
    "name, spec",
    [
        ("ViT-L", ViTSpec(1024, 24, 4096, 16)),
        ("vit_B/16", ViTSpec(768, 12, 3072, 12, 16)),
        ("Ti/8", ViTSpec(192, 12, 768, 3, 8)),
        ("mu", ViTSpec(32, 1, 128, 2)),
    ],
)
def test_names_of_variants(name, spec):
    assert ViTSpec.from_variant_string(name) == spec


def test_sizes_by_name_leave_out_an_unknown_patch_size():
    assert "patch_size" not in VIT_SIZES["B"].kwargs
    assert ViTSpec.from_variant_string("B/16").kwargs["patch_size"] == 16


@pytest.mark.parametrize(
    "name, message",
    [
        ("ViT:B", r"'ViT:B' is not the name.*'B/16'"),
        ("zz/16", r"'zz'.*mu, Ti, S, M, B, L, H, g, G, e"),
        ("b/16", r"'b'.*Variants"),
        ("ViT-B", r"'ViT-B/16'.*patch_size=16"),
    ],
)
def test_names_that_mean_nothing(name, message):
    with pytest.raises(ValueError, match=message):
        kd.nn.VitEncoder.from_variant_str(name)


def test_arguments_replace_what_the_name_means():
    encoder = kd.nn.VitEncoder.from_variant_str(
        "Ti/8", num_layers=1, mlp_size=5, block_type=kd.nn.ParallelAttentionBlock
    )
    assert encoder.embedding.patch_size == (8, 8)
    [block] = encoder.layers
    assert type(block) is kd.nn.ParallelAttentionBlock
    assert block.mlp.hidden_size == 5
    assert isinstance(block.attention_norm, nn.LayerNorm)
    assert not block.attention.normalize_qk


#
# Parameters
#


def test_params_of_an_encoder():
    block = param_shapes(tiny().layers[0], np.ones((1, 4, 8), np.float32))
    expected = {
        "embedding/patchifier/kernel": (4, 2, 3, 8),
        "embedding/patchifier/bias": (8,),
        "pos_embedding/embeddings": (8, 8),
        "cls": (8,),
        "encoder_norm/scale": (8,),
    }
    for i in range(2):
        expected |= {f"layers_{i}/{name}": shape for name, shape in block.items()}
    encoder = tiny(num_layers=2, patch_size=(4, 2), prepend_cls_token=True)
    assert param_shapes(encoder, IMAGE) == expected
    tokens = jax.eval_shape(lambda: encoder.init_with_output(KEY, IMAGE)[0])
    assert tokens.shape == (2, 9, 8)


def test_params_of_a_classifier():
    model = kd.nn.Vit(encoder=tiny(), num_classes=10)
    shapes = param_shapes(model, IMAGE)
    encoder = {f"encoder/{n}": s for n, s in param_shapes(tiny(), IMAGE).items()}
    assert shapes == encoder | {
        "pre_logits/kernel": (8, 8),
        "pre_logits/bias": (8,),
        "classifier_head/kernel": (8, 10),
        "classifier_head/bias": (10,),
    }


def test_initial_values():
    encoder = tiny(hidden_size=64, num_layers=0, prepend_cls_token=True)
    params = jax.device_get(jax.jit(encoder.init)(KEY, IMAGE)["params"])
    embeddings = params["pos_embedding"]["embeddings"]
    np.testing.assert_allclose(embeddings.std(), 0.02, rtol=0.2)
    assert not params["cls"].any()
    np.testing.assert_array_equal(params["encoder_norm"]["scale"], 1)


def test_encoders_of_one_model_share_nothing():
    class Two(nn.Module):
        first: nn.Module
        second: nn.Module

        @nn.compact
        def __call__(self, image):
            return self.first(image), self.second(image)

    shapes = param_shapes(Two(tiny(), tiny(patch_size=2)), IMAGE)
    assert shapes["first/pos_embedding/embeddings"] == (4, 8)
    assert shapes["second/pos_embedding/embeddings"] == (16, 8)
    assert {"first/encoder_norm/scale", "second/encoder_norm/scale"} <= set(shapes)


def test_defaults_of_an_encoder_that_is_made_inside_a_module_are_its_own():
    class Model(nn.Module):
        @nn.compact
        def __call__(self, image):
            return tiny()(image), tiny()(image)

    shapes = param_shapes(Model(), IMAGE)
    assert "VitEncoder_0/pos_embedding/embeddings" in shapes
    assert "VitEncoder_1/encoder_norm/scale" in shapes


#
# Values
#


def test_encoder_by_hand():
    encoder = tiny(num_layers=2, prepend_cls_token=True)
    variables = random_variables(encoder, IMAGE)
    params = variables["params"]

    @jax.jit
    def by_hand():
        tokens = encoder.embedding.apply({"params": params["embedding"]}, IMAGE)
        tokens = tokens + params["pos_embedding"]["embeddings"]
        cls = np.broadcast_to(params["cls"], (2, 1, 8))
        tokens = jnp.concatenate([cls, tokens], axis=1)
        for i, layer in enumerate(encoder.layers):
            tokens = layer.apply({"params": params[f"layers_{i}"]}, tokens)
        return tokens, encoder.apply(variables, IMAGE)

    expected, ours = jax.device_get(by_hand())
    rms = np.sqrt(np.mean(expected**2, axis=-1, keepdims=True) + 1e-6)
    expected = expected / rms * params["encoder_norm"]["scale"]
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_mask_reaches_the_blocks():
    encoder = tiny(num_layers=2)
    variables = random_variables(encoder, IMAGE)
    apply = jax.jit(encoder.apply)
    diagonal = np.eye(4, dtype=bool)[None]
    alone = np.asarray(apply(variables, IMAGE, attention_mask=diagonal))
    changed = IMAGE.copy()
    changed[:, 4:] += 1  # the last two patches
    other = np.asarray(apply(variables, changed, attention_mask=diagonal))
    np.testing.assert_allclose(alone[:, :2], other[:, :2], atol=1e-6)
    seen = np.asarray(apply(variables, changed))
    assert not np.allclose(seen[:, :2], alone[:, :2])


@pytest.mark.parametrize("block", [kd.nn.PreNormBlock, kd.nn.ParallelAttentionBlock])
def test_16_bit_images_give_16_bit_tokens(block):
    encoder = tiny(block_type=block, prepend_cls_token=True)
    variables = random_variables(encoder, IMAGE)

    @jax.jit
    def run(image):
        images = image.astype(jnp.bfloat16), image
        return [encoder.apply(variables, image) for image in images]

    half, full = run(IMAGE)
    assert half.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(half, np.float32), full, atol=0.1)


def dense(x, params):
    return x @ params["kernel"] + params["bias"]


@pytest.mark.parametrize("mode", ["gap", "cls_token", "cls_token_forced"])
def test_modes_of_a_classifier(mode):
    encoder = tiny(prepend_cls_token=mode == "cls_token")
    model = kd.nn.Vit(encoder=encoder, num_classes=3, mode=mode)
    variables = random_variables(model, IMAGE)
    params = variables["params"]
    apply = functools.partial(model.apply, mutable=True, capture_intermediates=True)
    preds, captured = jax.jit(apply)(variables, IMAGE)
    [tokens] = jax.device_get(captured["intermediates"]["encoder"]["__call__"])
    assert tokens.shape == (2, 5 if mode == "cls_token" else 4, 8)
    features = tokens.mean(1) if mode == "gap" else tokens[:, 0]
    hidden = np.tanh(dense(features, params["pre_logits"]))
    expected = dense(hidden, params["classifier_head"])
    assert set(preds) == {"logits"}
    np.testing.assert_allclose(preds["logits"], expected, atol=1e-5)


def test_modes_that_cannot_be():
    with pytest.raises(ValueError, match="gap, cls_token, cls_token_forced"):
        kd.nn.Vit(encoder=tiny(), mode="map")
    with pytest.raises(ValueError, match="cls_token_forced"):
        model = kd.nn.Vit(encoder=tiny(), mode="cls_token")
        jax.eval_shape(model.init, KEY, IMAGE)


def test_autoencoder_reproduces_the_shape():
    model = kd.nn.VitAutoEncoder(encoder=tiny())
    preds, variables = jax.eval_shape(lambda: model.init_with_output(KEY, IMAGE))
    assert preds["image"].shape == IMAGE.shape
    assert variables["params"]["decoder"]["kernel"].shape == (8, 48)
    with_token = kd.nn.VitAutoEncoder(encoder=tiny(prepend_cls_token=True))
    with pytest.raises(ValueError, match=r"192 values.*5 tokens.*class token"):
        jax.eval_shape(with_token.init, KEY, IMAGE)


#
# Configs and older paths
#


def test_models_in_a_config_resolve_to_the_same_modules():
    with konfig.imports():
        from kauldron import kd as lazy

    cfg = lazy.nn.Vit(
        encoder=lazy.nn.VitEncoder.from_variant_str(
            "mu/4", block_type=lazy.nn.PostNormBlock, prepend_cls_token=True
        ),
        image="batch.image",
        mode="cls_token",
    )
    encoder = kd.nn.VitEncoder.from_variant_str(
        "mu/4", block_type=kd.nn.PostNormBlock, prepend_cls_token=True
    )
    model = kd.nn.Vit(encoder=encoder, image="batch.image", mode="cls_token")
    assert konfig.resolve(cfg) == model
    block = lazy.nn.PreNormBlock.from_spec(num_heads=2, attn_kwargs={"use_bias": False})
    assert not konfig.resolve(block).attention.use_bias


@pytest.mark.parametrize(
    "path, names",
    [
        ("knn_types", "ActivationFunction Initializer PositionEmbedding"),
        ("misc", "Dropout Identity DummyModel"),
        ("models", "Sequential FlatAutoencoder"),
        ("adapter", "ExternalModule WrapperModule"),
        ("attention", "softmax dot_product_attention_weights"),
        ("input_embeddings", "Patchify PatchifyEmbed"),
        ("pos_embeddings", "LearnedEmbedding AddEmbedding"),
        ("transformers", "PreNormBlock TransformerMLP"),
        ("vit", "Vit VitEncoder ViTSpec VIT_SIZES"),
    ],
)
def test_paths_of_the_older_package(path, names):
    module = importlib.import_module(f"kauldron.modules.{path}")
    for name in names.split():
        value = getattr(module, name)
        if name in dir(kd.nn):
            assert value is getattr(kd.nn, name)


def test_older_package_can_be_imported_first():
    script = (
        "import kauldron.modules.vit as vit, kauldron.modules.adapter as adapter\n"
        "import kauldron.modules\n"
        "from kauldron import kd\n"
        "assert vit.Vit is kauldron.modules.vit.Vit is kd.nn.Vit\n"
        "assert adapter.WrapperModule is kauldron.modules.adapter.WrapperModule\n"
    )
    processes.run_script_with_jax(script)


def test_older_vit_has_the_parameters_of_its_checkpoints():
    from kauldron.modules import deprecated

    encoder = deprecated.VitEncoder.from_variant_str("mu/4", mlp_size=12)
    model = deprecated.Vit(encoder=encoder, num_classes=5)
    with pytest.warns(DeprecationWarning, match=r"use kd\.nn\.VitEncoder"):
        shapes = param_shapes(model, IMAGE)
    layer = "encoder/layer_0"
    assert shapes == {
        "encoder/patchifier/kernel": (4, 4, 3, 32),
        "encoder/patchifier/bias": (32,),
        "encoder/pos_embedding/embeddings": (4, 32),
        f"{layer}/norm_in/scale": (32,),
        f"{layer}/MHDPA/dense_query/kernel": (32, 2, 16),
        f"{layer}/MHDPA/dense_key/kernel": (32, 2, 16),
        f"{layer}/MHDPA/dense_value/kernel": (32, 2, 16),
        f"{layer}/MHDPA/norm_query/scale": (16,),
        f"{layer}/MHDPA/norm_key/scale": (16,),
        f"{layer}/MHDPA/dense_out/kernel": (2, 16, 32),
        f"{layer}/MHDPA/dense_out/bias": (32,),
        f"{layer}/MLP_in/kernel": (32, 12),
        f"{layer}/MLP_in/bias": (12,),
        f"{layer}/MLP_out/kernel": (12, 32),
        f"{layer}/MLP_out/bias": (32,),
        "encoder/norm_encoder/scale": (32,),
        "pre_logits/kernel": (32, 32),
        "pre_logits/bias": (32,),
        "classifier_head/kernel": (32, 5),
        "classifier_head/bias": (5,),
    }
