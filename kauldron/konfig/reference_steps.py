"""One step of a reference's path, and what is said when it leads nowhere."""

from __future__ import annotations

from typing import Any

from kauldron.konfig.node import Node, raw_fields
from kauldron.konfig.qualnames import did_you_mean


class Missing(LookupError):
    """There is nothing at the next step of a path; says what there is."""

    is_index = False


def take_step(value: Any, is_attribute: bool, key: Any) -> Any:
    """The value at an attribute or item; fields of nodes come before their methods.

    Raises:
      Missing: There is none.
    """
    if isinstance(value, Node):
        if key in value:
            return value[key]
        if is_attribute and hasattr(type(value), key):
            return getattr(value, key)  # a method of the node
        names = [str(k) for k in raw_fields(value)]
        raise Missing(
            f"has no field {key!r}.{did_you_mean(key, names)}"
            f" It has: {', '.join(names) or 'nothing'}."
        )
    try:
        return getattr(value, key) if is_attribute else value[key]
    except AttributeError:
        raise Missing(f"is {value!r}, which has no attribute {key!r}.") from None
    except KeyError:
        raise Missing(f"has no item {key!r}.") from None
    except IndexError:
        missing = Missing(f"has {len(value)} items, there is no item {key!r}.")
        missing.is_index = True
        raise missing from None
