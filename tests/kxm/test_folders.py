"""Names of folders."""

import dataclasses

import pytest

from kauldron import kxm
from kauldron.kxm import folders


def builder(root="/runs", **format):
    ctx = folders.Context(
        xp=folders.ExperimentInfo(
            experiment_id=12, name="a b/c", author="me", created=0, num_work_units=12
        ),
        resolved_jobs={"main": kxm.Job(cell="x")},
        sweep_info=kxm.NoSweep(),
    )
    return kxm.DirectoryBuilder(
        subdir_format=kxm.SubdirFormat(**format), unresolved_root_dir=root, ctx=ctx
    )


def unit(made, wid=7, **sweep):
    item = kxm.SweepItem(sweep)
    return made.replace_ctx(wu=folders.WorkUnitInfo(work_unit_id=wid), sweep_item=item)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("{xid}", "12"),
        ("{name}-{title}", "a_b_c-a_b_c"),
        ("{author}{user}", "meme"),
        ("{cell}", "x"),
        ("{date}", "1970-01-01"),
        ("{wid}", "07"),
        ("{unpadded_wid}", "7"),
        ("{wid}{separator_if_sweep}{sweep_kwargs}", "07-lr=0.1,n=3"),
    ],
)
def test_fields(text, expected):
    assert unit(builder(), lr=0.1, n=3).format_dir(text) == expected


def test_nothing_separates_a_unit_without_sweep():
    text = "{wid}{separator_if_sweep}{sweep_kwargs}"
    assert unit(builder()).format_dir(text) == "07"


def test_paths():
    made = unit(builder(xp_dirname=123, wu_dirname="u{wid}"))
    assert made.wu_dir == "/runs/123/u07"


def test_builders_are_equal_if_they_know_the_same():
    assert unit(builder()) == unit(builder())
    assert unit(builder()) != unit(builder(), wid=8)
    assert "experiment_id=12" in repr(builder())


def test_root_takes_home_and_variables(monkeypatch):
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("PLACE", "p")
    assert builder("~/$PLACE/{name}").root_dir == "/h/p/a_b_c"


def test_subclasses_add_fields():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Mine(kxm.SubdirFormat):
        def twice(self, ctx):
            return str(2 * ctx.wu.work_unit_id)

    made = dataclasses.replace(builder(), subdir_format=Mine(wu_dirname="{twice}"))
    assert unit(made).wu_dir == "/runs/12/14"


def test_unknown_fields_name_the_known_ones():
    with pytest.raises(ValueError, match=r"dir property: \{widd\}.*'wid'.*xid"):
        builder().format_dir("{widd}")


def test_fields_of_work_units_are_not_known_to_the_root():
    with pytest.raises(ValueError, match=r"\{wid\}.*`wu` not set yet"):
        _ = builder("/r/{wid}").root_dir


def test_a_root_that_is_not_set_is_an_error_when_asked_for():
    with pytest.raises(ValueError, match=r"`xp\.root_dir` was not set"):
        _ = builder(None).root_dir


def test_texts_of_sweeps_are_valid_names():
    values = {"split": "train[:80%]", "path": "a/b\n c", "e": "*"}
    assert folders.sweep_text(values) == "split=train(:80),path=ab c,e="


def test_long_texts_stay_short_readable_and_different():
    long = {f"model.part{i}.width": 1000 + i for i in range(20)}
    other = {**long, "model.part19.width": 7}
    texts = [folders.sweep_text(long), folders.sweep_text(other)]
    assert all(len(text) <= 127 for text in texts)
    assert texts[0] != texts[1]
    one_value = [folders.sweep_text({"a": "x" * 300 + end}) for end in "12"]
    assert one_value[0] != one_value[1]
    assert folders.sweep_text({"model.encoder.width" * 6: 3, "b": 1}).endswith("b=1")
