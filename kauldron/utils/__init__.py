"""Lower parts of the library that extensions may use; imported on first access."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace, older_modules

if TYPE_CHECKING:
    from kauldron.utils import chrono as chrono
    from kauldron.utils import config_util as config_util
    from kauldron.utils import constants as constants
    from kauldron.utils import error_utils as error_utils
    from kauldron.utils import immutabledict as immutabledict
    from kauldron.utils import small_tools as utils  # noqa: F401
    from kauldron.utils import status as status

_MEMBERS = {
    "config_util": "config_util",
    "immutabledict": "immutabledict",
    "chrono": "chrono",
    "status": "status",
    "error_utils": "error_utils",
    "constants": "constants",
    "utils": "small_tools",
}

__getattr__, __dir__ = lazy_namespace(
    __name__, {name: f"{__name__}.{where}" for name, where in _MEMBERS.items()}
)

older_modules(
    __name__,
    {
        "base_config": "config_util",
        "root_cfg_ref": "config_util",
        "update_from_root": "config_util",
        "error_context": "kauldron.errors",
    },
)
