"""Checks and corrects target code: refuses code that a device could not run, replaces code that Slang writes wrong.

Nothing is compiled here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.target import NESTING, Target
from slangpy_rt.slang.corrections.cuda_textures import refuse_methods
from slangpy_rt.slang.corrections.emission import Emission
from slangpy_rt.slang.corrections.empty_functions import EMPTY_FUNCTIONS
from slangpy_rt.slang.corrections.hlsl_doubles import HLSL_DOUBLES
from slangpy_rt.slang.corrections.hlsl_pointers import refuse_pointers
from slangpy_rt.slang.corrections.narrow_integers import with_hlsl_negatives
from slangpy_rt.slang.corrections.prelude_functions import lacking_function
from slangpy_rt.slang.corrections.rounded_constants import HLSL_CONSTANTS, check_constants
from slangpy_rt.slang.corrections.spirv_integers import SPIRV_BIT_FIELDS, lacking_integer, with_negatives
from slangpy_rt.slang.corrections.spirv_math import lacking_double, rounded_double
from slangpy_rt.slang.corrections.table import rewritten
from slangpy_rt.slang.cpp_textures import with_textures
from slangpy_rt.slang.emitted import (
    breaks,
    calls_printf,
    has_no_body,
    nesting,
    reads_bindings,
    reads_parameters,
    sampling_method,
    uses_bytes,
    uses_resources,
    with_heap,
)
from slangpy_rt.slang.spirv_addresses import takes_address
from slangpy_rt.slang.spirv_locals import local_bytes
from slangpy_rt.slang.text import blank, deepest, longest_chain

# The longest chain of statements nested without brackets. Slang's time grows with its square: 2.2 s for 5000 nested
# ``if``, 35 s for 20,000.
_LONGEST_CHAIN = 5000
# The most local memory of a thread, in bytes, on CUDA (CUDA C++ Programming Guide, "Technical Specifications per
# Compute Capability"). Vulkan has no limit; lavapipe did not compile an array of 30,000 floats within a minute.
_LARGEST_LOCALS = 512 << 10
# Matches the names of Slang's functions that need thread groups.
NEEDS_GROUPS = re.compile(r"(?:Wave|Quad|Subgroup|subgroup)\w+|\w*MemoryBarrier\w*|\w*WithGroupSync\w*|barrier")
_BUFFERS = re.compile(r"\b(cbuffer|tbuffer)\s+(\w+)|\b(ConstantBuffer|ParameterBlock)\s*<[^;{}()]*>\s*(\w+)\s*;")
# A member of the argument block that is a texture or a sampler (``slangpy_rt_codegen.layout``).
_HANDLE = re.compile(r"\.Handle \*?v_")
_UNFILLED = (
    "the function reads a global resource, a cbuffer, a global variable without 'uniform' or one of an imported "
    "file, which nothing can fill{named}. Declare data in the module itself as: uniform float name; and pass arrays "
    "as parameters."
)
_UNSET = (
    "the function uses {used} that nothing has set. Textures and samplers are parameters of functions, and there are "
    "no acceleration structures; pass arrays as Tensor or StructuredBuffer parameters."
)
_NO_LEVEL = (
    "the function uses {used} of a texture, which this device does not have where no pixels are drawn: only those "
    "have neighbours from which a level of detail follows. Use SampleLevel(sampler, at, level)."
)
_NO_GRADIENTS = (
    "the function uses {used} of a texture, which this device does not have. Compute the level, and use "
    "SampleLevel(sampler, at, level), or run it on a device of type vulkan."
)
_NO_LINES = (
    "the function reads a Texture1D by Load or an index, for which Slang has nothing in CUDA. Use a Texture2D of "
    "height 1, or SampleLevel with the filter 'nearest'."
)
_BREAKS = (
    "the function calls debugBreak(), which ends the process or the kernel where no debugger runs. Leave it out, or "
    "print values with printf."
)
_NO_BYTES = "the function uses {used}; HLSL has no 8-bit integers. Use wider ones."
_NO_DOUBLE = (
    "the function uses {used} of double, which SPIR-V has for half and float alone, and this device compiles by "
    "itself, so that ours cannot be put there. Use float, or a device of type vulkan, cuda or cpu."
)
_NO_INTEGER = (
    "the function uses {used}, for which Slang emits an instruction of other types, and this device compiles by "
    "itself. Write x * y + z for mad, leave the abs out, firstbitlow(uint(x)) for firstbitlow(x), and vectors for a "
    "matrix; or use a device of type vulkan, cuda or cpu."
)
_NO_FUNCTION = (
    "the function uses {used} of a type for which Slang's CUDA lacks it or takes another type (functions of 8 and 16 "
    "bits, mad and sign of integers; log10, acosh, asinh and atanh of double, and what has constants of double; "
    "firstbithigh of uint; abs, min and max of uint64_t), and this device compiles by itself, so that ours cannot be "
    "put there. Use a device of type cuda, vulkan or cpu."
)
_LARGE = (
    "the function has local variables of {size:,} bytes for each thread; at most {most:,} are compiled for this "
    "device. Make the arrays smaller, or pass them as parameters."
)
_NO_ADDRESS = (
    "the function changes a number in shared memory, or in a variable of a thread, by an atomic operation that this "
    "device has for integers alone, such as InterlockedMin of a float. Keep the number in a uint: asuint(x) of "
    "floats that are not negative has their order, and others can be exchanged by InterlockedCompareExchange in a "
    "loop."
)
_OWN_PRINTF = (
    "this printf is Slang's own, whose lines this device would lose. slangpy_rt's takes numbers, bools, vectors of "
    "these and strings that stand in the call: pass nothing else, and put 'import slangpy_rt;' into a file that is "
    "imported and calls it."
)


def checked(code: bytes, target: Target, name: str, texts: Iterable[str] = (), kernel: str = "") -> bytes:
    """Return the target code of a kernel unchanged, if the device can run all of it.

    Parameters
    ----------
    code : bytes
        The code that Slang wrote.
    target : Target
        The target for which it was written.
    name : str
        The kernel's name, for error messages.
    texts : iterable of str
        Texts of the user's modules, which name in an error message what cannot be filled.
    kernel : str
        The kernel's own text, which shows whether textures or samplers are among its arguments.

    Raises
    ------
    CompileError
        If the code nests too deep for compilers, or calls Slang's own ``printf``.
    UnsupportedError
        If the code uses a function or type that the target lacks, or reads a global that needs a binding.
    """
    form = target.format
    by_handle, textures = target.entry == "handle", takes_textures(kernel)
    if form != "cpp":  # the C++ compiler runs in another process, whose crash does no harm
        check_depth(nesting(code, form), f"compile {name} for {form}", target.nesting)
    # HLSL without handles is not checked for bindings, because no device of this project runs it.
    if (by_handle or form != "hlsl") and reads_bindings(code, form, textures):
        raise UnsupportedError(_UNFILLED.format(named=_named_buffers(texts)))
    # In lanes, textures that nothing has set read as zeros (shaders/cpu_textures.slang).
    zeros = textures and target.lane_threads
    if used := "" if zeros else uses_resources(code, form, textures):
        raise UnsupportedError(_UNSET.format(used=used))
    if textures and (used := sampling_method(code, form)):
        if "fetch" in used:
            raise UnsupportedError(_NO_LINES)
        raise UnsupportedError((_NO_GRADIENTS if "Grad" in used else _NO_LEVEL).format(used=used))
    emission = Emission(form, _nothing)
    if textures and form == "cuda":
        refuse_methods(code, emission)
    if breaks(code, form):
        raise UnsupportedError(_BREAKS)
    if by_handle:
        refuse_pointers(code, emission)
    if by_handle and form == "hlsl":
        if used := uses_bytes(code):
            raise UnsupportedError(_NO_BYTES.format(used=used))
        HLSL_DOUBLES.applies(code, emission)
        HLSL_CONSTANTS.applies(code, emission)
    if form in ("hlsl", "metal"):
        EMPTY_FUNCTIONS.applies(code, emission)
    if calls_printf(code, form):
        raise CompileError(f"Slang could not compile {name} for {form}:\n{_OWN_PRINTF}")
    if form == "spirv":
        SPIRV_BIT_FIELDS.applies(code, emission)
    if form == "spirv" and (size := local_bytes(code)) > _LARGEST_LOCALS:
        raise UnsupportedError(_LARGE.format(size=size, most=_LARGEST_LOCALS))
    if form == "spirv" and takes_address(code):
        raise UnsupportedError(_NO_ADDRESS)
    if target.program:
        _check_complete(code, form)
    if target.entry == "range":
        check_body(has_no_body(code, form))
        if reads_parameters(code):
            raise UnsupportedError(_UNFILLED.format(named=_named_buffers(texts)))
    return code


def takes_textures(kernel: str) -> bool:
    """Tell whether textures or samplers are among the arguments of a kernel, by its own text."""
    return _HANDLE.search(kernel) is not None


def _named_buffers(texts: Iterable[str]) -> str:
    """Return what texts declare of buffers that need a binding, as the end of a sentence."""
    found = [f"{m[1] or m[3]} '{m[2] or m[4]}'" for text in texts for m in _BUFFERS.finditer(blank(text))]
    return f"; the module declares {', '.join(dict.fromkeys(found))}" if found else ""


def completed(code: bytes, form: str, double_math: Callable[[], bytes] | None, statics: bool) -> bytes:
    """Return target code in which functions that the target or Slang's prelude lacks, or has wrong, are replaced.

    Static variables without an initial value begin as zeros.

    Parameters
    ----------
    code : bytes
        The code that Slang wrote.
    form : str
        Its format, ``Target.format``.
    double_math : callable or None
        As of ``Emission``.
    statics : bool
        Whether the modules may have static variables that are not ``const``.
    """
    if form == "spirv":
        code = with_negatives(with_heap(code))
    elif form == "hlsl":
        code = with_hlsl_negatives(code)
    elif form == "cpp":
        code = with_textures(code)
    return rewritten(code, Emission(form, double_math, statics))


def _nothing() -> bytes:
    raise AssertionError("no refusal needs the functions of double")


def check_depth(found: int, what: str, most: int = NESTING) -> None:
    """Refuse text that is nested so deep that a compiler may crash.

    Parameters
    ----------
    found : int
        The depth to which the text is nested.
    what : str
        What Slang was asked to do, for the message: ``"compile k for spirv"``.
    most : int
        The greatest depth that is compiled.

    Raises
    ------
    CompileError
        If `found` is greater than `most`.
    """
    if found <= most:
        return
    limit, advice = "are compiled", "Take parts of it into functions of their own."
    if most < NESTING:
        # Taking parts into functions does not help here, because the driver inlines functions.
        limit = "are compiled by this device's driver"
        advice = "Use fewer selections and loops inside of one another, or a device with another driver."
    raise CompileError(
        f"Slang could not {what}:\nthe text nests {found} levels deep; at most {most} {limit}. {advice}"
    )


def check_text(text: str, what: str) -> None:
    """Refuse a module's text that nests so deep that Slang may crash or not end.

    Parameters
    ----------
    text : str
        The module's Slang text.
    what : str
        What Slang was asked to do, for the message: ``"load module 'm' from m.slang"``.

    Raises
    ------
    CompileError
        If its brackets, or statements and conditions without braces, nest too deep.
    """
    code = blank(text)
    check_depth(deepest(code), what)
    found, line = longest_chain(code) if len(code) > _LONGEST_CHAIN else (0, 0)
    if found > _LONGEST_CHAIN:
        raise CompileError(
            f"Slang could not {what}:\nfrom line {line} on the text nests {found} statements or conditions, each "
            f"without braces in another one; at most {_LONGEST_CHAIN} are compiled. Take parts of it into functions "
            "of their own."
        )


def check_groups(used: str) -> None:
    """Refuse a function or variable that needs thread groups.

    Parameters
    ----------
    used : str
        The name of the function or variable that a kernel uses; empty if it uses none.

    Raises
    ------
    UnsupportedError
        If the name is not empty.
    """
    if used:
        raise UnsupportedError(
            f"the function uses {used}, which needs thread groups; this device has none without the llvmlite "
            "package. Run: pip install llvmlite; or run it on a GPU (device type cuda or vulkan)."
        )


def check_body(used: str) -> None:
    """Refuse a function that has no implementation for this device; `used` is its name, or empty."""
    if not used or NEEDS_GROUPS.fullmatch(used):
        check_groups(used)
        return
    raise UnsupportedError(
        f"the function uses {used}, of which there is text for other devices alone; give its __target_switch a "
        "`default:` or a case for this one, or run it where it has one (device type cuda or vulkan)."
    )


def _check_complete(code: bytes, form: str) -> None:
    """Refuse code that needs the corrections of ``completed``, for a device that compiles Slang text itself."""
    if form == "spirv" and (used := lacking_double(code)):
        raise UnsupportedError(_NO_DOUBLE.format(used=used))
    if form == "spirv":
        check_constants(rounded_double(code))
    if form == "spirv" and (used := lacking_integer(code)):
        raise UnsupportedError(_NO_INTEGER.format(used=used))
    if form == "cuda" and (used := lacking_function(code)):
        raise UnsupportedError(_NO_FUNCTION.format(used=used))
