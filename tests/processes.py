"""How many processes of tests a GPU has memory for. Nothing here is a test."""

from __future__ import annotations

import shutil
import subprocess

# Of the free memory of a GPU, in MiB. On an H100 with 79 GiB 5 processes were well, and of the tests of 16 some 70
# failed for want of memory.
EACH = 15 << 10


def fitting(free: list[int]) -> int | None:
    """How many processes fit, by the free MiB of each GPU; None without a GPU. All share the one that has least."""
    return max(1, min(free) // EACH) if free else None


def free_memory() -> list[int]:
    """The free MiB of each NVIDIA GPU, by the driver's own program; empty where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    told = subprocess.run(
        [program, "--query-gpu=memory.free", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return [int(line) for line in told.stdout.split() if line.isdecimal()] if told.returncode == 0 else []
