"""Older module paths and where their names live now."""

from kauldron.summaries import boxes, difference_images, images, segmentations

for _show in (
    boxes.ShowBoxes,
    segmentations.ShowSegmentations,
    difference_images.ShowDifferenceImages,
):
    setattr(images, _show.__name__, _show)
