"""Older module paths and where their names live now."""

from kauldron.summaries import boxes, difference_images, images, segmentations

vars(images).update(
    ShowBoxes=boxes.ShowBoxes,
    ShowSegmentations=segmentations.ShowSegmentations,
    ShowDifferenceImages=difference_images.ShowDifferenceImages,
)
