"""CudaTensorMaps: descriptions of tensors for the tensor memory accelerator."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver
from slangpy_rt.backends.extras import TensorMaps
from slangpy_rt.core.interrupts import apart

# Numbers of CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapL2promotion in cuda.h.
_TYPES = {"int8_t": 0, "half": 6, "float": 7, "bfloat16": 9, "tf32": 11}
_SWIZZLE_128B, _PROMOTION_128B = 3, 2
_BYTES, _ALIGNED = 128, 64
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class CudaTensorMaps(TensorMaps):
    """The part of ``CudaBackend`` that describes tensors."""

    def tensor_map(
        self: Any, address: int, element: str, shape: Sequence[int], strides: Sequence[int], box: Sequence[int]
    ) -> Buffer:
        found: Buffer = apart(self._tensor_map, address, element, shape, strides, box)
        return found

    def captures(self: Any) -> bool:
        queue = self.queue
        return bool(queue._watched and queue.captured())

    def _tensor_map(self: Any, *described: Any) -> Buffer:
        mode = FFI_CUDA.new("int *", _RELAXED)
        cu = driver()
        with self.inside[threading.get_ident()]:
            self.require_open()
            # Without a context the driver describes nothing, and PyTorch's threads for gradients may have none.
            self._enter()
            # In the mode of a capture the driver refuses to allocate, and to wait for a stream that is not captured.
            check(cu.cuThreadExchangeStreamCaptureMode(mode), "leaving the mode of a capture")
            try:
                buffer: Buffer = self.alloc(_BYTES)
                self.upload(buffer, 0, memoryview(_described(*described)))
                self.queue.sync()
            finally:
                check(cu.cuThreadExchangeStreamCaptureMode(mode), "entering the mode of a capture")
        return buffer


def _described(address: int, element: str, shape: Sequence[int], strides: Sequence[int], box: Sequence[int]) -> bytes:
    memory = FFI_CUDA.new("char[]", _BYTES + _ALIGNED)
    place = memory + -int(FFI_CUDA.cast("uintptr_t", memory)) % _ALIGNED
    status = driver().cuTensorMapEncodeTiled(
        place, _TYPES[element], len(shape), address, FFI_CUDA.new("unsigned long long[]", list(shape)),
        FFI_CUDA.new("unsigned long long[]", list(strides)), FFI_CUDA.new("unsigned int[]", list(box)),
        FFI_CUDA.new("unsigned int[]", [1] * len(shape)), 0, _SWIZZLE_128B, _PROMOTION_128B, 0,
    )  # fmt: skip
    check(status, f"describing a tensor of shape {tuple(shape)} and strides {tuple(strides)}")
    return bytes(FFI_CUDA.buffer(place, _BYTES))
