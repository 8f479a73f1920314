"""Mistakes that authors of configs make, and what they are told."""

import dataclasses
import pickle
import sys
import traceback

import numpy as np
import optax as real_optax
import pytest

from kauldron import konfig
from kauldron.konfig.tree.history import recording

with konfig.imports():
    import fractions
    import json

    import optax
    from flax import linen as nn

this = sys.modules[__name__]


class Odd(Exception):
    """Has arguments that are no text, and attributes."""

    def __init__(self, code, *, detail):
        super().__init__(code)
        self.code = code
        self.detail = detail


@dataclasses.dataclass
class Failing:
    how: str = "value"

    def __post_init__(self):
        if self.how == "odd":
            raise Odd(7, detail="x")
        if self.how == "os":
            raise FileNotFoundError(2, "No such file", "/nowhere")
        if self.how == "cause":
            raise ValueError("outer") from KeyError("inner")
        if self.how == "context":
            try:
                raise KeyError("inner")
            except KeyError:
                raise ValueError("outer")
        if self.how == "key":
            raise KeyError("lost")
        if self.how == "empty":
            raise RuntimeError
        raise ValueError("bad value")


def failing(how):
    cfg = {"__qualname__": f"{__name__}:Failing", "how": how}
    return konfig.ConfigDict({"a": {"b": [1, cfg]}})


# ------------------------------------------------------------------------------------
# The table
# ------------------------------------------------------------------------------------


def config(**fields):
    return konfig.ConfigDict(fields)


def misspelt_field():
    cfg = config(optimizer={"learning_rate": 1})
    cfg.optimizer.learning_rat


def misspelt_argument():
    konfig.resolve(config(opt=optax.adam(learnin_rate=0.1)))


def misspelt_function():
    konfig.resolve(config(opt=[optax.adamm(0.1)]))


def function_of_a_module_below():
    konfig.resolve(config(loss=optax.dice_loss()))


def forgotten_argument():
    konfig.resolve(config(layers=[nn.Dense()]))


def real_object():
    config().opt = real_optax.adam(0.1)


def real_function():
    config(opt={"fn": real_optax.adam})


def a_lambda():
    cfg = config(a={})
    cfg.a.fn = lambda x: x


def an_array():
    cfg = config(a={})
    cfg.a.x = np.ones(3)


def method_of_a_call():
    optax.adam(0.1).init


def part_of_a_config_file_that_is_not_loaded():
    sys.modules.pop("cfg_config", None)
    konfig.resolve(config(x={"__qualname__": "cfg_config:Model"}))


def text_for_a_number():
    config(steps=10).steps = "many"


def reference_in_an_f_string():
    cfg = config(steps=10)
    cfg.name = f"run_{cfg.ref.steps}"


def reference_in_an_if():
    cfg = config(steps=10)
    if cfg.ref.steps > 3:
        pass


def dangling_reference():
    cfg = config(model={"width": 3})
    cfg.x = cfg.ref.model.widht
    konfig.resolve(cfg)


def dangling_reference_in_a_list():
    cfg = config()
    cfg.x = [1, cfg.ref.nothing]
    konfig.resolve(cfg)


def write_through_ref():
    cfg = config(a=1)
    cfg.ref.a = 2


def sum_of_calls():
    optax.adam(0.1) + optax.sgd(0.1)


def subclass_of_a_proxy():
    class Model(nn.Module):
        pass


def loop_over_a_proxy():
    for _ in optax:
        pass


def generic_of_a_proxy():
    fractions.Fraction[int]


def unset_values():
    konfig.resolve(config(w=konfig.required(int), sub={"q": konfig.required(str)}))


def value_from_a_flag():
    cfg = config(f=fractions.Fraction(1, 2))
    with recording("cli", "--cfg.f[1]=0"):
        cfg.f[1] = 0
    konfig.resolve(cfg)


def value_set_elsewhere():
    cfg = config(f=fractions.Fraction(numerator="1/2"))
    cfg.f.numerator = "abc"
    konfig.resolve(cfg)


def call_of_a_number():
    konfig.resolve(config(x={"__qualname__": "math:pi"}))


def index_beyond_the_arguments():
    config(opt=optax.adam(0.1)).opt[3]


def cycle():
    cfg = config(a={})
    cfg.a.b = cfg.a
    konfig.resolve(cfg)


def object_in_json():
    cfg = config(l=[1])
    cfg.l.append(object())
    cfg.to_json()


def odd_key_in_json():
    config(a={(1, 2): 3}).to_json()


def no_such_module():
    konfig.resolve(config(x={"__qualname__": "no_such_module.sub:f"}))


def new_field_of_a_locked_config():
    config(width=1).lock().widht = 2


def wrong_type_for_a_placeholder():
    config(workdir=konfig.placeholder(str)).workdir = 3


def two_symbols():
    konfig.resolve(config(x={"__const__": "json:dumps", "y": 1}))


def keyword_construction():
    konfig.resolve(config(j=json.dumps({"a": 1}, indnt=2)))


def other_defaults():
    node = {"__qualname__": "errors_test:Thing"}
    konfig.register_default_values(konfig.ConfigDict({**node, "a": 1}))
    konfig.register_default_values(konfig.ConfigDict({**node, "a": 2}))


HERE = "test_error_text.py"

MISTAKES = [
    (misspelt_field, AttributeError, ["cfg.optimizer", "'learning_rate'"]),
    (
        misspelt_argument,
        TypeError,
        ["cfg.opt", "optax.adam(learnin_rate=0.1)", HERE, "Did you mean", "nesterov"],
    ),
    (
        misspelt_function,
        AttributeError,
        ["cfg.opt[0]", "'optax'", "Did you mean", HERE],
    ),
    (
        function_of_a_module_below,
        AttributeError,
        ["cfg.loss", "Did you mean 'losses.dice_loss'?", HERE],
    ),
    (forgotten_argument, TypeError, ["cfg.layers[0]", "needs 'features'", HERE]),
    (real_object, ValueError, ["cfg.opt", "konfig.imports()", "mock_modules()"]),
    (real_function, ValueError, ["cfg.opt.fn", "`import optax`", "`optax.adam`"]),
    (a_lambda, ValueError, ["cfg.a.fn", "lambda", "at the top of a module"]),
    (an_array, ValueError, ["cfg.a.x", "numpy.ndarray", "as a list"]),
    (method_of_a_call, AttributeError, ["optax.adam", "'init'", "konfig.resolve"]),
    (
        part_of_a_config_file_that_is_not_loaded,
        ModuleNotFoundError,
        ["cfg.x", "the config file itself", "a module of its own"],
    ),
    (
        text_for_a_number,
        TypeError,
        ["cfg.steps", "'many'", "int", "str", "ignore_type"],
    ),
    (reference_in_an_f_string, TypeError, ["cfg.ref.steps", "konfig.ref_fn"]),
    (reference_in_an_if, NotImplementedError, ["cfg.ref.steps > 3", "&"]),
    (dangling_reference, AttributeError, ["cfg.x", "cfg.ref.model.widht", "'width'"]),
    (dangling_reference_in_a_list, AttributeError, ["cfg.x[1]", "cfg.ref.nothing"]),
    (write_through_ref, AttributeError, ["cfg.ref", "without .ref"]),
    (sum_of_calls, TypeError, ["optax.adam", "konfig.ref_fn"]),
    (subclass_of_a_proxy, ValueError, ["flax.linen:Module", "konfig.imports()"]),
    (loop_over_a_proxy, TypeError, ["konfig proxy of 'optax'"]),
    (generic_of_a_proxy, TypeError, ["konfig proxy of 'fractions:Fraction'"]),
    (unset_values, konfig.RequiredValueError, ["--cfg.w=", "--cfg.sub.q="]),
    (value_from_a_flag, ZeroDivisionError, ["cfg.f", "last set by --cfg.f[1]=0"]),
    (value_set_elsewhere, ValueError, ["cfg.f", "'numerator' was last set by", HERE]),
    (call_of_a_number, TypeError, ["cfg.x", "cannot be called", "float"]),
    (index_beyond_the_arguments, IndexError, ["3", "optax.adam", "-1 to 0"]),
    (cycle, konfig.CycleError, ["cfg.a.b is cfg.a"]),
    (object_in_json, TypeError, ["cfg.l[1]", "object"]),
    (odd_key_in_json, TypeError, ["cfg.a", "(1, 2)"]),
    (
        no_such_module,
        ModuleNotFoundError,
        ["cfg.x", "no_such_module", HERE, "PYTHONPATH"],
    ),
    (new_field_of_a_locked_config, AttributeError, ["cfg", "locked", "'width'"]),
    (wrong_type_for_a_placeholder, TypeError, ["cfg.workdir", "str expected"]),
    (two_symbols, ValueError, ["cfg.x", "__const__", "'y'"]),
    (keyword_construction, TypeError, ["cfg.j", "json.dumps", "indnt"]),
    (other_defaults, ValueError, ["errors_test.Thing", "a=1"]),
]


@pytest.mark.parametrize(
    "mistake, kind, words", MISTAKES, ids=[m[0].__name__ for m in MISTAKES]
)
def test_a_mistake_is_explained(mistake, kind, words):
    with pytest.raises(kind) as error:
        mistake()
    text = str(error.value)
    missing = [word for word in words if word not in text]
    assert not missing, text


# ------------------------------------------------------------------------------------
# What an error of a constructor keeps
# ------------------------------------------------------------------------------------


def test_path_node_place_and_message_are_told():
    with pytest.raises(ValueError) as error:
        konfig.resolve(failing("value"))
    lines = str(error.value).splitlines()
    assert lines[0] == "Resolving the config failed at cfg.a.b[1]:"
    assert "Failing(how='value')" in lines[1]
    assert HERE in lines[2]
    assert "in failing" in lines[2]
    assert lines[-1] == "bad value"


def test_the_type_and_attributes_of_odd_errors_are_kept():
    with pytest.raises(Odd) as error:
        konfig.resolve(failing("odd"))
    assert (error.value.code, error.value.detail, error.value.args) == (7, "x", (7,))
    assert "cfg.a.b[1]" in str(error.value)
    assert type(error.value).__name__ == "Odd"
    loaded = pickle.loads(pickle.dumps(error.value))
    assert isinstance(loaded, Odd)
    assert str(loaded) == str(error.value)
    assert loaded.detail == "x"
    with pytest.raises(FileNotFoundError) as error:
        konfig.resolve(failing("os"))
    assert (error.value.errno, error.value.filename) == (2, "/nowhere")
    assert "cfg.a.b[1]" in str(error.value)
    assert "No such file" in str(error.value)
    with pytest.raises(KeyError, match=r"(?s)cfg\.a\.b\[1\].*'lost'") as error:
        konfig.resolve(failing("key"))
    assert "\\n" not in str(error.value)
    with pytest.raises(RuntimeError, match="RuntimeError"):
        konfig.resolve(failing("empty"))


def shown(error):
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("how", ["value", "odd", "os", "key"])
def test_the_cause_shows_the_line_of_the_config(how):
    with pytest.raises(Exception) as error:
        konfig.resolve(failing(how))
    cause = error.value.__cause__
    assert cause is not None
    text = "".join(traceback.format_exception(cause))
    assert 'return konfig.ConfigDict({"a": {"b": [1, cfg]}})' in text
    assert "During handling" not in shown(error.value)


@pytest.mark.parametrize("how", ["cause", "context"])
def test_an_earlier_error_stays_in_the_chain(how):
    with pytest.raises(ValueError, match="outer") as error:
        konfig.resolve(failing(how))
    text = shown(error.value)
    assert "KeyError: 'inner'" in text
    assert "was created here" in text
    assert "During handling" not in text
    if how == "cause":
        assert isinstance(error.value.__cause__, KeyError)


def test_frames_of_konfig_are_hidden():
    with pytest.raises(ValueError) as error:
        konfig.resolve(failing("value"))
    files = [
        frame.filename for frame in traceback.extract_tb(error.value.__traceback__)
    ]
    inner = [file for file in files if "/kauldron/konfig/" in file]
    assert inner == []
    assert files[-1].endswith(HERE)


def test_long_configs_are_cut_in_messages():
    cfg = config(x=konfig.ConfigDict({"__qualname__": "json:no", "a": "x" * 5000}))
    with pytest.raises(AttributeError) as error:
        konfig.resolve(cfg)
    assert len(str(error.value)) < 1000


def test_without_history_errors_still_name_the_path():
    konfig.set_history(False)
    try:
        cfg = failing("value")
        with pytest.raises(ValueError, match=r"cfg\.a\.b\[1\]") as error:
            konfig.resolve(cfg)
    finally:
        konfig.set_history(True)
    assert error.value.__cause__ is None
    assert "created at" not in str(error.value)


def test_the_path_starts_at_the_outermost_config():
    cfg = failing("value")
    with pytest.raises(ValueError, match=r"cfg\.a\.b\[1\]"):
        konfig.resolve(cfg.a)
