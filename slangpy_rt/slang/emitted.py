"""Facts about a kernel that only its target code shows: functions without a body, bindings, pointers, nesting.

It reads text and SPIR-V that Slang wrote, and gives the exported C++ function a name that can be looked up. It
refuses only C++ without that function; the rest is judged in ``target_code``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slangpy_rt.core.errors import CompileError
from slangpy_rt.slang.text import deepest

_OP_VARIABLE = 59  # SPIR-V, as the storage classes UniformConstant, Uniform, StorageBuffer and ShaderRecordBufferKHR
_BOUND = (0, 2, 12, 5343)
# SPIR-V's OpTypeImage, OpTypeSampler, OpTypeSampledImage, OpTypeAccelerationStructureKHR; types of C++ and CUDA.
_RESOURCES = {25: "a texture or a typed buffer", 26: "a sampler", 27: "a texture", 5341: "an acceleration structure"}
_RESOURCE = re.compile(
    rb"\b(?:(?:RW|Feedback)?Texture\w+(?= ?<)|Sampler(?:Comparison)?State\b|CU(?:tex|surf)Object\b)"
)
_OP_LOOP_MERGE, _OP_SELECTION_MERGE, _OP_LABEL = 246, 247, 248
_OP_NAME, _OP_TYPE_POINTER, _PHYSICAL_STORAGE = 5, 32, 5349
# The bindings of a kernel with handles: the heap of all buffers, and the place of its argument block.
_BOUND_BY_US = (b"__slang_resource_heap", b"entryPointParams._spy_block")
# The end of the prelude in C++ that Slang wrote. In CUDA the prelude ends with the last directive of the text.
_PRELUDE_END = b"using namespace SLANG_PRELUDE_NAMESPACE;\n#endif\n"


def prelude_end(code: bytes, form: str) -> int:
    """Return where the prelude of C++ or CUDA ends, which Slang writes before the modules' text; 0 without one."""
    if form == "cpp":
        at = code.find(_PRELUDE_END)
        return at + len(_PRELUDE_END) if at >= 0 else 0
    return code.find(b"\n", code.rfind(b"\n#endif") + 1)


def has_no_body(code: bytes) -> str:
    """Return the name of a function for which C++, HLSL or MSL has nothing; empty if there is none.

    Slang 2026.12 writes such a function without statements. One that is empty in Slang text has a ``return``.
    """
    match = re.search(rb"^[^\n;={}]*?\b(\w+?)_\d+\([^\n;{}]*\)\n\{\n\}\n", code, re.M)
    return match[1].decode() if match else ""


def reads_bindings(code: bytes, form: str) -> bool:
    """Tell whether CUDA, HLSL or SPIR-V reads a global resource or constant buffer, which needs a binding."""
    if form == "cuda":
        return b" SLANG_globalParams;" in code
    if form == "hlsl":
        return any(not name.startswith(b"entryPointParams") for name in re.findall(rb"(\w+) : register\(", code))
    ours = set()
    for op, words in _instructions(code) if form == "spirv" else ():
        if op == _OP_NAME and bytes(words[2:]).rstrip(b"\0") in _BOUND_BY_US:
            ours.add(words[1])
            # Slang gives the heap of textures the same name as that of buffers.
        if op == _OP_VARIABLE and words[3] in _BOUND and (words[2] not in ours or words[3] == 0):
            return True
    return False


def uses_resources(code: bytes, form: str) -> str:
    """Return the kind of a texture, sampler or the like that C++, CUDA or SPIR-V uses; empty if there is none.

    A kernel has it from a global resource, which ``reads_bindings`` finds, or from a variable that nothing has set.
    """
    if form == "spirv":
        return next((_RESOURCES[op] for op, _ in _instructions(code) if op in _RESOURCES), "")
    found = _RESOURCE.search(code, prelude_end(code, form)) if form in ("cpp", "cuda") else None
    return found[0].decode() if found else ""


def breaks(code: bytes, form: str) -> bool:
    """Tell whether C++ or CUDA calls ``debugBreak``, which ends the process or the kernel without a debugger."""
    called = {"cpp": b" SLANG_BREAKPOINT(", "cuda": b" __brkpt("}.get(form)
    return called is not None and called in code[prelude_end(code, form) :]


def uses_pointers(code: bytes, form: str) -> str:
    """Describe a pointer to memory that HLSL or SPIR-V uses; empty if there is none.

    Slang 2026.12 writes pointers into HLSL, which has none, without an error.
    """
    if form == "hlsl":
        # The line that begins a function with a pointer in its signature, or any other line with a pointer.
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
    """Return the name of an 8-bit integer type in HLSL, which has none; empty if there is none."""
    found = re.search(rb"\bu?int8_t\d?\b", code)
    return found[0].decode() if found else ""


def _instructions(code: bytes) -> Iterator[tuple[int, memoryview]]:
    """Yield the instructions of SPIR-V, each as its opcode and its words."""
    words = memoryview(code).cast("I")
    at = 5  # words of the header
    while at < len(words):
        end = at + (words[at] >> 16)
        yield words[at] & 0xFFFF, words[at:end]
        at = end


def nesting(code: bytes, form: str) -> int:
    """Return how deep brackets of a text, or selections and loops of SPIR-V, are nested."""
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
    """Tell whether target code prints by its language's own printf instead of our library's."""
    return b"NonSemantic.DebugPrintf" in code if form == "spirv" else re.search(rb"\n +printf\(", code) is not None


def context_variables(code: bytes, entry: str) -> list[str]:
    """Return the names of the global variables in C++, which Slang puts into a struct KernelContext."""
    text = code.decode("utf-8", "replace")
    # A user may call a struct KernelContext too.
    kind = re.search(rf"\bvoid {entry}\([^)]*, (KernelContext_\d+) \* \w+\)", text)
    context = re.search(rf"^struct {kind[1]}\n\{{\n(.*?)^\}};", text, re.M | re.S) if kind else None
    # A variable named ``_`` is written as its number alone.
    return re.findall(r"^ *(?!GlobalParams_).*?\b(\w*?)_\d+;$", context[1], re.M) if context else []


def reads_parameters(code: bytes) -> bool:
    """Tell whether C++ reads global parameters, which need a binding."""
    return re.search(rb"^ *GlobalParams_\d+ *\* globalParams_\d+;$", code, re.M) is not None


def emitted_name(name: str) -> str:
    """Return a name as target code has it before its number.

    Slang 2026.12 writes ``gain`` for ``gain_``, ``_gain`` for ``__gain``, ``U_Scale`` for ``_Scale``, and ``xC3xA9``
    for the two bytes of ``é``.
    """
    letters = (c if c.isascii() else "".join(f"x{byte:02X}" for byte in c.encode()) for c in name)
    return ("U" if name.startswith("_S") else "") + re.sub("_+", "_", "".join(letters)).rstrip("_")


def zeroed(code: bytes) -> bytes:
    """Return CUDA in which static variables, which Slang puts into a struct KernelContext, begin as zeros."""
    if b"KernelContext_" not in code:
        return code
    return re.sub(rb"^( +KernelContext_\d+ kernelContext_\d+);$", rb"\1 = {};", code, flags=re.M)


def exported(code: bytes, entry: str) -> bytes:
    """Return C++ with the function ``entry`` under its plain name; each call has its own global variables.

    These variables become zero again at the beginning of each element, which is a call of ``_spy_element``.

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
    text = head.sub(lambda _: f"SLANG_PRELUDE_EXPORT {start})\n{{{context}", code.decode())
    if kind:
        element = re.compile(rf"(^static void _spy_element_\d+\([^)]*, {kind} \* (\w+)\)\n\{{)\n", re.M)
        text = element.sub(r"\1\n    *\2 = {};\n", text)
    return text.encode()
