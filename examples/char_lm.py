"""A small language model that learns to write like the manual of Python.

    kauldron train --cfg=examples/char_lm.py --cfg.workdir=/tmp/char_lm

At each evaluation it continues a few texts that it was not trained on; they are written
as text summaries.
"""

from kauldron import konfig

with konfig.imports():
    import optax

    import char_lm_model
    from kauldron import kd

NUM_TEST = 192


def get_config():
    """The experiment."""
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.num_train_steps = 600
    cfg.log_metrics_every = 50

    cfg.train_ds = _make_ds(kd.data.py.SliceDataset(NUM_TEST, None), shuffle=True)
    cfg.eval_ds = _make_ds(kd.data.py.SliceDataset(NUM_TEST), shuffle=False)

    cfg.model = char_lm_model.CharLm(text="batch.text")
    cfg.rng_streams = kd.train.RngStreams(
        [kd.train.RngStream("sample", init=False, train=False, eval=True)]
    )
    cfg.train_losses = {
        "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
            logits="preds.logits", labels="batch.next"
        ),
    }
    cfg.train_metrics = {
        "accuracy": kd.metrics.Accuracy(logits="preds.logits", labels="batch.next"),
    }
    cfg.optimizer = optax.adamw(
        learning_rate=optax.cosine_decay_schedule(
            init_value=3e-3, decay_steps=cfg.ref.num_train_steps
        )
    )
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=200)
    cfg.evals = {
        "test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(200), num_batches=None),
        "samples": kd.evals.Evaluator(
            run=kd.evals.EveryNSteps(200),
            model_method="generate",
            num_batches=1,
            losses={},
            metrics={},
            summaries={
                "texts": kd.contrib.summaries.ShowTokens(
                    tokens="preds.text", decode=char_lm_model.decode, num_texts=4
                ),
            },
        ),
    }
    return cfg


def _make_ds(part, *, shuffle):
    return kd.data.py.Arrays(
        char_lm_model.python_manual,
        shuffle=shuffle,
        num_epochs=None if shuffle else 1,
        batch_size=32,
        transforms=[part],
    )
