"""Small data that stands in for the data sets of the configs."""

import pathlib

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


def cifar10():
    """Coloured images whose brightest channel is the class."""
    labels = np.arange(NUM_RECORDS) % 3
    images = np.random.default_rng(0).integers(0, 100, (NUM_RECORDS, 32, 32, 3))
    images[np.arange(NUM_RECORDS), :, :, labels] += 120
    return {"image": images.astype(np.uint8), "label": labels.astype(np.int32)}


def write_imagenet(folder: pathlib.Path) -> None:
    """Write coloured images of many sizes as JPEG files, a folder for each class."""
    from PIL import Image

    columns = cifar10()
    for i, (image, label) in enumerate(zip(columns["image"], columns["label"])):
        path = folder / f"n{label:08}" / f"{i}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((40 + i % 7, 48 - i % 5)).save(path, "JPEG")
