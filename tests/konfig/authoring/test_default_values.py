"""Fields that nodes of a symbol start with, registered or shipped."""

import itertools
import json

import pytest

from kauldron import konfig

with konfig.imports(lazy=True):
    import defaults_test as m

    from kauldron import kd

counter = itertools.count()


@pytest.fixture
def name():
    """A symbol that no other test has registered."""
    return f"defaults_test:Thing{next(counter)}"


def node(name, **fields):
    return konfig.ConfigDict({"__qualname__": name, **fields})


def test_nodes_start_with_the_defaults_and_given_fields_are_merged(name):
    konfig.register_default_values(node(name, a=1, d={"x": 1}))
    cfg = node(name, z=5, d={"y": 2})
    assert cfg.items() == [
        ("__qualname__", name),
        ("a", 1),
        ("d", {"x": 1, "y": 2}),
        ("z", 5),
    ]


def test_defaults_apply_to_calls_dicts_and_json(name):
    konfig.register_default_values(node(name, a=1))
    symbol = getattr(m, name.partition(":")[2])
    assert symbol(b=2).a == 1
    assert konfig.ConfigDict({"t": {"__qualname__": name}}).t.a == 1
    other_colon = {"__qualname__": name.replace(":", ".")}
    assert konfig.ConfigDict(other_colon).a == 1


def test_instances_share_nothing_with_the_default_or_each_other(name):
    konfig.register_default_values(node(name, d={}, l=[], p=konfig.placeholder(int)))
    first, second = node(name), node(name)
    first.d.x = 1
    first.l.append(1)
    first.p = 3
    assert second == {"__qualname__": name, "d": {}, "l": [], "p": None}


def test_references_of_the_defaults_follow_each_instance(name):
    default = node(name, n=1)
    default.m = default.ref.n * 2
    default.sub = {"k": konfig.ref_fn(lambda n: n + 1, default.ref.n)}
    konfig.register_default_values(default)
    cfg = node(name, n=5)
    assert (cfg.m, cfg.sub.k) == (10, 6)


def test_what_is_given_replaces_nodes_of_other_symbols(name):
    konfig.register_default_values(
        node(name, opt=node("a:f", x=1), w=konfig.placeholder(str))
    )
    assert node(name, opt=node("a:g", y=2)).opt == {"__qualname__": "a:g", "y": 2}
    assert node(name, opt=None).opt is None
    source = konfig.ConfigDict({"dir": "here"})
    cfg = node(name, w=source.ref.dir)
    source.dir = "there"
    assert cfg.w == "there"


def test_registering_twice(name):
    konfig.register_default_values(node(name, a=1, p=konfig.placeholder(int)))
    konfig.register_default_values(node(name, a=1, p=konfig.placeholder(int)))
    with pytest.raises(ValueError, match=r"(?s)already.*a=1"):
        konfig.register_default_values(node(name, a=2))


@pytest.mark.parametrize("value", [konfig.ConfigDict({"a": 1}), {"a": 1}, 3])
def test_only_the_node_of_a_call_can_be_registered(value):
    with pytest.raises(ValueError, match="call"):
        konfig.register_default_values(value)


# ------------------------------------------------------------------------------------
# The trainer
# ------------------------------------------------------------------------------------


def test_a_trainer_starts_with_what_every_config_uses():
    cfg = kd.train.Trainer()
    assert cfg.workdir is None
    assert (cfg.evals, cfg.schedules, cfg.aux) == ({}, {}, {})
    assert cfg.setup.__qualname__ == "kauldron.kd:train.Setup"
    with pytest.raises(TypeError):
        cfg.workdir = 3


def test_values_in_aux_can_be_referred_to_before_and_after_it_is_replaced():
    cfg = kd.train.Trainer()
    cfg.aux.k = 1
    cfg.num_train_steps = cfg.ref.aux.k
    cfg.aux.k = 2
    assert cfg.num_train_steps == 2
    cfg.aux = {"k": 3}
    assert cfg.num_train_steps == 3


def test_any_default_of_the_trainer_can_be_overridden():
    assert kd.train.Trainer(evals=None).evals is None
    other = kd.train.Trainer(setup=kd.train.OtherSetup(a=1)).setup
    assert other == kd.train.OtherSetup(a=1)
    source = konfig.ConfigDict({"x": "/a"})
    assert kd.train.Trainer(workdir=source.ref.x).workdir == "/a"


def test_eval_only_yields_a_complete_config():
    cfg = kd.train.Trainer.eval_only(evals={"e": kd.evals.Evaluator()})
    assert cfg.evals == {"e": kd.evals.Evaluator()}
    assert cfg.setup == kd.train.Setup(eval_only=True)
    assert (cfg.num_train_steps, cfg.stop_after_steps) == (0, 0)
    assert cfg.optimizer is None
    assert cfg.checkpointer is None
    assert cfg.init_transform.__qualname__ == "kauldron.kd:ckpts.PartialKauldronLoader"
    source = cfg.model[0]
    assert source.__qualname__ == "kauldron.kd:from_workdir.locate"
    assert source is cfg.init_transform.workdir is cfg.train_ds.spec[0]


def test_eval_only_follows_aux_however_it_is_set():
    cfg = kd.train.Trainer.eval_only(aux={"workdir": "/run1"})
    assert cfg.model[0][0] == "/run1"
    assert cfg.init_transform.step == -1
    cfg.aux.workdir = "/run2"
    assert cfg.model[0][0] == "/run2"
    cfg.aux = {"workdir": "/run3"}
    assert cfg.model[0][0] == "/run3"
    assert cfg.init_transform.step == -1
    cfg.aux.step = 7
    assert cfg.init_transform.step == 7
    cfg.workdir = "/results"
    assert cfg.model[0].default == "/results"
    assert cfg.to_json()


def test_nodes_given_to_a_symbol_with_defaults_keep_their_identity(name):
    konfig.register_default_values(node(name, evals={}, aux={"x": 1}))
    shared = konfig.ConfigDict({"k": 1})
    cfg = node(name, evals=shared, other=[shared], model=node("a:f", part=shared))
    assert cfg.evals is shared is cfg.other[0] is cfg.model.part
    loaded = konfig.ConfigDict({"root": json.loads(cfg.to_json())}).root
    assert loaded == cfg
    assert loaded.evals is loaded.other[0] is loaded.model.part


def test_a_config_made_from_a_config_is_not_filled_in_again(name):
    konfig.register_default_values(node(name, a=1, d={"x": 1}))
    cfg = node(name)
    del cfg.a
    again = konfig.ConfigDict(cfg)
    assert "a" not in again
    assert again.d is cfg.d
