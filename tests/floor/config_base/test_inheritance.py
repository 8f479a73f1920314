"""Classes that are dataclasses because of their parent."""

import copy
import dataclasses
import pathlib
import pickle

import pytest
from etils import epath

from kauldron import config_base


class Config(config_base.BaseConfig):
    steps: int = 3
    name: str
    folder: epath.Path | None = None


class Child(Config):
    extra: float = 0.5

    def __post_init__(self):
        object.__setattr__(self, "double", 2 * self.extra)


def test_subclass_is_a_dataclass_with_the_fields_of_its_parents():
    child = Child(name="a")
    names = [field.name for field in dataclasses.fields(child)]
    assert names == ["steps", "name", "folder", "extra"]


def test_required_field_may_follow_a_default():
    assert Config(name="a").steps == 3
    with pytest.raises(TypeError, match="name"):
        Config()


def test_positional_arguments_are_refused():
    with pytest.raises(TypeError, match="keyword arguments only"):
        Config("a")


def test_unknown_keyword_names_the_closest_field():
    with pytest.raises(TypeError, match=r"Config has no field 'setps'.*'steps'"):
        Config(name="a", setps=1)
    with pytest.raises(TypeError, match=r"Its fields: steps, name, folder"):
        Config(name="a", zzz=1)


def test_frozen():
    config = Config(name="a")
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"\.replace\(steps="):
        config.steps = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.other = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        del config.steps


def test_equality_and_hash_by_identity():
    config = Config(name="a")
    assert config == config
    assert config != Config(name="a")
    assert len({config, Config(name="a")}) == 2


def test_replace_runs_the_constructor_again():
    child = Child(name="a")
    changed = child.replace(extra=2.0)
    assert changed.double == 4.0
    assert child.double == 1.0
    assert type(changed) is Child


def test_string_becomes_a_path_only_where_annotated_so():
    class Paths(config_base.BaseConfig):
        path: pathlib.Path
        text: str
        either: str | pathlib.Path

    config = Paths(path="a", text="b", either="c")
    assert config.path == pathlib.Path("a")
    assert (config.text, config.either) == ("b", "c")
    assert isinstance(Config(name="a", folder="gs://x/y").folder, epath.Path)
    assert Config(name="a").folder is None


def test_a_path_may_begin_with_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert Config(name="a", folder="~/runs").folder == epath.Path("/home/me/runs")


def test_string_annotations():
    namespace = {"config_base": config_base, "pathlib": pathlib, "__name__": __name__}
    source = """
from __future__ import annotations
class Deferred(config_base.BaseConfig):
    path: pathlib.Path | None = None
    other: OnlyForTypeCheckersPath = None
"""
    exec(source, namespace)
    deferred = namespace["Deferred"](path="a", other="b")
    assert deferred.path == pathlib.Path("a")
    assert deferred.other == "b"


def test_default_factory_and_init_variables():
    class Factory(config_base.BaseConfig):
        items: list = dataclasses.field(default_factory=list)
        alias: dataclasses.InitVar[list | None] = None

        def __post_init__(self, alias):
            if alias is not None:
                object.__setattr__(self, "items", alias)

    assert Factory(alias=[1]).items == [1]
    assert Factory(alias=[1]).replace().items == [1]
    assert Factory().items is not Factory().items


def test_decorating_a_subclass_changes_nothing():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Decorated(Config):
        extra: int = 1

    a = Decorated(name="a")
    assert a != Decorated(name="a")
    assert repr(a).startswith("test_decorating_a_subclass_changes_nothing")
    assert "\n    steps=3,\n" in repr(a)
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.extra = 2
    with pytest.raises(TypeError, match="Did you mean 'extra'"):
        Decorated(name="a", exta=1)


def test_own_constructor_is_kept():
    class Own(config_base.BaseConfig):
        x: int

        def __init__(self, value):
            object.__setattr__(self, "x", value)

    assert Own(3).x == 3


def test_ref_is_for_configs():
    with pytest.raises(RuntimeError, match="konfig"):
        Config(name="a").ref


def test_repr_is_indented_and_skips_hidden_fields():
    class Outer(config_base.BaseConfig):
        inner: Config
        hidden: int = dataclasses.field(default=1, repr=False)
        number: int = 2

    text = repr(Outer(inner=Config(name="a")))
    assert text.split("Outer", 1)[1] == (
        "(\n    inner=Config(\n        steps=3,\n        name='a',\n"
        "        folder=None,\n    ),\n    number=2,\n)"
    )


def test_repr_of_an_object_that_contains_itself():
    class Loop(config_base.BaseConfig):
        me: object = None
        other: int = 0

    loop = Loop()
    object.__setattr__(loop, "me", loop)
    assert "me=..." in repr(loop)


def test_html_repr_escapes():
    class Tags(config_base.BaseConfig):
        text: str
        long: str

    html = Tags(text="<b>", long="<i>" * 50)._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "<i>" not in html


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]
)
def test_copies(duplicate):
    config = duplicate(Child(name="a", folder="x"))
    assert (config.name, config.folder, config.double) == ("a", epath.Path("x"), 1.0)
