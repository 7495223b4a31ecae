"""Decides for the user's function where it has the name of a function of Slang's core module.

Inside the file that declares such a function, it hides Slang's. A kernel, which imports that file, sees both, and
Slang refuses a call as ambiguous if both have the same parameters. The attribute ``[OverloadRank(2)]`` makes Slang
choose the user's. Nothing here reads types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from slangpy_rt.core.errors import CompileError
from slangpy_rt.slang.source_map import line_number

# Names from hlsl.meta.slang and core.meta.slang of Slang 2026.12, without those that begin with an underscore. The
# last lines have names of generic functions, which shaders/interlocked.slang has too.
_LIST = """
AllMemoryBarrier AllMemoryBarrierWithGroupSync CheckAccessFullyMapped D3DCOLORtoUBYTE4 DeviceMemoryBarrier
DeviceMemoryBarrierWithGroupSync DispatchRaysDimensions DispatchRaysIndex GeometryIndex
GetRenderTargetSampleCount GetRenderTargetSamplePosition GroupMemoryBarrier GroupMemoryBarrierWithGroupSync
HitKind IgnoreHit InstanceID InstanceIndex IsHelperLane ObjectRayDirection ObjectRayOrigin ObjectToWorld3x4
ObjectToWorld4x3 PrimitiveIndex QuadAll QuadAny RayCurrentTime RayFlags RayTCurrent RayTMin WaveActiveAllTrue
WaveActiveAnyTrue WaveActiveBallot WaveActiveCountBits WaveGetActiveMask WaveGetLaneCount WaveGetLaneIndex
WaveGetNumWaves WaveGetWaveIndex WaveIsFirstLane WavePrefixCountBits WorkgroupCount WorkgroupSize
WorldRayDirection WorldRayOrigin WorldToObject3x4 WorldToObject4x3 abort and asdouble asfloat asfloat16 asint
asint16 asuint asuint16 clock2x32ARB clockARB cudaBlockDim cudaBlockIdx cudaThreadIdx debugBreak dot2add
dot4add_i8packed dot4add_u8packed dst f16tof32 f32tof16 f32tof16_ getRealtimeClock getRealtimeClockLow
getStringHash lit msad4 or packHalf2x16 packInt4x8 packInt4x8Clamp packSnorm2x16 packSnorm4x8 packUint4x8
packUint4x8Clamp packUnorm2x16 packUnorm4x8 pack_clamp_s8 pack_clamp_u8 pack_s8 pack_u8 select
unpackHalf2x16ToFloat unpackHalf2x16ToHalf unpackInt4x8ToInt16 unpackInt4x8ToInt32 unpackSnorm2x16ToFloat
unpackSnorm2x16ToHalf unpackSnorm4x8ToFloat unpackSnorm4x8ToHalf unpackUint4x8ToUint16 unpackUint4x8ToUint32
unpackUnorm2x16ToFloat unpackUnorm2x16ToHalf unpackUnorm4x8ToFloat unpackUnorm4x8ToHalf unpack_s8s16
unpack_s8s32 unpack_u8u16 unpack_u8u32
InterlockedAdd InterlockedAnd InterlockedCompareExchange InterlockedCompareStore InterlockedExchange
InterlockedMax InterlockedMin InterlockedOr InterlockedXor
"""
FUNCTIONS = frozenset(_LIST.split())
_AMBIGUOUS = re.compile(r"error\[E39999\]: ambiguous call to '(\w+)'")
# Only between two functions that fit the arguments equally well does Slang choose by rank, the higher one. Functions
# of shaders/interlocked.slang have rank 1.
_RANK = "[OverloadRank(2)]"


def may_declare(code: str) -> bool:
    """Return whether `code`, a text without comments, may declare a function with one of the names in FUNCTIONS."""
    return any(match[1] not in ("return", "else") for match in _named().finditer(code))


def ranked(text: str, code: str, name: str, start: int, end: int) -> tuple[int, int, str] | None:
    """Return the edit that gives a function a higher rank than Slang's; None if it needs none.

    For ``uint lit(uint x)`` in line 7 the edit inserts ``[OverloadRank(2)]`` and ``#line 7`` on lines before it.

    Parameters
    ----------
    text, code : str
        The module's text, and the same without comments and directives, at equal offsets.
    name : str
        The qualified name of a declaration.
    start, end : int
        Offsets of the declaration's head, which ends before its body.

    Returns
    -------
    tuple of (int, int, str) or None
        The first and the last offset of the text to replace, both `start`, and the new text.
    """
    if name not in FUNCTIONS or not re.search(rf"[\w>\]]\s+{name}\s*\(", code[start:end]) or code[end] == "}":
        return None
    line_start = code.rfind("\n", 0, start) + 1
    # With #line and the spaces, diagnostics keep their lines and columns.
    return start, start, f"{_RANK}\n#line {line_number(text, start)}\n{' ' * (start - line_start)}"


@cache
def _named() -> re.Pattern[str]:
    """Return a pattern for a type or other word, one of the names and a parenthesis: ``uint lit(``, ``float4> dst(``.

    Compiling it takes 1.2 ms, and a process with a warm cache does not need it.
    """
    return re.compile(rf"(\b\w+|[>\]])\s+({'|'.join(sorted(FUNCTIONS))})\s*\(")


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Replace the error of an ambiguous call to one of FUNCTIONS in a generated kernel by one with the remedy.

    Parameters
    ----------
    what : str
        What the block does, for the message: ``"compile k"``.

    Raises
    ------
    CompileError
        If the block raises a CompileError: the explanation for such an ambiguous call, else the same error.
    """
    try:
        yield
    except CompileError as error:
        match = _AMBIGUOUS.search(str(error))
        if match is None or match[1] not in FUNCTIONS:
            raise
        raise CompileError(
            f"Slang could not {what}:\n'{match[1]}' is a function of Slang's own too, with the same parameters, and "
            "Slang cannot distinguish the two outside the file that declares it. Rename it, or declare it in the "
            "module itself."
        ) from None
