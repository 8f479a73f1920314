"""Measure something new on a model that was trained earlier.

The model, its weights, losses and metrics come from the folder of the earlier run, here
that of `digits_classifier.py`; this config only says on which data to measure:

    kauldron train --cfg=examples/digits_classifier.py --cfg.workdir=/tmp/classifier

    kauldron eval --cfg=examples/digits_eval_only.py \\
        --cfg.aux.workdir=/tmp/classifier --cfg.workdir=/tmp/classifier_in_the_dark

`--cfg.aux.step=200` takes an earlier checkpoint than the last one.
"""

from kauldron import konfig

with konfig.imports():
    from sklearn import datasets

    from kauldron import kd

NUM_TEST = 297  # the digits that the classifier did not see in training


def get_config():
    """Accuracy on the held-out digits: as they are, and ever darker."""
    return kd.train.Trainer.eval_only(
        evals={
            name: kd.evals.Evaluator(
                run=kd.evals.StandaloneLastCheckpoint(),
                num_batches=None,
                ds=make_test_ds(brightness=brightness),
            )
            for name, brightness in {"day": 1.0, "dusk": 0.3, "night": 0.1}.items()
        },
    )


def make_test_ds(*, brightness):
    """The held-out digits, with values in [0, brightness]."""
    return kd.data.py.Arrays(
        datasets.load_digits,
        fields={"image": "images", "label": "target"},
        shuffle=False,
        num_epochs=1,
        batch_size=99,
        transforms=[
            kd.data.py.SliceDataset(NUM_TEST),
            kd.data.ValueRange(key="image", in_vrange=(0, 16), vrange=(0, brightness)),
            kd.data.Cast(key="image", dtype="float32"),
            kd.data.Cast(key="label", dtype="int32"),
            kd.data.Rearrange(key="image", pattern="h w -> h w 1"),
            kd.data.Rearrange(key="label", pattern="-> 1"),
        ],
    )
