"""Whether the compiler's C++ is still what the loops over elements are recognized by: rows of the table, no faults.

The canaries have the form of the code generator's kernels.
"""

from __future__ import annotations

import re

from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.emission import Emission
from slangpy_rt.slang.cpp_lanes import with_lanes

_KERNEL = """
extension float
{
    static float _spy_load(float *at) { return *at; }
    static void _spy_store(float *at, float value) { *at = value; }
}
struct _spy_Call { int64_t count; uint64_t v_x; float *v__result; }
FUNCTION
void _spy_element(_spy_Call _spy_call, int64_t _spy_i)
{
    float x = float._spy_load(ADDRESS);
    float._spy_store(_spy_call.v__result + _spy_i, f(x));
}
void canary(int64_t _spy_begin, int64_t _spy_end, _spy_Call *_spy_block)
{
    _spy_Call _spy_call = *_spy_block;
    for (int64_t _spy_lane = _spy_begin; _spy_lane < _spy_end; ++_spy_lane)
        _spy_element(_spy_call, _spy_lane);
}
"""
_MASKED = rb"_spy_store_\d+\(_spy_Mask _m, _spy_P<float> "
# A number that becomes an address, which stands in the way of masks, and a pointer.
_NUMBER, _POINTER = "(float *)(_spy_call.v_x + 4 * uint64_t(_spy_i))", "_spy_call.v__result + _spy_i"
_FLAT = "float f(float x) { return 2 * x + 1; }"
_DIVERGENT = "float f(float x) { float s = x; for (int i = 0; s < 10; ++i) s = s * 2 + i; return s; }"


def _repaired(code: bytes, emission: Emission) -> bytes:
    return with_lanes(code)


CPU_LANES = Correction(
    name="CPU lanes",
    why="Elements would run one at a time on the CPU, up to ten times slower.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp",),
    applies=_repaired,
    canary=Canary(
        text=_KERNEL.replace("FUNCTION", _FLAT).replace("ADDRESS", _NUMBER),
        wrong=lambda code: b"_spy_lane" in code and b"#pragma omp simd" not in code,
        right=rb"#pragma omp simd",
    ),
)
CPU_MASKS = Correction(
    name="CPU lanes with divergent loops",
    why="Elements whose loops end at different iterations would run one at a time on the CPU.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp",),
    applies=_repaired,
    canary=Canary(
        text=_KERNEL.replace("FUNCTION", _DIVERGENT).replace("ADDRESS", _POINTER),
        wrong=lambda code: b"_spy_lane" in code and re.search(_MASKED, code) is None,
        right=_MASKED,
    ),
)
