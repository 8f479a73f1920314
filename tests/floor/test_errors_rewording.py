"""Saying where an error happened: in its message, whatever kind it is."""

import errno
import pathlib
import pickle

import numpy as np
import pytest

from kauldron import ktyping as kt
from kauldron.errors import error_prefix


@kt.typechecked
def double(x: kt.Float["n"]) -> kt.Float["n"]:
    return 2 * x


class Stubborn(Exception):
    """Has a text of its own."""

    def __str__(self):
        return "as ever"


def _missing_file():
    pathlib.Path("/no/such/file").read_text()


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda: {}["a\nb"], "Evaluator val: a\nb"),
        (lambda: int("three"), "Evaluator val: invalid literal for int()"),
        (_missing_file, "[Errno 2] Evaluator val: No such file or directory: '/no/s"),
        (lambda: double(np.ones((2, 2))), "Evaluator val: "),
    ],
    ids=["key", "value", "file", "typecheck"],
)
def test_prefix_is_in_the_message(action, words):
    with pytest.raises(Exception) as plain:
        action()
    with pytest.raises(type(plain.value)) as error, error_prefix("Evaluator val: "):
        action()
    assert str(error.value).startswith(words)
    assert not hasattr(error.value, "__notes__")


def test_prefixes_add_up():
    with (
        pytest.raises(kt.KTypeCheckError) as error,
        error_prefix(lambda: "outer: "),
        error_prefix("inner: "),
    ):
        double(np.ones((2, 2)))
    assert str(error.value).startswith("outer: inner: ")
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_number_of_a_system_error_stays():
    with pytest.raises(OSError) as error, error_prefix("saving: "):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert error.value.errno == errno.ENOSPC
    assert str(error.value) == "[Errno 28] saving: No space left on device"


def test_message_that_cannot_be_changed_gets_a_note():
    with pytest.raises(Stubborn) as error, error_prefix("here: "):
        raise Stubborn("ignored")
    assert error.value.__notes__ == ["here:"]
    assert error.value.args == ("ignored",)
