"""The paths under which models of `contrib` are found."""

import importlib

import pytest

from kauldron import kd, konfig


@pytest.mark.parametrize("package", ["nn", "modules"])
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("readout", "ReadoutWrapper"),
        ("from_xid", "get_model_from_xid"),
        ("nnx_wrapper", "linen_from_nnx"),
        ("nnx_wrapper", "LinenFromNnxDef"),
        ("knnx", "KdNnxModule"),
        ("knnx", "LinenModuleFromNnxDef"),
        ("knnx_examples", "SimpleKdNnxModule"),
    ],
)
def test_paths_lead_to_the_same_objects(package, module, name):
    here = importlib.import_module(f"kauldron.contrib.{package}.{module}")
    real = importlib.import_module(f"kauldron.contrib.nn.{module}")
    assert getattr(here, name) is getattr(real, name)
    namespace = getattr(kd.contrib, package)
    if name in dir(namespace):
        assert getattr(namespace, name) is getattr(real, name)


def test_knnx_stands_in_contrib_itself():
    from kauldron.contrib import knnx

    assert knnx.KdNnxModule is kd.contrib.nn.knnx.KdNnxModule
    assert kd.contrib.knnx.KdNnxModule is knnx.KdNnxModule


def test_configs_name_the_submodule_they_imported():
    with konfig.imports():
        from kauldron.contrib.modules import knnx_examples
    cfg = knnx_examples.SimpleKdNnxModule(input_dim=4)
    assert (
        cfg.__qualname__ == "kauldron.contrib.modules.knnx_examples:SimpleKdNnxModule"
    )
    assert konfig.resolve(cfg).input_dim == 4
