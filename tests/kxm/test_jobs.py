"""Parameters of jobs: what was given, replacing, merging, showing."""

import dataclasses
import logging

import pytest

from kauldron import kd, kxm
from kauldron.kxm import merging
from kauldron.kxm.jobs import Platform


def test_replace_leaves_the_receiver_as_it_was():
    job = kxm.Job(target="a.py")
    job.replace(platform="cpu")
    assert job.replace(target="b.py").platform is None
    assert job.explicit == {"target": "a.py"}


def test_replace_with_missing_removes_an_argument():
    job = kxm.Job(target="a.py", platform="cpu").replace(platform=dataclasses.MISSING)
    assert job.platform is None
    assert "platform" not in job.explicit


def test_dataclasses_replace_says_what_to_use_instead():
    with pytest.raises(ValueError, match=r"dataclasses.replace.*job\.replace"):
        dataclasses.replace(kxm.Job(), platform="cpu")


def test_unknown_arguments_are_refused_with_the_nearest_name():
    with pytest.raises(TypeError, match="Did you mean 'platform'"):
        kxm.Job(platfrom="cpu")
    with pytest.raises(TypeError, match="Did you mean 'max_parallel'"):
        kxm.Local(max_paralel=3)


def test_repr_shows_all_fields_outside_and_only_given_ones_inside():
    xp = kxm.Experiment(jobs={"main": kxm.Job(platform="cpu")})
    assert "jobs={'main': Job(platform='cpu')}" in repr(xp)
    assert "max_work_units=1000" in repr(xp)


def test_repr_in_notebooks_is_escaped():
    assert "&lt;b&gt;" in kxm.Job(target="<b>")._repr_html_()


def test_jobs_are_equal_by_value_and_not_hashable():
    assert kxm.Job(args={"a": 1}) == kxm.Job(args={"a": 1})
    with pytest.raises(TypeError, match="unhashable"):
        hash(kxm.Job())


@pytest.mark.parametrize(
    "text, kind, count",
    [
        ("cpu", "cpu", 0),
        ("gpu=2", "gpu", 2),
        ("a100=8", "gpu", 8),
        ("v100", "gpu", 1),
        ("v4=2x2x1", "tpu", 4),
        ("jf=4x4", "tpu", 16),
    ],
)
def test_platforms(text, kind, count):
    platform = Platform.parse(text)
    assert (platform.kind, platform.count) == (kind, count)


@pytest.mark.parametrize("text", ["gpu=", "=2", "gpu=two", "gpu=2x", "gpu=0", ""])
def test_malformed_platforms_are_quoted(text):
    with pytest.raises(ValueError, match="platform="):
        kxm.Job(platform=text)


def test_sizes_and_times_are_read():
    wanted = kxm.JobRequirements(ram="16GB", disk="512MiB", time_limit="1-12:00:00")
    assert (wanted.ram, wanted.disk) == (16 * 10**9, 512 * 2**20)
    assert wanted.time_limit == 36 * 60
    assert kxm.JobRequirements(time_limit="2h").time_limit == 120
    assert kxm.JobRequirements(tmp_ram_fs=3).tmp_ram_fs == 3
    with pytest.raises(ValueError, match="'lots'"):
        kxm.JobRequirements(ram="lots")


#
# Merging
#


def test_parameters_of_all_places_are_united():
    job = kxm.merge(
        kxm.Job(args={"a": 1}, debug=kxm.Debug(dump_hlo=True)),
        kxm.Job(args={"b": {"c": 2}}, platform="cpu"),
        kxm.Experiment(
            args={"b": {"d": 3}},
            requirements=kxm.JobRequirements(ram=1),
            debug=kxm.Debug(pytype=True),
            name="xp",
        ),
    )
    assert job.args == {"a": 1, "b": {"c": 2, "d": 3}}
    assert job.debug == kxm.Debug(dump_hlo=True, pytype=True)
    assert job.requirements.ram == 1
    assert job.name is None


def test_standalone_evaluations_are_merged_with_jobs():
    strategy = kd.evals.StandaloneEveryCheckpoint(
        job_group="slow", platform="cpu", env_vars={"A": "1"}
    )
    for objects in ((strategy, kxm.Job(args={"b": 2})), (strategy,)):
        job = kxm.merge(*objects)
        assert (job.platform, job.env_vars) == ("cpu", {"A": "1"})
        assert "job_group" not in job.explicit
    with pytest.raises(ValueError, match="conflicting values"):
        kxm.merge(strategy, kxm.Job(platform="gpu"))


def test_executors_of_one_class_are_merged_and_others_refused():
    a = kxm.Job(executor=kxm.Local(max_parallel=2))
    merged = kxm.merge(a, kxm.Experiment(executor=kxm.Local(fail_fast=True)))
    assert merged.executor == kxm.Local(max_parallel=2, fail_fast=True)
    with pytest.raises(TypeError, match="different types"):
        kxm.merge(a, kxm.Experiment(executor=kxm.DryRun()))


def test_the_name_of_an_experiment_is_not_that_of_its_jobs():
    class Mine(kxm.Experiment):
        pass

    for xp in (kxm.Experiment(name="all"), Mine(name="all")):
        assert kxm.merge(kxm.Job(name="train"), xp).name == "train"
        assert kxm.merge(xp).name is None


def test_conflicts_name_the_path_and_both_places():
    with pytest.raises(ValueError, match=r"\(Job / Experiment\)\.args\.n: conflicting"):
        kxm.merge(kxm.Job(args={"n": 1}), kxm.Experiment(args={"n": 2}))
    with pytest.raises(TypeError, match="different types"):
        kxm.merge(kxm.Job(args={"n": 1}), kxm.Experiment(args={"n": "1"}))


def test_equal_numbers_and_none_do_not_conflict():
    assert kxm.merge(kxm.Job(args={"n": 1}), kxm.Job(args={"n": 1.0})).args == {"n": 1}
    assert kxm.merge(kxm.Job(platform=None), kxm.Job(platform="cpu")).platform == "cpu"


def test_a_flag_beats_a_file_and_the_more_specific_flag_the_general_one(caplog):
    config = merging.Source(label="cfg.xm_job", params=kxm.Job(platform="cpu"))
    general = merging.Source(
        label="the experiment",
        params=kxm.Experiment(platform="gpu=1"),
        flags=frozenset(["platform"]),
        flag="--xp",
    )
    specific = merging.Source(
        label="xp.jobs['train']",
        params=kxm.Job(platform="gpu=2"),
        flags=frozenset(["platform"]),
        flag="--xp.jobs.train",
    )
    with caplog.at_level(logging.WARNING):
        assert merging.merge_sources([config, general]).platform == "gpu=1"
    assert "'cpu' of cfg.xm_job is overridden" in caplog.text
    merged = merging.merge_sources([config, specific, general])
    assert merged.platform == "gpu=2"
