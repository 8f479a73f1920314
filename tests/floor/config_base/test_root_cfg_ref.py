"""References to values of the root trainer."""

import copy
import dataclasses
import inspect
import pickle
import types

import pytest

from kauldron import config_base
from kauldron.config_base import find_in_root

REF = config_base.ROOT_CFG_REF


@pytest.mark.parametrize("name", ["seed", "name", "parent", "names", "aux", "items"])
def test_every_public_name_is_a_deeper_reference(name):
    reference = getattr(REF.aux, name)
    assert isinstance(reference, config_base.RootCfgRef)
    assert repr(reference) == f"ROOT_CFG_REF.aux.{name}"


def test_items_are_references():
    assert repr(REF.aux["lr"].x[0]) == "ROOT_CFG_REF.aux['lr'].x[0]"


def test_private_names_are_no_references():
    assert not hasattr(REF, "_private")
    assert not hasattr(REF, "__isabstractmethod__")
    assert not inspect.isabstract(REF)


def test_value_is_found_by_walking_from_the_root():
    root = types.SimpleNamespace(aux={"lr": [types.SimpleNamespace(name=3)]})
    assert find_in_root(REF.aux["lr"][0].name, root) == 3
    assert find_in_root(REF, root) is root


def test_equality_and_hash():
    assert REF.a.b == REF.a.b
    assert REF.a.b != REF.a["b"]
    assert REF.a != "ROOT_CFG_REF.a"
    assert len({REF.a, REF.a, REF.b}) == 2


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))]
)
def test_copies(duplicate):
    reference = REF.a["b"].c
    assert duplicate(reference) == reference


@pytest.mark.parametrize(
    "use",
    [
        lambda r: r(),
        lambda r: list(r),
        lambda r: "x" in r,
        lambda r: setattr(r, "x", 1),
        lambda r: r.__setitem__("x", 1),
    ],
    ids=["call", "iterate", "contains", "assign", "assign item"],
)
def test_what_a_reference_cannot_do(use):
    with pytest.raises((TypeError, AttributeError)):
        use(REF.a)
    assert not callable(REF.a)


def test_default_of_a_class_without_the_mixin_is_refused():
    # Python 3.11 wraps what `__set_name__` raises.
    with pytest.raises((TypeError, RuntimeError)) as info:

        class Plain:
            seed: int = REF.seed

    error = info.value if isinstance(info.value, TypeError) else info.value.__cause__
    assert isinstance(error, TypeError)
    assert "Plain.seed = ROOT_CFG_REF.seed" in str(error)
    assert "UpdateFromRootCfg" in str(error)


def test_default_in_a_field_of_a_class_without_the_mixin_is_refused():
    with pytest.raises((TypeError, RuntimeError)):

        @dataclasses.dataclass
        class Plain:
            seed: int = dataclasses.field(default=REF.seed)


def test_pickle_of_an_older_version_is_read():
    written_before = b"ckauldron.utils.root_cfg_ref\nROOT_CFG_REF\n."
    assert pickle.loads(written_before) is REF
