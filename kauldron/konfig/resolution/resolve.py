"""`konfig.resolve`: the real objects that a config describes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from ml_collections import FieldReference

from kauldron.immutabledict import ImmutableDict
from kauldron.konfig.resolution import error_text
from kauldron.konfig.resolution.allow import active_lists, restricted
from kauldron.konfig.resolution.problems import (
    NO_FREEZE_KEY,
    excluded_fields,
    refuse_symbols,
    refuse_unset,
    scan,
)
from kauldron.konfig.symbols import import_qualname
from kauldron.konfig.tree.configdict import as_stored
from kauldron.konfig.tree.node import (
    CONST_KEY,
    LEAF_TYPES,
    QUALNAME_KEY,
    Key,
    Node,
    Unreadable,
    Walk,
    node_path,
)

POST_HOOK = "__post_konfig_resolve__"


def resolve(
    cfg: Any, *, freeze: bool = True, allow: Iterable[str] | None = None
) -> Any:
    """Build the objects that a config describes.

    Calls are made bottom-up. A node that is reached by several paths is built once and
    shared. The config itself is not modified.

    Args:
      cfg: A config, or any value that may be part of one.
      freeze: Pass lists as tuples, dicts as `ImmutableDict` and sets as frozensets.
      allow: For configs that are not trusted: the packages that symbols may come from.
        Only what configs are made of is accepted from them (dataclasses, flax modules,
        enums, dtypes, functions of optax and the like); list any other symbol by
        itself, as `"module:function"`. Everything else is refused before anything is
        built; symbols from other packages are not even imported. By default every
        symbol is accepted: a config names code to run.

    Returns:
      The object.

    Raises:
      RequiredValueError: Required fields are not set; lists all of them.
      NotAllowedError: The config names what `allow` does not; lists all of it.
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
    if isinstance(cfg, Node) and NO_FREEZE_KEY in cfg._fields:
        freeze = not cfg[NO_FREEZE_KEY]
    try:
        with contextlib.nullcontext() if allow is None else restricted(allow):
            return _Resolver(cfg, freeze).run()
    except Exception as error:
        error_text.hide_inner_frames(error)
        raise


class _Resolver:
    """One call of `resolve`."""

    def __init__(self, root: Any, freeze: bool) -> None:
        self.root = root
        self.freeze = freeze
        self.allow = active_lists()
        self.walk = Walk(node_path(root) if isinstance(root, Node) else ())
        self.symbols: dict[str, Any] = {}
        self.hooks: dict[type, Any] = {}
        self.built: dict[int, Any] = {}  # by id of the node, list or tuple

    def run(self) -> Any:
        kinds = {"unset", "node", "symbol"} if self.allow else {"unset"}
        findings = scan(self.root, self.walk, kinds)
        for allow in self.allow:
            refuse_symbols(findings, allow)
        refuse_unset(findings, self.excluded_of)
        return self.build(self.root, None)

    def build(self, value: Any, owner: Node | None) -> Any:
        """Build a value that `owner` holds."""
        kind = type(value)
        if kind in LEAF_TYPES:
            return value
        if isinstance(value, Unreadable):
            raise self.explained(value.error, owner)
        if isinstance(value, Node) or kind is list or kind is tuple:
            if id(value) not in self.built:
                self.built[id(value)] = self.build_container(value, owner)
            return self.built[id(value)]
        if kind is set or kind is frozenset:
            result = {self.build(item, owner) for item in value}
            return frozenset(result) if self.freeze else kind(result)
        if isinstance(value, FieldReference):
            return self.build(as_stored(self.walk.read(value)), owner)
        if hasattr(kind, "__konfig_symbol__"):
            try:
                return self.symbol(value.__konfig_symbol__())
            except Exception as error:
                raise self.explained(error, owner)  # noqa: B904 (the same error)
        if hasattr(kind, "__konfig_union__"):
            left, right = value.__konfig_union__()
            return self.build(left, owner) | self.build(right, owner)
        return value

    def build_container(self, container: Any, owner: Node | None) -> Any:
        if not isinstance(container, Node):
            items = list(self.build_children(container, owner).values())
            as_tuple = self.freeze or type(container) is tuple
            return tuple(items) if as_tuple else items
        if QUALNAME_KEY in container._fields or CONST_KEY in container._fields:
            return self.build_symbol_node(container)
        result = self.build_children(container, container)
        return ImmutableDict(result) if self.freeze else result

    def build_children(
        self,
        container: Any,
        owner: Node | None,
        excluded: frozenset[str] = frozenset(),
    ) -> dict[Key, Any]:
        """Build what a container holds, in order; `excluded` stays as it is."""
        built: dict[Key, Any] = {}
        skipped = (QUALNAME_KEY, NO_FREEZE_KEY if container is self.root else None)
        around = self.walk.around
        for key, value in self.walk.enter(container).items():
            if key in skipped:
                continue
            if key in excluded:
                built[key] = container[key]
            elif type(value) in LEAF_TYPES:
                built[key] = value
            else:
                around.append((container, key))
                built[key] = self.build(value, owner)
                around.pop()
        self.walk.leave(container)
        return built

    def explained(self, error: Exception, node: Node | None) -> Exception:
        """Return the error with the current path and the node around it in its text."""
        if node is None:
            return error
        return error_text.explained(error, node, self.walk.parts())

    # --------------------------------------------------------------------------------
    # Calls
    # --------------------------------------------------------------------------------

    def build_symbol_node(self, node: Node) -> Any:
        fields = node._fields
        try:
            _check_form(fields)
            if CONST_KEY in fields:
                return self.symbol(fields[CONST_KEY])
            symbol = self.symbol(fields[QUALNAME_KEY])
        except Exception as error:
            raise self.explained(error, node)  # noqa: B904 (the same error)
        arguments = self.build_children(node, node, excluded_fields(symbol))
        args = []
        while str(len(args)) in arguments:
            args.append(arguments.pop(str(len(args))))
        try:
            result = symbol(*args, **arguments)
        except Exception as error:
            raise error_text.explained_call(  # noqa: B904 (the same error)
                error, node, self.walk.parts(), symbol, args, arguments
            )
        hook = self.post_hook(type(result))
        if hook is not None:
            try:
                hook.__get__(result, type(result))(node)
            except Exception as error:
                raise self.explained(error, node)  # noqa: B904 (the same error)
        return result

    def symbol(self, qualname: str) -> Any:
        if qualname not in self.symbols:
            for allow in self.allow:
                allow.import_qualname(qualname)
            self.symbols[qualname] = import_qualname(qualname)
        return self.symbols[qualname]

    def excluded_of(self, node: Node) -> frozenset[str]:
        return excluded_fields(self.symbol(node._fields[QUALNAME_KEY]))

    def post_hook(self, kind: type) -> Any:
        """Return the hook as it stands in the class; instances are not asked.

        Nor is the class of the class, as `inspect.getattr_static` would do.
        """
        if kind not in self.hooks:
            found = (vars(c)[POST_HOOK] for c in kind.__mro__ if POST_HOOK in vars(c))
            self.hooks[kind] = next(found, None)
        return self.hooks[kind]


def _check_form(fields: dict[Key, Any]) -> None:
    """Raise `ValueError` if a node is neither a call nor a constant."""
    name = fields.get(QUALNAME_KEY, fields.get(CONST_KEY))
    if not isinstance(name, str):
        raise ValueError(f"The name of a symbol is a text, not {name!r}.")
    if CONST_KEY in fields and len(fields) > 1:
        others = ", ".join(repr(key) for key in fields if key != CONST_KEY)
        raise ValueError(
            f"A node with {CONST_KEY!r} has no other fields, got: {others}."
        )
    positions = [k for k in fields if isinstance(k, str) and k.isdecimal()]
    if not all(str(index) in fields for index in range(len(positions))):
        raise ValueError(
            "Positional arguments are numbered from 0 without gaps, got: "
            f"{sorted(map(int, positions))}."
        )
    if QUALNAME_KEY in fields:
        odd = [key for key in fields if not isinstance(key, str)]
        if odd:
            raise ValueError(f"Names of arguments are texts, got: {odd}.")
