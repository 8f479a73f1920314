"""A language model made of `kd.nn` computes what GPT-2 does, with weights of its files."""

import dataclasses
from collections.abc import Sequence

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import serialization, traverse_util

from kauldron import kd
from tests.ckpts.test_weight_files import write_safetensors
from tests.nn.param_shapes import random_variables

VOCAB, LENGTH, D, H, LAYERS = 11, 7, 8, 2, 2
TOKENS = np.random.default_rng(1).integers(0, VOCAB, (3, 5))


class LanguageModel(nn.Module):
    """Predicts each next token."""

    layers: Sequence[nn.Module]

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(VOCAB, D, name="tokens")
        positions = self.param("positions", nn.initializers.zeros, (LENGTH, D))
        x = embed(tokens) + positions[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, nn.make_causal_mask(tokens, dtype=bool))
        return embed.attend(nn.LayerNorm(epsilon=1e-5, name="norm")(x))


def language_model():
    layers = [
        kd.nn.PreNormBlock(
            attention=kd.nn.ImprovedMultiHeadDotProductAttention(num_heads=H),
            attention_norm=nn.LayerNorm(epsilon=1e-5),
            mlp_norm=nn.LayerNorm(epsilon=1e-5),
        )
        for _ in range(LAYERS)
    ]
    return LanguageModel(layers=tuple(layers))


def gpt2_layout():
    """From parameters to the names in `model.safetensors`; kernels are `(in, out)`."""
    weight = kd.ckpts.Weight
    layout = {
        "tokens.embedding": "wte.weight",
        "positions": "wpe.weight",
        "norm.scale": "ln_f.weight",
        "norm.bias": "ln_f.bias",
        "layers_{i}.attention.out.kernel": weight(
            "h.{i}.attn.c_proj.weight", "(h f) o -> h f o"
        ),
        "layers_{i}.attention.out.bias": "h.{i}.attn.c_proj.bias",
    }
    for index, part in enumerate(("query", "key", "value")):
        layout |= {
            f"layers_{{i}}.attention.{part}.kernel": weight(
                "h.{i}.attn.c_attn.weight", "i (n h f) -> n i h f", index
            ),
            f"layers_{{i}}.attention.{part}.bias": weight(
                "h.{i}.attn.c_attn.bias", "(n h f) -> n h f", index
            ),
        }
    for ours, theirs in {"attention_norm": "ln_1", "mlp_norm": "ln_2"}.items():
        layout[f"layers_{{i}}.{ours}.scale"] = f"h.{{i}}.{theirs}.weight"
        layout[f"layers_{{i}}.{ours}.bias"] = f"h.{{i}}.{theirs}.bias"
    for ours, theirs in {"dense_in": "c_fc", "dense_out": "c_proj"}.items():
        layout[f"layers_{{i}}.mlp.{ours}.kernel"] = f"h.{{i}}.mlp.{theirs}.weight"
        layout[f"layers_{{i}}.mlp.{ours}.bias"] = f"h.{{i}}.mlp.{theirs}.bias"
    return layout


def gpt2_flax_layout():
    """The same for `flax_model.msgpack`, whose kernels are `(out, in)`."""
    turned = {
        None: "o i -> i o",
        "(h f) o -> h f o": "o (h f) -> h f o",
        "i (n h f) -> n i h f": "(n h f) i -> n i h f",
    }
    layout = {}
    for path, source in gpt2_layout().items():
        weight = kd.ckpts.Weight(source) if isinstance(source, str) else source
        pattern = turned[weight.pattern] if "kernel" in path else weight.pattern
        layout[path] = dataclasses.replace(
            weight, name=flax_name(weight.name), pattern=pattern
        )
    return layout


def flax_name(name):
    parts = name.split(".")
    last = "scale" if parts[-2].startswith("ln_") else "kernel"
    last = "embedding" if parts[-2] in ("wte", "wpe") else last
    parts[-1] = parts[-1].replace("weight", last)
    return "/".join(["transformer", *parts])


def gpt2_arrays():
    rng = np.random.default_rng(0)
    shapes = {"wte.weight": (VOCAB, D), "wpe.weight": (LENGTH, D)}
    norms = ["ln_f"]
    for i in range(LAYERS):
        norms += [f"h.{i}.ln_1", f"h.{i}.ln_2"]
        sizes = {
            "attn.c_attn": (D, 3 * D),
            "attn.c_proj": (D, D),
            "mlp.c_fc": (D, 4 * D),
            "mlp.c_proj": (4 * D, D),
        }
        for name, size in sizes.items():
            shapes[f"h.{i}.{name}.weight"] = size
            shapes[f"h.{i}.{name}.bias"] = size[1:]
    for norm in norms:
        shapes |= {f"{norm}.weight": (D,), f"{norm}.bias": (D,)}
    return {
        name: rng.normal(size=size).astype(np.float32) for name, size in shapes.items()
    }


def gpt2(w, tokens):
    """GPT-2 in plain NumPy."""

    def norm(x, name):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def dense(x, name):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    length = tokens.shape[1]
    x = w["wte.weight"][tokens] + w["wpe.weight"][:length]
    for i in range(LAYERS):
        parts = np.split(dense(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), 3, -1)
        heads = [p.reshape(-1, length, H, D // H).swapaxes(1, 2) for p in parts]
        scores = heads[0] @ heads[1].swapaxes(-1, -2) / np.sqrt(D // H)
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = (weights @ heads[2]).swapaxes(1, 2).reshape(-1, length, D)
        x = x + dense(mixed, f"h.{i}.attn.c_proj")
        hidden = gelu(dense(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"))
        x = x + dense(hidden, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def write_msgpack(path, arrays):
    turned = {
        flax_name(name): array.T if array.ndim == 2 and name[0] == "h" else array
        for name, array in arrays.items()
    }
    tree = traverse_util.unflatten_dict(turned, sep="/")
    path.write_bytes(serialization.msgpack_serialize(tree))
    return path


@pytest.mark.parametrize(
    ("name", "write", "layout"),
    [
        ("model.safetensors", write_safetensors, gpt2_layout()),
        ("flax_model.msgpack", write_msgpack, gpt2_flax_layout()),
    ],
)
def test_model_computes_what_gpt2_does(name, write, layout, tmp_path):
    arrays = gpt2_arrays()
    path = write(tmp_path / name, arrays)
    model = language_model()
    params = random_variables(model, TOKENS)["params"]
    params, report = kd.ckpts.load_pretrained(params, path, layout=layout)
    assert not report.fresh and not report.skipped
    logits = jax.jit(model.apply)({"params": params}, TOKENS)
    np.testing.assert_allclose(logits, gpt2(arrays, TOKENS), rtol=1e-3, atol=1e-3)
