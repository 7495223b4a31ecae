"""Writes slangpy_rt/backends/d3d12/ffi.py from headers of D3D12, DXGI and DXC: what is called, as cffi tables.

Development only. The headers are those of the ziglang wheel, which the tests install, or of a folder that is named.
It reads the subset of C that they are written in, and emits nothing that is not listed or used by something listed.
An interface is a pointer to a table of functions, in which ``void *`` stands for those that are not called.

    python codegen/tools/gen_d3d12_ffi.py [FOLDER]      # after listing a new name
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
from pathlib import Path

from cffi import FFI

TARGET = Path(__file__).parents[2] / "slangpy_rt" / "backends" / "d3d12" / "ffi.py"

# The functions that are called of each interface, besides QueryInterface and Release of all.
INTERFACES = {
    "IUnknown": [],
    "ID3D10Blob": ["GetBufferPointer", "GetBufferSize"],
    "ID3D12CommandAllocator": ["Reset"],
    "ID3D12CommandQueue": ["ExecuteCommandLists", "GetTimestampFrequency", "Signal", "Wait"],
    "ID3D12Debug": ["EnableDebugLayer"],
    "ID3D12DescriptorHeap": ["GetCPUDescriptorHandleForHeapStart"],
    "ID3D12Device": [
        "CheckFeatureSupport",
        "CreateCommandAllocator",
        "CreateCommandList",
        "CreateCommandQueue",
        "CreateCommittedResource",
        "CreateComputePipelineState",
        "CreateDescriptorHeap",
        "CreateFence",
        "CreateQueryHeap",
        "CreateRootSignature",
        "CreateShaderResourceView",
        "CreateSharedHandle",
        "CreateUnorderedAccessView",
        "GetAdapterLuid",
        "GetDescriptorHandleIncrementSize",
        "GetDeviceRemovedReason",
    ],
    "ID3D12Fence": ["GetCompletedValue", "SetEventOnCompletion"],
    "ID3D12GraphicsCommandList": [
        "BeginEvent",
        "Close",
        "CopyBufferRegion",
        "Dispatch",
        "EndEvent",
        "EndQuery",
        "Reset",
        "ResolveQueryData",
        "ResourceBarrier",
        "SetComputeRoot32BitConstants",
        "SetComputeRootSignature",
        "SetDescriptorHeaps",
        "SetPipelineState",
    ],
    "ID3D12InfoQueue": ["ClearStoredMessages", "GetMessage", "GetNumStoredMessages"],
    "ID3D12PipelineState": [],
    "ID3D12QueryHeap": [],
    "ID3D12Resource": ["Map"],
    "ID3D12RootSignature": [],
    "IDXGIAdapter1": ["GetDesc1"],
    "IDXGIFactory1": ["EnumAdapters1"],
    "IDxcCompiler3": ["Compile"],
    "IDxcResult": ["GetErrorBuffer", "GetResult", "GetStatus"],
}
FUNCTIONS = (
    "CreateDXGIFactory1",
    "D3D12CreateDevice",
    "D3D12GetDebugInterface",
    "D3D12SerializeRootSignature",
    "DxcCreateInstance",
)
# What ``CheckFeatureSupport`` fills, which takes it as a pointer to void.
STRUCTS = (
    "D3D12_FEATURE_DATA_ARCHITECTURE",
    "D3D12_FEATURE_DATA_D3D12_OPTIONS",
    "D3D12_FEATURE_DATA_D3D12_OPTIONS1",
    "D3D12_FEATURE_DATA_D3D12_OPTIONS4",
    "D3D12_FEATURE_DATA_D3D12_OPTIONS9",
    "D3D12_FEATURE_DATA_D3D12_OPTIONS11",
    "D3D12_FEATURE_DATA_SHADER_MODEL",
)

_HEADERS = ("d3dcommon.h", "d3d12.h", "d3d12sdklayers.h", "dxgicommon.h", "dxgiformat.h", "dxgi.h", "dxcapi.h")
# Windows's names. WCHAR has 16 bits there; a text is one of the compiler's own characters, which DXC takes elsewhere.
_SCALARS = {
    "void": "void", "char": "char", "D3D12_GPU_VIRTUAL_ADDRESS": "uint64_t", "FLOAT": "float",
    "HANDLE": "void *", "HRESULT": "int32_t", "INT": "int32_t", "LONG": "int32_t", "DWORD": "uint32_t",
    "LPCVOID": "const void *", "LPCWSTR": "wchar_t *", "LPVOID": "void *", "REFCLSID": "const char *",
    "REFGUID": "const char *", "REFIID": "const char *", "SIZE_T": "size_t", "UINT": "uint32_t", "UINT16": "uint16_t",
    "UINT32": "uint32_t", "UINT64": "uint64_t", "UINT8": "uint8_t", "ULONG": "uint32_t", "WCHAR": "uint16_t",
    "WINBOOL": "int32_t",
}  # fmt: skip
# Annotations, and what is left of preprocessing.
_IGNORED = re.compile(
    r"\b(?:_[A-Z]\w*_\b(?:\([^()]*\))?|__C89_NAMELESS\w*|__stdcall|STDMETHODCALLTYPE|BEGIN_INTERFACE|END_INTERFACE)"
)


class Headers:
    """The text of the headers without comments, and the declarations of the structs that were asked for."""

    def __init__(self, folder: Path) -> None:
        raw = "\n".join((folder / name).read_text(encoding="utf-8") for name in _HEADERS)
        text = re.sub(r"/\*.*?\*/|//[^\n]*|^[ \t]*#[^\n]*(\\\n[^\n]*)*", "", raw, flags=re.DOTALL | re.MULTILINE)
        self.text = _IGNORED.sub("", text)
        self._structs: dict[str, str] = {}
        self._bodies: dict[str, str] = {}
        # A struct may have another name in front than at its end.
        for tag, body, name in re.findall(r"\bstruct (\w*)\s*\{((?:[^{}]|\{[^{}]*\})*)\}\s*(\w*)", self.text):
            self._bodies |= {tag: body, name: body}

    @property
    def structs(self) -> str:
        """The structs in C, each after those that it has."""
        return "".join(self._structs.values())

    def iid(self, interface: str) -> str:
        """Return the number of an interface."""
        found = re.search(rf'MIDL_INTERFACE\("([^"]*)"\)\s*{interface}\b', self.text)
        found = found or re.search(rf'CROSS_PLATFORM_UUIDOF\({interface}, "([^"]*)"\)', self.text)
        return _known(found, interface)[1].lower()

    def slots(self, interface: str) -> list[tuple[str, str, str]]:
        """Return result, name and parameters after the object of each function, in the order of the table."""
        if interface == "IUnknown":
            # Of unknwn.h, which is not read.
            return [
                ("HRESULT", "QueryInterface", "REFIID, void **"),
                ("ULONG", "AddRef", ""),
                ("ULONG", "Release", ""),
            ]
        if table := self._bodies.get(f"{interface}Vtbl"):
            own = re.findall(r"([^;]+?)\(\s*\*\s*(\w+)\)\(\s*\w+ \*This\s*,?([^;]*)\);", table)
            base, count = [], table.count(";")
        else:
            # DXC's header is C++.
            found = re.search(rf"\bstruct {interface} : public (\w+) \{{(.*?)\}};", self.text, re.DOTALL)
            base, body = self.slots(_known(found, interface)[1]), _known(found, interface)[2]
            own = re.findall(r"\bvirtual\s+([^;()]*?)(\w+)\s*\(([^;]*?)\)\s*=\s*0\s*;", body)
            count = len(re.findall(r"\bvirtual\b", body))
        if len(own) != count:
            raise SystemExit(f"{interface}: a function escaped the parser; extend it")
        return base + own

    def function(self, name: str) -> str:
        """Return the declaration of an exported function."""
        result, rest = _known(re.search(rf"\b(\w+)\s+{name}\s*\(([^;]*?)\)\s*;", self.text), name).groups()
        return f"{self.type(result)} {name}({self.parameters(rest)});\n"

    def type(self, declared: str) -> str:
        """Return a type as cffi takes it; objects are pointers to void."""
        stars = "*" * declared.count("*")
        words = re.sub(r"\*|\benum\b", " ", declared).split()
        constant = "const " if "const" in words[:1] else ""
        name = " ".join(word for word in words if word != "const")
        if name in _SCALARS:
            plain = _SCALARS[name]
            constant = constant if "*" not in plain else ""
        elif re.search(rf"\benum {name} \{{", self.text):
            plain = "int32_t"
        elif self.struct(name):
            plain = name
        elif stars:
            plain, constant = "void", ""
        else:
            raise SystemExit(f"type {declared!r} is unknown; extend _SCALARS")
        return f"{constant}{plain} {stars}".strip()

    def parameters(self, text: str) -> str:
        """Return a list of parameters without their names."""
        # A name follows a type of at least one word, or a star.
        parts = (re.sub(r"(?<=[\w*])(\s*\*|\s)\s*\w+\s*(\[\d*\])?$", r"\1", part.strip()) for part in text.split(","))
        return ", ".join(self.type(part) for part in parts if part.strip())

    def struct(self, name: str) -> bool:
        """Tell whether there is a struct with this name, and declare it."""
        body = self._bodies.get(name)
        if body and name not in self._structs:
            fields = self._fields(name, body)
            self._structs[name] = f"typedef struct {{ {fields} }} {name};\n"
        return bool(body)

    def _fields(self, name: str, body: str) -> str:
        fields = []
        union = re.compile(r"union\s*\{([^{}]*)\}\s*;")
        inside = iter(union.findall(body))
        for part in union.sub("union;", body).split(";")[:-1]:
            if part.strip() == "union":
                fields.append(f"union {{ {self._fields(name, next(inside))} }};")
                continue
            found = re.fullmatch(r"\s*(.*?)\b(\w+)\s*((?:\[\d+\])*)\s*", part, re.DOTALL)
            declared, field, size = _known(found, f"a field of {name}").groups()
            fields.append(f"{self.type(declared)} {field}{size};")
        return " ".join(fields)


def _known(found: re.Match[str] | None, what: str) -> re.Match[str]:
    if found is None:
        raise SystemExit(f"{what} is not in the headers as this script knows them; extend it")
    return found


def declarations(headers: Headers) -> str:
    """Return the declarations in C."""
    text = ""
    for name, called in INTERFACES.items():
        slots = headers.slots(name)
        lines, place = [], 0
        for slot, (result, function, rest) in enumerate(slots):
            if function in called or slot in (0, 2):
                if slot > place:
                    lines.append(f"void *before_{function}[{slot - place}];")
                parameters = headers.parameters(rest)
                lines.append(f"{headers.type(result)} (*{function})(void *{', ' if parameters else ''}{parameters});")
                place = slot + 1
        if missing := set(called) - {function for _, function, _ in slots}:
            raise SystemExit(f"{name} has no {', '.join(sorted(missing))}; correct the list of this script")
        text += f"typedef struct {{ {' '.join(lines)} }} {name}Table;\n"
        text += f"typedef struct {{ const {name}Table *table; }} {name};\n"
    text += "".join(map(headers.function, FUNCTIONS))
    for name in STRUCTS:
        if not headers.struct(name):
            raise SystemExit(f"struct {name} is not in the headers; correct the list of this script")
    return headers.structs + text


def generate(folder: Path) -> str:
    """Return the text of the module for the headers in a folder."""
    headers, ffi = Headers(folder), FFI()
    ffi.cdef(declarations(headers))
    ffi.set_source("slangpy_rt.backends.d3d12.ffi", None)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "module.py"
        ffi.emit_python_code(str(path))
        text = path.read_text(encoding="utf-8")
    text = text.replace("# auto-generated file", "# Generated by codegen/tools/gen_d3d12_ffi.py.")
    numbers = "".join(f'    "{name}": "{headers.iid(name)}",\n' for name in INTERFACES if name != "IUnknown")
    return f"{text}IIDS = {{\n{numbers}}}\n"


def find_headers() -> Path:
    """Return the folder of the headers in the ziglang wheel, which has those of mingw-w64."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise SystemExit("the ziglang wheel, which has the headers, is not installed; name their folder")
    return Path(spec.origin).parent / "lib" / "libc" / "include" / "any-windows-any"


if __name__ == "__main__":
    TARGET.write_text(generate(Path(sys.argv[1]) if sys.argv[1:] else find_headers()), encoding="utf-8")
