"""How exact functions of float are on the CPU, over all 2^32 floats: the largest error in units of the last place.

Elements run several at a time, with the vector functions of glibc where there are any (x86-64). The exact value is
that of libm for double. Infinities, NaN and the signs of zeros have to be equal; a function where they are not has
"inf". All floats take about two minutes a function on two cores; ``--step 101`` takes one in 101 of them.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import slangpy_rt as spy

NAMES = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "exp2",
    "log", "log2", "log10", "sqrt", "rsqrt",
)  # fmt: skip
_EXACT = {"rsqrt": "1 / sqrt(double(x))"}
_SLANG = """
// Units of the last place of the rounded exact value; infinity where no number of units says the difference.
float difference(float found, double exact)
{
    let rounded = float(exact);
    if (isnan(rounded) || isnan(found))
        return isnan(rounded) == isnan(found) ? 0 : 1.0f / 0.0f;
    if ((asuint(rounded) ^ asuint(found)) >> 31 != 0)
        return 1.0f / 0.0f;
    if (rounded == found && (isinf(rounded) || rounded == 0))
        return 0;
    if (isinf(rounded) || isinf(found))
        return 1.0f / 0.0f;
    // 2^-149 for subnormal numbers.
    let exponent = max(int(asuint(rounded) >> 23 & 255), 1);
    return float(abs(double(found) - exact) / asdouble(0u, uint(exponent - 150 + 1023) << 20));
}
"""
_EACH = """
float of_NAME(uint bits) { return NAME(asfloat(bits)); }
float error_NAME(uint bits, float found) { let x = asfloat(bits); return difference(found, EXACT); }
"""
_CHUNK = 1 << 22


def main() -> int:
    """Print a line for each function; the exit status is 1 if one of them is more than 4 units off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(NAMES), help="functions (default: all)")
    parser.add_argument("--step", type=int, default=1, help="take each STEP-th float (default: each)")
    options = parser.parse_args()
    device = spy.Device("cpu")
    text = _SLANG + "".join(
        _EACH.replace("EXACT", _EXACT.get(name, f"{name}(double(x))")).replace("NAME", name) for name in options.names
    )
    module = spy.Module.load_from_source(device, "cpu_functions", text)
    worst = 0.0
    for name in options.names:
        largest, at = _largest(device, module, name, options.step)
        print(f"{name:8}{largest:10.4f} at {at!r}", flush=True)
        worst = max(worst, largest)
    return int(worst > 4)


def _largest(device: spy.Device, module: spy.Module, name: str, step: int) -> tuple[float, float]:
    """The largest difference of a function, and an argument that has it."""
    found, error = spy.Tensor.empty(device, _CHUNK, "float"), spy.Tensor.empty(device, _CHUNK, "float")
    largest, at = 0.0, 0.0
    for first in range(0, 1 << 32, _CHUNK * step):
        bits = np.arange(first, min(first + _CHUNK * step, 1 << 32), step, np.uint64).astype(np.uint32)
        bits = np.resize(bits, _CHUNK)
        module[f"of_{name}"](bits, _result=found)
        module[f"error_{name}"](bits, found, _result=error)
        errors = error.to_numpy()
        k = int(errors.argmax())
        if errors[k] > largest:
            largest, at = float(errors[k]), float(bits[k : k + 1].view(np.float32)[0])
    return largest, at


if __name__ == "__main__":
    sys.exit(main())
