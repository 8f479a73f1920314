"""Models of earlier runs."""

import os

import pytest

from kauldron import kd, konfig
from tests.evals.experiments import make_cfg

with konfig.imports():
    from flax import linen as nn

    from kauldron import kd as kd_cfg

get_model_from_workdir = kd.contrib.nn.get_model_from_workdir
get_model_from_xid = kd.contrib.nn.get_model_from_xid


@pytest.fixture
def workdir(tmp_path):
    cfg = make_cfg(tmp_path)
    cfg.model = kd_cfg.nn.FlatAutoencoder(
        inputs="batch.image", encoder=nn.Dense(features=128), decoder=nn.Dense(64)
    )
    (tmp_path / "config.json").write_text(cfg.to_json())
    return tmp_path, cfg


def test_model_is_what_the_stored_config_describes(workdir):
    folder, cfg = workdir
    assert get_model_from_workdir(folder) == konfig.resolve(cfg.model)
    assert get_model_from_xid(str(folder)) == konfig.resolve(cfg.model)
    assert get_model_from_workdir(folder, model_path="model.encoder").features == 128


def test_part_of_the_config_is_changed_before_it_is_resolved(workdir):
    folder, _ = workdir

    def narrow(cfg):
        cfg.features = 4
        return cfg

    found = get_model_from_xid(
        folder, model_path="model.encoder", config_update_fn=narrow
    )
    assert found.features == 4


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to others")
def test_folder_of_another_user_is_restricted_for_a_changed_config_too(workdir):
    folder, _ = workdir
    os.chown(folder / "config.json", 12345, 12345)

    def name_another(cfg):
        return konfig.ConfigDict({"__const__": "os:getcwd"})

    with pytest.raises(konfig.NotAllowedError, match="Another user owns"):
        get_model_from_workdir(folder, config_update_fn=name_another)


def test_nothing_is_read_while_the_config_is_edited(workdir):
    folder, cfg = workdir
    cfg.model = kd_cfg.contrib.nn.get_model_from_xid(xid="nowhere")
    konfig.ConfigDict.from_json(cfg.to_json())
    cfg.model.xid = str(folder)
    assert konfig.resolve(cfg.model).encoder.features == 128


def test_mistakes_are_explained(workdir):
    folder, _ = workdir
    with pytest.raises((LookupError, NotImplementedError), match="workdir"):
        get_model_from_xid(123456789)
    with pytest.raises(NotImplementedError, match="adhoc_from"):
        get_model_from_xid(folder, adhoc_from="head")
    with pytest.raises(KeyError, match="'modle'"):
        get_model_from_workdir(folder, model_path="modle", config_update_fn=repr)
