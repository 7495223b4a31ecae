"""Triangles: the corners' numbers of some triangles on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import converter
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.wording import class_in_words, in_words

_MOST = (1 << 28) - 1  # so that a table of four places a triangle has indices of 31 bits


class Triangles:
    """Triangles of which each is three numbers of corners.

    An array on the device is used in place: each picture reads what it holds then. Its numbers are checked once, and
    by a debug device for each picture; triangles with corners that there are not are left out. A NumPy array is
    copied to the device.

    Parameters
    ----------
    where : str
        The function, for messages.
    device : Device
        Where they are drawn.
    given : NDBuffer, numpy.ndarray or list of lists
        Integers of shape ``(F, 3)``; on a device of type int, or int3 of shape ``(F,)``.
    name : str
        The argument, for messages.

    Raises
    ------
    BindError
        If it is another value, or an array of another device.
    ShapeError
        If it has another shape.

    Attributes
    ----------
    faces : NDBuffer
        The numbers on the device, of shape ``(F, 3)``.
    is_copy : bool
        Whether they are a copy, which nothing changes.
    edges : Any
        What the edges of a copy are, once somebody found them.
    """

    def __init__(self, where: str, device: Any, given: Any, name: str = "_faces") -> None:
        given = _array(given)
        self._given, self._name = given, name
        self._copied: npt.NDArray[Any] | None = None
        if isinstance(given, NDBuffer):
            if given.device is not device:
                raise BindError(
                    f"{where}: {name} is {in_words(given)} of {given.device!r}; the module is on {device!r}."
                )
            self.faces: NDBuffer = _numbers(where, name, given)
        elif isinstance(given, np.ndarray) and given.dtype.kind in "iu":
            self._given, self._copied = None, given.copy()
            _check_shape(where, name, given.shape)
            # Numbers that no int holds stay wrong numbers.
            numbers = np.where((given < 0) | (given > np.iinfo(np.int32).max), -1, given)
            self.faces = Tensor.from_numpy(device, numbers.astype(np.int32))
        elif isinstance(converter(type(given)), Adapter):
            raise BindError(
                f"{where}: {name} is {class_in_words(given)}, and no other argument is one; pass its numbers as a "
                "Tensor of int or as a NumPy array."
            )
        else:
            raise BindError(
                f"{where}: {name} is {in_words(given)}; an array of integers of shape (triangles, 3) was expected."
            )
        if self.count > _MOST:
            raise ShapeError(f"{where}: {name} has {self.count} triangles; {_MOST} at most can be drawn.")
        self.is_copy = self._copied is not None
        self.edges: Any = None
        self._extent: tuple[int, int] | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return self.faces.shape[0]

    def is_of(self, given: Any) -> bool:
        """Return whether they were made of a value, and have its numbers."""
        if self._copied is None:
            return given is self._given
        given = _array(given)
        return (
            isinstance(given, np.ndarray)
            and given.dtype == self._copied.dtype
            and np.array_equal(given, self._copied)
        )

    def check(self, where: str, corners: int) -> None:
        """Refuse numbers of corners that there are not.

        Raises
        ------
        BindError
            If a number is negative, or not less than ``corners``.
        """
        if not self.count:
            return
        if self._extent is None:
            host = self._host()
            self._extent = int(host.min()), int(host.max())
        low, high = self._extent
        if low < 0 or high >= corners:
            bad = low if low < 0 else high
            triangle = int(np.argmax((self._host() == bad).any(axis=1)))
            raise BindError(
                f"{where}: {self._name}[{triangle}] names corner {bad}; there are {corners}, which count from 0."
            )

    def _host(self) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self.faces.to_numpy() if self._copied is None else self._copied
        return found


def _array(given: Any) -> Any:
    """Return nested lists as an array, and anything else as it is."""
    if not isinstance(given, (list, tuple)):
        return given
    try:
        return np.asarray(given)
    except ValueError:  # rows of several lengths
        return given


def _numbers(where: str, name: str, given: NDBuffer) -> NDBuffer:
    kind = given.dtype.name
    if kind not in ("int", "int3"):
        raise BindError(
            f'{where}: {name} is {in_words(given)}; numbers of type int were expected, as astype("int") makes them.'
        )
    flat = given.flatten_dtype() if kind == "int3" else given
    _check_shape(where, name, flat.shape)
    return flat


def _check_shape(where: str, name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[1] != 3:
        raise ShapeError(f"{where}: {name} has shape {shape}; (triangles, 3) was expected.")
