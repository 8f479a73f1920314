"""A classifier of handwritten digits whose model is written in NNX.

    kauldron train --cfg=examples/nnx_digits.py --cfg.workdir=/tmp/nnx

Only the model differs from `digits_classifier.py`: data, losses, metrics and
evaluations find its results, its parameters and its intermediate values by keys, and
dropout and batch normalisation are told whether the model trains.
"""

import digits_classifier

from kauldron import konfig

with konfig.imports():
    import optax

    import nnx_digits_model
    from kauldron import kd


def get_config():
    """The experiment."""
    cfg = digits_classifier.get_config()
    cfg.model = nnx_digits_model.Classifier(image="batch.image")
    cfg.num_train_steps = 400
    cfg.optimizer = optax.adamw(
        learning_rate=optax.cosine_decay_schedule(
            init_value=2e-3, decay_steps=cfg.ref.num_train_steps
        )
    )
    cfg.train_metrics.features = kd.metrics.Norm(tensor="interms.encoder.features[0]")
    return cfg
