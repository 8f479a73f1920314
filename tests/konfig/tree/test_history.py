"""Who set which field, and where."""

import copy
import pickle
import threading

import pytest

from kauldron import konfig
from kauldron.konfig.tree.history import MAX_EVENTS, recording

with konfig.imports():
    import fractions


def kinds(cfg, path):
    return [event.kind for event in konfig.history(cfg, path)]


def values(cfg, path):
    return [event.value_repr for event in konfig.history(cfg, path)]


def test_every_write_is_recorded_with_its_place():
    cfg = konfig.ConfigDict({"a": {"x": 1}})
    cfg.a.x = 2
    cfg.a.update(x=3)
    cfg.a["x"] = 4
    events = konfig.history(cfg, "a.x")
    assert [event.kind for event in events] == ["init", "set", "update", "set"]
    assert [event.value_repr for event in events] == ["1", "2", "3", "4"]
    first = events[0].line
    assert [event.line - first for event in events] == [0, 1, 2, 3]
    assert events[0].file == __file__
    assert events[0].function == "test_every_write_is_recorded_with_its_place"
    assert events[0].location == f"{__file__}:{first}"


def test_a_deleted_field_keeps_its_history():
    cfg = konfig.ConfigDict({"x": 1})
    del cfg.x
    assert kinds(cfg, "x") == ["init", "del"]
    cfg.x = "other type"
    assert kinds(cfg, "x") == ["init", "del", "set"]


def test_paths_go_through_lists_arguments_and_references():
    cfg = konfig.ConfigDict({"l": [{"x": 1}], "f": fractions.Fraction(1, 2)})
    cfg.r = cfg.ref.f
    cfg.l[0].x = 2
    cfg.f[1] = 3
    assert values(cfg, "l[0].x") == ["1", "2"]
    assert values(cfg, "f[1]") == ["2", "3"]
    assert values(cfg, "r[1]") == ["2", "3"]
    assert kinds(cfg, "l[0]") == ["init"]


def test_values_are_shortened_and_nodes_summarised():
    cfg = konfig.ConfigDict({"t": "x" * 500, "f": fractions.Fraction(1, 2)})
    assert len(values(cfg, "t")[0]) <= 80
    assert values(cfg, "f") == ["fractions.Fraction(...)"]


def test_writes_can_be_attributed_to_a_flag():
    cfg = konfig.ConfigDict({"lr": 0.1})
    with recording("cli", "--cfg.lr=0.2"):
        cfg.lr = 0.2
        with recording("sweep", "lr"):
            cfg.lr = 0.3
    cfg.lr = 0.4
    assert kinds(cfg, "lr") == ["init", "cli", "sweep", "set"]
    assert konfig.history(cfg, "lr")[1].text == "--cfg.lr=0.2"
    assert konfig.history(cfg, "lr")[1].location == "--cfg.lr=0.2"
    assert konfig.history(cfg, "lr")[3].text is None


def test_an_attribution_holds_for_its_thread_only():
    cfg = konfig.ConfigDict({"a": 1})
    with recording("cli", "--x"):
        thread = threading.Thread(target=lambda: cfg.update(a=2))
        thread.start()
        thread.join()
    assert kinds(cfg, "a") == ["init", "update"]


def test_only_the_last_events_are_kept():
    cfg = konfig.ConfigDict({"n": 0})
    for i in range(1, 50):
        cfg.n = i
    assert len(konfig.history(cfg, "n")) == MAX_EVENTS == 16
    assert values(cfg, "n")[-1] == "49"


def test_copies_keep_the_history_and_go_on_apart():
    cfg = konfig.ConfigDict({"a": {"x": 1}})
    cfg.a.x = 2
    for copied in (copy.deepcopy(cfg), copy.copy(cfg)):
        assert values(copied, "a.x") == ["1", "2"]
    copied = copy.deepcopy(cfg)
    copied.a.x = 3
    assert values(cfg, "a.x") == ["1", "2"]


def test_json_starts_anew():
    cfg = konfig.ConfigDict({"x": 1})
    cfg.x = 2
    loaded = konfig.ConfigDict.from_json(cfg.to_json())
    assert kinds(loaded, "x") == ["json"]
    assert konfig.history(loaded, "x")[0].file == __file__


def test_registered_defaults_are_recorded_as_such():
    name = "history_test:Thing"
    konfig.register_default_values(
        konfig.ConfigDict({"__qualname__": name, "a": 1, "b": {"c": 2}})
    )
    cfg = konfig.ConfigDict({"__qualname__": name, "a": 5})
    assert kinds(cfg, "a") == ["default", "init"]
    assert kinds(cfg, "b.c") == ["default"]
    assert konfig.history(cfg, "b.c")[0].file == __file__
    cfg.b.c = 3
    assert values(cfg, "b.c") == ["2", "3"]


def test_a_field_that_never_was_is_an_error():
    cfg = konfig.ConfigDict({"a": {"x": 1}})
    with pytest.raises(KeyError, match=r"cfg\.a\.nope"):
        konfig.history(cfg, "a.nope")
    with pytest.raises(KeyError, match=r"cfg\.a\.x\.y"):
        konfig.history(cfg, "a.x.y")
    with pytest.raises(ValueError, match="empty"):
        konfig.history(cfg, "")


def test_recording_can_be_turned_off():
    konfig.set_history(False)
    try:
        cfg = konfig.ConfigDict({"x": 1})
        cfg.x = 2
    finally:
        konfig.set_history(True)
    assert konfig.history(cfg, "x") == ()
    cfg.x = 3
    assert kinds(cfg, "x") == ["set"]


def test_nothing_of_the_callers_is_kept_alive():
    import gc
    import weakref

    class Big:
        pass

    def build():
        big = Big()
        return weakref.ref(big), konfig.ConfigDict({"x": 1})

    alive, cfg = build()
    gc.collect()
    assert alive() is None
    assert pickle.loads(pickle.dumps(cfg)) == cfg


def test_history_of_positional_arguments_moves_with_them():
    cfg = konfig.ConfigDict({"f": {"__qualname__": "m:f", "0": 1, "1": [2], "2": 3}})
    konfig.set_by_path(cfg, "f[1][0]", 20)
    cfg.f[2] = 30
    del cfg.f[0]
    assert values(cfg, "f[0]") == ["[20]"] and values(cfg, "f[0][0]") == ["20"]
    assert values(cfg, "f[1]") == ["3", "30"] and kinds(cfg, "f[1]") == ["init", "set"]
    assert kinds(cfg, "f[2]") == ["init", "del"]  # what is gone
    cfg.f[1] = 31
    assert values(cfg, "f[1]") == ["3", "30", "31"]


def test_items_are_counted_from_the_end_too():
    cfg = konfig.ConfigDict({"l": [1, [2, 3]]})
    konfig.set_by_path(cfg, "l[1][1]", 5)
    assert values(cfg, "l[-1][-1]") == values(cfg, "l[1][1]") == ["5"]


@pytest.mark.parametrize("path", ["l[5]", "l[-3]", "l.x", "l[0].x", "f[1]", "no"])
def test_place_that_is_not_there_is_a_key_error_that_names_it(path):
    cfg = konfig.ConfigDict({"l": [1, 2], "f": {"__qualname__": "m:f", "0": 1}})
    with pytest.raises(KeyError) as raised:
        konfig.history(cfg, path)
    assert str(raised.value).startswith(f"There is no cfg.{path}: ")


def test_list_that_is_replaced_forgets_the_writes_of_its_items():
    cfg = konfig.ConfigDict({"l": [1, [2]]})
    konfig.set_by_path(cfg, "l[1][0]", 5)
    konfig.set_by_path(cfg, "l[1]", [6])
    assert values(cfg, "l[1][0]") == ["[1, [6]]"]
    cfg.l = [7, [8]]
    assert values(cfg, "l[1][0]")[-1] == "[7, [8]]"
