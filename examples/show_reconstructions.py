"""A picture of what an autoencoder run learned.

    python examples/show_reconstructions.py WORKDIR

Shows how to get a finished run back: its config, its trainer and its weights.
"""

import pathlib
import sys

import numpy as np

from kauldron import kd
from kauldron.writers.png import encode_png, to_uint8

NUM_DIGITS = 8


def main(workdir: str) -> None:
    """Write `reconstructions.png` into the workdir."""
    trainer = kd.from_workdir.get_trainer(workdir)
    state = kd.from_workdir.get_state(workdir)
    images = next(iter(trainer.eval_ds))["image"][:NUM_DIGITS]
    preds = trainer.model.apply(
        {"params": state.params}, images, is_training_property=False
    )
    rows = [
        np.concatenate(list(pad(part)), axis=1) for part in (images, preds["image"])
    ]
    picture = np.concatenate(rows, axis=0).repeat(8, axis=0).repeat(8, axis=1)
    path = pathlib.Path(workdir) / "reconstructions.png"
    path.write_bytes(encode_png(to_uint8(picture)))
    print(
        f"{path}: {NUM_DIGITS} held-out digits above, what the model makes of them below"
    )


def pad(images):
    """A thin border around each picture."""
    return np.pad(np.asarray(images), ((0, 0), (1, 1), (1, 1), (0, 0)))


if __name__ == "__main__":
    main(sys.argv[1])
