"""Mesh: triangles in space, for scenes of rays: arrays of corners and of triangles, or a file of them.

It has no copy of arrays, and no hierarchy: scenes make those, on their devices.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import converter
from slangpy_rt.arithmetic.scans import plain
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core import checks
from slangpy_rt.core.checks import short_tracebacks
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.errors import BindError, ShapeError, UnsupportedError
from slangpy_rt.core.wording import in_words

_EXPECTED = "a Tensor of float3, or an array of numbers of shape (corners, 3), was expected"
_NUMBERS = "whole numbers of shape (triangles, 3) were expected"
_MOST = 1 << 26  # triangles: so that a hierarchy has at most 20 levels


@short_tracebacks("__init__", "load")
class Mesh:
    """Triangles in space, which a ``Scene`` holds.

    Parameters
    ----------
    positions : Tensor, numpy.ndarray, torch.Tensor or trimesh.Trimesh
        Places of corners: elements of float3 of shape ``(corners,)``, or numbers of shape ``(corners, 3)``. A scene
        uses a Tensor on its device in place, with its gradient, unless it has other meshes; it copies other arrays.
        A ``trimesh.Trimesh`` gives both arrays.
    faces : Tensor, numpy.ndarray or torch.Tensor
        Corners of triangles: whole numbers of shape ``(triangles, 3)``. Triangles with corners that there are not,
        or that are not finite, are never hit.

    Raises
    ------
    BindError
        If an array holds other elements.
    ShapeError
        If an array has another shape, or there are more than 2^26 triangles.

    Attributes
    ----------
    positions, faces : Any
        The arrays, which may be replaced; scenes read them when they are made and updated.
    """

    def __init__(self, positions: Any, faces: Any = None) -> None:
        if faces is None:
            if not (hasattr(positions, "vertices") and hasattr(positions, "faces")):
                instead = (
                    "Mesh.load reads a file"
                    if isinstance(positions, (str, os.PathLike))
                    else "pass both arrays, or a trimesh.Trimesh"
                )
                raise BindError(f"Mesh: positions is {in_words(positions)} and there are no faces; {instead}.")
            positions, faces = np.asarray(positions.vertices, np.float32), np.asarray(positions.faces, np.int32)
        self.positions = positions
        self.faces = faces

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Mesh:
        """Read a file of triangles, by the library trimesh: PLY, OBJ, STL and others.

        Parameters
        ----------
        path : str or os.PathLike
            The file. Of several bodies in it, all triangles become one mesh.

        Raises
        ------
        BindError
            If the path is none, or there is no such file.
        UnsupportedError
            If trimesh is not installed, or knows no such kind of file.
        """
        where = "Mesh.load"
        file = checks.path(where, "path", path)
        if not file.is_file():
            raise BindError(f"{where}: there is no file {in_words(str(file))}; name another one.")
        try:
            import trimesh
        except ImportError:
            raise UnsupportedError(
                f"{where}: the library trimesh reads files; install it with pip install 'slangpy_rt[mesh]'."
            ) from None
        name = str(file)
        try:
            found = trimesh.load_mesh(name, process=False)
        except Exception as error:  # each of its readers raises what it likes
            raise UnsupportedError(f"{where}: trimesh cannot read '{name}' ({error}).") from error
        if hasattr(found, "to_mesh"):
            found = found.to_mesh()
        if not hasattr(found, "faces"):
            raise UnsupportedError(f"{where}: '{name}' holds no triangles.")
        return cls(found)

    @property
    def positions(self) -> Any:
        """Places of corners."""
        return self._positions

    @positions.setter
    def positions(self, given: Any) -> None:
        self._positions = _checked_positions(given)

    @property
    def faces(self) -> Any:
        """Corners of triangles."""
        return self._faces

    @faces.setter
    def faces(self, given: Any) -> None:
        self._faces = _checked_faces(given)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many corners and triangles there are."""
        return int(self._positions.shape[0]), int(self._faces.shape[0])

    def __repr__(self) -> str:
        corners, triangles = self.sizes
        return f"<Mesh of {triangles} triangles and {corners} corners>"

    def corners_on(self, device: Any) -> Tensor:
        """Return the places as a Tensor of float3 on a device: the one given, or a copy.

        Raises
        ------
        BindError
            If they are a Tensor of another device.
        """
        given = _adapted(device, self._positions)
        if isinstance(given, NDBuffer):
            if given.device is not device:
                raise BindError(f"Scene: the mesh has positions on {given.device!r}; the scene is on {device!r}.")
            return _float3(given)
        copied: Tensor = Tensor.from_numpy(device, np.ascontiguousarray(given, np.float32), "float3")
        return copied

    def triangles_on(self, device: Any) -> Tensor:
        """Return the corners' numbers as a Tensor of int on a device, of shape ``(triangles, 3)``.

        Raises
        ------
        BindError
            If they are no whole numbers, or a Tensor of another device.
        """
        given = _adapted(device, self._faces)
        if isinstance(given, NDBuffer):
            if given.device is not device:
                raise BindError(f"Scene: the mesh has faces on {given.device!r}; the scene is on {device!r}.")
            whole = plain(given)
            numbers: Any = whole if whole.dtype.name in ("int", "int3") else whole.astype(whole.dtype.name[1:])
            return numbers.flatten_dtype() if numbers.dtype.name == "int3" else numbers  # type: ignore[no-any-return]
        # Numbers that no int holds stay wrong numbers.
        wrong = (given < 0) | (given > np.iinfo(np.int32).max)
        fitting = np.where(wrong, 0, given).astype(np.int32)
        fitting[wrong] = -1
        copied: Tensor = Tensor.from_numpy(device, fitting)
        return copied


def _checked_faces(given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        try:
            given = np.asarray(given)
        except ValueError:
            raise ShapeError(f"Mesh: faces is {in_words(given)} with rows of several lengths; {_NUMBERS}.") from None
    packed = isinstance(given, NDBuffer) and given.dtype.name in ("int3", "uint3")
    if isinstance(given, NDBuffer):
        is_whole = packed or given.dtype.name in ("int", "uint")
    elif isinstance(given, np.ndarray):
        is_whole = given.dtype.kind in "iu"
    else:
        # As torch.int64 and uint32 are called.
        is_whole = isinstance(converter(type(given)), Adapter) and "int" in str(getattr(given, "dtype", ""))
    if not is_whole:
        raise BindError(f"Mesh: faces is {in_words(given)}; {_NUMBERS}.")
    full = (*given.shape, 3) if packed else tuple(given.shape)
    if len(full) != 2 or full[1] != 3:
        raise ShapeError(f"Mesh: faces has shape {full}; (triangles, 3) was expected.")
    if full[0] > _MOST:
        raise ShapeError(f"Mesh: faces has {full[0]} triangles; {_MOST} at most can be in a mesh.")
    return given


def _checked_positions(given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        try:
            given = np.asarray(given, np.float32)
        except ValueError:
            raise ShapeError(
                f"Mesh: positions is {in_words(given)} with rows of several lengths; {_EXPECTED}."
            ) from None
    if isinstance(given, NDBuffer):
        kind = given.dtype.name
        if kind not in ("float", "float3"):
            raise BindError(f"Mesh: positions is {in_words(given)}; {_EXPECTED}.")
        full = given.shape + (3,) * (kind == "float3")
        if kind == "float" and not given.is_contiguous:
            raise ShapeError("Mesh: positions of float are not contiguous; copy() makes an array that is.")
    elif isinstance(given, np.ndarray):
        if given.dtype.kind not in "fiu":
            raise BindError(f"Mesh: positions is {in_words(given)}; {_EXPECTED}.")
        full = given.shape
    elif isinstance(converter(type(given)), Adapter) and hasattr(given, "shape"):
        full = tuple(given.shape)
    else:
        raise BindError(f"Mesh: positions is {in_words(given)}; {_EXPECTED}.")
    if len(full) != 2 or full[1] != 3:
        raise ShapeError(f"Mesh: positions has shape {full}; (corners, 3) was expected.")
    return given


def _adapted(device: Any, given: Any) -> Any:
    """Return another library's array as one on the device."""
    adapter = converter(type(given))
    return adapter.on(device, given) if isinstance(adapter, Adapter) else given


def _float3(given: NDBuffer) -> Tensor:
    """Return an array of float3, or of rows of three floats, as a Tensor of float3 of the same memory."""
    element = element_type("Mesh", "float3")
    layout = given.layout

    def seen(array: Any) -> Any:
        strides = array.layout.strides if given.dtype.name == "float3" else None
        made = layout_of(layout.device, Tensor, element, given.shape[:1], strides, array.layout.aligned)
        return Tensor.of(made, array.buffer, array.address)

    if given.dtype.name == "float3" and isinstance(given, Tensor):
        return given
    made = seen(given)
    gradients = [getattr(given, name, None) for name in ("grad_in", "grad_out")]
    if gradients == [None, None]:
        return made  # type: ignore[no-any-return]
    return made.with_grads(*[None if g is None else seen(g) for g in gradients])  # type: ignore[no-any-return]
