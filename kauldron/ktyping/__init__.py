"""Array types that are checked at run time: class, dtype, and shapes with names.

```python
from kauldron import ktyping as kt
from kauldron.ktyping import Float

@kt.typechecked
def attend(q: Float["*b n d"], k: Float["*b m d"]) -> Float["*b n m"]:
  ...
```
"""

# ruff: noqa: I001, F401  (the order is that of a table of contents)

from typing import TYPE_CHECKING, Any

from kauldron.lazy_namespace import missing_name as _missing_name

# What to decorate with, and what to ask in the body.
from kauldron.ktyping.checks import typechecked as typechecked
from kauldron.ktyping.checks import check_type as check_type
from kauldron.ktyping.checks import isinstance_ as isinstance
from kauldron.ktyping.dims import dim as dim
from kauldron.ktyping.dims import shape as shape

# The types: `Float`, `Int`, `UInt8`, `Array`, ... of numpy and jax; the same with the
# prefix `Tf` for TensorFlow and `X` for any library; `Scalar`, `ScalarInt`, ... for numbers
# and arrays without axes; `PRNGKey`, `Shape`, `PyTree`, `ArraySpec`, `Axes`.
from kauldron.ktyping.array_types import *  # noqa: F403

# Scopes by hand, and types of one's own.
from kauldron.ktyping.scopes import ShapeScope as ShapeScope
from kauldron.ktyping.dims import get_current_scope as get_current_scope
from kauldron.ktyping.array_type_meta import is_array_type as is_array_type
from kauldron.ktyping import dtypes as dtypes
from kauldron.ktyping.shapes.sizes import UNKNOWN_DIM as UNKNOWN_DIM

# Configuration.
from kauldron.ktyping import config as config
from kauldron.ktyping.config import CONFIG as CONFIG
from kauldron.ktyping.config import Config as Config
from kauldron.ktyping.config import add_config_override as add_config_override
from kauldron.ktyping.config import remove_config_override as remove_config_override

# Errors.
from kauldron.ktyping.errors import AmbiguousDimensionError as AmbiguousDimensionError
from kauldron.ktyping.errors import KTypeCheckError as KTypeCheckError
from kauldron.ktyping.errors import TypeCheckError as TypeCheckError
from kauldron.ktyping.shapes.sizes import ShapeError as ShapeError
from kauldron.ktyping.shapes.parsing import ShapeSpecSyntaxError as ShapeSpecSyntaxError
from kauldron.ktyping.errors import NoActiveScopeError as NoActiveScopeError

# Older module paths.
from kauldron.ktyping import compat as compat

if TYPE_CHECKING:
    from jax.typing import DTypeLike as DType


def __getattr__(name: str) -> Any:
    if name == "DType":  # jax is loaded only by those who ask for it
        from jax.typing import DTypeLike

        return DTypeLike
    raise _missing_name(__name__, name, globals())
