"""Slots, prototypes, structures and numbers of Slang's ABI, and nothing else.

Written by codegen/tools/gen_slang_abi.py from slang.h: run it again instead of editing.
"""

from __future__ import annotations

from ctypes import Structure, c_bool, c_char_p, c_int32, c_int64, c_size_t, c_ssize_t, c_uint32, c_void_p
from typing import Any

HEADER_SHA256 = "fc18c751b41dbaeaa376203a49db5ccb0d1ebc82ac153eec7448230f46df0993"
VERSION = (2026, 12)


class CompilerOptionValue(Structure):
    _fields_ = [
        ("kind", c_int32),
        ("intValue0", c_int32),
        ("intValue1", c_int32),
        ("stringValue0", c_char_p),
        ("stringValue1", c_char_p),
    ]


class CompilerOptionEntry(Structure):
    _fields_ = [
        ("name", c_int32),
        ("value", CompilerOptionValue),
    ]


class TargetDesc(Structure):
    _fields_ = [
        ("structureSize", c_size_t),
        ("format", c_int32),
        ("profile", c_int32),
        ("flags", c_uint32),
        ("floatingPointMode", c_int32),
        ("lineDirectiveMode", c_int32),
        ("forceGLSLScalarBufferLayout", c_bool),
        ("compilerOptionEntries", c_void_p),
        ("compilerOptionEntryCount", c_uint32),
    ]


class PreprocessorMacroDesc(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_char_p),
    ]


class SessionDesc(Structure):
    _fields_ = [
        ("structureSize", c_size_t),
        ("targets", c_void_p),
        ("targetCount", c_ssize_t),
        ("flags", c_uint32),
        ("defaultMatrixLayoutMode", c_int32),
        ("searchPaths", c_void_p),
        ("searchPathCount", c_ssize_t),
        ("preprocessorMacros", c_void_p),
        ("preprocessorMacroCount", c_ssize_t),
        ("fileSystem", c_void_p),
        ("enableEffectAnnotations", c_bool),
        ("allowGLSLSyntax", c_bool),
        ("compilerOptionEntries", c_void_p),
        ("compilerOptionEntryCount", c_uint32),
        ("skipSPIRVValidation", c_bool),
    ]


class SlangGlobalSessionDesc(Structure):
    _fields_ = [
        ("structureSize", c_uint32),
        ("apiVersion", c_uint32),
        ("minLanguageVersion", c_uint32),
        ("enableGLSL", c_bool),
        ("reserved", c_uint32 * 16),
    ]


SLANG_CPP_SOURCE = 13
SLANG_CUDA_SOURCE = 17
SLANG_HLSL = 5
SLANG_METAL = 24
SLANG_SPIRV = 6
SLANG_WGSL = 28
SLANG_DECL_KIND_ENUM = 7
SLANG_DECL_KIND_FUNC = 2
SLANG_DECL_KIND_GENERIC = 4
SLANG_DECL_KIND_MODULE = 3
SLANG_DECL_KIND_NAMESPACE = 6
SLANG_DECL_KIND_STRUCT = 1
SLANG_DECL_KIND_UNSUPPORTED_FOR_REFLECTION = 0
SLANG_DECL_KIND_VARIABLE = 5
SLANG_DIAGNOSTIC_COLOR_NEVER = 2
SLANG_EMIT_SPIRV_DIRECTLY = 2
SLANG_GENERIC_ARG_INT = 1
SLANG_GENERIC_ARG_TYPE = 0
SLANG_LAYOUT_RULES_DEFAULT = 0
SLANG_LAYOUT_RULES_DEFAULT_STRUCTURED_BUFFER = 2
SLANG_LINE_DIRECTIVE_MODE_NONE = 1
SLANG_MATRIX_LAYOUT_ROW_MAJOR = 1
SLANG_MODIFIER_CONST = 3
SLANG_MODIFIER_DIFFERENTIABLE = 6
SLANG_MODIFIER_EXTERN = 5
SLANG_MODIFIER_INOUT = 10
SLANG_MODIFIER_MUTATING = 7
SLANG_MODIFIER_NO_DIFF = 1
SLANG_MODIFIER_OUT = 9
SLANG_MODIFIER_STATIC = 2
SLANG_PARAMETER_CATEGORY_UNIFORM = 8
SLANG_SCALAR_TYPE_BOOL = 2
SLANG_SCALAR_TYPE_FLOAT16 = 7
SLANG_SCALAR_TYPE_FLOAT32 = 8
SLANG_SCALAR_TYPE_FLOAT64 = 9
SLANG_SCALAR_TYPE_INT16 = 12
SLANG_SCALAR_TYPE_INT32 = 3
SLANG_SCALAR_TYPE_INT64 = 5
SLANG_SCALAR_TYPE_INT8 = 10
SLANG_SCALAR_TYPE_INTPTR = 14
SLANG_SCALAR_TYPE_UINT16 = 13
SLANG_SCALAR_TYPE_UINT32 = 4
SLANG_SCALAR_TYPE_UINT64 = 6
SLANG_SCALAR_TYPE_UINT8 = 11
SLANG_SCALAR_TYPE_UINTPTR = 15
SLANG_SCALAR_TYPE_VOID = 1
SLANG_TYPE_KIND_ARRAY = 2
SLANG_TYPE_KIND_CONSTANT_BUFFER = 6
SLANG_TYPE_KIND_DYNAMIC_RESOURCE = 19
SLANG_TYPE_KIND_ENUM = 20
SLANG_TYPE_KIND_INTERFACE = 13
SLANG_TYPE_KIND_MATRIX = 3
SLANG_TYPE_KIND_NONE = 0
SLANG_TYPE_KIND_PARAMETER_BLOCK = 11
SLANG_TYPE_KIND_POINTER = 18
SLANG_TYPE_KIND_RESOURCE = 7
SLANG_TYPE_KIND_SAMPLER_STATE = 8
SLANG_TYPE_KIND_SCALAR = 5
SLANG_TYPE_KIND_SHADER_STORAGE_BUFFER = 10
SLANG_TYPE_KIND_STRUCT = 1
SLANG_TYPE_KIND_TEXTURE_BUFFER = 9
SLANG_TYPE_KIND_VECTOR = 4
Capability = 39
DebugInformation = 44
DebugInformationFormat = 112
DenormalModeFp16 = 125
DenormalModeFp32 = 126
DenormalModeFp64 = 127
DiagnosticColor = 144
DisableNonEssentialValidations = 35
DisableShortCircuit = 33
DisableWarning = 22
DisableWarnings = 20
DownstreamArgs = 63
EmitSpirvMethod = 118
EnableExperimentalPasses = 92
EnableWarning = 21
FloatingPointMode = 43
ForceCLayout = 129
IgnoreCapabilities = 11
LanguageVersion = 107
LoopInversion = 105
MacroDefine = 0
MatrixLayoutRow = 9
MinimumSlangOptimization = 34
Optimization = 46
RestrictiveCapabilityCheck = 12
UnscopedEnum = 37
UseMSVCStyleBitfieldPacking = 128
ValidateIr = 81
ValidateUniformity = 90
VulkanUseEntryPointName = 52
WarningsAsErrors = 19

IDENTIFIERS: dict[str, bytes] = {
    "ISlangUnknown": bytes.fromhex("0000000000000000c000000000000046"),
    "ISlangCastable": bytes.fromhex("e1e0ed875248b0448bf2cb31874de239"),
    "ISlangFileSystem": bytes.fromhex("fc093a004d3aa04bad601fd863a915ab"),
    "ISlangFileSystemExt": bytes.fromhex("d232b65f9d9781449fee663c3f1449e1"),
}

METHODS: dict[str, tuple[int, Any, tuple[Any, ...]]] = {
    "ISlangUnknown.queryInterface": (0, c_int32, (c_void_p, c_void_p)),
    "ISlangUnknown.addRef": (1, c_uint32, ()),
    "ISlangUnknown.release": (2, c_uint32, ()),
    "ISlangCastable.castAs": (3, c_void_p, (c_void_p,)),
    "ISlangFileSystem.loadFile": (4, c_int32, (c_char_p, c_void_p)),
    "ISlangFileSystemExt.getFileUniqueIdentity": (5, c_int32, (c_char_p, c_void_p)),
    "ISlangFileSystemExt.calcCombinedPath": (6, c_int32, (c_int32, c_char_p, c_char_p, c_void_p)),
    "ISlangFileSystemExt.getPathType": (7, c_int32, (c_char_p, c_void_p)),
    "ISlangFileSystemExt.getPath": (8, c_int32, (c_int32, c_char_p, c_void_p)),
    "ISlangFileSystemExt.clearCache": (9, None, ()),
    "ISlangFileSystemExt.enumeratePathContents": (10, c_int32, (c_char_p, c_void_p, c_void_p)),
    "ISlangFileSystemExt.getOSPathKind": (11, c_int32, ()),
    "ISlangBlob.getBufferPointer": (3, c_void_p, ()),
    "ISlangBlob.getBufferSize": (4, c_size_t, ()),
    "IGlobalSession.createSession": (3, c_int32, (c_void_p, c_void_p)),
    "IGlobalSession.findProfile": (4, c_int32, (c_char_p,)),
    "IGlobalSession.getBuildTagString": (8, c_char_p, ()),
    "IGlobalSession.parseCommandLineArguments": (27, c_int32, (c_int32, c_void_p, c_void_p, c_void_p)),
    "ISession.createCompositeComponentType": (6, c_int32, (c_void_p, c_ssize_t, c_void_p, c_void_p)),
    "ISession.createTypeConformanceComponentType": (15, c_int32, (c_void_p, c_void_p, c_void_p, c_ssize_t, c_void_p)),
    "ISession.getLoadedModule": (18, c_void_p, (c_ssize_t,)),
    "ISession.getLoadedModuleCount": (17, c_ssize_t, ()),
    "ISession.loadModuleFromIRBlob": (16, c_void_p, (c_char_p, c_char_p, c_void_p, c_void_p)),
    "ISession.loadModuleFromSourceString": (20, c_void_p, (c_char_p, c_char_p, c_char_p, c_void_p)),
    "IComponentType.getLayout": (4, c_void_p, (c_ssize_t, c_void_p)),
    "IComponentType.getEntryPointCode": (6, c_int32, (c_ssize_t, c_ssize_t, c_void_p, c_void_p)),
    "IComponentType.getTargetCode": (14, c_int32, (c_ssize_t, c_void_p, c_void_p)),
    "IComponentType.link": (10, c_int32, (c_void_p, c_void_p)),
    "IComponentType.linkWithOptions": (13, c_int32, (c_void_p, c_uint32, c_void_p, c_void_p)),
    "IEntryPoint.getFunctionReflection": (17, c_void_p, ()),
    "IModule.disassemble": (29, c_int32, (c_void_p,)),
    "IModule.findEntryPointByName": (17, c_int32, (c_char_p, c_void_p)),
    "IModule.getDefinedEntryPointCount": (18, c_int32, ()),
    "IModule.getDefinedEntryPoint": (19, c_int32, (c_int32, c_void_p)),
    "IModule.getDependencyFileCount": (26, c_int32, ()),
    "IModule.getDependencyFilePath": (27, c_char_p, (c_int32,)),
    "IModule.getModuleReflection": (28, c_void_p, ()),
    "IModule.getName": (22, c_char_p, ()),
    "IModule.serialize": (20, c_int32, (c_void_p,)),
}

FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "slang_createBlob": (c_void_p, (c_void_p, c_size_t)),
    "slang_createGlobalSession2": (c_int32, (c_void_p, c_void_p)),
    "spComputeStringHash": (c_uint32, (c_char_p, c_size_t)),
    "spReflection_FindFunctionByName": (c_void_p, (c_void_p, c_char_p)),
    "spReflection_FindFunctionByNameInType": (c_void_p, (c_void_p, c_void_p, c_char_p)),
    "spReflection_FindTypeByName": (c_void_p, (c_void_p, c_char_p)),
    "spReflection_getEntryPointByIndex": (c_void_p, (c_void_p, c_size_t)),
    "spReflection_getHashedString": (c_char_p, (c_void_p, c_size_t, c_void_p)),
    "spReflection_getHashedStringCount": (c_size_t, (c_void_p,)),
    "spReflection_getTypeFromDecl": (c_void_p, (c_void_p,)),
    "spReflection_GetTypeLayout": (c_void_p, (c_void_p, c_void_p, c_int32)),
    "spReflection_isSubType": (c_bool, (c_void_p, c_void_p, c_void_p)),
    "spReflection_specializeGeneric": (c_void_p, (c_void_p, c_void_p, c_ssize_t, c_void_p, c_void_p, c_void_p)),
    "spReflectionDecl_castToFunction": (c_void_p, (c_void_p,)),
    "spReflectionDecl_castToGeneric": (c_void_p, (c_void_p,)),
    "spReflectionDecl_castToVariable": (c_void_p, (c_void_p,)),
    "spReflectionDecl_findModifier": (c_void_p, (c_void_p, c_int32)),
    "spReflectionDecl_getChild": (c_void_p, (c_void_p, c_uint32)),
    "spReflectionDecl_getChildrenCount": (c_uint32, (c_void_p,)),
    "spReflectionDecl_getKind": (c_int32, (c_void_p,)),
    "spReflectionDecl_getName": (c_char_p, (c_void_p,)),
    "spReflectionDecl_getParent": (c_void_p, (c_void_p,)),
    "spReflectionEntryPoint_getName": (c_char_p, (c_void_p,)),
    "spReflectionEntryPoint_getParameterByIndex": (c_void_p, (c_void_p, c_uint32)),
    "spReflectionEntryPoint_getParameterCount": (c_uint32, (c_void_p,)),
    "spReflectionFunction_applySpecializations": (c_void_p, (c_void_p, c_void_p)),
    "spReflectionFunction_asDecl": (c_void_p, (c_void_p,)),
    "spReflectionFunction_FindModifier": (c_void_p, (c_void_p, c_int32)),
    "spReflectionFunction_GetGenericContainer": (c_void_p, (c_void_p,)),
    "spReflectionFunction_getOverload": (c_void_p, (c_void_p, c_uint32)),
    "spReflectionFunction_getOverloadCount": (c_uint32, (c_void_p,)),
    "spReflectionFunction_GetParameter": (c_void_p, (c_void_p, c_uint32)),
    "spReflectionFunction_GetParameterCount": (c_uint32, (c_void_p,)),
    "spReflectionFunction_GetResultType": (c_void_p, (c_void_p,)),
    "spReflectionFunction_GetUserAttribute": (c_void_p, (c_void_p, c_uint32)),
    "spReflectionFunction_GetUserAttributeCount": (c_uint32, (c_void_p,)),
    "spReflectionFunction_isOverloaded": (c_bool, (c_void_p,)),
    "spReflectionGeneric_GetConcreteIntVal": (c_int64, (c_void_p, c_void_p)),
    "spReflectionGeneric_GetConcreteType": (c_void_p, (c_void_p, c_void_p)),
    "spReflectionGeneric_GetInnerDecl": (c_void_p, (c_void_p,)),
    "spReflectionGeneric_GetTypeParameter": (c_void_p, (c_void_p, c_uint32)),
    "spReflectionGeneric_GetTypeParameterConstraintCount": (c_uint32, (c_void_p, c_void_p)),
    "spReflectionGeneric_GetTypeParameterConstraintType": (c_void_p, (c_void_p, c_void_p, c_uint32)),
    "spReflectionGeneric_GetTypeParameterCount": (c_uint32, (c_void_p,)),
    "spReflectionGeneric_GetValueParameter": (c_void_p, (c_void_p, c_uint32)),
    "spReflectionGeneric_GetValueParameterCount": (c_uint32, (c_void_p,)),
    "spReflectionType_GetElementType": (c_void_p, (c_void_p,)),
    "spReflectionType_GetFieldByIndex": (c_void_p, (c_void_p, c_uint32)),
    "spReflectionType_GetFieldCount": (c_uint32, (c_void_p,)),
    "spReflectionType_GetFullName": (c_int32, (c_void_p, c_void_p)),
    "spReflectionType_GetGenericContainer": (c_void_p, (c_void_p,)),
    "spReflectionType_GetKind": (c_int32, (c_void_p,)),
    "spReflectionType_GetName": (c_char_p, (c_void_p,)),
    "spReflectionType_GetScalarType": (c_int32, (c_void_p,)),
    "spReflectionTypeLayout_GetElementTypeLayout": (c_void_p, (c_void_p,)),
    "spReflectionTypeLayout_GetFieldByIndex": (c_void_p, (c_void_p, c_uint32)),
    "spReflectionTypeLayout_GetFieldCount": (c_uint32, (c_void_p,)),
    "spReflectionTypeLayout_GetSize": (c_size_t, (c_void_p, c_int32)),
    "spReflectionTypeLayout_GetType": (c_void_p, (c_void_p,)),
    "spReflectionUserAttribute_GetArgumentValueInt": (c_int32, (c_void_p, c_uint32, c_void_p)),
    "spReflectionUserAttribute_GetName": (c_char_p, (c_void_p,)),
    "spReflectionVariable_FindModifier": (c_void_p, (c_void_p, c_int32)),
    "spReflectionVariable_GetDefaultValueFloat": (c_int32, (c_void_p, c_void_p)),
    "spReflectionVariable_GetDefaultValueInt": (c_int32, (c_void_p, c_void_p)),
    "spReflectionVariable_GetName": (c_char_p, (c_void_p,)),
    "spReflectionVariable_GetType": (c_void_p, (c_void_p,)),
    "spReflectionVariable_HasDefaultValue": (c_bool, (c_void_p,)),
    "spReflectionVariableLayout_GetOffset": (c_size_t, (c_void_p, c_int32)),
    "spReflectionVariableLayout_GetSemanticName": (c_char_p, (c_void_p,)),
    "spReflectionVariableLayout_GetTypeLayout": (c_void_p, (c_void_p,)),
    "spReflectionVariableLayout_GetVariable": (c_void_p, (c_void_p,)),
}
