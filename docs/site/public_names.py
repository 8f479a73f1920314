"""What is public, and signatures that can be read."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib
import inspect
import pathlib
import re
import types
from collections.abc import Iterator
from typing import Any

#
# Which names a namespace has
#

# A name of several namespaces is documented in the first of them.
NAMESPACES = (
    *("train", "evals", "data", "data.py", "nn", "losses", "metrics", "summaries"),
    *("optim", "ckpts", "sharding", "writers", "export", "inspect", "from_workdir"),
    *("from_xid", "cli", "testing", "konfig", "kontext", "ktyping", "klinen"),
    *("random", "kxm", "data.tf", "contrib.train", "contrib.evals", "contrib.data"),
    *("contrib.data.py", "contrib.nn", "contrib.nn.knnx", "contrib.losses"),
    *("contrib.metrics", "contrib.summaries", "contrib.ckpts", "typing", "utils"),
)


def public_names(module: types.ModuleType) -> list[str]:
    """Return what a module defines or exports, in the order of its source.

    Exported is what is imported under its own name, `from x import Name as Name`.
    Modules are left out: namespaces have pages of their own.
    """
    tree = ast.parse(pathlib.Path(str(module.__file__)).read_text())
    names = list(dict.fromkeys(_names_in(tree.body)))
    if "__dir__" in vars(module) and not any(map(_is_lazy_block, tree.body)):
        names += [name for name in dir(module) if name not in names]
    return [
        name
        for name in names
        if not name.startswith("_")
        and not isinstance(getattr(module, name, module), types.ModuleType)
    ]


@functools.cache
def homes() -> dict[int, str]:
    """Return the namespace and name under which each value is documented."""
    homes: dict[int, str] = {}
    for namespace in NAMESPACES:
        module = importlib.import_module(f"kauldron.{namespace}")
        for name in public_names(module):
            homes.setdefault(id(getattr(module, name)), f"{module.__name__}.{name}")
    return homes


def _names_in(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.ImportFrom(module=str(source), names=[ast.alias(name="*")]):
                yield from importlib.import_module(source).__all__
            case ast.ImportFrom(names=aliases):
                yield from (a.asname for a in aliases if _is_exported(a))
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (t.id for t in targets if isinstance(t, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.With(body=inner):
                yield from _names_in(inner)
            case ast.If(orelse=inner):
                yield from _names_in(inner)


def _is_exported(alias: ast.alias) -> bool:
    return alias.asname in (alias.name, alias.name.removesuffix("_"))


def _is_lazy_block(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.With)


#
# Signatures
#

_KEPT_MODULES = ("nn", "nnx", "optax", "jax", "np", "epath")
_MAX_DEFAULT = 40


def readable_signature(value: Any) -> tuple[str, str] | None:
    """Return the arguments and the result of a class or function, as people write it.

    Private arguments are left out, and defaults that are made by a call are shown as
    that call, or as `...` where it has no short form.
    """
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    fields = {}
    if inspect.isclass(value):
        if issubclass(value, enum.Enum):
            return "", ""
        if dataclasses.is_dataclass(value):
            fields = {field.name: field for field in dataclasses.fields(value)}
    hidden = {"self", "cls"} | ({"parent", "name"} if _is_flax(value) else set())
    parameters = [
        parameter.replace(
            annotation=_shown(parameter.annotation),
            default=_default(parameter, fields.get(name)),
        )
        for name, parameter in signature.parameters.items()
        if not name.startswith("_") and name not in hidden
    ]
    result = signature.return_annotation
    text = str(inspect.Signature(parameters))
    if inspect.isclass(value) or result is inspect.Signature.empty:
        return text, ""
    return text, repr(_shown(result))


def _is_flax(value: Any) -> bool:
    return inspect.isclass(value) and any(
        base.__module__.startswith("flax.linen") for base in value.__mro__
    )


class _Text(str):
    """A text that a signature shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _shown(annotation: Any) -> Any:
    if annotation is inspect.Signature.empty:
        return annotation
    if not isinstance(annotation, str):
        annotation = inspect.formatannotation(annotation)
    return _Text(_short(annotation))


def _short(text: str) -> str:
    def last(match: re.Match[str]) -> str:
        path = match[0].split(".")
        kept = [part for part in path[:-1] if part in _KEPT_MODULES][-1:]
        return ".".join([*kept, path[-1]])

    text = re.sub(r"ForwardRef\('(.*?)'\)", r"\1", text.replace("~", ""))
    return re.sub(r"\b[a-z_]\w*(?:\.\w+)+", last, text)


def _default(parameter: inspect.Parameter, field: Any) -> Any:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return default
    if field is not None and field.default_factory is not dataclasses.MISSING:
        factory = field.default_factory
        name = getattr(factory, "__name__", "")
        literal = {"dict": "{}", "list": "[]", "tuple": "()", "set": "set()"}.get(name)
        return _Text(literal or (f"{name}()" if _is_public(name) else "..."))
    text = re.sub(r"\bROOT_CFG_REF\b", "cfg.ref", repr(default))
    text = text.replace("'__KEY_REQUIRED__'", "REQUIRED")
    text = re.sub(r"^Posix\w*Path\((.*)\)$", r"\1", text).replace("({})", "()")
    if inspect.isroutine(default) or inspect.isclass(default):
        text = default.__name__
    return _Text("..." if "<" in text or len(text) > _MAX_DEFAULT else text)


def _is_public(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_")
