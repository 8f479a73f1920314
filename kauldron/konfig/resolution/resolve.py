"""`konfig.resolve`: the real objects that a config describes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kauldron.konfig.errors import CycleError
from kauldron.konfig.immutabledict import ImmutableDict
from kauldron.konfig.resolution import error_text
from kauldron.konfig.resolution.allow import AllowList
from kauldron.konfig.resolution.problems import scan
from kauldron.konfig.symbols import import_qualname
from kauldron.konfig.tree.configdict import as_stored
from kauldron.konfig.tree.node import (
    CONST_KEY,
    LEAF_TYPES,
    QUALNAME_KEY,
    Key,
    Node,
    Reader,
    expression,
    is_reference,
    node_path,
    path_part,
)

NO_FREEZE_KEY = "_konfig_experimental_nofreeze"
EXCLUDE_HOOK = "__konfig_resolve_exclude_fields__"
POST_HOOK = "__post_konfig_resolve__"


def resolve(
    cfg: Any, *, freeze: bool = True, allow: Iterable[str] | None = None
) -> Any:
    """Builds the objects that a config describes.

    Calls are made bottom-up. A node that is reached by several paths is built once and
    shared. The config itself is not modified.

    Args:
      cfg: A config, or any value that may be part of one.
      freeze: Pass lists as tuples, dicts as `ImmutableDict` and sets as frozensets.
      allow: The packages that symbols may come from, for configs that are not trusted:
        anything else is refused before it is imported. By default every symbol is
        accepted: a config names code to run.

    Returns:
      The object.

    Raises:
      RequiredValueError: Required fields are not set; lists all of them.
      NotAllowedError: Symbols are not from the packages in `allow`; lists all of them.
      CycleError: The config contains itself.
      Exception: What a constructor raises, with the place in the config in its text.

    Example:
      >>> from kauldron import konfig
      >>> with konfig.imports():
      ...     import fractions
      >>> konfig.resolve({"x": fractions.Fraction("1/3")})
      ImmutableDict({'x': Fraction(1, 3)})
    """
    cfg = as_stored(cfg)
    if isinstance(cfg, Node) and NO_FREEZE_KEY in cfg:
        freeze = not cfg[NO_FREEZE_KEY]
    resolver = _Resolver(cfg, freeze, AllowList(allow) if allow is not None else None)
    try:
        return resolver.run()
    except Exception as error:
        error_text.hide_inner_frames(error)
        raise


class _Resolver:
    """One call of `resolve`."""

    def __init__(self, root: Any, freeze: bool, allow: AllowList | None) -> None:
        self.root = root
        self.freeze = freeze
        self.allow = allow
        self.reader = Reader()
        self.symbols: dict[str, Any] = {}
        self.excluded: dict[str, frozenset[str]] = {}
        self.hooks: dict[type, Any] = {}
        self.built: dict[int, Any] = {}  # by id of the node, list or tuple
        self.open: dict[int, int] = {}  # from id of what is being built to path length
        self.alive: list[Any] = []  # an id must not be used twice
        self.parts: list[Key] = []
        if isinstance(root, Node):
            self.parts.extend(node_path(root))

    def run(self) -> Any:
        scan(self.root, tuple(self.parts), self.reader, self.allow, self.excluded_of)
        return self.build(self.root, None)

    # --------------------------------------------------------------------------------
    # Values
    # --------------------------------------------------------------------------------

    def build(self, value: Any, owner: Node | None) -> Any:
        kind = type(value)
        if kind in LEAF_TYPES:
            return value
        if isinstance(value, Node):
            return self.build_node(value)
        if kind is list or kind is tuple:
            if id(value) not in self.built:
                items = self.build_items(value, owner)
                as_tuple = self.freeze or kind is tuple
                self.built[id(value)] = tuple(items) if as_tuple else items
            return self.built[id(value)]
        if kind is set or kind is frozenset:
            result = {self.build(item, owner) for item in value}
            return frozenset(result) if self.freeze else kind(result)
        if is_reference(value):
            return self.build(as_stored(value.get()), owner)
        if hasattr(kind, "__konfig_symbol__"):
            with self.explained(owner):
                return self.symbol(value.__konfig_symbol__())
        if hasattr(kind, "__konfig_union__"):
            left, right = value.__konfig_union__()
            return self.build(left, owner) | self.build(right, owner)
        return value

    def build_items(self, holder: Any, owner: Node | None) -> list[Any]:
        self.enter(holder)
        items = []
        for index in range(len(holder)):
            self.parts.append(index)
            with self.explained(owner):
                item = self.reader.item(holder, index, owner)
            items.append(self.build(item, owner))
            self.parts.pop()
        del self.open[id(holder)]
        return items

    def enter(self, container: Any) -> None:
        """Notes that a node or list is being built, unless it is already."""
        if id(container) in self.open:
            start = expression(self.parts[: self.open[id(container)]])
            raise CycleError(
                f"The config contains itself: {expression(self.parts)} is {start}."
            )
        self.open[id(container)] = len(self.parts)
        self.alive.append(container)

    def build_node(self, node: Node) -> Any:
        if id(node) in self.built:
            return self.built[id(node)]
        self.enter(node)
        fields = node._fields
        if QUALNAME_KEY in fields or CONST_KEY in fields:
            result = self.build_symbol_node(node, fields)
        else:
            result = {key: self.field(node, key) for key in self.keys(node)}
            result = ImmutableDict(result) if self.freeze else result
        self.built[id(node)] = result
        del self.open[id(node)]
        return result

    def explained(self, node: Node | None) -> error_text.Explained:
        """Errors inside the block tell the current path and the node around it."""
        return error_text.Explained(node, self.parts)

    def keys(self, node: Node) -> list[Key]:
        keys = list(node._fields)
        return [k for k in keys if k != NO_FREEZE_KEY] if node is self.root else keys

    def field(self, node: Node, key: Key) -> Any:
        self.parts.append(path_part(node, key))
        with self.explained(node):
            value = self.reader.field(node, key)
        value = self.build(value, node)
        self.parts.pop()
        return value

    # --------------------------------------------------------------------------------
    # Calls
    # --------------------------------------------------------------------------------

    def build_symbol_node(self, node: Node, fields: dict[Key, Any]) -> Any:
        with self.explained(node):
            error_text.check_form(fields)
            if CONST_KEY in fields:
                return self.symbol(fields[CONST_KEY])
            symbol = self.symbol(fields[QUALNAME_KEY])
        args, kwargs = self.arguments(node)
        try:
            result = symbol(*args, **kwargs)
        except Exception as error:
            error_text.raise_at_call(error, node, self.parts, symbol, args, kwargs)
        hook = self.post_hook(type(result))
        if hook is not None:
            with self.explained(node):
                hook.__get__(result, type(result))(node)
        return result

    def arguments(self, node: Node) -> tuple[list[Any], dict[str, Any]]:
        excluded = self.excluded_of(node)
        args: dict[int, Any] = {}
        kwargs: dict[str, Any] = {}
        for key in self.keys(node):
            if key == QUALNAME_KEY:
                continue
            if key in excluded:
                value = node[key]
            else:
                value = self.field(node, key)
            if key.isdecimal():
                args[int(key)] = value
            else:
                kwargs[key] = value
        return [args[index] for index in range(len(args))], kwargs

    def symbol(self, qualname: str) -> Any:
        if qualname not in self.symbols:
            load = import_qualname if self.allow is None else self.allow.import_qualname
            self.symbols[qualname] = load(qualname)
        return self.symbols[qualname]

    def excluded_of(self, node: Node) -> frozenset[str]:
        """The arguments that the symbol of a call wants unresolved."""
        qualname = node._fields[QUALNAME_KEY]
        if qualname not in self.excluded:
            symbol = self.symbol(qualname)
            names = getattr(symbol, EXCLUDE_HOOK, None)
            if names is None and isinstance(getattr(symbol, "__self__", None), type):
                names = getattr(symbol.__self__, EXCLUDE_HOOK, None)
            self.excluded[qualname] = frozenset(names or ())
        return self.excluded[qualname]

    def post_hook(self, kind: type) -> Any:
        """The hook as it stands in the class, instances are not asked."""
        if kind not in self.hooks:
            found = (vars(c)[POST_HOOK] for c in kind.__mro__ if POST_HOOK in vars(c))
            self.hooks[kind] = next(found, None)
        return self.hooks[kind]
