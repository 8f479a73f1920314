"""The autoencoder, judged by a readout that is trained at each evaluation."""

from kauldron import konfig
from tests.older_configs import mnist_autoencoder, readout_mnist

with konfig.imports():
    from kauldron import kd


def get_config():
    cfg = mnist_autoencoder.get_config()
    cfg.evals["readout"] = kd.contrib.evals.TrainEvaluator(
        run=kd.evals.EveryNSteps(500),
        readout_config=readout_mnist.get_config(),
    )
    return cfg
