"""`konfig.mock_modules()`: proxies for a while, then the modules are back."""

import contextlib
import fractions
import sys
from types import ModuleType

import pytest

import kauldron.konfig as renamed
from kauldron import kd, konfig

SOME_VALUE = 5


def build_with_module_globals():
    return fractions.Fraction(1, 3)


def test_inside_of_a_function_with_a_local_import():
    import decimal
    import fractions as local_name

    other = 3
    with konfig.mock_modules():
        cfg = local_name.Fraction(1, decimal.Decimal(3))
        new_local = other + 1
    assert isinstance(cfg, konfig.ConfigDict)
    assert isinstance(local_name, ModuleType)
    assert isinstance(decimal, ModuleType)
    assert new_local == 4
    assert local_name.Fraction(1, 3).denominator == 3


def test_module_level_variables_are_replaced_and_restored():
    real = fractions
    with konfig.mock_modules():
        cfg = build_with_module_globals()
        assert SOME_VALUE == 5
    assert isinstance(cfg, konfig.ConfigDict)
    assert fractions is real
    assert konfig.resolve(cfg) == fractions.Fraction(1, 3)


def test_at_module_level():
    namespace = {"__name__": "notebook", "konfig": konfig, "fractions": fractions}
    source = "with konfig.mock_modules():\n    cfg = fractions.Fraction(1, 3)\n"
    exec(source + "value = fractions.Fraction(1, 3)", namespace)
    assert isinstance(namespace["cfg"], konfig.ConfigDict)
    assert namespace["value"] == fractions.Fraction(1, 3)


def test_konfig_is_real_under_any_name_and_through_kd():
    with konfig.mock_modules():
        first = renamed.ConfigDict({"x": konfig.placeholder(int)})
        second = kd.konfig.ConfigDict({"a": fractions.Fraction(1)})
        mocked = kd.train.Trainer
    assert type(first) is konfig.ConfigDict
    assert type(second) is konfig.ConfigDict
    assert mocked.qualname == "kauldron.kd:train.Trainer"
    assert kd is sys.modules["kauldron.kd"]


def test_modules_are_restored_after_an_error():
    import decimal

    with pytest.raises(RuntimeError), konfig.mock_modules():
        assert not isinstance(decimal, ModuleType)
        raise RuntimeError
    assert isinstance(decimal, ModuleType)
    assert isinstance(fractions, ModuleType)


def test_a_rebinding_made_inside_survives():
    import decimal

    with konfig.mock_modules():
        decimal = "mine"
        import json
    assert decimal == "mine"
    assert isinstance(json, ModuleType)


def test_blocks_nest():
    import decimal

    with konfig.mock_modules():
        with konfig.mock_modules():
            cfg = decimal.Decimal(1)
        again = decimal.Decimal(2)
    assert cfg.__qualname__ == again.__qualname__ == "decimal:Decimal"
    assert isinstance(decimal, ModuleType)


def test_closures_see_the_proxies_and_then_the_modules():
    import decimal

    def inner():
        return decimal

    with konfig.mock_modules():
        assert inner() is decimal
        assert not isinstance(inner(), ModuleType)
    assert isinstance(inner(), ModuleType)


def test_through_an_exit_stack_it_still_sees_the_caller():
    import decimal

    with contextlib.ExitStack() as stack:
        stack.enter_context(konfig.mock_modules())
        cfg = decimal.Decimal(1)
    assert isinstance(cfg, konfig.ConfigDict)
    assert isinstance(decimal, ModuleType)


def test_as_a_decorator_it_is_refused():
    with pytest.raises(TypeError, match="decorator"):

        @konfig.mock_modules()
        def make():
            return fractions.Fraction(1)


def test_modules_without_a_usable_name_are_left_alone():
    odd = ModuleType("")
    with konfig.mock_modules():
        assert isinstance(odd, ModuleType)


TRAINER_SNIPPET = """
with kd.konfig.mock_modules():
    cfg = kd.train.Trainer()
    is_config = isinstance(cfg, kd.konfig.ConfigDict)
cfg.workdir = workdir
trainer = kd.konfig.resolve(cfg)
"""


def test_a_trainer_written_in_a_notebook_is_a_trainer_after_the_block(tmp_path):
    namespace = {"__name__": "notebook", "kd": kd, "workdir": str(tmp_path)}
    exec(TRAINER_SNIPPET, namespace)
    assert namespace["is_config"]
    assert isinstance(namespace["trainer"], kd.train.Trainer)
    assert namespace["trainer"].raw_cfg == namespace["cfg"]


def test_a_trainer_written_in_a_function_is_a_trainer_after_the_block(tmp_path):
    from kauldron import kd as local_kd

    with local_kd.konfig.mock_modules():
        cfg = local_kd.train.Trainer()
        assert isinstance(cfg, local_kd.konfig.ConfigDict)
    cfg.workdir = tmp_path
    trainer = local_kd.konfig.resolve(cfg)
    assert isinstance(trainer, local_kd.train.Trainer)
