"""A config with arguments, made of functions, with a sweep.

Arguments are given after the colon, and change what the config is made of:

    kauldron train --cfg=examples/configargs.py:width=32,optimizer=sgd --cfg.workdir=...

`sweep()` yields overrides, each of which is one run:

    kauldron launch --cfg=examples/configargs.py --xp.sweep
"""

import dataclasses
from typing import Literal

import digits_autoencoder

from kauldron import konfig

with konfig.imports():
    import optax


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigArgs:
    """Arguments after the colon.

    Attributes:
      width: Size of the code.
      optimizer: Which optimizer.
      learning_rate: Its learning rate.
    """

    width: int = 16
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-2


def get_config(args: ConfigArgs = ConfigArgs()):
    """The experiment."""
    cfg = digits_autoencoder.get_config()
    cfg.aux = args
    cfg.model.encoder.features = cfg.ref.aux.width
    cfg.optimizer = make_optimizer(args.optimizer, cfg.ref.aux.learning_rate)
    return cfg


def make_optimizer(name, learning_rate):
    """An optimizer by name."""
    if name == "sgd":
        return optax.sgd(learning_rate=learning_rate, momentum=0.9)
    return optax.adam(learning_rate=learning_rate)


def sweep():
    """The experiments to compare: overrides by path."""
    for width in (4, 16, 32):
        for learning_rate in (1e-3, 1e-2):
            yield {"aux.width": width, "aux.learning_rate": learning_rate}
