"""DLPack for arrays on a GPU: an array as a capsule for other libraries, and another library's capsule as memory.

Arrays in host memory go through NumPy's DLPack instead. The structures are those of dlpack.h, version 1.0:
https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.core.dtypes import is_bfloat16
from slangpy_rt.core.errors import BindError

CUDA = 2  # kDLCUDA
# The default stream, whose CUstream is 0, here and in the CUDA array interface:
# https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
LEGACY = 1
_BFLOAT = 4  # kDLBfloat, which NumPy does not have
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # kDLInt, kDLUInt, kDLFloat, kDLBool


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    """``DLManagedTensor`` of dlpack.h, which versions before 1.0 hand over."""

    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_KINDS = {b"dltensor": _Managed, b"dltensor_versioned": _Versioned}


def handed_over(view: Any, device_index: int, max_version: tuple[int, int] | None) -> Any:
    """Make a DLPack capsule of memory on a CUDA GPU.

    ``view`` is a NumPy array with the GPU's addresses, whose elements must not be read. NumPy makes the capsule, and
    the GPU replaces the host in it. NumPy's deleter is written in C, so it may run in any state of the interpreter.
    """
    made = view.__dlpack__(**({} if max_version is None else {"max_version": max_version}))
    tensor = _tensor_in(made)
    tensor.device_type, tensor.device_id = CUDA, device_index
    return made


def as_bfloat16(made: Any) -> Any:
    """Return a capsule of 16-bit integers as one of bfloat16."""
    _tensor_in(made).code = _BFLOAT
    return made


def _tensor_in(made: Any) -> Any:
    name = next(n for n in _KINDS if _is_capsule(made, n))
    return _KINDS[name].from_address(_pointer(made, name)).tensor


def bits_of_bfloat16(value: Any) -> npt.NDArray[np.uint16] | None:
    """Return another library's bfloat16 array in host memory as its bits, in the same memory; else None.

    Parameters
    ----------
    value : Any
        An array that has ``__dlpack__``.
    """
    if isinstance(value, np.ndarray):
        return value.view(np.uint16) if is_bfloat16(value.dtype) else None
    try:
        made = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # libraries from before version 1.0 take no max_version
        made = value.__dlpack__()
    tensor = _tensor_in(made)
    if (tensor.code, tensor.bits, tensor.lanes) != (_BFLOAT, 16, 1):
        return None
    tensor.code = _CODES["u"]
    bits: Any = np.from_dlpack(_Capsule(made, (tensor.device_type, tensor.device_id)))
    return bits  # type: ignore[no-any-return]


class _Capsule:
    """A capsule as the object that NumPy asks for it."""

    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:
        self._capsule = capsule
        self._device = device

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


class Import:
    """Memory that another library handed over by DLPack, kept until this object goes.

    Attributes
    ----------
    address, device : int
        Address of the first element, and the GPU's number.
    shape, strides : tuple of int
        Strides in elements.
    typestr : str
        The element type as NumPy writes it, or ``"bfloat16"``.

    Raises
    ------
    BindError
        If the capsule holds no array of numbers on a CUDA GPU.
    """

    def __init__(self, capsule: Any) -> None:
        name = next((n for n in (b"dltensor_versioned", b"dltensor") if _is_capsule(capsule, n)), None)
        if name is None:
            raise BindError(
                f"DLPack: {capsule!r} is no DLPack capsule, or was used before; one that is new was expected."
            )
        at = _pointer(capsule, name)
        self._managed: Any = _KINDS[name].from_address(at)
        if name == b"dltensor_versioned" and self._managed.major != 1:
            raise BindError(
                f"DLPack: the array comes by version {self._managed.major} of the protocol; version 1 was expected, "
                "which array.__dlpack__(max_version=(1, 0)) asks for."
            )
        # From here on this object has to call the deleter.
        _set_name(capsule, _USED[name])
        t = self._managed.tensor
        kinds = {code: kind for kind, code in _CODES.items()}
        if t.bits == 16:
            kinds[_BFLOAT] = "bfloat"
        if t.lanes != 1 or t.code not in kinds or t.device_type != CUDA:
            raise BindError(
                f"DLPack: the array lies on a device of type {t.device_type} and has elements of type code {t.code} "
                f"in {t.lanes} lanes; a CUDA GPU (type {CUDA}) and plain numbers were expected. Copy it there."
            )
        self.address = (t.data or 0) + t.byte_offset
        self.device = t.device_id
        self.shape = tuple(t.shape[: t.ndim])
        dense = [1] * t.ndim
        for k in reversed(range(t.ndim - 1)):
            dense[k] = dense[k + 1] * self.shape[k + 1]
        self.strides = tuple(t.strides[: t.ndim]) if t.strides else tuple(dense)
        self.typestr = "bfloat16" if t.code == _BFLOAT else f"{kinds[t.code]}{t.bits // 8}"

    @property
    def extent(self) -> tuple[int, int]:
        """The addresses of the first byte and of the one after the last; equal if there are no elements."""
        if 0 in self.shape:
            return self.address, self.address
        unit = 2 if self.typestr == "bfloat16" else int(self.typestr[1:])
        steps = [(n - 1) * step * unit for n, step in zip(self.shape, self.strides, strict=True)]
        first = sum(step for step in steps if step < 0)
        return self.address + first, self.address + sum(step for step in steps if step > 0) + unit

    def __del__(self) -> None:
        managed = getattr(self, "_managed", None)
        if managed is not None and managed.deleter:
            _Deleter(managed.deleter)(ctypes.addressof(managed))


_Deleter: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_is_capsule = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
# Capsules keep the pointer to their name.
_USED = {name: ctypes.c_char_p(b"used_" + name) for name in _KINDS}
_set_name = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
