"""Short names and few digits for the eyes of a person."""

import math

import pytest

from kauldron.writers import texts


def test_total_loss_comes_first_then_metrics_schedules_and_parts_of_the_loss():
    values = {
        "losses/l1": 1.0,
        "losses/l2": 2.0,
        "losses/total": 3.0,
        "metrics/accuracy": 0.5,
        "metrics/iou/0": 0.1,
        "metrics/iou/1": 0.2,
        "schedules/learning_rate": 3e-4,
        "perf_stats/steps_per_sec": 8.25,
        "perf_stats/data_wait_fraction": 0.31,
        "perf_stats/train/avg_time_sec": 2.0,
    }
    assert texts.value_line(50, "train", values) == (
        "[50] train  loss 3.000  acc 0.500  lr 3.0e-4  l1 1.000  l2 2.000  "
        "8.25 steps/s  data wait 31 %"
    )


def test_names_that_would_be_equal_stay_apart():
    names = texts.short_names(["losses/a", "metrics/a", "metrics/b/c", "metrics/c"])
    assert sorted(names.values()) == ["a", "b/c", "c", "losses/a"]


def test_metric_with_many_values_is_left_to_the_files():
    many = [f"metrics/iou/{name}" for name in ("cat", "dog", "newt", "owl/x")]
    names = texts.short_names([*many, "metrics/acc", "metrics/f1/dog"])
    assert list(names.values()) == ["acc", "f1/dog"]
    assert list(texts.short_names(many[:3])) == many[:3]


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_are_short(sign):
    for exponent in range(-300, 300, 7):
        value = sign * 1.23456 * 10.0**exponent
        text = texts.number(value)
        assert len(text) <= 7
        assert float(text) == pytest.approx(value, rel=0.05 if "." in text else 0.5)
    assert texts.number(sign * math.inf) == str(sign * math.inf)
    assert texts.number(math.nan) == "nan"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("losses/anything", True),
        ("metrics/accuracy", False),
        ("metrics/top1", False),
        ("metrics/balanced_accuracy", False),
        ("metrics/val/mse", True),
        ("metrics/norm", None),
        ("schedules/lr", None),
    ],
)
def test_direction_is_known_by_name_only_where_it_is_clear(key, expected):
    assert texts.is_better_lower(key) is expected
