"""Small arrays that stand in for the data sets of the configs."""

import numpy as np

NUM_RECORDS = 64


def mnist():
    """Grey images with a bright bar whose place is the class."""
    labels = np.arange(NUM_RECORDS) % 10
    images = np.random.default_rng(0).integers(0, 50, (NUM_RECORDS, 28, 28, 1))
    for image, label in zip(images, labels):
        image[2 * label : 2 * label + 3] = 255
    return {
        "image": images.astype(np.uint8),
        "label": labels.astype(np.int32),
        "id": np.arange(NUM_RECORDS),
    }


def imagenet():
    """Coloured images whose brightest channel is the class."""
    labels = np.arange(NUM_RECORDS) % 3
    images = np.random.default_rng(0).integers(0, 100, (NUM_RECORDS, 40, 48, 3))
    images[np.arange(NUM_RECORDS), :, :, labels] += 120
    return {"image": images.astype(np.uint8), "label": labels.astype(np.int32)}
