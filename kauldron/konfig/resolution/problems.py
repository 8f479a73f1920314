"""Finds what would go wrong in `resolve`, all at once, without building anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from kauldron import path_grammar
from kauldron.konfig.errors import NotAllowedError, RequiredValueError
from kauldron.konfig.resolution.allow import AllowList
from kauldron.konfig.signatures import check_call
from kauldron.konfig.symbols import import_qualname
from kauldron.konfig.text.json_format import to_plain
from kauldron.konfig.tree.configdict import as_config
from kauldron.konfig.tree.history import field_events, node_origin
from kauldron.konfig.tree.node import (
    CONST_KEY,
    LEAF_TYPES,
    QUALNAME_KEY,
    Key,
    Node,
    Parts,
    Reader,
    expression,
    is_call,
    is_const,
    is_reference,
    node_path,
    path_part,
    positional_count,
)
from kauldron.konfig.tree.paths import is_normal, normalized, raw_children
from kauldron.konfig.tree.placeholders import is_shared, is_unset_required
from kauldron.konfig.tree.references import required_values_enforced


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """Something in a config that `resolve` would fail on.

    Attributes:
      path: Where it is, from the outermost config; empty for that one itself.
      message: What is wrong.
      suggestion: How to mend it, or an empty text.
      location: The flag or `file:line` that wrote it, or None if that is not known.
    """

    path: str
    message: str
    suggestion: str = ""
    location: str | None = None

    def __str__(self) -> str:
        words = [f"{expression(path_grammar.parse(self.path))}:", self.message]
        words += [self.suggestion] if self.suggestion else []
        words += [f"(set by {self.location})"] if self.location else []
        return " ".join(words)


def check(cfg: Any, *, raise_error: bool = False) -> list[Problem]:
    """Lists the problems of a config without constructing anything.

    All symbols are imported. Found are: symbols that do not exist, arguments that do
    not fit the signature, plain values that do not fit the annotation of their
    parameter, required fields that are not set, references that lead nowhere, cycles,
    and values that cannot be saved.

    Args:
      cfg: A config.
      raise_error: Raise instead of returning problems.

    Returns:
      The problems, in the order of the config.

    Raises:
      ValueError: `raise_error`, and there are problems: it lists them all.

    Example:
      >>> cfg = {"wrapper": {"__qualname__": "textwrap:TextWrapper", "widht": 70}}
      >>> print(check(cfg)[0].message)
      TextWrapper has no parameter 'widht'.
    """
    problems = _Checker().run(as_config(cfg))
    if problems and raise_error:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise ValueError(f"The config has {count}:\n{listed}")
    return problems


class _Checker:
    """One pass over a config."""

    def __init__(self) -> None:
        self.reader = Reader()
        self.problems: list[Problem] = []
        self.done: set[int] = set()
        self.open: dict[int, Parts] = {}
        self.symbols: dict[str, Any] = {}

    def run(self, cfg: Node) -> list[Problem]:
        self.visit(cfg, node_path(cfg), cfg, None)
        return self.problems

    def report(
        self, at: Parts, message: str, suggestion: str = "", *, node: Node, key: Any
    ) -> None:
        self.problems.append(
            Problem(
                path=path_grammar.format_path(at),
                message=message,
                suggestion=suggestion,
                location=_location(node, key),
            )
        )

    # --------------------------------------------------------------------------------
    # The walk
    # --------------------------------------------------------------------------------

    def visit(self, value: Any, at: Parts, owner: Node, key: Any) -> None:
        """Checks a value that `owner` holds (maybe inside of lists) under `key`."""
        if id(value) in self.open:
            where = expression(self.open[id(value)])
            self.report(
                at, f"The config contains itself: this is {where}.", node=owner, key=key
            )
            return
        if isinstance(value, (Node, list, tuple)):
            self.open[id(value)] = at
            if not isinstance(value, Node):
                self.visit_items(value, at, owner, key)
            elif id(value) not in self.done:
                self.done.add(id(value))
                self.visit_node(value, at)
            del self.open[id(value)]
        elif type(value) not in LEAF_TYPES:
            self.check_leaf(value, at, owner, key)

    def visit_items(self, items: Any, at: Parts, owner: Node, key: Any) -> None:
        for index, raw in raw_children(items):
            place = (*at, index)
            try:
                item = raw.get() if is_reference(raw) else raw
            except Exception as error:
                self.report_unreadable(error, raw, place, owner, key)
                continue
            item = item if is_normal(item) else normalized(item)
            self.visit(item, place, owner, key)

    def visit_node(self, node: Node, at: Parts) -> None:
        excluded = self.check_symbol(node, at)
        for key, raw in list(node._fields.items()):
            place = (*at, path_part(node, key))
            if key in (QUALNAME_KEY, CONST_KEY) or key in excluded:
                continue
            if is_unset_required(raw):
                self.report_unset(place, node, key)
                continue
            try:
                value = self.reader.field(node, key)
            except Exception as error:
                self.report_unreadable(error, raw, place, node, key)
                continue
            self.visit(value, place, node, key)

    def report_unreadable(
        self, error: Exception, raw: Any, at: Parts, node: Node, key: Any
    ) -> None:
        if not isinstance(error, RequiredValueError):
            self.report(at, str(error), node=node, key=key)
        elif is_unset_required(raw) or not error.paths:
            self.report_unset(at, node, key)
        # Else it is reported where the value is missing.

    def report_unset(self, at: Parts, node: Node, key: Any) -> None:
        flag = f"Set it: --{expression(at)}=..."
        self.report(at, "is required but not set.", flag, node=node, key=key)

    def check_leaf(self, value: Any, at: Parts, owner: Node, key: Any) -> None:
        try:
            to_plain(value)
        except (TypeError, ValueError):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            message = f"a value of type {kind} cannot be part of a config."
            self.report(at, message, node=owner, key=key)

    # --------------------------------------------------------------------------------
    # Symbols
    # --------------------------------------------------------------------------------

    def check_symbol(self, node: Node, at: Parts) -> tuple[str, ...]:
        """Checks what a node calls or names; returns the fields to leave alone."""
        fields = node._fields
        if not is_call(node) and not is_const(node):
            return ()
        if is_const(node) and len(fields) > 1:
            message = "a constant (__const__) has no other fields."
            self.report(at, message, node=node, key=CONST_KEY)
            return ()
        key = QUALNAME_KEY if is_call(node) else CONST_KEY
        found, symbol = self.import_symbol(node, key, at)
        if not found or is_const(node):
            return ()
        excluded = _excluded_fields(symbol)
        self.check_arguments(node, symbol, at, excluded)
        return excluded

    def import_symbol(self, node: Node, key: str, at: Parts) -> tuple[bool, Any]:
        name = node._fields[key]
        if name not in self.symbols:
            try:
                self.symbols[name] = (True, import_qualname(name))
            except Exception as error:
                self.symbols[name] = (False, error)
        found, symbol = self.symbols[name]
        if not found:
            lead = (
                ""
                if isinstance(symbol, (ImportError, AttributeError, ValueError))
                else (f"importing {name!r} failed with {type(symbol).__name__}: ")
            )
            self.report(at, f"{lead}{symbol}", node=node, key=key)
        return found, symbol

    def check_arguments(
        self, node: Node, symbol: Any, at: Parts, excluded: tuple[str, ...]
    ) -> None:
        values = dict(self.readable_arguments(node, excluded))
        positional = [
            values.pop(str(i), _UNKNOWN) for i in range(positional_count(node))
        ]
        named = {key: value for key, value in values.items() if isinstance(key, str)}
        for problem in check_call(symbol, positional, named):
            place = at if problem.name is None else (*at, problem.name)
            key = QUALNAME_KEY if problem.name is None else str(problem.name)
            self.report(place, problem.message, problem.suggestion, node=node, key=key)

    def readable_arguments(
        self, node: Node, excluded: tuple[str, ...]
    ) -> Iterator[tuple[Any, Any]]:
        """The arguments; those whose value cannot be known come as `_UNKNOWN`."""
        for key, raw in list(node._fields.items()):
            if key == QUALNAME_KEY or key == "_konfig_experimental_nofreeze":
                continue
            # An unset placeholder is there to be filled in, maybe by its class.
            if key in excluded or (is_shared(raw) and raw.empty()):
                yield key, _UNKNOWN
                continue
            try:
                yield key, self.reader.field(node, key)
            except Exception:
                yield key, _UNKNOWN


_UNKNOWN: Any = object()  # fits every annotation


def _excluded_fields(symbol: Any) -> tuple[str, ...]:
    fields = getattr(symbol, "__konfig_resolve_exclude_fields__", None)
    if fields is None:
        owner = getattr(symbol, "__self__", None)  # of a classmethod
        fields = getattr(owner, "__konfig_resolve_exclude_fields__", ())
    return tuple(fields or ())


def _location(node: Node, key: Any) -> str | None:
    events = field_events(node, key) if key is not None else ()
    event = events[-1] if events else node_origin(node)
    if event is None or (event.file is None and event.text is None):
        return None
    return event.location


_Chain = tuple[tuple[Node, Key], ...]  # the calls around a place, and the argument


def scan(
    root: Any,
    parts: Parts,
    reader: Reader,
    allow: AllowList | None,
    excluded_of: Callable[[Node], frozenset[str]],
) -> None:
    """Looks through a whole config.

    Args:
      root: The config.
      parts: Its path.
      reader: Keeps what references evaluate to.
      allow: Which symbols are accepted.
      excluded_of: The arguments that a call wants unresolved. May import its symbol.

    Raises:
      NotAllowedError: Lists all symbols that are not accepted.
      RequiredValueError: Lists all required fields that are not set.
    """
    scanner = _Scanner(reader)
    with required_values_enforced():
        scanner.visit(root, parts, None, ())
    if allow is not None:
        _refuse(scanner.symbols, allow)
    unset = {
        target: place
        for target, place, chain in scanner.unset
        if not _is_excluded(chain, excluded_of)
    }
    if unset:
        _raise_unset(unset)


def _is_excluded(chain: _Chain, excluded_of: Callable[[Node], frozenset[str]]) -> bool:
    """Whether one of the calls around a place wants its argument unresolved."""
    try:
        return any(key in excluded_of(node) for node, key in chain)
    except Exception:  # a symbol is missing, which is not the question here
        return False


class _Scanner:
    """Collects symbols and unset values, visiting every node once."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.seen: dict[int, Any] = {}  # by id; the value keeps the id from reuse
        self.symbols: list[tuple[str, Parts]] = []  # qualname and where
        self.unset: list[tuple[str, str, _Chain]] = []  # target, expression, chain

    def visit(
        self, value: Any, parts: Parts, owner: Node | None, chain: _Chain
    ) -> None:
        if isinstance(value, Node):
            if id(value) not in self.seen:
                self.seen[id(value)] = value
                self.visit_fields(value, parts, chain)
        elif type(value) in (list, tuple) and id(value) not in self.seen:
            self.seen[id(value)] = value
            for index in range(len(value)):
                try:
                    item = self.reader.item(value, index, owner)
                except RequiredValueError as error:
                    self.note_unset(error, (*parts, index), chain)
                except Exception:
                    continue  # reported, with its place, when it is built
                else:
                    if type(item) not in LEAF_TYPES:
                        self.visit(item, (*parts, index), owner, chain)
        elif type(value) in (set, frozenset):
            for item in value:
                self.visit(item, parts, owner, chain)
        elif hasattr(type(value), "__konfig_symbol__"):
            self.symbols.append((value.__konfig_symbol__(), parts))
        elif hasattr(type(value), "__konfig_union__"):
            for side in value.__konfig_union__():
                self.visit(side, parts, owner, chain)
        elif is_reference(value):
            try:
                found = value.get()
            except RequiredValueError as error:
                self.note_unset(error, parts, chain)
            except Exception:
                return
            else:
                self.visit(found, parts, owner, chain)

    def visit_fields(self, node: Node, parts: Parts, chain: _Chain) -> None:
        fields = node._fields
        for name in (QUALNAME_KEY, CONST_KEY):
            if name in fields:
                self.symbols.append((fields[name], parts))
        is_call = QUALNAME_KEY in fields
        for key, raw in list(fields.items()):
            if type(raw) in LEAF_TYPES:
                continue
            below = (*parts, path_part(node, key))
            inner = (*chain, (node, key)) if is_call else chain
            try:
                value = self.reader.field(node, key)
            except RequiredValueError as error:
                self.note_unset(error, below, inner)
            except Exception:
                continue  # reported, with its place, when it is built
            else:
                if type(value) not in LEAF_TYPES:
                    self.visit(value, below, node, inner)

    def note_unset(
        self, error: RequiredValueError, parts: Parts, chain: _Chain
    ) -> None:
        place = expression(parts)
        for target in getattr(error, "paths", ()) or (place,):
            self.unset.append((target, place, chain))


def _refuse(symbols: list[tuple[str, Parts]], allow: AllowList) -> None:
    """Raises if symbols are not accepted: first by name, then by what they are."""
    for judge in (allow.refusal_by_name, allow.refusal_by_import):
        refused = [
            (expression(parts), qualname, reason)
            for qualname, parts in symbols
            if (reason := judge(qualname)) is not None
        ]
        if refused:
            lines = [
                f"- {place}: {name!r} {reason}." for place, name, reason in refused
            ]
            raise NotAllowedError(
                "The config names symbols that are not allowed. Allowed are: "
                f"{', '.join(allow.packages) or 'none'}.\n" + "\n".join(lines),
                [place for place, _, _ in refused],
            )


def _raise_unset(unset: dict[str, str]) -> None:
    lines = []
    for target, place in unset.items():
        used = f" (needed by {place})" if place != target else ""
        lines.append(f"- {target}{used}: set it with --{target}=...")
    raise RequiredValueError(
        "Required values are not set:\n" + "\n".join(lines), list(unset)
    )
