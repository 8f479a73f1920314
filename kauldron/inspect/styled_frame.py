"""A table that keeps how it is to be shown in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler


class StyledDataFrame(pd.DataFrame):
    """A data frame that a notebook shows with a style.

    Attributes:
      current_style: The style. It can be changed in place; `frame.style` is a new one
        each time.

    Example:
      >>> frame = StyledDataFrame({"loss": [0.25, 0.125]})
      >>> _ = frame.current_style.format("{:.2f}")
      >>> "0.25" in frame._repr_html_() and "0.12" in frame._repr_html_()
      True
    """

    _metadata = ["_current_style"]

    @property
    def current_style(self) -> Styler:
        """The style that the frame is shown with."""
        style = self.__dict__.get("_current_style")
        if style is None or style.data is not self:
            style = self.style
            object.__setattr__(self, "_current_style", style)
        return style

    @property
    def _constructor(self) -> Callable[..., Any]:
        return StyledDataFrame

    def _repr_html_(self) -> str:
        return self.current_style.to_html()
