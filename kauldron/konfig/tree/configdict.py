"""`ConfigDict`: one node of a config, a mutable mapping with attribute access."""

from __future__ import annotations

import collections.abc
import contextlib
import copy
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, Self

import ml_collections
from ml_collections import FieldReference

from kauldron.errors import ReadableKeyError, did_you_mean, raise_reworded
from kauldron.konfig.errors import RequiredValueError
from kauldron.konfig.symbols import display_name, same_qualname
from kauldron.konfig.text import json_format, printing
from kauldron.konfig.tree import copying, equality
from kauldron.konfig.tree.field_types import check_overwrite, convert
from kauldron.konfig.tree.history import Kind, move_up, origin, record, short_repr
from kauldron.konfig.tree.node import (
    CONST_KEY,
    LEAF_TYPES,
    QUALNAME_KEY,
    Key,
    Node,
    field_expression,
    is_call,
    key_of_parameter,
    nodes_below,
    positional_count,
    remember_parent,
)
from kauldron.konfig.tree.placeholders import Variable, is_shared, is_unset_required
from kauldron.konfig.tree.references import (
    Operation,
    PathReference,
    Reference,
    is_evaluating,
)
from kauldron.konfig.tree.storing import (
    RAW_PREFIX,
    Filling,
    Unconfigurable,
    call_items,
    is_mapping,
    normalize,
    plain_key,
    stored_items,
    unconfigurable_message,
)

_MISSING: Any = object()


class ConfigDict(Node):
    """A mutable, ordered mapping that describes a call, a symbol or a dict.

    Three forms, told apart by their keys:

    * `__qualname__: "module:symbol"`: a call; the other fields are its arguments,
      positional ones under `"0"`, `"1"`, ...
    * `__const__: "module:symbol"`: the symbol itself.
    * anything else: a dict.

    `konfig.resolve` turns it into the real thing.

    Example:
      >>> cfg = ConfigDict({"model": {"width": 8}, "steps": 100})
      >>> cfg.model.width = 16
      >>> cfg.warmup = cfg.ref.steps // 10
      >>> cfg.steps = 1000
      >>> cfg.warmup
      100
    """

    def __init__(self, init_dict: Mapping[Any, Any] | None = None) -> None:
        """Create a node.

        Args:
          init_dict: The fields. Plain dicts below it are copied into new nodes; nodes
            are kept as they are.
        """
        super().__init__()
        if init_dict is None:
            self.__dict__["_konfig_origin"] = origin()
            return
        try:
            Filling(ConfigDict, origin()).fill(self, init_dict)
        except Unconfigurable as error:
            place = field_expression(self, *reversed(error.parts))
            raise ValueError(unconfigurable_message(error, place)) from None

    @classmethod
    def from_json(cls, text_or_path: Any) -> ConfigDict:
        """Read what `to_json` wrote, exactly as it was saved.

        Shared nodes are shared again; registered default values are not filled in.

        Args:
          text_or_path: The JSON text, or the path of a file with it.

        Returns:
          The config.
        """
        node = cls.__new__(cls)
        Node.__init__(node)
        filling = Filling(
            ConfigDict, origin("json"), with_defaults=False, references_from=node
        )
        filling.fill(node, json_format.load(text_or_path))
        return node

    # --------------------------------------------------------------------------------
    # Reading
    # --------------------------------------------------------------------------------

    def _konfig_key(self, key: Key, *, append: bool = False) -> Key:
        """Return the key under which a field is stored.

        The name of a parameter is the key of its argument, given by name or position.
        """
        fields = self._fields
        if type(key) is not str or key.startswith(RAW_PREFIX):
            key = plain_key(key)
        if type(key) is int and QUALNAME_KEY in fields:
            return self._konfig_argument_key(key, append=append)
        if type(key) is str and "0" in fields and key not in fields:
            return key_of_parameter(self, key) or key
        return key

    def _konfig_argument_key(self, index: int, *, append: bool) -> str:
        """Return the key of a positional argument, which may be counted from the end.

        With `append` the index after the last argument is accepted too.
        """
        count = positional_count(self)
        if -count <= index < count:
            return str(index % count)
        if append and index == count:
            return str(index)
        symbol = display_name(str(self._fields[QUALNAME_KEY]))
        raise IndexError(
            f"There is no positional argument {index}: the call of {symbol} has {count}"
            + (f", {-count} to {count - 1}." if count else ".")
        )

    def __getitem__(self, key: Key) -> Any:
        key = self._konfig_key(key)
        try:
            value = self._fields[key]
        except KeyError:
            raise ReadableKeyError(_missing_field(self, key)) from None
        if type(value) is list:  # what was appended to it learns where it hangs
            remember_parent(value, self)
        is_reference = isinstance(value, FieldReference)
        return self._konfig_evaluated(key, value) if is_reference else value

    def _konfig_evaluated(self, key: Key, reference: Any) -> Any:
        try:
            value = reference.get()
        except Exception as error:
            if isinstance(reference, Variable):
                raise  # it names the place itself
            place = field_expression(self, key)
            if is_unset_required(reference):  # a placeholder of ml_collections
                text = f"{place} is required but not set."
                raise RequiredValueError(text, [place]) from None
            if is_evaluating():
                raise  # the field that is read in the first place will be named
            raise_reworded(error, f"Cannot read {place}: {error}")
        if isinstance(reference, Operation) or not isinstance(reference, Reference):
            return self._konfig_normalized(value, key)
        return value

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("_fields")
        if fields is None or (name not in fields and name[:2] == "__"):
            raise AttributeError(name)
        if name not in fields and self._konfig_key(name) not in fields:
            raise AttributeError(_missing_field(self, name), name=name)
        return self[name]

    def __contains__(self, key: Any) -> bool:
        try:
            return self._konfig_key(key) in self._fields
        except (IndexError, TypeError):
            return False

    @property
    def ref(self) -> Any:
        """The entry to lazy references: `cfg.ref.a.b` follows the field `a.b`."""
        return PathReference(self)

    # --------------------------------------------------------------------------------
    # Writing
    # --------------------------------------------------------------------------------

    def __setitem__(self, key: Key, value: Any) -> None:
        self._konfig_set(self._konfig_key(key, append=True), value, "set")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OBJECT_NAMES:
            raise AttributeError(f"{name!r} cannot be a field: every object has it.")
        try:
            self[name] = value
        except KeyError as error:
            raise AttributeError(str(error)) from None
        if name in _METHOD_NAMES and name not in _warned_names:
            _warned_names.add(name)
            warnings.warn(
                f"The field {name!r} is stored, but `cfg.{name}` is a method of configs: "
                f"read the field as cfg[{name!r}].",
                stacklevel=2,
            )

    def _konfig_set(self, key: Key, value: Any, kind: Kind) -> None:
        fields = self._fields
        if self._locked and key not in fields:
            raise ReadableKeyError(_locked_field(self, key))
        value = self._konfig_normalized(value, key)
        if key in (QUALNAME_KEY, CONST_KEY) and isinstance(value, Node):
            value = value._fields.get(CONST_KEY, value)  # the symbol itself is given
        old = fields.get(key, _MISSING)
        shared = (
            isinstance(old, FieldReference) and is_shared(old) and not is_shared(value)
        )
        if old is not _MISSING and old is not value:
            value = self._konfig_over(key, old, value)
        record(self, key, value, kind)
        if shared:
            old.set(value, type_safe=False)
            return
        fields[key] = value
        if key == QUALNAME_KEY and old is _MISSING:
            self.__dict__["_fields"] = dict(call_items(fields.items()))

    def _konfig_over(self, key: Key, old: Any, new: Any) -> Any:
        """Return what to store over `old`; raises if its type does not fit."""
        if not self._type_safe or is_shared(new):
            return new
        try:
            if is_shared(old):
                return convert(new, old.get_type())
            return new if isinstance(old, FieldReference) else check_overwrite(old, new)
        except TypeError as error:
            raise TypeError(
                f"Cannot set {field_expression(self, key)} to {short_repr(new, 40)}: "
                f"{error}. To change the type of a field, write it inside "
                "`with cfg.ignore_type():`."
            ) from None

    def _konfig_normalized(self, value: Any, *parts: Key) -> Any:
        """Return a value as it is stored here, at a key or inside a list there."""
        if type(value) in LEAF_TYPES:
            return value
        try:
            return normalize(value, self, Filling(ConfigDict, origin()))
        except Unconfigurable as error:
            parts = (*parts, *reversed(error.parts))
            place = field_expression(self, *parts)
            raise ValueError(unconfigurable_message(error, place)) from None

    def _konfig_set_inside(
        self, keys: tuple[Any, ...], holder: list[Any], value: Any
    ) -> None:
        """Set an item of a list that hangs somewhere below the field `keys[0]`."""
        value = self._konfig_normalized(value, *keys)
        record(self, keys, value)
        holder[keys[-1]] = value

    def __delitem__(self, key: Key) -> None:
        stored = plain_key(key)
        if type(stored) is int:  # by index only: the arguments after it move up
            stored = self._konfig_key(stored)
        if stored not in self._fields:
            raise ReadableKeyError(_missing_field(self, key))
        if self._locked:
            raise ReadableKeyError(_locked_field(self, stored))
        record(self, stored, self._fields[stored], "del")
        self._konfig_delete(stored)

    def _konfig_delete(self, key: Key) -> None:
        """Remove a field; later positional arguments move up, with their history."""
        fields = self._fields
        last = positional_count(self) - 1
        is_position = is_call(self) and isinstance(key, str) and key.isdecimal()
        if not is_position or int(key) > last:  # beyond a gap
            del fields[key]
            return
        for index in range(int(key), last):
            fields[str(index)] = fields[str(index + 1)]
        del fields[str(last)]
        move_up(self, int(key), last)

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError as error:
            raise AttributeError(str(error)) from None

    def update(self, *other: Any, **kwargs: Any) -> None:
        """Merge other fields into this config, recursively.

        Dicts are merged into dicts. A node of another symbol, a value or a reference
        replaces what was there.

        Args:
          *other: At most one mapping (or iterable of pairs).
          **kwargs: Further fields.
        """
        if len(other) > 1:
            raise TypeError(f"update takes at most one mapping, got {len(other)}.")
        for mapping in (*other, kwargs):
            self._konfig_merge(mapping, "update")

    def _konfig_merge(
        self, mapping: Any, kind: Kind, around: tuple[tuple[int, int], ...] = ()
    ) -> None:
        pair = (id(self), id(mapping))
        if pair in around:  # both contain themselves
            return
        items = stored_items(mapping)
        if QUALNAME_KEY in self._fields:
            items = call_items(items)
        for key, value in items:
            key = plain_key(key) if kind == "init" else self._konfig_key(key)
            old = self._fields.get(key)
            if old is value and old is not None:
                continue
            if (
                isinstance(old, ConfigDict)
                and merges_into(old, value)
                # A node that is given for an empty default stays itself.
                and (kind != "init" or old._fields)
            ):
                old._konfig_merge(value, kind, (*around, pair))
            else:
                self._konfig_set(key, value, kind)

    # --------------------------------------------------------------------------------
    # The rest of a mutable mapping
    # --------------------------------------------------------------------------------

    def get(self, key: Key, default: Any = None) -> Any:
        """Return the value of a field, or `default` if there is no such field."""
        if key in self:
            return self[key]
        return default

    def keys(self) -> list[Key]:
        """Return the keys, in the order of insertion."""
        return list(self._fields)

    def values(self, preserve_field_references: bool = False) -> list[Any]:
        """Return the values, references evaluated unless they are to be preserved."""
        return [value for _, value in self.items(preserve_field_references)]

    def items(self, preserve_field_references: bool = False) -> list[tuple[Key, Any]]:
        """Return the pairs, references evaluated unless they are to be preserved."""
        if preserve_field_references:
            return list(self._fields.items())
        return [(key, self[key]) for key in list(self._fields)]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __dir__(self) -> list[str]:
        names = [k for k in self._fields if isinstance(k, str) and k.isidentifier()]
        return [*names, *dir(type(self))]

    def setdefault(self, key: Key, default: Any = None) -> Any:
        """Return the value of a field, after setting a missing one to `default`."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: Key, default: Any = _MISSING) -> Any:
        """Remove a field and return its value (or `default` if it is missing)."""
        if key not in self and default is not _MISSING:
            return default
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[Key, Any]:
        """Remove the last field and return its key and value."""
        if not self._fields:
            raise ReadableKeyError("The config is empty.")
        key = next(reversed(self._fields))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove all fields."""
        for key in self.keys():
            del self[key]

    # --------------------------------------------------------------------------------
    # The whole
    # --------------------------------------------------------------------------------

    def __eq__(self, other: Any) -> bool:
        return equality.equal(self, other)

    def __ne__(self, other: Any) -> bool:
        return not equality.equal(self, other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __or__(self, other: Any) -> Self:
        if not is_mapping(other):
            return NotImplemented
        merged = copy.deepcopy(self)
        merged._konfig_merge(other, "update")
        return merged

    def __ror__(self, other: Any) -> ConfigDict:
        if not is_mapping(other):
            return NotImplemented
        merged = ConfigDict(other)
        merged._konfig_merge(copy.deepcopy(self), "update")
        return merged

    def _konfig_no_arithmetic(self, other: Any) -> NoReturn:
        raise TypeError(
            f"Cannot compute with {short_repr(self)}: it is the config of a call that "
            "is not executed yet. Compute with values of the config: cfg.ref, "
            "konfig.ref_fn."
        )

    __add__ = __radd__ = __sub__ = __rsub__ = _konfig_no_arithmetic
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _konfig_no_arithmetic

    def copy(self) -> Self:
        """Return a new node with the same children; lists are copied."""
        return copy.copy(self)

    def __copy__(self) -> Self:
        return copying.shallow_copy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return copying.deep_copy(self, memo)

    def __getstate__(self) -> dict[str, Any]:
        return copying.pickled_state(self)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        copying.restore_state(self, state)

    def to_json(self, *, keep_refs: bool = False, **json_dumps_kwargs: Any) -> str:
        """Return the config as JSON; `ConfigDict.from_json` reads it back.

        Args:
          keep_refs: Write references by path (`{"__ref__": "a.b"}`) where possible,
            instead of their current value.
          **json_dumps_kwargs: For `json.dumps`, such as `indent=2`.

        Returns:
          The text.

        Raises:
          CycleError: The config contains itself.
          TypeError: A value or key has no JSON form; names the path.
        """
        return json_format.dumps(self, keep_refs=keep_refs, **json_dumps_kwargs)

    def __repr__(self) -> str:
        return f"<ConfigDict[{printing.format_value(self)}]>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from kauldron.konfig.text.html_page import to_html  # a page is rarely wanted

        return to_html(self)

    # --------------------------------------------------------------------------------
    # The helpers of ml_collections, which also reach nodes in lists and accept cycles
    # --------------------------------------------------------------------------------

    def lock(self) -> Self:
        """Forbid new fields and deletions, here and below; return the config itself."""
        for node in nodes_below(self):
            node.__dict__["_locked"] = True
        return self

    def unlock(self) -> Self:
        """Allow new fields again, here and below; return the config itself."""
        for node in nodes_below(self):
            node.__dict__["_locked"] = False
        return self

    @contextlib.contextmanager
    def unlocked(self) -> Iterator[Self]:
        """Allow new fields here and below, inside the block.

        What is locked stays so afterwards; new nodes are locked if this one is.
        """
        nodes = list(nodes_below(self))
        before = {id(node): node.is_locked for node in nodes}
        try:
            yield self.unlock()
        finally:
            for node in nodes_below(self):
                is_locked = before.get(id(node), before[id(self)])
                node.__dict__["_locked"] = is_locked

    @contextlib.contextmanager
    def ignore_type(self) -> Iterator[Self]:
        """Allow fields here and below to change their type, inside the block."""
        before = [(node, node.__dict__["_type_safe"]) for node in nodes_below(self)]
        for node, _ in before:
            node.__dict__["_type_safe"] = False
        try:
            yield self
        finally:
            for node, type_safe in before:
                node.__dict__["_type_safe"] = type_safe

    def get_type(self, key: Key) -> Any:
        """Return the type of a field, for a placeholder the declared one."""
        value = self[key]
        raw = self._fields[self._konfig_key(key)]
        if isinstance(raw, FieldReference) and raw.get_type() is not object:
            return raw.get_type()
        return type(value)

    def get_ref(self, key: Key) -> Any:
        """Return a write-through reference: all fields that hold it share one value.

        Args:
          key: The field whose value is to be shared. It becomes one of the holders.

        Returns:
          The reference, to be assigned to other fields.
        """
        value = self[key]
        key = self._konfig_key(key)
        raw = self._fields[key]
        if is_shared(raw):
            return raw
        declared = (
            object if value is None or isinstance(raw, FieldReference) else type(value)
        )
        declared = Node if isinstance(value, Node) else declared
        shared = Variable(raw, declared)
        remember_parent(shared, self)
        self._fields[key] = shared
        return shared

    def get_oneway_ref(self, key: Key) -> Any:
        """Return a read-only reference to a field, like `cfg.ref[key]`."""
        self[key]  # raises if there is no such field
        return PathReference(self)[key]

    def to_dict(
        self, visit_map: Any = None, preserve_field_references: bool = False
    ) -> dict[Key, Any]:
        """Return nested plain dicts; shared nodes become shared dicts.

        Args:
          visit_map: Dicts already made, by `id` of their node.
          preserve_field_references: Keep the references instead of their values.

        Returns:
          The dict.
        """
        return copying.as_dicts(self, visit_map, preserve_field_references)

    def copy_and_resolve_references(self, visit_map: Any = None) -> Self:
        """Return a copy of the whole config, with the current values for references.

        Args:
          visit_map: Copies already made, by `id` of their node.

        Returns:
          The copy; shared nodes stay shared, locks are kept.
        """
        return copying.without_references(self, visit_map)

    def eq_as_configdict(self, other: Any) -> bool:
        """Return whether the contents are equal, whatever kind of config `other` is."""
        return isinstance(other, ml_collections.ConfigDict) and self == dict(
            other.items(preserve_field_references=True)
        )


collections.abc.MutableMapping.register(ConfigDict)  # pyright: ignore

_OBJECT_NAMES = frozenset(dir(object)) | {"__dict__", "__weakref__", "__module__"}
_METHOD_NAMES = frozenset(
    name for name in (*dir(ConfigDict), *vars(ConfigDict())) if name[:2] != "__"
)
_warned_names: set[str] = set()  # of methods, each once


def as_stored(value: Any) -> Any:
    """Return a value as a config would store it; real objects are left as they are.

    Plain dicts become nodes with exactly the given fields: registered default values
    are not filled in.
    """
    filling = Filling(ConfigDict, None, with_defaults=False, strict=False)
    return normalize(value, None, filling)


def merges_into(old: Any, new: Any) -> bool:
    """Return whether `new` is merged into the stored `old` instead of replacing it.

    Two dicts are merged. A node is replaced by the node of another symbol: fields of
    two classes in one call would make no sense.
    """
    if not isinstance(old, Node) or not is_mapping(new):
        return False
    if CONST_KEY in new or CONST_KEY in old._fields:
        return False
    return QUALNAME_KEY not in new or same_qualname(
        new[QUALNAME_KEY], old._fields.get(QUALNAME_KEY)
    )


def _node_name(node: Node) -> str:
    """Return the place and the symbol of a node: `cfg.optimizer (optax.adam)`."""
    fields = node._fields
    symbol = fields.get(QUALNAME_KEY) or fields.get(CONST_KEY)
    suffix = f" ({display_name(symbol)})" if isinstance(symbol, str) else ""
    return field_expression(node) + suffix


def _missing_field(node: Node, key: Key) -> str:
    """Say that there is no such field; name the nearest, or all that there are."""
    fields = node._fields
    names = [str(name) for name in fields]
    hint = did_you_mean(key, names)
    if not hint:
        hint = f" It has: {', '.join(names)}." if names else " It is empty."
        if QUALNAME_KEY in fields:
            hint += " This is a call that was not made yet: `konfig.resolve` makes it."
    return f"{_node_name(node)} has no field {key!r}.{hint}"


def _locked_field(node: Node, key: Key) -> str:
    """Say that the field cannot be added or deleted."""
    fields = node._fields
    verb, hint = (
        ("deleted", "") if key in fields else ("added", did_you_mean(key, fields))
    )
    return (
        f"{_node_name(node)} is locked: the field {key!r} cannot be {verb}.{hint} "
        "Use cfg.unlock() or cfg.unlocked()."
    )


def as_config(cfg: Any) -> Node:
    """Return a config as it is; a plain mapping as the config it stands for."""
    return cfg if isinstance(cfg, Node) else ConfigDict(cfg)
