"""``python -m slangpy_rt``: the command line of ``slangpy_rt.tools.cli``. It holds nothing else."""

import sys

from slangpy_rt.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
