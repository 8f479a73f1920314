"""What several tests of training look at."""

import threading

import pytest


@pytest.fixture
def new_threads():
    """Names of our threads that the test began, and that have not ended."""
    before = set(threading.enumerate())
    return lambda: [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("kauldron-") and thread not in before
    ]
