"""New metrics for a run that is complete."""

from kauldron import konfig

with konfig.imports():
    from kauldron import kd


def get_config():
    return kd.train.Trainer.eval_only(
        evals={
            "test": kd.evals.Evaluator(
                run=kd.evals.StandaloneLastCheckpoint(),
                num_batches=2,
                ds=kd.data.tf.Tfds(
                    name="mnist",
                    split="test",
                    shuffle=False,
                    num_epochs=1,
                    batch_size=16,
                    transforms=[
                        kd.data.Elements(keep=["image"]),
                        kd.data.ValueRange(key="image", vrange=(0, 1)),
                    ],
                ),
                losses={"l1": kd.losses.L1(preds="preds.image", targets="batch.image")},
                summaries={
                    "recon": kd.summaries.ShowImages(images="preds.image", num_images=2)
                },
            ),
        },
    )
