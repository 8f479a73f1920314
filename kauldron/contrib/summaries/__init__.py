"""More summaries: grids of images, confusion matrices, videos, values in the log."""

from kauldron.contrib.summaries.confusion_matrix import (
    ConfusionMatrix as ConfusionMatrix,
)
from kauldron.contrib.summaries.images import ImageGrid as ImageGrid
from kauldron.contrib.summaries.images import ShowVideosAsGif as ShowVideosAsGif
from kauldron.contrib.summaries.texts import Print as Print
from kauldron.contrib.summaries.texts import ShowTokens as ShowTokens
