"""Options of a run that are not about the model."""

import dataclasses
import json

import jax
import pytest

from kauldron import kd, konfig
from tests.train.toy import make_trainer


def test_tags_are_a_list_or_a_text_with_commas():
    assert kd.train.Setup(tags="a, b,,c ").tags == ["a", "b", "c"]
    assert kd.train.Setup(tags=("a", "b")).tags == ["a", "b"]
    assert kd.train.Setup().tags == []


def test_fields_of_older_configs_are_accepted():
    setup = kd.train.Setup(
        add_flatboard=True,
        flatboard_build_context=object(),
        tqdm_info=kd.train.TqdmInfo(desc="mine", log_xm=False),
    )
    assert setup.tqdm_info.desc == "mine"


def test_note_that_cannot_be_filled_in_stays_as_it_is(tmp_path, caplog):
    setup = kd.train.Setup(note_template="lr={cfg.aux.lr}", tags="one")
    with caplog.at_level("INFO", logger="kauldron"):
        make_trainer(tmp_path, num_train_steps=1, setup=setup).train()
    info = json.loads((tmp_path / "run_info.json").read_text())
    assert info["note"] == "lr={cfg.aux.lr}" and info["tags"] == ["one"]
    assert "note_template 'lr={cfg.aux.lr}' cannot be filled in" in caplog.text
    assert info["device_count"] == jax.device_count()
    assert {"python", "jax", "flax", "kauldron", "command"} <= set(info)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Silent(kd.train.Setup):
    """Does nothing at the start, and keeps what it is told."""

    told: list = dataclasses.field(default_factory=list)

    def run(self, trainer):
        pass

    def log_status(self, msg):
        self.told.append(msg)


def test_setup_can_be_replaced(tmp_path):
    setup = Silent()
    make_trainer(tmp_path, num_train_steps=1, setup=setup).train()
    assert setup.told == ["Preparing the state", "Starting the training loop at step 0"]


@pytest.fixture
def no_compilation_cache():
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.parametrize("folder", ["cache", None])
def test_compiled_programs_are_kept_where_told(tmp_path, no_compilation_cache, folder):
    folder = folder and str(tmp_path / folder)
    setup = kd.train.Setup(compilation_cache_dir=folder)
    setup.run(make_trainer(tmp_path / "run", setup=setup))
    assert jax.config.jax_compilation_cache_dir == folder


def test_cache_that_the_user_chose_stays(tmp_path, no_compilation_cache):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    kd.train.Setup().run(make_trainer(tmp_path / "run"))
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")


def test_parameters_of_a_launcher_are_kept_but_never_built(tmp_path):
    with konfig.imports(lazy=True):
        import launcher_that_is_not_installed as launcher
    with konfig.imports():
        from kauldron import kd as kd_cfg

    cfg = kd_cfg.train.Trainer()
    cfg.workdir = str(tmp_path)
    cfg.xm_job = launcher.Job(gpus=8)
    trainer = konfig.resolve(cfg)
    assert trainer.xm_job.gpus == 8
    assert trainer.raw_cfg.xm_job.gpus == 8
