"""Finds what would go wrong in `resolve`, all at once, without building anything.

`scan` looks through a config once. `konfig.check` turns what it finds into problems;
`resolve` refuses unset values and symbols that are not allowed before it builds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from ml_collections import FieldReference, config_dict

from kauldron import path_grammar
from kauldron.konfig.errors import CycleError, NotAllowedError, RequiredValueError
from kauldron.konfig.resolution.allow import AllowList, active_lists
from kauldron.konfig.signatures import check_call
from kauldron.konfig.symbols import import_qualname
from kauldron.konfig.text.json_format import to_plain
from kauldron.konfig.tree.configdict import as_config
from kauldron.konfig.tree.history import field_events, node_origin
from kauldron.konfig.tree.node import (
    CONST_KEY,
    LEAF_TYPES,
    QUALNAME_KEY,
    Child,
    Key,
    Node,
    Parts,
    Walk,
    expression,
    node_path,
)
from kauldron.konfig.tree.placeholders import is_shared, is_unset_required
from kauldron.konfig.tree.references import required_values_enforced

NO_FREEZE_KEY = "_konfig_experimental_nofreeze"
EXCLUDE_HOOK = "__konfig_resolve_exclude_fields__"


def excluded_fields(symbol: Any) -> frozenset[str]:
    """Return the arguments that a callable wants unresolved."""
    names = getattr(symbol, EXCLUDE_HOOK, None)
    if names is None and isinstance(getattr(symbol, "__self__", None), type):
        names = getattr(symbol.__self__, EXCLUDE_HOOK, None)  # of a classmethod
    return frozenset(names or ())


# ------------------------------------------------------------------------------------
# The scan
# ------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where a value is."""

    at: Parts
    node: Node | None = None  # the innermost node around it
    key: Key = None  # the field of that node
    raw: Any = None  # as it is stored
    calls: tuple[tuple[Node, Key], ...] = ()  # the calls around it, and the argument

    def below(self, container: Any, child: Child) -> Place:
        at = (*self.at, child.part)
        if not isinstance(container, Node):
            return Place(at, self.node, self.key, child.raw, self.calls)
        calls = self.calls
        if QUALNAME_KEY in container._fields:
            calls = (*calls, (container, child.key))
        return Place(at, container, child.key, child.raw, calls)

    def is_excluded(self, excluded_of: Callable[[Node], frozenset[str]]) -> bool:
        """Return whether one of the calls around wants its argument unresolved."""
        try:
            return any(key in excluded_of(node) for node, key in self.calls)
        except Exception:  # a symbol is missing, which is not the question here
            return False


class Finding(NamedTuple):
    """Something that `resolve` will have to deal with."""

    kind: Literal["node", "symbol", "leaf", "unset", "unreadable", "cycle"]
    what: Any  # a node with a symbol, a qualified name, a value, or an error
    place: Place


def scan(root: Any, at: Parts, walk: Walk) -> list[Finding]:
    """Look through a whole config, into every node and list once.

    Reading an unset `required` counts as an error. What references evaluate to stays in
    `walk`.
    """
    scanner = _Scanner(walk)
    with required_values_enforced():
        scanner.visit(root, Place(at))
    return scanner.found


class _Scanner:
    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.found: list[Finding] = []
        self.seen: set[int] = set()

    def visit(self, value: Any, place: Place) -> None:
        kind = type(value)
        if isinstance(value, Node) or kind is list or kind is tuple:
            self.visit_container(value, place)
        elif isinstance(value, FieldReference):  # in a set, or the root
            try:
                found = value.get()
            except Exception as error:
                self.add_unreadable(error, place)
            else:
                self.visit(found, place)
        elif hasattr(kind, "__konfig_symbol__"):
            self.found.append(Finding("symbol", value.__konfig_symbol__(), place))
        elif hasattr(kind, "__konfig_union__"):
            for side in value.__konfig_union__():
                self.visit(side, place)
        elif kind not in LEAF_TYPES:
            self.found.append(Finding("leaf", value, place))
            for item in value if kind in (set, frozenset) else ():
                self.visit(item, place)

    def visit_container(self, container: Any, place: Place) -> None:
        try:
            children = self.walk.enter(container, place.at)
        except CycleError as error:
            self.found.append(Finding("cycle", error, place))
            return
        if id(container) not in self.seen:
            self.seen.add(id(container))
            if isinstance(container, Node) and _symbols(container):
                self.found.append(Finding("node", container, place))
            for child in children:
                if child.error is not None:
                    self.add_unreadable(child.error, place.below(container, child))
                elif type(child.value) not in LEAF_TYPES:
                    self.visit(child.value, place.below(container, child))
        self.walk.leave(container)

    def add_unreadable(self, error: Exception, place: Place) -> None:
        is_unset = isinstance(error, config_dict.RequiredValueError)
        kind = "unset" if is_unset else "unreadable"
        self.found.append(Finding(kind, error, place))


def _symbols(node: Node) -> list[Any]:
    """Return what a node names: one symbol, unless it is malformed."""
    fields = node._fields
    return [fields[key] for key in (QUALNAME_KEY, CONST_KEY) if key in fields]


# ------------------------------------------------------------------------------------
# What `resolve` refuses
# ------------------------------------------------------------------------------------


def refuse_symbols(findings: Iterable[Finding], allow: AllowList) -> None:
    """Raise `NotAllowedError` if symbols are not accepted, naming all of them.

    They are judged first by their name, then by what they are.
    """
    named = [
        (name, found.place.at)
        for found in findings
        for name in (
            _symbols(found.what)
            if found.kind == "node"
            else [found.what] * (found.kind == "symbol")
        )
    ]
    for judge in (allow.refusal_by_name, allow.refusal_by_import):
        refused = [
            (expression(at), name, reason)
            for name, at in named
            if (reason := judge(name)) is not None
        ]
        if refused:
            lines = [
                f"- {place}: {name!r} {reason}." for place, name, reason in refused
            ]
            raise NotAllowedError(
                "The config names what is not allowed here. Allowed is what configs are "
                f"made of, from: {', '.join(allow.entries) or 'no package'}.\n"
                + "\n".join(lines)
                + f"\n{allow.why}Allow a package (`allow=`, --allow=PACKAGE), a single "
                "symbol ('module:name'), or everything (`allow=[\"*\"]`, --trust).",
                [place for place, _, _ in refused],
            )


def refuse_unset(
    findings: Iterable[Finding], excluded_of: Callable[[Node], frozenset[str]]
) -> None:
    """Raise `RequiredValueError` if required fields are not set, naming all of them."""
    unset: dict[str, str] = {}
    for found in findings:
        if found.kind == "unset" and not found.place.is_excluded(excluded_of):
            place = expression(found.place.at)
            for target in getattr(found.what, "paths", ()) or (place,):
                unset[target] = place
    if unset:
        lines = []
        for target, place in unset.items():
            used = f" (needed by {place})" if place != target else ""
            lines.append(f"- {target}{used}: set it with --{target}=...")
        raise RequiredValueError(
            "Required values are not set:\n" + "\n".join(lines), list(unset)
        )


# ------------------------------------------------------------------------------------
# `konfig.check`
# ------------------------------------------------------------------------------------


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
    """List the problems of a config without constructing anything.

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
      NotAllowedError: Inside `konfig.restricted`, the config names what is not allowed.

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
    """Judges what the scan has found in one config."""

    def __init__(self) -> None:
        self.walk = Walk()
        self.problems: list[Problem] = []
        self.symbols: dict[str, Any] = {}  # by name; the error of a failed import

    def run(self, cfg: Node) -> list[Problem]:
        findings = scan(cfg, node_path(cfg), self.walk)
        for allow in active_lists():
            refuse_symbols(findings, allow)
        for found in findings:
            place = found.place
            if place.node is None:
                place = place._replace(node=cfg)
            if not place.is_excluded(self.excluded_of):
                self.judge(found, place)
        return self.problems

    def judge(self, found: Finding, place: Place) -> None:
        match found.kind:
            case "node":
                self.check_node(found.what, place.at)
            case "symbol":
                self.import_symbol(found.what, place)
            case "leaf":
                self.check_leaf(found.what, place)
            case "unset":
                # Else it is reported where the value is missing.
                if is_unset_required(place.raw) or not found.what.paths:
                    flag = f"Set it: --{expression(place.at)}=..."
                    self.report(place, "is required but not set.", flag)
            case "unreadable" | "cycle":
                self.report(place, str(found.what))

    def report(self, place: Place, message: str, suggestion: str = "") -> None:
        assert place.node is not None
        self.problems.append(
            Problem(
                path=path_grammar.format_path(place.at),
                message=message,
                suggestion=suggestion,
                location=_location(place.node, place.key),
            )
        )

    def check_leaf(self, value: Any, place: Place) -> None:
        try:
            to_plain(value)
        except (TypeError, ValueError):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            self.report(place, f"a value of type {kind} cannot be part of a config.")

    def check_node(self, node: Node, at: Parts) -> None:
        fields = node._fields
        key = CONST_KEY if CONST_KEY in fields else QUALNAME_KEY
        place = Place(at, node, key)
        if key == CONST_KEY and len(fields) > 1:
            self.report(place, "a constant (__const__) has no other fields.")
        elif self.import_symbol(fields[key], place) and key == QUALNAME_KEY:
            self.check_arguments(node, self.symbols[fields[key]], at)

    def import_symbol(self, name: str, place: Place) -> bool:
        """Import a symbol; report it if that fails."""
        if name not in self.symbols:
            try:
                self.symbols[name] = import_qualname(name)
            except Exception as error:
                self.symbols[name] = _Missing(error)
        symbol = self.symbols[name]
        if not isinstance(symbol, _Missing):
            return True
        lead = ""
        if not isinstance(symbol.error, (ImportError, AttributeError, ValueError)):
            kind = type(symbol.error).__name__
            lead = f"importing {name!r} failed with {kind}: "
        self.report(place, f"{lead}{symbol.error}")
        return False

    def excluded_of(self, node: Node) -> frozenset[str]:
        return excluded_fields(self.symbols.get(node._fields[QUALNAME_KEY]))

    def check_arguments(self, node: Node, symbol: Any, at: Parts) -> None:
        excluded = excluded_fields(symbol)
        values = {
            child.key: _UNKNOWN if child.key in excluded else _known_value(child)
            for child in self.walk.children(node)
            if child.key not in (QUALNAME_KEY, NO_FREEZE_KEY)
        }
        positional: list[Any] = []
        while str(len(positional)) in values:
            positional.append(values.pop(str(len(positional))))
        named = {key: value for key, value in values.items() if isinstance(key, str)}
        for problem in check_call(symbol, positional, named):
            place = Place(at, node, QUALNAME_KEY)
            if problem.name is not None:
                place = Place((*at, problem.name), node, str(problem.name))
            self.report(place, problem.message, problem.suggestion)


class _Missing(NamedTuple):
    """Stands for a symbol that cannot be imported."""

    error: Exception


_UNKNOWN: Any = object()  # fits every annotation


def _known_value(child: Child) -> Any:
    raw = child.raw
    if child.error is not None:
        return _UNKNOWN
    # An unset placeholder is there to be filled in, maybe by its class.
    if isinstance(raw, FieldReference) and is_shared(raw) and raw.empty():
        return _UNKNOWN
    return child.value


def _location(node: Node, key: Key) -> str | None:
    events = field_events(node, key) if key is not None else ()
    event = events[-1] if events else node_origin(node)
    if event is None or (event.file is None and event.text is None):
        return None
    return event.location
