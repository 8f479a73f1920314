"""Parts of another run's checkpoint, under other names."""

import json
import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from etils import epath

from kauldron import kd, konfig, kontext
from tests.ckpts.states import (
    assert_equal,
    files_below,
    full,
    make_checkpointer,
    make_state,
    ones,
    save_steps,
    zeros,
)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """Another run with the checkpoints 1 and 2."""
    workdir = tmp_path_factory.mktemp("other")
    save_steps(make_checkpointer(workdir), [1, 2])
    return workdir


@pytest.fixture(scope="module")
def nested(tmp_path_factory):
    """Another run whose model has more parts, in containers of other types."""
    workdir = tmp_path_factory.mktemp("nested")
    params = {
        "encoder": {
            "layers": [{"w": full((2,), i)} for i in range(3)],
            "norm": {"scale": full((2,), 7.0)},
        },
        "head": {"kernel": full((2, 5), 8.0)},
    }
    state = kd.train.TrainState(
        step=full((), 9),
        params=params,
        collections={},
        opt_state=optax.adam(1.0).init(params),
    )
    with make_checkpointer(workdir) as checkpointer:
        checkpointer.save(state, step=9)
    return workdir


def _loader(workdir, **kwargs):
    return kd.ckpts.PartialKauldronLoader(workdir=workdir, **kwargs)


def _state(params, **kwargs):
    return kd.train.TrainState(
        step=zeros((), jnp.int32), params=params, collections={}, **kwargs
    )


def test_parameters_and_collections_are_loaded_by_default(workdir):
    state = make_state(optimizer=False)
    loaded = _loader(workdir).transform(state)
    assert_equal(loaded.params, make_state(2).params)
    assert_equal(loaded.collections, make_state(2).collections)
    assert int(loaded.step) == 0
    assert_equal(state, make_state(optimizer=False))  # the input is not changed


def test_step_can_be_chosen(workdir):
    loaded = _loader(workdir, step=1).transform(make_state())
    assert_equal(loaded.params, make_state(1).params)
    with pytest.raises(FileNotFoundError, match=r"step 7 .*Steps: 1, 2"):
        _loader(workdir, step=7).transform(make_state())


def test_renamed_parameter_goes_to_its_new_place_and_all_else_stays(workdir):
    bias = full((3,), 5.0)
    state = _state({"proj": {"w": zeros((4, 3))}, "dense": {"bias": bias}})
    loader = _loader(workdir, new_to_old={"params.proj.w": "params.dense.kernel"})
    loaded = loader.transform(state)
    expected = make_state(2).params["dense"]["kernel"]
    np.testing.assert_array_equal(loaded.params["proj"]["w"], expected)
    assert loaded.params["dense"]["bias"] is bias
    assert loaded.step is state.step


def test_other_dtype_is_cast(workdir):
    loaded = _loader(workdir).transform(make_state(dtype=jnp.bfloat16))
    kernel = loaded.params["dense"]["kernel"]
    assert kernel.dtype == jnp.bfloat16
    expected = make_state(2).params["dense"]["kernel"].astype(jnp.bfloat16)
    np.testing.assert_array_equal(kernel, expected)


def test_types_of_containers_need_not_match(nested):
    layers = {str(i): {"w": zeros(2)} for i in range(3)}
    state = _state({"body": {"blocks": layers, "norm": {"scale": zeros(2)}}})
    loader = _loader(
        nested,
        new_to_old={
            "params.body.blocks": "params.encoder.layers",
            "params.body.norm": "params.encoder.norm",
        },
    )
    body = loader.transform(state).params["body"]
    assert [block["w"][0] for block in body["blocks"].values()] == [0, 1, 2]
    assert body["norm"]["scale"][0] == 7


@pytest.mark.parametrize(
    "old",
    [
        "params.encoder.layers[2]",
        "params.encoder.layers.2",
        "params['encoder'].layers[2].w",
    ],
)
def test_paths_in_any_spelling(nested, old):
    new = "params.x.w" if old.endswith("w") else "params.x"
    loaded = _loader(nested, new_to_old={new: old}).transform(
        _state({"x": {"w": zeros(2)}})
    )
    np.testing.assert_array_equal(loaded.params["x"]["w"], 2)


def test_one_old_leaf_can_go_to_two_places(nested):
    state = _state({"a": zeros(2), "b": zeros(2, jnp.bfloat16)})
    old = "params.encoder.norm.scale"
    loader = _loader(nested, new_to_old={"params.a": old, "params.b": old})
    loaded = loader.transform(state).params
    assert loaded["a"].tolist() == loaded["b"].tolist() == [7, 7]
    assert loaded["b"].dtype == jnp.bfloat16


#
# What does not fit
#


def test_missing_and_extra_names_are_listed_with_the_arguments_that_allow_them(nested):
    state = _state({"norm": {"scale": zeros(2)}, "new": zeros(1)})
    loader = _loader(nested, new_to_old={"params": "params.encoder"})
    with pytest.raises(ValueError) as error:
        loader.transform(state)
    message = str(error.value)
    assert "`ignore_model_keys`):\n  params.new" in message
    assert "`ignore_restored_keys`):\n  params.encoder.layers[0].w" in message
    assert "params.encoder.layers[2].w" in message


@pytest.mark.parametrize("new", ["new", "*", "**", "params.new", "params.**"])
@pytest.mark.parametrize(
    "old", ["layers.*.w", "layers.**", "**.w", "params.encoder.layers.*.w"]
)
def test_matching_patterns_allow_them(nested, new, old):
    mine = full((1,), 3.0)
    state = _state({"norm": {"scale": zeros(2)}, "new": mine})
    loader = _loader(
        nested,
        new_to_old={"params": "params.encoder"},
        ignore_model_keys=(new,),
        ignore_restored_keys=[old],
    )
    loaded = loader.transform(state).params
    assert loaded["new"] is mine
    np.testing.assert_array_equal(loaded["norm"]["scale"], 7)


def test_pattern_that_matches_only_some_is_not_enough(nested):
    state = _state({"norm": {"scale": zeros(2)}})
    loader = _loader(
        nested,
        new_to_old={"params": "params.encoder"},
        ignore_restored_keys=("layers[0].w", "layers[1].w"),
    )
    with pytest.raises(ValueError, match=r"layers\[2\]\.w") as error:
        loader.transform(state)
    assert "layers[1]" not in str(error.value)


HEAD = {"kernel": zeros((2, 5))}
NORM = {"scale": zeros(2)}


@pytest.mark.parametrize(
    "glob, hint",
    [
        ("haed.**", r"Did you mean 'head'\? There is: params\.encoder, params\.head\."),
        ("params.haed.kernel", "Did you mean 'head'"),
        ("**.kernle", "Did you mean 'kernel'"),
        ("head", r"write 'head\.\*\*'"),
        ("step", r"There is: params\.encoder, params\.head\."),
    ],
)
def test_pattern_that_matches_nothing_in_the_model_is_refused(nested, glob, hint):
    state = _state({"encoder": {"norm": NORM}, "head": HEAD})
    loader = _loader(
        nested,
        new_to_old={"params": "params"},
        ignore_model_keys=(glob,),
        ignore_restored_keys=("encoder.layers.**",),
    )
    with pytest.raises(ValueError, match=f"matches nothing in the model.*{hint}"):
        loader.transform(state)
    ((path, message),) = loader.find_problems(state)
    assert path == "" and repr(glob) in message


def test_pattern_may_be_for_the_optimizer_alone(nested):
    params = {"encoder": {"norm": NORM}, "head": HEAD}
    state = _state(params)
    names = {"params.head": "params.head", "opt_state[0]": "opt_state[0]"}
    loader = _loader(
        nested,
        new_to_old=names,
        ignore_model_keys=("nu.extra",),
        ignore_restored_keys=("**.layers.**",),
    )
    state = loader.transform(state)
    opt_state = optax.adam(1.0).init(params)
    extra = opt_state[0]._replace(nu={**params, "extra": ones(1)})
    loaded = loader.transform_after_optimizer(
        state.replace(opt_state=(extra, *opt_state[1:]))
    )
    assert loaded.opt_state[0].nu["extra"] == 1
    with pytest.raises(ValueError, match=r"'nu\.extra', which matches nothing"):
        loader.transform_after_optimizer(state.replace(opt_state=opt_state))


@pytest.mark.parametrize(
    "option, glob, text",
    [
        ("ignore_model_keys", "head.**", "leave them out of `new_to_old`"),
        ("ignore_restored_keys", "head.**", "the model has all arrays that it matches"),
        ("ignore_restored_keys", "haed.**", "Did you mean 'head'"),
    ],
)
def test_pattern_that_allows_nothing_is_warned_about(
    nested, caplog, option, glob, text
):
    state = _state({"head": HEAD})
    names = {"params.head": "params.head"}
    with caplog.at_level(logging.WARNING, "kauldron"):
        _loader(nested, new_to_old=names).transform(state)
        assert not caplog.records
        patterns = {option: (f"params.{glob}",)}
        _loader(nested, new_to_old=names, **patterns).transform(state)
    (record,) = caplog.records
    assert f"`{option}` has 'params.{glob}'" in record.message
    assert text in record.message


def test_report_says_by_subtree_what_was_loaded_kept_and_skipped(nested, caplog):
    layers = [{"w": zeros(2), "new": zeros(1)} for _ in range(3)]
    state = _state({"encoder": {"layers": layers, "norm": NORM}, "top": NORM})
    loader = _loader(
        nested,
        new_to_old={"params.encoder": "params.encoder"},
        ignore_model_keys=("**.new",),
    )
    with caplog.at_level(logging.INFO, "kauldron"):
        loader.transform(state.replace(collections={"stats": NORM}))
    (record,) = caplog.records
    first, *lines = record.message.splitlines()
    assert first.startswith("Loaded 4 arrays from ")
    assert first.endswith("ckpt_9 (kept their values: 5, skipped: 13):")
    assert lines == [
        "  params.encoder.layers[0]: 1 loaded, 1 kept",
        "  params.encoder.layers[1]: 1 loaded, 1 kept",
        "  params.encoder.layers[2]: 1 loaded, 1 kept",
        "  params.encoder.norm: 1 loaded",
        "  params.top: 1 kept",
        "  collections: 1 kept",
        "  skipped: opt_state (11), params.head (1), step (1)",
    ]


def test_report_of_a_large_model_is_short(nested, caplog):
    def blocks(count):
        return {f"block_{i}": {"w": zeros(2), "v": zeros(2)} for i in range(count)}

    state = _state({f"part_{i}": blocks(15) for i in range(20)})
    names = {
        f"params.part_{i}.block_{j}.w": "params.encoder.norm.scale"
        for i in range(3)
        for j in range(15)
    }
    with caplog.at_level(logging.INFO, "kauldron"):
        _loader(nested, new_to_old=names).transform(state)
    (record,) = caplog.records
    assert "params: 45 loaded, 555 kept" in record.message
    assert len(record.message.splitlines()) <= 12


def test_loading_nothing_is_a_warning(nested, caplog):
    loader = _loader(
        nested,
        new_to_old={"params": "params.encoder"},
        ignore_model_keys=("**",),
        ignore_restored_keys=("**",),
    )
    loader.transform(_state({"other": HEAD}))
    (record,) = (r for r in caplog.records if r.levelno == logging.WARNING)
    assert record.message.startswith("Loaded 0 arrays")


@pytest.mark.parametrize(
    "kwargs",
    [
        {"new_to_old": {"params..a": "params"}},
        {"new_to_old": {"params": "params["}},
        {"ignore_model_keys": ("layers[*].w",)},
        {"ignore_restored_keys": ("a.***",)},
    ],
)
def test_misspelt_paths_are_told_at_construction(kwargs):
    with pytest.raises(kontext.PathSyntaxError):
        _loader("anywhere", **kwargs)


def test_old_path_that_does_not_exist_names_close_ones(nested):
    loader = _loader(nested, new_to_old={"params": "params.encoer"})
    with pytest.raises(KeyError, match=r"nothing at 'params\.encoer'.*params\.encoder"):
        loader.transform(_state({"w": zeros(1)}))


def test_new_path_that_does_not_exist_is_told(nested):
    loader = _loader(nested, new_to_old={"params.enc": "params.encoder"})
    with pytest.raises(KeyError, match=r"params\.enc"):
        loader.transform(_state({"w": zeros(1)}))


def test_other_shape_is_refused_with_both_paths_and_shapes(nested):
    loader = _loader(nested, new_to_old={"params.out.w": "params.head.kernel"})
    with pytest.raises(ValueError) as error:
        loader.transform(_state({"out": {"w": zeros((2, 6))}}))
    assert (
        "params.out.w (from params.head.kernel): model (2, 6) vs checkpoint (2, 5)"
        in str(error.value)
    )


def test_other_kind_of_numbers_is_refused_with_both_paths(nested):
    loader = _loader(nested, new_to_old={"params.ids": "params.encoder.norm.scale"})
    with pytest.raises(kd.ckpts.StructureMismatch) as error:
        loader.transform(_state({"ids": zeros(2, jnp.int32)}))
    assert (
        "params.ids (from params.encoder.norm.scale): model int32 vs checkpoint float32"
        in str(error.value)
    )


def test_integers_may_become_numbers_of_another_kind(nested):
    loader = _loader(
        nested, new_to_old={"params.w": "params.encoder.layers[1].w", "step": "step"}
    )
    loaded = loader.transform(_state({"w": zeros(2, jnp.bfloat16)}))
    assert loaded.params["w"].tolist() == [1, 1]
    assert loaded.params["w"].dtype == jnp.bfloat16


def test_empty_collections_on_both_sides_fit(nested):
    loader = _loader(nested, new_to_old={"collections": "collections"})
    assert loader.transform(_state({})).collections == {}


def test_collections_only_in_the_checkpoint_must_be_ignored_explicitly(workdir):
    state = make_state(optimizer=False).replace(collections={})
    with pytest.raises(ValueError, match=r"collections\.stats\.mean"):
        _loader(workdir).transform(state)
    loader = _loader(workdir, ignore_restored_keys=("collections.**",))
    assert loader.transform(state).collections == {}


#
# The optimizer, and going on
#


def test_optimizer_state_is_loaded_after_the_optimizer_was_made(workdir):
    names = {name: name for name in ("step", "params", "collections", "opt_state")}
    loader = _loader(workdir, new_to_old=names)
    state = loader.transform(make_state(optimizer=False))
    assert int(state.step) == 2 and state.opt_state is None
    state = state.replace(opt_state=optax.adam(1.0).init(state.params))
    state = state.replace(opt_state=jax.tree.map(lambda x: x + 1, state.opt_state))
    state = loader.transform_after_optimizer(state)
    assert_equal(state, make_state(2))
    assert isinstance(state.opt_state[0], optax.ScaleByAdamState)


@pytest.mark.parametrize(
    "new, old",
    [
        ("opt_state[0]", "opt_state[0]"),
        ("opt_state.0.mu", "opt_state[0].mu"),
        ("opt_state[0].count", "step"),
    ],
)
def test_parts_of_the_optimizer_state(workdir, new, old):
    loader = _loader(workdir, new_to_old={new: old})
    untouched = make_state(optimizer=False)
    assert loader.transform(untouched) is untouched
    loaded = loader.transform_after_optimizer(make_state())
    assert int(loaded.opt_state[0].count) == (2 if old == "step" else 0)


def test_both_halves_load_the_same_checkpoint_while_the_other_run_goes_on(tmp_path):
    writer = make_checkpointer(tmp_path)
    save_steps(writer, [1])
    loader = _loader(
        tmp_path, new_to_old={"params": "params", "opt_state[0].count": "step"}
    )
    state = loader.transform(make_state())
    save_steps(writer, [2])
    state = loader.transform_after_optimizer(state)
    assert int(state.opt_state[0].count) == 1
    state = loader.transform(make_state())
    assert int(loader.transform_after_optimizer(state).opt_state[0].count) == 2


#
# The folder of the other run
#


def test_nothing_is_changed_there(workdir):
    before = files_below(workdir)
    with _loader(workdir) as loader:
        loader.transform(make_state())
    assert files_below(workdir) == before


def test_missing_folder_is_an_error_and_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError, match="typo"):
        _loader(tmp_path / "typo").transform(make_state())
    assert list(tmp_path.iterdir()) == []


def test_loader_is_a_value_that_survives_a_config(workdir):
    with konfig.imports():
        from kauldron import kd as kd_cfg
    cfg = kd_cfg.ckpts.PartialLoader(
        workdir=str(workdir),
        new_to_old={"params": "params"},
        ignore_model_keys=("**.bias",),
    )
    first = konfig.resolve(cfg)
    again = konfig.resolve(json.loads(cfg.to_json()))
    assert first == again and hash(first) == hash(again)
    first.transform(make_state())
    assert first == again


#
# Without renaming
#


def test_simple_loader_loads_parameters_and_collections(workdir):
    loader = kd.ckpts.SimpleCheckpointLoader(workdir=workdir)
    state = loader.transform_after_optimizer(loader.transform(make_state()))
    assert_equal(state.params, make_state(2).params)
    assert_equal(state.collections, make_state(2).collections)
    assert_equal(state.opt_state, make_state(0).opt_state)


def test_simple_loader_is_a_context_manager_that_may_be_closed_twice(workdir):
    with kd.ckpts.SimpleCheckpointLoader(workdir=workdir) as loader:
        state = loader.transform(make_state())
    loader.close()
    assert_equal(state.params, make_state(2).params)


def test_simple_loader_loads_the_optimizer_state_on_request(nested, workdir):
    loader = kd.ckpts.SimpleCheckpointLoader(workdir=workdir, load_opt_state=True)
    state = make_state()
    state = state.replace(opt_state=jax.tree.map(lambda x: x + 1, state.opt_state))
    loaded = loader.transform_after_optimizer(loader.transform(state))
    assert_equal(loaded.opt_state, make_state(2).opt_state)


def test_simple_loader_is_strict(workdir):
    loader = kd.ckpts.SimpleCheckpointLoader(workdir=workdir)
    with pytest.raises(ValueError, match=r"model \(4, 5\) vs checkpoint \(4, 3\)"):
        loader.transform(make_state(features=5))
    state = make_state()
    state = state.replace(params={**state.params, "more": ones(1)})
    with pytest.raises(ValueError, match=r"params\.more"):
        loader.transform(state)


def test_folder_stands_for_the_id_of_its_experiment(tmp_path):
    assert kd.ckpts.workdir_from_xid(tmp_path) == epath.Path(tmp_path)
    with pytest.raises((LookupError, NotImplementedError), match="workdir"):
        kd.ckpts.workdir_from_xid(123456789)
    with pytest.raises(ValueError, match=r"cfg\.aux\.xid"):
        kd.ckpts.workdir_from_xid(None)
