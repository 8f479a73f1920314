"""`kauldron.typing.type_check.TYPECHECKING_ENABLED = False`, the older switch."""

from __future__ import annotations

from kauldron.ktyping.config import CONFIG


class _Switch:
    @property
    def TYPECHECKING_ENABLED(self) -> bool:
        return CONFIG.typechecking_enabled

    @TYPECHECKING_ENABLED.setter
    def TYPECHECKING_ENABLED(self, enabled: bool) -> None:
        CONFIG.typechecking_enabled = enabled


type_check = _Switch()
