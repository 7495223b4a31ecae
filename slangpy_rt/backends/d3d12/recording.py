"""Recordings as command lists, which each replay submits again. Argument blocks are in mapped memory of the list.

D3D12 submits a command list again only once its last submission is done. So a recording has several, made as they are
needed: one for each replay that may run at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Dispatch, Recording
from slangpy_rt.backends.d3d12.com import FFI, begin_event, release_all
from slangpy_rt.backends.d3d12.device import UPLOAD, D3D12Device, Memory
from slangpy_rt.backends.extras import barriers, packed_blocks
from slangpy_rt.backends.submissions import Submissions
from slangpy_rt.core.interrupts import apart, finalizer

_TAKES = 4  # command lists of a recording; a further replay waits for the first


class D3D12Recording(Recording):
    """A recording with its command lists.

    Attributes
    ----------
    waits : list of bool
        For each launch, whether a barrier comes before it.
    offsets, packed
        The argument blocks of all launches as bytes, and where each begins.
    version : int
        Counts changes of the argument blocks.
    takes : deque of Take
        The command lists, the one used longest ago first.
    """

    __slots__ = ("give", "offsets", "packed", "takes", "version", "waits")

    # Appends the command lists to ``Recorder.retired``.
    __del__ = finalizer("give")

    def __init__(self, dispatches: list[Dispatch], waits: Sequence[tuple[int, ...]], retired: deque[Any]) -> None:
        super().__init__(dispatches)
        self.waits = barriers(waits)
        self.offsets, self.packed = packed_blocks(dispatches)
        self.version = 0
        self.takes: deque[Take] = deque()
        self.give = partial(retired.append, self.takes)


@dataclass(eq=False, slots=True)
class Take:
    """A closed command list with its allocator and memory for arguments, and its last submission."""

    command: Any
    allocator: Any
    memory: Memory
    pointer: Any  # to ``command``
    version: int  # of the argument blocks in the memory
    home: Submissions  # the queue that it was submitted to last
    value: int = 0  # of that submission

    @property
    def sent(self) -> int:
        """The value of ``home`` after which it is free: an interrupt may have kept ``value`` from being submitted."""
        return min(self.value, self.home.value)


class Recorder:
    """Makes and keeps command lists of recordings; called with the backend's lock.

    Attributes
    ----------
    retired : deque
        The takes of freed recordings, which the device may still run.
    """

    def __init__(self, device: D3D12Device) -> None:
        self._device = device
        self._all: set[Take] = set()
        self.retired: deque[deque[Take]] = deque()
        device.on_close(_free, device, self._all)

    def take(self, recording: D3D12Recording, queue: Submissions) -> Take:
        """Return a command list of the recording with the present argument blocks.

        The device still runs it if it runs as many as a recording may have; then its arguments are older ones.
        """
        takes = recording.takes
        found = takes[0] if takes else None
        runs = found is not None and not found.home.timeline.passed(found.sent)
        if found is None or (runs and len(takes) < _TAKES):
            return apart(self._make, recording, queue)
        if not runs:
            takes.rotate(-1)
            if found.version != recording.version:
                FFI.memmove(FFI.cast("char *", found.memory.host), recording.packed, len(recording.packed))
                found.version = recording.version
        return found

    def _make(self, recording: D3D12Recording, queue: Submissions) -> Take:
        self._sweep()
        device, size = self._device, len(recording.packed)
        memory = device.allocate(max(size, 4), UPLOAD)
        FFI.memmove(FFI.cast("char *", memory.host), recording.packed, size)
        command, allocator = device.command_list()
        take = Take(command, allocator, memory, FFI.new("void *[]", [command]), recording.version, queue)
        self._all.add(take)
        self._record(recording, command, memory)
        recording.takes.append(take)
        return take

    def _record(self, recording: D3D12Recording, command: Any, memory: Memory) -> None:
        table, device, place = command.table, self._device, FFI.new("uint32_t[2]", [memory.number, 0])
        table.SetDescriptorHeaps(command, 1, device.heap)
        table.SetComputeRootSignature(command, device.root)
        bound = None
        for d, at, waits in zip(recording.dispatches, recording.offsets, recording.waits, strict=True):
            if waits:
                table.ResourceBarrier(command, 1, device.between)
            if d.kernel is not bound:
                bound = d.kernel
                table.SetPipelineState(command, bound.pipeline)  # type: ignore[attr-defined]
            place[1] = at
            begin_event(command, d.kernel.info.title)
            table.SetComputeRoot32BitConstants(command, 0, 2, place, 0)
            table.Dispatch(command, *d.groups)
            table.EndEvent(command)
        table.ResourceBarrier(command, 1, device.between)
        device.check(table.Close(command), "ending a command list")

    def _sweep(self) -> None:
        """Give back what freed recordings had, as far as the device is done with it."""
        for _ in range(len(self.retired)):
            takes = self.retired.popleft()
            if all(take.home.timeline.passed(take.sent) for take in takes):
                self._all.difference_update(takes)
                _free(self._device, set(takes))
            else:
                self.retired.append(takes)


def _free(device: D3D12Device, takes: set[Take]) -> None:
    while takes:
        take = takes.pop()
        device.release(take.memory)
        release_all((take.command, take.allocator))
