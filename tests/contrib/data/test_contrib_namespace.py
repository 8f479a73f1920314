"""What `kd.contrib.data` gives access to."""

import pytest

from kauldron import konfig


@pytest.mark.parametrize(
    ("qualname", "arguments"),
    [
        ("data.AddBias", {"key": "x", "bias": 1}),
        ("data.CreateNonEqualMask", {"key": "x", "mask_value": 1}),
        ("data.py.Resize", {"size": (2, 2)}),
        ("data.py.LazyArrayRecordDataSource", {"paths": "a"}),
        ("data.JaxImageResize", {"key": "x", "shape": (2, 2)}),
    ],
)
def test_configs_reach_the_names(qualname, arguments):
    cfg = konfig.ConfigDict(
        {"__qualname__": f"kauldron.kd:contrib.{qualname}", **arguments}
    )
    assert type(konfig.resolve(cfg)).__module__.startswith("kauldron.")
