"""Facts about a kernel that only its target code shows: functions without a body, bindings, pointers, nesting.

The functions read text and SPIR-V that Slang wrote; ``exported`` also gives the exported C++ function its plain name.
Which facts are errors is decided in ``target_code``; only C++ without the exported function is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slangpy_rt.core.errors import CompileError
from slangpy_rt.slang.text import deepest

_OP_VARIABLE, _OP_UNDEF = 59, 1
_OP_DECORATE, _DESCRIPTOR_SET = 71, 34
# SPIR-V's storage classes UniformConstant, Uniform, StorageBuffer and ShaderRecordBufferKHR.
_BOUND = (0, 2, 12, 5343)
# SPIR-V's OpTypeImage, OpTypeSampler, OpTypeSampledImage and OpTypeAccelerationStructureKHR.
_RESOURCES = {25: "a texture or a typed buffer", 26: "a sampler", 27: "a texture", 5341: "an acceleration structure"}
# The same types in C++ and CUDA: ``RWTexture2D <``, ``SamplerState``, ``CUtexObject``.
_CUDA_RESOURCES = {"CUtexObject": "a texture", "CUsurfObject": "a texture that it writes"}
_RESOURCE = re.compile(
    rb"\b(?:(?:RW|Feedback)?Texture\w+(?= ?<)|Sampler(?:Comparison)?State\b|CU(?:tex|surf)Object\b)"
)
# The same in HLSL, ``Texture2D<float >``, and typed buffers.
_HLSL_RESOURCE = re.compile(
    rb"\b(?:(?:RW|RasterizerOrdered|Feedback)?(?:Texture\w+|Buffer)(?= ?<)|Sampler(?:Comparison)?State\b)"
)
# Methods of textures that C++ calls, but for those of ``shaders/_spy_textures.hpp``.
# Methods of CUDA: without a level, as ``tex2D<float4>``, and fetches from lines, for which Slang has nothing.
_LACKING = {
    "cpp": re.compile(rb"\.((?:Sample(?!Level\()|Gather|CalculateLevelOfDetail)\w*)\("),
    "cuda": re.compile(rb"\b(tex(?:1D|2D|3D|Cubemap)(?:Layered)?|tex1D(?:Array)?fetch_int)(?=<)"),
}
# SPIR-V's OpImageSampleImplicitLod, DrefImplicitLod, ProjImplicitLod and ProjDrefImplicitLod.
_UNSET = re.compile(rb"\b(CU(?:tex|surf)Object) \w+ = \{\};")
_IMPLICIT = (87, 89, 91, 93)
_OP_LOOP_MERGE, _OP_SELECTION_MERGE, _OP_LABEL = 246, 247, 248
_OP_NAME, _OP_TYPE_POINTER, _PHYSICAL_STORAGE = 5, 32, 5349
# The two bindings that a kernel with handles may have: the heap of all buffers, and its argument block.
_BOUND_BY_US = (b"__slang_resource_heap", b"entryPointParams._spy_block")
_NO_BODY = re.compile(rb"^[^\n;={}]*?\b(\w+?)_\d+\([^\n;{}]*\)\n\{\n\}\n", re.M)
_GLOBALS = re.compile(rb"^ *GlobalParams_\d+ *\* globalParams_\d+;$", re.M)
# The end of the prelude in C++ that Slang wrote. In CUDA the prelude ends with the last directive of the text.
_PRELUDE_END = b"using namespace SLANG_PRELUDE_NAMESPACE;\n#endif\n"
# What to do about an instruction of more than 65,535 words, whose 16-bit length has overflowed.
SHORTER = (
    "An array of constants in SPIR-V holds at most 65,532 elements: pass a larger one as a parameter, or set its "
    "elements in a loop."
)
# The last line of C++ that a file of shaders/ puts behind that prelude, and in which nothing is to be replaced.
_OWN_END = b"// _spy_end_of_prelude\n"


def prelude_end(code: bytes, form: str) -> int:
    """Return the offset at which Slang's prelude of C++ or CUDA ends and the modules' code begins; 0 without one."""
    if form == "cpp":
        ends = [at + len(end) for end in (_PRELUDE_END, _OWN_END) if (at := code.rfind(end)) >= 0]
        return max(ends, default=0)
    return code.find(b"\n", code.rfind(b"\n#endif") + 1)


def has_no_body(code: bytes, form: str) -> str:
    """Return the name of a function that has no implementation for C++, HLSL or MSL; empty if there is none.

    Slang 2026.12 writes such a function without statements. One that is empty in Slang text has a ``return``.
    """
    # Matches ``float f_0(float x_0)``, a line ``{`` and a line ``}``.
    match = _NO_BODY.search(code, prelude_end(code, form) if form == "cpp" else 0)
    return match[1].decode() if match else ""


def reads_bindings(code: bytes, form: str, textures: bool = False) -> bool:
    """Return whether CUDA, HLSL or SPIR-V code reads a global resource or constant buffer, which needs a binding.

    With ``textures``, the heaps of textures and samplers are no such resources.
    """
    if form == "cuda":
        return b" SLANG_globalParams;" in code
    if form == "hlsl":
        return any(not name.startswith(b"entryPointParams") for name in re.findall(rb"(\w+) : register\(", code))
    ours = set()
    for op, words in _instructions(code) if form == "spirv" else ():
        if op == _OP_NAME and bytes(words[2:]).rstrip(b"\0") in _BOUND_BY_US:
            ours.add(words[1])
        # Slang gives the heap of textures the same name as that of buffers; storage class 0 tells it apart.
        heap = words[3] == 0 and not textures if op == _OP_VARIABLE else False
        if op == _OP_VARIABLE and words[3] in _BOUND and (words[2] not in ours or heap):
            return True
    return False


def uses_resources(code: bytes, form: str, textures: bool = False) -> str:
    """Return the kind of a texture, sampler or other opaque resource that C++, CUDA, HLSL or SPIR-V uses, else empty.

    Such a resource is a global one, which ``reads_bindings`` finds, or the value of a variable that was never set.
    With ``textures``, the kernel has arguments of such types, and only the latter count where the code shows them.
    """
    if textures and form == "cuda":
        unset = _UNSET.search(code, prelude_end(code, form))
        return _CUDA_RESOURCES[unset[1].decode()] if unset else ""
    if textures:
        return _undefined_resource(code) if form == "spirv" else ""
    if form == "spirv":
        return next((_RESOURCES[op] for op, _ in _instructions(code) if op in _RESOURCES), "")
    if form == "hlsl":
        found = _HLSL_RESOURCE.search(code)
    else:
        found = _RESOURCE.search(code, prelude_end(code, form)) if form in ("cpp", "cuda") else None
    used = found[0].decode() if found else ""
    return _CUDA_RESOURCES.get(used, used)


def with_heap(code: bytes) -> bytes:
    """Return SPIR-V code in which the heaps of textures and samplers are in descriptor set 0.

    Slang puts them into the first set that no global of the modules has, whether or not the code uses the global.
    """
    if _BOUND_BY_US[0] not in code:
        return code
    ours, found, at = set(), bytearray(code), 20  # bytes of the header
    for op, words in _instructions(code):
        if op == _OP_NAME and bytes(words[2:]).rstrip(b"\0") == _BOUND_BY_US[0]:
            ours.add(words[1])
        if op == _OP_DECORATE and words[1] in ours and words[2] == _DESCRIPTOR_SET:
            found[at + 12 : at + 16] = bytes(4)
        at += 4 * len(words)
    return bytes(found)


def _undefined_resource(code: bytes) -> str:
    """Return the kind of a resource in SPIR-V that has no value; empty if there is none."""
    kinds: dict[int, str] = {}
    for op, words in _instructions(code):
        if op in _RESOURCES:
            kinds[words[1]] = _RESOURCES[op]
        elif op == _OP_UNDEF and words[1] in kinds:
            return kinds[words[1]]
    return ""


def sampling_method(code: bytes, form: str) -> str:
    """Return the name of a method of textures that C++ or SPIR-V calls and no device has; empty if there is none."""
    if form == "spirv":
        return next(("Sample" for op, _ in _instructions(code) if op in _IMPLICIT), "")
    if form not in _LACKING:
        return ""
    found = _LACKING[form].search(code, prelude_end(code, form))
    return found[1].decode() if found else ""


def breaks(code: bytes, form: str) -> bool:
    """Return whether C++ or CUDA code calls ``debugBreak``, which without a debugger ends the process or kernel."""
    called = {"cpp": b" SLANG_BREAKPOINT(", "cuda": b" __brkpt("}.get(form)
    return called is not None and called in code[prelude_end(code, form) :]


def uses_pointers(code: bytes, form: str) -> str:
    """Return a description of a pointer to memory that HLSL or SPIR-V uses; empty if there is none.

    Slang 2026.12 writes pointers into HLSL, which has none, without an error.
    """
    if form == "hlsl":
        # Matches ``int f_0(Ptr<float, ...`` and takes ``f`` and ``float``, or any other line with ``Ptr<float``.
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
    """Yield the instructions of SPIR-V, each as its opcode and its words.

    Raises
    ------
    CompileError
        If the 16-bit length of an instruction has overflowed. SPIR-V's optimizer, which Slang calls where it is
        installed, refuses such code; without the optimizer Slang returns it.
    """
    words = memoryview(code).cast("I")
    at = 5  # words of the header
    while at < len(words):
        end = at + (words[at] >> 16)
        if end == at:
            raise CompileError(f"Slang wrote SPIR-V in which an instruction has more than 65,535 words.\n{SHORTER}")
        yield words[at] & 0xFFFF, words[at:end]
        at = end


def nesting(code: bytes, form: str) -> int:
    """Return the greatest depth of nested brackets in text, or of nested selections and loops in SPIR-V."""
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
    """Return whether target code calls the printf of its language instead of the one of ``slangpy_rt.slang``."""
    return b"NonSemantic.DebugPrintf" in code if form == "spirv" else re.search(rb"\n +printf\(", code) is not None


def context_variables(code: bytes, entry: str) -> list[str]:
    """Return the names of the global variables of C++ code, which Slang makes members of a struct KernelContext."""
    text = code[prelude_end(code, "cpp") :].decode("utf-8", "replace")
    # A user may declare a struct KernelContext too, so the number of Slang's is read from the signature of the entry
    # point: ``void entry(..., KernelContext_0 * kernelContext_0)``.
    kind = re.search(rf"\bvoid {entry}\([^)]*, (KernelContext_\d+) \* \w+\)", text)
    context = re.search(rf"^struct {kind[1]}\n\{{\n(.*?)^\}};", text, re.M | re.S) if kind else None
    # Members are written ``float gain_0;``. A variable named ``_`` is written with its number alone, ``float _0;``.
    return re.findall(r"^ *(?!GlobalParams_).*?\b(\w*?)_\d+;$", context[1], re.M) if context else []


def reads_parameters(code: bytes) -> bool:
    """Return whether C++ code reads global parameters, which need a binding."""
    return _GLOBALS.search(code, prelude_end(code, "cpp")) is not None


def emitted_name(name: str) -> str:
    """Return the form of a Slang name in target code, without the number that follows there: ``gain`` of ``gain_0``.

    Slang 2026.12 writes ``gain`` for ``gain_``, ``_gain`` for ``__gain``, ``U_Scale`` for ``_Scale``, and ``xC3xA9``
    for the two bytes of ``é``.
    """
    letters = (c if c.isascii() else "".join(f"x{byte:02X}" for byte in c.encode()) for c in name)
    return ("U" if name.startswith("_S") else "") + re.sub("_+", "_", "".join(letters)).rstrip("_")


def exported(code: bytes, entry: str) -> bytes:
    """Return C++ code that exports the function `entry` under its plain name, with global variables of each call.

    These variables are set to zero at the beginning of each element, which is a call of ``_spy_element``.

    Raises
    ------
    CompileError
        If there is not exactly one such function.
    """
    # Slang 2026.12 gives an exported function of the C++ target C++ linkage, hence a mangled symbol. If there are
    # global variables it adds a fourth parameter, a pointer to them, which becomes a local variable here.
    globals_ = r"(?:, (KernelContext_\d+) \* (\w+))?"
    head = re.compile(rf"^(?:SLANG_PRELUDE_EXPORT )?(void {entry}\([^)]*?){globals_}\)\n\{{", re.M)
    start_of_body = prelude_end(code, "cpp")
    body = code[start_of_body:].decode()
    found = head.findall(body)
    if len(found) != 1:
        raise CompileError(
            f"the text has no function {entry!r} to export; expected one declared as\n"
            f"export __extern_cpp void {entry}(int64_t begin, int64_t end, Block *block)"
        )
    start, kind, name = found[0]
    context = f"\n    {kind} globals = {{}};\n    {kind} * {name} = &globals;" if kind else ""
    text = head.sub(lambda _: f"SLANG_PRELUDE_EXPORT {start})\n{{{context}", body)
    if kind:
        element = re.compile(rf"(^static void _spy_element_\d+\([^)]*, {kind} \* (\w+)\)\n\{{)\n", re.M)
        text = element.sub(r"\1\n    *\2 = {};\n", text)
    return code[:start_of_body] + text.encode()
