"""TensorView: a tensor's memory as a parameter of slang-torch's kernels."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import torch

from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.slangtorch.argument_copies import is_broadcast
from slangpy_rt.slangtorch.errors import CopyNeeded, TensorError
from slangpy_rt.slangtorch.parameter import BoundTensor, Member, Parameter

RANK = 5  # MAX_RANK of shaders/slangtorch.slang
LONGEST = 2**32 - 1


def unsigned(bits: int, *others: torch.dtype) -> tuple[torch.dtype, ...]:
    """Return PyTorch's unsigned dtype of 16, 32 or 64 bits, which it has from 2.3 on, and others behind it."""
    own = getattr(torch, f"uint{bits}", None)
    return others if own is None else (own, *others)


_DTYPES: dict[str, tuple[torch.dtype, ...]] = {
    "bool": (torch.bool,), "int8_t": (torch.int8,), "int16_t": (torch.int16,), "int": (torch.int32,),
    "int64_t": (torch.int64,), "uint8_t": (torch.uint8,), "uint16_t": unsigned(16, torch.int16),
    "uint": unsigned(32, torch.int32), "uint64_t": unsigned(64, torch.int64), "half": (torch.float16,),
    "float": (torch.float32,), "double": (torch.float64,),
}  # fmt: skip
# After the address: rank, sizes and strides in bytes, which are one value of ``struct``.
GEOMETRY = (Member("uint", 0, "I"), Member("uint", RANK, "I"), Member("uint", RANK, "I"))
_PACK = struct.Struct(f"{1 + 2 * RANK}I")
GEOMETRY_CODE = f"{_PACK.size}s"
NONE = (0, bytes(_PACK.size))
# The most layouts that a view remembers; a program with more of them checks and packs some again.
_KEPT = 4096


class TensorView(Parameter):
    """A ``TensorView<T>``, which takes a tensor of the dtype of ``T``.

    For a vector type the tensor has one more dimension, the last: it is contiguous and as long as the vector.
    """

    members: tuple[Member, ...] = (Member("uint64_t", 0, "Q"), *GEOMETRY)
    codes: tuple[str, ...] = ("Q", GEOMETRY_CODE)
    addresses: tuple[int, ...] = (0,)
    schema = "Tensor"

    def __init__(self, kind: SlangType) -> None:
        self.type_name = kind.name
        element = kind.arguments[0]
        assert isinstance(element, SlangType)
        self._element = element
        self.dtypes = _DTYPES.get(element.scalar, ()) if element.kind in ("scalar", "vector", "matrix") else ()
        self._packed: dict[tuple[Any, ...], tuple[bytes, int]] = {}

    def assign(self, target: str, members: Iterator[str]) -> list[str]:
        return [f"{target} = {self.type_name}({', '.join(next(members) for _ in self.members)});"]

    def read(self, source: str) -> list[str]:
        sizes = [f"{source}._spy_{name}[{d}]" for name in ("sizes", "strides") for d in range(RANK)]
        return [f"{source}._spy_data", f"{source}._spy_rank", *sizes]

    def pack(self, path: str, value: Any, block: list[Any], tensors: list[BoundTensor]) -> None:
        geometry, layout, _ = self.geometry(path, value)
        tensors.append((len(block), value, layout))
        block += (0, geometry)

    def geometry(self, path: str, value: Any, part: str = "") -> tuple[bytes, tuple[Any, ...], int]:
        """Return a tensor's rank, sizes, strides and span in memory, after checks.

        Parameters
        ----------
        path, part : str
            The tensor's name in messages, in two pieces.

        Returns
        -------
        tuple
            Its rank, sizes and strides as the kernel reads them; its (dtype, shape, strides); and how many bytes lie
            from its first element to the end of its last.

        Raises
        ------
        TypeError, TensorError
            If it is no tensor, or one of a dtype or of memory that the view does not take.
        """
        # A known layout is not checked again; it does not say whether values are negated, or zeros without memory.
        try:
            layout = value.dtype, value.shape, value.stride()
            packed, span = self._packed[layout]
            if not value.is_neg() and not value._is_zerotensor():
                return packed, layout, span
        except (KeyError, AttributeError, TypeError, RuntimeError):
            pass  # a new layout, a sparse tensor, or no tensor
        return self._checked(path + part, value)

    def _checked(self, path: str, value: Any) -> tuple[bytes, tuple[Any, ...], int]:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{path}: {in_words(value)}; '{self.shown}' takes a torch.Tensor.")
        if value.dtype not in self.dtypes:
            raise TensorError(f"{path} is {dtype_name(value.dtype)}; '{self.shown}' needs {self.wanted()}.")
        self._check_memory(path, value)
        shape, strides, width = value.shape, value.stride(), value.element_size()
        pad = (0,) * (RANK - len(shape))
        # The stride of a dimension of one element may exceed 32 bits: it is never used.
        steps = [min(step * width, LONGEST) for step in strides]
        packed = _PACK.pack(len(shape), *shape, *pad, *steps, *pad)
        reach = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        span = (reach + 1) * width if value.numel() else 0
        if len(self._packed) >= _KEPT:
            self._packed.clear()
        layout = value.dtype, shape, strides
        self._packed[layout] = packed, span
        return packed, layout, span

    @property
    def shown(self) -> str:
        """The type as the user wrote it."""
        return self.type_name.replace("_spy_", "")

    def wanted(self) -> str:
        """Return the dtypes that it takes, in words."""
        return " or ".join(map(dtype_name, self.dtypes)) if self.dtypes else "an element type that tensors have"

    def _check_memory(self, path: str, value: torch.Tensor) -> None:
        """Refuse a tensor whose memory does not hold its values as they are, or does not fit a TensorView."""
        if value.layout is not torch.strided or value.is_neg() or value.is_conj() or value._is_zerotensor():
            raise TensorError(f"{path} is no plain tensor; pass {path}.to_dense().resolve_neg().resolve_conj().")
        shape, strides = value.shape, value.stride()
        if len(shape) > RANK:
            raise TensorError(f"{path} has {len(shape)} dimensions; a TensorView has at most {RANK}.")
        if value.is_contiguous() and not self._element.shape and value.nbytes <= LONGEST:
            return
        if is_broadcast(value):
            raise CopyNeeded(
                f"{path} is a broadcast view: its elements share memory (shape {tuple(shape)}, strides "
                f"{tuple(strides)}); use .contiguous() to make it a tensor of its own."
            )
        for n, step in zip(shape, strides, strict=True):
            if n > LONGEST:
                raise TensorError(f"{path} has a dimension of {n}; the dimensions of a TensorView are below 4 Gi.")
            if n > 1 and step * value.element_size() > LONGEST:
                raise TensorError(
                    f"{path} has strides over 4 GiB, which a TensorView does not hold; make it contiguous."
                )
        self._check_vectors(path, shape, strides)

    def _check_vectors(self, path: str, shape: torch.Size, strides: tuple[int, ...]) -> None:
        step = 1
        for at, n in enumerate(reversed(self._element.shape)):
            place = len(shape) - 1 - at
            if place < 0 or shape[place] != n or (n > 1 and strides[place] != step):
                raise TensorError(
                    f"{path} has shape {tuple(shape)} and strides {tuple(strides)}; '{self.shown}' needs contiguous "
                    f"last dimensions of {self._element.shape}."
                )
            step *= n


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name without ``torch.``."""
    return str(dtype).removeprefix("torch.")
