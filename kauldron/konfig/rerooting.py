"""Deep copies of references follow the copy of their root, if it is copied too.

While a tree is deep-copied, a reference may be met before the node it starts from.
Then it is noted in the memo of `copy.deepcopy`, and moved when that node is copied. A
root that is never copied lies outside of the tree: the reference stays attached to it.
"""

from __future__ import annotations

from typing import Any

from kauldron.konfig.node import Node

_PENDING: Any = "konfig references whose root is not copied yet"


def reroot_when_copied(reference: Any, root: Node, memo: dict[int, Any]) -> None:
    """Makes the copied `reference` start from the copy of `root`, now or later."""
    if id(root) in memo:
        reference.__dict__["_konfig_base"] = memo[id(root)]
    else:
        memo.setdefault(_PENDING, {}).setdefault(id(root), []).append(reference)


def root_was_copied(root: Node, copied: Node, memo: dict[int, Any]) -> None:
    """To be called when `copied` becomes the copy of `root`."""
    memo[id(root)] = copied
    for reference in memo.get(_PENDING, {}).pop(id(root), ()):
        reference.__dict__["_konfig_base"] = copied
