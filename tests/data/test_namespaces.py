"""What `kd.data` offers, and what it does not import."""

import subprocess
import sys

import pytest

from kauldron import kd
from kauldron.data import transforms


@pytest.mark.parametrize("namespace", ["data", "data.py", "data.iters", "data.utils"])
def test_every_name_is_there(namespace):
    module = kd
    for part in namespace.split("."):
        module = getattr(module, part)
    names = [name for name in dir(module) if not name.startswith("_")]
    assert names
    for name in names:
        if name in ("tf", "TFDataIterator"):  # need TensorFlow
            continue
        assert getattr(module, name) is not None


def test_transforms_are_the_same_objects_everywhere():
    for name in (
        "Elements",
        "AddConstants",
        "ElementWiseTransform",
        "TreeFlattenWithPath",
        "Cast",
        "CenterCrop",
        "Gather",
        "Rearrange",
        "Resize",
        "ValueRange",
    ):
        assert getattr(kd.data.py, name) is getattr(kd.data, name)
        assert getattr(kd.data, name) is getattr(transforms, name)


def test_pipelines_are_made_and_read_without_heavy_libraries():
    script = """
import sys
import kauldron
from kauldron import kd
kd.data.py.DataSource, kd.data.Pipeline, kd.data.ElementSpecDataset, kd.data.py.Tfds
import numpy as np
ds = kd.data.py.Arrays(
    {"x": np.arange(8)}, shuffle=True, batch_size=4, num_epochs=1,
    transforms=[kd.data.Cast(key="x", dtype="float32")],
)
assert len([batch for batch in ds]) == 2
ds.element_spec
heavy = ["jax", "tensorflow", "tensorflow_datasets", "datasets", "grain", "PIL", "cv2",
         "orbax", "flax"]
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
