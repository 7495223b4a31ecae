"""Opens a D3D12 device: what it can do, its heap of descriptors, its root signature and its buffers.

All kernels have one root signature: two 32-bit constants, which say where the argument block is. They reach buffers
by their numbers in the heap of descriptors.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from slangpy_rt.backends.base import Shared
from slangpy_rt.backends.d3d12.adapters import LEVEL, find_adapter, why_missing
from slangpy_rt.backends.d3d12.com import COMPUTE, FFI, blob_bytes, check, close_handle, library, made, release
from slangpy_rt.backends.device_memory import MemoryDevice
from slangpy_rt.core.errors import DeviceError, OutOfMemoryError, UnsupportedError
from slangpy_rt.core.target import LAVAPIPE_NESTING, Caps


class Kind(NamedTuple):
    """Where a buffer's memory is, and who uses it."""

    heap: int  # D3D12_HEAP_TYPE
    page: int  # D3D12_CPU_PAGE_PROPERTY
    pool: int  # D3D12_MEMORY_POOL
    state: int  # D3D12_RESOURCE_STATES that buffers of it begin in
    seen: bool  # whether kernels use it, by a descriptor
    moves: bool  # whether its state changes: kernels write it, or copies both read and write it


DEVICE, SCRATCH, ZERO = (Kind(1, 0, 0, 0, *use) for use in ((True, True), (False, True), (False, False)))
UPLOAD = Kind(2, 0, 0, 0xAC3, True, False)
# CUSTOM, WRITE_BACK, L0: the host's memory, cached by the CPU. READBACK, for copies either way, is not of D3D12's own
# such type: vkd3d-proton cuts both from one buffer, and a view for writing in one made for reading ended the process.
SHARED, READBACK = Kind(4, 3, 1, 0, True, True), Kind(4, 3, 1, 0, False, False)
# D3D12 has a million; each buffer takes one, so that these are enough for 128 GiB in buffers of 1 MiB.
DESCRIPTORS = 1 << 17
HANDLE_SHIFT = 40  # an address has the number of a descriptor from this bit on (shaders/_spy_handles.slang)
LARGEST = (1 << 32) - 1
ZEROS = 1 << 20
_LAST = 2**62  # of a fence: more than all submissions
_MODEL = 0x66  # shader model 6.6, the first with a heap that kernels index
_RAW, _R32 = 1, 39  # D3D12_BUFFER_UAV_FLAG_RAW, DXGI_FORMAT_R32_TYPELESS
_HEAP_INDEXED = 0x400  # D3D12_ROOT_SIGNATURE_FLAG_CBV_SRV_UAV_HEAP_DIRECTLY_INDEXED
_MAPPING = 0x1688  # D3D12_DEFAULT_SHADER_4_COMPONENT_MAPPING


@dataclass(eq=False, slots=True)
class Memory:
    """A buffer of D3D12 that blocks are cut from."""

    handle: Any  # the ID3D12Resource
    size: int  # its bytes
    number: int  # of its descriptor, 0 without one
    host: int  # its address for the host, 0 if it has none
    kind: Kind
    shared: Shared | None = None  # what ``share`` returned for it

    @property
    def address(self) -> int:
        """Its address for kernels, 0 without a descriptor."""
        return self.number << HANDLE_SHIFT


class D3D12Device(MemoryDevice):
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
        A barrier that orders kernels after earlier ones. It is of one buffer while kernels write one alone: one of
        all buffers also waits for acceleration structures.
    exports : bool
        Whether other APIs can open its memory and fences.
    queues : list of tuple
        Queues, whose work is waited for before the device is closed, with a fence of each.
    """

    ffi = FFI
    exports = sys.platform == "win32"

    def __init__(self, index: int, debug: bool) -> None:
        if reason := why_missing():
            raise UnsupportedError(f"device d3d12: {reason}.")
        self._closers: list[Callable[[], Any]] = []
        self.queues: list[tuple[Any, Any]] = []
        self.messages: list[str] = []
        self._info: Any = None
        self._note(set())
        layer = debug and _enable_debug_layer()
        adapter, self.description, self.heap_bytes = find_adapter(index)
        self.handle = made("ID3D12Device", library().D3D12CreateDevice, adapter, LEVEL, what="opening the device")
        self.on_close(release, self.handle)
        if adapter:
            release(adapter)
        try:
            if layer:
                self._info = self.make("ID3D12InfoQueue", "QueryInterface", what="opening the debug layer's messages")
            elif debug:
                self.description += " (without the debug layer, which this system does not have)"
            self.caps, self.is_software = self._describe()
            self.description += ", in the host's memory" if self.is_software else ""
            self.root = self._make_root()
            self._make_heap()
        except BaseException:
            self.close()
            raise

    def on_close(self, function: Callable[..., Any], *args: Any) -> None:
        self._closers.append(partial(function, *args))

    def close(self) -> None:
        """Wait for all work, and give everything back."""
        for native, fence in self.queues:
            # A device that is removed has no work.
            if native.table.Signal(native, fence, _LAST) >= 0:
                fence.table.SetEventOnCompletion(fence, _LAST, FFI.NULL)
        self.queues.clear()
        while self._closers:
            self._closers.pop()()

    def check(self, status: int, what: str) -> None:
        """Raise an exception if a status is an error, with the reason if the device was removed."""
        if status < 0:
            check(status, what, partial(self.handle.table.GetDeviceRemovedReason, self.handle))

    def make(self, interface: str, function: str, *args: Any, what: str) -> Any:
        """Make an object that lives as long as the device."""
        found = made(interface, getattr(self.handle.table, function), self.handle, *args, what=what)
        self.on_close(release, found)
        return found

    def command_list(self) -> tuple[Any, Any]:
        """Make a command list, which is open, and its allocator; the caller releases both."""
        table, device = self.handle.table, self.handle
        allocate, create = table.CreateCommandAllocator, table.CreateCommandList
        allocator = made("ID3D12CommandAllocator", allocate, device, COMPUTE, what="making a command allocator")
        arguments = (device, 0, COMPUTE, allocator, FFI.NULL)
        return made("ID3D12GraphicsCommandList", create, *arguments, what="making a command list"), allocator

    def allocate(self, nbytes: int, kind: Kind) -> Memory:
        """Make a buffer, zeroed by the driver; ``release`` gives it back.

        Parameters
        ----------
        kind : Kind
            ``DEVICE`` and ``SHARED``, which kernels read and write, ``UPLOAD``, which they read, or ``SCRATCH``,
            ``ZERO`` and ``READBACK``, which are for copies alone. Those of the host's memory are mapped.

        Raises
        ------
        OutOfMemoryError
            If the device has no memory or no descriptor left.
        """
        if nbytes > LARGEST:
            raise OutOfMemoryError(
                f"d3d12: {nbytes:,} bytes are too many: an array has less than 4 GiB here; use smaller ones"
            )
        device, table = self.handle, self.handle.table
        size = nbytes + 3 & -4
        heap = FFI.new("D3D12_HEAP_PROPERTIES *", kind[:3])
        # 1: D3D12_RESOURCE_DIMENSION_BUFFER; 1: D3D12_TEXTURE_LAYOUT_ROW_MAJOR; 4: ALLOW_UNORDERED_ACCESS.
        told = FFI.new("D3D12_RESOURCE_DESC *", (1, 0, size, 1, 1, 1, 0, (1, 0), 1, 4 if kind.moves else 0))
        # 1: D3D12_HEAP_FLAG_SHARED.
        where = (heap, int(self.exports and kind is DEVICE), told, kind.state, FFI.NULL)
        what = f"allocating {nbytes:,} bytes"
        handle = made("ID3D12Resource", table.CreateCommittedResource, device, *where, what=what)
        number, host = 0, FFI.new("void **")
        try:
            number = self._view(handle, size, kind) if kind.seen else 0
            if kind.heap != DEVICE.heap:
                self.check(handle.table.Map(handle, 0, FFI.NULL, host), "mapping memory")
        except BaseException:
            self.release(Memory(handle, size, number, 0, kind))
            raise
        memory = Memory(handle, size, number, int(FFI.cast("uintptr_t", host[0])), kind)
        if kind.seen and kind.moves:
            self._note(self._written | {memory})
        return memory

    def _note(self, written: set[Memory]) -> None:
        """Note which buffers kernels write."""
        self._written = written
        one = next(iter(written)).handle if len(written) == 1 else FFI.NULL
        # 2: D3D12_RESOURCE_BARRIER_TYPE_UAV; NULL stands for all buffers.
        self.between = FFI.new("D3D12_RESOURCE_BARRIER *", {"Type": 2, "UAV": (one,)})

    @functools.cached_property
    def zeros(self) -> Any:
        """``ZEROS`` bytes to copy from, which the driver has zeroed."""
        return self.keep(ZEROS, ZERO)

    def release(self, memory: Memory) -> None:
        self._note(self._written - {memory})
        if memory.number:
            self._numbers.append(memory.number)
        release(memory.handle)

    def share(self, memory: Memory) -> Shared:
        """Return a buffer for other APIs to open; only for a device that ``exports``."""
        if memory.shared is None:
            # D3D12 allocates buffers in pieces of 64 KiB.
            memory.shared = self.shared(memory.handle, memory.size + 0xFFFF & -0x10000)
        return memory.shared

    def shared(self, found: Any, nbytes: int) -> Shared:
        """Return an object, which was made for that, for other APIs to open."""
        luid, create = FFI.new("LUID *"), self.handle.table.CreateSharedHandle
        self.handle.table.GetAdapterLuid(self.handle, luid)

        def open() -> int:
            out = FFI.new("void **")
            # 0x10000000: GENERIC_ALL.
            status = create(self.handle, found, FFI.NULL, 0x10000000, FFI.NULL, out)
            self.check(status, "sharing with another API")
            return int(FFI.cast("uintptr_t", out[0]))

        return Shared(bytes(FFI.buffer(luid)), nbytes, open, close_handle)

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
            if message.Severity <= 2:
                self.messages.append(FFI.string(message.pDescription).decode(errors="replace"))
        found.table.ClearStoredMessages(found)

    def _describe(self) -> tuple[Caps, bool]:
        """Ask what the device can do.

        Raises
        ------
        UnsupportedError
            If it lacks something that all kernels need.
        """
        model = self._feature(7, "SHADER_MODEL", _MODEL).HighestShaderModel
        basic, more = self._feature(0, "D3D12_OPTIONS"), self._feature(8, "D3D12_OPTIONS1")
        if model < _MODEL or basic.ResourceBindingTier < 3 or not more.Int64ShaderOps:
            raise UnsupportedError(
                f"d3d12: {self.description} has shader model {model >> 4}.{model & 15}, resource binding tier "
                f"{basic.ResourceBindingTier} and {'' if more.Int64ShaderOps else 'no '}64-bit integers; kernels "
                "need 6.6, 3 and 64-bit integers. Update the driver"
            )
        scalars = {"bool", "int", "uint", "float", "int64_t", "uint64_t"}
        if basic.DoublePrecisionFloatShaderOps:
            scalars.add("double")
        if self._feature(23, "D3D12_OPTIONS4").Native16BitShaderOpsSupported:
            scalars |= {"half", "int16_t", "uint16_t"}
        features = {"group_shared", "atomic_float"} | ({"wave"} if more.WaveOps else set())
        if self._feature(40, "D3D12_OPTIONS11").AtomicInt64OnDescriptorHeapResourceSupported:
            features.add("atomic_int64")
        lanes = more.WaveLaneCountMin if more.WaveLaneCountMin == more.WaveLaneCountMax else 0
        unified = bool(self._feature(1, "ARCHITECTURE").UMA)
        nesting = LAVAPIPE_NESTING if unified and lanes <= 8 else Caps.nesting
        return Caps((65535,) * 3, frozenset(scalars), frozenset(features), lanes, nesting=nesting), unified

    def _feature(self, number: int, name: str, *given: int) -> Any:
        """Return what the device says of a D3D12_FEATURE; zeros for one that the library does not know."""
        kind = f"D3D12_FEATURE_DATA_{name} *"
        found = FFI.new(kind, given)
        status = self.handle.table.CheckFeatureSupport(self.handle, number, found, FFI.sizeof(found[0]))
        return found if status >= 0 else FFI.new(kind)

    def _make_root(self) -> Any:
        # 1: D3D12_ROOT_PARAMETER_TYPE_32BIT_CONSTANTS, two of them in register b0 of space 0.
        parameter = FFI.new("D3D12_ROOT_PARAMETER *", {"ParameterType": 1, "Constants": (0, 0, 2)})
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
        start = FFI.new("D3D12_CPU_DESCRIPTOR_HANDLE *")
        heap.table.GetCPUDescriptorHandleForHeapStart(heap, start)
        self._start = int(start.ptr)
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
        place = FFI.new("D3D12_CPU_DESCRIPTOR_HANDLE *", (self._start + number * self._step,))[0]
        device, table = self.handle, self.handle.table
        if kind.moves:
            view: Any = (_R32, 1, (0, size // 4, 0, 0, _RAW))
            told = FFI.new("D3D12_UNORDERED_ACCESS_VIEW_DESC *", view)
            table.CreateUnorderedAccessView(device, resource, FFI.NULL, told, place)
        else:
            view = (_R32, 1, _MAPPING, (0, size // 4, 0, _RAW))
            told = FFI.new("D3D12_SHADER_RESOURCE_VIEW_DESC *", view)
            table.CreateShaderResourceView(device, resource, told, place)
        return number


def _enable_debug_layer() -> bool:
    """Have devices that are opened from now on check all calls; return whether the system can."""
    try:
        debug = made("ID3D12Debug", library().D3D12GetDebugInterface, what="opening the debug layer")
    except DeviceError:
        return False
    debug.table.EnableDebugLayer(debug)
    release(debug)
    return True
