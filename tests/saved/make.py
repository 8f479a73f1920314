"""Write the files beside this one, with the version of kauldron that is installed.

They were written once, before the package was rearranged, and are kept as they are:
`tests/saved/test_saved.py` checks that they can still be read. Run `python tests/saved/make.py`
only to add something new to them.
"""

import os
import pathlib
import pickle
import tarfile
import tempfile

import jax
import numpy as np
from kauldron.konfig.immutabledict import ImmutableDict

from kauldron import klinen, konfig

with konfig.imports():
    import optax
    from flax import linen as nn
    from sklearn import datasets

    from kauldron import kd
    from kauldron.utils import config_util

HERE = pathlib.Path(__file__).resolve().parent


def make_config():
    cfg = kd.train.Trainer()
    cfg.seed = 7
    cfg.num_train_steps = 6
    cfg.log_metrics_every = 2
    cfg.train_ds = kd.data.py.Arrays(
        datasets.load_digits,
        fields={"image": "data", "label": "target"},
        shuffle=True,
        batch_size=32,
        transforms=[kd.data.Cast(key="image", dtype="float32")],
    )
    cfg.eval_ds = kd.data.py.Arrays(
        datasets.load_digits,
        fields={"image": "data", "label": "target"},
        shuffle=False,
        num_epochs=1,
        batch_size=600,
        transforms=[kd.data.Cast(key="image", dtype="float32")],
    )
    cfg.model = kd.nn.FlatAutoencoder(
        inputs="batch.image", encoder=nn.Dense(2), decoder=nn.Dense(64)
    )
    cfg.train_losses = {"l2": kd.losses.L2(preds="preds.image", targets="batch.image")}
    cfg.train_metrics = {"norm": kd.metrics.Norm(tensor="preds.image")}
    cfg.optimizer = optax.adam(
        optax.cosine_decay_schedule(1e-2, decay_steps=cfg.ref.num_train_steps)
    )
    cfg.evals = {
        "test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(3)),
        "later": kd.evals.Evaluator(
            run=kd.evals.StandaloneEveryCheckpoint(), num_batches=1
        ),
    }
    cfg.rng_streams = kd.train.RngStreams([kd.train.RngStream("noise", eval=True)])
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=3)
    cfg.profiler = None
    return cfg


def main():
    os.chdir(tempfile.mkdtemp())
    cfg = make_config()
    cfg.workdir = "run"
    cfg.stop_after_steps = 4
    konfig.resolve(cfg).train()
    with tarfile.open(HERE / "run.tar.gz", "w:gz") as archive:
        archive.add("run", filter=lambda i: None if "events." in i.name else i)
    inherited = kd.data.py.Arrays(seed=config_util.ROOT_CFG_REF.seed)
    (HERE / "inherited.json").write_text(inherited.to_json())
    x = np.ones((2, 4), np.float32)
    model = klinen.Dense(3).init_bind(jax.random.PRNGKey(0), x)
    frozen = ImmutableDict({"a": 1, "b": ImmutableDict({"c": (2, 3)})})
    with (HERE / "objects.pickle").open("wb") as file:
        values = {"model": model, "output": np.asarray(model(x)), "frozen": frozen}
        pickle.dump(values, file)


if __name__ == "__main__":
    main()
