"""`python -m kauldron.xm.launch ...`: the same as `kauldron launch ...`."""

from __future__ import annotations

import sys

from kauldron.cli.main import main

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["--"]:  # as older command lines begin
        del arguments[0]
    sys.exit(main(["launch", *arguments]))
