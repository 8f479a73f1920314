"""Shardings as values of a config."""

import json

import pytest

from kauldron import kd, konfig

with konfig.imports():
    from kauldron import kd as kd_cfg


def _round_trip(cfg):
    return konfig.resolve(konfig.ConfigDict(json.loads(cfg.to_json())))


def test_constants_are_stored_by_name():
    cfg = konfig.ConfigDict({"x": kd_cfg.sharding.FIRST_DIM})
    assert json.loads(cfg.to_json())["x"] == {
        "__const__": "kauldron.kd:sharding.FIRST_DIM"
    }
    assert _round_trip(cfg)["x"] is kd.sharding.FIRST_DIM


def test_strategy_is_stored_by_name_and_resolves_to_a_hashable_value():
    cfg = kd_cfg.sharding.ShardingStrategy(
        params={"encoder": {"kernel": kd_cfg.sharding.REPLICATED}, "head": None},
        batch={"image": kd_cfg.sharding.FIRST_DIM},
    )
    stored = json.loads(cfg.to_json())
    assert stored["__qualname__"] == "kauldron.kd:sharding.ShardingStrategy"
    strategy = _round_trip(cfg)
    assert isinstance(strategy, kd.sharding.ShardingStrategy)
    assert strategy.params["encoder"]["kernel"] == kd.sharding.REPLICATED
    assert hash(strategy) == hash(_round_trip(cfg))
    assert strategy == _round_trip(cfg)


def test_older_name_of_batch():
    cfg = kd_cfg.sharding.ShardingStrategy(ds=kd_cfg.sharding.REPLICATED)
    assert _round_trip(cfg).batch == kd.sharding.REPLICATED


def test_rule():
    cfg = kd_cfg.sharding.ShardingStrategy(
        params=kd_cfg.sharding.FSDPSharding(min_size_to_shard_mb=2)
    )
    assert _round_trip(cfg).params == kd.sharding.FSDPSharding(min_size_to_shard_mb=2)


def test_unknown_field_is_named():
    with pytest.raises(TypeError, match="batches"):
        _round_trip(kd_cfg.sharding.ShardingStrategy(batches=None))
