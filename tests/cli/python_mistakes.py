"""Mistakes that people make in Python, the error they get and the words that help.

A mistake is a function without arguments, run in an empty folder.
"""

import jax.numpy as jnp
import numpy as np
import optax

from kauldron import kd, konfig, kontext
from kauldron import ktyping as kt
from tests.train.toy import Linear, make_ds, make_trainer

with konfig.imports():
    import fractions

    from kauldron import kd as kd_cfg

X = np.zeros((8, 4), np.float32)


def first_batch(data=None, **options):
    """The first batch of arrays in memory."""
    options = {"shuffle": False, "batch_size": 4, "num_epochs": 1} | options
    return next(iter(kd.data.py.Arrays({"x": X} if data is None else data, **options)))


def transformed(*transforms, **data):
    return first_batch(data or None, transforms=list(transforms))


def train(**changes):
    return make_trainer("run", **changes).train()


def train_with_loss(**keys):
    keys = {"preds": "preds.y", "targets": "batch.y"} | keys
    return train(train_losses={"l2": kd.losses.L2(**keys)})


def train_with_eval(name, **fields):
    evaluator = kd.evals.Evaluator(run=kd.evals.EveryNSteps(2), **fields)
    return train(evals={name: evaluator})


def checkpointer(**options):
    return kd.ckpts.Checkpointer(**{"save_interval_steps": 1} | options)


def resolve(**fields):
    return konfig.resolve(konfig.ConfigDict(fields))


def cycle():
    cfg = konfig.ConfigDict({"a": {}})
    cfg.a.b = cfg
    return konfig.resolve(cfg)


def dangling_reference():
    cfg = konfig.ConfigDict({"a": {"z": 1}})
    cfg.b = cfg.ref.a.zz
    return konfig.resolve(cfg)


@kt.typechecked
def matrix(x: kt.Float["rows columns"]) -> kt.Float["rows"]:
    return x


L2 = kd.losses.L2(preds="a", targets="b")
CFG = konfig.ConfigDict({"seed": 1, "a": {"b": 1}})

CONFIGS = {
    "field misspelt": (lambda: CFG.sed, AttributeError, ["'sed'", "'seed'"]),
    "item misspelt": (lambda: CFG["sed"], KeyError, ["'sed'", "'seed'"]),
    "config inside itself": (cycle, konfig.CycleError, ["cfg.a.b is cfg"]),
    "required value": (
        lambda: resolve(a={"n": konfig.required(int)}),
        konfig.RequiredValueError,
        ["cfg.a.n", "--cfg.a.n="],
    ),
    "name of a class misspelt": (
        lambda: resolve(x=fractions.Fracton(1)),
        AttributeError,
        ["cfg.x", "python_mistakes.py:", "'Fraction'"],
    ),
    "argument misspelt in a config": (
        lambda: konfig.resolve(fractions.Fraction(numerater=1)),
        TypeError,
        ["'numerater'", "'numerator'", "created at"],
    ),
    "too many arguments": (
        lambda: konfig.resolve(fractions.Fraction(1, 2, 3, 4)),
        TypeError,
        ["at most 2", "4 are given"],
    ),
    "argument of a wrong kind in a config": (
        lambda: konfig.resolve(kd_cfg.losses.L2(preds="a", targets="b", weight="x")),
        TypeError,
        ["kd.losses.L2(", "weight must be a number"],
    ),
    "text that is not JSON": (
        lambda: konfig.ConfigDict.from_json("{"),
        ValueError,
        ["line 1 column 2"],
    ),
    "JSON of a list": (
        lambda: konfig.ConfigDict.from_json("[1]"),
        ValueError,
        ["JSON object", "list"],
    ),
    "module that is not there": (
        lambda: resolve(__qualname__="nope:f"),
        ModuleNotFoundError,
        ["'nope'", "installed"],
    ),
    "value of another type": (
        lambda: setattr(CFG, "seed", "x"),
        TypeError,
        ["cfg.seed", "int expected", "ignore_type"],
    ),
    "path that is not there": (
        lambda: konfig.get_by_path(CFG, "a.c"),
        KeyError,
        ["cfg.a.c", "Available: b"],
    ),
    "parent that is not there": (
        lambda: konfig.set_by_path(CFG, "x.c", 1),
        KeyError,
        ["cfg has no x", "Available: seed"],
    ),
    "bracket that is not closed": (
        lambda: konfig.get_by_path(CFG, "a[0"),
        ValueError,
        ["column 2", "never closed"],
    ),
    "function that is not allowed": (
        lambda: konfig.resolve(
            konfig.ConfigDict({"__qualname__": "os:getcwd"}), allow=["kauldron"]
        ),
        konfig.NotAllowedError,
        ["'os:getcwd'", "kauldron"],
    ),
    "reference to nothing": (
        dangling_reference,
        AttributeError,
        ["cfg.ref.a.zz", "leads nowhere", "'z'"],
    ),
    "object in a config": (
        lambda: konfig.ConfigDict({"a": object()}),
        ValueError,
        ["cfg.a", "konfig.imports()"],
    ),
}

PATHS_AND_TYPES = {
    "path misspelt": (
        lambda: kontext.get_by_path({"image": 1}, "imgae"),
        KeyError,
        ["'imgae'", "Did you mean 'image'"],
    ),
    "deep path misspelt": (
        lambda: kontext.get_by_path({"a": {"image": 1}}, "a.imgae"),
        KeyError,
        ["'a.imgae'", "'image'"],
    ),
    "index beyond a list": (
        lambda: kontext.get_by_path({"a": [1, 2]}, "a[5]"),
        LookupError,
        ["'a[5]'", "length 2"],
    ),
    "path with two dots": (
        lambda: kontext.Path.from_str("a..b"),
        ValueError,
        ["column 3", "empty segment"],
    ),
    "path not closed": (
        lambda: kontext.Path.from_str("a[b"),
        ValueError,
        ["column 2", "never closed"],
    ),
    "setting below nothing": (
        lambda: kontext.set_by_path({"a": {}}, "b.c", 1),
        KeyError,
        ["'b.c'", "Available keys: a"],
    ),
    "array of another rank": (
        lambda: matrix(X[0]),
        kt.KTypeCheckError,
        ["argument x", "(4,)", "rows columns"],
    ),
    "array of another dtype": (
        lambda: matrix(X.astype(int)),
        kt.KTypeCheckError,
        ["argument x", "int64", "Float"],
    ),
    "result of another shape": (
        lambda: matrix(X),
        kt.KTypeCheckError,
        ["return value", "(8, 4)"],
    ),
    "package misspelt": (lambda: kd.losss, AttributeError, ["'losss'", "'losses'"]),
    "class misspelt": (lambda: kd.data.py.Array, AttributeError, ["'Arrays'"]),
    "key of a text": (
        lambda: kd.random.PRNGKey("x"),
        TypeError,
        ["integer seed", "fold_in('x')"],
    ),
    "two streams of one name": (
        lambda: kd.train.RngStreams([kd.train.RngStream("a"), kd.train.RngStream("a")]),
        ValueError,
        ["more than once: a"],
    ),
}

DATA = {
    "arrays of different lengths": (
        lambda: first_batch({"x": X, "y": X[:3]}),
        ValueError,
        ["first dimension", "x: 8, y: 3"],
    ),
    "array missing": (
        lambda: first_batch({"x": None}),
        ValueError,
        ["Arrays.x is None"],
    ),
    "number for an array": (
        lambda: first_batch({"x": 3}),
        ValueError,
        ["Arrays.x", "without dimensions"],
    ),
    "no arrays": (lambda: first_batch({}), ValueError, ["holds no array"]),
    "rows of different lengths": (
        lambda: first_batch({"x": [[1], [1, 2]]}),
        ValueError,
        ["Arrays.x", "differ in shape"],
    ),
    "negative batch": (
        lambda: first_batch(batch_size=-1),
        ValueError,
        ["batch_size=-1"],
    ),
    "half a batch": (
        lambda: first_batch(batch_size=1.5),
        TypeError,
        ["an integer", "1.5"],
    ),
    "batch as text": (lambda: first_batch(batch_size="4"), TypeError, ["'4'", "str"]),
    "no epoch": (
        lambda: first_batch(num_epochs=0),
        ValueError,
        ["num_epochs=0", "None"],
    ),
    "negative workers": (
        lambda: first_batch(num_workers=-1),
        ValueError,
        ["num_workers=-1", "0 or more"],
    ),
    "seed as text": (lambda: first_batch(seed="x"), TypeError, ["seed='x'", "integer"]),
    "mask without batches": (
        lambda: first_batch(batch_size=None, batch_mask_key="m"),
        ValueError,
        ["batch_mask_key='m'", "needs a batch_size"],
    ),
    "option of data misspelt": (
        lambda: first_batch(shufle=True),
        TypeError,
        ["'shufle'", "'shuffle'"],
    ),
    "dict for records": (
        lambda: next(
            iter(kd.data.py.DataSource({"x": X}, shuffle=False, batch_size=2))
        ),
        TypeError,
        ["dict", "kd.data.py.Arrays"],
    ),
    "number for records": (
        lambda: next(iter(kd.data.py.DataSource(3, shuffle=False, batch_size=2))),
        TypeError,
        ["__len__ and __getitem__"],
    ),
    "wrong place for data": (
        lambda: first_batch(device_resident="yes"),
        ValueError,
        ["device_resident='yes'", "'auto'"],
    ),
    "transform of a missing field": (
        lambda: transformed(kd.data.Cast(key="y", dtype="float32")),
        KeyError,
        ["Cast", "['y']", "['x']"],
    ),
    "dtype misspelt": (
        lambda: kd.data.Cast(key="x", dtype="flaot32"),
        TypeError,
        ["'flaot32'", "'float32'"],
    ),
    "no dtype": (lambda: kd.data.Cast(key="x", dtype=None), TypeError, ["'float32'"]),
    "number for a field": (
        lambda: kd.data.Cast(key=3, dtype="float32"),
        TypeError,
        ["key=3", "a list of names"],
    ),
    "empty name of a field": (
        lambda: kd.data.Cast(key="", dtype="float32"),
        KeyError,
        ["name is empty"],
    ),
    "no field": (
        lambda: kd.data.Cast(key=[], dtype="float32"),
        KeyError,
        ["selects no field"],
    ),
    "field written twice": (
        lambda: kd.data.Cast(key={"a": "c", "b": "c"}, dtype="float32"),
        KeyError,
        ["'c' twice"],
    ),
    "half a range": (
        lambda: kd.data.ValueRange(key="x", vrange=(0,)),
        ValueError,
        ["vrange=(0,)", "two numbers"],
    ),
    "empty range": (
        lambda: kd.data.ValueRange(key="x", vrange=(0, 1), in_vrange=(1, 1)),
        ValueError,
        ["in_vrange", "equal"],
    ),
    "endless range": (
        lambda: kd.data.ValueRange(key="x", vrange=(0, float("inf"))),
        ValueError,
        ["inf", "finite"],
    ),
    "pattern without an arrow": (
        lambda: kd.data.Rearrange(key="x", pattern="h w"),
        ValueError,
        ["'h w'", "->"],
    ),
    "pattern of another rank": (
        lambda: transformed(kd.data.Rearrange(key="x", pattern="h w c -> (h w c)")),
        Exception,  # of einops
        ["h w c", "(4,)", "3 dims"],
    ),
    "one index for several": (
        lambda: kd.data.Gather(key="x", axis=0, indices=3),
        TypeError,
        ["indices=3", "a list of ints"],
    ),
    "index beyond an axis": (
        lambda: transformed(kd.data.Gather(key="x", axis=0, indices=[9])),
        IndexError,
        ["9", "size 4"],
    ),
    "picture without pixels": (
        lambda: kd.data.Resize(key="x", size=0),
        ValueError,
        ["size=0", "(height, width)"],
    ),
    "method misspelt": (
        lambda: kd.data.Resize(key="x", size=(4, 4), method="cubicc"),
        ValueError,
        ["'cubicc'", "bicubic"],
    ),
    "negative crop": (
        lambda: kd.data.CenterCrop(key="x", shape=(-1,)),
        ValueError,
        ["(-1,)", "negative"],
    ),
    "crop larger than the array": (
        lambda: transformed(kd.data.CenterCrop(key="x", shape=(9,))),
        ValueError,
        ["(9,)", "larger", "(4,)"],
    ),
    "fields kept and dropped": (
        lambda: kd.data.Elements(keep="x", drop="y"),
        ValueError,
        ["`keep` or `drop`"],
    ),
    "kept field missing": (
        lambda: transformed(kd.data.Elements(keep=["y"])),
        KeyError,
        ["['y']", "['x']"],
    ),
    "constant over a field": (
        lambda: transformed(kd.data.AddConstants({"x": 1})),
        KeyError,
        ["['x']", "Elements(drop="],
    ),
    "number for a transform": (
        lambda: transformed(3),
        TypeError,
        ["transforms[0]", "kd.data.MapTransform"],
    ),
}

MEASURES = {
    "predictions and targets of different shapes": (
        lambda: L2.get_state(preds=jnp.zeros((2, 3)), targets=jnp.zeros((2, 4))),
        kt.KTypeCheckError,
        ["argument targets", "(2, 4)", "(2, 3)", "'preds'"],
    ),
    "weight as text": (
        lambda: kd.losses.L2(preds="a", targets="b", weight="x"),
        TypeError,
        ["L2", "weight", "'x'"],
    ),
    "normalisation misspelt": (
        lambda: kd.losses.L2(preds="a", targets="b", normalize_by="x"),
        ValueError,
        ["normalize_by", "'mask'", "'values'"],
    ),
    "key of a loss not set": (
        lambda: kd.losses.L2(preds="preds.y").get_state_from_context(
            {"preds": {"y": 1}}
        ),
        ValueError,
        ["L2", "targets", "'batch.image'"],
    ),
    "labels that are not integers": (
        lambda: kd.losses.SoftmaxCrossEntropyWithIntLabels(
            logits="a", labels="b"
        ).get_state(logits=jnp.zeros((2, 3)), labels=jnp.zeros((2, 1))),
        kt.KTypeCheckError,
        ["argument labels", "float32"],
    ),
    "key of a metric misspelt": (
        lambda: kd.metrics.Norm(tensor="batch.imgae").get_state_from_context(
            {"batch": {"image": X}}
        ),
        KeyError,
        ["'batch.imgae'", "'batch.image'"],
    ),
    "accuracy of two things": (
        lambda: kd.metrics.Accuracy(logits="a", pred_labels="b", labels="c"),
        ValueError,
        ["logits or pred_labels", "'a' and 'b'"],
    ),
    "mode of a metric misspelt": (
        lambda: kd.metrics.RocAuc(logits="a", labels="b", multi_class_mode="x"),
        ValueError,
        ["multi_class_mode", "'ovr'"],
    ),
    "aggregation misspelt": (
        lambda: kd.metrics.Norm(tensor="a", aggregation_type="x"),
        ValueError,
        ["aggregation_type", "'average'"],
    ),
    "dimension that is not there": (
        lambda: kd.metrics.SingleDimension(tensor="a", index=9).get_state(
            tensor=jnp.zeros((2, 3))
        ),
        ValueError,
        ["index 9", "(2, 3)"],
    ),
    "range upside down": (
        lambda: kd.metrics.Psnr(pred="a", target="b", in_vrange=(1, 0)),
        ValueError,
        ["in_vrange", "low < high"],
    ),
    "mask that does not fit": (
        lambda: kd.metrics.AverageState.from_values(
            jnp.zeros((2, 3)), mask=jnp.zeros((4,))
        ),
        ValueError,
        ["(4,)", "(2, 3)"],
    ),
    "decay beyond 1": (
        lambda: kd.optim.ema_params(decay=2.0),
        ValueError,
        ["decay", "0 to 1", "2.0"],
    ),
}

CHECKPOINTS = {
    "saving every 0 steps": (
        lambda: checkpointer(save_interval_steps=0),
        ValueError,
        ["save_interval_steps", "at least 1"],
    ),
    "keeping fewer than none": (
        lambda: checkpointer(max_to_keep=-1),
        ValueError,
        ["max_to_keep", "-1"],
    ),
    "mode misspelt": (
        lambda: checkpointer(best_mode="maximum"),
        ValueError,
        ["best_mode", "'max' or 'min'"],
    ),
    "reaction misspelt": (
        lambda: checkpointer(on_save_error="ignore"),
        ValueError,
        ["on_save_error", "'warn'"],
    ),
    "checkpointer without a folder": (
        lambda: checkpointer().folder,
        ValueError,
        ["workdir=", "kd.train.Trainer"],
    ),
    "nothing to restore": (
        lambda: checkpointer(workdir="none").restore({}),
        FileNotFoundError,
        ["none/checkpoints", "noop_if_missing"],
    ),
    "step that is not there": (
        lambda: checkpointer(workdir="none").restore({}, step=7),
        FileNotFoundError,
        ["step 7", "Steps: none"],
    ),
    "folder that is not a run": (
        lambda: kd.from_workdir.get_resolved("none"),
        FileNotFoundError,
        ["none", "config.json"],
    ),
    "loading from nothing": (
        lambda: kd.ckpts.PartialKauldronLoader(
            workdir="none", new_to_old={"params": "params"}
        ).transform(kd.train.TrainState(step=0, params={})),
        FileNotFoundError,
        ["none/checkpoints"],
    ),
}

TRAINING = {
    "negative number of steps": (
        lambda: train(num_train_steps=-1),
        ValueError,
        ["num_train_steps", "at least 0"],
    ),
    "steps as text": (
        lambda: train(num_train_steps="10"),
        ValueError,
        ["num_train_steps", "an integer", "'10'"],
    ),
    "no loss": (
        lambda: train(train_losses={}),
        ValueError,
        ["cfg.train_losses", "empty"],
    ),
    "input of the model misspelt": (
        lambda: train(model=Linear(x="batch.xx")),
        KeyError,
        ["Linear", "'batch.xx'", "'batch.x'"],
    ),
    "root of a key misspelt": (
        lambda: train(model=Linear(x="bach.x")),
        KeyError,
        ["`bach`", "'batch.x'"],
    ),
    "input of the model not set": (
        lambda: train(model=Linear()),
        ValueError,
        ["Linear", "not set: x"],
    ),
    "key of a loss misspelt": (
        lambda: train_with_loss(preds="preds.yy"),
        KeyError,
        ["cfg.train_losses.l2", "'preds.yy'", "'preds.y'"],
    ),
    "loss of different shapes": (
        lambda: train(model=Linear(x="batch.x", size=3)),
        Exception,
        ["cfg.train_losses.l2", "[16 3]", "[16 2]"],
    ),
    "key into the parameters misspelt": (
        lambda: train(
            train_metrics={"n": kd.metrics.Norm(tensor="params.dens.kernel")}
        ),
        KeyError,
        ["cfg.train_metrics.n", "'params.dense.kernel'"],
    ),
    "dispatch of no step": (
        lambda: train(steps_per_dispatch=0),
        ValueError,
        ["steps_per_dispatch", "'auto'"],
    ),
    "text for an optimizer": (
        lambda: train(optimizer="adam"),
        ValueError,
        ["optimizer", "optax.adam(1e-3)"],
    ),
    "number for an optimizer": (lambda: train(optimizer=1e-3), ValueError, ["optax"]),
    "training without an end": (
        lambda: train(num_train_steps=None),
        ValueError,
        ["num_train_steps", "repeats forever", "num_epochs"],
    ),
    "fewer records than a batch": (
        lambda: train(train_ds=make_ds(batch_size=128, num_epochs=1)),
        ValueError,
        ["train_ds", "fewer records than `cfg.train_ds.batch_size`"],
    ),
    "evaluator with the name of training": (
        lambda: train_with_eval("train"),
        ValueError,
        ["'train'", "workdir"],
    ),
    "evaluator without data": (
        lambda: train_with_eval("e"),
        ValueError,
        ["'e'", "cfg.evals.e.ds"],
    ),
    "metric of an evaluator misspelt": (
        lambda: train_with_eval(
            "e",
            ds=make_ds(num_epochs=1),
            metrics={"n": kd.metrics.Norm(tensor="preds.z")},
        ),
        KeyError,
        ["cfg.evals.e.metrics.n", "'preds.z'", "y: float32"],
    ),
    "field of the trainer misspelt": (
        lambda: make_trainer("run", num_train_step=3),
        TypeError,
        ["'num_train_step'", "'num_train_steps'"],
    ),
    "best of nothing": (
        lambda: train(checkpointer=checkpointer(best_metric_path="evl.loss")),
        ValueError,
        ["best_metric_path", "'evl.loss'", "train.losses.l2"],
    ),
    "evaluation every 0 steps": (
        lambda: kd.evals.EveryNSteps(0),
        ValueError,
        ["EveryNSteps", "at least 1"],
    ),
    "evaluation before the start": (
        lambda: kd.evals.Once(-1),
        ValueError,
        ["Once", "at least 0"],
    ),
    "negative pause": (
        lambda: kd.evals.StandaloneEveryCheckpoint(seconds_to_sleep=-1),
        ValueError,
        ["seconds_to_sleep", "-1"],
    ),
    "training a trainer that evaluates": (
        lambda: train(setup=kd.train.Setup(eval_only=True)),
        ValueError,
        ["cannot train", "continuous_eval"],
    ),
    "optimizer that is a schedule": (
        lambda: train(optimizer=optax.constant_schedule(1e-3)),
        ValueError,
        ["optimizer", "optax.adam(1e-3)"],
    ),
}

NAMES_AND_ARGUMENTS = {
    "loss misspelt": (lambda: kd.losses.L3, AttributeError, ["'L3'", "'L2'"]),
    "metric misspelt": (lambda: kd.metrics.Accuray, AttributeError, ["'Accuracy'"]),
    "summary misspelt": (
        lambda: kd.summaries.ShowImage,
        AttributeError,
        ["'ShowImages'"],
    ),
    "random function misspelt": (
        lambda: kd.random.normall,
        AttributeError,
        ["'normall'", "'normal'"],
    ),
    "checkpointer misspelt": (
        lambda: kd.ckpts.Checkpointr,
        AttributeError,
        ["'Checkpointer'"],
    ),
    "konfig function misspelt": (lambda: konfig.resolv, AttributeError, ["'resolve'"]),
    "kontext function misspelt": (
        lambda: kontext.get_by_pat,
        AttributeError,
        ["'get_by_path'"],
    ),
    "klinen module misspelt": (
        lambda: kd.klinen.Modul,
        AttributeError,
        ["'Module'"],
    ),
    "array type misspelt": (lambda: kd.typing.Flot, AttributeError, ["'Float'"]),
    "evaluation every text of steps": (
        lambda: kd.evals.EveryNSteps("2"),  # pyright: ignore
        TypeError,
        ["EveryNSteps(n)", "integer", "'2'"],
    ),
    "evaluation once at half a step": (
        lambda: kd.evals.Once(2.5),  # pyright: ignore
        TypeError,
        ["Once(step)", "integer", "2.5"],
    ),
    "list of fields": (
        lambda: first_batch({"x": X}, fields=["x"]),
        TypeError,
        ["Arrays(fields=...)", "dict", "a list"],
    ),
    "shuffle as a text": (
        lambda: first_batch(shuffle="no"),
        TypeError,
        ["Arrays(shuffle='no')", "True or False"],
    ),
    "number in a chain of transformations": (
        lambda: kd.optim.named_chain(a=3),  # pyright: ignore
        TypeError,
        ["named_chain(a=3)", "optax.adam(1e-3)"],
    ),
    "optimizer that is not called": (
        lambda: kd.optim.named_chain(adam=optax.adam),  # pyright: ignore
        TypeError,
        ["named_chain(adam=", "optax.adam(1e-3)"],
    ),
    "sharding as a text": (
        lambda: kd.sharding.ShardingStrategy(params="x"),
        TypeError,
        ["ShardingStrategy(params=...)", "'x'", "kd.sharding.REPLICATED"],
    ),
    "sharding as a text below": (
        lambda: kd.sharding.ShardingStrategy(params={"a": {"b": "x"}}),
        TypeError,
        ["ShardingStrategy(params=...)", "['a']['b']"],
    ),
    "checkpoints every half step": (
        lambda: kd.ckpts.Checkpointer(save_interval_steps=2.5),  # pyright: ignore
        ValueError,
        ["Checkpointer.save_interval_steps", "an integer of at least 1", "2.5"],
    ),
}

PYTHON_MISTAKES = {
    **CONFIGS,
    **PATHS_AND_TYPES,
    **DATA,
    **MEASURES,
    **CHECKPOINTS,
    **TRAINING,
    **NAMES_AND_ARGUMENTS,
}
assert len(PYTHON_MISTAKES) == sum(
    map(
        len,
        (
            CONFIGS,
            PATHS_AND_TYPES,
            DATA,
            MEASURES,
            CHECKPOINTS,
            TRAINING,
            NAMES_AND_ARGUMENTS,
        ),
    )
), "Two mistakes have the same name."
