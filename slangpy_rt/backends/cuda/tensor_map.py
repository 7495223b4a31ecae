"""Descriptions of tensors for the tensor memory accelerator; nothing is copied and no context is needed."""

from __future__ import annotations

from collections.abc import Sequence

from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver

# Numbers of CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapL2promotion in cuda.h.
_TYPES = {"half": 6, "bfloat16": 9}
_SWIZZLE_128B, _PROMOTION_128B = 3, 2
_BYTES, _ALIGNED = 128, 64


def tensor_map(address: int, element: str, shape: Sequence[int], strides: Sequence[int], box: Sequence[int]) -> bytes:
    """Return a CUtensorMap; see ``TensorMaps.tensor_map``."""
    memory = FFI_CUDA.new("char[]", _BYTES + _ALIGNED)
    place = memory + -int(FFI_CUDA.cast("uintptr_t", memory)) % _ALIGNED
    status = driver().cuTensorMapEncodeTiled(
        place, _TYPES[element], len(shape), address, FFI_CUDA.new("unsigned long long[]", list(shape)),
        FFI_CUDA.new("unsigned long long[]", list(strides)), FFI_CUDA.new("unsigned int[]", list(box)),
        FFI_CUDA.new("unsigned int[]", [1] * len(shape)), 0, _SWIZZLE_128B, _PROMOTION_128B, 0,
    )  # fmt: skip
    check(status, f"describing a tensor of shape {tuple(shape)} and strides {tuple(strides)}")
    return bytes(FFI_CUDA.buffer(place, _BYTES))
