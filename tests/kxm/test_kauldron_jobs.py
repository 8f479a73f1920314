"""The jobs that a trainer's config asks for."""

import logging

import pytest

from kauldron import kd, kxm

GROUPED = """
group = kd.evals.StandaloneEveryCheckpoint(job_group='grouped_evals')
cfg.evals = {
    'eval_train': kd.evals.Evaluator(run=group),
    'eval_test': kd.evals.Evaluator(run=group),
    'isolated': kd.evals.Evaluator(
        run=kd.evals.StandaloneLastCheckpoint(platform='a100=1', env_vars={'A': 'b'})),
    'along': kd.evals.Evaluator(run=kd.evals.EveryNSteps(10)),
    'once': kd.evals.Evaluator(run=kd.evals.Once(10)),
    'plain': kd.evals.Evaluator(),
}
"""


@pytest.fixture
def jobs(config):
    def make(body, **params):
        provider = kxm.ConfigProvider.from_path(config(body))
        xp = kxm.Experiment(
            jobs_provider=kxm.KauldronJobs(), cfg_provider=provider, **params
        )
        return xp.resolved_jobs

    return make


def test_evaluators_of_a_group_share_a_job(jobs):
    made = jobs(GROUPED)
    assert list(made) == ["train", "grouped_evals", "isolated"]
    assert made["grouped_evals"].args["eval_names"] == "eval_train,eval_test"
    assert made["isolated"].args["eval_names"] == "isolated"
    assert "eval_names" not in made["train"].args


def test_parameters_of_a_strategy_are_those_of_its_job_alone(jobs):
    made = jobs(GROUPED)
    assert made["isolated"].platform == "a100=1"
    assert made["isolated"].env_vars == {"A": "b"}
    assert made["train"].platform is made["grouped_evals"].platform is None


def test_evaluations_of_the_last_checkpoint_wait_for_the_end_of_training(jobs):
    made = jobs(GROUPED)
    assert made["isolated"].after == {"train": "succeeded"}
    assert made["grouped_evals"].after == {"train": "started"}
    assert made["train"].after == {}


def test_strategies_carry_all_parameters_in_python_too():
    run = kd.evals.StandaloneLastCheckpoint(
        platform="a100=1", env_vars={"A": 1}, args={"x": 2}, requirements={"ram": 3}
    )
    assert run.platform == "a100=1"
    assert run.job_params["args"] == {"x": 2}
    assert isinstance(hash(run), int)


def test_parameters_of_a_group_are_merged_and_conflicts_name_the_evaluators(jobs):
    body = """
cfg.evals = {
    n: kd.evals.Evaluator(
        run=kd.evals.StandaloneEveryCheckpoint(job_group='g', env_vars={n: 1}, cell=n))
    for n in ('a', 'b')
}
"""
    with pytest.raises(ValueError, match=r"cfg\.evals\.a\.run.*cfg\.evals\.b\.run"):
        jobs(body)
    assert jobs(body.replace(", cell=n", ""))["g"].env_vars == {"a": 1, "b": 1}


@pytest.mark.parametrize("group, name", [("train", "a"), (None, "train")])
def test_no_evaluator_takes_the_place_of_training(jobs, group, name):
    body = f"""
cfg.evals = {{{name!r}: kd.evals.Evaluator(
    run=kd.evals.StandaloneLastCheckpoint(job_group={group!r}))}}
"""
    with pytest.raises(ValueError, match="name of the training job"):
        jobs(body)


def test_a_group_with_the_name_of_an_evaluator_outside_is_refused(jobs):
    body = """
cfg.evals = {
    'a': kd.evals.Evaluator(run=kd.evals.StandaloneLastCheckpoint(job_group='b')),
    'b': kd.evals.Evaluator(),
}
"""
    with pytest.raises(ValueError, match="also the name of an evaluator"):
        jobs(body)


def test_other_classes_as_strategies_name_evaluator_and_class(jobs):
    with pytest.raises(TypeError, match=r"evals\.a\.run is a flax\.linen:Dense"):
        jobs("cfg.evals = {'a': kd.evals.Evaluator(run=nn.Dense(3))}")


def test_eval_only_configs_have_no_training(jobs):
    body = """
cfg.setup = kd.train.Setup(eval_only=True)
cfg.xm_job = kxm.Job(platform='cpu')
cfg.evals = {
    'last': kd.evals.Evaluator(run=kd.evals.StandaloneLastCheckpoint()),
    'along': kd.evals.Evaluator(run=kd.evals.EveryNSteps(10)),
}
"""
    made = jobs(body)
    assert list(made) == ["last", "eval_only"]
    assert made["eval_only"].platform == "cpu"
    assert made["eval_only"].args["eval_names"] == "along"
    assert made["last"].after == made["eval_only"].after == {}
    with pytest.raises(ValueError, match="no evaluators"):
        jobs("cfg.setup = kd.train.Setup(eval_only=True)")


def test_without_a_config_the_flag_is_named():
    xp = kxm.Experiment(jobs_provider=kxm.KauldronJobs())
    with pytest.raises(ValueError, match=r"--cfg=path/to/config\.py"):
        _ = xp.resolved_jobs


def test_names_of_the_older_launcher_are_understood(jobs, config, caplog):
    body = """
with konfig.imports():
    from xmanager import xm
cfg.xm_job = kxm.Job(
    requirements=xm.JobRequirements(ram=3, tmp_ram_fs=1), executor=xm.Borg())
"""
    with caplog.at_level(logging.WARNING):
        made = jobs(body)
    assert made["train"].requirements.ram == 3
    assert "cfg.xm_job.executor" in caplog.text


def test_a_label_of_no_file_runs_the_trainer(jobs, caplog):
    with caplog.at_level(logging.WARNING):
        made = jobs("cfg.xm_job = kxm.Job(target='//a/b:trainer')")
    assert made["train"].target == "kauldron.main"
    assert "//a/b:trainer" in caplog.text


def test_jobs_of_the_experiment_are_merged_over_those_of_the_config(jobs):
    made = jobs(
        GROUPED,
        jobs={"train": kxm.Job(platform="cpu"), "more": kxm.Job(target=["x"])},
        env_vars={"ALL": 1},
    )
    assert list(made) == ["train", "grouped_evals", "isolated", "more"]
    assert made["train"].platform == "cpu"
    assert all(job.env_vars["ALL"] == 1 for job in made.values())


def test_conflicting_places_are_named_and_a_flag_settles_it(jobs):
    body = "cfg.xm_job = kxm.Job(platform='cpu')"
    message = (
        r"Error for job 'train': .*'cpu' of cfg\.xm_job, 'gpu=1' of the experiment"
    )
    with pytest.raises(ValueError, match=message):
        jobs(body, platform="gpu=1")
    made = jobs(body, platform="gpu=1", flags=["platform"])
    assert made["train"].platform == "gpu=1"
