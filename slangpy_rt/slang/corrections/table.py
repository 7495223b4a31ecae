"""All corrections: those that rewrite code, in the order in which they are applied, and those that refuse it."""

from __future__ import annotations

from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.cpu_lanes import CPU_LANES, CPU_MASKS
from slangpy_rt.slang.corrections.cuda_calls import CUDA_CALLS
from slangpy_rt.slang.corrections.cuda_statics import CUDA_STATICS
from slangpy_rt.slang.corrections.cuda_textures import CUDA_LAYERS, CUDA_LEVELS, CUDA_OFFSETS, CUDA_SIZES
from slangpy_rt.slang.corrections.derivatives import DERIVATIVES
from slangpy_rt.slang.corrections.division import DIVISION
from slangpy_rt.slang.corrections.emission import Emission
from slangpy_rt.slang.corrections.empty_functions import EMPTY_FUNCTIONS
from slangpy_rt.slang.corrections.half import HALF
from slangpy_rt.slang.corrections.hlsl_doubles import HLSL_DOUBLES
from slangpy_rt.slang.corrections.hlsl_pointers import HLSL_POINTERS
from slangpy_rt.slang.corrections.narrow_integers import NARROW_INTEGERS
from slangpy_rt.slang.corrections.prelude_functions import PRELUDE_FUNCTIONS
from slangpy_rt.slang.corrections.rounded_constants import HLSL_CONSTANTS
from slangpy_rt.slang.corrections.spirv_integers import (
    SPIRV_ABS,
    SPIRV_BIT_FIELDS,
    SPIRV_LOWEST_BIT,
    SPIRV_MAD,
    SPIRV_MATRICES,
)
from slangpy_rt.slang.corrections.spirv_math import SPIRV_CONSTANTS, SPIRV_DOUBLES, SPIRV_POWERS
from slangpy_rt.slang.corrections.spirv_vectors import SPIRV_COMPONENTS
from slangpy_rt.slang.corrections.spirv_zeros import SPIRV_ZEROS
from slangpy_rt.slang.corrections.swizzled_stores import SWIZZLED_STORES

REWRITES: tuple[Correction, ...] = (
    *(SPIRV_COMPONENTS, SPIRV_ZEROS),
    *(SPIRV_DOUBLES, SPIRV_POWERS, SPIRV_CONSTANTS),
    *(SPIRV_MAD, SPIRV_ABS, SPIRV_LOWEST_BIT, SPIRV_MATRICES),
    *(CUDA_LAYERS, CUDA_SIZES),
    # Before the functions of narrow integers, whose calls then have no operators inside.
    NARROW_INTEGERS,
    *PRELUDE_FUNCTIONS,
    CUDA_STATICS,
    SWIZZLED_STORES,
    CUDA_CALLS,
    DIVISION,
    HALF,
    # Last, because they read what all others have written.
    *(CPU_LANES, CPU_MASKS),
)
# ``target_code.checked`` applies each of them where a device needs it.
REFUSALS: tuple[Correction, ...] = (
    *(SPIRV_BIT_FIELDS, CUDA_OFFSETS, CUDA_LEVELS, EMPTY_FUNCTIONS, HLSL_POINTERS, HLSL_DOUBLES, HLSL_CONSTANTS),
)
# ``Session.load_module`` and ``FileSystem`` apply them, all by one function.
TEXTS: tuple[Correction, ...] = DERIVATIVES
CORRECTIONS: tuple[Correction, ...] = (*REWRITES, *REFUSALS, *TEXTS)


def rewritten(code: bytes, emission: Emission) -> bytes:
    """Return code to which the corrections of its format are applied.

    Corrections that share a function are applied at the place of the first.
    """
    for applies in dict.fromkeys(each.applies for each in REWRITES if emission.form in each.targets):
        code = applies(code, emission)
    return code
