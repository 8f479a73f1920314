"""Which fields of a record a transform reads and writes."""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from kauldron import path_grammar
from kauldron.data.transforms import array_family
from kauldron.utils.immutabledict import ImmutableDict

Key: TypeAlias = str | Sequence[str] | Mapping[str, str]

_log = logging.getLogger(__name__)
_MISSING = object()


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
        """In-key, out-key and value of each selected field that the record has.

        Raises:
          KeyError: The record has none of them, or an out-key is already taken.
        """
        if not self._key_items:
            raise ValueError(
                f"{type(self).__name__}.__post_init__ must call"
                " `super().__post_init__()`: the keys were never set up."
            )
        if not isinstance(features, (dict, Mapping)):  # dict first: it is faster
            raise TypeError(
                f"{type(self).__name__} selects fields by key, so records must be"
                f" dicts; got {array_family.describe(features)}."
            )
        missing = []
        for in_key, out_key in self._key_items:
            value = get_field(features, in_key)
            if value is _MISSING:
                missing.append(in_key)
                continue
            if out_key != in_key and get_field(features, out_key) is not _MISSING:
                raise KeyError(_taken_message(self, in_key, out_key))
            yield in_key, out_key, value
        if missing:
            self._report_missing(missing, features)

    def map_fields(
        self, features: Mapping[str, Any], map_field: Callable[[Any], Any]
    ) -> dict[str, Any]:
        """A copy of the record with `map_field` applied to the selected fields."""
        result = None
        for in_key, out_key, value in self.selected_fields(features):
            try:
                new_value = map_field(value)
            except array_family.NotAnArrayError as error:
                name = type(self).__name__
                raise TypeError(f"{name}: field {in_key!r}: {error}") from None
            except Exception as error:
                error.add_note(f"Field {in_key!r}: {array_family.describe(value)}")
                raise
            if result is None:
                result = dict(features)
            set_field(result, out_key, new_value)
        return dict(features) if result is None else result

    def _report_missing(
        self, missing: Sequence[str], features: Mapping[str, Any]
    ) -> None:
        if len(missing) == len(self._key_items):
            raise KeyError(missing_keys_message(self, missing, features))
        if not getattr(self, "_has_reported_missing", False):
            object.__setattr__(self, "_has_reported_missing", True)
            _log.warning("%s", missing_keys_message(self, missing, features))


# ----------------------------------------------------------------------------
# Fields by name or dotted path
# ----------------------------------------------------------------------------


def get_field(features: Mapping[str, Any], key: str) -> Any:
    """The field, or the marker that it is missing."""
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
    """The names a dotted path is made of, nothing when the key is a plain name.

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
            raise KeyError(f"{owner}(key=...): a field name is empty.")
    if not pairs:
        raise KeyError(f"{owner}(key=...) selects no field.")
    twice = first_duplicate(out_key for _, out_key in pairs)
    if twice is not None:
        raise KeyError(f"{owner}(key=...) writes the field {twice!r} twice.")
    return ImmutableDict(pairs)


def first_duplicate(names: Iterable[str]) -> str | None:
    """The first name that occurs twice.

    >>> first_duplicate(["a", "b", "a"])
    'a'
    """
    seen = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


# ----------------------------------------------------------------------------
# Messages
# ----------------------------------------------------------------------------


def missing_keys_message(
    transform: Any, missing: Sequence[str], features: Mapping[str, Any]
) -> str:
    """What is missing, what there is, and the nearest names."""
    available = [str(name) for name in features]
    candidates = [*available, *_dotted_names(features)]
    hints = [
        f"{name!r} -> {close[0]!r}"
        for name in missing
        if (close := difflib.get_close_matches(name, candidates, n=1))
    ]
    hint = f" Did you mean {', '.join(hints)}?" if hints else ""
    return (
        f"{type(transform).__name__}: missing keys {sorted(missing)}. Available keys:"
        f" {sorted(available)}.{hint}"
    )


def _dotted_names(features: Mapping[str, Any]) -> Iterator[str]:
    """The paths of everything below the top level."""
    for name, value in features.items():
        if isinstance(value, Mapping):
            for inner in (*value, *_dotted_names(value)):
                yield f"{name}.{inner}"


def _taken_message(transform: Any, in_key: str, out_key: str) -> str:
    return (
        f"{type(transform).__name__}(key={{{in_key!r}: {out_key!r}}}): the record"
        f" already has a field {out_key!r}. Drop it first:"
        f" kd.data.Elements(drop=[{out_key!r}])."
    )
