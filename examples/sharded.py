"""The digits classifier with its parameters spread over all devices.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 \\
        kauldron train --cfg=examples/sharded.py --cfg.workdir=/tmp/sharded

A batch is split over the devices, and every large parameter (here: over 4 KiB) along
its largest axis. The result is that of one device, up to rounding.
"""

import digits_classifier

from kauldron import konfig

with konfig.imports():
    from kauldron import kd


def get_config():
    """The experiment."""
    cfg = digits_classifier.get_config()
    cfg.sharding = kd.sharding.ShardingStrategy(
        params=kd.sharding.FSDPSharding(min_size_to_shard_mb=4 / 1024)
    )
    cfg.eval_ds.batch_drop_remainder = True  # whole batches split evenly
    return cfg
