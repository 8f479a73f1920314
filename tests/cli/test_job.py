"""Processes of a job."""

import pytest

from kauldron.cli.job import distributed_options


@pytest.mark.parametrize(
    "environment, options",
    [
        ({}, None),
        ({"SLURM_NTASKS": "8"}, None),
        ({"SLURM_STEP_NUM_TASKS": "1"}, None),
        ({"SLURM_STEP_NUM_TASKS": "2"}, {}),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, {}),
        ({"TPU_WORKER_HOSTNAMES": "a"}, None),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, {}),
        ({"JAX_COORDINATOR_ADDRESS": "a:1"}, {}),
        ({"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "1"}, None),
        ({"JAX_COORDINATOR_ADDRESS": "a:1", "KXM_NUM_PROCESSES": "1"}, None),
        (
            {
                "JAX_COORDINATOR_ADDRESS": "a:1",
                "KXM_NUM_PROCESSES": "3",
                "KXM_PROCESS_ID": "2",
            },
            {"coordinator_address": "a:1", "num_processes": 3, "process_id": 2},
        ),
    ],
)
def test_processes_are_joined_only_if_there_are_several(environment, options):
    assert distributed_options(environment) == options


def test_processes_can_be_joined_by_force():
    assert distributed_options({}, force=True) == {}
