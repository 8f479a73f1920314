"""Older module paths, and earlier runs by the id of their experiment (`kd.from_xid`).

There are no experiment ids here: folders are the names of runs.
"""

from __future__ import annotations

from typing import Any, NoReturn

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron",
    {
        "checkpoints": "ckpts",
        "from_xid": "compat",
        "modules": "nn",
        "modules.adapter": "nn.adapters",
        "modules.attention": "nn.attention",
        "modules.deprecated": "nn.deprecated",
        "modules.input_embeddings": "nn.embeddings",
        "modules.knn_types": "nn.protocols",
        "modules.misc": "nn.layers nn.models",
        "modules.models": "nn.models nn.layers",
        "modules.pos_embeddings": "nn.embeddings",
        "modules.transformers": "nn.transformers",
        "modules.vit": "nn.vit",
    },
)


def _refuse(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        del args, kwargs
        raise NotImplementedError(
            f"kd.from_xid.{name}: experiment ids are not available here. Use "
            f"`kd.from_workdir.{name}(workdir)` with the folder of the run."
        )

    function.__name__ = name
    function.__doc__ = f"Not available: use `kd.from_workdir.{name}`."
    return function


get_cfg = _refuse("get_cfg")
get_resolved = _refuse("get_resolved")
get_element_spec = _refuse("get_element_spec")
get_trainer = _refuse("get_trainer")
get_state = _refuse("get_state")
locate = get_workdir = _refuse("locate")
