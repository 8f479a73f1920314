"""The libraries underneath keep quiet; the user's own records stay."""

import subprocess
import sys
import textwrap

SCRIPT = textwrap.dedent(
    """
    import logging, sys, tempfile
    from kauldron import status

    if "quiet" in sys.argv:
        status.quieten_libraries()
        status.quieten_libraries()
    from absl import logging as absl_logging
    absl_logging.set_verbosity(absl_logging.INFO)
    absl_logging.use_absl_handler()
    if "loud orbax" in sys.argv:
        logging.getLogger("orbax").setLevel(logging.INFO)

    import orbax.checkpoint as ocp
    with ocp.Checkpointer(ocp.JsonCheckpointHandler()) as checkpointer:
        checkpointer.save(tempfile.mkdtemp() + "/x", args=ocp.args.JsonSave({}))
    absl_logging.info("from the user")
    """
)


def _stderr(*args):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *args],
        capture_output=True,
        text=True,
        check=True,
    ).stderr


def test_info_records_of_libraries_are_hidden():
    assert "checkpointer" in _stderr().lower()
    quiet = _stderr("quiet")
    assert "checkpointer" not in quiet.lower()
    assert "from the user" in quiet


def test_they_can_be_asked_for():
    assert "checkpointer" in _stderr("quiet", "loud orbax").lower()
