"""Applying `transforms=` to a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kauldron.data.engine.entries import short_repr
from kauldron.data.processes import current_share
from kauldron.data.slice_dataset import SliceDataset
from kauldron.data.transforms.lazy_tensorflow import tf
from kauldron.data.transforms.transform_types import FilterTransform, MapTransform

Transforms = Sequence[Any] | Mapping[str, Any]


def check_transforms(transforms: Transforms) -> None:
    """Refuse what cannot be applied to tensors.

    Raises:
      TypeError: An entry is no transform, or a class instead of an object.
      ValueError: An entry works on NumPy arrays only.
    """
    for label, transform in _labelled(transforms):
        _check_entry(label, transform)


def apply_transforms(ds: Any, transforms: Transforms, rng: Any) -> Any:
    """The data set after all entries.

    Each record travels with its position in the stream of all processes, from which
    random transforms get their seeds.

    Args:
      ds: A `tf.data.Dataset` of single records of this process.
      transforms: The entries.
      rng: A `kd.random.PRNGKey`, the same on all processes.
    """
    entries = _labelled(transforms)
    if not entries:
        return ds
    share = current_share()
    ds = ds.enumerate().map(
        lambda index, record: (index * share.count + share.index, record)
    )
    for number, (label, transform) in enumerate(entries):
        try:
            ds = _apply(ds, transform, rng.fold_in(number))
        except Exception as error:
            error.add_note(f"In {label} {short_repr(transform)}")
            raise
    return _map(ds, lambda position, record: record)


def _apply(ds: Any, transform: Any, rng: Any) -> Any:
    if hasattr(transform, "random_map"):
        root = tf.constant(_seed_words(rng), tf.int32)

        def random_map(position: Any, record: Any) -> Any:
            seed = tf.random.experimental.stateless_fold_in(root, position)
            return position, transform.random_map(record, seed)

        return _map(ds, random_map)
    if isinstance(transform, FilterTransform):
        return ds.filter(lambda position, record: transform.filter(record))
    function = transform.map if isinstance(transform, MapTransform) else transform
    return _map(ds, lambda position, record: (position, function(record)))


def _map(ds: Any, function: Callable[..., Any]) -> Any:
    return ds.map(function, num_parallel_calls=tf.data.AUTOTUNE)


def _seed_words(rng: Any) -> list[int]:
    words = (rng.fold_in("high").as_seed(), rng.fold_in("low").as_seed())
    return [word - 2**32 if word >= 2**31 else word for word in words]


def _labelled(transforms: Transforms) -> list[tuple[str, Any]]:
    if isinstance(transforms, Mapping):
        return [(f"transforms[{name!r}]", t) for name, t in transforms.items()]
    if isinstance(transforms, Sequence) and not isinstance(transforms, str):
        return [(f"transforms[{i}]", t) for i, t in enumerate(transforms)]
    raise TypeError(
        "transforms= takes a list or a dict of transforms, not"
        f" {type(transforms).__name__}: {short_repr(transforms)}."
    )


def _check_entry(label: str, transform: Any) -> None:
    name = type(transform).__name__
    if isinstance(transform, type):
        raise TypeError(
            f"{label} is the class {transform.__name__}, not an object of it; did you"
            " forget the parentheses?"
        )
    is_for_numpy = getattr(type(transform), "__kd_data_backend__", None) == "py"
    if is_for_numpy or isinstance(transform, SliceDataset):
        raise ValueError(
            f"{label}: {name} works on NumPy arrays; in a kd.data.tf pipeline use"
            f" kd.data.tf.{name}, or move the pipeline to kd.data.py."
        )
    is_filter = isinstance(transform, FilterTransform)
    if not (callable(transform) or is_filter or hasattr(transform, "random_map")):
        raise TypeError(
            f"{label} is a {name} ({short_repr(transform)}), which is no transform."
            " Accepted are: kd.data.MapTransform, kd.data.FilterTransform, the transforms"
            " of kd.data.tf, objects with random_map(features, seed), and functions of"
            " one record."
        )
