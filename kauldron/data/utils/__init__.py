"""What the trainer and inspection tools ask about data (`kd.data.utils`)."""

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.data.utils.mock_batch import (
        array_spec_to_jnp_empty as array_spec_to_jnp_empty,
    )
    from kauldron.data.utils.mock_batch import (
        get_global_elem_spec as get_global_elem_spec,
    )
    from kauldron.data.utils.mock_batch import (
        mock_batch_from_elem_spec as mock_batch_from_elem_spec,
    )
    from kauldron.data.utils.model_inputs import get_model_inputs as get_model_inputs
    from kauldron.data.utils.model_inputs import (
        get_model_inputs_from_batch as get_model_inputs_from_batch,
    )
    from kauldron.data.utils.spec_json import spec_from_json as spec_from_json
    from kauldron.data.utils.spec_json import spec_to_json as spec_to_json

_HERE = "kauldron.data.utils"

__getattr__, __dir__ = lazy_namespace(
    __name__,
    {
        "array_spec_to_jnp_empty": f"{_HERE}.mock_batch:array_spec_to_jnp_empty",
        "get_global_elem_spec": f"{_HERE}.mock_batch:get_global_elem_spec",
        "mock_batch_from_elem_spec": f"{_HERE}.mock_batch:mock_batch_from_elem_spec",
        "get_model_inputs": f"{_HERE}.model_inputs:get_model_inputs",
        "get_model_inputs_from_batch": (
            f"{_HERE}.model_inputs:get_model_inputs_from_batch"
        ),
        "spec_from_json": f"{_HERE}.spec_json:spec_from_json",
        "spec_to_json": f"{_HERE}.spec_json:spec_to_json",
    },
)
