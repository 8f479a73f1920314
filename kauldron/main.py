"""The entry point: `kauldron ...` and `python -m kauldron.main ...`.

Without the name of a command, `--cfg=config.py` trains.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
      argv: The arguments without the program; those of this process if not given.

    Returns:
      The exit code.
    """
    if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until a run begins, Ctrl-C simply ends the process. As an exception, a module
        # that is being imported could swallow it or take it for a failure of its own.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kauldron.cli.main import main as run_command_line

    return run_command_line(argv)


if __name__ == "__main__":
    sys.exit(main())
