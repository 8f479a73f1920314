"""Summaries: metrics whose value is a picture, a histogram, a cloud or a text."""

# ruff: noqa: I001 (in the order a reader wants)

from kauldron.summaries import compat as compat
from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    # Pictures.
    from kauldron.summaries.images import ShowImages as ShowImages
    from kauldron.summaries.images import ShowBoxes as ShowBoxes
    from kauldron.summaries.images import ShowSegmentations as ShowSegmentations
    from kauldron.summaries.images import (
        ShowDifferenceImages as ShowDifferenceImages,
    )

    # Everything else.
    from kauldron.summaries.histograms import HistogramSummary as HistogramSummary
    from kauldron.summaries.histograms import Histogram as Histogram
    from kauldron.summaries.pointclouds import ShowPointCloud as ShowPointCloud
    from kauldron.summaries.pointclouds import PointCloud as PointCloud
    from kauldron.summaries.texts import ShowTexts as ShowTexts
