"""Calls of klinen models, against `apply` of the same model in plain flax.

Run with `python benchmarks/klinen.py [--tiny]`; prints one JSON line per figure. Inside
jit the two compile to the same program, instruction by instruction (`"same": true`). The
one exception is a model that is itself the argument of the jitted function and has
random keys: they travel as bytes, and decoding them is a handful of instructions.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from figures import in_turn, show

from kauldron import klinen as knn


class MLP(knn.Module):
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.relu(nn.Dense(self.width)(x))
        x = nn.Dropout(0.1)(x, deterministic=not self.training)
        return nn.Dense(self.width)(x)


class AutoEncoder(knn.Module):
    encoder: nn.Module
    decoder: nn.Module

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.decoder(self.encoder(x))


class PlainMLP(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        x = nn.relu(nn.Dense(self.width)(x))
        x = nn.Dropout(0.1)(x, deterministic=not train)
        return nn.Dense(self.width)(x)


class PlainAutoEncoder(nn.Module):
    encoder: nn.Module
    decoder: nn.Module

    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        return self.decoder(self.encoder(x, train), train)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true", help="quick run")
    tiny = parser.parse_args().tiny
    width, number, rounds = (8, 1, 1) if tiny else (256, 50, 9)

    x = jnp.ones((32, width))
    key = jax.random.PRNGKey(0)
    plain = PlainAutoEncoder(encoder=PlainMLP(width), decoder=PlainMLP(width))
    params = jax.jit(plain.init, static_argnums=2)(key, x, False)["params"]
    model = AutoEncoder(encoder=MLP(width), decoder=MLP(width))
    model = model.init_bind(key, x).with_rng({"dropout": key})

    def apply(params: Any, key: Any, x: Any, train: bool = True) -> Any:
        return plain.apply({"params": params}, x, train, rngs={"dropout": key})

    def call(model: Any, x: Any) -> Any:
        return model(x)

    def call_with(params: Any, key: Any, x: Any) -> Any:
        return model.with_params(params).with_rng({"dropout": key})(x)

    with_keys = program(apply, params, key, x)
    report_programs("in_jit", program(call_with, params, key, x), with_keys)
    report_programs(
        "as_argument",
        program(call, model.with_rng({}).eval(), x),
        program(lambda params, x: apply(params, key, x, train=False), params, x),
    )
    report_programs("with_keys_as_argument", program(call, model, x), with_keys)

    jit_call, jit_apply = jax.jit(call), jax.jit(apply)
    encoder = {"params": params["encoder"]}
    rngs = {"dropout": key}
    for name, ours, limit in (
        ("call_in_jit", lambda: jit_call(model, x), lambda: jit_apply(params, key, x)),
        ("call", lambda: model(x), lambda: apply(params, key, x)),
        ("eval_call", lambda: model.eval()(x), lambda: apply(params, key, x, False)),
        (
            "call_of_sub_module",
            lambda: model.encoder(x),
            lambda: plain.encoder.apply(encoder, x, True, rngs=rngs),
        ),
        (
            "next_keys",
            lambda: model.with_rng().rngs,
            lambda: {"dropout": jax.random.split(key, 1)[0]},
        ),
    ):
        report_times(name, ours, limit, number=number, rounds=rounds)


def program(fn: Callable[..., Any], *args: Any) -> list[str]:
    """The instructions of the compiled program, without names and source lines."""
    text = jax.jit(fn).lower(*args).compile().as_text()
    text = re.sub(r", metadata={[^}]*}", "", text or "")
    text = re.sub(r"%[\w.-]+", "%", text)
    lines = [line.strip() for line in text.splitlines()]
    return [
        line for line in lines if " = " in line and not line.startswith("HloModule")
    ]


def report_programs(name: str, ours: list[str], limit: list[str]) -> None:
    show(
        f"klinen.program_{name}",
        len(ours),
        len(limit),
        unit="instructions",
        same=sorted(ours) == sorted(limit),
    )


def report_times(
    name: str,
    ours: Callable[[], Any],
    limit: Callable[[], Any],
    *,
    number: int,
    rounds: int,
) -> None:
    ours()
    limit()
    times = in_turn(repeated(ours, number), repeated(limit, number), rounds=rounds)
    medians = (statistics.median(found) / number * 1e6 for found in times)
    show(f"klinen.{name}", *medians, unit="us", digits=1)


def repeated(function: Callable[[], Any], count: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            jax.block_until_ready(function())

    return run


if __name__ == "__main__":
    main()
