"""The summaries of `kd.contrib`."""

import functools
import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import sklearn.datasets
import sklearn.metrics
from flax import linen as nn

from kauldron import kd, kontext
from kauldron import summaries as kd_summaries
from kauldron.contrib import summaries
from kauldron.contrib.summaries.images import to_rgb

RNG = np.random.default_rng(0)


#
# ConfusionMatrix
#


def entries(table: str) -> np.ndarray:
    rows = table.splitlines()[2:]
    return np.array([[float(cell) for cell in row.split("|")[1:]] for row in rows])


LOGITS = RNG.normal(size=(30, 3)).astype(np.float32)
LABELS = RNG.integers(0, 3, (30, 1))
WEIGHTS = RNG.uniform(size=(30, 1)).astype(np.float32)
NORMALIZED = [None, "true", "pred", "all"]


@functools.cache
def merged_confusion_matrices():
    """States of two batches, merged; by normalisation, and whether they are weighted."""

    @jax.jit
    def get_states(logits, labels, weights):
        return {
            (str(normalize), is_weighted): summaries.ConfusionMatrix(
                normalize=normalize, precision=6
            ).get_state(
                logits=logits,
                labels=labels,
                sample_weight=weights if is_weighted else None,
            )
            for normalize in NORMALIZED
            for is_weighted in (False, True)
        }

    @jax.jit
    def merge(a, b):
        return {key: a[key].merge(b[key]) for key in a}

    return merge(
        *(
            get_states(LOGITS[part], LABELS[part], WEIGHTS[part])
            for part in (slice(0, 15), slice(15, 30))
        )
    )


@pytest.mark.parametrize("normalize", NORMALIZED)
@pytest.mark.parametrize("weighted", [False, True])
def test_confusion_matrix_matches_scikit_learn(normalize, weighted):
    merged = merged_confusion_matrices()[str(normalize), weighted]
    expected = sklearn.metrics.confusion_matrix(
        LABELS[:, 0],
        LOGITS.argmax(-1),
        sample_weight=WEIGHTS[:, 0] if weighted else None,
        normalize=normalize,
    )
    np.testing.assert_allclose(entries(merged.compute()), expected, atol=1e-5)


def test_all_classes_are_shown_though_some_do_not_occur():
    table = summaries.ConfusionMatrix(normalize="true")(
        logits=np.eye(4)[:1], labels=np.array([[0]])
    )
    assert entries(table).shape == (4, 4)


@pytest.mark.parametrize("name", ["mask", "sample_weight"])
def test_mask_of_a_confusion_matrix_has_two_names(name):
    inputs = {"logits": np.eye(2), "labels": np.array([[0], [1]])}
    weights = np.array([2.0, 0.0])
    table = summaries.ConfusionMatrix()(**inputs, **{name: weights})
    np.testing.assert_array_equal(entries(table), [[2, 0], [0, 0]])
    metric = summaries.ConfusionMatrix(logits="a", labels="b", **{name: "c"})
    assert metric.mask == "c"
    context = {"a": inputs["logits"], "b": inputs["labels"], "c": weights}
    assert metric(context=context) == table


def test_unknown_normalization_of_a_confusion_matrix_is_refused():
    with pytest.raises(ValueError, match="'rows'"):
        summaries.ConfusionMatrix(normalize="rows")


@pytest.mark.parametrize(
    ("names", "error"), [(["a"], "1 names, but .* 2 classes"), ("ab", "'ab'")]
)
def test_wrong_class_names_are_refused(names, error):
    with pytest.raises((TypeError, ValueError), match=error):
        metric = summaries.ConfusionMatrix(class_names=names)
        metric(logits=np.eye(2), labels=np.array([[0], [1]]))


def test_class_names_cannot_break_the_table():
    table = summaries.ConfusionMatrix(class_names=["a | b", "c\nd"])(
        logits=np.eye(2), labels=np.array([[0], [1]])
    )
    assert entries(table).tolist() == [[1, 0], [0, 1]]


SHOWN = {
    "of the data": ({}, ["setosa", "versicolor", "virginica"]),
    "given": ({"class_names": ["x", "y", "z"]}, ["x", "y", "z"]),
    "none": ({"names_from": None}, ["0", "1", "2"]),
}


def test_evaluator_shows_the_class_names_that_the_training_data_knows(tmp_path):
    ds = kd.data.py.Arrays(
        sklearn.datasets.load_iris,
        fields={"x": "data", "label": "target"},
        shuffle=False,
        num_epochs=1,
        batch_size=50,
        transforms=[
            kd.data.Cast(key="x", dtype="float32"),
            kd.data.Rearrange(key="label", pattern="-> 1"),
        ],
    )
    keys = {"logits": "preds.logits", "labels": "batch.label"}
    trainer = kd.train.Trainer(
        workdir=tmp_path,
        train_ds=ds,
        eval_ds=ds,
        model=kd.nn.Sequential(
            inputs="batch.x", outputs="logits", layers=[nn.Dense(3)]
        ),
        train_losses={"xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(**keys)},
        train_summaries={
            name: summaries.ConfusionMatrix(**keys, **fields)
            for name, (fields, _) in SHOWN.items()
        },
        optimizer=optax.sgd(0.1),
        num_train_steps=1,
        evals={"test": kd.evals.Evaluator(run=kd.evals.Once(0))},
    )
    for values in (
        trainer.evals["test"].evaluate(trainer.init_state(), 0).compute(),
        trainer.trainstep.step(
            trainer.init_state(), next(iter(ds)), return_summaries=True
        )[1].compute(),
    ):
        for name, (_, expected) in SHOWN.items():
            table = values.summary_values[f"summaries/{name}"]
            header = [cell.strip() for cell in table.splitlines()[0].split("|")]
            assert header[1:] == expected


#
# ImageGrid
#


def test_grid_has_a_column_per_summary_below_its_header():
    grid = summaries.ImageGrid.simple(
        columns={"input": "batch.a", "output": "preds.b"}, num_images=3, border_width=2
    )
    context = {
        "batch": {"a": jnp.full((4, 10, 60, 1), 0.25)},
        "preds": {"b": jnp.full((4, 10, 60, 3), 0.75)},
    }
    state = jax.jit(grid.get_state_from_context)(context)
    image = state.merge(grid.get_state_from_context(context)).compute()
    assert image.shape[0] == 1 and image.shape[2] == 2 * (60 + 4)
    picture = image[0]
    header = picture[: picture.shape[0] - 3 * 12]
    assert header[:, :64].max() > 0.9  # white letters
    assert header[:, 64:].max() > 0.9
    rows = picture[-3 * 12 :]
    for row in range(3):
        middle = 12 * row + 5
        assert rows[middle, 32].tolist() == [0.25] * 3
        assert rows[middle, 64 + 32].tolist() == [0.75] * 3
    assert picture[-1].max() == 0.0  # the border


def test_grid_of_summaries_with_inputs_and_different_sizes():
    columns = {
        "a": kd_summaries.ShowImages(images="x"),
        "b": kd_summaries.ShowDifferenceImages(images1="x", images2="y", vrange=(0, 1)),
    }
    grid = summaries.ImageGrid(columns=columns, bg_color=0.5, font_color=(255, 0, 0))
    small, large = np.zeros((1, 4, 4, 1)), np.ones((2, 40, 40, 1))
    image = grid(a={"images": small}, b={"images1": large, "images2": 0 * large})
    assert image.shape[1] > 80
    assert kontext.get_keypaths(grid) == {
        "a.images": "x",
        "b.images1": "x",
        "b.images2": "y",
    }
    assert isinstance(hash(grid), int)


@pytest.mark.parametrize(
    "color, expected",
    [
        ("black", [0, 0, 0]),
        ("#ff8000", [1.0, 128 / 255, 0.0]),
        ((255, 0, 51), [1.0, 0.0, 0.2]),
        ((0.5, 0.25, 1.0), [0.5, 0.25, 1.0]),
        (0.3, [0.3, 0.3, 0.3]),
        (1, [1.0, 1.0, 1.0]),
    ],
)
def test_colors_in_every_form(color, expected):
    assert to_rgb(color).tolist() == pytest.approx(expected)
    summaries.ImageGrid(columns={}, bg_color=color)


@pytest.mark.parametrize("color", [2.0, -0.1, (1, 2), None])
def test_what_is_no_color_is_refused(color):
    with pytest.raises(ValueError, match="not a colour"):
        summaries.ImageGrid(columns={}, bg_color=color)


#
# Print and videos
#


def test_print_logs_the_first_values_of_every_array(caplog):
    metric = summaries.Print(value="params", first_n=2)
    context = {"params": {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.array(7.0)}}
    state = jax.jit(metric.get_state_from_context)(context)
    with caplog.at_level(logging.INFO):
        assert metric.empty().merge(state).merge(state).compute() == {}
    assert "params.w: [0. 1.]" in caplog.text
    assert "params.b: [7.]" in caplog.text


def test_print_of_nothing_logs_nothing(caplog):
    with caplog.at_level(logging.INFO):
        assert summaries.Print(value="params").empty().compute() == {}
    assert caplog.text == ""


@pytest.mark.parametrize("channels", [1, 3])
def test_videos_become_bytes(channels):
    videos = np.linspace(-1, 1, 3 * 2 * 4 * 4 * channels).reshape(3, 2, 4, 4, channels)
    metric = summaries.ShowVideosAsGif(num_videos=2, in_vrange=(-1, 1))
    state = metric.get_state(videos=videos)
    shown = state.merge(state).compute()
    assert shown.dtype == np.uint8
    assert shown.shape == (2, 2, 4, 4, 3)
    assert shown[0].min() == 0
    expected = ((videos[:2] + 1) / 2 * 255).round()
    np.testing.assert_allclose(shown, np.broadcast_to(expected, shown.shape), atol=1)
    assert metric.save_format == "GIF" and metric.frame_duration_ms == 100


#
# ShowTokens
#


def test_tokens_become_texts_after_a_compiled_step():
    show = summaries.ShowTokens(
        decode=lambda tokens: "".join(map(chr, tokens)), num_texts=3
    )
    words = np.array(
        [[ord(char) for char in word] for word in ("ab", "cd", "ef", "gh")]
    )
    states = [
        jax.jit(lambda tokens: show.get_state(tokens=tokens))(part)
        for part in (words[:2], words[2:])
    ]
    merged = states[0].merge(states[1])
    assert merged.compute().tolist() == ["ab", "cd", "ef"]
