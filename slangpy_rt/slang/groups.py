"""Tells whether functions share memory, wait or exchange values within a thread group: what ties elements to threads.

Modules are judged by their intermediate code, in which macros are expanded and imports resolved, and kernels by their
target code, which holds only reached functions. Doubtful code counts as code that does. Nothing here depends on the
names of the user's functions or on the text that they were written in.
"""

from __future__ import annotations

import array
import re

from slangpy_rt.slang import spirv
from slangpy_rt.slang.emitted import prelude_end

# Matches, in intermediate code, shared variables, and the mangled names of functions and variables of Slang's
# core and GLSL modules that belong to a group. Assembly and target text can contain anything.
_SHARED = re.compile(
    rb"RateQualified\(GroupShared|\bSPIRVAsmInst\(|\bGenericAsm\("
    rb"|\"_S\w{0,3}?4(?:core|glsl)\w*?(?:Wave|Quad|Barrier|barrier|GroupSync|[Ss]ubgroup|[Ww]orkgroup|IsHelperLane|CoopMat"
    rb"|cudaThreadIdx|cudaBlock|gl_|[Ii]nvocation|[Bb]allot|shader[A-Z])"
)
# Matches the same in CUDA, HLSL and Metal, as Slang writes it.
_TEXT = re.compile(
    rb"groupshared|__shared__|threadgroup|[Ww]ave[A-Z_]|_?[Qq]uad[A-Z]|[Bb]arrier|sync|shfl|[Bb]allot|[Ll]aneI|activemask"
    rb"|ActiveMask|simd|\basm\b|__match|__reduce"
)
_CAPABILITIES = frozenset({18, *range(61, 69), 4423, 4431, 5291, 5297, 5357, 6022, 6026, 6400})
# BuiltIn decorations of groups and subgroups (SPIR-V 1.6, 3.21), but for the index of the thread in the dispatch.
_BUILT_IN = 11
_BUILT_INS = frozenset({24, 25, 26, 27, 29, *range(36, 44), *range(4416, 4421), *range(5374, 5378)})
_VARIABLE, _WORKGROUP = 59, 4
# OpControlBarrier and OpMemoryBarrier with their numbers of words.
_BARRIERS = (4 << 16 | 224, 3 << 16 | 225)


def may_use_groups(code: bytes) -> bool:
    """Return whether the intermediate code of a module has functions that may belong to a thread group."""
    return _SHARED.search(code) is not None


def uses_groups(code: bytes, form: str) -> bool:
    """Return whether target code of a format may use anything of a thread group besides the thread's own index."""
    if form != "spirv":
        return _TEXT.search(code, prelude_end(code, form)) is not None
    words = array.array("I", code).tolist()
    # A constant with the value of such a word counts as well.
    if any(barrier in words for barrier in _BARRIERS):
        return True
    for instruction in spirv.instructions(words):
        op = instruction[0] & 0xFFFF
        if op == spirv.FUNCTION:
            return False
        if op == spirv.CAPABILITY and instruction[1] in _CAPABILITIES:
            return True
        if op == spirv.DECORATE and instruction[2] == _BUILT_IN and instruction[3] in _BUILT_INS:
            return True
        if op == _VARIABLE and instruction[3] == _WORKGROUP:
            return True
    return False
