"""Random programs in lanes against an interpreter of SPIR-V: equal bits in 1, 4, 8, 16 and 32 lanes.

The same programs run as they are compiled for a debugger.
"""

from __future__ import annotations

import numpy as np
import pytest

from slangpy_rt.backends.cpu.group_format import DEBUG_FLAGS
from slangpy_rt.lanes.errors import UnsupportedKernel
from tests.depth import one_in
from tests.lanes._interpreter import interpret
from tests.lanes._kernels import DEBUG, Kernels, packed, run
from tests.lanes._programs import Program

pytest.importorskip("llvmlite")

GROUPS = 2


@pytest.mark.parametrize("seed", one_in(75, range(150)))
def test_random_programs(seed: int) -> None:
    try:
        check(seed)
    except UnsupportedKernel as error:
        # 5 % of these programs; the seeds of the default run and of the next test are translated.
        pytest.skip(f"refused: {error}")


@pytest.mark.parametrize("seed", one_in(2, [380, 45, 596, 521]))
def test_programs_that_found_faults(seed: int) -> None:
    """Cases with shared last blocks; leaves from earlier cases, and from cases that run into the next one."""
    check(seed)


def check(seed: int) -> None:
    """Compare one program's results; the program is in the message."""
    program = Program(seed)
    code = Kernels(program.text).code("main_kernel")
    start = np.random.default_rng(seed).integers(0, 1 << 32, GROUPS * program.threads, np.uint32)
    expected, totals = start.copy(), np.zeros(4, np.uint32)
    interpret(code, GROUPS, packed((expected, totals, 2)))
    for width in (1, 4, 8, 16, 32):
        data, sums = start.copy(), np.zeros(4, np.uint32)
        run(code, (GROUPS, 1, 1), data, sums, 2, width=width)
        assert (data == expected).all() and (sums == totals).all(), f"width {width}:\n{program.text}"
    code = Kernels(program.text, DEBUG_FLAGS).code("main_kernel")
    for some in (1, 8):
        data, sums = start.copy(), np.zeros(4, np.uint32)
        run(code, (GROUPS, 1, 1), data, sums, 2, width=some, debug=DEBUG)
        assert (data == expected).all() and (sums == totals).all(), f"debugger, width {some}:\n{program.text}"
