"""Assignments to several components of a vector, ``v.xz = w``, which C++ and CUDA have not.

Slang 2026.12 writes them as they are where an accessor returned the vector: ``t[i].xz = w``.
"""

from __future__ import annotations

import re

from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.emission import Emission
from slangpy_rt.slang.emitted import prelude_end

# Fields of structs have a number behind their names, so that these are components alone.
_STORE = re.compile(rb"^( *)(\S[^\n=]*)\.([xyzw]{2,4}) = ([^\n]*);$", re.M)


def with_swizzled_stores(code: bytes, emission: Emission) -> bytes:
    """Return C++ or CUDA code in which each component is assigned by itself."""
    start = prelude_end(code, emission.form)
    return code[:start] + _STORE.sub(_parts, code[start:])


def _parts(match: re.Match[bytes]) -> bytes:
    indent, vector, components, value = match.groups()
    stores = b" ".join(
        b"%b.%c = _spy_parts.%c;" % (vector, to, of) for to, of in zip(components, b"xyzw", strict=False)
    )
    return b"%b{ auto _spy_parts = %b; %b }" % (indent, value, stores)


SWIZZLED_STORES = Correction(
    name="swizzled stores",
    why="C++ and CUDA have no assignment to several components, v.xz = w, which Slang writes for a set accessor.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp", "cuda"),
    applies=with_swizzled_stores,
    canary=Canary(
        text="""
struct Cell
{
    float3 *at;
    property float3 value { get { return *at; } [nonmutating] set { *at = newValue; } }
}
void canary(uniform float3 *p, uniform float2 w)
{
    Cell cell = {p};
    cell.value.xz = w;
}
""",
        wrong=rb"\.xz = w_\d+;",
        right=rb"\.x = w_\d+\.x;",
    ),
)
