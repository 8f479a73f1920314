"""Runs `test_every_record.py` where JAX sees eight devices."""

import pathlib

import pytest

from tests.eight_devices import passed_on_eight_devices


@pytest.mark.slow
def test_every_record_on_eight_devices():
    file = pathlib.Path(__file__).with_name("test_every_record.py")
    assert passed_on_eight_devices(file) >= 26
