"""Less talk from the libraries underneath."""

from __future__ import annotations

import logging
import os

from kauldron.import_hooks import on_import

_PACKAGES = ("orbax", "grain", "tensorstore")


def quieten() -> None:
    """Hide INFO records of the checkpointing and data libraries. May be repeated.

    They are back with `logging.getLogger("orbax").setLevel(logging.INFO)`.
    """
    for package in _PACKAGES:
        logger = logging.getLogger(package)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
    on_import("absl.logging", _filter_absl)


def _filter_absl() -> None:
    # These libraries log through absl's single logger, which also serves the user. It
    # is asked for only now: absl has to be the one that creates it.
    logging.getLogger("absl").addFilter(_is_wanted)


def _is_wanted(record: logging.LogRecord) -> bool:
    for package in _PACKAGES:
        if f"{os.sep}{package}{os.sep}" in record.pathname:
            return record.levelno >= logging.getLogger(package).level
    return True
