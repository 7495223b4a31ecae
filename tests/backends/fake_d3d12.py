"""D3D12 without a device: objects whose tables of functions note each call, and run nothing but copies.

Functions have the types of ``backends/d3d12/ffi.py``, so that a call with wrong arguments fails here as anywhere.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable
from typing import Any

from slangpy_rt.backends.d3d12.com import FFI, IIDS

_NAMES = {uuid.UUID(number).bytes_le: name for name, number in IIDS.items()}
# Answers to CheckFeatureSupport: shader model, options, options 1, options 4, architecture, options 11.
FEATURES = {
    7: [0x66],
    0: [1, 0, 0, 0, 3],
    8: [1, 32, 32, 64, 1, 1],
    23: [0, 0, 1],
    1: [0, 0, 0, 0],
    40: [1],
}


class FakeLibrary:
    """The functions of d3d12.dll.

    Attributes
    ----------
    calls : list of tuple
        The calls of methods: interface, name, arguments after the object.
    waiting : bool
        Whether fences stay where they are, as if the device worked on.
    removed : int
        The status of a device that was removed; 0 for one that works.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.waiting = False
        self.removed = 0
        self.root: Any = None
        self.memory: dict[int, Any] = {}
        self.fences: dict[int, int] = {}
        self.features = {number: list(fields) for number, fields in FEATURES.items()}
        self.adapter = ("Fake", 0)
        self._kept: list[Any] = []

    def D3D12CreateDevice(self, adapter: Any, level: int, iid: bytes, out: Any) -> int:
        if out:
            out[0] = self.object("ID3D12Device")
        return 0

    def D3D12GetDebugInterface(self, iid: bytes, out: Any) -> int:
        return 0x887A002D - 2**32  # DXGI_ERROR_SDK_COMPONENT_MISSING

    def D3D12SerializeRootSignature(self, told: Any, version: int, blob: Any, error: Any) -> int:
        parameter = told.pParameters[0]
        words = parameter.Constants
        self.root = (told.NumParameters, told.Flags, parameter.ParameterType)
        self.root += (words.ShaderRegister, words.RegisterSpace, words.Num32BitValues)
        blob[0] = self.object("ID3D10Blob")
        return 0

    def CreateDXGIFactory1(self, iid: bytes, out: Any) -> int:
        out[0] = self.object("IDXGIFactory1")
        return 0

    def named(self, *names: str) -> list[tuple[Any, ...]]:
        """The calls of these methods, as names and arguments, in order."""
        return [(name, *args) for _, name, args in self.calls if name in names]

    def object(self, interface: str) -> Any:
        """Make an object of an interface."""
        table = FFI.new(f"{interface}Table *")
        for field, kind in FFI.typeof(f"{interface}Table").fields:
            if kind.type.kind == "function":
                function = FFI.callback(kind.type, self._noted(interface, field, kind.type.result.kind))
                self._kept.append(function)
                setattr(table, field, function)
        made = FFI.new(f"{interface} *", {"table": table})
        self._kept += [table, made]
        return made

    def _noted(self, interface: str, name: str, result: str) -> Callable[..., Any]:
        own = getattr(self, f"_{name}", None)

        def function(this: Any, *args: Any) -> Any:
            if name != "GetCompletedValue":
                self.calls.append((interface, name, tuple(_copied(name, arg) for arg in args)))
            if own is not None:
                return own(this, *args)
            if name.startswith("Create") and result != "void":
                args[-1][0] = self.object(_NAMES[FFI.buffer(args[-2], 16)[:]])
            return None if result == "void" else 0

        return function

    def _CheckFeatureSupport(self, this: Any, number: int, data: Any, size: int) -> int:
        fields = FFI.cast("uint32_t *", data)
        if number not in self.features:
            return -1
        for k, value in enumerate(self.features[number]):
            fields[k] = value
        return 0

    def _CreateCommittedResource(
        self, this: Any, heap: Any, flags: int, told: Any, state: int, clear: Any, iid: Any, out: Any
    ) -> int:
        found = self.object("ID3D12Resource")
        self.memory[_number(found)] = FFI.new("char[]", told.Width)
        out[0] = found
        return 0

    def _GetAdapterLuid(self, this: Any, out: Any) -> Any:
        out.LowPart, out.HighPart = 5, 6
        return out

    def _CreateSharedHandle(self, this: Any, found: Any, security: Any, access: int, name: Any, out: Any) -> int:
        out[0] = FFI.cast("void *", 77)
        return 0

    def _Map(self, this: Any, part: int, read: Any, out: Any) -> int:
        out[0] = self.memory[_number(this)]
        return 0

    def _GetDescriptorHandleIncrementSize(self, this: Any, kind: int) -> int:
        return 32

    def _GetCPUDescriptorHandleForHeapStart(self, this: Any, out: Any) -> Any:
        out.ptr = 0x1000
        return out

    def _CopyBufferRegion(self, this: Any, dst: Any, to: int, src: Any, at: int, nbytes: int) -> None:
        # At once, which a list of commands for one thread does not tell apart.
        base = [int(FFI.cast("uintptr_t", self.memory[_number(p)])) for p in (dst, src)]
        ctypes.memmove(base[0] + to, base[1] + at, nbytes)

    def _Signal(self, this: Any, fence: Any, value: int) -> int:
        if self.removed:
            return 0x887A0005 - 2**32
        if not self.waiting:
            self.fences[_number(fence)] = value
        return 0

    def _GetCompletedValue(self, this: Any) -> int:
        return 2**64 - 1 if self.removed else self.fences.get(_number(this), 0)

    def _SetEventOnCompletion(self, this: Any, value: int, event: Any) -> int:
        self.fences[_number(this)] = value
        return 0

    def _GetDeviceRemovedReason(self, this: Any) -> int:
        return self.removed

    def _GetTimestampFrequency(self, this: Any, out: Any) -> int:
        out[0] = 1_000_000
        return 0

    def _EnumAdapters1(self, this: Any, index: int, out: Any) -> int:
        if index:
            return 0x887A0002 - 2**32
        out[0] = self.object("IDXGIAdapter1")
        return 0

    def _GetDesc1(self, this: Any, told: Any) -> int:
        name, told.Flags = self.adapter
        told.DedicatedVideoMemory, told.SharedSystemMemory = 8 << 30, 4 << 30
        told.Description = [*name.encode("utf-16-le")[::2], 0]
        return 0


def _number(pointer: Any) -> int:
    return int(FFI.cast("uintptr_t", pointer))


def _copied(name: str, value: Any) -> Any:
    """An argument in a form that lasts: what barriers, views and constants hold, and else numbers."""
    if not isinstance(value, FFI.CData):
        return value
    kind = FFI.typeof(value)
    if kind.kind == "pointer" and kind.item.kind == "struct" and value:
        return _flat(value[0])
    if kind.kind == "struct":
        return _flat(value)
    if name == "SetComputeRoot32BitConstants":
        return tuple(FFI.cast("uint32_t *", value)[0:2])
    return _number(value) if kind.kind == "pointer" else value


def _flat(value: Any) -> tuple[Any, ...]:
    """The fields of a struct, those of structs in it included; of a union the first member, or a barrier's own."""
    found: list[Any] = []
    offsets: set[int] = set()
    for name, field in FFI.typeof(value).fields:
        if field.offset in offsets:
            continue
        offsets.add(field.offset)
        held = getattr(value, "UAV" if name == "Transition" and value.Type == 2 else name)
        if isinstance(held, FFI.CData) and FFI.typeof(held).kind == "struct":
            found += _flat(held)
        else:
            found.append(_number(held) if field.type.kind == "pointer" else held)
    return tuple(found)
