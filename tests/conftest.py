"""Settings of the whole suite."""

import os

# Tests are many small programs: the CPU backend, and no memory for a GPU that is there.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis

hypothesis.settings.register_profile(
    "kauldron",
    deadline=None,
    max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("kauldron")
