"""Writes ``slangpy_rt/slang/_abi.py`` from the headers of the installed Slang library.

It holds the lists of Slang's declarations that the package uses and a parser for the subset of C++ that ``slang.h``
and ``slang-deprecated.h`` are written in. It never loads the library and emits nothing that is not listed.

    python codegen/tools/gen_slang_abi.py      # after listing a new name or moving to another Slang
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import struct
from pathlib import Path

# Interfaces that this project implements itself (``file_system.py``), with the identifiers that Slang asks them for.
IDENTIFIERS = ["ISlangUnknown", "ISlangCastable", "ISlangFileSystem", "ISlangFileSystemExt"]
METHODS = {
    "ISlangUnknown": ["queryInterface", "addRef", "release"],
    "ISlangCastable": ["castAs"],
    "ISlangFileSystem": ["loadFile"],
    "ISlangFileSystemExt": [
        "getFileUniqueIdentity",
        "calcCombinedPath",
        "getPathType",
        "getPath",
        "clearCache",
        "enumeratePathContents",
        "getOSPathKind",
    ],
    "ISlangBlob": ["getBufferPointer", "getBufferSize"],
    "IGlobalSession": ["createSession", "findProfile", "getBuildTagString", "parseCommandLineArguments"],
    "ISession": [
        "createCompositeComponentType",
        "createTypeConformanceComponentType",
        "getLoadedModule",
        "getLoadedModuleCount",
        "loadModuleFromIRBlob",
        "loadModuleFromSourceString",
    ],
    "IComponentType": ["getLayout", "getEntryPointCode", "getTargetCode", "link", "linkWithOptions"],
    "IEntryPoint": ["getFunctionReflection"],
    "IModule": [
        "disassemble",
        "findEntryPointByName",
        "getDefinedEntryPointCount",
        "getDefinedEntryPoint",
        "getDependencyFileCount",
        "getDependencyFilePath",
        "getModuleReflection",
        "getName",
        "serialize",
    ],
}
STRUCTS = [
    "CompilerOptionValue",
    "CompilerOptionEntry",
    "TargetDesc",
    "PreprocessorMacroDesc",
    "SessionDesc",
    "SlangGlobalSessionDesc",
]
FUNCTIONS = [
    "slang_createBlob",
    "slang_createGlobalSession2",
    "spComputeStringHash",
    "spReflection_FindFunctionByName",
    "spReflection_FindFunctionByNameInType",
    "spReflection_FindTypeByName",
    "spReflection_getEntryPointByIndex",
    "spReflection_getHashedString",
    "spReflection_getHashedStringCount",
    "spReflection_getTypeFromDecl",
    "spReflection_GetTypeLayout",
    "spReflection_isSubType",
    "spReflection_specializeGeneric",
    "spReflectionDecl_castToFunction",
    "spReflectionDecl_castToGeneric",
    "spReflectionDecl_castToVariable",
    "spReflectionDecl_findModifier",
    "spReflectionDecl_getChild",
    "spReflectionDecl_getChildrenCount",
    "spReflectionDecl_getKind",
    "spReflectionDecl_getName",
    "spReflectionDecl_getParent",
    "spReflectionEntryPoint_getName",
    "spReflectionEntryPoint_getParameterByIndex",
    "spReflectionEntryPoint_getParameterCount",
    "spReflectionFunction_applySpecializations",
    "spReflectionFunction_asDecl",
    "spReflectionFunction_FindModifier",
    "spReflectionFunction_GetGenericContainer",
    "spReflectionFunction_getOverload",
    "spReflectionFunction_getOverloadCount",
    "spReflectionFunction_GetParameter",
    "spReflectionFunction_GetParameterCount",
    "spReflectionFunction_GetResultType",
    "spReflectionFunction_GetUserAttribute",
    "spReflectionFunction_GetUserAttributeCount",
    "spReflectionFunction_isOverloaded",
    "spReflectionGeneric_GetConcreteIntVal",
    "spReflectionGeneric_GetConcreteType",
    "spReflectionGeneric_GetInnerDecl",
    "spReflectionGeneric_GetTypeParameter",
    "spReflectionGeneric_GetTypeParameterConstraintCount",
    "spReflectionGeneric_GetTypeParameterConstraintType",
    "spReflectionGeneric_GetTypeParameterCount",
    "spReflectionGeneric_GetValueParameter",
    "spReflectionGeneric_GetValueParameterCount",
    "spReflectionType_GetElementType",
    "spReflectionType_GetFieldByIndex",
    "spReflectionType_GetFieldCount",
    "spReflectionType_GetFullName",
    "spReflectionType_GetGenericContainer",
    "spReflectionType_GetKind",
    "spReflectionType_GetName",
    "spReflectionType_GetScalarType",
    "spReflectionTypeLayout_GetElementTypeLayout",
    "spReflectionTypeLayout_GetFieldByIndex",
    "spReflectionTypeLayout_GetFieldCount",
    "spReflectionTypeLayout_GetSize",
    "spReflectionTypeLayout_GetType",
    "spReflectionUserAttribute_GetArgumentValueInt",
    "spReflectionUserAttribute_GetName",
    "spReflectionVariable_FindModifier",
    "spReflectionVariable_GetDefaultValueFloat",
    "spReflectionVariable_GetDefaultValueInt",
    "spReflectionVariable_GetName",
    "spReflectionVariable_GetType",
    "spReflectionVariable_HasDefaultValue",
    "spReflectionVariableLayout_GetOffset",
    "spReflectionVariableLayout_GetSemanticName",
    "spReflectionVariableLayout_GetTypeLayout",
    "spReflectionVariableLayout_GetVariable",
]
ENUMS = {
    "SlangCompileTarget": [
        "SLANG_CPP_SOURCE",
        "SLANG_CUDA_SOURCE",
        "SLANG_HLSL",
        "SLANG_METAL",
        "SLANG_SPIRV",
        "SLANG_WGSL",
    ],
    "SlangDeclKind": [
        "SLANG_DECL_KIND_ENUM",
        "SLANG_DECL_KIND_FUNC",
        "SLANG_DECL_KIND_GENERIC",
        "SLANG_DECL_KIND_MODULE",
        "SLANG_DECL_KIND_NAMESPACE",
        "SLANG_DECL_KIND_STRUCT",
        "SLANG_DECL_KIND_UNSUPPORTED_FOR_REFLECTION",
        "SLANG_DECL_KIND_VARIABLE",
    ],
    "SlangDiagnosticColor": [
        "SLANG_DIAGNOSTIC_COLOR_NEVER",
    ],
    "SlangEmitSpirvMethod": [
        "SLANG_EMIT_SPIRV_DIRECTLY",
    ],
    "SlangReflectionGenericArgType": [
        "SLANG_GENERIC_ARG_INT",
        "SLANG_GENERIC_ARG_TYPE",
    ],
    "SlangLayoutRules": [
        "SLANG_LAYOUT_RULES_DEFAULT",
        "SLANG_LAYOUT_RULES_DEFAULT_STRUCTURED_BUFFER",
    ],
    "SlangLineDirectiveMode": [
        "SLANG_LINE_DIRECTIVE_MODE_NONE",
    ],
    "SlangMatrixLayoutMode": [
        "SLANG_MATRIX_LAYOUT_ROW_MAJOR",
    ],
    "SlangModifierID": [
        "SLANG_MODIFIER_CONST",
        "SLANG_MODIFIER_DIFFERENTIABLE",
        "SLANG_MODIFIER_EXTERN",
        "SLANG_MODIFIER_INOUT",
        "SLANG_MODIFIER_MUTATING",
        "SLANG_MODIFIER_NO_DIFF",
        "SLANG_MODIFIER_OUT",
        "SLANG_MODIFIER_STATIC",
    ],
    "SlangParameterCategory": [
        "SLANG_PARAMETER_CATEGORY_UNIFORM",
    ],
    "SlangScalarType": [
        "SLANG_SCALAR_TYPE_BOOL",
        "SLANG_SCALAR_TYPE_FLOAT16",
        "SLANG_SCALAR_TYPE_FLOAT32",
        "SLANG_SCALAR_TYPE_FLOAT64",
        "SLANG_SCALAR_TYPE_INT16",
        "SLANG_SCALAR_TYPE_INT32",
        "SLANG_SCALAR_TYPE_INT64",
        "SLANG_SCALAR_TYPE_INT8",
        "SLANG_SCALAR_TYPE_INTPTR",
        "SLANG_SCALAR_TYPE_UINT16",
        "SLANG_SCALAR_TYPE_UINT32",
        "SLANG_SCALAR_TYPE_UINT64",
        "SLANG_SCALAR_TYPE_UINT8",
        "SLANG_SCALAR_TYPE_UINTPTR",
        "SLANG_SCALAR_TYPE_VOID",
    ],
    "SlangTypeKind": [
        "SLANG_TYPE_KIND_ARRAY",
        "SLANG_TYPE_KIND_CONSTANT_BUFFER",
        "SLANG_TYPE_KIND_DYNAMIC_RESOURCE",
        "SLANG_TYPE_KIND_ENUM",
        "SLANG_TYPE_KIND_INTERFACE",
        "SLANG_TYPE_KIND_MATRIX",
        "SLANG_TYPE_KIND_NONE",
        "SLANG_TYPE_KIND_PARAMETER_BLOCK",
        "SLANG_TYPE_KIND_POINTER",
        "SLANG_TYPE_KIND_RESOURCE",
        "SLANG_TYPE_KIND_SAMPLER_STATE",
        "SLANG_TYPE_KIND_SCALAR",
        "SLANG_TYPE_KIND_SHADER_STORAGE_BUFFER",
        "SLANG_TYPE_KIND_STRUCT",
        "SLANG_TYPE_KIND_TEXTURE_BUFFER",
        "SLANG_TYPE_KIND_VECTOR",
    ],
    "CompilerOptionName": [
        "Capability",
        "DebugInformation",
        "DebugInformationFormat",
        "DenormalModeFp16",
        "DenormalModeFp32",
        "DenormalModeFp64",
        "DiagnosticColor",
        "DisableNonEssentialValidations",
        "DisableShortCircuit",
        "DisableWarning",
        "DisableWarnings",
        "DownstreamArgs",
        "EmitSpirvMethod",
        "EnableExperimentalPasses",
        "EnableWarning",
        "FloatingPointMode",
        "ForceCLayout",
        "IgnoreCapabilities",
        "LanguageVersion",
        "LoopInversion",
        "MacroDefine",
        "MatrixLayoutRow",
        "MinimumSlangOptimization",
        "Optimization",
        "RestrictiveCapabilityCheck",
        "UnscopedEnum",
        "UseMSVCStyleBitfieldPacking",
        "ValidateIr",
        "ValidateUniformity",
        "VulkanUseEntryPointName",
        "WarningsAsErrors",
    ],
}

_HEADERS = ("slang.h", "slang-deprecated.h")
_SCALARS = {
    "void": "None",
    "bool": "c_bool",
    "int": "c_int32",
    "unsigned": "c_uint32",
    "unsigned int": "c_uint32",
    "int32_t": "c_int32",
    "uint32_t": "c_uint32",
    "int64_t": "c_int64",
    "size_t": "c_size_t",
    "SlangInt": "c_ssize_t",
    "SlangUInt": "c_size_t",
    "SlangInt32": "c_int32",
    "SlangUInt32": "c_uint32",
    "SlangResult": "c_int32",
    "SlangTargetFlags": "c_uint32",
    "SessionFlags": "c_uint32",
    "FileSystemContentsCallBack": "c_void_p",
}


class Headers:
    """The text of Slang's headers without comments, and the definitions that the generator reads from it."""

    def __init__(self, include: Path) -> None:
        raw = [(include / name).read_bytes() for name in _HEADERS]
        self.digest = hashlib.sha256(b"".join(raw)).hexdigest()
        text = b"\n".join(raw).decode().replace("\r", "")
        self.text = re.sub(r"/\*.*?\*/|//[^\n]*|^[ \t]*#[^\n]*(\\\n[^\n]*)*", "", text, flags=re.S | re.M)

    def body(self, kind: str, name: str) -> tuple[str, str]:
        """Return base clause and brace contents of a definition."""
        match = re.search(rf"\b(?:{kind})\s+{name}\b([^;{{}}()]*)\{{", self.text)
        if match is None:
            raise SystemExit(f"{kind} {name} is not in the headers; correct the lists of this script")
        depth, at = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(self.text[at], 0)
            at += 1
        return match[1], self.text[match.end() : at - 1]

    def methods(self, interface: str) -> list[tuple[str, str, str]]:
        """Return the result type, name and parameters of every vtable slot, inherited ones first."""
        base, body = self.body("struct|class", interface)
        parent = re.search(r"public\s+(\w+)", base)
        inherited = self.methods(parent[1]) if parent else []
        own = re.findall(r"\bvirtual\s+([^;()]*?)(\w+)\s*\(([^;]*?)\)\s*(?:const\s*)?=\s*0\s*;", body, re.S)
        if len(own) != len(re.findall(r"\bvirtual\b", body)):
            raise SystemExit(f"{interface}: a virtual method escaped the parser; extend it")
        return inherited + own

    def identifier(self, interface: str) -> bytes:
        """Return the 16 bytes of an interface's identifier, as they lie in memory."""
        _, body = self.body("struct|class", interface)
        match = re.search(r"SLANG_COM_INTERFACE\(([^)]*)\)", body)
        if match is None:
            raise SystemExit(f"{interface}: its identifier escaped the parser; extend it")
        first, second, third, *rest = (int(number, 16) for number in re.findall(r"0x([0-9a-fA-F]+)", match[1]))
        return struct.pack("<IHH8B", first, second, third, *rest)

    def enum(self, name: str) -> dict[str, int]:
        """Return the enumerators that have an explicit value."""
        _, body = self.body("enum(?: class)?", name)
        return {key: int(value, 0) for key, value in re.findall(r"(\w+)\s*=\s*(0x[0-9a-fA-F]+|\d+)\b", body)}

    def function(self, name: str) -> tuple[str, str]:
        """Return the result type and parameters of an exported function."""
        match = re.search(rf"SLANG_API\s+([^;()]*?)\b{name}\s*\(([^;]*?)\)\s*;", self.text, re.S)
        if match is None:
            raise SystemExit(f"function {name} is not in the headers; correct the lists of this script")
        return match[1], match[2]

    def ctype(self, declared: str) -> str:
        """Return the ctypes name of a C++ type; all pointers but strings are ``c_void_p``."""
        plain = re.sub(r"\b(?:const|enum|SLANG_NO_THROW|SLANG_MCALL|slang::)|\bconst\b", " ", declared)
        plain = re.sub(r"\s+", " ", plain.replace("slang::", "")).strip().replace(" *", "*")
        if plain == "char*":
            return "c_char_p"
        if plain.endswith(("*", "&", "]")):
            return "c_void_p"
        if plain in _SCALARS:
            return _SCALARS[plain]
        if plain in STRUCTS:
            return plain
        if re.search(rf"\benum(?: class)?\s+{plain}\b", self.text):
            return "c_int32"
        raise SystemExit(f"type {declared!r} is unknown; extend _SCALARS")

    def parameters(self, text: str) -> str:
        """Return a tuple expression of the types of a parameter list."""
        parts = [re.sub(r"\s*=.*", "", part).strip() for part in text.split(",") if part.strip()]
        types = [self.ctype(re.sub(r"\w+\s*$", "", part)) for part in parts]
        return f"({', '.join(types)}{',' if len(types) == 1 else ''})"

    def fields(self, name: str) -> list[tuple[str, str]]:
        """Return name and ctypes type of every member."""
        _, body = self.body("struct", name)
        out = []
        for line in filter(None, (part.strip() for part in body.split(";"))):
            match = re.fullmatch(r"(.*?)(\w+)\s*(\[\d+\])?\s*(=.*)?", line, re.S)
            if match is None:
                raise SystemExit(f"{name}: member {line!r} escaped the parser; extend it")
            ctype = self.ctype(match[1])
            out.append((match[2], f"{ctype} * {match[3].strip('[]')}" if match[3] else ctype))
        return out


def generate(include: Path) -> str:
    """Return the text of ``_abi.py`` for the headers in a directory."""
    headers = Headers(include)
    used = re.compile(r"\b(?:c_\w+)\b")
    out = []
    for structure in STRUCTS:
        out += ["", "", f"class {structure}(Structure):", "    _fields_ = ["]  # ctypes reads exactly this name
        out += [f'        ("{name}", {ctype}),' for name, ctype in headers.fields(structure)] + ["    ]"]
    out += ["", ""]
    for enum, names in ENUMS.items():
        values = headers.enum(enum)
        out += [f"{name} = {values[name]}" for name in names]
    out += ["", "IDENTIFIERS: dict[str, bytes] = {"]
    identifiers = {interface: headers.identifier(interface).hex() for interface in IDENTIFIERS}
    out += [f'    "{interface}": bytes.fromhex("{number}"),' for interface, number in identifiers.items()]
    out += ["}", "", "METHODS: dict[str, tuple[int, Any, tuple[Any, ...]]] = {"]
    for interface, names in METHODS.items():
        slots = headers.methods(interface)
        for name in names:
            index = next(i for i, slot in enumerate(slots) if slot[1] == name)
            result, params = headers.ctype(slots[index][0]), headers.parameters(slots[index][2])
            out.append(f'    "{interface}.{name}": ({index}, {result}, {params}),')
    out += ["}", "", "FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {"]
    for name in FUNCTIONS:
        result, params = headers.function(name)
        out.append(f'    "{name}": ({headers.ctype(result)}, {headers.parameters(params)}),')
    out += ["}", ""]
    body = "\n".join(out)
    imports = ", ".join(sorted(set(used.findall(body))))
    return (
        '"""Slots, prototypes, structures and numbers of Slang\'s ABI, and nothing else.\n\n'
        'Written by codegen/tools/gen_slang_abi.py from slang.h: run it again instead of editing.\n"""\n\n'
        "from __future__ import annotations\n\n"
        f"from ctypes import Structure, {imports}\nfrom typing import Any\n\n"
        f'HEADER_SHA256 = "{headers.digest}"\nVERSION = {version(include.parent)}\n{body}'
    )


def version(wheel: Path) -> tuple[int, ...]:
    """Return Slang's version, from the name of the standard module's folder: the header does not have it."""
    names = [p.name.rpartition("-")[2] for p in wheel.glob("slang-standard-module-*")]
    if len(names) != 1:
        raise SystemExit(f"{wheel}: expected one slang-standard-module-*; tell version() where to look")
    return tuple(map(int, names[0].split(".")))


def find_include() -> Path:
    """Return the directory of the headers inside the installed wheel."""
    spec = importlib.util.find_spec("slangpy")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("slangpy is not installed; its wheel carries slang.h: pip install slangpy")
    return Path(spec.submodule_search_locations[0]) / "include"


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    (root / "slangpy_rt" / "slang" / "_abi.py").write_text(generate(find_include()), encoding="utf-8")
