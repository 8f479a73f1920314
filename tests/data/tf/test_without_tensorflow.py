"""`kd.data.tf` where TensorFlow is not installed."""

import importlib.util
import subprocess
import sys

import pytest

from kauldron import kd
from kauldron.data import transforms


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_names_are_there_without_importing_tensorflow():
    code = (
        "import sys\n"
        "from kauldron import kd\n"
        "kd.data.tf.Tfds, kd.data.tf.SampleFromDatasets, kd.data.tf.InceptionCrop\n"
        "kd.data.tf.RandomCrop(key='x', shape=(3,)), kd.data.tf.Cast\n"
        "heavy = ['tensorflow', 'tensorflow_datasets', 'grain']\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert run(code) == "[]"


def test_pipeline_without_tensorflow_names_the_extra():
    code = (
        "import importlib.util\n"
        "find_spec = importlib.util.find_spec\n"
        "def find_none(name, package=None):\n"
        "    return None if name == 'tensorflow' else find_spec(name, package)\n"
        "importlib.util.find_spec = find_none\n"
        "from kauldron import kd\n"
        "try:\n"
        "    kd.data.tf.Tfds('mnist', split='train')\n"
        "except ImportError as error:\n"
        "    print(error)"
    )
    assert run(code) == 'kd.data.tf needs TensorFlow: pip install "kauldron[tf]"'


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is not None, reason="TensorFlow is installed"
)
def test_using_tensorflow_that_is_not_installed_names_the_extra():
    from kauldron.data.transforms.values import tf

    with pytest.raises(ImportError, match=r'pip install "kauldron\[tf\]"'):
        tf.constant(1)


def test_element_spec_dataset_needs_no_tensorflow():
    assert kd.data.tf.ElementSpecDataset is kd.data.ElementSpecDataset


def test_neutral_transforms_are_the_same_objects():
    for name in (
        "AddConstants",
        "Cast",
        "CenterCrop",
        "Elements",
        "ElementWiseTransform",
        "Gather",
        "OneHot",
        "Rearrange",
        "ResizeSmall",
        "TreeFlattenWithPath",
        "ValueRange",
    ):
        assert getattr(kd.data.tf, name) is getattr(transforms, name)


def test_tensorflow_transform_in_a_numpy_pipeline_is_refused():
    crop = kd.data.tf.RandomCrop(key="x", shape=(2,))
    with pytest.raises(ValueError, match=r"kd\.data\.py\.RandomCrop"):
        kd.data.py.DataSource([{"x": 1}], shuffle=False, transforms=[crop])


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ValueError, lambda: kd.data.tf.RandomCrop(key="x", shape=(-1,))),
        (ValueError, lambda: kd.data.tf.Resize(key="x", height=0, width=3)),
        (
            ValueError,
            lambda: kd.data.tf.Resize(key="x", height=3, width=3, method="best"),
        ),
        (ValueError, lambda: kd.data.tf.InceptionCrop(key="x", resize_size=3)),
        (ValueError, lambda: kd.data.tf.InceptionCrop(key="x", resize_method="best")),
        (ValueError, lambda: kd.data.tf.InceptionCrop(key="x", area_range=(0, 1))),
        (KeyError, lambda: kd.data.tf.RandomFlipLeftRight(key="")),
    ],
)
def test_bad_arguments_of_transforms_are_found_at_construction(error, make):
    with pytest.raises(error):
        make()


def test_sizes_are_called_what_the_user_calls_them():
    with pytest.raises(ValueError, match="height, width=0"):
        kd.data.tf.Resize(key="x", height=0, width=3)
