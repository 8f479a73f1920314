"""Modules that have moved, under their former names.

Pickles, saved configs and users' code may name a class by the module it used to be in.
An old name is an alias: importing it gives the module that has its contents now.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_HERE = "kauldron.data."
_MOVED = {
    "array_spec": "specs",
    "column_source": "in_memory",
    "data_utils": "utils",
    "dataset_ops": "dataset",
    "drop_remainder": "engine.batches",
    "element_spec_dataset": "in_memory",
    "iterable_dataset": "dataset",
    "iterators": "iters",
    "iterators.iterators": "iters",
    "iterators.noop_handler": "checkpointing",
    "iterators.pygrain_handler": "checkpointing",
    "iterators.tfdata_handler": "checkpointing",
    "iters.forwarding": "iters",
    "iters.iterator": "iters",
    "iters.non_checkpointable": "iters",
    "iters.noop_handler": "checkpointing",
    "iters.py_grain_iterator": "iters",
    "iters.state_handler": "checkpointing",
    "pipelines": "pipeline",
    "processes": "engine.batches",
    "slice_dataset": "engine.entries",
    "engine.batch_iterator": "engine.iterator",
    "engine.batch_job": "engine.batches",
    "engine.chunk": "engine.nodes",
    "engine.index_shuffle": "engine.shuffles",
    "engine.mixture_nodes": "engine.mixtures",
    "engine.plans": "engine.batches",
    "engine.record_rngs": "engine.keys",
    "engine.record_tree": "engine.trees",
    "engine.source_node": "engine.nodes",
    "engine.stacking": "engine.trees",
    "engine.stream_node": "engine.nodes",
    "engine.threefry": "engine.keys",
    "engine.transform_node": "engine.nodes",
    "py.array_record": "py.files",
    "py.arrays": "py.sources",
    "py.base": "py.pipeline",
    "py.data_source": "py.sources",
    "py.data_sources": "py.sources",
    "py.grain_datasets": "py.grain_adapter",
    "py.hugging_face": "py.catalogs",
    "py.idx": "py.files",
    "py.image_folder": "py.files",
    "py.json_records": "py.files",
    "py.npz": "py.files",
    "py.py_grain_pipeline": "py.pipeline",
    "py.random_transforms": "transforms.crops",
    "py.tfds": "py.catalogs",
    "py.transform_utils": "engine.entries",
    "tf.base": "tf.pipeline",
    "tf.dataset_transforms": "tf.pipeline",
    "tf.map_transforms": "tf.transforms",
    "tf.mixture": "tf.mixtures",
    "tf.random_transforms": "tf.transforms",
    "tf.shuffle_buffer": "tf.pipeline",
    "tf.tf_checkpoint_handler": "checkpointing",
    "tf.tf_data_pipeline": "tf.pipeline",
    "tf.tf_iterator": "tf.iterator",
    "tf.tf_random_transforms": "tf.transforms",
    "tf.tf_resize": "tf.transforms",
    "tf.tfds_legacy": "tf.tfds",
    "tf.transform_utils": "tf.pipeline",
    "transforms.abc": "transforms.base",
    "transforms.add_constants": "transforms.structure",
    "transforms.array_family": "transforms.values",
    "transforms.batch_forms": "transforms.forms",
    "transforms.cast": "transforms.values",
    "transforms.center_crop": "transforms.crops",
    "transforms.dtypes": "transforms.values",
    "transforms.element_wise": "transforms.fields",
    "transforms.elements": "transforms.fields",
    "transforms.gather": "transforms.axes",
    "transforms.inception_crop": "transforms.crops",
    "transforms.keyed_fields": "transforms.fields",
    "transforms.lazy_tensorflow": "transforms.values",
    "transforms.linear_map": "transforms.values",
    "transforms.map_transforms": "transforms",
    "transforms.normalize": "transforms.values",
    "transforms.one_hot": "transforms.values",
    "transforms.random_crop": "transforms.crops",
    "transforms.random_flip": "transforms.crops",
    "transforms.rearrange": "transforms.axes",
    "transforms.resize_small": "transforms.resize",
    "transforms.resize_weights": "transforms.resize",
    "transforms.transform_types": "transforms.base",
    "transforms.tree_flatten": "transforms.structure",
    "transforms.value_range": "transforms.values",
}


class _MovedFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules by their former names, after all other finders have failed."""

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.removeprefix(_HERE) not in _MOVED or not fullname.startswith(_HERE):
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Alias(spec.name, _HERE + _MOVED[spec.name.removeprefix(_HERE)])

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the alias asks the real module for every name."""


class _Alias(ModuleType):
    """Has the names of another module, which is imported when one is asked for."""

    def __init__(self, name: str, real_name: str):
        super().__init__(name)
        self.__dict__["__path__"] = []  # other former names may lie below it
        self.__dict__["_real_name"] = real_name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self._real_name), name)


def install() -> None:
    """Make the former names importable."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        sys.meta_path.append(_MovedFinder())
