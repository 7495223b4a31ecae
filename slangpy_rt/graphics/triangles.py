"""Triangles: the corners' numbers of some triangles on a device, and their edges."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.wording import in_words
from slangpy_rt.graphics.edges import edges_of


class Triangles:
    """Triangles of which each is three numbers of corners.

    Parameters
    ----------
    where : str
        The function, for messages.
    device : Device
        Where they are drawn.
    given : NDBuffer or numpy.ndarray
        Integers of shape ``(F, 3)``.

    Raises
    ------
    BindError
        If it is another value, or an array of another device.
    ShapeError
        If it has another shape.

    Attributes
    ----------
    host : numpy.ndarray
        The numbers, as they were.
    """

    def __init__(self, where: str, device: Any, given: Any) -> None:
        host = _host(where, device, given)
        if host.ndim != 2 or host.shape[1] != 3:
            raise ShapeError(f"{where}: _faces has shape {host.shape}; (triangles, 3) was expected.")
        self.host: npt.NDArray[Any] = host
        self.faces: Tensor = Tensor.from_numpy(device, host.astype(np.int32))
        self._device = device

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.host)

    @cached_property
    def edges(self) -> Tensor:
        """The edges, as ``edges_of`` returns them."""
        edges: Tensor = Tensor.from_numpy(self._device, edges_of(self.host))
        return edges

    @cached_property
    def _extent(self) -> tuple[int, int]:
        return (int(self.host.min()), int(self.host.max())) if self.host.size else (0, -1)

    def check(self, where: str, corners: int) -> None:
        """Refuse numbers of corners that there are not.

        Raises
        ------
        BindError
            If a number is negative, or not less than ``corners``.
        """
        low, high = self._extent
        if low < 0 or high >= corners:
            bad = low if low < 0 else high
            triangle = int(np.argmax((self.host == bad).any(axis=1)))
            raise BindError(
                f"{where}: _faces[{triangle}] names corner {bad}; there are {corners}, which count from 0."
            )


def is_same(triangles: Triangles | None, where: str, device: Any, given: Any) -> bool:
    """Return whether triangles were made of the same numbers."""
    return triangles is not None and np.array_equal(triangles.host, _host(where, device, given))


def _host(where: str, device: Any, given: Any) -> npt.NDArray[Any]:
    if isinstance(given, NDBuffer):
        if given.device is not device:
            raise BindError(f"{where}: _faces is {in_words(given)} of {given.device!r}; the module is on {device!r}.")
        given = given.to_numpy()
    if not isinstance(given, np.ndarray) or given.dtype.kind not in "iu":
        raise BindError(
            f"{where}: _faces is {in_words(given)}; an array of integers of shape (triangles, 3) was expected."
        )
    return given
