"""Paths and keys: what a lookup costs, against the same work written by hand.

Run with `python benchmarks/kontext.py [--tiny]`; prints one JSON line per figure. The
limits: for parsing, Python's own parser on the same text; for the cache, a dict; for
lookups, the expression `tree["cams"][1]["pose"]["xyz"]`; for flattening, jax's
`tree_flatten_with_path` and `keystr`; for the error about a missing key, one look at
every leaf of the context.
"""

from __future__ import annotations

import argparse
import ast
import statistics
from collections.abc import Callable
from typing import Any

import jax
from figures import in_turn, show

from kauldron import kontext, path_grammar

PATH = "cams[1].pose.xyz"
TREE = {"cams": [None, {"pose": {"xyz": 5}}]}


class Loss:
    preds: kontext.Key = "preds.image"
    targets: kontext.Key = "batch.image"
    mask: kontext.Key | None = None

    def get_state(self, preds: Any, targets: Any, mask: Any = None) -> None:
        del preds, targets, mask


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true", help="quick run")
    tiny = parser.parse_args().tiny
    leaves = 100 if tiny else 10_000
    few, many = (2, 20) if tiny else (5, 20_000)
    params = make_params(leaves)
    context = {"batch": {"image": 1}, "preds": {"image": 2}, "params": params}
    loss = Loss()
    missing = {"x": "batch.image", "y": "params.layer_7.kernl"}

    cache = {PATH: path_grammar.parse(PATH)}

    report(
        "parse",
        "us",
        lambda: path_grammar.parse.__wrapped__(PATH),
        lambda: ast.parse(PATH, mode="eval"),
        many,
    )
    report(
        "parse_cached",
        "us",
        lambda: path_grammar.parse(PATH),
        lambda: cache[PATH],
        many,
    )
    report(
        "get_by_path",
        "us",
        lambda: kontext.get_by_path(TREE, PATH),
        lambda: TREE["cams"][1]["pose"]["xyz"],
        many,
    )
    report(
        "resolve_keys",
        "us",
        lambda: kontext.resolve_from_keyed_obj(context, loss, func=loss.get_state),
        lambda: {
            "preds": context["preds"]["image"],
            "targets": context["batch"]["image"],
        },
        many // 20 or 1,
    )
    report(
        f"flatten_{leaves}_leaves",
        "ms",
        lambda: kontext.flatten_with_path(params),
        lambda: flatten_with_jax(params),
        few,
    )
    report(
        f"missing_key_among_{leaves}_leaves",
        "ms",
        lambda: expect_missing(context, missing),
        lambda: jax.tree_util.tree_flatten_with_path(context),
        few,
    )


def make_params(leaves: int) -> dict[str, Any]:
    layers = [f"layer_{i}" for i in range(leaves // 4)]
    names = ("kernel", "bias", "scale", "mean")
    return {layer: dict.fromkeys(names, 0.0) for layer in layers}


def flatten_with_jax(tree: Any) -> dict[str, Any]:
    entries, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in entries}


def expect_missing(context: Any, key_paths: Any) -> None:
    try:
        kontext.resolve_from_keypaths(context, key_paths)
    except KeyError as error:
        str(error)
    else:
        raise AssertionError("the key should be missing")


def report(
    name: str,
    unit: str,
    ours: Callable[[], Any],
    limit: Callable[[], Any],
    repeat: int,
) -> None:
    """Prints the medians of interleaved measurements as one line of JSON."""
    scale = {"us": 1e6, "ms": 1e3}[unit] / repeat
    times = in_turn(repeated(ours, repeat), repeated(limit, repeat), rounds=7)
    medians = (statistics.median(found) * scale for found in times)
    show(f"kontext.{name}", *medians, unit=unit)


def repeated(function: Callable[[], Any], count: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            function()

    return run


if __name__ == "__main__":
    main()
