"""Older module paths of the Python side of commands."""

from __future__ import annotations

import sys
import types

from kauldron.lazy_namespace import lazy_namespace

_OLDER_MODULES = {
    "cmd_utils": {
        "CommandGroup": "commands:CommandGroup",
        "ConfigOrigin": "loading:ConfigOrigin",
        "SubCommand": "commands:SubCommand",
        "execute_command": "commands:execute_command",
        "print_spec": "run:print_spec",
        "timed": "run:timed",
        "tracked_update": "patch:tracked_update",
    },
    "patch_config": {
        "BATCH_SIZE_DEVICES": "patch:BATCH_SIZE_DEVICES",
        "ConfigOrigin": "loading:ConfigOrigin",
        "PatchConfig": "patch:PatchConfig",
    },
}


def _add(name: str, members: dict[str, str]) -> None:
    module = types.ModuleType(f"kauldron.cli.{name}", "Older place of these names.")
    places = {member: f"kauldron.cli.{where}" for member, where in members.items()}
    get_member, list_members = lazy_namespace(module.__name__, places)
    vars(module).update(__getattr__=get_member, __dir__=list_members)
    sys.modules[module.__name__] = module


for _name, _members in _OLDER_MODULES.items():
    _add(_name, _members)
