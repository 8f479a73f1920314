"""Whatever happens to a run, it continues as if nothing had happened, or says why not."""

import pytest

from tests.faults import faults, rounds

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return rounds.Lab(tmp_path_factory.mktemp("faults"))


def _parameters():
    for fault in faults.FIXED:
        marks = []
        if fault.needs_disk:
            marks.append(
                pytest.mark.skipif(not rounds.can_mount(), reason="needs a small disk")
            )
        yield pytest.param(fault, id=str(fault), marks=marks)


@pytest.mark.parametrize("fault", list(_parameters()))
def test_run_survives(fault, lab):
    rounds.run(fault, lab)
