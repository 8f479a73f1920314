"""Lists, tuples and dicts: the containers in which modules have sub-modules."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Step = Any  # the name of an attribute, or the index or key of a container's item
Location = tuple[Step, ...]


def map_structure(
    fn: Callable[[Any, Location], Any], value: Any, location: Location = ()
) -> Any:
    """Replace what is inside (nested) containers; their types and orders stay.

    Args:
      fn: Takes what is not a container and its location.
      value: A container, or anything else.
      location: Where `value` is.

    Returns:
      New containers with what `fn` returned.

    Example:
      >>> map_structure(lambda leaf, where: (leaf, where), {"b": [1, 2], "a": 3})
      {'b': [(1, ('b', 0)), (2, ('b', 1))], 'a': (3, ('a',))}
    """
    if isinstance(value, Mapping):
        items = {k: map_structure(fn, v, (*location, k)) for k, v in value.items()}
        if type(value) is dict:
            return items
        if all(items[key] is value[key] for key in items):
            return value
        make: Any = type(value)
        return make(items)
    if isinstance(value, list | tuple):
        new = [map_structure(fn, v, (*location, i)) for i, v in enumerate(value)]
        if type(value) is list:
            return new
        if all(map(operator.is_, new, value)):
            return value
        make = type(value)
        return make(*new) if hasattr(value, "_fields") else make(new)
    return fn(value, location)


def iterate_structure(
    value: Any, location: Location = ()
) -> Iterator[tuple[Location, Any]]:
    """What is inside (nested) containers, with its location.

    >>> list(iterate_structure({"b": [1], "a": 3}))
    [(('b', 0), 1), (('a',), 3)]
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from iterate_structure(item, (*location, key))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from iterate_structure(item, (*location, i))
    else:
        yield location, value
