"""The stack of scopes: each thread and each asyncio task has its own."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kauldron.ktyping.scopes.scope import ShapeScope

# Holds the top scope; its token remembers the one below.
STACK: contextvars.ContextVar[ShapeScope | None] = contextvars.ContextVar(
    "kauldron.ktyping.scopes", default=None
)
top_scope = STACK.get
