"""Older names and import paths, kept for configs and pickles that use them."""

from __future__ import annotations

from typing import Any, NoReturn

from kauldron.ckpts.loaders import PartialKauldronLoader as PartialLoader  # noqa: F401
from kauldron.lazy_namespace import older_modules


def workdir_from_xid(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse: there are no experiment ids here."""
    raise NotImplementedError("Experiment ids are not known: set `workdir=` instead.")


older_modules(
    "kauldron.ckpts",
    {
        "mapped_loader": "loaders",
        "partial_loader": "loaders",
    },
)
