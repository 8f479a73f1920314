"""What to do about annotations that belong to another checker."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from kauldron.ktyping.code_location import CodeLocation
from kauldron.ktyping.config import ReportingPolicy, get_config
from kauldron.ktyping.contents import contains_jaxtyping
from kauldron.ktyping.formatting import format_annotation

_log = logging.getLogger("kauldron.ktyping")


def apply(annotations: Mapping[str, Any], location: CodeLocation) -> None:
    """Report genuine `jaxtyping` annotations as the configuration says.

    Raises:
      RuntimeError: If there is one and the policy is `ERROR`.
    """
    if "jaxtyping" not in sys.modules:
        return
    policy = get_config(location.module_name).jaxtyping_annotations
    if policy is ReportingPolicy.IGNORE:
        return
    for name, annotation in annotations.items():
        if contains_jaxtyping(annotation) is None:
            continue
        text = (
            f"Parameter {name!r} of {location} has the jaxtyping annotation "
            f"{format_annotation(annotation)}. Use the types of kauldron.ktyping, or set "
            "kt.CONFIG.jaxtyping_annotations."
        )
        if policy is ReportingPolicy.ERROR:
            raise RuntimeError(text)
        if policy is ReportingPolicy.WARN:
            warnings.warn(text, stacklevel=2)
        else:
            _log.info("%s", text)
