"""The entry point: `kauldron ...` and `python -m kauldron.main ...`.

Without the name of a command, `--cfg=config.py` trains.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kauldron.cli.main import main as run_command_line


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
      argv: The arguments without the program; those of this process if not given.

    Returns:
      The exit code.
    """
    return run_command_line(argv)


if __name__ == "__main__":
    sys.exit(main())
