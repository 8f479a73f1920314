"""`ConfigDict`: one node of a config, a mutable mapping with attribute access."""

from __future__ import annotations

import collections.abc
import copy
from collections.abc import Mapping
from typing import Any, NoReturn, Self

from kauldron.konfig import (
    comparing,
    copying,
    json_format,
    node_messages,
    repr_text,
)
from kauldron.konfig.errors import RequiredValueError, key_error, raise_reworded
from kauldron.konfig.field_types import check_overwrite, convert
from kauldron.konfig.filling import Filling
from kauldron.konfig.keys import (
    argument_key,
    call_items,
    delete_field,
    key_of_parameter,
    plain_key,
)
from kauldron.konfig.mapping_methods import MappingMethods
from kauldron.konfig.merging import is_mapping, merges_into, stored_items
from kauldron.konfig.node import (
    CONST_KEY,
    QUALNAME_KEY,
    Key,
    Node,
    field_expression,
    raw_fields,
    remember_parent,
)
from kauldron.konfig.normalizing import (
    LEAF_TYPES,
    Unconfigurable,
    normalize,
    unconfigurable_message,
)
from kauldron.konfig.placeholders import Variable, is_shared, is_unset_required
from kauldron.konfig.references import (
    Operation,
    PathReference,
    Reference,
    is_evaluating,
    is_reference,
)
from kauldron.konfig.set_events import Kind, origin, record, short_repr

_MISSING: Any = object()


class ConfigDict(MappingMethods):
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
        """Creates a node.

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
        """Reads what `to_json` wrote, exactly as it was saved.

        Shared nodes are shared again; registered default values are not filled in.

        Args:
          text_or_path: The JSON text, or the path of a file with it.

        Returns:
          The config.
        """
        node = cls.__new__(cls)
        Node.__init__(node)
        filling = Filling(ConfigDict, origin("json"), with_defaults=False)
        filling.fill(node, json_format.load(text_or_path))
        json_format.restore_references(node)
        return node

    # --------------------------------------------------------------------------------
    # Reading
    # --------------------------------------------------------------------------------

    def _konfig_key(self, key: Key, *, append: bool = False) -> Key:
        """The key under which a field is stored: arguments by index, decoded keys.

        The name of a parameter is the key of its argument, given by name or position.
        """
        key = plain_key(key)
        if type(key) is int and QUALNAME_KEY in self._fields:
            return argument_key(self, key, append=append)
        if type(key) is str and key not in self._fields:
            return key_of_parameter(self, key) or key
        return key

    def __getitem__(self, key: Key) -> Any:
        key = self._konfig_key(key)
        try:
            value = self._fields[key]
        except KeyError:
            raise key_error(node_messages.missing_field(self, key)) from None
        if type(value) is list:  # what was appended to it learns where it hangs
            remember_parent(value, self)
        return self._konfig_evaluated(key, value) if is_reference(value) else value

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
        key = self._konfig_key(name)
        if key not in fields:
            raise AttributeError(node_messages.missing_field(self, name), name=name)
        return self[key]

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
        if name in _METHOD_NAMES:
            node_messages.warn_of_method_name(name)

    def _konfig_set(self, key: Key, value: Any, kind: Kind) -> None:
        fields = self._fields
        if self._locked and key not in fields:
            raise key_error(node_messages.locked_field(self, key))
        value = self._konfig_normalized(value, key)
        if key in (QUALNAME_KEY, CONST_KEY):
            value = _symbol_name(value)
        old = fields.get(key, _MISSING)
        shared = is_shared(old) and not is_shared(value)
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
        """What to store over `old`; raises if its type does not fit."""
        if not self._type_safe or is_shared(new):
            return new
        try:
            if is_shared(old):
                return convert(new, old.get_type())
            return new if is_reference(old) else check_overwrite(old, new)
        except TypeError as error:
            text = node_messages.wrong_type(self, key, new, error)
            raise TypeError(text) from None

    def _konfig_normalized(self, value: Any, *parts: Key) -> Any:
        """A value as it is stored here, under a key or at an index of a list there."""
        if type(value) in LEAF_TYPES:
            return value
        try:
            return normalize(value, self, Filling(ConfigDict, origin()))
        except Unconfigurable as error:
            parts = (*parts, *reversed(error.parts))
            place = field_expression(self, *parts)
            raise ValueError(unconfigurable_message(error, place)) from None

    def __delitem__(self, key: Key) -> None:
        stored = plain_key(key)
        if type(stored) is int:  # by index only: the arguments after it move up
            stored = self._konfig_key(stored)
        if stored not in self._fields:
            raise key_error(node_messages.missing_field(self, key))
        if self._locked:
            raise key_error(node_messages.locked_field(self, stored))
        record(self, stored, self._fields[stored], "del")
        delete_field(self, stored)

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError as error:
            raise AttributeError(str(error)) from None

    def update(self, *other: Any, **kwargs: Any) -> None:
        """Merges other fields into this config, recursively.

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
            if isinstance(old, ConfigDict) and merges_into(old, value):
                old._konfig_merge(value, kind, (*around, pair))
            else:
                self._konfig_set(key, value, kind)

    # --------------------------------------------------------------------------------
    # The whole
    # --------------------------------------------------------------------------------

    def __eq__(self, other: Any) -> bool:
        return comparing.equal(self, other)

    def __ne__(self, other: Any) -> bool:
        return not comparing.equal(self, other)

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
        """A new node with the same children; lists are copied."""
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
        """The config as JSON; `ConfigDict.from_json` reads it back.

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
        return f"<ConfigDict[{repr_text.format_value(self)}]>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from kauldron.konfig.html_page import to_html  # a page is rarely wanted

        return to_html(self)


collections.abc.MutableMapping.register(ConfigDict)  # pyright: ignore

_OBJECT_NAMES = frozenset(dir(object)) | {"__dict__", "__weakref__", "__module__"}
_METHOD_NAMES = frozenset(
    name for name in (*dir(ConfigDict), *vars(ConfigDict())) if name[:2] != "__"
)


def _symbol_name(value: Any) -> Any:
    """The name to store when a symbol itself is given for its name."""
    if isinstance(value, Node) and CONST_KEY in raw_fields(value):
        return raw_fields(value)[CONST_KEY]
    return value


def as_stored(value: Any) -> Any:
    """A value as a config would store it; real objects are left as they are.

    Plain dicts become nodes with exactly the given fields: registered default values
    are not filled in.
    """
    filling = Filling(ConfigDict, None, with_defaults=False, strict=False)
    return normalize(value, None, filling)
