"""What target code tells that Slang does not: what it leaves out in silence, and what nobody would fill.

Reads text and SPIR-V that Slang emitted, and gives the exported C++ function a name that can be found. Refuses
nothing itself, but a text without that function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slangpy_rt.core.errors import CompileError
from slangpy_rt.slang.text import deepest

_OP_VARIABLE = 59  # SPIR-V, as the storage classes UniformConstant, Uniform and StorageBuffer
_BOUND = (0, 2, 12)
_OP_LOOP_MERGE, _OP_SELECTION_MERGE, _OP_LABEL = 246, 247, 248
_OP_NAME, _OP_TYPE_POINTER, _PHYSICAL_STORAGE = 5, 32, 5349
# What a kernel with handles has bound: all buffers there are, and where its argument block is.
_BOUND_BY_US = (b"__slang_resource_heap", b"entryPointParams._spy_block")


def has_no_body(code: bytes) -> str:
    """Name of a function in C++, HLSL or MSL of Slang's that the language has nothing for; empty if there is none.

    Slang 2026.12 writes it without statements; one that is meant to be empty returns.
    """
    match = re.search(rb"^[^\n;={}]*?\b(\w+?)_\d+\([^\n;{}]*\)\n\{\n\}\n", code, re.M)
    return match[1].decode() if match else ""


def reads_bindings(code: bytes, form: str) -> bool:
    """Whether CUDA, HLSL or SPIR-V reads a global resource or constant buffer, which only a binding could fill."""
    if form == "cuda":
        return b" SLANG_globalParams;" in code
    if form == "hlsl":
        return any(not name.startswith(b"entryPointParams") for name in re.findall(rb"(\w+) : register\(", code))
    ours = set()
    for op, words in _instructions(code) if form == "spirv" else ():
        if op == _OP_NAME and bytes(words[2:]).rstrip(b"\0") in _BOUND_BY_US:
            ours.add(words[1])
        if op == _OP_VARIABLE and words[3] in _BOUND and words[2] not in ours:
            return True
    return False


def uses_pointers(code: bytes, form: str) -> str:
    """What in HLSL or SPIR-V is a pointer to memory; empty if there is none.

    Slang 2026.12 writes pointers into HLSL, which has none, without a word.
    """
    if form == "hlsl":
        # Of a function the line that begins it, of anything else its own.
        found = re.search(rb"^.*?\b(?:(\w+?)_\d+\([^;\n]*)?\bPtr<([^,<>\n]+)", code, re.M)
        if found is None:
            return ""
        kind = f"{found[2].decode()}*"
        return f"{kind} in '{found[1].decode()}'" if found[1] else kind
    for op, words in _instructions(code) if form == "spirv" else ():
        if op == _OP_TYPE_POINTER and words[2] == _PHYSICAL_STORAGE:
            return "a pointer"
    return ""


def uses_bytes(code: bytes) -> str:
    """What in HLSL is an 8-bit integer, which HLSL has not; empty if there is none."""
    found = re.search(rb"\bu?int8_t\d?\b", code)
    return found[0].decode() if found else ""


def _instructions(code: bytes) -> Iterator[tuple[int, memoryview]]:
    """The instructions of SPIR-V: the number of each, and its words."""
    words = memoryview(code).cast("I")
    at = 5  # words of the header
    while at < len(words):
        end = at + (words[at] >> 16)
        yield words[at] & 0xFFFF, words[at:end]
        at = end


def nesting(code: bytes, form: str) -> int:
    """How deep brackets of a text, or selections and loops of SPIR-V, stand in each other."""
    if form != "spirv":
        return deepest(code.decode("utf-8", "replace"))
    ends: list[int] = []
    most = 0
    for op, words in _instructions(code):
        if op in (_OP_LOOP_MERGE, _OP_SELECTION_MERGE):
            ends.append(words[1])
            most = max(most, len(ends))
        elif op == _OP_LABEL and ends and words[1] == ends[-1]:
            ends.pop()
    return most


def calls_printf(code: bytes, form: str) -> bool:
    """Whether target code prints by means of its language, not by those of our library."""
    return b"NonSemantic.DebugPrintf" in code if form == "spirv" else re.search(rb"\n +printf\(", code) is not None


def context_variables(code: bytes, entry: str) -> list[str]:
    """Global variables that C++ of Slang's keeps in a context, which it wants passed to the exported function."""
    text = code.decode("utf-8", "replace")
    # A user may call a struct KernelContext too.
    kind = re.search(rf"\bvoid {entry}\([^)]*, (KernelContext_\d+) \* \w+\)", text)
    context = re.search(rf"^struct {kind[1]}\n\{{\n(.*?)^\}};", text, re.M | re.S) if kind else None
    return re.findall(r"^ *(?!GlobalParams_).*?(\w+?)_\d+;$", context[1], re.M) if context else []


def reads_parameters(code: bytes) -> bool:
    """Whether C++ of Slang's takes global parameters, which only a binding could fill."""
    return re.search(rb"^ *GlobalParams_\d+ *\* globalParams_\d+;$", code, re.M) is not None


def emitted_name(name: str) -> str:
    """A name as Slang writes it in front of its own number: ``gain_`` and ``__gain`` as ``gain`` and ``_gain``."""
    return re.sub("_+", "_", name).rstrip("_")


def exported(code: bytes, entry: str) -> bytes:
    """The C++ with that function callable by its plain name, its globals being its own.

    Raises
    ------
    CompileError
        If there is no such function.
    """
    # Slang 2026.12 gives an exported function of the C++ target C++ linkage, hence a mangled symbol, and where there
    # are global variables a fourth parameter that holds them: each call has its own.
    globals_ = r"(?:, (KernelContext_\d+) \* (\w+))?"
    head = re.compile(rf"^(?:SLANG_PRELUDE_EXPORT )?(void {entry}\([^)]*?){globals_}\)\n\{{", re.M)
    found = head.findall(code.decode())
    if len(found) != 1:
        raise CompileError(
            f"the text has no function {entry!r} to export; expected one declared as\n"
            f"export __extern_cpp void {entry}(int64_t begin, int64_t end, Block *block)"
        )
    start, kind, name = found[0]
    context = f"\n    {kind} globals = {{}};\n    {kind} * {name} = &globals;" if kind else ""
    return head.sub(lambda _: f"SLANG_PRELUDE_EXPORT {start})\n{{{context}", code.decode()).encode()
