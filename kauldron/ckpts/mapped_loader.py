"""Loading sub-trees from elsewhere into the initial state, under other names."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol, Self, TypeVar

from kauldron import kontext
from kauldron.ckpts import structure
from kauldron.ckpts.init_transforms import InitTransform
from kauldron.ckpts.structure import LeafPath
from kauldron.konfig.immutabledict import ImmutableDict
from kauldron.utils import status
from kauldron.utils.error_context import error_prefix

_T = TypeVar("_T")


class WeightSource(Protocol):
    """Where weights come from.

    Attributes:
      name: What it is called in messages.
      tree: Nested dicts and lists of leaves with a shape.
    """

    @property
    def name(self) -> str: ...

    @property
    def tree(self) -> Any: ...

    def read(self, wanted: Mapping[LeafPath, Any]) -> Mapping[LeafPath, Any]:
        """Read leaves of the tree to where the given arrays are, in their dtype."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class MappedLoader(InitTransform):
    """Base of the loaders: which weights go where.

    Only what is needed is read, straight to the sharding and dtype of the state. The
    two sides of an entry must have the same names and shapes; the types of containers
    do not matter. Patterns are compared with the path below the entry and with the
    whole path: `*` stands for one part, `**` for any number of them.

    Attributes:
      new_to_old: From path in the new state to path in the source (`""` for all of it).
        Paths below `opt_state` are loaded after the optimizer was initialised.
      ignore_model_keys: Patterns of what may be missing in the source, and keeps its
        initial value.
      ignore_restored_keys: Patterns of what may be in the source only.
    """

    new_to_old: Mapping[str, str]
    ignore_model_keys: tuple[str, ...] = ()
    ignore_restored_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "new_to_old", ImmutableDict(self.new_to_old))
        for name in ("ignore_model_keys", "ignore_restored_keys"):
            value = getattr(self, name)
            value = (value,) if isinstance(value, str) else tuple(value)
            object.__setattr__(self, name, value)
        self._check_spelling()

    def _check_spelling(self) -> None:
        """Raise now what is wrong with a path, and not when a run starts."""
        for new, old in self.new_to_old.items():
            structure.parse(new)
            structure.parse(old)
        for glob in (*self.ignore_model_keys, *self.ignore_restored_keys):
            structure.parse_glob(glob)

    @abc.abstractmethod
    def _open(self, *, is_continued: bool) -> WeightSource:
        """The source.

        Args:
          is_continued: Whether to take the same as the last time: the second half of
            an initialisation must not load another checkpoint than the first.
        """

    def transform(self, state: _T) -> _T:
        entries = {n: o for n, o in self.new_to_old.items() if not _is_optimizer(n)}
        return self._load(state, entries, is_continued=False)

    def transform_after_optimizer(self, state: _T) -> _T:
        entries = {n: o for n, o in self.new_to_old.items() if _is_optimizer(n)}
        is_continued = len(entries) < len(self.new_to_old)
        return self._load(state, entries, is_continued=is_continued)

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _load(self, state: Any, entries: Mapping[str, str], is_continued: bool) -> Any:
        if not entries:
            return state
        source = self._open(is_continued=is_continued)
        leaves, stored = structure.flatten(state), structure.flatten(source.tree)
        new_to_old: dict[LeafPath, LeafPath] = {}
        for new, old in entries.items():
            kontext.get_by_path(state, new)  # says what there is instead
            _check_exists(structure.parse(old), source, stored)
            new_to_old |= self._match(new, old, leaves, stored, source.name)
        # One old leaf may go to several places.
        loaded: dict[LeafPath, Any] = {}
        todo = dict(new_to_old)
        while todo:
            batch = {old: new for new, old in todo.items()}
            with error_prefix(f"Loading {source.name} failed: "):
                values = source.read({old: leaves[new] for old, new in batch.items()})
            loaded |= {new: values[old] for old, new in batch.items()}
            todo = {new: old for new, old in todo.items() if new not in loaded}
        status.log(f"Loaded {len(loaded)} arrays from {source.name}")
        return structure.with_leaves(state, loaded)

    def _match(
        self,
        new: str,
        old: str,
        leaves: Mapping[LeafPath, Any],
        stored: Mapping[LeafPath, Any],
        source: str,
    ) -> dict[LeafPath, LeafPath]:
        """From leaf of the state to leaf of the source, for one entry."""
        new_root, old_root = structure.parse(new), structure.parse(old)
        here, there = _below(leaves, new_root), _below(stored, old_root)
        only_here = [p for p in here if p not in there]
        only_there = [p for p in there if p not in here]
        both = [p for p in here if p in there]
        problems = _complaints(
            "Only in the model (allow with `ignore_model_keys`)",
            new_root,
            only_here,
            self.ignore_model_keys,
        )
        problems += _complaints(
            f"Only in {source} (allow with `ignore_restored_keys`)",
            old_root,
            only_there,
            self.ignore_restored_keys,
        )
        problems += structure.conflicts(
            (new_root + p, here[p], old_root + p, there[p]) for p in both
        )
        if problems:
            raise structure.StructureMismatch(
                f"{old or 'all'!r} of {source} does not fit {new!r}.{problems}"
            )
        return {new_root + p: old_root + p for p in both}


def _is_optimizer(path: str) -> bool:
    return structure.parse(path)[:1] == ("opt_state",)


def _below(leaves: Mapping[LeafPath, Any], root: LeafPath) -> dict[LeafPath, Any]:
    """The leaves at or under a path, by the path relative to it."""
    size = len(root)
    return {p[size:]: leaf for p, leaf in leaves.items() if p[:size] == root}


def _check_exists(
    root: LeafPath, source: WeightSource, stored: Mapping[LeafPath, Any]
) -> None:
    """Raise if the source has nothing at a path, not even something empty."""
    node = source.tree
    for part in root:
        is_list = isinstance(node, list | tuple)
        children = {str(i): c for i, c in enumerate(node)} if is_list else node
        if not isinstance(children, Mapping) or part not in children:
            close = structure.closest(root, stored)
            raise KeyError(
                f"{source.name} has nothing at {structure.show(root)!r}."
                + (f" Close: {', '.join(close)}." if close else "")
            )
        node = children[part]


def _complaints(
    title: str, root: LeafPath, paths: list[LeafPath], globs: tuple[str, ...]
) -> str:
    unexpected = [
        structure.show(root + path)
        for path in paths
        if not any(
            structure.matches(candidate, glob)
            for glob in globs
            for candidate in (path, root + path)
        )
    ]
    return structure.listing(title, unexpected)
