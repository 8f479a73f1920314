"""New metrics for a run that is complete."""

from kauldron import konfig
from tests.older_configs import mnist_standalone_eval

with konfig.imports():
    from kauldron import kd


def get_config():
    return kd.train.Trainer.eval_only(
        evals={
            "test": kd.evals.Evaluator(
                run=kd.evals.StandaloneLastCheckpoint(),
                num_batches=2,
                ds=mnist_standalone_eval.make_ds("test"),
                losses={"l1": kd.losses.L1(preds="preds.image", targets="batch.image")},
                summaries={
                    "recon": kd.summaries.ShowImages(images="preds.image", num_images=2)
                },
            ),
        },
    )
