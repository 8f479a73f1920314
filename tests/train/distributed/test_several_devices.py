"""Runs `on_eight_devices.py` where JAX sees eight devices."""

import pathlib

import pytest

from tests.eight_devices import passed_on_eight_devices


@pytest.mark.slow
def test_trainers_on_eight_devices():
    file = pathlib.Path(__file__).with_name("on_eight_devices.py")
    assert passed_on_eight_devices(file) >= 23
