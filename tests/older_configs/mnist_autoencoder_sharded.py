"""The autoencoder, with its parameters on every device."""

from kauldron import konfig
from tests.older_configs import mnist_autoencoder

with konfig.imports():
    from kauldron import kd


def get_config():
    cfg = mnist_autoencoder.get_config()
    cfg.sharding = kd.sharding.ShardingStrategy(params=kd.sharding.REPLICATED)
    return cfg
