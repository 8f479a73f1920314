"""A train step of your own: every parameter moves against the sign of its gradient.

kauldron train --cfg=examples/custom_step.py --cfg.workdir=/tmp/custom_step
"""

import digits_autoencoder

from kauldron import konfig

with konfig.imports():
    import signed_step


def get_config():
    """The experiment."""
    cfg = digits_autoencoder.get_config()
    cfg.trainstep = signed_step.SignStep(learning_rate=1e-3)
    return cfg
