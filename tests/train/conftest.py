"""What several tests of training look at."""

import threading

import pytest

from tests import compilation


@pytest.fixture
def as_for_users():
    """Programs of the test have all optimizations: what it compares depends on them."""
    with compilation.as_for_users():
        yield


@pytest.fixture
def new_threads():
    """Names of our threads that the test began, and that have not ended."""
    before = set(threading.enumerate())
    return lambda: [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("kauldron-") and thread not in before
    ]
