"""Opens a D3D12 device: what it can do, its heap of descriptors, its root signature and its buffers.

All kernels have one root signature: two 32-bit constants, which say where the argument block is. They reach buffers
by their numbers in the heap of descriptors.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from slangpy_rt.backends.d3d12.adapters import LEVEL, find_adapter, why_missing
from slangpy_rt.backends.d3d12.com import FFI, blob_bytes, cast, check, iid, library, made, release
from slangpy_rt.core.errors import OutOfMemoryError, UnsupportedError
from slangpy_rt.core.interrupts import apart
from slangpy_rt.core.target import LAVAPIPE_NESTING, Caps


class Kind(NamedTuple):
    """Where a buffer's memory is, and who uses it."""

    heap: int  # D3D12_HEAP_TYPE
    page: int  # D3D12_CPU_PAGE_PROPERTY
    pool: int  # D3D12_MEMORY_POOL
    state: int  # D3D12_RESOURCE_STATES that buffers of it begin in
    written: bool  # whether kernels write it


DEVICE = Kind(1, 0, 0, 0, True)
UPLOAD = Kind(2, 0, 0, 0xAC3, False)
# CUSTOM, WRITE_BACK, L0: the host's memory, cached by the CPU, in which kernels may write buffers. READBACK is no
# D3D12_HEAP_TYPE_READBACK, though it could be: vkd3d-proton cuts both from one buffer, made for the first of them to
# come, and a view for writing in one that was made for reading back ended the process.
SHARED = Kind(4, 3, 1, 0, True)
READBACK = Kind(4, 3, 1, 0, False)
# D3D12 has a million; each buffer takes one, so that these are enough for 128 GiB in buffers of 1 MiB.
DESCRIPTORS = 1 << 17
HANDLE_SHIFT = 40  # an address has the number of a descriptor from this bit on (shaders/_spy_handles.slang)
LARGEST = (1 << 32) - 1
ZEROS = 1 << 20
_MODEL = 0x66  # shader model 6.6, the first with a heap that kernels index
_RAW, _R32 = 1, 39  # D3D12_BUFFER_UAV_FLAG_RAW, DXGI_FORMAT_R32_TYPELESS
_HEAP_INDEXED = 0x400  # D3D12_ROOT_SIGNATURE_FLAG_CBV_SRV_UAV_HEAP_DIRECTLY_INDEXED
_MAPPING = 0x1688  # D3D12_DEFAULT_SHADER_4_COMPONENT_MAPPING


class Memory:
    """A buffer of D3D12 that blocks are cut from. Its address is 0 without a descriptor.

    Attributes
    ----------
    handle : Any
        The ``ID3D12Resource``.
    size : int
        Its bytes.
    number : int
        Number of its descriptor, 0 without one.
    host : int
        Its address for the host, 0 if it has none.
    between : Any
        A barrier that orders kernels which use the buffer after earlier ones.
    moves : bool
        Whether its state changes, as that of memory does which kernels write.
    """

    __slots__ = ("address", "between", "handle", "host", "moves", "number", "size")

    def __init__(self, handle: Any, size: int, number: int, host: int, moves: bool) -> None:
        self.handle = handle
        self.between = unordered(handle)
        self.size = size
        self.address = number << HANDLE_SHIFT
        self.number = number
        self.host = host
        self.moves = moves


def unordered(handle: Any) -> Any:
    """Return a barrier between kernels that use a buffer; of all buffers for NULL."""
    # 2: D3D12_RESOURCE_BARRIER_TYPE_UAV.
    return FFI.new("D3D12_RESOURCE_BARRIER *", (2, 0, handle))


class D3D12Device:
    """An open device.

    Attributes
    ----------
    handle : Any
        The ``ID3D12Device``.
    caps, description, messages
        As in ``Backend``, and the debug layer's messages.
    ffi : Any
        The cffi interface of D3D12.
    heap_bytes : int
        Bytes of the device's memory; more than any has where the system does not tell.
    is_software : bool
        Whether the device may run on the same cores as the host.
    root, heap : Any
        The root signature of all kernels, and the heap of descriptors as ``SetDescriptorHeaps`` takes it.
    between : Any
        A barrier that orders kernels after earlier ones.
    """

    ffi = FFI

    def __init__(self, index: int, debug: bool) -> None:
        if reason := why_missing():
            raise UnsupportedError(f"device d3d12: {reason}.")
        self._closers: list[Callable[[], Any]] = []
        self._drains: list[Callable[[], Any]] = []
        self.messages: list[str] = []
        self._info: Any = None
        self.between = unordered(FFI.NULL)
        layer = debug and _enable_debug_layer()
        adapter, self.description, self.heap_bytes = find_adapter(index)
        self.handle = made("ID3D12Device", library().D3D12CreateDevice, adapter, LEVEL, what="opening the device")
        self.on_close(release, self.handle)
        if adapter:
            release(adapter)
        try:
            if layer:
                out = FFI.new("void **")
                query = self.handle.table.QueryInterface
                check(query(self.handle, iid("ID3D12InfoQueue"), out), "opening the debug layer's messages")
                self._info = cast("ID3D12InfoQueue", out[0])
                self.on_close(release, self._info)
            elif debug:
                self.description += " (without the debug layer, which this system does not have)"
            self.caps, self.is_software = self._describe()
            self.root = self._make_root()
            self._make_heap()
        except BaseException:
            self.close()
            raise

    def on_close(self, function: Callable[..., Any], *args: Any) -> None:
        """Register what is done as the device is closed; what was registered last is done first."""
        self._closers.append(partial(function, *args))

    def close(self) -> None:
        """Wait for all work, and give everything back."""
        for drain in self._drains:
            drain()
        while self._closers:
            self._closers.pop()()

    def check(self, status: int, what: str) -> None:
        """Raise an exception if a status is an error, with the reason if the device was removed."""
        if status < 0:
            check(status, what, partial(self.handle.table.GetDeviceRemovedReason, self.handle))

    def drain(self, function: Callable[..., Any], *args: Any) -> None:
        """Register what waits for work before anything is given back."""
        self._drains.append(partial(function, *args))

    def make(self, interface: str, function: str, *args: Any, what: str) -> Any:
        """Make an object that lives as long as the device."""
        found = made(interface, getattr(self.handle.table, function), self.handle, *args, what=what)
        self.on_close(release, found)
        return found

    def allocate(self, nbytes: int, kind: Kind) -> Memory:
        """Make a buffer, zeroed by the driver; ``free`` gives it back.

        Parameters
        ----------
        kind : Kind
            ``DEVICE`` and ``SHARED``, which kernels read and write, ``UPLOAD``, which they read, or ``READBACK``,
            which only copies write. All but the first are mapped for the host.

        Raises
        ------
        OutOfMemoryError
            If the device has no memory or no descriptor left.
        """
        if nbytes > LARGEST:
            raise OutOfMemoryError(
                f"d3d12: {nbytes:,} bytes are more than an array may have here, which is less than 4 GiB; use "
                "smaller ones"
            )
        device, table = self.handle, self.handle.table
        size = nbytes + 3 & -4
        heap = FFI.new("D3D12_HEAP_PROPERTIES *", (kind.heap, kind.page, kind.pool, 0, 0))
        # 1: D3D12_RESOURCE_DIMENSION_BUFFER; 1: D3D12_TEXTURE_LAYOUT_ROW_MAJOR; 4: ALLOW_UNORDERED_ACCESS.
        told = FFI.new("D3D12_RESOURCE_DESC *", (1, 0, size, 1, 1, 1, 0, 1, 0, 1, 4 if kind.written else 0))
        create = partial(made, "ID3D12Resource", table.CreateCommittedResource, device, heap, 0, told, kind.state)
        handle = create(FFI.NULL, what=f"allocating {nbytes:,} bytes")
        number = 0
        try:
            if kind is not READBACK:
                number = self._view(handle, size, kind)
            host = FFI.new("void **")
            if kind is not DEVICE:
                self.check(handle.table.Map(handle, 0, FFI.NULL, host), "mapping memory")
        except BaseException:
            self.release(Memory(handle, size, number, 0, False))
            raise
        return Memory(handle, size, number, int(FFI.cast("uintptr_t", host[0])), kind.written)

    def keep(self, nbytes: int, kind: Kind) -> Memory:
        """Allocate a buffer that lives as long as the device."""
        return apart(self._keep, nbytes, kind)

    def _keep(self, nbytes: int, kind: Kind) -> Memory:
        memory = self.allocate(nbytes, kind)
        self.on_close(self.release, memory)
        return memory

    @functools.cached_property
    def zeros(self) -> Memory:
        """``ZEROS`` bytes to copy from, which the driver has zeroed; it needs no changes of state."""
        memory = self.keep(ZEROS, DEVICE)
        memory.moves = False
        return memory

    def bytes(self, memory: Memory) -> Any:
        """Return the bytes of a mapped buffer as a writable cffi buffer."""
        return FFI.buffer(FFI.cast("char *", memory.host), memory.size)

    def release(self, memory: Memory) -> None:
        """Give a buffer and its descriptor back; no queued work may use it."""
        if memory.number:
            self._numbers.append(memory.number)
        release(memory.handle)

    def read_messages(self) -> None:
        """Append the messages that the debug layer has kept to ``messages``."""
        found = self._info
        if found is None:
            return
        for k in range(found.table.GetNumStoredMessages(found)):
            size = FFI.new("size_t *")
            found.table.GetMessage(found, k, FFI.NULL, size)
            space = FFI.new("uint64_t[]", size[0] // 8 + 1)
            message = FFI.cast("D3D12_MESSAGE *", space)
            check(found.table.GetMessage(found, k, message, size), "reading a message")
            # D3D12_MESSAGE_SEVERITY: 0 corruption, 1 error, 2 warning; the rest tells of objects that were made.
            if message.severity <= 2:
                self.messages.append(FFI.string(message.text).decode(errors="replace"))
        found.table.ClearStoredMessages(found)

    def _describe(self) -> tuple[Caps, bool]:
        """Ask what the device can do.

        Raises
        ------
        UnsupportedError
            If it lacks something that all kernels need.
        """
        model = self._feature(7, 1, _MODEL)[0]
        basic, more = self._feature(0, 15), self._feature(8, 6)
        if model < _MODEL or basic[4] < 3 or not more[5]:
            raise UnsupportedError(
                f"d3d12: {self.description} has shader model {model >> 4}.{model & 15}, resource binding tier "
                f"{basic[4]} and {'' if more[5] else 'no '}64-bit integers; kernels need 6.6, 3 and 64-bit integers. "
                "Update the driver"
            )
        scalars = {"bool", "int", "uint", "float", "int64_t", "uint64_t"}
        if basic[0]:
            scalars.add("double")
        if self._feature(23, 3)[2]:
            scalars |= {"half", "int16_t", "uint16_t"}
        features = {"group_shared", "atomic_float"} | ({"wave"} if more[0] else set())
        lanes = more[1] if more[1] == more[2] else 0
        unified = bool(self._feature(1, 4)[2])
        nesting = LAVAPIPE_NESTING if unified and lanes <= 8 else Caps.nesting
        return Caps((65535,) * 3, frozenset(scalars), frozenset(features), lanes, nesting=nesting), unified

    def _feature(self, number: int, count: int, *given: int) -> list[int]:
        """Return the 32-bit fields of a D3D12_FEATURE; zeros for one that the library does not know."""
        fields = FFI.new("uint32_t[]", count)
        fields[0 : len(given)] = given
        if self.handle.table.CheckFeatureSupport(self.handle, number, fields, 4 * count) < 0:
            return [0] * count
        return list(fields)

    def _make_root(self) -> Any:
        # 1: D3D12_ROOT_PARAMETER_TYPE_32BIT_CONSTANTS, two of them in register b0 of space 0.
        parameter = FFI.new("D3D12_ROOT_PARAMETER *", (1, 0, 0, 0, 2))
        told = FFI.new("D3D12_ROOT_SIGNATURE_DESC *", (1, parameter, 0, FFI.NULL, _HEAP_INDEXED))
        blob, error = FFI.new("void **"), FFI.new("void **")
        status = library().D3D12SerializeRootSignature(told, 1, blob, error)
        check(status, f"writing a root signature {blob_bytes(error[0]).decode(errors='replace')}")
        data = blob_bytes(blob[0])
        return self.make(
            "ID3D12RootSignature", "CreateRootSignature", 0, data, len(data), what="making a root signature"
        )

    def _make_heap(self) -> None:
        # 0: D3D12_DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV; 1: SHADER_VISIBLE.
        told = FFI.new("D3D12_DESCRIPTOR_HEAP_DESC *", (0, DESCRIPTORS, 1, 0))
        heap = self.make("ID3D12DescriptorHeap", "CreateDescriptorHeap", told, what="making a heap of descriptors")
        start = FFI.new("size_t *")
        heap.table.GetCPUDescriptorHandleForHeapStart(heap, start)
        self._start = int(start[0])
        self._step = int(self.handle.table.GetDescriptorHandleIncrementSize(self.handle, 0))
        self.heap = FFI.new("void *[]", [heap])
        # Address 0 means that there is no array, so that no array has descriptor 0.
        self._numbers = deque(range(1, DESCRIPTORS))

    def _view(self, resource: Any, size: int, kind: Kind) -> int:
        """Write a descriptor of a buffer as words, for what kernels do with it."""
        try:
            number = self._numbers.popleft()
        except IndexError:
            raise OutOfMemoryError(
                f"d3d12: {DESCRIPTORS:,} large arrays are the most that it takes; free some, or use fewer and "
                "larger ones"
            ) from None
        place = self._start + number * self._step
        device, table = self.handle, self.handle.table
        if kind.written:
            view = FFI.new("D3D12_UNORDERED_ACCESS_VIEW_DESC *", (_R32, 1, 0, size // 4, 0, 0, _RAW))
            table.CreateUnorderedAccessView(device, resource, FFI.NULL, view, place)
        else:
            seen = FFI.new("D3D12_SHADER_RESOURCE_VIEW_DESC *", (_R32, 1, _MAPPING, 0, size // 4, 0, _RAW))
            table.CreateShaderResourceView(device, resource, seen, place)
        return number


def _enable_debug_layer() -> bool:
    """Have devices that are opened from now on check all calls; return whether the system can."""
    out = FFI.new("void **")
    if library().D3D12GetDebugInterface(iid("ID3D12Debug"), out) < 0:
        return False
    debug = cast("ID3D12Debug", out[0])
    debug.table.EnableDebugLayer(debug)
    release(debug)
    return True
