"""Find what would go wrong in `resolve`, all at once, without building anything.

`scan` looks through a config once. `konfig.check` turns what it finds into problems;
`resolve` refuses unset values and symbols that are not allowed before it builds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable
from typing import Any, Literal, NamedTuple, get_args

from ml_collections import FieldReference, config_dict

from kauldron import path_grammar
from kauldron.konfig.errors import CycleError, NotAllowedError, RequiredValueError
from kauldron.konfig.resolution.allow import AllowList, active_lists
from kauldron.konfig.signatures import check_call
from kauldron.konfig.symbols import import_qualname
from kauldron.konfig.text.json_format import to_plain
from kauldron.konfig.tree.configdict import as_config
from kauldron.konfig.tree.history import field_events
from kauldron.konfig.tree.node import (
    CONST_KEY,
    LEAF_TYPES,
    QUALNAME_KEY,
    Key,
    Node,
    Parts,
    Unreadable,
    Walk,
    expression,
    node_path,
    raw_value,
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


Kind = Literal["node", "symbol", "leaf", "unset", "unreadable", "cycle"]


class Finding(NamedTuple):
    """Something that `resolve` will have to deal with."""

    kind: Kind
    what: Any  # a node with a symbol, a qualified name, a value, or an error
    at: Parts
    around: tuple[tuple[Any, Key], ...]  # the containers around it, and their keys

    @property
    def field(self) -> tuple[Node, Key] | None:
        """The innermost node around the value, and the field of it."""
        for node, key in reversed(self.around):
            if isinstance(node, Node):
                return node, key
        return None

    def is_excluded(self, excluded_of: Callable[[Node], frozenset[str]]) -> bool:
        """Return whether one of the calls around wants its argument unresolved."""
        try:
            return any(
                key in excluded_of(node)
                for node, key in self.around
                if isinstance(node, Node) and QUALNAME_KEY in node._fields
            )
        except Exception:  # a symbol is missing, which is not the question here
            return False


def scan(root: Any, walk: Walk, kinds: Container[Kind]) -> list[Finding]:
    """Look through a whole config for some kinds, into every node and list once.

    Reading an unset `required` counts as an error. What references evaluate to stays in
    `walk`.
    """
    scanner = _Scanner(walk, kinds)
    with required_values_enforced():
        scanner.visit(root)
    return scanner.found


class _Scanner:
    def __init__(self, walk: Walk, kinds: Container[Kind]) -> None:
        self.walk = walk
        self.kinds = kinds
        self.found: list[Finding] = []
        self.seen: set[int] = set()

    def add(self, kind: Kind, what: Any) -> None:
        if kind in self.kinds:
            around = tuple(self.walk.around)
            self.found.append(Finding(kind, what, self.walk.parts(), around))

    def visit(self, value: Any) -> None:
        kind = type(value)
        if isinstance(value, Node) or kind is list or kind is tuple:
            self.visit_container(value)
        elif isinstance(value, Unreadable):
            is_unset = isinstance(value.error, config_dict.RequiredValueError)
            self.add("unset" if is_unset else "unreadable", value.error)
        elif isinstance(value, FieldReference):  # the root
            self.visit(self.walk.read(value))
        elif hasattr(kind, "__konfig_symbol__"):
            self.add("symbol", value.__konfig_symbol__())
        elif hasattr(kind, "__konfig_union__"):
            for side in value.__konfig_union__():
                self.visit(side)
        elif kind not in LEAF_TYPES:
            self.add("leaf", value)
            for item in value if kind in (set, frozenset) else ():
                self.visit(item)

    def visit_container(self, container: Any) -> None:
        try:
            values = self.walk.enter(container)
        except CycleError as error:
            self.add("cycle", error)
            return
        if id(container) not in self.seen:
            self.seen.add(id(container))
            if isinstance(container, Node) and _symbols(container):
                self.add("node", container)
            for key, value in values.items():
                if type(value) not in LEAF_TYPES:
                    self.walk.around.append((container, key))
                    self.visit(value)
                    self.walk.around.pop()
        self.walk.leave(container)


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
        (name, found.at)
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
                "The config names what is not allowed here. Only what configs are made "
                f"of is allowed, from: {', '.join(allow.entries) or 'no package'}.\n"
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
        if found.kind == "unset" and not found.is_excluded(excluded_of):
            place = expression(found.at)
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

    All symbols are imported. Problems are symbols that do not exist, arguments that do
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
    problems = _Checker(as_config(cfg)).run()
    if problems and raise_error:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise ValueError(f"The config has {count}:\n{listed}")
    return problems


_Field = tuple[Node, Key]  # what is written where the value in question is written


class _Checker:
    """Judges what the scan has found in one config."""

    def __init__(self, cfg: Node) -> None:
        self.cfg = cfg
        self.walk = Walk(node_path(cfg))
        self.problems: list[Problem] = []
        self.symbols: dict[str, Any] = {}
        self.failed: dict[str, Exception] = {}  # why a symbol cannot be imported

    def run(self) -> list[Problem]:
        findings = scan(self.cfg, self.walk, get_args(Kind))
        for allow in active_lists():
            refuse_symbols(findings, allow)
        for found in findings:
            if not found.is_excluded(self.excluded_of):
                self.judge(found)
        return self.problems

    def judge(self, found: Finding) -> None:
        at, field = found.at, found.field or (self.cfg, None)
        match found.kind:
            case "node":
                self.check_node(found.what, at)
            case "symbol":
                self.import_symbol(found.what, at, field)
            case "leaf":
                self.check_leaf(found.what, at, field)
            case "unset":
                # Else it is reported where the value is missing.
                raw = raw_value(*found.around[-1]) if found.around else None
                if is_unset_required(raw) or not found.what.paths:
                    flag = f"Set it: --{expression(at)}=..."
                    self.report(at, field, "is required but not set.", flag)
            case "unreadable" | "cycle":
                self.report(at, field, str(found.what))

    def report(
        self, at: Parts, field: _Field, message: str, suggestion: str = ""
    ) -> None:
        self.problems.append(
            Problem(
                path=path_grammar.format_path(at),
                message=message,
                suggestion=suggestion,
                location=_location(*field),
            )
        )

    def check_leaf(self, value: Any, at: Parts, field: _Field) -> None:
        try:
            to_plain(value)
        except (TypeError, ValueError):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            message = f"a value of type {kind} cannot be part of a config."
            self.report(at, field, message)

    def check_node(self, node: Node, at: Parts) -> None:
        fields = node._fields
        key = CONST_KEY if CONST_KEY in fields else QUALNAME_KEY
        if key == CONST_KEY and len(fields) > 1:
            message = "a constant (__const__) has no other fields."
            self.report(at, (node, key), message)
        elif self.import_symbol(fields[key], at, (node, key)) and key == QUALNAME_KEY:
            self.check_arguments(node, self.symbols[fields[key]], at)

    def import_symbol(self, name: str, at: Parts, field: _Field) -> bool:
        """Import a symbol; report it if that fails."""
        if name not in self.symbols and name not in self.failed:
            try:
                self.symbols[name] = import_qualname(name)
            except Exception as error:
                self.failed[name] = error
        if name in self.symbols:
            return True
        error, lead = self.failed[name], ""
        if not isinstance(error, (ImportError, AttributeError, ValueError)):
            lead = f"importing {name!r} failed with {type(error).__name__}: "
        self.report(at, field, f"{lead}{error}")
        return False

    def excluded_of(self, node: Node) -> frozenset[str]:
        return excluded_fields(self.symbols.get(node._fields[QUALNAME_KEY]))

    def check_arguments(self, node: Node, symbol: Any, at: Parts) -> None:
        excluded = excluded_fields(symbol)
        values = {
            key: _UNKNOWN if key in excluded else _known_value(node._fields[key], value)
            for key, value in self.walk.values(node).items()
            if key not in (QUALNAME_KEY, NO_FREEZE_KEY)
        }
        positional: list[Any] = []
        while str(len(positional)) in values:
            positional.append(values.pop(str(len(positional))))
        named = {key: value for key, value in values.items() if isinstance(key, str)}
        for problem in check_call(symbol, positional, named):
            name = problem.name
            place, key = (
                (at, QUALNAME_KEY) if name is None else ((*at, name), str(name))
            )
            self.report(place, (node, key), problem.message, problem.suggestion)


_UNKNOWN: Any = object()  # fits every annotation


def _known_value(raw: Any, value: Any) -> Any:
    # An unset placeholder is there to be filled in, maybe by its class.
    is_unset = value is None and is_shared(raw)
    return _UNKNOWN if is_unset or isinstance(value, Unreadable) else value


def _location(node: Node, key: Key) -> str | None:
    events = field_events(node, key) if key is not None else ()
    event = events[-1] if events else node._konfig_origin
    if event is None or (event.file is None and event.text is None):
        return None
    return event.location
