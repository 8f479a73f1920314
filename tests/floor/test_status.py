"""Messages reach the user; records carry the line they came from."""

import logging
import subprocess
import sys
import textwrap
import types

import pytest

from kauldron import status
from tests import processes


def _run(script):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
    )


def test_message_appears_on_stderr_of_a_plain_script(tmp_path):
    script = tmp_path / "my_script.py"
    script.write_text(
        "from kauldron import kd\n\nkd.utils.status.log('hello')\n"
        "kd.utils.status.log_status('starting')\nkd.utils.status.log('again')\n"
        "kd.utils.status.log_warning('careful')\n"
    )
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True
    )
    lines = run.stderr.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        "hello",
        "starting",
        "again",
        "warning: careful",
    ]
    assert run.stdout == ""


def test_message_imports_neither_jax_nor_numpy():
    _run(
        """
        import sys
        from kauldron import kd
        kd.utils.status.log("hello")
        assert not {"jax", "numpy"} & set(sys.modules)
        """
    )


def test_logging_that_the_application_configured_is_respected():
    run = _run(
        """
        import logging
        logging.basicConfig(level=logging.WARNING, format="APP %(message)s")
        from kauldron import status
        status.log("hidden")
        logging.getLogger().setLevel(logging.INFO)
        status.log("shown")
        """
    )
    assert run.stderr.splitlines() == ["APP shown"]


@pytest.mark.parametrize("when", ["at first", "later"])
def test_library_that_logs_a_warning_does_not_silence_us(when):
    run = _run(
        """
        import logging, sys
        from kauldron import status
        if "{when}" == "at first":
            logging.warning("from a library")
        status.log("before")
        logging.warning("from a library")
        status.log("after")
        """.replace("{when}", when)
    )
    *_, first, second, third = run.stderr.splitlines()
    assert first.split(" ", 1)[1] == "before"
    assert second.endswith("from a library")
    assert third.split(" ", 1)[1] == "after"


def test_record_carries_the_line_of_the_caller(caplog):
    def helper():
        status.log("from the caller", stacklevel=2)

    with caplog.at_level(logging.INFO, logger="kauldron"):
        status.log("direct")
        helper()
    code = test_record_carries_the_line_of_the_caller.__code__
    assert [record.funcName for record in caplog.records] == [code.co_name] * 2
    assert caplog.records[0].filename == "test_status.py"


def test_percent_signs_are_kept(caplog):
    with caplog.at_level(logging.INFO, logger="kauldron"):
        status.log("100% %s done")
    assert caplog.messages == ["100% %s done"]


def test_warning_points_to_the_caller():
    with pytest.warns(DeprecationWarning, match="old name") as record:
        status.warn("old name", DeprecationWarning)
    assert record[0].filename == __file__


@pytest.fixture
def notebook(monkeypatch):
    shell = types.SimpleNamespace(kernel=object())
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    status._on_notebook.cache_clear()
    yield
    status._on_notebook.cache_clear()


def test_messages_are_printed_in_a_notebook(notebook, capsys):
    status.log("hello")
    with pytest.warns(UserWarning, match="careful"):
        status.warn("careful")
    assert capsys.readouterr().out == "hello\nWarning: careful\n"
    assert status.on_notebook


def test_display_of_a_notebook_gets_what_would_be_printed(notebook, capsys):
    records = []
    with status.shown_by(records.append):
        status.log("hello 100%")
        status.log_warning("careful")
        status.log_values("[1] train", step=1, collection="train", values={"a": 2.0})
        with pytest.warns(UserWarning, match="once"):
            status.warn("once")
    assert [r.getMessage() for r in records] == ["hello 100%", "careful", "[1] train"]
    assert records[1].levelname == "WARNING"
    assert records[2].kauldron_values == (1, "train", {"a": 2.0})
    assert capsys.readouterr().out == ""


def test_facts_about_the_process():
    assert status.is_lead_host is True
    assert status.on_xmanager is False
    assert status.on_notebook is False
    assert status.status is status
    with pytest.raises(AttributeError, match="nonsense"):
        status.nonsense


#
# The libraries underneath keep quiet; the user's own records stay
#


SCRIPT = """
    import logging, sys, tempfile
    from kauldron import status

    def save():
        with ocp.Checkpointer(ocp.JsonCheckpointHandler()) as checkpointer:
            checkpointer.save(tempfile.mkdtemp() + "/x", args=ocp.args.JsonSave({}))

    if "quiet" in sys.argv:
        status.quieten_libraries()
        status.quieten_libraries()
    from absl import logging as absl_logging
    absl_logging.set_verbosity(absl_logging.INFO)
    absl_logging.use_absl_handler()

    import orbax.checkpoint as ocp
    save()
    absl_logging.info("from the user")
    logging.getLogger("orbax").setLevel(logging.INFO)
    save()
"""


def _said(*args):
    """What is said before and after records of orbax are asked for."""
    output = processes.run_script_with_jax(SCRIPT, *args)
    before, of_user, after = output.lower().partition("from the user")
    assert of_user
    return before, after


@pytest.fixture(scope="module")
def quiet():
    return _said("quiet")


def test_info_records_of_libraries_are_hidden(quiet):
    assert "checkpoint" in _said()[0]
    assert "checkpoint" not in quiet[0]


def test_they_can_be_asked_for(quiet):
    assert "checkpoint" in quiet[1]


def test_messages_name_the_run_where_several_share_a_log(caplog):
    with caplog.at_level(logging.INFO, logger="kauldron"):
        with status.speaking_of("unit 2"):
            status.log("saved")
            values = {"losses/total": 1.0}
            status.log_values("[5] train", step=5, collection="train", values=values)
        status.log("all done")
    assert caplog.messages == ["unit 2: saved", "unit 2: [5] train", "all done"]
