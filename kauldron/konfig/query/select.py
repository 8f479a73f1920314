"""Select nodes of a config by what they call or by where they are."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from kauldron import path_grammar
from kauldron.errors import a_type
from kauldron.konfig.query.flatten import iter_nodes
from kauldron.konfig.symbols import import_qualname, same_qualname
from kauldron.konfig.tree.configdict import as_config
from kauldron.konfig.tree.node import QUALNAME_KEY, Node, is_call
from kauldron.konfig.tree.paths import Parts, assign


class Selection:
    """Nodes of a config that were selected together. Iterates over the nodes.

    A node that hangs in several places is one node with several paths.
    """

    def __init__(self, cfg: Node, found: list[tuple[Parts, Node]]) -> None:
        self._cfg = cfg
        self._order = [at for at, _ in found]
        self._places: dict[int, tuple[Node, list[Parts]]] = {}
        for at, node in found:
            self._places.setdefault(id(node), (node, []))[1].append(at)

    def __iter__(self) -> Iterator[Any]:
        return iter([node for node, _ in self._places.values()])

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"<Selection {self.paths()}>"

    def paths(self) -> list[str]:
        """Return the paths of all the nodes, in the order of the config."""
        return [path_grammar.format_path(place) for place in self._order]

    def set(self, **fields: Any) -> None:
        """Set fields of every selected node.

        Args:
          **fields: From name to value. A config node given as value is shared by all.

        Raises:
          TypeError, ValueError: A node refuses a value. Nothing is changed then.
        """
        for node in copy.deepcopy([*self]):  # all or nothing: try on copies first
            _set_fields(node, fields)
        for node in self:
            _set_fields(node, fields)

    def replace(self, node: Any) -> None:
        """Put another node, or another value, in place of every selected one.

        Each selected node gets a copy of its own; the places of one selected node
        still share it. A node inside another selected one goes with it.

        Args:
          node: What `cfg.name = node` accepts.

        Raises:
          ValueError: The whole config is selected.
        """
        taken: list[Parts] = []
        for _, places in self._places.values():
            copied = copy.deepcopy(node)
            for place in places:
                if not place:
                    raise ValueError(
                        "The whole config cannot be replaced: select a part of it."
                    )
                if not any(place[: len(outer)] == outer for outer in taken):
                    assign(self._cfg, place, copied)
                    taken.append(place)


def _set_fields(node: Any, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        node[name] = value


def select(cfg: Any, target: Any, *, subclasses: bool = False) -> Selection:
    """Select nodes of a config.

    Args:
      cfg: A config.
      target: What to select. A proxy (`nn.Dropout` inside `konfig.imports()`), a class,
        a function or a qualified name (`"flax.linen:Dropout"`) selects the nodes that
        call it. A path selects the nodes at its places; wildcards are allowed, as in
        `"model.layers.*"` (not `[*]`). A predicate selects the nodes for which it is
        true: a lambda, a local function, any other callable object, or a function
        that is annotated to return `bool`.
      subclasses: Whether calls of subclasses count too.

    Returns:
      The selected nodes.

    Raises:
      TypeError: The target is none of these.

    Example:
      >>> from kauldron import konfig
      >>> with konfig.imports():
      ...     import fractions
      >>> cfg = konfig.ConfigDict({"a": fractions.Fraction(1), "b": 2})
      >>> select(cfg, fractions.Fraction).paths()
      ['a']
    """
    root = as_config(cfg)
    matches = _matcher(root, target, subclasses)
    return Selection(root, [item for item in iter_nodes(root) if matches(*item)])


# ------------------------------------------------------------------------------------
# Kinds of targets
# ------------------------------------------------------------------------------------

_Matcher = Callable[[Parts, Node], bool]


def _matcher(cfg: Node, target: Any, subclasses: bool) -> _Matcher:
    if isinstance(target, str):
        return _text_matcher(cfg, target, subclasses)
    symbol = getattr(type(target), "__konfig_symbol__", None)
    if symbol is not None:
        return _call_matcher(symbol(target), None, subclasses)
    if inspect.isclass(target) or _is_symbol(target):
        qualname = f"{target.__module__}:{target.__qualname__}"
        return _call_matcher(qualname, target, subclasses)
    if callable(target):
        return lambda at, node: bool(target(node))
    raise TypeError(
        f"Cannot select by {a_type(target)}: expected a proxy, a class, a "
        "function, a qualified name, a path or a predicate."
    )


def _is_symbol(target: Any) -> bool:
    """Return whether a function is meant as what nodes call, not as a predicate."""
    if not inspect.isroutine(target):
        return False
    name = getattr(target, "__qualname__", "")
    is_local = "<" in name
    annotations = getattr(target, "__annotations__", {})
    return not is_local and annotations.get("return") not in (bool, "bool")


def _text_matcher(cfg: Node, text: str, subclasses: bool) -> _Matcher:
    if re.fullmatch(r"[\w.]+:[\w.]+", text):
        return _call_matcher(text, None, subclasses)
    pattern = path_grammar.parse(text)
    nodes = list(iter_nodes(cfg))
    is_path = any(path_grammar.matches(at, pattern) for at, _ in nodes)
    if not is_path and any(_calls(node, text) for _, node in nodes):
        return _call_matcher(text, None, subclasses)
    return lambda at, node: path_grammar.matches(at, pattern)


def _calls(node: Node, qualname: str) -> bool:
    return same_qualname(node._fields.get(QUALNAME_KEY), qualname)


def _call_matcher(qualname: str, symbol: Any, subclasses: bool) -> _Matcher:
    """Match calls of a symbol: by name, else by what the names import to."""
    known: dict[str, Any] = {}

    def imported(name: str) -> Any:
        if name not in known:
            try:
                known[name] = import_qualname(name)
            except Exception:  # not importable here: its name is all there is
                known[name] = None
        return known[name]

    def matches(at: Parts, node: Node) -> bool:
        if not is_call(node):
            return False
        if _calls(node, qualname):
            return True
        own = imported(node._fields[QUALNAME_KEY])
        wanted = imported(qualname) if symbol is None else symbol
        if own is None or wanted is None:
            return False
        if subclasses and inspect.isclass(own) and inspect.isclass(wanted):
            return issubclass(own, wanted)
        return own is wanted

    return matches
