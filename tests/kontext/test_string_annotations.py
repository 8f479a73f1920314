"""Keys of classes whose annotations are texts, some of which nobody can evaluate."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Literal, Optional

import pytest

import kauldron.kontext as keys
from kauldron.kontext import get_keypaths

if TYPE_CHECKING:
    from nowhere import Image, Key, Rays


@dataclasses.dataclass
class Model:
    image: keys.Key = keys.REQUIRED
    canvas: Image | None = None  # not a key, and unknown
    mask: Optional[keys.Key] = None  # noqa: UP045
    views: dict[Image, keys.Key] | None = None
    rays: keys.KeyTree[Rays] | None = None
    size: int = 3
    constant: ClassVar[keys.Key] = "x"
    literal: Literal["keys.Key"] = "keys.Key"
    nonsense: 1 + 2 + Image = None


def test_each_field_is_evaluated_on_its_own():
    assert list(get_keypaths(Model())) == ["image", "mask", "views", "rays"]


def test_resolving_does_not_need_the_unknown_types():
    model = Model(image="batch.x", rays=("batch.x", None))
    resolved = keys.resolve_from_keyed_obj({"batch": {"x": 5}}, model)
    assert resolved == {"image": 5, "rays": (5, None)}


def test_class_in_a_function_has_its_keys():
    class Inner:
        x: keys.Key = "a"
        y: keys.KeyTree[list[int]] = "b"

    assert get_keypaths(Inner()) == {"x": "a", "y": "b"}


def test_kontext_may_be_imported_inside_of_the_function():
    from kauldron import kontext

    class Inner:
        x: kontext.Key = "a"
        y: int = 1

    assert "kontext" not in globals()
    assert get_keypaths(Inner()) == {"x": "a"}


class Unknown:
    good: keys.Key
    bad: dict[str, Key]


def test_key_that_cannot_be_evaluated_is_an_error_naming_everything():
    with pytest.raises(NameError) as caught:
        get_keypaths(Unknown())
    text = str(caught.value)
    assert "Unknown.bad" in text
    assert "'dict[str, Key]'" in text
    assert "test_string_annotations': Key." in text
