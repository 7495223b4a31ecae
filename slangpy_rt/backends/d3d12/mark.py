"""The time stamps of a D3D12 queue."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

from slangpy_rt.backends.d3d12.com import FFI
from slangpy_rt.backends.d3d12.device import READBACK, D3D12Device, Memory
from slangpy_rt.backends.stamps import STAMPS, StampedMark, Stamps
from slangpy_rt.backends.submissions import Submissions
from slangpy_rt.core.interrupts import in_one_step

_TIMESTAMP = 2  # D3D12_QUERY_TYPE_TIMESTAMP


class Clock(Stamps):
    """The time stamps of one queue, which the device copies to mapped memory."""

    def __init__(self, queue: Submissions, native: Any, device: D3D12Device) -> None:
        super().__init__("d3d12")
        self._queue = queue
        self._native = native
        self._device = device
        self._queries: Any = None
        self._results: Memory | None = None
        self._seconds = 0.0

    def time_of(self, stamp: int) -> float:
        with self._queue.lock:
            self._queue.require_open()
            assert self._results is not None
            return ctypes.c_uint64.from_address(self._results.host + 8 * stamp).value * self._seconds

    def take(self, mark: StampedMark) -> None:
        if self._results is None:
            device, native, ticks = self._device, self._native, FFI.new("uint64_t *")
            device.check(native.table.GetTimestampFrequency(native, ticks), "reading the clock's frequency")
            self._seconds = 1 / ticks[0]
            # 1: D3D12_QUERY_HEAP_TYPE_TIMESTAMP.
            told = FFI.new("D3D12_QUERY_HEAP_DESC *", (1, STAMPS, 0))
            self._queries = device.make("ID3D12QueryHeap", "CreateQueryHeap", told, what="making a heap of queries")
            self._results = device.keep(8 * STAMPS, READBACK)
        super().take(mark)

    def record(self, number: int, command: Any) -> None:
        assert self._results is not None
        table, queries = command.table, self._queries
        in_one_step(
            partial(table.EndQuery, command, queries, _TIMESTAMP, number),
            partial(
                table.ResolveQueryData, command, queries, _TIMESTAMP, number, 1, self._results.handle, 8 * number
            ),
        )
