"""Weights of models that other libraries trained, from a local file.

A layout says, for each parameter of the model, which array of the file it is made of and
how: see `kauldron.nn.weight_layouts`.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import einops
import jax
import numpy as np
from etils import epath
from flax import traverse_util

from kauldron import kontext, status
from kauldron.ckpts import structure
from kauldron.ckpts.init_transforms import InitTransform
from kauldron.ckpts.structure import LeafPath, StructureMismatch
from kauldron.ckpts.weight_files import put_like, read_msgpack, read_safetensors
from kauldron.errors import did_you_mean
from kauldron.immutabledict import ImmutableDict
from kauldron.nn.layer_stack import stack_layers, unstack_layers
from kauldron.nn.weight_layouts import LAYOUTS, Layout, Source, Weight

_T = TypeVar("_T")
_MOST_SUBTREES = 12


#
# Loading
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadReport:
    """What became of the parameters of a model, and of the arrays of a file.

    Attributes:
      source: The file.
      loaded: From parameter to the arrays that it was made of.
      fresh: Parameters that keep their initial value.
      skipped: Arrays of the file that were not used.
      mismatched: From parameter to why it could not be loaded, although the file has it.
    """

    source: str
    loaded: Mapping[str, tuple[str, ...]]
    fresh: tuple[str, ...]
    skipped: tuple[str, ...]
    mismatched: Mapping[str, str]

    def __str__(self) -> str:
        kinds = dict.fromkeys(self.loaded, "loaded") | dict.fromkeys(
            (*self.fresh, *self.mismatched), "fresh"
        )
        lines = [
            f"Loaded {len(self.loaded)} parameters from {self.source} (fresh: "
            f"{len(self.fresh)}, skipped: {len(self.skipped)}, mismatched: "
            f"{len(self.mismatched)}):"
        ]
        parts = structure.by_subtree(
            {structure.parse(path): kind for path, kind in kinds.items()},
            most=_MOST_SUBTREES,
        )
        for root, counts in parts.items():
            numbers = [f"{counts[k]} {k}" for k in ("loaded", "fresh") if counts[k]]
            lines.append(f"  {structure.show(root)}: {', '.join(numbers)}")
        listed = structure.listing("Skipped in the file", list(self.skipped))
        problems = [f"{path}: {why}" for path, why in self.mismatched.items()]
        listed += structure.listing("Mismatched", problems)
        return "\n".join(lines) + listed


def load_pretrained(
    params: Any,
    path: epath.PathLike,
    *,
    layout: str | Layout = "auto",
    fresh: Sequence[str] = (),
) -> tuple[Any, LoadReport]:
    """Return parameters with the values of a file.

    Args:
      params: The parameters of the model, or of a part of it.
      path: A file that ends in `.safetensors`, `.msgpack` (of flax) or `.npz`.
      layout: A name in `kd.ckpts.LAYOUTS`; `"auto"` for the one that fits the names in
        the file; or a dict from paths of parameters to names in the file, or `Weight`s.
      fresh: Patterns of parameters that keep their value: `"classifier_head.**"`.

    Returns:
      The parameters, and a report.

    Raises:
      StructureMismatch: A parameter is not in the file, or has another shape there, and
        `fresh` does not say that this is meant.
    """
    plan = _make_plan(params, path, layout, fresh)
    made = {path: plan.read(path) for path in plan.sources}
    return _with_arrays(params, made), plan.report


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainedLoader(InitTransform):
    """Starts training with the weights of a file of another library.

    Example:

    ```python
    cfg.init_transform = kd.ckpts.PretrainedLoader(
        path="/data/vit_base_patch16_224.safetensors",
        fresh=("pre_logits.**", "classifier_head.**"),
    )
    ```

    Attributes:
      path: A file that ends in `.safetensors`, `.msgpack` (of flax) or `.npz`.
      layout: A name in `kd.ckpts.LAYOUTS`; `"auto"` for the one that fits the names in
        the file; or a dict from paths of parameters to names in the file, or `Weight`s.
      fresh: Patterns of parameters that keep their initial value.
      target: Which part of the state to load: `"params"`, `"params.encoder"`.
    """

    path: epath.PathLike
    layout: str | Layout = "auto"
    fresh: tuple[str, ...] = ()
    target: str = "params"

    def __post_init__(self) -> None:
        fresh = (self.fresh,) if isinstance(self.fresh, str) else tuple(self.fresh)
        object.__setattr__(self, "fresh", fresh)
        if not isinstance(self.layout, str):
            object.__setattr__(self, "layout", ImmutableDict(self.layout))
        elif self.layout != "auto":
            _layout_by_name(self.layout)
        for glob in fresh:
            structure.parse_glob(glob)

    def transform(self, state: _T) -> _T:
        params = kontext.get_by_path(state, self.target)
        params, report = load_pretrained(
            params, self.path, layout=self.layout, fresh=self.fresh
        )
        status.log(str(report))
        root = structure.parse(self.target)
        leaves = {root + p: leaf for p, leaf in structure.flatten(params).items()}
        return structure.with_leaves(state, leaves)

    def check(self, state: Any = None) -> None:
        epath.Path(self.path).stat()
        if state is not None:
            params = kontext.get_by_path(state, self.target)
            _make_plan(params, self.path, self.layout, self.fresh)


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What to read: the sources of parameters whose shapes fit."""

    arrays: Arrays
    sources: Mapping[LeafPath, tuple[Source, tuple[str, ...]]]
    shapes: Mapping[LeafPath, tuple[int, ...]]
    report: LoadReport

    def read(self, path: LeafPath) -> np.ndarray:
        source, names = self.sources[path]
        arrays = [np.asarray(self.arrays[name]) for name in names]
        return np.asarray(source.make(*arrays, shape=self.shapes[path]))


def _make_plan(
    params: Any, path: epath.PathLike, layout: str | Layout, fresh: Sequence[str]
) -> _Plan:
    if isinstance(layout, str) and layout != "auto":
        layout = _layout_by_name(layout)  # a typo is told before much is read
    arrays = _read_arrays(epath.Path(path))
    if isinstance(layout, str):
        layout = _layout_that_fits(arrays, path)
    rules = [(_target_regex(target), _as_source(s)) for target, s in layout.items()]
    specs = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype), params)
    shapes = {p: s.shape for p, s in structure.flatten(unstack_layers(specs)).items()}
    sources, missing, kept, mismatched = {}, {}, [], {}
    for leaf, shape in shapes.items():
        text = structure.show(leaf)
        if any(structure.matches(leaf, glob) for glob in fresh):
            kept.append(text)
            continue
        found = _find(leaf, rules, arrays)
        if found is None:
            missing[text] = leaf
            continue
        try:
            _check_fits(*found, shape, arrays)
            sources[leaf] = found
        except (ValueError, einops.EinopsError) as error:
            mismatched[text] = str(error).partition("\n")[0]
    used = {name for _, names in sources.values() for name in names}
    report = LoadReport(
        source=str(path),
        loaded={structure.show(p): names for p, (_, names) in sources.items()},
        fresh=(*kept, *missing),
        skipped=tuple(name for name in arrays if name not in used),
        mismatched=mismatched,
    )
    if missing or mismatched:
        raise StructureMismatch(
            f"{path} does not have all parameters of the model. Those that are meant to "
            "keep their initial value have to be named: `fresh=('pre_logits.**',)`."
            + structure.listing("Not in the file", list(missing))
            + structure.listing(
                "Mismatched", [f"{path}: {why}" for path, why in mismatched.items()]
            )
            + structure.listing("In the file, and not used", list(report.skipped))
        )
    return _Plan(arrays, sources, shapes, report)


def _target_regex(target: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", target)
    texts = [
        f"(?P<{part}>\\d+)" if i % 2 else re.escape(part)
        for i, part in enumerate(parts)
    ]
    return re.compile("".join(texts))


def _as_source(source: str | Source) -> Source:
    return Weight(source) if isinstance(source, str) else source


def _find(
    leaf: LeafPath, rules: Iterable[tuple[re.Pattern[str], Source]], arrays: Arrays
) -> tuple[Source, tuple[str, ...]] | None:
    """Return the source of a parameter, with the names of the arrays in the file."""
    for regex, source in rules:
        match = regex.fullmatch(".".join(leaf))
        if match is None:
            continue
        wanted = [_filled(name, match.groupdict()) for name in source.names]
        names = [_stored_name(name, arrays) for name in wanted]
        if None not in names:
            return source, tuple(name for name in names if name is not None)
    return None


def _check_fits(
    source: Source, names: Sequence[str], shape: tuple[int, ...], arrays: Arrays
) -> None:
    """Raise if a parameter would get another shape. Nothing is read."""
    specs = [jax.ShapeDtypeStruct(arrays[n].shape, arrays[n].dtype) for n in names]
    made = jax.eval_shape(functools.partial(source.make, shape=shape), *specs)
    if made.shape != shape:
        stored = ", ".join(f"{n} {arrays[n].shape}" for n in names)
        raise ValueError(f"the model has {shape}, the file {stored}")


def _filled(name: str, numbers: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: numbers[match[1]], name)


def _with_arrays(params: Any, made: Mapping[LeafPath, np.ndarray]) -> Any:
    """Return the parameters with other values, where they are and in their dtype."""
    leaves = structure.flatten(params)
    if any(path not in leaves for path in made):  # the model has stacked layers
        made = structure.flatten(stack_layers(traverse_util.unflatten_dict(made)))
        lost = [
            structure.show(path)
            for path, array in made.items()
            if path not in leaves or array.shape != leaves[path].shape
        ]
        if lost:
            raise ValueError(
                "The layers of the model are stacked, so each parameter is loaded for "
                "all of them or for none." + structure.listing("Only for some", lost)
            )
    return structure.with_leaves(
        params, {path: put_like(value, leaves[path]) for path, value in made.items()}
    )


#
# Files
#


_PREFIXES = ("", "vit.", "vit/", "model.", "module.", "params/", "params/vit/")


Arrays = Mapping[str, Any]
"""Arrays by name. Those of nested trees have names as `encoder/dense/kernel`."""


def _read_arrays(path: epath.Path) -> Arrays:
    readers: dict[str, Callable[[epath.Path], Arrays]] = {
        ".safetensors": read_safetensors,
        ".msgpack": _flat_msgpack,
        ".npz": _read_npz,
    }
    if path.suffix not in readers:
        raise ValueError(
            f"{path}: weights are read from files that end in {', '.join(readers)}."
        )
    return readers[path.suffix](path)


def _flat_msgpack(path: epath.Path) -> Arrays:
    leaves = structure.flatten(read_msgpack(path))
    return {"/".join(names): leaf for names, leaf in leaves.items()}


def _read_npz(path: epath.Path) -> Arrays:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def _stored_name(name: str, arrays: Arrays) -> str | None:
    """Return the name with what libraries put in front of it."""
    names = (prefix + name for prefix in _PREFIXES)
    return next((name for name in names if name in arrays), None)


#
# Layouts
#


def _layout_that_fits(arrays: Arrays, path: epath.PathLike) -> Layout:
    """Return the layout that knows most arrays of a file."""
    counts = {known: _num_known(layout, arrays) for known, layout in LAYOUTS.items()}
    name = max(counts, key=lambda known: counts[known])
    if counts[name]:
        return LAYOUTS[name]
    raise ValueError(
        f"The names in {path} fit none of the layouts {', '.join(LAYOUTS)}. "
        f"Some of them: {', '.join(list(arrays)[:5])}. Give `layout` as a "
        "dict from paths of parameters to these names."
    )


def _layout_by_name(name: str) -> Layout:
    if name not in LAYOUTS:
        raise ValueError(
            f"Unknown layout {name!r}.{did_you_mean(name, LAYOUTS)} Layouts: "
            f"{', '.join(LAYOUTS)}, and 'auto'."
        )
    return LAYOUTS[name]


def _num_known(layout: Layout, arrays: Arrays) -> int:
    wanted = {name for s in layout.values() for name in _as_source(s).names}
    names = [_stored_name(_filled(name, {"i": "0"}), arrays) for name in wanted]
    return sum(name is not None for name in names)
