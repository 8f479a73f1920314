"""Trainers and states print short."""

import dataclasses

import jax
import numpy as np

from kauldron import kd
from tests.train import toy


def _trainer(tmp_path, **changes):
    ds = toy.make_ds(num_epochs=1, shuffle=False)
    evals = {"test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(5), ds=ds)}
    return toy.make_trainer(tmp_path, **({"evals": evals} | changes))


def test_a_state_prints_counts_and_shapes_without_values(tmp_path):
    state = _trainer(tmp_path).init_state()
    assert repr(state) == (
        "TrainState(\n"
        "    step=0\n"
        "    params=10 numbers in 2 arrays, 40 B\n"
        "        dense.bias    float32[2]\n"
        "        dense.kernel  float32[4, 2]\n"
        "    collections={}\n"
        "    opt_state=21 numbers in 5 arrays, 84 B\n"
        ")"
    )


def test_specs_and_traced_states_print_as_well(tmp_path):
    trainer = _trainer(tmp_path)
    assert "step=int32[]" in repr(trainer.state_specs)
    seen = []

    @jax.jit
    def look(state):
        seen.append(repr(state))
        return state.step

    look(trainer.init_state())
    assert "step=int32[]" in seen[0] and "dense.kernel  float32[4, 2]" in seen[0]


def test_a_state_that_was_donated_prints(tmp_path):
    trainer = _trainer(tmp_path)
    state = trainer.init_state()
    batch = next(iter(trainer.train_ds.device_put(trainer.sharding.batch)))
    trainer.trainstep.step(state, batch)
    assert "step=int32[] (deleted)" in repr(state)


def test_only_a_dozen_arrays_are_listed():
    params = {f"layer_{i:02}": np.zeros(3, np.float32) for i in range(40)}
    text = repr(kd.train.TrainState(step=3, params=params))
    assert "layer_11" in text and "layer_12" not in text
    assert "... and 28 more" in text


def test_subclasses_of_the_state_print_their_fields_too():
    class MyState(kd.train.TrainState):
        ema: dict = dataclasses.field(default_factory=dict)

    text = repr(MyState(step=1, ema={"a": np.zeros(5), "b": np.zeros(2)}))
    assert text.startswith("MyState(") and "ema=7 numbers in 2 arrays" in text


def test_a_trainer_prints_what_is_set_a_line_for_each_field(tmp_path):
    lines = repr(_trainer(tmp_path)).splitlines()
    assert "    model=Linear(x='batch.x')," in lines
    assert "    num_train_steps=10," in lines
    (evals,) = (line for line in lines if line.startswith("    evals="))
    assert evals.startswith("    evals={'test': Evaluator(run=EveryNSteps(")
    assert not any(line.startswith("    on_nonfinite") for line in lines)
    assert max(map(len, lines)) < 130


def test_a_large_trainer_is_short_too(tmp_path):
    evals = {
        f"eval_{i}": kd.evals.Evaluator(
            run=kd.evals.EveryNSteps(i + 1),
            ds=toy.make_ds(num_epochs=1, shuffle=False),
        )
        for i in range(20)
    }
    trainer = _trainer(tmp_path, evals=evals)
    assert len(repr(trainer)) < 2500
    assert len(trainer._repr_html_()) < 20_000


def test_pages_of_notebooks_escape_texts(tmp_path):
    trainer = _trainer(tmp_path, aux={"note": "<script>"})
    assert "<script>" not in trainer._repr_html_()
    state = kd.train.TrainState(params={"<b>": np.zeros(2), "c": np.zeros(2)})
    assert "&lt;b&gt;" in state._repr_html_() and "<b></td>" not in state._repr_html_()
