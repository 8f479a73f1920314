"""What transforms get: tensors of TensorFlow, through NumPy; arguments, checked."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from kauldron.data.transforms import RandomMapTransform
from kauldron.data.transforms.fields import get_field, set_field
from kauldron.data.transforms.values import ArrayTransform, is_tf, tf

T = TypeVar("T")


def takes_tensors(map_element: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Decorate a `map_element` of arrays: TensorFlow tensors go through NumPy.

    In a `tf.data` pipeline their shape must be known.
    """

    @functools.wraps(map_element)
    def map_any_element(self: Any, element: Any) -> Any:
        if not is_tf(element):
            return map_element(self, element)
        return _through_numpy(functools.partial(map_element, self), element, self)

    return map_any_element


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumpyTransform(ArrayTransform):
    """Base of `ArrayTransform`s whose tensors go through NumPy."""

    traceable = True  # this and the batch form only count beside `map_element`

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        return super().map_element(element)

    def map_element_batch(self, elements: Any) -> Any:
        return super().map_element_batch(elements)


def _through_numpy(function: Callable[[Any], Any], tensor: Any, transform: Any) -> Any:
    if hasattr(tensor, "numpy"):  # outside of a graph
        return tf.convert_to_tensor(function(tensor.numpy()))
    example = function(_zeros(tensor, transform))
    result = tf.numpy_function(function, [tensor], tf.as_dtype(example.dtype))
    return tf.ensure_shape(result, example.shape)


def _zeros(tensor: Any, transform: Any, free_axes: Sequence[int] = ()) -> np.ndarray:
    """Return an array like a tensor of a graph, to see what a transform makes of it."""
    shape: list[Any] = [None] if tensor.shape.rank is None else [*tensor.shape]
    for axis in free_axes if tensor.shape.rank is not None else ():
        shape[axis] = shape[axis] or 8
    if None in shape:
        raise ValueError(
            f"{type(transform).__name__} needs tensors whose shape is known when the"
            f" pipeline is built, got {tensor.shape}; call tf.ensure_shape before."
        )
    return np.zeros(shape, tensor.dtype.as_numpy_dtype)


#
# Whole records of tensors
#


def takes_tensor_fields(
    *attributes: str, keeps_shapes: bool = False, free_axes: Sequence[int] = ()
) -> Callable[[type[T]], type[T]]:
    """Decorate a transform of records of arrays: tensors go through NumPy.

    In a `tf.data` pipeline a random transform is seeded by the seed of the record.

    Args:
      *attributes: Attributes of the transform that name the fields it reads.
      keeps_shapes: Whether the fields keep their shapes and dtypes, which then need not
        be known when the pipeline is built.
      free_axes: Axes whose size is random.
    """

    def decorate(cls: type[T]) -> type[T]:
        name = "random_map" if issubclass(cls, RandomMapTransform) else "map"
        plain = getattr(cls, name)

        @functools.wraps(plain)
        def method(self: Any, element: Any, *args: Any, **kwargs: Any) -> Any:
            names = dict(_field_names(self, attributes))
            fields = {name: get_field(element, name) for name in names}
            tensors = {name: value for name, value in fields.items() if is_tf(value)}
            if not tensors:
                return plain(self, element, *args, **kwargs)
            rngs = [*args, *kwargs.values()]  # at most one, by whatever name

            def run(arrays: Mapping[str, Any], rngs: Sequence[Any]) -> dict[str, Any]:
                return plain(self, {**element, **arrays}, *map(_as_rng, rngs))

            if all(hasattr(tensor, "numpy") for tensor in tensors.values()):
                arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
                new = _new_fields(run(arrays, rngs), element | arrays)
                new = {name: tf.convert_to_tensor(value) for name, value in new.items()}
            else:
                if keeps_shapes:
                    expected = {names[name]: tensors[name] for name in tensors}
                else:
                    zeros = {n: _zeros(t, self, free_axes) for n, t in tensors.items()}
                    example = run(zeros, [0 for _ in rngs])
                    expected = _new_fields(example, element | zeros)
                new = _in_graph(run, tensors, rngs, expected, free_axes)
            result = dict(element)
            for name, value in new.items():
                set_field(result, name, value)
            return result

        setattr(cls, name, method)
        cls.__kd_data_backend__ = None  # type: ignore[attr-defined]
        return cls

    return decorate


def _field_names(
    transform: Any, attributes: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Return the names of the fields to read, and of those to write in their place."""
    for attribute in attributes:
        names = getattr(transform, attribute)
        if isinstance(names, Mapping):
            yield from names.items()
        elif names is not None:
            yield names, names


def _new_fields(result: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in result.items() if v is not before.get(k)}


def _in_graph(
    run: Callable[..., Mapping[str, Any]],
    tensors: Mapping[str, Any],
    rngs: Sequence[Any],
    expected: Mapping[str, Any],
    free_axes: Sequence[int],
) -> dict[str, Any]:
    """Return fields of what `run` makes of tensors, like the arrays that are expected."""
    seeds = [rng for rng in rngs if is_tf(rng)]

    def function(*values: Any) -> list[np.ndarray]:
        arrays = dict(zip(tensors, values[len(seeds) :]))
        result = run(arrays, values[: len(seeds)] if seeds else rngs)
        return [np.asarray(result[name]) for name in expected]

    dtypes = [tf.as_dtype(value.dtype) for value in expected.values()]
    results = tf.numpy_function(function, [*seeds, *tensors.values()], dtypes)
    new = {}
    for (name, value), result in zip(expected.items(), results):
        shape = [*value.shape] if free_axes else value.shape
        for axis in free_axes:
            shape[axis] = None
        new[name] = tf.ensure_shape(result, shape)
    return new


def _as_rng(rng: Any) -> Any:
    """Return a generator for a seed of TensorFlow, two words of 32 bits with a sign."""
    if is_tf(rng):
        rng = rng.numpy()
    if isinstance(rng, np.ndarray):
        return np.random.default_rng(rng.ravel().astype(np.int64) & 0xFFFFFFFF)
    return rng


#
# Arguments
#


def check_positive(transform: Any, *names: str) -> None:
    """Raise `ValueError` if one of the arguments is below 1."""
    for name in names:
        value = getattr(transform, name)
        if value < 1:
            where = f"{type(transform).__name__}({name}={value})"
            raise ValueError(f"{where}: expected 1 or more.")


def check_probability(transform: Any, name: str) -> None:
    """Raise `ValueError` unless the argument is in [0, 1]."""
    value = getattr(transform, name)
    if not 0 <= value <= 1:
        where = f"{type(transform).__name__}({name}={value})"
        raise ValueError(f"{where}: expected a number from 0 to 1.")
