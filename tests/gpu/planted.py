"""Kernels with a planted defect, for tests/gpu/sanitize.sh: ``planted.py write`` or ``planted.py race``.

A sanitizer that says nothing of them would say nothing of others either.
"""

import sys

import slangpy_rt as spy
from slangpy_rt.backends.cuda import backend as cuda

SLANG = """
import slangpy_rt;

void poke(float *at, int index) { at[index] = 1; }

groupshared float cells[64];
[numthreads(64, 1, 1)]
void race(uint i : SV_GroupIndex, RWTensor<float, 1> x)
{
    cells[i] = x[i];
    // No barrier: the other of the two waves may not have written yet.
    x[i] = cells[63 - i];
}
"""

cuda._SMALL, cuda._LARGE_STEP = 0, 1
device = spy.Device("cuda")
module = spy.Module.load_from_source(device, "planted", SLANG)
x = spy.Tensor.zeros(device, 64)
if sys.argv[1] == "write":
    # One element beyond the end.
    module.poke(x, 64)
else:
    module.race.dispatch(64, x)
device.synchronize()
