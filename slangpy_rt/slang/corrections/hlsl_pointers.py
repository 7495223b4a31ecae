"""Refuses pointers in HLSL, which Slang writes without an error and which no compiler of HLSL takes."""

from __future__ import annotations

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.emission import Emission
from slangpy_rt.slang.emitted import uses_pointers

_NO_POINTERS = "the function uses {used}; this device has no pointers. Pass arrays as RWTensor or RWStructuredBuffer."


def refuse_pointers(code: bytes, emission: Emission) -> bytes:
    """Return HLSL or SPIR-V as it is; raise UnsupportedError if it has a pointer to memory."""
    if used := uses_pointers(code, emission.form):
        raise UnsupportedError(_NO_POINTERS.format(used=used))
    return code


HLSL_POINTERS = Correction(
    name="pointers in HLSL",
    why="Slang writes pointers into HLSL, which has none, without an error; refused.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("hlsl",),
    applies=refuse_pointers,
    canary=Canary(
        text="""
struct Node { float *at; };
float read(Node node) { return *node.at; }
void canary(uniform RWStructuredBuffer<float> p, uniform Node node) { p[0] = read(node); }
""",
        wrong=rb"\bPtr<float",
        right=rb"error\[E\d+\]",
    ),
)
