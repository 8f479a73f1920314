"""Element specs as JSON, as it stands in the folder of a run."""

from __future__ import annotations

from typing import Any

from kauldron.data.array_spec import ArraySpec

_QUALNAME = "__qualname__"


def spec_to_json(spec: Any) -> Any:
    """The JSON of a tree of specs.

    >>> spec_to_json({"x": ArraySpec((2, 3), "float32")})["0"][0][0]
    'x'
    """
    from kauldron import konfig

    return konfig.export(spec)


def spec_from_json(content: Any) -> Any:
    """The tree of specs in a JSON value.

    Reads what `spec_to_json` and `konfig.export` write, files in which leaves name
    `etils.enp.array_spec:ArraySpec`, and the older form in which a leaf is just
    `{"shape": [...], "dtype": ...}`. Reads data only: no name in it is imported.

    >>> spec_from_json({"x": {"shape": [2, 3], "dtype": "float32"}})
    {'x': ArraySpec(shape=(2, 3), dtype='float32')}
    """
    if isinstance(content, list):
        return [spec_from_json(item) for item in content]
    if not isinstance(content, dict):
        return content
    qualname = str(content.get(_QUALNAME, "")).replace(":", ".")
    if "shape" in content and "dtype" in content:
        if qualname and not qualname.endswith(".ArraySpec"):
            raise ValueError(f"{qualname!r} is no array spec: {content}.")
        return ArraySpec(_sequence(content["shape"]), content["dtype"])
    if qualname in ("builtins.tuple", "builtins.list"):
        items = [spec_from_json(item) for item in content.get("0", [])]
        return tuple(items) if qualname.endswith("tuple") else items
    if qualname and not qualname.endswith((".dict", ".ImmutableDict")):
        raise ValueError(f"{qualname!r} has no place in an element spec: {content}.")
    pairs = content["0"] if qualname and "0" in content else content.items()
    pairs = pairs.items() if isinstance(pairs, dict) else pairs
    return {k: spec_from_json(v) for k, v in pairs if k != _QUALNAME}


def _sequence(shape: Any) -> list[Any]:
    return shape["0"] if isinstance(shape, dict) else shape
