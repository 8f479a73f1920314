"""Paths with wildcards."""

from __future__ import annotations

import itertools
from typing import Any

from kauldron.kontext.assignment import replace_by_path as replace_by_path
from kauldron.kontext.assignment import set_by_path as set_by_path
from kauldron.kontext.parts_sequence import PartsSequence
from kauldron.kontext.paths import Path
from kauldron.path_grammar import Wildcard


class GlobPath(PartsSequence):
    """A path in which `*` stands for one part and `**` for any number of them.

    >>> GlobPath.from_str("enc.**.bias").parts
    ('enc', <Wildcard.DOUBLE_STAR: '**'>, 'bias')
    >>> GlobPath("enc", "*")  # the string is a key; Wildcard.STAR is the wildcard
    enc['*']
    """

    __slots__ = ()

    @property
    def first_non_glob_parent(self) -> Path:
        """All parts before the first wildcard.

        >>> GlobPath.from_str("enc.blocks[2].*.w").first_non_glob_parent
        enc.blocks[2]
        """
        concrete = itertools.takewhile(
            lambda part: not isinstance(part, Wildcard), self.parts
        )
        return Path(*concrete)

    def set_in(self, context: Any, value: Any) -> list[str]:
        """Overwrites everything that this path stands for. See `set_by_path`."""
        return set_by_path(context, self, value)
