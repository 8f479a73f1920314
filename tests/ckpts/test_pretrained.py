"""Weights of other libraries, from files in their layouts."""

import functools
import logging
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization

from kauldron import kd, konfig
from tests.ckpts.states import ones, zeros
from tests.ckpts.test_weight_files import write_safetensors

D, H, LAYERS, MLP, CLASSES, PATCH = 8, 2, 2, 12, 3, 4
IMAGE = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype(np.float32)


def vit(**kwargs):
    encoder = kd.nn.VitEncoder.from_spec(
        num_heads=H,
        hidden_size=D,
        num_layers=LAYERS,
        patch_size=PATCH,
        mlp_size=MLP,
        encoder_norm=nn.LayerNorm(),
        prepend_cls_token=True,
        activation_fn=lambda x: nn.gelu(x, approximate=False),
        **kwargs,
    )
    return kd.nn.Vit(
        encoder=encoder, num_classes=CLASSES, mode="cls_token", has_pre_logits=False
    )


def initial(model, image=IMAGE):
    specs = jax.eval_shape(lambda: model.init(jax.random.key(0), image))
    return jax.tree.map(lambda s: zeros(s.shape, s.dtype), specs["params"])


#
# The same weights as each library stores them
#


def timm_arrays():
    """The names and shapes of a torch ViT, with random values."""
    rng = np.random.default_rng(0)
    shapes = {
        "cls_token": (1, 1, D),
        "pos_embed": (1, 5, D),
        "patch_embed.proj.weight": (D, 3, PATCH, PATCH),
        "patch_embed.proj.bias": (D,),
        "norm.weight": (D,),
        "norm.bias": (D,),
        "head.weight": (CLASSES, D),
        "head.bias": (CLASSES,),
    }
    for i in range(LAYERS):
        block = {
            "norm1.weight": (D,),
            "norm1.bias": (D,),
            "attn.qkv.weight": (3 * D, D),
            "attn.qkv.bias": (3 * D,),
            "attn.proj.weight": (D, D),
            "attn.proj.bias": (D,),
            "norm2.weight": (D,),
            "norm2.bias": (D,),
            "mlp.fc1.weight": (MLP, D),
            "mlp.fc1.bias": (MLP,),
            "mlp.fc2.weight": (D, MLP),
            "mlp.fc2.bias": (D,),
        }
        shapes |= {f"blocks.{i}.{name}": shape for name, shape in block.items()}
    return {
        name: (0.3 * rng.normal(size=shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


def hugging_face_arrays(arrays):
    new = {
        "vit.embeddings.cls_token": arrays["cls_token"],
        "vit.embeddings.position_embeddings": arrays["pos_embed"],
    }

    def move(old, name):
        for leaf in ("weight", "bias"):
            new[f"{name}.{leaf}"] = arrays[f"{old}.{leaf}"]

    move("patch_embed.proj", "vit.embeddings.patch_embeddings.projection")
    move("norm", "vit.layernorm")
    move("head", "classifier")
    for i in range(LAYERS):
        old, layer = f"blocks.{i}", f"vit.encoder.layer.{i}"
        for leaf in ("weight", "bias"):
            parts = np.split(arrays[f"{old}.attn.qkv.{leaf}"], 3)
            for part, array in zip(("query", "key", "value"), parts):
                new[f"{layer}.attention.attention.{part}.{leaf}"] = array
        move(f"{old}.norm1", f"{layer}.layernorm_before")
        move(f"{old}.attn.proj", f"{layer}.attention.output.dense")
        move(f"{old}.norm2", f"{layer}.layernorm_after")
        move(f"{old}.mlp.fc1", f"{layer}.intermediate.dense")
        move(f"{old}.mlp.fc2", f"{layer}.output.dense")
    return new


def hugging_face_flax_tree(arrays):
    tree = {}
    for name, array in hugging_face_arrays(arrays).items():
        *parents, leaf = name.split(".")
        if leaf == "weight":
            leaf = "scale" if "norm" in parents[-1] else "kernel"
            array = array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = np.ascontiguousarray(array)
    return tree


def google_arrays(arrays, *, attention, norms, mlp, positions):
    new = {"cls": arrays["cls_token"], positions: arrays["pos_embed"]}

    def kernel(old, name, shape=None):
        array = arrays[f"{old}.weight"]
        array = array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T
        new[f"{name}/kernel"] = array.reshape(shape or array.shape)
        new[f"{name}/bias"] = arrays[f"{old}.bias"]

    def norm(old, name):
        new[f"{name}/scale"] = arrays[f"{old}.weight"]
        new[f"{name}/bias"] = arrays[f"{old}.bias"]

    kernel("patch_embed.proj", "embedding")
    kernel("head", "head")
    norm("norm", "Transformer/encoder_norm")
    for i in range(LAYERS):
        old, layer = f"blocks.{i}", f"Transformer/encoderblock_{i}"
        kernels = np.split(arrays[f"{old}.attn.qkv.weight"], 3)
        biases = np.split(arrays[f"{old}.attn.qkv.bias"], 3)
        for part, weight, bias in zip(("query", "key", "value"), kernels, biases):
            new[f"{layer}/{attention}/{part}/kernel"] = weight.T.reshape(D, H, D // H)
            new[f"{layer}/{attention}/{part}/bias"] = bias.reshape(H, D // H)
        kernel(f"{old}.attn.proj", f"{layer}/{attention}/out", (H, D // H, D))
        norm(f"{old}.norm1", f"{layer}/{norms[0]}")
        norm(f"{old}.norm2", f"{layer}/{norms[1]}")
        kernel(f"{old}.mlp.fc1", f"{layer}/{mlp}/Dense_0")
        kernel(f"{old}.mlp.fc2", f"{layer}/{mlp}/Dense_1")
    return new


def big_vision_arrays(arrays):
    """There the class token has no position."""
    pos = arrays["pos_embed"]
    arrays = arrays | {
        "cls_token": arrays["cls_token"] + pos[:, :1],
        "pos_embed": pos[:, 1:],
    }
    new = google_arrays(
        arrays,
        attention="MultiHeadDotProductAttention_0",
        norms=("LayerNorm_0", "LayerNorm_1"),
        mlp="MlpBlock_0",
        positions="pos_embedding",
    )
    return {f"params/{name}": array for name, array in new.items()}


def original_arrays(arrays):
    return google_arrays(
        arrays,
        attention="MultiHeadDotProductAttention_1",
        norms=("LayerNorm_0", "LayerNorm_2"),
        mlp="MlpBlock_3",
        positions="Transformer/posembed_input/pos_embedding",
    )


def write(layout, folder, arrays):
    path = folder / f"{layout}.npz"
    if layout == "timm_vit":
        return write_safetensors(folder / "timm.safetensors", arrays)
    if layout == "hugging_face_vit":
        return write_safetensors(folder / "hf.safetensors", hugging_face_arrays(arrays))
    if layout == "hugging_face_flax_vit":
        path = folder / "flax_model.msgpack"
        path.write_bytes(serialization.to_bytes(hugging_face_flax_tree(arrays)))
    elif layout == "big_vision_vit":
        np.savez(path, **big_vision_arrays(arrays))
    else:
        np.savez(path, **original_arrays(arrays))
    return path


#
# What the original computes, with its own arrays
#


def linear(arrays, name, x):
    return x @ arrays[f"{name}.weight"].T + arrays[f"{name}.bias"]


def layer_norm(arrays, name, x):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    return x * arrays[f"{name}.weight"] + arrays[f"{name}.bias"]


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def torch_like_vit(arrays, images):
    b = len(images)
    patches = images.reshape(b, 2, PATCH, 2, PATCH, 3).transpose(0, 1, 3, 5, 2, 4)
    kernel = arrays["patch_embed.proj.weight"].reshape(D, -1)
    x = patches.reshape(b, 4, -1) @ kernel.T + arrays["patch_embed.proj.bias"]
    x = np.concatenate([np.broadcast_to(arrays["cls_token"], (b, 1, D)), x], axis=1)
    x = x + arrays["pos_embed"]
    for i in range(LAYERS):
        y = layer_norm(arrays, f"blocks.{i}.norm1", x)
        y = linear(arrays, f"blocks.{i}.attn.qkv", y).reshape(b, 5, 3, H, D // H)
        query, key, value = y.transpose(2, 0, 3, 1, 4)
        logits = query @ key.transpose(0, 1, 3, 2) / math.sqrt(D // H)
        weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        y = (weights @ value).transpose(0, 2, 1, 3).reshape(b, 5, D)
        x = x + linear(arrays, f"blocks.{i}.attn.proj", y)
        y = layer_norm(arrays, f"blocks.{i}.norm2", x)
        y = gelu(linear(arrays, f"blocks.{i}.mlp.fc1", y))
        x = x + linear(arrays, f"blocks.{i}.mlp.fc2", y)
    return linear(arrays, "head", layer_norm(arrays, "norm", x)[:, 0])


@functools.cache
def made(*, scan_layers):
    """Parameters of a model, and what it computes with others."""
    model = vit(scan_layers=scan_layers)
    return initial(model), jax.jit(model.apply)


@pytest.fixture(scope="module")
def expected():
    return torch_like_vit(timm_arrays(), IMAGE)


@pytest.mark.parametrize("layout", list(kd.ckpts.LAYOUTS))
@pytest.mark.parametrize("scan_layers", [False, True])
def test_model_computes_what_the_original_does(layout, scan_layers, tmp_path, expected):
    path = write(layout, tmp_path, timm_arrays())
    start, apply = made(scan_layers=scan_layers)
    params, report = kd.ckpts.load_pretrained(start, path)
    preds = apply({"params": params}, IMAGE)
    np.testing.assert_allclose(preds["logits"], expected, atol=1e-4)
    assert (report.fresh, report.skipped, dict(report.mismatched)) == ((), (), {})
    assert len(report.loaded) == 8 + 16 * LAYERS


#
# Parts of a model, other sizes, the report
#


def test_head_of_another_size_is_fresh(tmp_path):
    path = write("timm_vit", tmp_path, timm_arrays())
    model = kd.nn.Vit(encoder=vit().encoder, num_classes=7)
    start = jax.tree.map(lambda p: jax.device_put(np.asarray(p) + 5), initial(model))
    params, report = kd.ckpts.load_pretrained(
        start, path, fresh=("pre_logits.**", "classifier_head.**")
    )
    np.testing.assert_array_equal(params["classifier_head"]["kernel"], 5)
    assert (params["encoder"]["cls"] != 5).all()
    assert set(report.fresh) == {
        f"{layer}.{leaf}"
        for layer in ("pre_logits", "classifier_head")
        for leaf in ("kernel", "bias")
    }
    assert report.skipped == ("head.weight", "head.bias")
    assert report.loaded["encoder.layers_1.attention.key.bias"] == (
        "blocks.1.attn.qkv.bias",
    )
    text = str(report)
    assert "fresh: 4, skipped: 2, mismatched: 0" in text
    assert "classifier_head: 2 fresh" in text and "head.weight" in text


def test_what_is_missing_or_does_not_fit_is_told(tmp_path):
    arrays = timm_arrays()
    del arrays["blocks.1.norm2.bias"]
    path = write_safetensors(tmp_path / "vit.safetensors", arrays)
    model = kd.nn.Vit(encoder=vit().encoder, num_classes=7)
    with pytest.raises(kd.ckpts.StructureMismatch) as error:
        kd.ckpts.load_pretrained(initial(model), path)
    text = str(error.value)
    assert "Not in the file:" in text and "pre_logits.kernel" in text
    assert "encoder.layers_1.mlp_norm.bias" in text
    assert "Mismatched:" in text and "classifier_head.bias: the model has (7,)" in text


def test_positions_of_another_image_size_are_interpolated(tmp_path):
    arrays = timm_arrays()
    row = np.array([0.0, 1.0])
    grid = np.stack([row, row])  # grows to the right
    arrays["pos_embed"][0, 1:] = grid.reshape(4, 1)
    path = write_safetensors(tmp_path / "vit.safetensors", arrays)
    large = np.zeros((1, 16, 16, 3), np.float32)
    params, _ = kd.ckpts.load_pretrained(initial(vit(), large), path)
    found = params["encoder"]["pos_embedding"]["embeddings"].reshape(4, 4, D)[..., 0]
    assert (np.diff(found, axis=1) > 0).all()
    np.testing.assert_allclose(np.diff(found, axis=0), 0, atol=1e-6)


def test_encoder_without_class_token_and_classifier(tmp_path):
    path = write("timm_vit", tmp_path, timm_arrays())
    encoder = vit().encoder.clone(prepend_cls_token=False)
    params, report = kd.ckpts.load_pretrained(initial(encoder), path)
    np.testing.assert_array_equal(
        params["pos_embedding"]["embeddings"], timm_arrays()["pos_embed"][0, 1:]
    )
    assert "cls_token" in report.skipped


def test_any_module_by_a_mapping_of_names(tmp_path):
    arrays = {
        "net.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "net.0.bias": np.arange(2, dtype=np.float32),
        "net.1.weight": np.arange(4, dtype=np.float32).reshape(2, 2),
        "net.1.bias": np.ones(2, np.float32),
        "other": np.ones(1, np.float32),
    }
    path = write_safetensors(tmp_path / "net.safetensors", arrays)
    model = kd.nn.Sequential(layers=[nn.Dense(2), nn.Dense(2)])
    params = initial(model, np.ones((1, 3), np.float32))
    layout = {
        "layers_{n}.kernel": kd.ckpts.Weight("net.{n}.weight", "o i -> i o"),
        "layers_{n}.bias": "net.{n}.bias",
    }
    loaded, report = kd.ckpts.load_pretrained(params, path, layout=layout)
    for i in range(2):
        kernel = loaded[f"layers_{i}"]["kernel"]
        np.testing.assert_array_equal(kernel, arrays[f"net.{i}.weight"].T)
        np.testing.assert_array_equal(
            loaded[f"layers_{i}"]["bias"], arrays[f"net.{i}.bias"]
        )
    assert report.skipped == ("other",)


def test_wrong_layouts_and_files_are_told(tmp_path):
    with pytest.raises(ValueError, match=r"'timm_vi'.*'timm_vit'"):
        kd.ckpts.PretrainedLoader(path="x.safetensors", layout="timm_vi")
    with pytest.raises(ValueError, match=r"'timm_vi'.*'timm_vit'"):
        kd.ckpts.load_pretrained({}, "not_read.safetensors", layout="timm_vi")
    path = write_safetensors(
        tmp_path / "a.safetensors", {"a.b": np.ones(2, np.float32)}
    )
    with pytest.raises(ValueError, match=r"none of the layouts timm_vit.*a\.b"):
        kd.ckpts.load_pretrained({}, path)
    with pytest.raises(ValueError, match=r"\.safetensors, \.msgpack, \.npz"):
        kd.ckpts.load_pretrained({}, tmp_path / "model.bin")


def test_some_of_stacked_layers_cannot_be_fresh(tmp_path):
    path = write("timm_vit", tmp_path, timm_arrays())
    start, _ = made(scan_layers=True)
    with pytest.raises(ValueError, match="stacked"):
        kd.ckpts.load_pretrained(start, path, fresh=("encoder.layers_1.**",))


#
# As the start of a training
#


def test_training_starts_with_the_weights(tmp_path, caplog):
    path = write("timm_vit", tmp_path, timm_arrays())
    with konfig.imports():
        from kauldron import kd as lazy

    cfg = lazy.ckpts.PretrainedLoader(
        path=str(path), fresh=["classifier_head.**"], target="params.vit"
    )
    loader = konfig.resolve(cfg)
    start, _ = made(scan_layers=False)
    params = {"vit": start, "other": ones(2)}
    state = kd.train.TrainState(
        step=zeros((), jnp.int32), params=params, collections={}
    )
    loader.check()
    loader.check(state)
    with caplog.at_level(logging.INFO):
        loaded = loader.transform(state)
    assert "Loaded 38 parameters" in caplog.text
    np.testing.assert_array_equal(loaded.params["other"], 1)
    np.testing.assert_array_equal(
        loaded.params["vit"]["encoder"]["layers_0"]["mlp"]["dense_in"]["kernel"],
        timm_arrays()["blocks.0.mlp.fc1.weight"].T,
    )
    assert not loaded.params["vit"]["classifier_head"]["kernel"].any()


def test_file_is_looked_for_before_the_training(tmp_path):
    loader = kd.ckpts.PretrainedLoader(path=tmp_path / "absent.safetensors")
    with pytest.raises(FileNotFoundError):
        loader.check()
