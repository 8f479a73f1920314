"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.summaries",
    {
        "boxes": "images",
        "segmentations": "images",
        "difference_images": "images",
    },
)
