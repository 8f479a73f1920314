"""Objects that inherit from the root, as data."""

import dataclasses
import json

import pytest

from kauldron import config_base, konfig

REF = config_base.ROOT_CFG_REF


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data(config_base.UpdateFromRootCfg):
    seed: int = REF.seed
    rate: float = REF.aux["rate"]


def _round_trip(obj):
    return konfig.resolve(json.loads(json.dumps(konfig.export(obj))), freeze=False)


@pytest.mark.parametrize("data", [Data(), Data(seed=3), Data(seed=1, rate=0.5)])
def test_round_trip(data):
    assert _round_trip(data) == data


def test_inherited_values_are_exported_without_their_memory():
    @dataclasses.dataclass
    class Root:
        seed: int = 4
        aux: dict = dataclasses.field(default_factory=lambda: {"rate": 0.1})

    data = Data().update_from_root_cfg(Root())
    assert set(konfig.export(data)) == {"__qualname__", "seed", "rate"}
    assert _round_trip(data) == Data(seed=4, rate=0.1)
