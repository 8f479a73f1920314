"""Tables and texts of summaries, as lines of a terminal."""

import numpy as np

from kauldron import kd
from kauldron.train.run.terminal.summaries import summary_lines

ANIMALS = ["airplane", "automobile", "bird", "cat"]


def confusion(names, *, wrong=()):
    labels = [*range(len(names)), *(true for true, _ in wrong)]
    predicted = [*range(len(names)), *(pred for _, pred in wrong)]
    summary = kd.contrib.summaries.ConfusionMatrix(class_names=names)
    logits = np.eye(len(names))[predicted]
    return summary(logits=logits, labels=np.array(labels)[:, None])


def plain(lines):
    return [line.plain for line in lines]


def test_confusion_matrix_shows_class_names_and_what_is_wrong():
    lines = summary_lines(confusion(ANIMALS, wrong=[(0, 3)] * 2), width=80)
    assert plain(lines) == [
        "true \\ pred  airplane  automobile  bird  cat",
        "   airplane         1           ·     ·    2",
        " automobile         ·           1     ·    ·",
        "       bird         ·           ·     1    ·",
        "        cat         ·           ·     ·    1",
    ]
    styles = {lines[1].plain[s.start : s.end].strip(): s.style for s in lines[1].spans}
    assert styles["1"] == "bold green"
    assert styles["2"] == "red"


def test_names_above_the_columns_are_cut_to_fit():
    lines = plain(summary_lines(confusion(ANIMALS), width=40))
    assert lines[0] == "true \\ pred  airpla…  automo…  bird  cat"
    assert lines[1].startswith("   airplane ")
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= 40


def test_of_many_classes_the_most_confused_are_named():
    names = [f"class-{i}" for i in range(100)]
    wrong = [(3, 8)] * 7 + [(8, 3)] * 4 + [(1, i) for i in range(10, 20)]
    lines = plain(summary_lines(confusion(names, wrong=wrong), width=80))
    assert lines[0] == "100 classes, of which those most often taken for another:"
    assert lines[1:3] == [
        "  class-3 taken for class-8  7",
        "  class-8 taken for class-3  4",
    ]
    assert len(lines) == 6


def test_other_tables_keep_their_zeros_and_texts_their_beginning():
    table = "name | count\n--- | ---\na | 0\nb | 12"
    assert plain(summary_lines(table, width=80)) == [
        "name  count",
        "   a      0",
        "   b     12",
    ]
    lines = plain(summary_lines("\n".join("abcdef"), width=80))
    assert lines == ["a", "b", "c", "d", "... 2 more lines"]
