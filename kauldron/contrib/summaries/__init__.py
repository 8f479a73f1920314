"""More summaries: grids of images, confusion matrices, videos, values in the log."""

from kauldron.contrib.summaries.confusion_matrix import (
    ConfusionMatrix as ConfusionMatrix,
)
from kauldron.contrib.summaries.image_grid import ImageGrid as ImageGrid
from kauldron.contrib.summaries.printed_values import Print as Print
from kauldron.contrib.summaries.videos import ShowVideosAsGif as ShowVideosAsGif
