"""The command `vrnet`, which is also `python -m vrnet`."""

import sys

from vrnet.app.main import main

if __name__ == "__main__":
    sys.argv[0] = "vrnet"
    main()
