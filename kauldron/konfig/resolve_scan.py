"""What `resolve` looks at before it builds anything: all problems of a kind at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kauldron.konfig.allowing import AllowList
from kauldron.konfig.errors import NotAllowedError, RequiredValueError
from kauldron.konfig.node import (
    CONST_KEY,
    QUALNAME_KEY,
    Key,
    Node,
    Parts,
    expression,
    path_part,
    raw_fields,
)
from kauldron.konfig.normalizing import LEAF_TYPES
from kauldron.konfig.reading import Reader
from kauldron.konfig.references import is_reference, required_values_enforced

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
        fields = raw_fields(node)
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
