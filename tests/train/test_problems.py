"""What a user gets wrong, and the words that say where and how to put it right."""

import dataclasses
import functools
import shutil

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from kauldron import kd, kontext
from tests.train.toy import Linear, make_ds, make_trainer

X = np.zeros((64, 4), np.float32)
Y = np.zeros((64, 2), np.float32)


class Wide(nn.Module):
    """Three outputs where the targets have two."""

    x: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, x):
        return {"y": nn.Dense(3, name="dense")(x)}


class Noisy(nn.Module):
    """Asks for a random stream that nobody named."""

    @nn.compact
    def __call__(self, batch):
        noise = jax.random.normal(self.make_rng("noise"))
        return {"y": nn.Dense(2, name="dense")(batch["x"]) + noise}


class WithLayer(nn.Module):
    """Has a layer whose mode nobody sets."""

    x: kontext.Key = kontext.REQUIRED
    layer: nn.Module = dataclasses.field(kw_only=True)

    @nn.compact
    def __call__(self, x):
        return {"y": nn.Dense(2, name="dense")(self.layer(x))}


class TwoInputs(nn.Module):
    """Has an argument without a key."""

    x: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, x, mask):
        return {"y": nn.Dense(2, name="dense")(x * mask)}


class Forgetful(nn.Module):
    """Has no `return`."""

    x: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, x):
        nn.Dense(2, name="dense")(x)


class Lists(kd.data.Pipeline):
    """Its batches hold lists."""

    def __iter__(self):
        while True:
            yield {"x": [[0.0] * 4] * 16, "y": Y[:16]}


class TwoMethods(nn.Module):
    """Trains one method, evaluates another."""

    x: kontext.Key = kontext.REQUIRED

    def setup(self):
        self.dense = nn.Dense(2)

    def __call__(self, x):
        return {"y": self.dense(x)}

    def sample(self, x):
        return {"drawn": self.dense(x)}


class OnTheHost(kd.evals.Evaluator):
    """Looks at each batch outside of jit."""

    def step(self, *, step_nr, state, batch):
        return kd.train.AuxiliariesState(loss_states={"x": float(batch["x"][0, 0])})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uninstalled(kd.train.WriterBase):
    """Needs a library that nobody has."""

    def check(self):
        raise ImportError("Uninstalled needs teleprinter: pip install teleprinter")

    def write_scalars(self, step, scalars):
        raise AssertionError("nothing can be written")


class Undefined(kd.train.TrainStep):
    """Returns the state alone."""

    def _step(self, state, batch):
        return state.replace(step=state.step + 1)


def arrays(batch_size=16, num_epochs=None, **columns):
    return kd.data.py.Arrays(
        columns, shuffle=False, num_epochs=num_epochs, batch_size=batch_size
    )


def l2(preds="preds.y", targets="batch.y"):
    return {"train_losses": {"l2": kd.losses.L2(preds=preds, targets=targets)}}


def metric(**kwargs):
    return {"train_metrics": {"mine": kd.metrics.Norm(**kwargs)}}


def labels(values):
    loss = kd.losses.SoftmaxCrossEntropyWithIntLabels(
        logits="preds.y", labels="batch.label"
    )
    return {"train_ds": arrays(x=X, label=values), "train_losses": {"ce": loss}}


def multi(**optimizers):
    return {
        "trainstep": kd.contrib.train.MultiTrainStep(),
        "optimizer": kd.contrib.train.multi_optimizer(**optimizers),
    }


def evaluator(**kwargs):
    run = kd.evals.EveryNSteps(1)
    return {"evals": {"val": kd.evals.Evaluator(run=run, **kwargs)}}


def best(path):
    checkpointer = kd.ckpts.Checkpointer(save_interval_steps=1, best_metric_path=path)
    return {"checkpointer": checkpointer}


def few_shots():
    finite = make_ds(num_epochs=1)
    few = kd.evals.FewShotEvaluator(
        run=kd.evals.EveryNSteps(1),
        ds_train=finite,
        ds_val=make_ds(),
        ds_test=finite,
        metric_prefix="few",
        num_classes=2,
        num_shots=[1],
        label_name="batch.y",
        repr_names={"pre_logits": "preds.y"},
    )
    return {"evals": {"few": few}}


#
# Found when the trainer is built
#

WHEN_BUILT = {
    "model is a number": (
        lambda: {"model": 5},
        ["`trainer.model` must be a flax module", "got int: 5"],
    ),
    "model is a class": (
        lambda: {"model": Linear},
        ["`trainer.model`", "got the class Linear itself: call it"],
    ),
    "optimizer is a learning rate": (
        lambda: {"optimizer": 1e-3},
        ["`trainer.optimizer`", "`optax.adam(1e-3)`", "got float: 0.001"],
    ),
    "optimizer of a loss that does not exist": (
        lambda: multi(generator=optax.sgd(1.0)),
        ["multi_optimizer names generator", "Losses: l2"],
    ),
    "optimizer is not called": (
        lambda: {"optimizer": optax.adam},
        ["`trainer.optimizer` must be an optax", "got the function adam"],
    ),
    "data is a dict of arrays": (
        lambda: {"train_ds": {"x": X}},
        ["`trainer.train_ds` must be a pipeline", "`kd.data.py.Arrays`", "got dict"],
    ),
    "evaluation data is a list": (
        lambda: {"eval_ds": [1, 2]},
        ["`trainer.eval_ds` must be a pipeline", "got list: [1, 2]"],
    ),
    "number of steps is a float": (
        lambda: {"num_train_steps": 1e5},
        ["`trainer.num_train_steps` must be an integer", "got float: 100000.0"],
    ),
    "number of steps is a text": (
        lambda: {"num_train_steps": "10"},
        ["`trainer.num_train_steps` must be an integer", "got str: '10'"],
    ),
    "number of steps is negative": (
        lambda: {"num_train_steps": -1},
        ["`trainer.num_train_steps` must be at least 0", "-1"],
    ),
    "log interval is a float": (
        lambda: {"log_metrics_every": 2.5},
        ["`trainer.log_metrics_every` must be an integer", "2.5"],
    ),
    "log interval is negative": (
        lambda: {"log_summaries_every": -2},
        ["`trainer.log_summaries_every`", "at least 1 (None or 0 for never)", "-2"],
    ),
    "seed is a text": (
        lambda: {"seed": "abc"},
        ["`trainer.seed` must be an integer", "got str: 'abc'"],
    ),
    "steps per dispatch of zero": (
        lambda: {"steps_per_dispatch": 0},
        ["`trainer.steps_per_dispatch` must be 'auto' or at least 1", "got 0"],
    ),
    "unknown way to treat what is not finite": (
        lambda: {"on_nonfinite": "panic"},
        ["`trainer.on_nonfinite`", "'ignore', 'warn' or 'raise'", "'panic'"],
    ),
    "checks by name": (
        lambda: {"checkify_error_categories": "float_checks"},
        ["`trainer.checkify_error_categories`", "checkify.float_checks", "got str"],
    ),
    "loss is a function": (
        lambda: {"train_losses": {"a": lambda context: 0.0}},
        ["`trainer.train_losses['a']` must be a loss", "kd.losses.L2", "the function"],
    ),
    "losses are a list": (
        lambda: {"train_losses": [kd.losses.L2(preds="a", targets="b")]},
        ["`trainer.train_losses` must be a mapping from names", "got list"],
    ),
    "losses are given twice": (
        lambda: {"losses": {"a": kd.losses.L2(preds="a", targets="b")}},
        ["losses and train_losses are both set"],
    ),
    "metric is a class": (
        lambda: {"train_metrics": {"n": kd.metrics.Norm}},
        ["`trainer.train_metrics['n']` must be a metric", "class Norm itself: call it"],
    ),
    "nested metric is a number": (
        lambda: {"train_metrics": {"a": {"b": 3}}},
        ["`trainer.train_metrics['a']['b']` must be a metric", "got int: 3"],
    ),
    "summary is a text": (
        lambda: {"train_summaries": {"a": "batch.image"}},
        ["`trainer.train_summaries['a']` must be a summary", "got str"],
    ),
    "schedule is a number": (
        lambda: {"schedules": {"lr": 0.1}},
        ["`trainer.schedules['lr']` must be a function of the step", "got float: 0.1"],
    ),
    "writer is a name": (
        lambda: {"writer": "tensorboard"},
        ["`trainer.writer` must be a WriterBase", "got str: 'tensorboard'"],
    ),
    "checkpointer is a number": (
        lambda: {"checkpointer": 100},
        ["`trainer.checkpointer` must be a BaseCheckpointer", "got int: 100"],
    ),
    "rng streams are names": (
        lambda: {"rng_streams": ["dropout"]},
        ["`trainer.rng_streams` must be a RngStreams", "got list"],
    ),
    "rng stream is given twice": (
        lambda: {"rng_streams": kd.train.RngStreams([kd.train.RngStream("a")] * 2)},
        ["the names of streams must differ; given more than once: a"],
    ),
    "setup is a dict": (
        lambda: {"setup": {"tags": "a"}},
        ["`trainer.setup` must be a Setup", "got dict"],
    ),
    "step is a function": (
        lambda: {"trainstep": lambda state, batch: state},
        ["`trainer.trainstep` must be a TrainStep", "the function"],
    ),
    "profiler that never ends": (
        lambda: {
            "profiler": kd.inspect.Profiler(
                num_profile_steps=None, profile_duration_ms=None
            )
        },
        ["`num_profile_steps` or `profile_duration_ms`"],
    ),
    "writers hold something else": (
        lambda: {"writer": kd.train.MultiWriter(writers=["stdout"])},
        ["MultiWriter.writers[0] must be a writer", "got str: 'stdout'"],
    ),
    "field that does not exist": (
        lambda: {"optimiser": optax.sgd(1.0)},
        ["Trainer has no field 'optimiser'", "Did you mean 'optimizer'?"],
    ),
    "evaluators are a list": (
        lambda: {"evals": []},
        ["`trainer.evals` must be a mapping from names", "got list"],
    ),
    "evaluator is a number": (
        lambda: {"evals": {"val": 3}},
        ["`trainer.evals['val']` must be an evaluator", "got int: 3"],
    ),
    "evaluator that runs at a number": (
        lambda: {"evals": {"val": kd.evals.Evaluator(run=3, ds=make_ds())}},
        ["`trainer.evals['val'].run`", "`kd.evals.EveryNSteps(100)`", "got int: 3"],
    ),
    "evaluator that runs at a class": (
        lambda: {"evals": {"val": kd.evals.Evaluator(run=kd.evals.Once, ds=make_ds())}},
        ["`trainer.evals['val'].run`", "got the class Once itself: call it."],
    ),
    "evaluator called train": (
        lambda: {
            "evals": {"train": kd.evals.Evaluator(run=kd.evals.Once(0), ds=make_ds())}
        },
        ["'train'", "evaluator"],
    ),
    "evaluator without data": (
        evaluator,
        ["evaluator 'val' has no data", "`cfg.evals.val.ds` or `cfg.eval_ds`"],
    ),
}


@pytest.mark.parametrize("name", WHEN_BUILT)
def test_mistake_is_found_when_the_trainer_is_built(tmp_path, name):
    changes, words = WHEN_BUILT[name]
    with pytest.raises((ValueError, TypeError)) as error:
        make_trainer(tmp_path, **changes())
    _assert_said(words, error.value)


#
# Found when shapes are looked at, before anything is computed
#

BY_SHAPES = {
    "key of the model leads nowhere": (
        lambda: {"model": Linear(x="batch.imgae")},
        [
            "Linear",
            "x = 'batch.imgae'",
            "'batch' (dict) has no 'imgae'",
            "x: float32[16",
        ],
    ),
    "key of the model is not set": (
        lambda: {"model": Linear()},
        ["Linear", "required keys are not set: x", "'batch.image'"],
    ),
    "argument of the model has no key": (
        lambda: {"model": TwoInputs(x="batch.x")},
        ["TwoInputs", "mask"],
    ),
    "key of the model reads its own output": (
        lambda: {"model": Linear(x="preds.x")},
        ["x = 'preds.x'", "The context has no `preds`"],
    ),
    "model without outputs": (
        lambda: {"model": Linear(x="batch.x", size=-1)},
        ["Initialising Linear failed: "],
    ),
    "model whose keys were forgotten": (
        lambda: {"model": nn.Dense(2)},
        ["Initialising Dense on the whole batch (it has no `kontext.Key` fields)"],
    ),
    "optimizer that does not fit": (
        lambda: {"optimizer": optax.masked(optax.sgd(1.0), {"other": True})},
        ["Initialising `trainer.optimizer` failed: "],
    ),
    "key of a loss misspells a prediction": (
        lambda: l2(preds="preds.yy"),
        ["loss 'l2'", "preds = 'preds.yy'", "Did you mean: 'preds.y'"],
    ),
    "key of a loss misspells its root": (
        lambda: l2(preds="pred.y"),
        ["loss 'l2'", "The context has no `pred`", "'preds.y'", "interms"],
    ),
    "key of a loss names a missing field": (
        lambda: l2(targets="batch.label"),
        ["loss 'l2'", "targets = 'batch.label'", "Available: x: float32[16,4], y"],
    ),
    "key of a loss is not set": (
        lambda: {"train_losses": {"l2": kd.losses.L2(preds="preds.y")}},
        ["loss 'l2'", "required keys are not set: targets"],
    ),
    "loss reads the whole batch": (
        lambda: l2(targets="batch"),
        ["loss 'l2'", "targets='batch': dict"],
    ),
    "prediction and target differ in shape": (
        lambda: {"model": Wide(x="batch.x")},
        [
            "'l2'",
            "preds='preds.y': float32 (16, 3)",
            "targets='batch.y': float32 (16, 2)",
        ],
    ),
    "labels are floats": (
        lambda: labels(np.zeros((64, 1), np.float32)),
        ["'ce'", "labels='batch.label': float32 (16, 1)", "'float32'", "integer"],
    ),
    "labels lack the last dimension": (
        lambda: labels(np.zeros(64, np.int32)),
        ["'ce'", "labels='batch.label': int32 (16,)", "*a 1"],
    ),
    "key of a metric misspells a parameter": (
        lambda: metric(tensor="params.dense.kernl"),
        ["metrics/mine", "'params.dense.kernl'", "Did you mean: 'params.dense.kernel'"],
    ),
    "metric reads a field that is filled later": (
        lambda: metric(tensor="metric_states.other"),
        ["metrics/mine", "metric_states"],
    ),
    "random stream has no name in the config": (
        lambda: {"model": Noisy()},
        ["noise", "cfg.rng_streams", "kd.train.RngStream("],
    ),
    "dropout does not know the mode": (
        lambda: {"model": WithLayer(x="batch.x", layer=nn.Dropout(0.5))},
        ["WithLayer", "deterministic", "kd.nn.Dropout"],
    ),
    "normalisation does not know the mode": (
        lambda: {"model": WithLayer(x="batch.x", layer=nn.BatchNorm())},
        ["use_running_average=not self.is_training", "kd.nn.train_property()"],
    ),
    "data holds texts": (
        lambda: {"train_ds": arrays(x=X, y=Y, name=np.array(["a"] * 64))},
        ["`trainer.train_ds`", "'name'", "kd.data.Elements(drop=['name'])"],
    ),
    "data holds lists": (
        lambda: {"train_ds": Lists(batch_size=16)},
        ["`trainer.train_ds` gives a float under 'x[0][0]'", "np.asarray"],
    ),
    "model returns nothing": (
        lambda: {"model": Forgetful(x="batch.x")},
        ["preds = 'preds.y'", "if the model returns something"],
    ),
    "optimizer that needs what no step has": (
        lambda: {
            "optimizer": optax.contrib.sam(
                optax.sgd(0.1), optax.sgd(0.1), opaque_mode=True
            )
        },
        ["The update of `trainer.optimizer` failed: ", "grad_fn"],
    ),
    "data has no records": (
        lambda: {"train_ds": arrays(x=X[:0], y=Y[:0])},
        ["Arrays has no records"],
    ),
    "arrays of different length": (
        lambda: {"train_ds": arrays(x=X, y=Y[:3])},
        ["differ in their first dimension", "x: 64, y: 3"],
    ),
    "ordinary optimizer with a step for several": (
        lambda: {"trainstep": kd.contrib.train.MultiTrainStep()},
        ["MultiTrainStep needs", "multi_optimizer(loss_name=...)", "got Gradient"],
    ),
    "several optimizers with the ordinary step": (
        lambda: {"optimizer": kd.contrib.train.multi_optimizer(l2=optax.sgd(1.0))},
        ["multi_optimizer", "cfg.trainstep = kd.contrib.train.MultiTrainStep()"],
    ),
    "step that forgets the context": (
        lambda: {"trainstep": Undefined()},
        ["Undefined._step", "(state, context)", "got TrainState"],
    ),
}


@pytest.mark.parametrize("name", BY_SHAPES)
def test_mistake_is_found_by_shapes_alone(tmp_path, name):
    changes, words = BY_SHAPES[name]
    with pytest.raises(Exception) as error:
        make_trainer(tmp_path, **changes()).context_specs
    _assert_said(words, error.value)


#
# Found at the start of a run
#

AT_THE_START = {
    "model is not set": (
        lambda: {"model": None},
        ["`trainer.model` is not set; set `cfg.model = ...`"],
    ),
    "data is not set": (
        lambda: {"train_ds": None},
        ["`trainer.train_ds` is not set; set `cfg.train_ds = ...`"],
    ),
    "workdir is not set": (
        lambda: {"workdir": ""},
        ["workdir is not set", "`cfg.workdir = ...`", "`--cfg.workdir=...`"],
    ),
    "workdir is a file": (
        lambda: {"workdir": __file__},
        ["The workdir cannot be written", "`cfg.workdir`", "test_problems.py"],
    ),
    "workdir is below a file": (
        lambda: {"workdir": f"{__file__}/run"},
        ["The workdir cannot be written", "Not a directory", "test_problems.py/run"],
    ),
    "endless data and no number of steps": (
        lambda: {"num_train_steps": None},
        ["cfg.num_train_steps", "cfg.stop_after_steps", "cfg.train_ds.num_epochs"],
    ),
    "mapped endless data and no number of steps": (
        lambda: {
            "num_train_steps": None,
            "train_ds": make_ds().map(lambda batch: batch),
        },
        ["`trainer.train_ds` repeats forever", "cfg.num_train_steps"],
    ),
    "fewer records than `cfg.train_ds.batch_size`": (
        lambda: {"train_ds": arrays(num_epochs=1, x=X[:3], y=Y[:3])},
        [
            "`trainer.train_ds` has no batch",
            "fewer records than `cfg.train_ds.batch_size`",
        ],
    ),
    "data cannot live on the device": (
        lambda: {
            "train_ds": make_ds(
                device_resident=True,
                transforms=[kd.data.py.RandomCrop(key="x", shape=(3,))],
            )
        },
        ["device_resident=True", "RandomCrop"],
    ),
    "optimizer is not set": (
        lambda: {"optimizer": None},
        ["`trainer.optimizer` is not set; set `cfg.optimizer = ...`"],
    ),
    "no losses": (
        lambda: {"train_losses": {}},
        ["cfg.train_losses: `trainer.train_losses` is empty", "change nothing"],
    ),
    "metric that nothing measures": (
        lambda: best("val.nrom") | evaluator(ds=make_ds(num_epochs=1)),
        [
            "cfg.checkpointer.best_metric_path: nothing measures 'val.nrom'",
            "Did you mean 'val.norm'?",
            "train.losses.l2, train.losses.total, train.norm, val.losses.l2",
        ],
    ),
    "metric of no evaluator": (
        lambda: best("vla.norm") | evaluator(ds=make_ds(num_epochs=1)),
        ["nothing measures 'vla.norm'", "Did you mean 'val.norm'?"],
    ),
    "evaluator alone is no metric": (
        lambda: best("val") | evaluator(ds=make_ds(num_epochs=1)),
        ["nothing measures 'val'.", "There are: train.losses.l2"],
    ),
    "loss of training that does not exist": (
        lambda: best("train.losses.l1"),
        ["nothing measures 'train.losses.l1'", "'train.losses.l2'"],
    ),
    "weights of a run that is not there": (
        lambda: {
            "init_transform": kd.ckpts.PartialKauldronLoader(workdir="no/such/run")
        },
        ["cfg.init_transform: There is no checkpoint in", "no/such/run/checkpoints"],
    ),
    "one of several loaders finds nothing": (
        lambda: {
            "init_transform": kd.ckpts.MultiTransform(
                encoder=kd.ckpts.SimpleCheckpointLoader(workdir="no/such/run")
            )
        },
        ["cfg.init_transform: Init transform 'encoder': There is no checkpoint in"],
    ),
    "file of weights that is not there": (
        lambda: {"init_transform": kd.ckpts.MsgpackLoader(path="no/such/file")},
        ["cfg.init_transform: ", "No such file", "no/such/file"],
    ),
    "average that is not kept": (
        lambda: evaluator(
            ds=make_ds(num_epochs=1), init_transform=kd.optim.UseEmaParams()
        ),
        [
            "cfg.evals.val.init_transform: UseEmaParams: no EmaParamsState found",
            "Add `kd.optim.ema_params(...)` at the end",
        ],
    ),
    "weights of an evaluator that are not there": (
        lambda: evaluator(
            ds=make_ds(num_epochs=1),
            init_transform=kd.ckpts.PartialKauldronLoader(workdir="no/such/run"),
        ),
        ["cfg.evals.val.init_transform: There is no checkpoint in"],
    ),
    "endless evaluation": (
        lambda: evaluator(ds=make_ds()),
        ["cfg.evals.val: ", "repeats forever", "`cfg.evals.val.num_batches`"],
    ),
    "mapped endless evaluation": (
        lambda: evaluator(ds=make_ds().map(lambda batch: batch)),
        ["cfg.evals.val: ", "repeats forever", "num_epochs=1"],
    ),
    "evaluation at the end that cannot be measured": (
        lambda: {
            "evals": {
                "val": kd.evals.Evaluator(
                    run=kd.evals.Final(),
                    ds=make_ds(num_epochs=1),
                    metrics={"a": {"m": kd.metrics.Norm(tensor="preds.z")}},
                )
            }
        },
        ["cfg.evals.val.metrics.a.m: ", "'preds' (dict) has no 'z'"],
    ),
    "evaluation of a method that the model does not have": (
        lambda: evaluator(ds=make_ds(num_epochs=1), model_method="smaple"),
        ["cfg.evals.val: ", "smaple"],
    ),
    "evaluation of other data": (
        lambda: evaluator(ds=arrays(num_epochs=1, x=X)),
        ["cfg.evals.val.losses.l2: ", "'batch' (dict) has no 'y'"],
    ),
    "few shots of endless data": (
        few_shots,
        ["cfg.evals.few.ds_val: ", "'few' repeats forever"],
    ),
    "library of the writer is not installed": (
        lambda: {"writer": kd.train.MultiWriter(writers=[Uninstalled()])},
        ["cfg.writer: Uninstalled needs teleprinter: pip install teleprinter"],
    ),
    "library of an evaluator's writer is not installed": (
        lambda: evaluator(ds=make_ds(num_epochs=1), writer=Uninstalled()),
        ["cfg.evals.val.writer: Uninstalled needs teleprinter"],
    ),
}


@pytest.mark.parametrize("name", AT_THE_START)
def test_mistake_is_found_at_the_start_of_a_run(tmp_path, name):
    changes, words = AT_THE_START[name]
    trainer = _trainer_with(tmp_path, changes())
    with pytest.raises(
        (ValueError, OSError, KeyError, ImportError, AttributeError)
    ) as error:
        trainer.train()
    _assert_said(words, error.value)
    assert not (tmp_path / "run/checkpoints").exists()


@pytest.mark.parametrize("name", AT_THE_START)
def test_what_training_refuses_is_found_without_training(tmp_path, name):
    changes, words = AT_THE_START[name]
    changes = changes()
    problems = kd.train.problems.find_all(_trainer_with(tmp_path, changes))
    if changes.get("workdir") == "":  # the command that checks needs none
        assert problems == []
        return
    (problem,) = problems
    assert problem.is_error
    _assert_said(words, str(problem))
    assert not (tmp_path / "run").exists()


def _trainer_with(tmp_path, changes):
    defaults = {"workdir": str(tmp_path / "run"), "writer": None, "checkpointer": None}
    changes = defaults | changes
    return make_trainer(changes.pop("workdir"), **changes)


def test_trainer_of_an_evaluation_is_not_trained(tmp_path):
    trainer = make_trainer(tmp_path, setup=kd.train.Setup(eval_only=True))
    with pytest.raises(ValueError) as error:
        trainer.train()
    _assert_said(["evaluates an earlier run", "continuous_eval"], error.value)


def test_several_problems_are_told_at_once(tmp_path):
    trainer = make_trainer(
        tmp_path, model=None, optimizer=None, **(best("val.x") | {"train_losses": {}})
    )
    with pytest.raises(ValueError) as error:
        trainer.train()
    paths = [line.partition(": ")[0] for line in str(error.value).splitlines()]
    assert paths == [
        "cfg.model",
        "cfg.optimizer",
        "cfg.train_losses",
        "cfg.checkpointer.best_metric_path",
    ]


def test_the_same_mistake_is_told_once_for_training_and_evaluation(tmp_path):
    changes = metric(tensor="preds.q") | evaluator(ds=make_ds(num_epochs=1))
    (problem,) = kd.train.problems.find_all(make_trainer(tmp_path, **changes))
    assert problem.path == "train_metrics.mine"


@pytest.mark.parametrize(
    "path", ["val.norm", "val.losses.l2", "val.losses.total", "train.norm", "val.a.b"]
)
def test_metric_that_is_measured_is_no_problem(tmp_path, path):
    nested = {"a": {"b": kd.metrics.Norm(tensor="preds.y")}}
    norm = {"norm": kd.metrics.Norm(tensor="preds.y")}
    changes = evaluator(ds=make_ds(num_epochs=1), metrics=norm | nested) | best(path)
    assert kd.train.problems.find_all(make_trainer(tmp_path, **changes)) == []


def test_metrics_of_another_method_are_measured_on_its_outputs(tmp_path):
    changes = {"model": TwoMethods(x="batch.x")} | evaluator(
        ds=make_ds(num_epochs=1),
        model_method="sample",
        losses={},
        metrics={"n": kd.metrics.Norm(tensor="preds.drawn")},
        summaries={"s": kd.metrics.Norm(tensor="preds.y")},
    )
    trainer = make_trainer(tmp_path, writer=None, **changes)
    (problem,) = kd.train.problems.find_all(trainer)
    assert problem.path == "evals.val.summaries.s"
    _assert_said(["'preds' (dict) has no 'y'", "drawn"], str(problem))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LargestValue(kd.metrics.Metric):
    """Takes no mask: filler would count."""

    x: kontext.Key = kontext.REQUIRED

    State = kd.metrics.AverageState

    def get_state(self, x):
        return self.State.from_values(values=x.max())


def test_metric_that_takes_no_mask_is_no_problem(tmp_path):
    metrics = {"m": LargestValue(x="preds.y")}
    changes = evaluator(ds=make_ds(num_epochs=1, batch_size=24), metrics=metrics)
    assert kd.train.problems.find_all(make_trainer(tmp_path, **changes)) == []


def test_evaluator_with_a_step_of_its_own_is_left_alone(tmp_path):
    run = kd.evals.EveryNSteps(1)
    metrics = {"m": kd.metrics.Norm(tensor="preds.nowhere")}
    val = OnTheHost(run=run, ds=make_ds(num_epochs=1), metrics=metrics)
    assert kd.train.problems.find_all(make_trainer(tmp_path, evals={"val": val})) == []


def test_metric_of_an_evaluator_with_a_step_of_its_own_may_be_any(tmp_path):
    class Counting(kd.evals.Evaluator):
        def _step(self, step_nr, state, batch):
            aux = super()._step(step_nr, state, batch)
            ones = kd.metrics.AverageState.from_values(np.ones(3))
            return aux.replace(metric_states={"ones": ones})

    val = Counting(run=kd.evals.EveryNSteps(1), ds=make_ds(num_epochs=1))
    trainer = make_trainer(tmp_path, evals={"val": val}, **best("val.ones"))
    trainer.train()
    assert trainer.checkpointer.best_step is not None


def test_accuracy_of_few_shots_can_choose_checkpoints(tmp_path):
    changes = few_shots() | best("few['few-1shot']")
    found = kd.train.problems.find_all(make_trainer(tmp_path, **changes))
    assert [p for p in found if p.path.startswith("checkpointer")] == []


def test_evaluator_of_another_process_does_not_stop_training(tmp_path):
    val = kd.evals.Evaluator(run=kd.evals.StandaloneLastCheckpoint(), ds=make_ds())
    trainer = make_trainer(tmp_path, num_train_steps=1, evals={"val": val})
    (problem,) = kd.train.problems.find_all(trainer)
    assert problem.path == "evals.val"
    trainer.train()


@pytest.fixture(scope="module")
def earlier_run(tmp_path_factory):
    """The workdir of a run of one step."""
    workdir = tmp_path_factory.mktemp("earlier")
    make_trainer(workdir, num_train_steps=1, writer=None).train()
    return workdir


def test_weights_are_not_needed_once_the_run_has_begun(tmp_path, earlier_run):
    shutil.copytree(earlier_run, tmp_path, dirs_exist_ok=True)
    loader = kd.ckpts.PartialKauldronLoader(workdir="no/such/run")
    trainer = make_trainer(tmp_path, num_train_steps=2, init_transform=loader)
    assert kd.train.problems.find_all(trainer) == []
    assert trainer.train()[0].step == 2


def test_metric_of_training_only_says_so_in_an_evaluation(tmp_path):
    metrics = {"g": kd.metrics.Norm(tensor="grads.dense.kernel")}
    changes = evaluator(ds=make_ds(), num_batches=1, metrics=metrics)
    with pytest.raises(KeyError) as error:
        make_trainer(tmp_path, writer=None, checkpointer=None, **changes).train()
    words = [
        "cfg.evals.val.metrics.g: ",
        "'grads.dense.kernel'",
        "only in train",
    ]
    _assert_said(words, error.value)


def test_checkpoint_of_another_model_is_refused_with_the_paths(tmp_path, earlier_run):
    shutil.copytree(earlier_run, tmp_path, dirs_exist_ok=True)
    other = make_trainer(tmp_path, num_train_steps=2, model=Wide(x="batch.x"), **l2())
    words = ["ckpt_1", "params.dense.kernel", "4, 2", "4, 3"]
    with pytest.raises(ValueError) as error:
        other.train()
    _assert_said(words, error.value)
    (problem,) = [
        p for p in kd.train.problems.find_all(other) if p.path != "train_losses.l2"
    ]
    assert problem.path == "workdir"
    _assert_said(words, str(problem))


def test_weights_of_another_model_are_refused_with_the_paths(tmp_path, earlier_run):
    loader = kd.ckpts.PartialKauldronLoader(
        workdir=earlier_run, new_to_old={"params": "params"}
    )
    trainer = make_trainer(
        tmp_path, model=Linear(x="batch.x", size=3), init_transform=loader
    )
    trainer = trainer.replace(train_ds=make_ds(size=3))
    (problem,) = kd.train.problems.find_all(trainer)
    assert problem.path == "init_transform"
    _assert_said(["params.dense.kernel", "(4, 3)", "(4, 2)"], str(problem))
    with pytest.raises(ValueError, match="does not fit"):
        trainer.train()


def test_schedule_that_fails_is_named(tmp_path):
    trainer = make_trainer(tmp_path, schedules={"lr": lambda: 0.1}, checkpointer=None)
    with pytest.raises(TypeError) as error:
        trainer.train()
    _assert_said(["schedules/lr at step 0: ", "0 positional"], error.value)


def _numbered(wrong_label, **loss):
    """Labels of two classes, and one in each batch that is neither."""
    column = np.resize(np.array([0, 1, wrong_label, 1], np.int16), (64, 1))
    is_right = (column >= 0) & (column < 2)
    loss = kd.losses.SoftmaxCrossEntropyWithIntLabels(
        logits="preds.y", labels="batch.label", **loss
    )
    ds = arrays(x=X, label=column, is_right=is_right)
    return {"train_ds": ds, "train_losses": {"ce": loss}}


@functools.cache
def _classifier():
    """Its step is that of all data with labels."""
    return make_trainer("unused", writer=None, checkpointer=None, **_numbered(1))


@pytest.mark.parametrize("wrong_label", [2, 300, -1])
def test_label_outside_of_the_classes_is_named(tmp_path, wrong_label):
    trainer = _classifier().replace(
        workdir=str(tmp_path),
        on_nonfinite="raise",
        train_ds=_numbered(wrong_label)["train_ds"],
    )
    with pytest.raises(FloatingPointError) as error:
        trainer.train()
    words = [
        "Loss not finite at step 0",
        f"'ce' are wrong: 'batch.label' holds {wrong_label}, but 'preds.y' has",
        "the classes 0 to 1.",
    ]
    _assert_said(words, error.value)


def test_label_outside_of_the_classes_is_warned_about(tmp_path, caplog):
    with caplog.at_level("WARNING", logger="kauldron"):
        _classifier().replace(
            workdir=str(tmp_path),
            log_metrics_every=1,  # all steps are one program
            train_ds=_numbered(2)["train_ds"],
        ).train()
    (said,) = (text for text in caplog.messages if "not finite" in text)
    assert "'batch.label' holds 2" in said


def test_label_that_is_masked_out_may_be_anything(tmp_path):
    changes = _numbered(-1, mask="batch.is_right")
    changes |= {"log_metrics_every": 1, "checkpointer": None}
    trainer = make_trainer(tmp_path, on_nonfinite="raise", writer=None, **changes)
    state, _ = trainer.train()
    assert np.isfinite(state.params["dense"]["kernel"]).all()


def test_loss_that_diverges_is_not_blamed_on_the_labels(tmp_path):
    changes = _numbered(1) | {"optimizer": optax.sgd(np.inf), "checkpointer": None}
    trainer = make_trainer(
        tmp_path, on_nonfinite="raise", writer=None, log_metrics_every=1, **changes
    )
    with pytest.raises(FloatingPointError) as error:
        trainer.train()
    assert "Labels" not in str(error.value)


def _assert_said(words, error):
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    missing = [word for word in words if word not in text]
    assert not missing, f"{missing} not in:\n{text}"


class Branches(nn.Module):
    """Asks in Python for a value that only a step has."""

    x: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, x):
        y = nn.Dense(2, name="dense")(x)
        return {"y": y if y.mean() > 0 else -y}


def test_what_jax_says_of_a_traced_value_is_short(tmp_path):
    trainer = make_trainer(tmp_path, model=Branches(x="batch.x"))
    (problem,) = kd.train.problems.find_all(trainer)
    _assert_said(["boolean conversion", "TracerBoolConversionError"], problem.message)
    assert len(problem.message.splitlines()) < 6


class NeverCalled(kd.train.Hook):
    """Does not say after which steps it is called."""

    def on_step(self, event):
        raise AssertionError("nobody asked for values")


class MisspeltEvent(kd.train.Hook):
    """Waits for an event that there is not."""

    def on_evaluations(self, event):
        raise AssertionError("there is no such event")


WARNINGS = {
    "hook without `wants_values`": (
        {"hooks": {"h": NeverCalled()}},
        ["cfg.hooks.h: NeverCalled.on_step is never called", "wants_values(step)"],
    ),
    "event of a hook is misspelt": (
        {"hooks": {"h": MisspeltEvent()}},
        ["cfg.hooks.h: MisspeltEvent.on_evaluations", "'on_evaluation'?"],
    ),
    "data shorter than training": (
        {"train_ds": make_ds(num_epochs=1), "num_train_steps": 9},
        ["cfg.num_train_steps: ", "4 batches, before step 9", "num_epochs=None"],
    ),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_what_training_does_not_refuse_is_warned_about_at_its_start(tmp_path, name):
    changes, words = WARNINGS[name]
    (problem,) = kd.train.problems.find_all(make_trainer(tmp_path, **changes))
    assert not problem.is_error
    _assert_said(words, str(problem))


def test_data_that_lasts_until_the_run_stops_is_long_enough(tmp_path):
    changes = {"train_ds": make_ds(num_epochs=1), "num_train_steps": 9}
    trainer = make_trainer(tmp_path, **changes, stop_after_steps=4)
    assert kd.train.problems.find_all(trainer) == []
