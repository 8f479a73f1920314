"""Names of the past that say what replaced them."""

from typing import Any, NoReturn


class Summary:
    """Replaced by `ShowImages` and the other summaries, which are metrics."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"kd.summaries.{cls.__name__} is gone: use kd.summaries.ShowImages instead."
        )


class ImageSummary(Summary):
    """Replaced by `ShowImages`."""
