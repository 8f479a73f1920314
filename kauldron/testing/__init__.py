"""Helpers for the tests of experiments."""

from __future__ import annotations

import sys

from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    from kauldron.testing import assert_utils as assert_utils
    from kauldron.testing.step_specs import assert_step_specs as assert_step_specs

if "pytest" in sys.modules:  # then failing asserts in there explain themselves
    sys.modules["pytest"].register_assert_rewrite(
        f"{__name__}.assert_utils", f"{__name__}.step_specs"
    )
