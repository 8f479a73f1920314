"""Fixtures for data tests."""

import jax
import pytest


@pytest.fixture
def as_process(monkeypatch):
    """`as_process(index, count)`: from now on, count as that process."""

    def set_process(index, count):
        monkeypatch.setattr(jax, "process_index", lambda: index)
        monkeypatch.setattr(jax, "process_count", lambda: count)

    return set_process
