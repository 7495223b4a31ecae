"""Writes slangpy_rt/backends/d3d12/ffi.py: structs and interfaces of d3d12.h, dxgi.h and dxcapi.h, as cffi tables.

Development only. With ready tables a process that opens a D3D12 device does not import cffi's parser of C. Run it
after changing the declarations below; a test checks that running it changes nothing.

An interface is a pointer to a table of functions. ``INTERFACES`` names those that the backend calls with their places
in the table, which are in d3d12.h's order: IUnknown has the first 3, ID3D12Object 4 more, ID3D12DeviceChild 1 more.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cffi import FFI

TARGET = Path(__file__).parents[2] / "slangpy_rt" / "backends" / "d3d12" / "ffi.py"

# Unions have only the members that are used, and what keeps their size.
STRUCTS = """
typedef struct { int32_t type, priority, flags; uint32_t node; } D3D12_COMMAND_QUEUE_DESC;
typedef struct { int32_t type; uint32_t count; int32_t flags; uint32_t node; } D3D12_DESCRIPTOR_HEAP_DESC;
typedef struct { int32_t type; uint32_t count, node; } D3D12_QUERY_HEAP_DESC;
typedef struct { int32_t type, page, pool; uint32_t made, seen; } D3D12_HEAP_PROPERTIES;
typedef struct {
    int32_t dimension; uint64_t alignment, width; uint32_t height; uint16_t depth, mips; int32_t format;
    uint32_t samples, quality; int32_t layout, flags;
} D3D12_RESOURCE_DESC;
typedef struct {
    int32_t format, dimension; uint64_t first; uint32_t count, stride; uint64_t counter; int32_t flags;
} D3D12_UNORDERED_ACCESS_VIEW_DESC;
typedef struct {
    int32_t format, dimension; uint32_t mapping; uint64_t first; uint32_t count, stride; int32_t flags;
} D3D12_SHADER_RESOURCE_VIEW_DESC;
typedef struct {
    int32_t type, flags; void *resource; uint32_t part; int32_t before, after;
} D3D12_RESOURCE_BARRIER;
typedef struct { const void *data; size_t size; } D3D12_SHADER_BYTECODE;
typedef struct {
    void *root; D3D12_SHADER_BYTECODE code; uint32_t node; D3D12_SHADER_BYTECODE cached; int32_t flags;
} D3D12_COMPUTE_PIPELINE_STATE_DESC;
typedef struct {
    int32_t type, pad; uint32_t reg, space, count, unused; int32_t visibility, end;
} D3D12_ROOT_PARAMETER;
typedef struct {
    uint32_t count; const D3D12_ROOT_PARAMETER *parameters; uint32_t samplers; const void *sampler; int32_t flags;
} D3D12_ROOT_SIGNATURE_DESC;
typedef struct {
    uint16_t name[128]; uint32_t vendor, device, subsystem, revision; size_t video, system, shared;
    uint32_t luid_low; int32_t luid_high; uint32_t flags;
} DXGI_ADAPTER_DESC1;
typedef struct { const void *data; size_t size; uint32_t encoding; } DxcBuffer;
typedef struct {
    int32_t category, severity, id; const char *text; size_t size;
} D3D12_MESSAGE;
"""

# For each interface the functions that are called: their places, results, names and parameters after the object.
INTERFACES: dict[str, list[tuple[int, str, str, str]]] = {
    "IUnknown": [],
    "ID3DBlob": [(3, "const char *", "GetBufferPointer", ""), (4, "size_t", "GetBufferSize", "")],
    "ID3D12Device": [
        (8, "int32_t", "CreateCommandQueue", "const D3D12_COMMAND_QUEUE_DESC *, const char *, void **"),
        (9, "int32_t", "CreateCommandAllocator", "int32_t, const char *, void **"),
        (
            11,
            "int32_t",
            "CreateComputePipelineState",
            "const D3D12_COMPUTE_PIPELINE_STATE_DESC *, const char *, void **",
        ),
        (12, "int32_t", "CreateCommandList", "uint32_t, int32_t, void *, void *, const char *, void **"),
        (13, "int32_t", "CheckFeatureSupport", "int32_t, void *, uint32_t"),
        (14, "int32_t", "CreateDescriptorHeap", "const D3D12_DESCRIPTOR_HEAP_DESC *, const char *, void **"),
        (15, "uint32_t", "GetDescriptorHandleIncrementSize", "int32_t"),
        (16, "int32_t", "CreateRootSignature", "uint32_t, const char *, size_t, const char *, void **"),
        (18, "void", "CreateShaderResourceView", "void *, const D3D12_SHADER_RESOURCE_VIEW_DESC *, size_t"),
        (
            19,
            "void",
            "CreateUnorderedAccessView",
            "void *, void *, const D3D12_UNORDERED_ACCESS_VIEW_DESC *, size_t",
        ),
        (
            27,
            "int32_t",
            "CreateCommittedResource",
            "const D3D12_HEAP_PROPERTIES *, int32_t, const D3D12_RESOURCE_DESC *, int32_t, const void *, "
            "const char *, void **",
        ),
        (36, "int32_t", "CreateFence", "uint64_t, int32_t, const char *, void **"),
        (37, "int32_t", "GetDeviceRemovedReason", ""),
        (39, "int32_t", "CreateQueryHeap", "const D3D12_QUERY_HEAP_DESC *, const char *, void **"),
    ],
    "ID3D12CommandQueue": [
        (10, "void", "ExecuteCommandLists", "uint32_t, void *const *"),
        (14, "int32_t", "Signal", "void *, uint64_t"),
        (15, "int32_t", "Wait", "void *, uint64_t"),
        (16, "int32_t", "GetTimestampFrequency", "uint64_t *"),
    ],
    "ID3D12CommandAllocator": [(8, "int32_t", "Reset", "")],
    "ID3D12GraphicsCommandList": [
        (9, "int32_t", "Close", ""),
        (10, "int32_t", "Reset", "void *, void *"),
        (14, "void", "Dispatch", "uint32_t, uint32_t, uint32_t"),
        (15, "void", "CopyBufferRegion", "void *, uint64_t, void *, uint64_t, uint64_t"),
        (25, "void", "SetPipelineState", "void *"),
        (26, "void", "ResourceBarrier", "uint32_t, const D3D12_RESOURCE_BARRIER *"),
        (28, "void", "SetDescriptorHeaps", "uint32_t, void *const *"),
        (29, "void", "SetComputeRootSignature", "void *"),
        (35, "void", "SetComputeRoot32BitConstants", "uint32_t, uint32_t, const void *, uint32_t"),
        (53, "void", "EndQuery", "void *, int32_t, uint32_t"),
        (54, "void", "ResolveQueryData", "void *, int32_t, uint32_t, uint32_t, void *, uint64_t"),
        (57, "void", "BeginEvent", "uint32_t, const char *, uint32_t"),
        (58, "void", "EndEvent", ""),
    ],
    "ID3D12Resource": [(8, "int32_t", "Map", "uint32_t, const void *, void **")],
    "ID3D12DescriptorHeap": [
        # A struct of one integer, which methods of C++ return by a hidden pointer.
        (9, "void *", "GetCPUDescriptorHandleForHeapStart", "size_t *"),
    ],
    "ID3D12Fence": [
        (8, "uint64_t", "GetCompletedValue", ""),
        (9, "int32_t", "SetEventOnCompletion", "uint64_t, void *"),
    ],
    "ID3D12Debug": [(3, "void", "EnableDebugLayer", "")],
    "ID3D12InfoQueue": [
        (4, "void", "ClearStoredMessages", ""),
        (5, "int32_t", "GetMessage", "uint64_t, D3D12_MESSAGE *, size_t *"),
        (8, "uint64_t", "GetNumStoredMessages", ""),
    ],
    "IDXGIFactory1": [(12, "int32_t", "EnumAdapters1", "uint32_t, void **")],
    "IDXGIAdapter1": [(10, "int32_t", "GetDesc1", "DXGI_ADAPTER_DESC1 *")],
    "IDxcCompiler3": [
        (3, "int32_t", "Compile", "const DxcBuffer *, wchar_t **, uint32_t, void *, const char *, void **"),
    ],
    "IDxcResult": [
        (3, "int32_t", "GetStatus", "int32_t *"),
        (4, "int32_t", "GetResult", "void **"),
        (5, "int32_t", "GetErrorBuffer", "void **"),
    ],
}

FUNCTIONS = """
int32_t D3D12CreateDevice(void *adapter, int32_t level, const char *iid, void **device);
int32_t D3D12SerializeRootSignature(const D3D12_ROOT_SIGNATURE_DESC *told, int32_t version, void **blob, void **said);
int32_t D3D12GetDebugInterface(const char *iid, void **debug);
int32_t CreateDXGIFactory1(const char *iid, void **factory);
int32_t DxcCreateInstance(const char *clsid, const char *iid, void **made);
"""


def declarations() -> str:
    """Return the declarations in C."""
    text = STRUCTS
    for name, functions in INTERFACES.items():
        lines, place = [], 0
        known = {slot: (result, called, rest) for slot, result, called, rest in functions}
        # Everything derives from IUnknown.
        known |= {0: ("int32_t", "QueryInterface", "const char *, void **"), 2: ("uint32_t", "Release", "")}
        for slot, (result, called, rest) in sorted(known.items()):
            if slot > place:
                lines.append(f"void *before_{called}[{slot - place}];")
            lines.append(f"{result} (*{called})(void *{', ' if rest else ''}{rest});")
            place = slot + 1
        body = "\n    ".join(lines)
        text += f"typedef struct {{\n    {body}\n}} {name}Table;\n"
        text += f"typedef struct {{ const {name}Table *table; }} {name};\n"
    return text + FUNCTIONS


def generate() -> str:
    """Return the text of the module."""
    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source("slangpy_rt.backends.d3d12.ffi", None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.py"
        ffi.emit_python_code(str(path))
        text = path.read_text(encoding="utf-8")
    return text.replace("# auto-generated file", "# Generated by codegen/tools/gen_d3d12_ffi.py.")


if __name__ == "__main__":
    TARGET.write_text(generate(), encoding="utf-8")
