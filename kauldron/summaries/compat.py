"""Older module paths, which pickles and saved configs may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    {
        "kauldron.summaries.boxes": "kauldron.summaries.images",
        "kauldron.summaries.segmentations": "kauldron.summaries.images",
        "kauldron.summaries.difference_images": "kauldron.summaries.images",
    }
)
