"""Trees of specs, the context, shardings, the lowered step."""

import dataclasses
import json
from typing import Any, NamedTuple

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kauldron import kd
from kauldron.inspect.specs import describe_leaf
from kauldron.inspect.views import rows_of


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class Record:
    kept: Any
    skipped: Any = dataclasses.field(default=None, hash=False)


def test_arrays_become_texts_and_containers_stay():
    tree = {
        "x": np.zeros((2, 3), np.float32),
        "pair": Pair(1, jax.ShapeDtypeStruct((), "bfloat16")),
        "items": (True, [None, "text"]),
        "record": Record(kept=np.int32(3), skipped=object()),
        "other": range(2),
    }
    assert kd.inspect.json_spec_like(tree) == {
        "x": "f32[2 3]",
        "pair": {"a": 1, "b": "bf16[]"},
        "items": [True, [None, "text"]],
        "record": {"kept": "i32[]"},
        "other": "range(0, 2)",
    }


def test_unknown_sizes_are_shown():
    spec = kd.data.ArraySpec((None, 4), "uint8")
    assert kd.inspect.json_spec_like(spec) == "ui8[_ 4]"


def test_notebooks_show_a_tree_that_folds():
    tree = kd.inspect.json_spec_like({"<a>": {"b": np.zeros(3)}, "c": [1]})
    page = tree._repr_html_()
    assert page.count("<details") == 3
    assert page.count("<details open") == 1
    assert "&lt;a&gt;" in page
    assert "f64[3]" in page


_TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_TREES)
def test_json_stays_what_it_is(tree):
    spec = kd.inspect.json_spec_like(tree)
    assert spec == tree
    assert json.loads(json.dumps(spec)) == tree


def test_context_lists_what_keys_can_name(trainer):
    text = str(kd.inspect.plot_context(trainer))
    lines = text.split("\n")
    assert lines[:3] == ["step: i32[]", "batch:", "  x: f32[16 4]"]
    assert "grads: same structure as params" in lines
    assert "parent" not in text


def test_sharding_of_every_array_of_the_state(trainer):
    _, rows = rows_of(kd.inspect.plot_sharding(trainer))
    kernel = next(row for row in rows if row["Path"] == "params.dense.kernel")
    assert kernel["Spec"] == kernel["Per Device"] == "f32[4 2]"
    assert kernel["Sharding"] == "replicated on 1"
    assert len(rows) == len(jax.tree.leaves(trainer.state_specs))


def test_part_of_a_split_array_that_a_device_holds():
    mesh = jax.sharding.AbstractMesh((4,), ("m",))
    spec = jax.sharding.PartitionSpec(None, "m")
    sharding = jax.sharding.NamedSharding(mesh, spec)
    row = describe_leaf("w", jax.ShapeDtypeStruct((2, 8), "float32", sharding=sharding))
    assert row["Per Device"] == "f32[2 2]"
    assert row["Sharding"].endswith("(None, 'm') on 4")


def test_step_is_lowered_from_shapes_alone(trainer):
    lowered = kd.inspect.lower_trainstep(trainer)
    assert isinstance(lowered, jax.stages.Lowered)
    state, aux = lowered.out_info
    assert state.params["dense"]["kernel"].shape == (4, 2)
    assert aux.metric_states is None
    logging = kd.inspect.lower_trainstep(trainer, return_metrics=True)
    assert list(logging.out_info[1].metric_states) == ["norm"]
