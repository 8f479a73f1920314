"""The import statements of a config file that is being written."""

from __future__ import annotations

import builtins
import importlib.util
import keyword

from kauldron.konfig.aliases import display_name
from kauldron.konfig.qualnames import split_qualname


class SourceImports:
    """Collects the modules that a source names, each under a name of its own.

    Args:
      reserved: Names that the source uses for something else.
    """

    def __init__(self, reserved: set[str]) -> None:
        self._taken = {*reserved, *dir(builtins), *keyword.kwlist}
        self._modules: dict[str, str] = {}
        self._real: set[str] = set()

    def new_name(self, wanted: str) -> str:
        """A name like `wanted` that nothing else has."""
        name = wanted if wanted.isidentifier() else "value"
        count = 1
        while name in self._taken:
            count += 1
            name = f"{wanted if wanted.isidentifier() else 'value'}_{count}"
        self._taken.add(name)
        return name

    def add_real(self, module: str) -> None:
        """Imports a module for real, under its own name."""
        self._real.add(module)
        self._taken.add(module)

    def name_of(self, qualname: str) -> str | None:
        """The expression for a symbol; None if no import statement can name it."""
        try:
            module, attributes = split_qualname(qualname)
        except ValueError:
            return None
        if attributes is None and not _is_module(module):
            module, _, attributes = module.rpartition(".")
        parts = [*module.split("."), *(attributes or "").split(".")]
        if not all(p.isidentifier() and not keyword.iskeyword(p) for p in parts if p):
            return None
        if not module:
            return None
        name = self._module_name(module)
        return f"{name}.{attributes}" if attributes else name

    def _module_name(self, module: str) -> str:
        if module not in self._modules:
            alias = display_name(module)
            short = module.rpartition(".")[2] if "." in alias else alias
            self._modules[module] = self.new_name(short)
        return self._modules[module]

    def text(self) -> str:
        """The import statements, at the top of the source."""
        lines = [f"import {module}" for module in sorted(self._real)]
        lines += [""] if lines else []
        lines += ["from kauldron import konfig", ""]
        installed = [m for m in self._modules if _is_installed(m)]
        others = [m for m in self._modules if m not in installed]
        for modules, arguments in ((installed, ""), (others, "lazy=True")):
            if modules:
                lines.append(f"with konfig.imports({arguments}):")
                lines += sorted(f"    {self._statement(m)}" for m in modules)
                lines.append("")
        return "\n".join(lines)

    def _statement(self, module: str) -> str:
        name = self._modules[module]
        package, _, last = module.rpartition(".")
        suffix = "" if name == last else f" as {name}"
        return (
            f"from {package} import {last}{suffix}"
            if package
            else f"import {last}{suffix}"
        )


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _is_installed(module: str) -> bool:
    return _is_module(module.split(".")[0])
