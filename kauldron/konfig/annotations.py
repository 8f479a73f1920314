"""What configs look like to static type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    # A node that resolves to T is written, and checked, like a T.
    ConfigDictLike = Annotated[T, "resolves to"]
else:

    class ConfigDictLike:
        """`ConfigDictLike[T]` annotates a node that resolves to `T`."""

        def __class_getitem__(cls, item: Any) -> Any:
            return Annotated[item, cls]


class WithRef:
    """Gives `.ref` to static type checkers, for classes that configs are made of."""

    @property
    def ref(self) -> Self:
        """In a config: the entry to lazy references."""
        raise RuntimeError(
            f"{type(self).__qualname__}.ref exists only in configs, and this is a real "
            f"object. Was {type(self).__qualname__} imported outside of "
            "`with konfig.imports():`?"
        )
