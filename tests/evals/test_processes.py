"""Training and evaluation in real processes that are stopped, killed and restarted."""

import pathlib
import signal

import pytest

from kauldron import cli, kd
from tests import processes
from tests.compilation import quick_environment
from tests.eight_devices import passed_on_eight_devices
from tests.evals import worker
from tests.evals.experiments import make_cfg, points, standalone, steps

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def kauldron(*arguments):
    return processes.python(
        "-m", "kauldron.main", *arguments, environment=quick_environment()
    )


def worker_process(*arguments):
    return processes.python(
        "-m", "tests.evals.worker", *arguments, environment=quick_environment()
    )


#
# Disturbed
#


@pytest.mark.slow
def test_both_sides_are_killed_and_every_checkpoint_is_evaluated_once(tmp_path):
    training = worker_process("train", tmp_path, "slowly")
    # Killed in the second batch of the second checkpoint.
    killed = worker_process("eval", tmp_path, 5)
    status, output = killed.wait()
    assert status == -signal.SIGKILL, output
    assert steps(tmp_path, "e") == [0]
    # The next one goes on, and survives that training is killed and comes back.
    evaluation = worker_process("eval", tmp_path)
    processes.wait_until(lambda: 10 in steps(tmp_path, "e"), evaluation, training)
    training.send_signal(signal.SIGKILL)
    training.wait()
    status, output = worker_process("train", tmp_path, "slowly").wait()
    assert status == 0, output
    status, output = evaluation.wait()
    assert status == 0, output
    assert steps(tmp_path, "e") == [0, 5, 10, 15, 20]


@pytest.mark.slow
def test_evaluation_that_is_terminated_exits_with_143(tmp_path):
    waiting = worker_process("eval", tmp_path)
    waiting.wait_for("Waiting for")
    waiting.send_signal(signal.SIGTERM)
    status, output = waiting.wait()
    assert status == 143 and "Traceback" not in output, output


@pytest.mark.slow
def test_run_without_a_checkpoint_is_waited_for_until_the_time_limit(tmp_path):
    (tmp_path / "config.json").write_text(
        make_cfg(tmp_path, evals={"e": standalone(timeout_secs=0.5)}).to_json()
    )
    status, output = kauldron("eval", f"--workdir={tmp_path}").wait()
    assert status == 1 and "Traceback" not in output, output
    assert f"Waiting for {tmp_path}/element_spec.json" in output
    assert "error: Nothing appeared for 0.5 seconds" in output


@pytest.mark.slow
def test_two_processes_of_one_job_evaluate_together(tmp_path):
    worker.make(tmp_path).train()
    port = processes.free_port()
    jobs = [
        worker_process("eval", tmp_path, -1, f"localhost:{port}", index)
        for index in range(2)
    ]
    for job in jobs:
        status, output = job.wait()
        assert status == 0, output
    assert steps(tmp_path, "e") == [20]
    alone = worker.make(tmp_path)
    state = alone.checkpointer.restore(alone.init_state())
    expected = alone.evals["e"].evaluate(state, 20).compute().loss_values["losses/l2"]
    assert points(tmp_path, "e")[0][1] == pytest.approx(expected, rel=1e-5)


#
# The examples
#


@pytest.fixture(scope="module")
def autoencoder(tmp_path_factory):
    """The folder of an autoencoder that was evaluated while it trained."""
    folder = tmp_path_factory.mktemp("autoencoder")
    config = f"--cfg={EXAMPLES / 'digits_standalone_eval.py'}"
    short = ("--cfg.num_train_steps=60", "--cfg.checkpointer.save_interval_steps=20")
    flags = (config, f"--cfg.workdir={folder}", "--cfg.profiler=None", *short)
    curves = kauldron("eval", *flags, "--eval_names=curves")
    curves.wait_for("Waiting for")
    status, output = kauldron("train", *flags).wait()
    assert status == 0, output
    assert f"kauldron eval --workdir={folder} --eval_names=curves" in output
    status, output = curves.wait()
    assert status == 0, output
    return folder


@pytest.mark.slow
def test_example_of_standalone_evaluation(autoencoder):
    evaluated = steps(autoencoder, "test", "losses/recon")
    assert evaluated[-1] == 60 and set(evaluated) <= {0, 20, 40, 60}
    assert steps(autoencoder, "train_subset", "losses/recon") == evaluated
    assert cli.main(["eval", f"--workdir={autoencoder}", "--eval_names=last"]) == 0
    last = points(autoencoder, "last", "losses/recon")
    assert last == points(autoencoder, "test", "losses/recon")[-1:]


@pytest.mark.slow
def test_example_of_evaluating_an_earlier_run(tmp_path):
    run, results = tmp_path / "run", tmp_path / "results"
    train = f"--cfg={EXAMPLES / 'digits_classifier.py'}"
    flags = ("--cfg.num_train_steps=40", "--cfg.evals.test.run[0]=40")
    flags += ("--cfg.checkpointer.save_interval_steps=40", "--cfg.profiler=None")
    flags += ("--cfg.model.layers[0].features=8", "--cfg.model.layers[2].features=16")
    assert cli.main(["train", train, f"--cfg.workdir={run}", *flags]) == 0
    config = f"--cfg={EXAMPLES / 'digits_eval_only.py'}"
    folders = (f"--cfg.aux.workdir={run}", f"--cfg.workdir={results}")
    assert cli.main([config, *folders]) == 0
    test, day, night = (
        points(folder, name, "metrics/accuracy")
        for folder, name in ((run, "test"), (results, "day"), (results, "night"))
    )
    assert day == [test[-1]] and day[0][0] == 40
    assert night[0][1] < day[0][1]


@pytest.mark.slow
def test_example_of_starting_from_a_part_of_another_model(autoencoder, tmp_path):
    config = f"--cfg={EXAMPLES / 'finetune_partial_loading.py'}"
    source = f"--cfg.init_transform.workdir={autoencoder}"
    flags = (f"--cfg.workdir={tmp_path}", "--cfg.num_train_steps=100")
    assert cli.main(["train", config, source, *flags, "--cfg.profiler=None"]) == 0
    accuracy = points(tmp_path, "test", "metrics/accuracy")
    assert accuracy[-1][1] > accuracy[0][1] + 0.2
    before, after = (
        kd.from_workdir.get_state(run).params for run in (autoencoder, tmp_path)
    )
    assert (before["encoder"]["kernel"] == after["layers_1"]["kernel"]).all()


#
# Runs `test_every_record.py` where JAX sees eight devices
#


@pytest.mark.slow
def test_every_record_on_eight_devices():
    file = pathlib.Path(__file__).with_name("test_every_record.py")
    assert passed_on_eight_devices(file) >= 26
