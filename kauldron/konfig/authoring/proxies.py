"""Proxies: what a module, class or function is inside `konfig.imports()`.

A proxy knows the name of a symbol and nothing else. Attributes give further proxies, a
call gives a `ConfigDict`, and a proxy used as a value stands for the symbol itself.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from kauldron.konfig.tree.configdict import ConfigDict
from kauldron.konfig.tree.node import CONST_KEY as CONST_KEY
from kauldron.konfig.tree.node import QUALNAME_KEY as QUALNAME_KEY

# Reached through a proxy, konfig itself is real: `kd.konfig.placeholder(int)`.
KONFIG_NAMES = ("kauldron.konfig", "kauldron.kd.konfig")


class ModuleTable:
    """The modules named by the import statements of one `imports()` block."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.proxies: dict[str, ConfigDictProxyObject] = {}

    def add(self, module_name: str) -> None:
        """Note an imported module and the packages around it."""
        while module_name:
            self.names.add(module_name)
            module_name = module_name.rpartition(".")[0]

    def proxy(self, module_name: str) -> Any:
        """Return the one proxy of a module in this block."""
        if module_name in KONFIG_NAMES:
            return sys.modules["kauldron.konfig"]
        self.add(module_name)
        if module_name not in self.proxies:
            self.proxies[module_name] = ConfigDictProxyObject(module_name, table=self)
        return self.proxies[module_name]


def _refuse(operation: str) -> Any:
    def method(self: ConfigDictProxyObject, *args: Any) -> NoReturn:
        raise TypeError(
            f"Cannot {operation}: this is a konfig proxy of {self.qualname!r}; "
            "operations on config objects are not executed. Compute with real objects "
            "outside of konfig.imports(), or with references (cfg.ref, konfig.ref_fn)."
        )

    return method


class ConfigDictProxyObject:
    """Stands for a symbol that configs name.

    Attributes:
      qualname: The name of the symbol. All other names that are not dunders are
        attributes of the symbol.
    """

    # Names that no attribute of a symbol has.
    __slots__ = ("__konfig_name__", "__konfig_table__", "qualname")

    def __init__(self, qualname: str, table: ModuleTable | None = None) -> None:
        object.__setattr__(self, "qualname", qualname)
        object.__setattr__(self, "__konfig_name__", qualname.replace(":", "."))
        object.__setattr__(self, "__konfig_table__", table)

    def __getattr__(self, name: str) -> Any:
        is_dunder = name.startswith("__") and name.endswith("__")
        if is_dunder or name.startswith(("_repr_", "_ipython_")):  # hooks of notebooks
            raise AttributeError(
                f"The konfig proxy of {self.qualname!r} has no attribute {name!r}."
            )
        child = f"{self.qualname}.{name}"
        if child.replace(":", ".") in KONFIG_NAMES:
            return sys.modules["kauldron.konfig"]
        if ":" in child:
            return ConfigDictProxyObject(child)
        table = object.__getattribute__(self, "__konfig_table__")
        if table is not None and child in table.names:
            return table.proxy(child)
        return ConfigDictProxyObject(f"{self.qualname}:{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> ConfigDict:
        fields: dict[str, Any] = {QUALNAME_KEY: self.qualname}
        for index, arg in enumerate(args):
            fields[str(index)] = arg
        fields.update(kwargs)
        return ConfigDict(fields)

    # --------------------------------------------------------------------------------
    # As a value
    # --------------------------------------------------------------------------------

    def __as_konfig__(self) -> dict[str, str]:
        return {CONST_KEY: self.qualname}

    def __konfig_symbol__(self) -> str:
        return self.qualname

    def __or__(self, other: Any) -> ProxyUnion:
        return ProxyUnion.make(self, other)

    def __ror__(self, other: Any) -> ProxyUnion:
        return ProxyUnion.make(other, self)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, ConfigDictProxyObject):
            return NotImplemented
        name = object.__getattribute__(self, "__konfig_name__")
        return name == object.__getattribute__(other, "__konfig_name__")

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "__konfig_name__"))

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"ConfigDictProxyObject({self.qualname})"

    def __copy__(self) -> ConfigDictProxyObject:
        return self

    def __deepcopy__(self, memo: Any) -> ConfigDictProxyObject:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return ConfigDictProxyObject, (self.qualname,)

    # --------------------------------------------------------------------------------
    # What would have to be executed
    # --------------------------------------------------------------------------------

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        raise ValueError(
            f"A config proxy cannot be subclassed: {self.qualname!r} was probably "
            "imported inside `with konfig.imports():`. Import it outside of the "
            "block to use it as a base class."
        )

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        _refuse(f"set {name!r}")(self)
        raise AssertionError

    def __delattr__(self, name: str) -> NoReturn:
        _refuse(f"delete {name!r}")(self)
        raise AssertionError

    __iter__ = _refuse("iterate")
    __len__ = _refuse("take the length")
    __contains__ = _refuse("look inside")
    __getitem__ = __setitem__ = __delitem__ = _refuse("index")
    __instancecheck__ = __subclasscheck__ = _refuse("check an instance")
    __enter__ = __exit__ = _refuse("enter a block")
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse("compute")
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _refuse("compute")
    __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _refuse(
        "compute"
    )
    __and__ = __rand__ = __xor__ = __rxor__ = __neg__ = __pos__ = _refuse("compute")
    __abs__ = __invert__ = __int__ = __float__ = __index__ = _refuse("compute")
    __lt__ = __le__ = __gt__ = __ge__ = _refuse("compare")


class ProxyUnion:
    """`A | B` of which at least one side is a proxy; resolves to the real union."""

    __slots__ = ("left", "right")

    def __init__(self, left: Any, right: Any) -> None:
        self.left = left
        self.right = right

    @classmethod
    def make(cls, left: Any, right: Any) -> Any:
        """Return the union, or `NotImplemented` if a side cannot be part of one."""
        sides = (left, right)
        return cls(left, right) if all(map(_can_be_a_side, sides)) else NotImplemented

    def __or__(self, other: Any) -> ProxyUnion:
        return ProxyUnion.make(self, other)

    def __ror__(self, other: Any) -> ProxyUnion:
        return ProxyUnion.make(other, self)

    def __as_konfig__(self) -> ProxyUnion:
        return self

    def __konfig_union__(self) -> tuple[Any, Any]:
        return self.left, self.right

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, ProxyUnion):
            return NotImplemented
        return (self.left, self.right) == (other.left, other.right)

    def __hash__(self) -> int:
        return hash((self.left, self.right))

    def __repr__(self) -> str:
        return f"{_side_text(self.left)} | {_side_text(self.right)}"


def _can_be_a_side(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, (ConfigDictProxyObject, ProxyUnion))
        or (isinstance(value, type) and value.__module__ == "builtins")
    )


def _side_text(value: Any) -> str:
    return value.__qualname__ if isinstance(value, type) else repr(value)
