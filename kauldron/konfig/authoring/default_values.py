"""Fields that nodes of a given symbol start with, and those that kauldron registers.

The defaults of `kd.train.Trainer` are here, and not with the trainer, because a config
may be written without importing it. Symbols are named as texts: nothing of kauldron is
imported.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from kauldron.konfig.authoring.ref_functions import ref_fn
from kauldron.konfig.symbols import normalize_qualname
from kauldron.konfig.tree.configdict import ConfigDict
from kauldron.konfig.tree.node import QUALNAME_KEY, Node
from kauldron.konfig.tree.placeholders import placeholder
from kauldron.konfig.tree.storing import _defaults


def register_default_values(default_values: Any) -> None:
    """Pre-fill the nodes of a symbol.

    From now on every node that is created with that symbol starts as a copy of the
    defaults, into which the given arguments are merged. Nothing is imported.

    Args:
      default_values: A node with the symbol and the fields to start with, such as
        `kd.train.Trainer(evals={})` written inside `konfig.imports()`.

    Raises:
      ValueError: It is not the node of a call, or other defaults are registered.

    Example:
      >>> from kauldron import konfig
      >>> konfig.register_default_values(
      ...     konfig.ConfigDict({"__qualname__": "my_project:Model", "width": 8})
      ... )
      >>> konfig.ConfigDict({"__qualname__": "my_project:Model", "depth": 2})
      <ConfigDict[my_project.Model(width=8, depth=2)]>
    """
    if not isinstance(default_values, Node) or (
        QUALNAME_KEY not in default_values._fields
    ):
        raise ValueError(
            "Default values are registered with the node of a call, such as "
            f"`module.Class(field=value)` inside konfig.imports(). Got: "
            f"{default_values!r}"
        )
    name = normalize_qualname(default_values[QUALNAME_KEY])
    known = _defaults.get(name)
    if known is not None and known != default_values:
        raise ValueError(
            f"Other default values are registered for {name!r} already: {known!r}"
        )
    if known is None:
        _defaults[name] = copy.deepcopy(default_values)


_WHICH_RUN = ("workdir", "xid", "wid")  # items of `cfg.aux`
_FROM_THE_EARLIER_RUN = {"seed": 0, "rng_streams": None, "sharding": None}
_DICTS_FROM_THE_EARLIER_RUN = ("train_losses", "train_metrics", "train_summaries")


def _call(name: str, *args: Any, **kwargs: Any) -> ConfigDict:
    """Return the node of a call of `kd.<name>`."""
    positional = {str(index): arg for index, arg in enumerate(args)}
    return ConfigDict({"__qualname__": f"kauldron.kd:{name}", **positional, **kwargs})


def _item_of(aux: Mapping[str, Any] | None, key: str, default: Any) -> Any:
    """Return an item of `cfg.aux`, which the user may have replaced as a whole."""
    return default if aux is None else aux.get(key, default)


def _part_of(source: ConfigDict, path: str, allow: Any, **default: Any) -> ConfigDict:
    """Return the call that builds a part of the run in the folder `source`."""
    return _call("from_workdir.get_resolved", source, path=path, **default, allow=allow)


def _located(default: Any, workdir: Any, xid: Any, wid: Any) -> ConfigDict:
    """Return the call that finds the folder of the earlier run."""
    return _call("from_workdir.locate", workdir, default=default, xid=xid, wid=wid)


def _dict_of(aux: Any, workdir: str | None, name: str) -> ConfigDict:
    source = _located(workdir, *(_item_of(aux, key, None) for key in _WHICH_RUN))
    return _part_of(source, name, _item_of(aux, "allow", None), default=None)


def _trainer() -> ConfigDict:
    return _call(
        "train.Trainer",
        workdir=placeholder(str),
        evals={},
        schedules={},
        setup=_call("train.Setup"),
        aux={},
    )


def _eval_only_trainer() -> ConfigDict:
    """Return a trainer that evaluates the run in `aux.workdir`, with its model."""
    cfg = _call(
        "train.Trainer.eval_only",
        workdir=placeholder(str),
        aux={"workdir": placeholder(str), "step": -1},
        evals={},
        num_train_steps=0,
        stop_after_steps=0,
        optimizer=None,
        checkpointer=None,
        schedules={},
        setup=_call("train.Setup", eval_only=True),
    )
    which = (ref_fn(_item_of, cfg.ref.aux, key, None) for key in _WHICH_RUN)
    source = _located(cfg.ref.workdir, *which)
    allow = ref_fn(_item_of, cfg.ref.aux, "allow", None)
    cfg.train_ds = _call(
        "data.ElementSpecDataset",
        spec=_call("from_workdir.get_element_spec", source),
    )
    cfg.model = _part_of(source, "model", allow)
    for name, default in _FROM_THE_EARLIER_RUN.items():
        cfg[name] = _part_of(source, name, allow, default=default)
    # As references: a dict that the user gives must not be merged into a call.
    for name in _DICTS_FROM_THE_EARLIER_RUN:
        cfg[name] = ref_fn(_dict_of, cfg.ref.aux, cfg.ref.workdir, name)
    cfg.init_transform = _call(
        "ckpts.PartialKauldronLoader",
        workdir=source,
        step=ref_fn(_item_of, cfg.ref.aux, "step", -1),
        new_to_old={name: name for name in ("step", "params", "collections")},
    )
    return cfg


register_default_values(_trainer())
register_default_values(_eval_only_trainer())
