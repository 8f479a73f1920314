"""Helpers for the tests of experiments."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.testing import assert_utils as assert_utils
    from kauldron.testing.step_specs import assert_step_specs as assert_step_specs

if "pytest" in sys.modules:  # then failing asserts in there explain themselves
    sys.modules["pytest"].register_assert_rewrite(
        f"{__name__}.assert_utils", f"{__name__}.step_specs"
    )

__getattr__, __dir__ = lazy_namespace(
    __name__,
    {
        "assert_step_specs": f"{__name__}.step_specs:assert_step_specs",
        "assert_utils": f"{__name__}.assert_utils",
    },
)
