"""Transforms that choose their fields by a predicate, anywhere in a record."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from kauldron.contrib.data import images
from kauldron.data import transforms
from kauldron.data.transforms import MapTransform, RandomMapTransform
from kauldron.data.transforms.fields import from_same_state
from kauldron.data.transforms.values import DType, as_images, is_tf

Predicate: TypeAlias = Callable[[tuple[Any, ...], Any], bool]


class Name(str):
    """A name on the path of a leaf; `.key` is the name too, as in paths of jax."""

    __slots__ = ()

    @property
    def key(self) -> str:
        return str(self)


class Index(int):
    """A place in a list on the path of a leaf; `.idx` is that place, as in jax."""

    @property
    def idx(self) -> int:
        return int(self)


def never(path: tuple[Any, ...], value: Any) -> bool:
    """Pick no leaf: the predicate of transforms that were given none."""
    del path, value
    return False


@dataclasses.dataclass(frozen=True)
class matching_keys:  # reads as a function in configs
    """A predicate: the last name on the path contains one of some texts.

    For an entry of a list, that is the name of the list.

    Attributes:
      strs: The texts.
      strs_to_exclude: Names with one of these are left alone.

    Example:
      >>> is_image = matching_keys()
      >>> is_image(("cameras", "front_image"), None), is_image(("label",), None)
      (True, False)
    """

    strs: Sequence[str] = ("img", "image", "rgb")
    strs_to_exclude: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "strs", tuple(self.strs))
        object.__setattr__(self, "strs_to_exclude", tuple(self.strs_to_exclude))

    def __call__(self, key_path: tuple[str | int, ...], value: Any) -> bool:
        names = [part for part in key_path if isinstance(part, str)]
        name = names[-1] if names else ""
        if any(text in name for text in self.strs_to_exclude):
            return False
        return any(text in name for text in self.strs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementWiseTransformWithPredicate(MapTransform):
    """Applies `map_element` to the leaves of a record that a predicate picks.

    Attributes:
      should_transform_pred: Function of the path (a tuple of names and indices) and the
        value of a leaf. By default no leaf is picked.
    """

    should_transform_pred: Predicate = never

    @abc.abstractmethod
    def map_element(self, element: Any) -> Any:
        """Return the new value of one leaf."""

    def map(self, element: Any) -> Any:
        return map_chosen(element, self.should_transform_pred, self.map_element)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementWiseRandomTransformWithPredicate(RandomMapTransform):
    """Applies `random_map_element` to the leaves of a record that a predicate picks.

    Every leaf gets a generator in the same state, in a `kd.data.tf` pipeline the same
    seed.

    Attributes:
      should_transform_pred: Function of the path (a tuple of names and indices) and the
        value of a leaf. By default no leaf is picked.
    """

    should_transform_pred: Predicate = never

    @abc.abstractmethod
    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        """Return the new value of one leaf."""

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        if is_tf(rng):
            return map_chosen(
                element,
                self.should_transform_pred,
                lambda value: self.random_map_element(value, rng),
            )
        map_leaf = from_same_state(self.random_map_element, rng)
        return map_chosen(element, self.should_transform_pred, map_leaf)


def map_chosen(
    tree: Any,
    predicate: Predicate,
    function: Callable[[Any], Any],
    path: tuple[str | int, ...] = (),
) -> Any:
    """Apply a function to the leaves of a tree that the predicate picks."""
    if isinstance(tree, Mapping):
        return {
            name: map_chosen(value, predicate, function, (*path, Name(name)))
            for name, value in tree.items()
        }
    if isinstance(tree, list | tuple):
        items = [
            map_chosen(value, predicate, function, (*path, Index(i)))
            for i, value in enumerate(tree)
        ]
        if hasattr(tree, "_fields"):  # a named tuple
            return type(tree)(*items)
        return type(tree)(items)
    return function(tree) if predicate(path, tree) else tree


#
# Images
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ImageTransform(ElementWiseTransformWithPredicate):
    _names: ClassVar[tuple[str, ...]] = ("img", "image", "rgb")

    @classmethod
    def matching_keys(
        cls,
        strs: Sequence[str] | None = None,
        strs_to_exclude: Sequence[str] = (),
        **options: Any,
    ) -> Self:
        """Return the transform of leaves whose name contains one of some texts.

        Args:
          strs: The texts; by default those that say image.
          strs_to_exclude: Names with one of these are left alone.
          **options: Those of the class.
        """
        strs = cls._names if strs is None else strs
        predicate = matching_keys(strs, strs_to_exclude)
        return cls(should_transform_pred=predicate, **options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlipUpsideDown(_ImageTransform):
    """Turns images `(..., h, w, c)` upside down.

    Attributes:
      should_transform_pred: Which leaves; `FlipUpsideDown.matching_keys()` takes those
        whose name says image.

    Example:
      >>> record = {"image": np.array([[[1]], [[2]]]), "depth": np.zeros((2, 1, 1))}
      >>> FlipUpsideDown.matching_keys().map(record)["image"].ravel()
      array([2, 1])
    """

    def map_element(self, element: Any) -> Any:
        return as_images(element, self)[..., ::-1, :, :]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _LikeKeyed(_ImageTransform):
    """Does to the chosen leaves what another transform does to the fields it names."""

    _keyed_type: ClassVar[type[transforms.ElementWiseTransform]]

    def __post_init__(self) -> None:
        _ = self._keyed  # raises for arguments that make no sense

    @functools.cached_property
    def _keyed(self) -> transforms.ElementWiseTransform:
        return self._keyed_type(key="image", **self._arguments())

    def _arguments(self) -> dict[str, Any]:
        names = {field.name for field in dataclasses.fields(self._keyed_type)}
        return {name: getattr(self, name) for name in names - {"key"}}

    def map_element(self, element: Any) -> Any:
        return self._keyed.map_element(element)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PadImage(_LikeKeyed):
    """Pads images `(..., h, w, c)`, as `kd.contrib.data.PadImage`.

    Attributes:
      should_transform_pred: Which leaves, as in `FlipUpsideDown`.
      pad: Pixels on each side, or `(vertical, horizontal)`.
      mode: As in `np.pad`.
    """

    pad: int | tuple[int, int]
    mode: str = "constant"

    _names = ("img", "image", "rgb", "cam")
    _keyed_type = images.PadImage

    @classmethod
    def matching_keys(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, pad: int | tuple[int, int], mode: str = "constant", **options: Any
    ) -> Self:
        """Return the transform of leaves whose name contains one of some texts.

        Args:
          pad: Pixels on each side, or `(vertical, horizontal)`.
          mode: As in `np.pad`.
          **options: The texts, `strs` and `strs_to_exclude`, as in `FlipUpsideDown`.
        """
        return super().matching_keys(pad=pad, mode=mode, **options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueRange(_LikeKeyed):
    """Maps `in_vrange` linearly to `vrange`, as `kd.data.ValueRange`.

    Attributes:
      should_transform_pred: Which leaves, as in `FlipUpsideDown`.
      vrange: Range of the result.
      in_vrange: Range of the input.
      dtype: Of the result.
      clip_values: Whether values outside `in_vrange` end at the border of `vrange`.
    """

    vrange: tuple[float, float]
    in_vrange: tuple[float, float] = (0.0, 255.0)
    dtype: DType = np.float32
    clip_values: bool = True

    _keyed_type = transforms.ValueRange


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resize(_LikeKeyed):
    """Resizes images `(..., h, w, c)`, as `kd.data.Resize`.

    Attributes:
      should_transform_pred: Which leaves, as in `FlipUpsideDown`.
      height: The new height, together with `width`; or
      width: the new width.
      size: The new `(h, w)`; or
      min_size: the new size of the shorter edge; or
      max_size: the new size of the longer edge.
      method: Such as `"bilinear"`, or `"AUTO"`: `nearest` for integers, `area` for
        floats.
      antialias: Whether to filter when shrinking.

    Example:
      >>> record = {"left": {"rgb": np.zeros((8, 8, 3))}, "depth": np.zeros((8, 8, 1))}
      >>> smaller = Resize.matching_keys(height=4, width=4).map(record)
      >>> smaller["left"]["rgb"].shape, smaller["depth"].shape
      ((4, 4, 3), (8, 8, 1))
    """

    height: int | None = None
    width: int | None = None
    size: tuple[int, int] | None = None
    min_size: int | None = None
    max_size: int | None = None
    method: str = "AUTO"
    antialias: bool = False

    _keyed_type = transforms.Resize

    def _arguments(self) -> dict[str, Any]:
        arguments = super()._arguments()
        edges = (self.height, self.width)
        if edges != (None, None):
            if self.size is not None or None in edges:
                raise ValueError("Resize: give both height and width, or size.")
            arguments["size"] = edges
        return arguments
