import hashlib

import jax
import numpy as np
import pytest

from kauldron import kd


def _fold_in_str(key, text):
    number = int.from_bytes(hashlib.sha1(text.encode()).digest()[:4], "big")
    return jax.random.fold_in(key, number)


def test_default_streams_and_their_phases():
    streams = kd.train.RngStreams(seed=0)
    assert list(streams.streams) == ["params", "dropout", "default"]
    assert set(streams.init_rngs()) == {"params", "dropout", "default"}
    assert set(streams.train_rngs(0)) == {"dropout", "default"}
    assert streams.eval_rngs(0) == {}


def test_overwrites_replace_whole_streams_and_add_new_ones():
    streams = kd.train.RngStreams(
        [
            kd.train.RngStream("dropout", train=False, eval=True),
            kd.train.RngStream("mine"),
        ],
        seed=0,
    )
    assert set(streams.init_rngs()) == {"params", "dropout", "default", "mine"}
    assert set(streams.train_rngs(0)) == {"default", "mine"}
    assert set(streams.eval_rngs(0)) == {"dropout"}


def test_keys_are_the_documented_chain_of_folds():
    key = kd.train.RngStreams(seed=7).train_rngs(3)["dropout"]
    expected = jax.random.PRNGKey(7)
    expected = _fold_in_str(expected, "dropout")
    expected = jax.random.fold_in(expected, 3)
    expected = _fold_in_str(expected, "train")
    np.testing.assert_array_equal(key, expected)


def test_stream_that_is_not_per_step_leaves_the_step_out():
    key = kd.train.RngStreams(seed=7).init_rngs()["params"]
    expected = _fold_in_str(_fold_in_str(jax.random.PRNGKey(7), "params"), "init")
    np.testing.assert_array_equal(key, expected)


def test_traced_step_gives_the_same_keys():
    streams = kd.train.RngStreams(seed=1)
    traced = jax.jit(lambda step: streams.train_rngs(step))(5)
    jax.tree.map(np.testing.assert_array_equal, traced, streams.train_rngs(5))


def test_keys_differ_between_steps_and_phases():
    streams = kd.train.RngStreams([kd.train.RngStream("s", eval=True)], seed=0)
    keys = [
        streams.train_rngs(0)["s"],
        streams.train_rngs(1)["s"],
        streams.eval_rngs(0)["s"],
        streams.init_rngs()["s"],
    ]
    assert len({tuple(np.asarray(key).tolist()) for key in keys}) == len(keys)


def test_adding_a_stream_changes_no_other():
    alone = kd.train.RngStreams(seed=0).train_rngs(2)["dropout"]
    more = kd.train.RngStreams([kd.train.RngStream("a")], seed=0)
    np.testing.assert_array_equal(alone, more.train_rngs(2)["dropout"])


def test_step_defaults_to_zero():
    streams = kd.train.RngStreams(seed=0)
    jax.tree.map(
        np.testing.assert_array_equal, streams.train_rngs(), streams.train_rngs(0)
    )


def test_per_step_stream_without_step_names_itself():
    with pytest.raises(ValueError, match="'noise'"):
        kd.train.RngStream("noise").make(jax.random.PRNGKey(0))


def test_two_overwrites_of_one_name_are_refused():
    stream = kd.train.RngStream("a")
    with pytest.raises(ValueError, match="more than once: a"):
        kd.train.RngStreams([stream, stream])


def test_seed_must_be_known_when_keys_are_made():
    with pytest.raises(ValueError, match="seed"):
        kd.train.RngStreams().init_rngs()
    with pytest.raises(ValueError, match="seed"):
        kd.train.RngStreams(seed=None).init_rngs()


def test_streams_are_values_and_can_be_static_arguments():
    a = kd.train.RngStreams([kd.train.RngStream("a")], seed=0)
    b = kd.train.RngStreams((kd.train.RngStream("a"),), seed=0)
    assert a == b and hash(a) == hash(b)
    jitted = jax.jit(lambda s, step: s.train_rngs(step)["a"], static_argnums=0)
    np.testing.assert_array_equal(jitted(a, 1), b.train_rngs(1)["a"])
