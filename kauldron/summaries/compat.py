"""Older module paths, and names of the past that say what replaced them."""

from typing import Any, NoReturn

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.summaries",
    {
        "boxes": "images",
        "deprecated": "compat",
        "segmentations": "images",
        "difference_images": "images",
    },
)


class Summary:
    """Replaced by `ShowImages` and the other summaries, which are metrics."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"kd.summaries.{cls.__name__} is gone: use kd.summaries.ShowImages instead."
        )


class ImageSummary(Summary):
    """Replaced by `ShowImages`."""
