"""Names that old configs use."""

from __future__ import annotations

from typing import Any, NoReturn

from kauldron.ckpts.partial_loader import PartialKauldronLoader as PartialLoader  # noqa: F401


def workdir_from_xid(*args: Any, **kwargs: Any) -> NoReturn:
    """There are no experiment ids here."""
    raise NotImplementedError("Experiment ids are not known: set `workdir=` instead.")
