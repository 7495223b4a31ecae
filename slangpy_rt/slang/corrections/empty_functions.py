"""Refuses functions without statements: Slang writes them where a function has no text for a target.

Nothing can repair them. A device that runs ranges of elements says more of the function, in ``target_code``.
"""

from __future__ import annotations

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.emission import Emission
from slangpy_rt.slang.emitted import has_no_body

_NOTHING = "the function uses {used}, for which Slang writes nothing in {form}. Run it on a device of another type."


def _refuse(code: bytes, emission: Emission) -> bytes:
    if used := has_no_body(code, emission.form):
        raise UnsupportedError(_NOTHING.format(used=used, form=emission.form))
    return code


EMPTY_FUNCTIONS = Correction(
    name="functions without statements",
    why="Slang writes an empty function where a __target_switch has no case for the target; refused.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp",),
    applies=_refuse,
    canary=Canary(
        text="""
float wide(float x) { __target_switch { case spirv: return x + 1; case cuda: return x + 1; } }
void canary(uniform RWStructuredBuffer<float> p) { p[0] = wide(p[1]); }
""",
        wrong=rb"\bwide_\d+\([^\n;]*\)\n\{\s*\}\n",
        right=rb"error\[E\d+\]",
    ),
)
