"""Configuration: globally, per module, per block."""

import dataclasses
import logging
import subprocess
import sys
import threading

import jaxtyping
import numpy as np
import pytest

import kauldron.ktyping as kt
from kauldron.ktyping import Float, checks
from kauldron.ktyping.config import (
    CONFIG_OVERRIDES,
    VERSION,
    ReportingPolicy,
    get_config,
)


@kt.typechecked
def f(x: Float["*b n"]) -> Float["n"]:
    return kt.shape("*b n"), "n" in kt.dim


@kt.typechecked
@dataclasses.dataclass
class Record:
    x: int


def _is_checking() -> bool:
    try:
        f(3)
    except kt.KTypeCheckError:
        return True
    except kt.ShapeError:
        return False
    raise AssertionError("the body asks for dims that are not there")


@pytest.fixture(autouse=True)
def _restored():
    before = dataclasses.replace(kt.CONFIG)
    yield
    for field in dataclasses.fields(before):
        setattr(kt.CONFIG, field.name, getattr(before, field.name))
    CONFIG_OVERRIDES.clear()
    kt.remove_config_override(0, missing_ok=True)


# --------------------------------------------------------------------------------------
# On and off
# --------------------------------------------------------------------------------------


def test_globally():
    assert _is_checking()
    kt.CONFIG.typechecking_enabled = False
    assert not _is_checking()
    assert Record("anything").x == "anything"
    kt.CONFIG.typechecking_enabled = True
    assert _is_checking()


def test_per_module_pattern_anchored_at_the_start():
    other = kt.add_config_override("test_config", kt.Config(typechecking_enabled=False))
    assert _is_checking()
    package = __name__.rpartition(".")[0]
    mine = kt.add_config_override(
        rf"{package}\.test_con", kt.Config(typechecking_enabled=False)
    )
    assert not _is_checking()
    kt.remove_config_override(mine)
    kt.remove_config_override(other)
    assert _is_checking()


def test_later_overrides_win():
    kt.add_config_override(".*", kt.Config(typechecking_enabled=False))
    kt.add_config_override(__name__, kt.Config(typechecking_enabled=True))
    assert _is_checking()
    assert not get_config("another.module").typechecking_enabled


def test_removing_an_unknown_override():
    with pytest.raises(KeyError):
        kt.remove_config_override(12345)
    kt.remove_config_override(12345, missing_ok=True)


def test_per_block_also_when_it_raises():
    with pytest.raises(ZeroDivisionError), kt.Config(typechecking_enabled=False):
        assert not _is_checking()
        1 / 0
    assert _is_checking()


def test_blocks_nest():
    off, on = (
        kt.Config(typechecking_enabled=False),
        kt.Config(typechecking_enabled=True),
    )
    with off:
        with on:
            assert _is_checking()
        with off:
            assert not _is_checking()
        assert not _is_checking()
    assert _is_checking()


def test_dotted_pattern_matches_blocks_of_a_module():
    kt.add_config_override(__name__, kt.Config(typechecking_enabled=False))
    with kt.typechecked():
        assert kt.check_type("unchecked", Float["n"]) == "unchecked"


def test_dims_are_still_known_while_checking_is_off():
    with kt.Config(typechecking_enabled=False):
        assert f(np.ones((2, 3))) == ((2, 3), True)

        @kt.typechecked
        def g(x: Float["n"], y: Float["n m"], z: Float["k"]):
            kt.check_type(y, Float["wrong"])
            return dict(kt.dim.items())

        assert g("no array", np.ones((2, 3)), np.ones(4)) == {"n": 2, "m": 3, "k": 4}
        assert g(np.ones(2), np.ones((5, 3)), np.ones(4)) == {"n": 2, "k": 4}


def test_candidates_can_be_assigned_while_checking_is_off():
    @kt.typechecked
    def g(x: Float["n"]):
        kt.get_current_scope().candidates = [{"m": (3,)}]
        return kt.isinstance(np.ones(3), Float["m"]), kt.dim["m"]

    with kt.Config(typechecking_enabled=False):
        assert g(np.ones(2)) == (True, 3)


def test_dataclass_is_checked_while_another_thread_compiles_it_again(monkeypatch):
    is_late, may_go_on = threading.Event(), threading.Event()
    late = threading.Thread(target=Record, args=(1,))
    number = VERSION.number

    class Version:
        @property
        def number(self):
            return number + (threading.current_thread() is late)

    def resolve(module):
        if threading.current_thread() is late:
            is_late.set()
            assert may_go_on.wait(timeout=60)
        return get_config(module)

    monkeypatch.setattr(checks, "VERSION", Version())
    monkeypatch.setattr(checks, "get_config", resolve)
    Record(1)
    late.start()
    try:
        assert is_late.wait(timeout=60)
        with pytest.raises(kt.KTypeCheckError):
            Record("no number")
    finally:
        may_go_on.set()
        late.join()


def test_overrides_come_and_go_while_others_are_read():
    config = kt.Config(collection_check="all")

    class Adding:
        def match(self, name):
            identifiers.append(kt.add_config_override("other", config))

    identifiers = []
    CONFIG_OVERRIDES[-1] = Adding(), config
    assert get_config(__name__).collection_check == "first"
    assert len(identifiers) == 1


def test_environment_variable_sets_the_start():
    script = "import kauldron.ktyping as kt; print(kt.CONFIG.typechecking_enabled)"
    for value, expected in (("0", "False"), ("1", "True")):
        result = subprocess.run(
            [sys.executable, "-c", script],
            env={
                "KAULDRON_TYPECHECK": value,
                "PATH": "",
                "PYTHONPATH": ":".join(sys.path),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stdout.strip() == expected


# --------------------------------------------------------------------------------------
# Config objects
# --------------------------------------------------------------------------------------


def test_update_overlays_what_is_given():
    base = kt.Config(typechecking_enabled=True, jaxtyping_annotations="WARN")
    merged = base.update(kt.Config(typechecking_enabled=False))
    assert merged.typechecking_enabled is False
    assert merged.jaxtyping_annotations is ReportingPolicy.WARN
    assert base.replace(typechecking_enabled=False).typechecking_enabled is False
    assert base.typechecking_enabled is True


def test_wrong_values_are_refused():
    with pytest.raises(ValueError):
        kt.Config(collection_check="some")
    with pytest.raises(ValueError):
        kt.Config(jaxtyping_annotations="SHOUT")
    with pytest.raises(TypeError):
        kt.Config(True)


def test_resolving_a_configuration_does_not_count_as_a_change():
    from kauldron.ktyping.config import VERSION

    kt.add_config_override(".*", kt.Config(typechecking_enabled=True))
    before = VERSION.number
    get_config(__name__)
    assert before == VERSION.number


# --------------------------------------------------------------------------------------
# Annotations of jaxtyping
# --------------------------------------------------------------------------------------


def _with_jaxtyping():
    @kt.typechecked
    def g(x: list[jaxtyping.Float[np.ndarray, "n"]]):
        return True

    return g


def test_jaxtyping_annotation_is_an_error_by_default():
    with pytest.raises(RuntimeError, match=r"Parameter 'x' of function 'g'.*jaxtyping"):
        _with_jaxtyping()([np.ones(2)])


def test_jaxtyping_in_a_dataclass_is_found():
    @kt.typechecked
    @dataclasses.dataclass
    class Data:
        x: jaxtyping.Float[np.ndarray, "n"]

    with pytest.raises(RuntimeError, match="'x'"):
        Data(np.ones(2))


def test_jaxtyping_policies(caplog):
    kt.CONFIG.jaxtyping_annotations = "WARN"
    with pytest.warns(UserWarning, match="jaxtyping"):
        assert _with_jaxtyping()([np.ones(2)])
    kt.CONFIG.jaxtyping_annotations = ReportingPolicy.LOG_INFO
    with caplog.at_level(logging.INFO, logger="kauldron.ktyping"):
        assert _with_jaxtyping()([np.ones(2)])
    assert "jaxtyping" in caplog.text
    kt.CONFIG.jaxtyping_annotations = ReportingPolicy.IGNORE
    assert _with_jaxtyping()([np.ones(2)])
    with pytest.raises(kt.KTypeCheckError):
        _with_jaxtyping()([np.ones(2, int)])


def test_older_types_are_not_jaxtyping():
    from kauldron import typing as kd_typing

    @kt.typechecked
    def g(x: kd_typing.Float["n"], y: Float["n"]):
        return kt.dim["n"]

    assert g(np.ones(2), np.ones(2)) == 2
    with pytest.raises(kt.KTypeCheckError):
        g(np.ones(2), np.ones(3))
