"""Short names of modules, for display and for `py::` expressions."""

from __future__ import annotations

from collections.abc import Mapping

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
    """Registers short names of modules. Later registrations win.

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
    """How a symbol is shown: longest known prefix replaced, colon as a dot.

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
    """The full name behind a short one; the rest moves behind the colon.

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
