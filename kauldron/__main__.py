"""`python -m kauldron`: the command `kauldron`."""

import sys

from kauldron.main import main

if __name__ == "__main__":
    sys.exit(main())
