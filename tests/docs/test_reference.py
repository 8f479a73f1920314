"""Every public name is in the reference, with a docstring and a readable signature."""

import importlib
import inspect
import pathlib
import re
import types

import pytest

from kauldron import kd

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PAGES = {
    path.stem: re.findall(r"^\.\. namespace:: kauldron\.(\S+)", path.read_text(), re.M)
    for path in DOCS.glob("api/*.md")
}


@pytest.fixture(scope="module")
def public_names():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS / "site"))
        yield importlib.import_module("public_names")


def test_each_namespace_has_its_place_on_one_page(public_names):
    documented = [name for names in PAGES.values() for name in names]
    assert sorted(documented) == sorted(public_names.NAMESPACES)


def test_each_page_is_in_the_contents():
    contents = (DOCS / "api" / "index.md").read_text().split("\n")
    assert PAGES.keys() - {"index"} <= set(contents)


NAMES = [name for name in dir(kd) if name[0] != "_" and name != "xm"]  # xm is kxm


@pytest.mark.parametrize("name", NAMES)
def test_each_namespace_of_kd_has_a_page(name):
    parts = {f"contrib.{part}" for part in dir(kd.contrib) if part[0] != "_"} - {
        "contrib.checkpoints"
    }  # another name of `ckpts`
    documented = {each for names in PAGES.values() for each in names}
    assert (parts if name == "contrib" else {name}) <= documented


@pytest.mark.parametrize(
    "namespace",
    ["konfig", "kontext", "klinen", "ktyping", "kxm", "random", "metrics", "train"],
)
def test_names_that_dir_shows_are_documented(public_names, namespace):
    module = importlib.import_module(f"kauldron.{namespace}")
    shown = {
        name
        for name in dir(module)
        if name[0] != "_"
        and hasattr(module, name)
        and not isinstance(getattr(module, name), types.ModuleType)
    } - {"Any", "TYPE_CHECKING", "annotations"}
    assert shown <= set(public_names.public_names(module))


def _classes_and_functions(public_names):
    array_types = (type(kd.ktyping.Float), type(kd.ktyping.ElementSpec))
    assert type not in array_types
    for namespace in public_names.NAMESPACES:
        module = importlib.import_module(f"kauldron.{namespace}")
        for name in public_names.public_names(module):
            value = getattr(module, name)
            origin = getattr(value, "__module__", None) or ""
            if isinstance(value, array_types):
                continue  # array types, which a page lists together
            if origin.startswith("kauldron") and (
                inspect.isclass(value) or inspect.isfunction(value)
            ):
                yield f"{namespace}.{name}", value


def test_classes_and_functions_have_docstrings(public_names):
    without = [
        name
        for name, value in _classes_and_functions(public_names)
        if not inspect.getdoc(value)
    ]
    assert without == []


def test_signatures_have_neither_factories_nor_private_arguments_nor_addresses(
    public_names,
):
    noise = re.compile(r"<|ROOT_CFG_REF|lambda|ForwardRef|default_factory|[(, ]_\w+:")
    noisy = {
        name: signature[0]
        for name, value in _classes_and_functions(public_names)
        if (signature := public_names.readable_signature(value))
        and noise.search(signature[0])
    }
    assert noisy == {}


def test_trainer_is_first_and_its_signature_reads_as_code(public_names):
    assert ":first: Trainer" in (DOCS / "api" / "train.md").read_text()
    arguments, result = public_names.readable_signature(kd.train.Trainer)
    assert arguments.startswith("(*, seed: int = 0, workdir: epath.Path = ")
    assert "rng_streams: RngStreams = RngStreams()" in arguments
    assert result == ""
