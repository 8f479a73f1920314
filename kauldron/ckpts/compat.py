"""Older names and import paths, kept for configs and pickles that use them."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from kauldron.ckpts import loaders
from kauldron.ckpts.loaders import PartialKauldronLoader as PartialLoader  # noqa: F401


def workdir_from_xid(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse: there are no experiment ids here."""
    raise NotImplementedError("Experiment ids are not known: set `workdir=` instead.")


sys.modules["kauldron.ckpts.loaders"] = loaders
