"""Names of symbols: `package.module:Class.method`, how to import and how to show them.

The written form has one colon between what to import and the attributes to follow.
Forms without a colon (`pathlib.Path`, `numpy`) are read as well, and the position of
the colon does not distinguish names.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from kauldron.errors import did_you_mean

_NOT_FOUND_HINT = (
    " Is it installed? A module of your own has to be in the folder where you start, or"
    " on PYTHONPATH."
)
_CONFIG_FILE_HINT = (
    " It is the config file itself, which is known under this name only when it is given"
    " as --cfg=path/to/config.py. Move what a saved config needs to a module of its own."
)


def split_qualname(qualname: str) -> tuple[str, str | None]:
    """Return the module part and the attribute part (`None` without a colon)."""
    if not isinstance(qualname, str):
        raise ValueError(f"A qualified name is a text, not {qualname!r}.")
    module, colon, attributes = qualname.partition(":")
    if ":" in attributes:
        raise ValueError(f"More than one colon in the qualified name {qualname!r}.")
    if not all(module.split(".")) or (colon and not all(attributes.split("."))):
        raise ValueError(
            f"{qualname!r} is not a qualified name: expected 'module:attribute'."
        )
    return module, attributes if colon else None


def normalize_qualname(qualname: Any) -> Any:
    """Return the name with a dot for the colon: equal for equal symbols.

    >>> normalize_qualname("kauldron.kd:train.Trainer")
    'kauldron.kd.train.Trainer'
    """
    return qualname.replace(":", ".", 1) if isinstance(qualname, str) else qualname


def same_qualname(a: Any, b: Any) -> bool:
    """Return whether two names mean the same symbol, wherever their colon is."""
    return normalize_qualname(a) == normalize_qualname(b)


def import_qualname(
    qualname: str, *, guard: Callable[[Any, str], None] | None = None
) -> Any:
    """Import the symbol that a qualified name stands for.

    The module part is imported, then the attributes are followed. A module part that is
    not importable as a whole is tried with ever shorter prefixes, the rest moving to
    the attributes; an attribute that a module lacks is tried as its submodule.
    `guard` is called with every object on the way and the attribute that led to it; it
    may raise to refuse it.

    >>> import_qualname("pathlib:Path.home").__name__
    'home'

    Raises:
      ModuleNotFoundError: No prefix is importable.
      AttributeError: A symbol on the way has no such attribute; names the closest.
    """
    module_part, attribute_part = split_qualname(qualname)
    names = module_part.split(".")
    rest = attribute_part.split(".") if attribute_part else []
    symbol, imported = _import_longest(names)
    if guard is not None:
        guard(symbol, names[imported - 1])
    for name in [*names[imported:], *rest]:
        symbol = _get_attribute(symbol, name, qualname)
        if guard is not None:
            guard(symbol, name)
    return symbol


def _import_longest(names: list[str]) -> tuple[ModuleType, int]:
    """Return the module of the longest importable prefix, and its length."""
    for count in range(len(names), 0, -1):
        module_name = ".".join(names[:count])
        loaded = sys.modules.get(module_name)
        if loaded is not None:
            return loaded, count
        try:
            return importlib.import_module(module_name), count
        except ModuleNotFoundError as error:
            if not _is_about(error, module_name):
                raise  # the module exists, but something it imports does not
    needed_for = f" (needed for {'.'.join(names)!r})" if len(names) > 1 else ""
    hint = _CONFIG_FILE_HINT if names[0] == "cfg_config" else _NOT_FOUND_HINT
    raise ModuleNotFoundError(
        f"There is no module {names[0]!r}{needed_for}.{hint}", name=names[0]
    ) from None


def _is_about(error: ModuleNotFoundError, module_name: str) -> bool:
    """Return whether `module_name`, or a parent of it, is what was not found."""
    missing = error.name
    return missing is not None and (
        missing == module_name or module_name.startswith(missing + ".")
    )


def _get_attribute(symbol: Any, name: str, qualname: str) -> Any:
    try:
        return getattr(symbol, name)
    except AttributeError:
        if isinstance(symbol, ModuleType):
            submodule = f"{symbol.__name__}.{name}"
            try:
                return importlib.import_module(submodule)
            except ModuleNotFoundError as error:
                if not _is_about(error, submodule):
                    raise
        message = _missing_attribute(symbol, name, qualname)
        raise AttributeError(message, name=name) from None


def _missing_attribute(symbol: Any, name: str, qualname: str) -> str:
    if isinstance(symbol, ModuleType):
        what = f"Module {symbol.__name__!r}"
    else:
        what = repr(getattr(symbol, "__qualname__", None) or type(symbol).__name__)
    message = f"{what} has no attribute {name!r} (needed for {qualname!r})."
    public = [n for n in dir(symbol) if n[:1] != "_"]
    for below in public:
        module = sys.modules.get(f"{getattr(symbol, '__name__', '')}.{below}")
        if module is not None and hasattr(module, name):
            return f"{message} Did you mean '{below}.{name}'?"
    return message + did_you_mean(name, public)


_aliases = {
    "flax.linen": "nn",
    "kauldron.kd": "kd",
    "kauldron.kxm": "kxm",
    "numpy": "np",
    "tensorflow": "tf",
    "tensorflow_datasets": "tfds",
    "gemma.gm": "gm",
    "jax.numpy": "jnp",
}


def register_aliases(aliases: Mapping[str, str]) -> None:
    """Register short names of modules. Later registrations win.

    Args:
      aliases: From module path to the name that configs are displayed with, and that
        `py::` expressions on the command line may use.

    Example:
      >>> register_aliases({"my_project.modules": "mm"})
      >>> display_name("my_project.modules:Encoder")
      'mm.Encoder'
    """
    for module, alias in aliases.items():
        _aliases.pop(module, None)  # so that the later registration is the last
        _aliases[module] = alias


def display_name(qualname: str) -> str:
    """Return how a symbol is shown: longest known prefix replaced, colon as a dot.

    >>> display_name("flax.linen:Dense")
    'nn.Dense'
    >>> display_name("numpy_financial:irr")
    'numpy_financial.irr'
    """
    dotted = qualname.replace(":", ".")
    end = len(dotted)
    while end > 0:  # longest prefix first, cut only between identifiers
        alias = _aliases.get(dotted[:end])
        if alias is not None:
            return alias + dotted[end:]
        end = dotted.rfind(".", 0, end)
    return dotted


def expand_alias(qualname: str) -> str:
    """Return the full name behind a short one; the rest moves behind the colon.

    >>> expand_alias("np.random:normal")
    'numpy:random.normal'
    >>> expand_alias("other:thing")
    'other:thing'
    """
    head, *rest = qualname.replace(":", ".", 1).split(".")
    for module, alias in reversed(_aliases.items()):
        if alias == head:
            return ":".join([module, ".".join(rest)]) if rest else module
    return qualname
