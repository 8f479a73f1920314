"""Older module paths stay importable and give the objects of the modules of today."""

import importlib
import pickle
import sys
import types

import pytest

from kauldron import kd, konfig, kontext, ktyping
from kauldron.lazy_namespace import older_modules

_PACKAGES = {
    *("ckpts", "cli", "contrib", "data", "evals", "export", "inspect", "klinen"),
    *("konfig", "kontext", "ktyping", "losses", "metrics", "nn", "optim", "sharding"),
    *("summaries", "train", "utils", "writers"),
}
for package in _PACKAGES:
    importlib.import_module(f"kauldron.{package}")
_OLDER = {
    path: module.__newer__
    for path, module in sys.modules.items()
    if path.startswith("kauldron.") and "__newer__" in vars(module)
}


def test_every_package_keeps_its_older_paths():
    found = {path.split(".")[1] for path in _OLDER if path.count(".") > 1}
    other_names = {"checkpoints", "modules"}  # of `kauldron.ckpts`, `kauldron.nn`
    assert found - other_names == _PACKAGES


@pytest.mark.parametrize("path", sorted(_OLDER))
def test_older_module_gives_the_names_of_the_newer_ones(path):
    older = importlib.import_module(path)
    for newer in map(importlib.import_module, _OLDER[path]):
        assert set(dir(newer)) <= set(dir(older))
    first = importlib.import_module(_OLDER[path][0])
    for name, value in vars(first).items():
        is_module = isinstance(value, types.ModuleType)  # may have an older path too
        if not name.startswith("_") and not is_module:
            assert getattr(older, name) is value


@pytest.mark.parametrize(
    "text, value",
    [
        ("ckauldron.ktyping.missing\nMISSING\n.", ktyping.config.MISSING),
        ("ckauldron.ktyping.shape_type\nShape\n.", ktyping.Shape),
        ("ckauldron.ktyping.pytree_type\nPyTree\n.", ktyping.PyTree),
        ("ckauldron.ktyping.shape_type\n_make\n(S'a b'\ntR.", ktyping.Shape["a b"]),
        ("ckauldron.ktyping.shape_spec\nDimSpec\n.", ktyping.shapes.spec.Dim),
        ("ckauldron.data.array_spec\nArraySpec\n.", kd.data.ArraySpec),
        ("ckauldron.data.py.tfds\nTfds\n.", kd.data.py.Tfds),
        ("ckauldron.data.transforms.normalize\nValueRange\n.", kd.data.ValueRange),
        ("ckauldron.data.transforms.map_transforms\nResize\n.", kd.data.Resize),
        ("ckauldron.losses.base\nLoss\n.", kd.losses.Loss),
        ("ckauldron.metrics.base_state\nState\n.", kd.metrics.State),
        ("ckauldron.konfig.configdict\nConfigDict\n.", konfig.ConfigDict),
        ("ckauldron.kontext.path_parser\nPath\n.", kontext.Path),
    ],
)
def test_pickles_that_name_an_older_path_are_read(text, value):
    assert pickle.loads(text.encode()) == value


@pytest.mark.parametrize(
    "path, name",
    [
        ("kauldron.data.drop_remainder", "DropRemainder"),
        ("kauldron.data.iterators.pygrain_handler", "PyGrainCheckpointRestore"),
    ],
)
def test_modules_below_an_older_path_are_found(path, name):
    assert getattr(importlib.import_module(path), name).__name__ == name


def test_older_module_is_an_attribute_of_its_package():
    assert kd.metrics.base.Metric is kd.metrics.Metric
    assert kd.data.utils.get_model_inputs.__name__ == "get_model_inputs"


def test_function_with_the_name_of_an_older_module_stays_a_function():
    importlib.import_module("kauldron.optim.ema_params")
    assert callable(kd.optim.ema_params)


def test_names_that_never_were_are_missing():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("kauldron.data.array_specs")
    with pytest.raises(ImportError, match="other"):
        from kauldron.ktyping.dim_view import other  # noqa: F401
    with pytest.raises(AttributeError, match=r"'kauldron.losses.base' has no.*'Los'"):
        _ = kd.losses.base.Los
    with pytest.raises(AttributeError, match="ArraySpec"):
        _ = kd.data.array_spec_of


def test_looking_through_the_modules_imports_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "kauldron.older", None)
    older_modules("kauldron", {"older": "a_module_that_fails_to_import"})
    assert not hasattr(sys.modules["kauldron.older"], "__file__")


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (
            "utils.sharding_utils",
            "sharding ShardingStrategy FSDPSharding ShardingTree",
        ),
        ("utils.train_property", "train_property set_train_property"),
        ("utils.interms_property", "interms_property"),
        ("utils.chrono_utils", "Chrono Pause"),
        ("utils.status_utils", "status"),
        ("typing.array_types", "Float UInt8"),
        ("typing.shape_spec", "Shape Dim Memo ShapeError parse_shape_spec"),
        ("typing.shape", "Shape"),
        (
            "data.iterators",
            "Iterator NonCheckpointableIterator PyGrainIterator TFDataIterator",
        ),
        (
            "train.metric_writer",
            "WriterBase KDMetricWriter NoopWriter MetadataWriter NoopMetadataWriter "
            "COLLECTION_NOT_SET",
        ),
        ("train.timer", "PerformanceTimer"),
        (
            "train.train_step",
            "TrainState TrainStep forward forward_with_loss ModelWithAux "
            "AuxiliariesState",
        ),
        ("checkpoints.checkpoint_items", "StandardCheckpointItem CheckpointItem"),
        (
            "checkpoints.checkpointer",
            "BaseCheckpointer Checkpointer NoopCheckpointer CHECKPOINT_FOLDER_NAME",
        ),
        (
            "checkpoints.partial_loader",
            "InitTransform MultiTransform NoopTransform PartialKauldronLoader",
        ),
        ("contrib.evals.train_eval", "TrainEvaluator"),
        ("evals.evaluators", "CollectionKeys Evaluator EvaluatorBase basic_eval_step"),
        ("evals.fewshot_evaluator", "FewShotEvaluator"),
        ("export.exporter", "JaxModelExporter ModelExporter NoopExporter"),
        ("inspect.graphviz_utils", "get_connection_graph"),
        ("inspect.inspect", "get_batch_stats plot_context"),
        ("inspect.plotting", "plot_schedules"),
        ("inspect.profile_utils", "NoopProfiler Profiler"),
        ("inspect.trainer_visu", "show_trainer_info"),
        ("optim.combine", "named_chain partial_updates"),
        ("optim.ema_params", "EmaParamsState UseEmaParams ema_params"),
        ("optim.transform", "decay_to_init select"),
    ],
)
def test_names_that_users_take_from_older_paths_are_there(path, names):
    module = importlib.import_module(f"kauldron.{path}")
    for name in names.split():
        assert hasattr(module, name), name


@pytest.mark.parametrize(
    ("path", "cls"),
    [
        ("kauldron.train.auxiliaries", kd.train.AuxiliariesState),
        ("kauldron.train.checkpoint_state", kd.train.CheckpointState),
        ("kauldron.train.context", kd.train.Context),
        ("kauldron.train.model_with_aux", kd.train.ModelWithAux),
        ("kauldron.train.preemption", kd.train.Preempted),
        ("kauldron.train.profiler", kd.inspect.Profiler),
        ("kauldron.train.train_state", kd.train.TrainState),
        ("kauldron.ckpts.partial_loader", kd.ckpts.PartialKauldronLoader),
        ("kauldron.writers.multi_writer", kd.train.MultiWriter),
        ("kauldron.writers.noop_writer", kd.train.NoopWriter),
    ],
)
def test_class_is_found_at_its_older_path(path, cls):
    assert getattr(importlib.import_module(path), cls.__name__) is cls


def test_older_keyword_names_are_accepted():
    loss = kd.losses.L2(preds="preds.y", targets="batch.y")
    assert kontext.get_keypaths(keyed_obj=loss)["preds"] == "preds.y"
    assert kontext.Path.from_str(str_path="a.b").parts == ("a", "b")
    root = types.SimpleNamespace(seed=7)
    streams = kd.train.RngStreams().update_from_root_cfg(root_cfg=root)
    assert streams.seed == 7


def test_status_names_no_experiment():
    from kauldron.utils.status_utils import status

    assert (status.on_xmanager, status.xid, status.wid) == (False, None, None)


def test_writer_without_metadata_writes_values_only(tmp_path):
    from kauldron.train import metric_writer

    class Writer(metric_writer.NoopMetadataWriter, metric_writer.KDMetricWriter):
        pass

    writer = Writer(workdir=tmp_path, collection="train")
    writer.write_config(konfig.ConfigDict({"a": 1}))
    assert not list(tmp_path.iterdir())
    writer.write_scalars(1, {"x": 2.0})
    writer.flush()
    assert metric_writer.read_scalars(tmp_path / "train")[0]["values"] == {"x": 2.0}
