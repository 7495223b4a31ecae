"""CudaTensorMaps: descriptions of tensors for the tensor memory accelerator; nothing is copied."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver
from slangpy_rt.backends.extras import TensorMaps

# Numbers of CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapL2promotion in cuda.h.
_TYPES = {"half": 6, "bfloat16": 9}
_SWIZZLE_128B, _PROMOTION_128B = 3, 2
_BYTES, _ALIGNED = 128, 64


class CudaTensorMaps(TensorMaps):
    """The part of ``CudaBackend`` that describes tensors."""

    def tensor_map(
        self: Any, address: int, element: str, shape: Sequence[int], strides: Sequence[int], box: Sequence[int]
    ) -> bytes:
        # PyTorch's threads that compute gradients may have no context, without which the driver describes nothing.
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            return _described(address, element, shape, strides, box)


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
