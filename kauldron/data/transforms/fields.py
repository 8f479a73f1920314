"""Transforms that choose fields: the `key` argument, element-wise transforms, `Elements`."""

from __future__ import annotations

import abc
import collections
import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from kauldron import path_grammar
from kauldron.data.engine import trees
from kauldron.data.engine.trees import describe_leaf
from kauldron.data.transforms.transform_types import MapTransform, RandomMapTransform
from kauldron.errors import ReadableKeyError, nearest
from kauldron.immutabledict import ImmutableDict

Key: TypeAlias = str | Sequence[str] | Mapping[str, str]

_log = logging.getLogger(__name__)
_MISSING = object()


class NotAnArrayError(TypeError):
    """A transform of arrays met a field that holds none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyedFields:
    """The `key` argument that element-wise transforms share.

    Attributes:
      key: The field or fields to read, or a mapping from fields to read to fields to
        write. Stored as a mapping. A dotted name such as `"obs.image"` reaches into
        nested dicts when the record has no field of exactly that name.
    """

    key: Key

    _key_items: ClassVar[tuple[tuple[str, str], ...]] = ()  # in-key, out-key

    def __post_init__(self) -> None:
        key = _as_key_mapping(self.key, owner=type(self).__name__)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "_key_items", tuple(key.items()))

    def selected_fields(
        self, features: Mapping[str, Any]
    ) -> Iterator[tuple[str, str, Any]]:
        """Yield in-key, out-key and value of each selected field that the record has.

        Raises:
          KeyError: The record has none of them, or an out-key is already taken.
        """
        if not self._key_items:
            raise ValueError(
                f"{type(self).__name__}.__post_init__ must call"
                " `super().__post_init__()`: the keys were never set up."
            )
        check_is_record(features, self)
        missing = []
        for in_key, out_key in self._key_items:
            value = get_field(features, in_key)
            if value is _MISSING:
                missing.append(in_key)
                continue
            if out_key != in_key and get_field(features, out_key) is not _MISSING:
                raise ReadableKeyError(_key_taken_message(self, in_key, out_key))
            yield in_key, out_key, value
        if missing:
            self._report_missing(missing, features)

    def map_fields(
        self, features: Mapping[str, Any], map_field: Callable[[Any], Any]
    ) -> dict[str, Any]:
        """Return a copy of the record with `map_field` applied to selected fields."""
        result = None
        for in_key, out_key, value in self.selected_fields(features):
            try:
                new_value = map_field(value)
            except NotAnArrayError as error:
                name = type(self).__name__
                raise TypeError(f"{name}: field {in_key!r}: {error}") from None
            except Exception as error:
                error.add_note(f"Field {in_key!r}: {describe_leaf(value)}")
                raise
            if result is None:
                result = dict(features)
            set_field(result, out_key, new_value)
        return dict(features) if result is None else result

    def _report_missing(
        self, missing: Sequence[str], features: Mapping[str, Any]
    ) -> None:
        if len(missing) == len(self._key_items):
            raise ReadableKeyError(_missing_keys_message(self, missing, features))
        if not getattr(self, "_has_reported_missing", False):
            object.__setattr__(self, "_has_reported_missing", True)
            _log.warning("%s", _missing_keys_message(self, missing, features))


# ----------------------------------------------------------------------------
# Fields by name or dotted path
# ----------------------------------------------------------------------------


def get_field(features: Mapping[str, Any], key: str) -> Any:
    """Return the field, or the marker that it is missing."""
    if key in features:
        return features[key]
    parts = nested_parts(key)
    return _descend(features, parts) if parts else _MISSING


def set_field(record: dict[str, Any], key: str, value: Any) -> None:
    """Set a field of a record that is ours; the nested dicts on the way get copied."""
    parts = () if key in record else nested_parts(key)
    if not parts or not isinstance(_descend(record, parts[:-1]), Mapping):
        record[key] = value
        return
    node = record
    for part in parts[:-1]:
        node[part] = dict(node[part])
        node = node[part]
    node[parts[-1]] = value


def nested_parts(key: str) -> tuple[str, ...]:
    """Return the names a dotted path is made of, nothing when the key is a plain name.

    >>> nested_parts("obs.image"), nested_parts("image"), nested_parts("v1.5/x")
    (('obs', 'image'), (), ())
    """
    if "." not in key:
        return ()
    try:
        parts = path_grammar.parse(key)
    except path_grammar.PathSyntaxError:
        return ()
    if not all(type(part) is str for part in parts):
        return ()
    return parts  # pyright: ignore[reportReturnType]


def _descend(value: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        if not isinstance(value, Mapping) or part not in value:
            return _MISSING
        value = value[part]
    return value


# ----------------------------------------------------------------------------
# Arguments
# ----------------------------------------------------------------------------


def _as_key_mapping(key: Any, *, owner: str) -> ImmutableDict:
    if isinstance(key, str):
        key = (key,)
    if isinstance(key, Mapping):
        pairs = [*key.items()]
    elif isinstance(key, Sequence) and not isinstance(key, bytes):
        pairs = [(name, name) for name in key]
    else:
        raise TypeError(
            f"{owner}(key={key!r}): expected a name, a list of names, or a mapping"
            f" from names to new names; got {type(key).__name__}."
        )
    for name in (name for pair in pairs for name in pair):
        if not isinstance(name, str):
            raise TypeError(f"{owner}(key=...): {name!r} is not a field name (str).")
        if not name:
            raise ReadableKeyError(f"{owner}(key=...): a field name is empty.")
    if not pairs:
        raise ReadableKeyError(f"{owner}(key=...) selects no field: name at least one.")
    twice = _first_duplicate(out_key for _, out_key in pairs)
    if twice is not None:
        raise ReadableKeyError(
            f"{owner}(key=...) writes the field {twice!r} twice: give each its own name."
        )
    return ImmutableDict(pairs)


def _first_duplicate(names: Iterable[str]) -> str | None:
    counts = collections.Counter(names)
    return next((name for name, count in counts.items() if count > 1), None)


# ----------------------------------------------------------------------------
# What a record must have
# ----------------------------------------------------------------------------


def check_is_record(features: Any, transform: Any) -> None:
    """Raise `TypeError` unless the record is made of fields."""
    if not isinstance(features, (dict, Mapping)):  # dict first: it is faster
        raise TypeError(
            f"{type(transform).__name__} works on fields, so records must be dicts; got"
            f" {describe_leaf(features)}."
        )


def check_has_fields(
    features: Mapping[str, Any], names: Iterable[str], transform: Any
) -> None:
    """Raise `KeyError` if the record lacks a field."""
    missing = [name for name in names if name not in features]
    if missing:
        raise ReadableKeyError(_missing_keys_message(transform, missing, features))


def _missing_keys_message(
    transform: Any, missing: Sequence[str], features: Mapping[str, Any]
) -> str:
    """Say which keys are missing, which there are, and the nearest names."""
    available = [str(name) for name in features]
    candidates = [*available, *_dotted_names(features)]
    hints = [
        f"{name!r} -> {close[0]!r}"
        for name in missing
        if (close := nearest(name, candidates))
    ]
    hint = f" Did you mean {', '.join(hints)}?" if hints else ""
    return (
        f"{type(transform).__name__}: missing keys {sorted(missing)}. Available keys:"
        f" {sorted(available)}.{hint}"
    )


def _dotted_names(features: Mapping[str, Any]) -> Iterator[str]:
    """Return the paths of everything below the top level."""
    for name, value in features.items():
        if isinstance(value, Mapping):
            for inner in (*value, *_dotted_names(value)):
                yield f"{name}.{inner}"


def _key_taken_message(transform: Any, in_key: str, out_key: str) -> str:
    return (
        f"{type(transform).__name__}(key={{{in_key!r}: {out_key!r}}}): the record"
        f" already has a field {out_key!r}. Drop it first:"
        f" kd.data.Elements(drop=[{out_key!r}])."
    )


# ----------------------------------------------------------------------------
# Transforms of single fields
# ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementWiseTransform(KeyedFields, MapTransform):
    """Applies `map_element` to the selected fields; the others pass through.

    A field written under a new name leaves the one it was made from in place. Keys that
    a record lacks are skipped, and logged once, as long as it has one of them.

    A sub-class may define `map_element_batch(elements)`, which takes a column (an array
    with one more leading axis) and must give exactly what stacking the results of
    `map_element` gives. It is used only if it is defined in the same class as
    `map_element` or in a more derived one.

    Attributes:
      key: The field or fields to transform, or a mapping from fields to read to fields
        to write.

    Example:
      >>> @dataclasses.dataclass(frozen=True, kw_only=True)
      ... class Gamma(ElementWiseTransform):
      ...     gamma: float
      ...
      ...     def map_element(self, element):
      ...         return element**self.gamma
      ...
      ...     map_element_batch = map_element
      >>> Gamma(key="image", gamma=2.0).map({"image": 3.0, "label": 1})
      {'image': 9.0, 'label': 1}
      >>> Gamma(key={"image": "bright"}, gamma=2.0).map({"image": 3.0})
      {'image': 3.0, 'bright': 9.0}
    """

    @abc.abstractmethod
    def map_element(self, element: Any) -> Any:
        """Return the new value of one field of one record."""

    def map(self, features: Mapping[str, Any]) -> dict[str, Any]:
        return self.map_fields(features, self.map_element)

    def map_batch(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """`map` on columns, for sub-classes with a `map_element_batch`."""
        map_column = _batch_method(self, "map_element_batch")
        return self.map_fields(
            features,
            lambda column: _map_column(
                column,
                map_column,
                lambda rows: [self.map_element(row) for row in rows],
            ),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementWiseRandomTransform(KeyedFields, RandomMapTransform):
    """Applies `random_map_element` to the selected fields.

    Every field gets a generator in the same state, so that an image and its mask are
    cropped alike.

    A sub-class may define `random_map_element_batch(elements, rngs)`: `elements` is a
    column, `rngs[i]` the generator of record i, in its initial state every time it is
    asked for. Finish with one before asking for the next: they may share an object.

    Attributes:
      key: The field or fields to transform, or a mapping from fields to read to fields
        to write.

    Example:
      >>> class Jitter(ElementWiseRandomTransform):
      ...     def random_map_element(self, element, rng):
      ...         return element + rng.integers(100)
      >>> jittered = Jitter(key=["a", "b"])({"a": 0, "b": 0}, np.random.default_rng(0))
      >>> int(jittered["a"]), int(jittered["b"])
      (85, 85)
    """

    __kd_data_backend__ = "py"

    @abc.abstractmethod
    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        """Return the new value of one field of one record."""

    def check_fields(self, features: Mapping[str, Any], *, num_batch_axes: int) -> None:
        """Raise if the selected fields do not go together; sub-classes may override."""

    def random_map(
        self, features: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Any]:
        self.check_fields(features, num_batch_axes=0)
        if len(self._key_items) < 2:  # saves the time to read the state
            return self.map_fields(
                features, lambda element: self.random_map_element(element, rng)
            )
        map_field = from_same_state(self.random_map_element, rng)
        return self.map_fields(features, map_field)

    def random_map_batch(
        self, features: Mapping[str, Any], rngs: Any
    ) -> dict[str, Any]:
        """`random_map` on columns, for sub-classes with a batch method."""
        self.check_fields(features, num_batch_axes=1)
        map_column = _batch_method(self, "random_map_element_batch")
        return self.map_fields(
            features,
            lambda column: _map_column(
                column,
                lambda array: map_column(array, rngs),
                lambda rows: [
                    self.random_map_element(row, rngs[i]) for i, row in enumerate(rows)
                ],
            ),
        )


def from_same_state(
    random_map: Callable[[Any, np.random.Generator], Any], rng: np.random.Generator
) -> Callable[[Any], Any]:
    """Return `random_map` as a function of the value, which always draws the same."""
    state = rng.bit_generator.state

    def map_value(value: Any) -> Any:
        rng.bit_generator.state = state
        return random_map(value, rng)

    return map_value


def _batch_method(transform: Any, name: str) -> Callable[..., Any]:
    method = getattr(transform, name, None)
    if method is None:
        raise TypeError(f"{type(transform).__name__} has no `{name}`.")
    return method


def num_records(columns: Any) -> int:
    """Return the length of the leading axis."""
    size = trees.num_rows(columns)
    if size is None:
        raise ValueError("A batch without a single array has no length.")
    return size


def _map_column(
    column: Any,
    map_array: Callable[[Any], Any],
    map_rows: Callable[[list[Any]], list[Any]],
) -> Any:
    """Return the new column, by `map_array` if it is an array.

    A field that is itself a list or a dict is not one array but several; batch methods
    need not know that: the rows of such a field go through `map_rows`.
    """
    if not isinstance(column, list | tuple | Mapping):
        return map_array(column)
    rows = map_rows(trees.unstack(column, num_records(column)))
    if trees.is_jax(rows[0]):
        import jax.numpy as jnp

        return jnp.stack(rows)
    return trees.stack(rows)


# ----------------------------------------------------------------------------
# Elements
# ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Elements(MapTransform):
    """Selects and renames the fields of a record.

    First copies are taken, then fields are kept or dropped, then renamed. With `keep`
    the result has the kept, the renamed and the copied fields and nothing else. Without
    any argument records pass through.

    Attributes:
      keep: Fields to keep; all others go.
      drop: Fields to drop; all others stay. Not together with `keep`.
      rename: From old name to new name. Names may be swapped.
      copy: From name to the name of the copy. The source may be dropped or renamed.

    Example:
      >>> record = {"image": 1, "label": 2, "id": 3}
      >>> Elements(keep=["image"], rename={"label": "target"}).map(record)
      {'image': 1, 'target': 2}
      >>> Elements(drop="id", copy={"image": "original"}).map(record)
      {'image': 1, 'label': 2, 'original': 1}
    """

    keep: Iterable[str] = ()
    drop: Iterable[str] = ()
    rename: Mapping[str, str] = ImmutableDict()
    copy: Mapping[str, str] = ImmutableDict()

    traceable = True
    takes_encoded_images = True
    # As plain pairs, which are quicker to go through than mappings.
    _renames_and_copies: ClassVar[tuple[tuple[tuple[str, str], ...], ...]]

    def __post_init__(self) -> None:
        for name in ("keep", "drop"):
            object.__setattr__(self, name, _as_names(getattr(self, name), name))
        for name in ("rename", "copy"):
            object.__setattr__(self, name, _as_mapping(getattr(self, name), name))
        _check_conflicts(self)
        plain = (tuple(self.rename.items()), tuple(self.copy.items()))
        object.__setattr__(self, "_renames_and_copies", plain)

    def map(self, features: Mapping[str, Any]) -> dict[str, Any]:
        renames, copies = self._renames_and_copies
        gone = [source for source, _ in renames]
        copied = [source for source, _ in copies]
        check_is_record(features, self)
        check_has_fields(features, (*self.keep, *self.drop, *gone, *copied), self)
        if self.keep:
            result = {k: v for k, v in features.items() if k in self.keep}
        else:
            result = {
                k: v
                for k, v in features.items()
                if k not in self.drop and k not in gone
            }
        for source, target in copies:
            if target in features:
                raise ReadableKeyError(_taken_message("copy", source, target))
            result[target] = features[source]
        for source, target in renames:
            if target in result:
                raise ReadableKeyError(_taken_message("rename", source, target))
            result[target] = features[source]
        return result

    map_batch = map


def _as_names(names: Any, argument: str) -> tuple[str, ...]:
    if isinstance(names, str):
        names = (names,)
    if not isinstance(names, Iterable):
        raise TypeError(f"Elements({argument}={names!r}): expected names of fields.")
    names = tuple(dict.fromkeys(names))
    _check_are_names(names, argument)
    return names


def _as_mapping(mapping: Any, argument: str) -> ImmutableDict:
    if not isinstance(mapping, Mapping):
        raise TypeError(
            f"Elements({argument}={mapping!r}): expected a mapping from names to names."
        )
    _check_are_names((*mapping.keys(), *mapping.values()), argument)
    return ImmutableDict(mapping)


def _check_are_names(names: Iterable[Any], argument: str) -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"Elements({argument}=...): {name!r} is not a name (str).")


_WITHOUT_OVERLAP = (
    ("keep", "the sources of rename"),
    ("keep", "the targets of rename"),
    ("drop", "the sources of rename"),
    ("the targets of copy", "keep"),
    ("the targets of copy", "drop"),
    ("the targets of copy", "the sources of rename"),
    ("the targets of copy", "the targets of rename"),
)


def _check_conflicts(elements: Elements) -> None:
    if elements.keep and elements.drop:
        raise ValueError("Elements takes `keep` or `drop`, not both.")
    for argument, mapping in (("copy", elements.copy), ("rename", elements.rename)):
        twice = _first_duplicate(mapping.values())
        if twice is not None:
            raise ValueError(
                f"Elements({argument}={dict(mapping)}) makes {twice!r} twice."
            )
    names = {
        "keep": set(elements.keep),
        "drop": set(elements.drop),
        "the sources of rename": set(elements.rename),
        "the targets of rename": set(elements.rename.values()),
        "the targets of copy": set(elements.copy.values()),
    }
    for one, other in _WITHOUT_OVERLAP:
        overlap = sorted(names[one] & names[other])
        if overlap:
            raise ReadableKeyError(f"Elements: {overlap} are in {one} and in {other}.")


def _taken_message(action: str, source: str, target: str) -> str:
    return (
        f"Elements({action}={{{source!r}: {target!r}}}): the record already has a field"
        f" {target!r}. Drop it explicitly: drop=[{target!r}]."
    )
