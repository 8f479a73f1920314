"""Loading sub-trees from elsewhere into the initial state, under other names."""

from __future__ import annotations

import abc
import collections
import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

from etils import epath

from kauldron import kontext, status
from kauldron.ckpts import items, step_folders, structure
from kauldron.ckpts.checkpointer import Checkpointer
from kauldron.ckpts.init_transforms import InitTransform
from kauldron.ckpts.structure import LeafPath
from kauldron.errors import ReadableKeyError, did_you_mean, error_prefix
from kauldron.immutabledict import ImmutableDict

_T = TypeVar("_T")
_OPTIMIZER = ("opt_state",)
_MOST_SUBTREES = 8


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
      ignore_model_keys: Patterns of what may be missing in the source; it then keeps
        its initial value. To keep it in any case, leave it out of `new_to_old`.
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
        # Raise now what is wrong with a path, and not when a run starts.
        for new, old in self.new_to_old.items():
            structure.parse(new)
            structure.parse(old)
        for glob in (*self.ignore_model_keys, *self.ignore_restored_keys):
            structure.parse_glob(glob)

    @abc.abstractmethod
    def _open(self, *, is_continued: bool) -> WeightSource:
        """Return the source; if `is_continued`, the same as the last time.

        The second half of an initialisation must not load another checkpoint than the
        first.
        """

    def transform(self, state: _T) -> _T:
        return self._load(state, is_optimizer=False)

    def transform_after_optimizer(self, state: _T) -> _T:
        return self._load(state, is_optimizer=True)

    def find_problems(self, state: Any) -> Iterator[tuple[str, str]]:
        for new in self.new_to_old:
            try:
                kontext.get_by_path(state, new)
            except KeyError as error:
                yield "", f"`new_to_old` has {new!r}: {error}"
        for message in self._useless_patterns(structure.flatten(state)):
            yield "", message

    def check(self, state: Any = None) -> None:
        source = self._open(is_continued=False)
        if state is None:
            return
        leaves, stored = structure.flatten(state), structure.flatten(source.tree)
        self._check_names(state, self.new_to_old, source, stored)
        for new in self.new_to_old:
            self._check_fits(self._entry(new, leaves, stored), source.name)

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _load(self, state: Any, *, is_optimizer: bool) -> Any:
        names = [n for n in self.new_to_old if _is_optimizer(n) == is_optimizer]
        if not names:
            return state
        is_all = len(names) == len(self.new_to_old)
        source = self._open(is_continued=is_optimizer and not is_all)
        leaves, stored = structure.flatten(state), structure.flatten(source.tree)
        self._check_names(state, names, source, stored)
        is_last = is_optimizer or is_all  # all that patterns can match is there
        if is_last and (mistakes := list(self._useless_patterns(leaves))):
            raise ValueError("\n".join(mistakes))
        entries = {n: self._entry(n, leaves, stored) for n in self.new_to_old}
        for new in names:
            self._check_fits(entries[new], source.name)
        if is_last:
            self._warn_about_patterns(entries.values(), source.name)
        new_to_old = {
            entry.new + path: entry.old + path
            for entry in map(entries.__getitem__, names)
            for path in entry.on_both
        }
        loaded = _read(source, new_to_old, leaves)
        log = status.log if loaded or not stored else status.log_warning
        log(self._report(leaves, stored, new_to_old, source.name, is_optimizer))
        return structure.with_leaves(state, loaded)

    def _check_names(
        self,
        state: Any,
        names: Iterable[str],
        source: WeightSource,
        stored: Mapping[LeafPath, Any],
    ) -> None:
        for new in names:
            kontext.get_by_path(state, new)  # says what there is instead
            _check_exists(structure.parse(self.new_to_old[new]), source, stored)

    def _entry(
        self, new: str, leaves: Mapping[LeafPath, Any], stored: Mapping[LeafPath, Any]
    ) -> _Entry:
        new_root, old_root = structure.parse(new), structure.parse(self.new_to_old[new])
        return _Entry(
            new_root, old_root, _below(leaves, new_root), _below(stored, old_root)
        )

    def _check_fits(self, entry: _Entry, source: str) -> None:
        problems = _complaints(
            "Only in the model (allow with `ignore_model_keys`)",
            entry.new,
            entry.only_here,
            self.ignore_model_keys,
        )
        problems += _complaints(
            f"Only in {source} (allow with `ignore_restored_keys`)",
            entry.old,
            entry.only_there,
            self.ignore_restored_keys,
        )
        problems += structure.conflicts(
            (entry.new + p, entry.here[p], entry.old + p, entry.there[p])
            for p in entry.on_both
        )
        if problems:
            new, old = structure.show(entry.new), structure.show(entry.old)
            raise structure.StructureMismatch(
                f"{old or 'all'!r} of {source} does not fit {new!r}.{problems}"
            )

    #
    # Patterns without effect
    #

    def _useless_patterns(self, leaves: Mapping[LeafPath, Any]) -> Iterator[str]:
        """Yield what to report about patterns that stand for nothing in the model."""
        roots = [structure.parse(new) for new in self.new_to_old]
        sides = [(root, _below(leaves, root)) for root in roots]
        for glob in self.ignore_model_keys:
            if not any(_matching(glob, *side) for side in sides):
                yield (
                    f"`ignore_model_keys` has {glob!r}, which matches nothing in the "
                    f"model.{_hint(glob, sides)}"
                )

    def _warn_about_patterns(self, entries: Collection[_Entry], source: str) -> None:
        """Warn about patterns that allow nothing that had to be allowed."""
        for glob in self.ignore_model_keys:
            if not any(_matching(glob, e.new, e.only_here) for e in entries):
                status.log_warning(
                    f"`ignore_model_keys` has {glob!r}, but {source} has all arrays that "
                    "it matches: they are loaded. To keep their initial values, leave "
                    "them out of `new_to_old`."
                )
        for glob in self.ignore_restored_keys:
            if any(_matching(glob, e.old, e.only_there) for e in entries):
                continue
            sides = [(e.old, e.there) for e in entries]
            if any(_matching(glob, *side) for side in sides):
                text = "but the model has all arrays that it matches: they are loaded."
            else:
                text = f"which matches nothing in {source}.{_hint(glob, sides)}"
            status.log_warning(f"`ignore_restored_keys` has {glob!r}, {text}")

    def _report(
        self,
        leaves: Iterable[LeafPath],
        stored: Iterable[LeafPath],
        new_to_old: Mapping[LeafPath, LeafPath],
        source: str,
        is_optimizer: bool,
    ) -> str:
        """Return what was loaded, and what was not, of the model and of the source."""
        optimizer_roots = [
            structure.parse(old)
            for new, old in self.new_to_old.items()
            if _is_optimizer(new)
        ]
        used = set(new_to_old.values())
        here = {
            path: "loaded" if path in new_to_old else "kept"
            for path in leaves
            if (path[:1] == _OPTIMIZER) == is_optimizer
            and (path in new_to_old or len(path) > 1)  # the step need not be reported
        }
        there = {
            path: "loaded" if path in used else "skipped"
            for path in stored
            if any(_is_below(path, root) for root in optimizer_roots) == is_optimizer
        }
        totals = collections.Counter([*here.values(), *there.values()])
        lines = [
            f"Loaded {len(new_to_old)} arrays from {source} "
            f"(kept their values: {totals['kept']}, skipped: {totals['skipped']}):"
        ]
        for root, counts in structure.by_subtree(here, most=_MOST_SUBTREES).items():
            numbers = [f"{counts[k]} {k}" for k in ("loaded", "kept") if counts[k]]
            lines.append(f"  {structure.show(root)}: {', '.join(numbers)}")
        skipped = [
            f"{structure.show(root)} ({counts['skipped']})"
            for root, counts in structure.by_subtree(there, most=_MOST_SUBTREES).items()
            if counts["skipped"]
        ]
        if skipped:
            lines.append(f"  skipped: {_enumerate(skipped)}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class _Entry:
    """An entry of `new_to_old`: leaves of both sides, by the path below the entry."""

    new: LeafPath
    old: LeafPath
    here: Mapping[LeafPath, Any]
    there: Mapping[LeafPath, Any]

    @property
    def only_here(self) -> list[LeafPath]:
        return [path for path in self.here if path not in self.there]

    @property
    def only_there(self) -> list[LeafPath]:
        return [path for path in self.there if path not in self.here]

    @property
    def on_both(self) -> list[LeafPath]:
        return [path for path in self.here if path in self.there]


def _read(
    source: WeightSource,
    new_to_old: Mapping[LeafPath, LeafPath],
    leaves: Mapping[LeafPath, Any],
) -> dict[LeafPath, Any]:
    """Read leaves of the source; one of them may go to several places."""
    loaded: dict[LeafPath, Any] = {}
    todo = dict(new_to_old)
    while todo:
        batch = {old: new for new, old in todo.items()}
        with error_prefix(f"Loading {source.name} failed: "):
            values = source.read({old: leaves[new] for old, new in batch.items()})
        loaded |= {new: values[old] for old, new in batch.items()}
        todo = {new: old for new, old in todo.items() if new not in loaded}
    return loaded


def _is_optimizer(path: str) -> bool:
    return structure.parse(path)[:1] == _OPTIMIZER


def _is_below(path: LeafPath, root: LeafPath) -> bool:
    return path[: len(root)] == root


def _below(leaves: Mapping[LeafPath, Any], root: LeafPath) -> dict[LeafPath, Any]:
    """Return the leaves at or under a path, by the path relative to it."""
    return {p[len(root) :]: leaf for p, leaf in leaves.items() if _is_below(p, root)}


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
            raise ReadableKeyError(
                f"{source.name} has nothing at {structure.show(root)!r}."
                + (f" Close: {', '.join(close)}." if close else "")
            )
        node = children[part]


def _complaints(
    title: str, root: LeafPath, paths: list[LeafPath], globs: tuple[str, ...]
) -> str:
    allowed = {path for glob in globs for path in _matching(glob, root, paths)}
    unexpected = [structure.show(root + path) for path in paths if path not in allowed]
    return structure.listing(title, unexpected)


def _matching(glob: str, root: LeafPath, paths: Iterable[LeafPath]) -> list[LeafPath]:
    """Return those of the paths below an entry that a pattern stands for."""
    return [
        path
        for path in paths
        if structure.matches(path, glob) or structure.matches(root + path, glob)
    ]


def _hint(glob: str, sides: Sequence[tuple[LeafPath, Mapping[LeafPath, Any]]]) -> str:
    """Return what the author of a pattern that matches nothing may have meant."""
    paths = {p for root, below in sides for path in below for p in (path, root + path)}
    parents = {path[:length] for path in paths for length in range(1, len(path))}
    if any(structure.matches(path, glob) for path in parents):
        return f" For all that is below it, write {f'{glob}.**'!r}."
    names = {part for path in paths for part in path}
    unknown = [name for name in structure.literal_parts(glob) if name not in names]
    close = "".join(did_you_mean(name, names, count=1) for name in unknown)
    tops = {structure.show(root + p[:1]) for root, below in sides for p in below}
    return f"{close} There is: {_enumerate(sorted(tops))}."


def _enumerate(names: list[str]) -> str:
    more = len(names) - _MOST_SUBTREES
    return ", ".join(names[:_MOST_SUBTREES]) + (f" and {more} more" if more > 0 else "")


#
# From checkpoints
#


_SAME_NAMES = ImmutableDict({"params": "params", "collections": "collections"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartialKauldronLoader(MappedLoader):
    """Loads sub-trees of a checkpoint into the initial state.

    Nothing is ever written to the other run's folder.

    Example:

    ```python
    cfg.init_transform = kd.ckpts.PartialKauldronLoader(
        workdir="/path/to/other/run",
        new_to_old={"params.encoder": "params.model.encoder"},
    )
    ```

    Attributes:
      workdir: Workdir of the *other* run.
      new_to_old: From path in the new state to path in the checkpoint. Paths below
        `opt_state` are loaded after the optimizer was initialised; with `step` among
        them, training goes on at the loaded step.
      step: Which checkpoint; -1 for the newest.
      lightweight_initialize: Accepted for older configs; opening is always light.
    """

    workdir: epath.PathLike
    new_to_old: Mapping[str, str] = _SAME_NAMES
    step: int = -1
    lightweight_initialize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        step_folders.check_step(self.step)

    def _open(self, *, is_continued: bool) -> _StoredItem:
        run = Checkpointer(
            workdir=epath.Path(self.workdir), save_interval_steps=1, create=False
        )
        last_step = self.__dict__.get("_last_step", self.step)
        step = run.find_step(last_step if is_continued else self.step)
        object.__setattr__(self, "_last_step", step)
        return _StoredItem(step_folders.step_folder(run.folder, step))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_last_step"}


@dataclasses.dataclass(frozen=True)
class _StoredItem:
    """The train state of a checkpoint, as a source of weights."""

    folder: epath.Path

    @property
    def name(self) -> str:
        return str(self.folder)

    @functools.cached_property
    def tree(self) -> Any:
        from kauldron.ckpts import orbax_io

        step_folders.check_checksums(self.folder)
        return orbax_io.stored_tree(self.folder / items.DEFAULT_ITEM_NAME)

    def read(self, wanted: Mapping[LeafPath, Any]) -> Mapping[LeafPath, Any]:
        from kauldron.ckpts import orbax_io

        item_folder = self.folder / items.DEFAULT_ITEM_NAME
        return orbax_io.read_leaves(item_folder, self.tree, wanted)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimpleCheckpointLoader(PartialKauldronLoader):
    """Loads parameters and collections of another run, under the same names.

    The other options are those of `PartialKauldronLoader`.

    Attributes:
      workdir: Workdir of the *other* run.
      step: Which checkpoint; -1 for the newest.
      load_opt_state: Whether to load the optimizer state too.
    """

    new_to_old: Mapping[str, str] = dataclasses.field(init=False, repr=False)
    load_opt_state: bool = False

    def __post_init__(self) -> None:
        optimizer = {"opt_state": "opt_state"} if self.load_opt_state else {}
        object.__setattr__(self, "new_to_old", {**_SAME_NAMES, **optimizer})
        super().__post_init__()
