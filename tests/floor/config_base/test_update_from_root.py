"""Fields that inherit their values from the root trainer."""

import copy
import dataclasses
import pathlib
import pickle
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import pytest

from kauldron import config_base
from kauldron.immutabledict import ImmutableDict

REF = config_base.ROOT_CFG_REF


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data(config_base.UpdateFromRootCfg):
    batch_size: int = 8
    seed: int = REF.seed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part(config_base.UpdateFromRootCfg):
    __root_cfg_fields_to_recurse__: ClassVar[tuple[str, ...]] = ("members",)

    data: Any = None
    members: Any = None
    losses: Mapping[str, Any] = REF.losses

    def __post_init__(self):
        if isinstance(self.losses, dict):
            object.__setattr__(self, "losses", ImmutableDict(self.losses))


class Root(config_base.BaseConfig):
    """A stand-in for the trainer: fills in its parts when it is constructed."""

    seed: int = 0
    workdir: pathlib.Path = pathlib.Path()
    losses: Any = dataclasses.field(default_factory=dict)
    data: Any = None
    part: Any = None

    def __post_init__(self):
        for name in ("data", "part"):
            value = getattr(self, name)
            if isinstance(value, config_base.UpdateFromRootCfg):
                object.__setattr__(self, name, value.update_from_root_cfg(self))


# --------------------------------------------------------------------------------------
# Links to the root
# --------------------------------------------------------------------------------------


def test_reference_is_replaced_by_the_value_of_the_root():
    assert Root(seed=3, data=Data()).data.seed == 3


def test_inherited_value_follows_the_root():
    root = Root(seed=3, data=Data())
    assert root.replace(seed=4).data.seed == 4
    assert root.replace(seed=4).replace(seed=5).data.seed == 5
    assert root.data.seed == 3


def test_value_given_to_the_constructor_is_kept():
    root = Root(seed=3, data=Data(seed=100))
    assert root.data.seed == 100
    assert root.replace(seed=4).data.seed == 100


def test_value_set_by_replace_is_kept():
    root = Root(seed=3, data=Data())
    root = root.replace(data=dataclasses.replace(root.data, seed=100))
    assert root.data.seed == 100
    assert root.replace(seed=4).data.seed == 100


def test_changing_another_field_keeps_the_link():
    root = Root(seed=3, data=Data())
    root = root.replace(data=dataclasses.replace(root.data, batch_size=16))
    assert root.replace(seed=4).data == Data(batch_size=16, seed=4)


def test_setting_the_value_already_inherited_keeps_the_link():
    root = Root(seed=3, data=Data())
    root = root.replace(data=dataclasses.replace(root.data, seed=3))
    assert root.replace(seed=4).data.seed == 4


def test_object_is_moved_from_one_root_to_another():
    data = Root(seed=3, data=Data()).data
    assert Root(seed=7, data=data).data.seed == 7


def test_reference_given_explicitly_is_resolved_whatever_the_default():
    root = Root(seed=3, data=Data(batch_size=REF.seed))
    assert root.data.batch_size == 3
    assert root.replace(seed=4).data.batch_size == 4


def test_reference_to_the_root_itself():
    root = Root(part=Part(data=REF))
    assert root.part.data is root
    changed = root.replace(seed=1)
    assert changed.part.data is changed


def test_reference_to_an_item():
    assert Root(losses={"a": 1}, data=Data(seed=REF.losses["a"])).data.seed == 1


def test_value_normalised_by_the_constructor_stays_linked():
    root = Root(losses={"a": 1}, part=Part())
    assert root.part.losses == {"a": 1}
    assert isinstance(root.part.losses, ImmutableDict)
    assert root.replace(losses={"b": 2}).part.losses == {"b": 2}
    explicit = dataclasses.replace(root.part, losses={"c": 3})
    assert root.replace(part=explicit).replace(losses={}).part.losses == {"c": 3}


def test_container_made_anew_by_the_constructor_stays_linked():
    loss = object()
    root = Root(losses={"a": loss}, part=Part())
    copied = dataclasses.replace(root.part, losses=ImmutableDict(a=loss))
    assert root.replace(part=copied).replace(losses={}).part.losses == {}
    other = dataclasses.replace(root.part, losses=ImmutableDict(a=object()))
    assert "a" in root.replace(part=other).replace(losses={}).part.losses


def test_equal_paths_are_the_same_value():
    part = dataclasses.replace(
        Root(workdir="a", part=Part(data=REF.workdir)).part, data=pathlib.Path("a")
    )
    assert Root(workdir="b", part=part).part.data == pathlib.Path("b")


def test_nothing_to_change_gives_the_same_object():
    root = Root(seed=3, losses={"a": 1}, data=Data(), part=Part(data=Data()))
    assert root.data.update_from_root_cfg(root) is root.data
    assert root.part.update_from_root_cfg(root) is root.part
    explicit = Data(seed=1)
    assert explicit.update_from_root_cfg(root) is explicit


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))]
)
def test_link_survives_copies(duplicate):
    data = duplicate(Root(seed=3, data=Data()).data)
    assert data == Data(seed=3)
    assert Root(seed=4, data=data).data.seed == 4


def test_missing_attribute_of_the_root_names_class_field_and_reference():
    with pytest.raises(
        AttributeError, match=r"Data\.seed = ROOT_CFG_REF\.sed: .*'sed'"
    ):
        Root(data=Data(seed=REF.sed))


def test_missing_item_of_the_root_keeps_the_type_of_the_error():
    with pytest.raises(KeyError, match=r"Data\.seed = ROOT_CFG_REF\.losses\['x'\]"):
        Root(data=Data(seed=REF.losses["x"]))


# --------------------------------------------------------------------------------------
# Nesting
# --------------------------------------------------------------------------------------


def test_nested_object_is_updated():
    root = Root(seed=3, part=Part(data=Data()))
    assert root.part.data.seed == 3
    assert root.replace(seed=4).part.data.seed == 4


class Pair(NamedTuple):
    a: Any
    b: Any


@pytest.mark.parametrize(
    "container, get",
    [
        ({"x": Data()}, lambda c: c["x"]),
        (ImmutableDict(x=Data()), lambda c: c.x),
        ([1, Data()], lambda c: c[1]),
        ((Data(), "text"), lambda c: c[0]),
        ({"x": [Data()]}, lambda c: c["x"][0]),
        (Pair(1, Data()), lambda c: c.b),
    ],
)
def test_members_of_listed_containers_are_updated(container, get):
    members = Root(seed=3, part=Part(members=container)).part.members
    assert type(members) is type(container)
    assert get(members).seed == 3
    assert get(container).seed == REF.seed


def test_other_members_are_left_alone():
    members = {"a": object(), "b": None, "c": Data(seed=1)}
    assert Root(part=Part(members=members)).part.members is members


def test_containers_in_other_fields_are_not_entered():
    data = [Data()]
    assert Root(part=Part(data=data)).part.data is data


def test_value_taken_from_the_root_for_a_listed_field_is_updated():
    root = Root(seed=3, losses={"x": Data()}, part=Part(members=REF.losses))
    assert root.part.members["x"].seed == 3


def test_fields_to_recurse_are_merged_over_classes():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Child(Part):
        __root_cfg_fields_to_recurse__: ClassVar[tuple[str, ...]] = ("extra",)
        extra: Any = None

    root = Root(seed=3, part=Child(members=[Data()], extra=[Data()]))
    assert root.part.members[0].seed == root.part.extra[0].seed == 3


def test_field_listed_twice_is_refused():
    with pytest.raises(ValueError, match=r"Child.*members"):

        class Child(Part):
            __root_cfg_fields_to_recurse__ = ("members",)


def test_method_can_be_overridden():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Doubles(Data):
        double: int = 0

        def update_from_root_cfg(self, root):
            new = super().update_from_root_cfg(root)
            return dataclasses.replace(new, double=2 * new.seed)

    root = Root(seed=3, data=Doubles())
    assert root.data.double == 6
    assert root.replace(seed=4).data == Doubles(seed=4, double=8)


def test_with_base_config():
    class Evaluator(config_base.BaseConfig, config_base.UpdateFromRootCfg):
        data: Any = REF.data
        base_cfg: Any = dataclasses.field(default=REF, repr=False)
        losses: Any = REF.losses

    root = Root(seed=3, losses={"a": 1}, data=Data(), part=Evaluator())
    assert root.part.data is root.data
    assert root.part.base_cfg is root
    assert root.part.losses is root.losses
    other = root.replace(data=Data(seed=9))
    assert other.part.data.seed == 9


# --------------------------------------------------------------------------------------
# The rest of the object
# --------------------------------------------------------------------------------------


def test_memory_is_no_part_of_the_value():
    root = Root(seed=3, data=Data())
    assert root.data == Data(seed=3)
    assert hash(root.data) == hash(Data(seed=3))
    assert repr(root.data) == "Data(batch_size=8, seed=3)"


def test_memory_is_not_exported():
    exported = Root(seed=3, data=Data()).data.__konfig_export__()
    assert exported == {"__qualname__": f"{__name__}:Data", "batch_size": 8, "seed": 3}


def test_object_knows_what_it_inherited():
    data = Root(seed=3, data=Data()).data
    assert data._is_inherited("seed")
    assert Data()._is_inherited("seed")
    assert not data._is_inherited("batch_size")
    assert not dataclasses.replace(data, seed=100)._is_inherited("seed")


def test_unresolved_field_is_named():
    with pytest.raises(ValueError, match=r"Data\.seed.*ROOT_CFG_REF\.seed.*Trainer"):
        Data()._assert_root_cfg_resolved()
    with pytest.raises(ValueError, match=r"Data\.seed"):
        Part(losses={}, data=Data())._assert_root_cfg_resolved()


def test_resolved_object_passes():
    Root(data=Data()).data._assert_root_cfg_resolved()
    assert Data(seed=0)._assert_root_cfg_resolved() is None
