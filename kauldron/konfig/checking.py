"""Finds what would go wrong in `resolve`, all at once, without building anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from kauldron import path_grammar
from kauldron.konfig.call_checking import check_call
from kauldron.konfig.errors import RequiredValueError
from kauldron.konfig.flattening import as_config
from kauldron.konfig.json_format import to_plain
from kauldron.konfig.node import (
    CONST_KEY,
    QUALNAME_KEY,
    Node,
    expression,
    is_call,
    is_const,
    node_path,
    path_part,
    positional_count,
    raw_fields,
)
from kauldron.konfig.normalizing import LEAF_TYPES
from kauldron.konfig.pathing import Parts, is_normal, normalized, raw_children
from kauldron.konfig.placeholders import is_shared, is_unset_required
from kauldron.konfig.qualnames import import_qualname
from kauldron.konfig.reading import Reader
from kauldron.konfig.references import is_reference
from kauldron.konfig.set_events import field_events, node_origin


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
        for key, raw in list(raw_fields(node).items()):
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
        fields = raw_fields(node)
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
        name = raw_fields(node)[key]
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
        for key, raw in list(raw_fields(node).items()):
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
