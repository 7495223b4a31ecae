"""``python -m slangpy_rt``: the command line of ``slangpy_rt.cli``. It holds nothing else."""

import sys

from slangpy_rt.cli import main

if __name__ == "__main__":
    sys.exit(main())
