"""Lets a C++ compiler run several elements at a time: loops over independent elements become ``omp simd`` loops.

The code generator names the variable of a loop over independent elements ``_spy_lane``, and Slang writes the loop as
``for(;;)`` with a break. Here it becomes a loop that OpenMP knows, each function is always inlined, and functions of
floats that glibc's vector library libmvec has are declared with their vector forms. The backend defines the macro
``SPY_LIBMVEC`` where there is such a library; it holds the version of glibc.

A kernel stays as it is if it calls a function that is not known to be without side effects (atomic operations and
``printf`` among them), if it turns a number into an address that is not read at once, if a function calls itself, or
if its functions, each written out where it is called, are too long.
"""

from __future__ import annotations

import re

from slangpy_rt.slang.cpp_masks import wide_loop, with_masks
from slangpy_rt.slang.emitted import prelude_end

# The most lines of a kernel with all functions inlined. g++ takes about 1 s for 4000.
_MOST_LINES = 3000
_LOOP = re.compile(
    rb"^( +)for\(;;\)\n\1\{\n\1    if\((_spy_lane_\d+) < ([^\n]*)\)\n\1    \{\n\1    \}\n\1    else\n\1    \{\n"
    rb"\1        break;\n\1    \}\n((?:\1    [^\s{}][^\n]*;\n)*?\1    _spy_element_\d+\([^\n]*\);\n)"
    rb"\1    \2 = \2 \+ (?:1LL|int\(1\));\n\1\}\n",
    re.M,
)
# A function and its body: ``static float f_0(float x_0)``.
_FUNCTION = re.compile(
    rb"^(SLANG_PRELUDE_EXPORT |static )?"
    rb"((?!struct |template|inline |using )[^\n;={}#/]*?\b(\w+_\d+|_S\d+|_spy_run)\([^\n;{}]*\))\n\{\n(.*?)^\}\n",
    re.M | re.S,
)
_CALL = re.compile(rb"\b([A-Za-z_]\w*)(?: *<[^()\n;]*>)? *\(")
# Functions of Slang's prelude and of this package's corrections, types, and words of C++; none has side effects.
_PURE = re.compile(
    rb"(?:F16|F32|F64|I8|I16|I32|I64|U8|U16|U32|U64)_\w+|_slang_vector_get_element(?:_ptr)?|slang_bit_cast|Vector|Matrix"
    rb"|FixedArray|make(?:Vector|Matrix)\w*|getReg|f16tof32|f32tof16|_slang_\w+"
    rb"|_spy_(?:round|log10|acosh|asinh|atanh|exp10|sinpi|cospi|tanpi|abs|min|max|sign|fma|countbits|reversebits"
    rb"|firstbitlow|firstbithigh|over|rest|sum|difference|product|and|or|xor|left|right|minus|negative|half)"
    rb"|_spy_\w+_(?:sum|difference|product|and|or|xor)|half|float|double|bool|int|uint|u?int(?:8|16|32|64)_t|sizeof"
    rb"|if|for|while|switch|return"
)
# A number that becomes an address, and the reads and writes of elements, for which the code generator vouches.
_ADDRESS = re.compile(rb"\(\w+ \*\) ?[(\w]")
_READ = re.compile(rb"\b\w*_spy_load_\d+\((?=\(\w+ \*\) ?[(\w])")
_STRUCT_STORE = re.compile(rb"_spy_store_\w+\(uint64_t _spy_at_\d+, ")
# The pointer to the buffer of printf and assertions may only be set, once for each element.
_DIAGNOSTICS = re.compile(rb"\b_spy_diagnosticsBuffer_\d+\b(?! = _spy_call_\d+->)(?!;\n)")
_UNKNOWN = re.compile(rb"\b(?:asm|goto|static|volatile)\b")
_CONTEXT = re.compile(rb"^    (KernelContext_\d+) globals = \{\};\n    \1 \* (kernelContext_\d+) = &globals;\n", re.M)

_INLINE = b"static inline __attribute__((always_inline)) "
# The first are in libmvec since glibc 2.22, the others since 2.35. A cosine has a name of its own: g++ makes one
# complex number of sinf and cosf of the same argument, for which there is no vector form. clang knows libmvec by the
# option -fveclib.
_OLD, _NEW = b"exp log".split(), b"tan asin acos atan sinh cosh tanh asinh acosh atanh exp2 log2 log10".split()
_DECLARED = b'#pragma omp declare simd notinbranch\nextern "C" float %bf(float) noexcept;\n'
_MATH = (
    b"#if defined(SPY_LIBMVEC) && !defined(__clang__)\n"
    + b"".join(_DECLARED % name for name in (b"sin", *_OLD))
    + b'#pragma omp declare simd notinbranch\nextern "C" float powf(float, float) noexcept;\n'
    + b"#pragma omp declare simd notinbranch\n"
    + b'extern "C" __attribute__((const)) float _spy_cosf(float) noexcept __asm__("cosf");\n'
    + b"#define F32_cos _spy_cosf\n#if SPY_LIBMVEC >= 235\n"
    + b"".join(_DECLARED % name for name in _NEW)
    + b"#endif\n#endif\n"
)


def with_lanes(code: bytes) -> bytes:
    """Return C++ code in which a compiler may run several independent elements at a time; other code as it is.

    Parameters
    ----------
    code : bytes
        The code that Slang wrote, with all corrections, and with its function exported.
    """
    end = prelude_end(code, "cpp")
    start = code.find(b"struct _spy_Call_", end)
    text = code[end:]
    if b"_spy_lane_" not in text or start < 0:
        return code
    functions = {m[3]: m for m in _FUNCTION.finditer(text)}
    reached = _reached(text, functions)
    if not reached:
        return code
    context, masked = _CONTEXT.search(text), with_masks(text, functions, reached)
    text, count = _LOOP.subn(lambda match: _loop(match, context, bool(masked)), text)
    if not count:
        return code
    text = _FUNCTION.sub(_inlined, text)
    if masked:
        head, run, rest = text.partition(b"SLANG_PRELUDE_EXPORT __attribute__((flatten)) void _spy_run(")
        text = b"".join((head, b"#ifdef SPY_MASKS\n", masked, b"#endif\n", run, rest))
    return b"".join((code[:end], _MATH, text))


def _loop(match: re.Match[bytes], context: re.Match[bytes] | None, masked: bool) -> bytes:
    indent, lane, bound, body = match.groups()
    own = b""
    if context:
        # Global variables are set for each element anew, so that each can have its own.
        own = b"%b    %b _spy_globals = {};\n" % (indent, context[1])
        body = re.sub(rb"\b%b\b" % context[2], b"(&_spy_globals)", body)
    loop = (
        b"%(i)bconst auto _spy_each = [&](const int64_t %(lane)b) __attribute__((always_inline))\n%(i)b{\n"
        b"%(own)b%(body)b%(i)b};\n"
        b"#pragma omp simd\n"
        b"%(i)bfor (int64_t _spy_at = _spy_first; _spy_at < _spy_last; ++_spy_at)\n%(i)b    _spy_each(_spy_at);\n"
    ) % {b"i": indent, b"lane": lane, b"own": own, b"body": body}
    if masked and (wide := wide_loop(indent, lane, own + body)):
        loop = b"#ifdef SPY_MASKS\n%b#else\n%b#endif\n" % (wide, loop)
    return (
        b"%(i)b{\n%(i)bint64_t _spy_first = %(lane)b, _spy_last = %(bound)b;\n%(loop)b"
        b"%(i)bif (%(lane)b < _spy_last)\n%(i)b    %(lane)b = _spy_last;\n%(i)b}\n"
    ) % {b"i": indent, b"bound": bound, b"lane": lane, b"loop": loop}


def _inlined(match: re.Match[bytes]) -> bytes:
    if match[3] == b"_spy_run":
        # The functions of the prelude too, which have no such attribute.
        return b"SLANG_PRELUDE_EXPORT __attribute__((flatten)) " + match[0][len(match[1] or b"") :]
    return _INLINE + match[0][len(match[1] or b"") :]


def _reached(text: bytes, functions: dict[bytes, re.Match[bytes]]) -> dict[bytes, int]:
    """Return the functions that elements call, their own among them, if a compiler may run several at a time.

    Each has its number of lines with all that it calls. Elements write nothing but their places in arrays then, and
    can be inlined whole. Otherwise nothing is returned.
    """
    if _DIAGNOSTICS.search(text):
        return {}
    calls: dict[bytes, list[bytes]] = {}
    todo = [name for name in functions if name.startswith(b"_spy_element_")]
    while todo:
        name = todo.pop()
        head, body = functions[name][2], functions[name][4]
        if _UNKNOWN.search(body):
            return {}
        if not _STRUCT_STORE.search(head) and len(_ADDRESS.findall(body)) != len(_READ.findall(body)):
            return {}
        called = _CALL.findall(body)
        if not all(other in functions or _PURE.fullmatch(other) for other in called):
            return {}
        calls[name] = [other for other in called if other in functions]
        todo += [other for other in calls[name] if other not in calls and other not in todo]
    lines = {name: functions[name][4].count(b"\n") for name in calls}
    known: dict[bytes, int] = {}
    found = {name: _length(name, calls, lines, known) for name in calls}
    return found if all(length <= _MOST_LINES for length in found.values()) else {}


def _length(name: bytes, calls: dict[bytes, list[bytes]], lines: dict[bytes, int], known: dict[bytes, int]) -> int:
    """Return the lines of a function with all that it calls; more than ``_MOST_LINES`` if it calls itself."""
    if name not in known:
        known[name] = _MOST_LINES + 1  # until it is known, and so for a function that calls itself
        known[name] = lines[name] + sum(_length(other, calls, lines, known) for other in calls[name])
    return known[name]
