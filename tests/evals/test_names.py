"""What evaluators may be called, and what belongs into `evals`."""

import pytest

from kauldron import kd
from tests.train.toy import make_ds, make_trainer


def evaluator(**kwargs):
    return kd.evals.Evaluator(**{"run": kd.evals.Once(0), "num_batches": 1, **kwargs})


def trainer_with(tmp_path, evals, **changes):
    return make_trainer(tmp_path, eval_ds=make_ds(), evals=evals, **changes)


@pytest.mark.parametrize("name", ["a", "test-set", "v1.5", "_x"])
def test_key_becomes_the_name_and_the_collection(tmp_path, name):
    trainer = trainer_with(tmp_path, {name: evaluator()})
    assert trainer.evals[name].name == name
    assert trainer.evals[name].writer.collection == name


def test_equal_explicit_name_is_fine_and_another_is_refused(tmp_path):
    assert "a" in trainer_with(tmp_path, {"a": evaluator(name="a")}).evals
    with pytest.raises(ValueError, match="'b'"):
        trainer_with(tmp_path, {"a": evaluator(name="b")})


@pytest.mark.parametrize(
    "name",
    ["train", "checkpoints", "plugins", "evals", "array_dumps", "_eval_x"]
    + ["", "a b", "1st", "a/b", ".", ".."],
)
def test_reserved_and_impossible_names_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be the name of an evaluator") as info:
        trainer_with(tmp_path, {name: evaluator()})
    assert repr(name) in str(info.value)


def test_evals_must_be_a_mapping(tmp_path):
    with pytest.raises(TypeError, match="evals"):
        trainer_with(tmp_path, [evaluator()])


def test_value_that_is_no_evaluator_is_named_by_its_key(tmp_path):
    with pytest.raises(TypeError, match="'oops'"):
        trainer_with(tmp_path, {"oops": kd.evals.Once(0)})


def test_missing_data_names_both_places_to_set_it(tmp_path):
    with pytest.raises(ValueError, match=r"cfg\.evals\.a\.ds.*cfg\.eval_ds"):
        make_trainer(tmp_path, evals={"a": evaluator()})


def test_group_called_like_an_evaluator_outside_of_it_is_refused(tmp_path):
    grouped = kd.evals.StandaloneEveryCheckpoint(job_group="b")
    with pytest.raises(ValueError, match="job group 'b' of evaluator 'a'"):
        trainer_with(tmp_path, {"a": evaluator(run=grouped), "b": evaluator()})
    trainer_with(tmp_path, {"a": evaluator(run=grouped), "b": evaluator(run=grouped)})


def test_evaluator_outside_a_trainer_says_what_is_missing():
    with pytest.raises(ValueError, match=r"`Evaluator\.writer` is not set"):
        evaluator().evaluate(None, 0)


def test_once_after_the_last_step_is_warned_about(tmp_path):
    evals = {"late": evaluator(run=kd.evals.Once(11))}
    with pytest.warns(UserWarning, match="late will never run: it waits for step 11"):
        trainer_with(tmp_path, evals, num_train_steps=2, checkpointer=None).train()


def test_training_says_how_to_start_standalone_evaluators(tmp_path, caplog):
    run = kd.evals.StandaloneEveryCheckpoint(job_group="g")
    evals = {"a": evaluator(run=run), "b": evaluator(run=run)}
    with caplog.at_level("INFO", logger="kauldron"):
        trainer_with(tmp_path, evals, num_train_steps=1).train()
    lines = [r.message for r in caplog.records if "another process" in r.message]
    command = f"kauldron eval --workdir={tmp_path} --eval_names=g"
    assert lines == [f"To evaluate a, b, start another process: {command}"]
