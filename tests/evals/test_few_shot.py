"""Linear classifiers on a few labelled examples per class."""

import gc
import weakref

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd, kontext, writers
from kauldron.evals.few_shot_evaluator import fit_and_score
from tests.train.toy import make_trainer

NUM_CLASSES = 3


def make_data(seed, *, noise=0.1, num=60, label_shape=()):
    """Clusters around one point per class, in six dimensions."""
    rng = np.random.default_rng(seed)
    labels = np.arange(num) % NUM_CLASSES
    centers = np.eye(6)[:NUM_CLASSES] * 3
    x = centers[labels] + noise * rng.normal(size=(num, 6))
    label = labels.astype(np.int32).reshape(num, *label_shape)
    return kd.data.py.Arrays(
        {
            "x": x.astype(np.float32),
            "label": label,
            "y": np.zeros((num, 2), np.float32),
        },
        shuffle=False,
        num_epochs=1,
        batch_size=20,
    )


class Features(nn.Module):
    """Gives its input back, flat and as a picture."""

    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        y = nn.Dense(2, name="dense")(x)
        return {"y": y, "flat": x, "picture": x.reshape(len(x), 2, 3), "none": 0 * x}

    def negative(self, x):
        return {"flat": -x}


def make(tmp_path, **changes):
    kwargs = {
        "run": kd.evals.EveryNSteps(1),
        "ds_train": make_data(0),
        "ds_val": make_data(1),
        "ds_test": make_data(2),
        "metric_prefix": "toy",
        "num_classes": NUM_CLASSES,
        "num_shots": (5, 10),
        "label_name": "batch.label",
        "repr_names": {"flat": "preds.flat"},
        **changes,
    }
    evaluator = kd.evals.FewShotEvaluator(**kwargs)
    trainer = make_trainer(
        tmp_path, model=Features(), train_ds=make_data(0), evals={"few": evaluator}
    )
    return trainer.evals["few"], trainer.init_state()


def test_separable_features_reach_full_accuracy_under_the_documented_names(tmp_path):
    evaluator, state = make(
        tmp_path,
        repr_names={"flat": "preds.flat", "pic": "preds.picture"},
        selected_repr="pic",
        l2_regs=(1, 0.5),
    )
    evaluator.evaluate(state, 7)
    (line,) = writers.read_scalars(tmp_path / "few")
    assert line["step"] == 7
    expected = {f"metrics/toy-{shots}shot" for shots in (5, 10)}
    for name in ("flat", "pic"):
        for shots in (5, 10):
            expected.add(f"z_fewshot_all/toy-{name}-{shots}shot")
            for l2 in ("1.00000", "0.50000"):
                expected.add(f"z_fewshot_all/z_toy-{name}-{shots}shot-{l2}")
    assert set(line["values"]) == expected
    assert set(line["values"].values()) == {1.0}


def test_result_can_choose_checkpoints(tmp_path):
    evaluator, state = make(tmp_path)
    output = evaluator.evaluate(state, 0)
    assert output.metric_values["toy-5shot"] == 1.0
    assert output.metric_values["z_fewshot_all"]["toy-flat-5shot"] == 1.0


def test_features_without_information_are_at_chance(tmp_path):
    evaluator, state = make(tmp_path, repr_names={"none": "preds.none"})
    output = evaluator.evaluate(state, 0)
    assert output.metric_values["toy-5shot"] == pytest.approx(1 / NUM_CLASSES)


def test_seed_decides_and_several_seeds_are_averaged(tmp_path):
    noisy = {f"ds_{part}": make_data(i, noise=3.0) for i, part in enumerate(["train", "val", "test"])}  # fmt: skip
    one_l2 = {"l2_regs": (64,), "num_shots": (2,), **noisy}

    def accuracies(seed):
        evaluator, state = make(tmp_path, seed=seed, **one_l2)
        outputs = [evaluator.evaluate(state, step) for step in (0, 1)]
        return [output.metric_values["toy-2shot"] for output in outputs]

    by_seed = [accuracies(seed) for seed in (0, 1)]
    assert all(first == second for first, second in by_seed)
    assert by_seed[0] != by_seed[1]
    assert accuracies((0, 1))[0] == pytest.approx(np.mean(by_seed))


def test_seed_is_the_trainers_unless_set(tmp_path):
    evaluator, _ = make(tmp_path)
    assert evaluator.seed == 0


def test_labels_may_have_a_last_axis_of_one(tmp_path):
    parts = {f"ds_{part}": make_data(0, label_shape=(1,)) for part in ("train", "val", "test")}  # fmt: skip
    evaluator, state = make(tmp_path, **parts)
    assert evaluator.evaluate(state, 0).metric_values["toy-5shot"] == 1.0


def test_other_method_and_transform_of_the_state_are_used(tmp_path):
    class Break(kd.ckpts.InitTransform):
        def transform(self, state):
            seen.append(int(state.step))
            return state

    seen = []
    evaluator, state = make(tmp_path, model_method="negative", init_transform=Break())
    assert evaluator.evaluate(state, 0).metric_values["toy-5shot"] == 1.0
    assert seen == [0]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_shots": (21,)}, "21 shots .* class 0 has 20"),
        ({"num_classes": 2}, r"ds_train: they must be in 0\.\.1, got 0\.\.2"),
        ({"label_name": "batch.x"}, "must be integers, got float32"),
        ({"ds_val": make_data(0).take(0)}, "no batch in ds_val of 'few'"),
    ],
    ids=["shots", "classes", "labels", "empty"],
)
def test_mistakes_are_named(tmp_path, changes, message):
    evaluator, state = make(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        evaluator.evaluate(state, 0)


@pytest.mark.parametrize(
    "names", [{}, {"a": "preds.flat", "b": "preds.picture"}], ids=["none", "two"]
)
def test_selected_features_must_be_named_if_there_are_several(tmp_path, names):
    with pytest.raises(ValueError, match="selected_repr='pre_logits'"):
        make(tmp_path, repr_names=names)


@pytest.mark.parametrize("num", [5, 40])
def test_closed_form_equals_solving_the_normal_equations(num):
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(num, 7)), rng.integers(0, 3, num)
    test_x, test_y = rng.normal(size=(50, 7)), rng.integers(0, 3, 50)
    ours = fit_and_score(
        x, labels, [(test_x, test_y)], num_classes=3, l2_regs=(0.1, 64)
    )
    scale = x.mean(0), x.std(0) + 1e-5
    full = [
        np.c_[(a - scale[0]) / scale[1], np.full(len(a), 100.0)] for a in (x, test_x)
    ]
    targets = 2.0 * np.eye(3)[labels] - 1
    for l2, accuracy in zip((0.1, 64), ours[0]):
        gram = full[0].T @ full[0] + l2 * np.eye(8)
        weights = np.linalg.solve(gram, full[0].T @ targets)
        expected = np.mean((full[1] @ weights).argmax(1) == test_y)
        assert accuracy == pytest.approx(expected)


def test_it_runs_along_training(tmp_path):
    evaluator, _ = make(tmp_path)
    evaluator.base_cfg.replace(num_train_steps=2, train_metrics={}).train()
    assert [line["step"] for line in writers.read_scalars(tmp_path / "few")] == [
        0,
        1,
        2,
    ]


def test_half_precision_features_are_fitted_in_double(tmp_path):
    features = np.asarray(jnp.ones((4, 2), jnp.bfloat16) * 300)
    labels = np.array([0, 1, 0, 1])
    (accuracy,) = fit_and_score(
        features, labels, [(features, labels)], num_classes=2, l2_regs=(64,)
    )
    assert accuracy == [0.5]


def test_evaluator_and_its_data_go_when_nobody_needs_them(tmp_path):
    evaluator, state = make(tmp_path)
    evaluator.evaluate(state, 0)
    alive = [weakref.ref(evaluator), weakref.ref(evaluator.ds_train)]
    del evaluator
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


def test_features_labels_and_seeds_are_there_to_look_at(tmp_path):
    evaluator, state = make(tmp_path, seed=(3, 4))
    assert evaluator.seeds == [3, 4]
    features, labels = evaluator.compute_features(state, evaluator.ds_val, "val")
    records = list(evaluator.ds_val)
    np.testing.assert_array_equal(
        features["flat"], np.concatenate([batch["x"] for batch in records])
    )
    np.testing.assert_array_equal(
        labels, np.concatenate([batch["label"] for batch in records])
    )


def test_auxiliaries_collect_each_representation_and_the_labels(tmp_path):
    evaluator, _ = make(tmp_path)
    batches = [{"flat": np.ones((2, 3)), "label": np.arange(2)} for _ in range(2)]
    states = []
    for batch in batches:
        context = {"preds": batch, "batch": batch}
        states.append(
            {
                name: metric.get_state_from_context(context)
                for name, metric in evaluator.aux.metrics.items()
            }
        )
    values = {name: states[0][name].merge(states[1][name]) for name in states[0]}
    assert {
        name: value.finalize().compute().shape for name, value in values.items()
    } == {
        "flat": (4, 3),
        "labels": (4,),
    }
