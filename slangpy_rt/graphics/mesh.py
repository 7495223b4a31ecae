"""Mesh: triangles in space, for scenes of rays: arrays of corners and of triangles, or a file of them.

It has no copy of arrays, and no hierarchy: scenes make those, on their devices.
"""

from __future__ import annotations

import os
from pathlib import Path
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
from slangpy_rt.graphics.mesh_files import READERS, read_triangles
from slangpy_rt.runtime.pickling import check_state, reads

_EXPECTED = "a Tensor of float3, or an array of numbers of shape (corners, 3), was expected"
_NUMBERS = "whole numbers of shape (triangles, 3) were expected"
_MOST = 1 << 26  # triangles: so that a hierarchy has at most 20 levels


@short_tracebacks("__init__", "load", "from_trimesh")
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

    @reads("a Mesh")
    def __setstate__(self, state: Any) -> None:
        state = check_state("a Mesh", state, ("_positions", "_faces"))
        self.__dict__.update(state)
        self.positions, self.faces = state["_positions"], state["_faces"]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Mesh:
        """Read a file of triangles: PLY, OBJ or STL, and those of other kinds that the library trimesh reads.

        Of PLY, OBJ and STL files, positions and faces are read, and nothing else. Corners keep their numbers; those
        of STL files, which repeat them, become one where they are at the same place. Polygons become fans of
        triangles.

        Parameters
        ----------
        path : str or os.PathLike
            The file; its suffix says of which kind it is. Of several bodies in it, all triangles become one mesh.

        Raises
        ------
        BindError
            If the path is none, or if a PLY, OBJ or STL file cannot be read, is damaged, or holds no triangles.
        OutOfMemoryError
            If the host has no memory for the file.
        UnsupportedError
            If the file is of another kind, and trimesh is not installed, or cannot read it.
        """
        where = "Mesh.load"
        file = checks.path(where, "path", path)
        if not file.is_file():
            told = "is no ordinary file" if file.exists() else "does not exist"
            raise BindError(f"{where}: {in_words(str(file))} {told}; name another file.")
        if file.suffix.lower() not in READERS:
            return cls(_by_trimesh(where, file))
        with checks.reading(where, file):
            return cls(*read_triangles(file))

    @classmethod
    def from_trimesh(cls, mesh: Any) -> Mesh:
        """Return a Mesh of the vertices and faces of a ``trimesh.Trimesh``, as ``Mesh(mesh)`` does.

        Raises
        ------
        BindError
            If it is another object.
        """
        if not (hasattr(mesh, "vertices") and hasattr(mesh, "faces")):
            raise BindError(f"Mesh.from_trimesh: mesh is {in_words(mesh)}; a trimesh.Trimesh was expected.")
        return cls(mesh)

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
        return f"<Mesh of {triangles} triangle{'s' * (triangles != 1)} and {corners} corner{'s' * (corners != 1)}>"

    def corners_on(self, device: Any) -> Tensor:
        """Return the places as a Tensor of float3 on a device: the one given, or a copy.

        Raises
        ------
        BindError
            If they are a Tensor of another device.
        """
        given = _adapted(device, self._positions, "positions")
        if isinstance(given, NDBuffer):
            if given.device is not device:
                raise BindError(f"Scene: the mesh has positions on {given.device!r}; the scene is on {device!r}.")
            return _float3(given)
        if given.dtype.kind not in "fiu":
            raise BindError(f"Scene: the mesh has as positions {in_words(given)}; {_EXPECTED}.")
        # Numbers that no float holds become infinite: such triangles are never hit.
        with np.errstate(over="ignore"):
            held = np.ascontiguousarray(given, np.float32)
        copied: Tensor = Tensor.from_numpy(device, held, "float3")
        return copied

    def triangles_on(self, device: Any) -> Tensor:
        """Return the corners' numbers as a Tensor of int on a device, of shape ``(triangles, 3)``.

        Raises
        ------
        BindError
            If they are no whole numbers, or a Tensor of another device.
        """
        given = _adapted(device, self._faces, "faces")
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


def _by_trimesh(where: str, file: Path) -> Any:
    """Return what trimesh finds in a file."""
    name = str(file)
    try:
        import trimesh
    except ImportError:
        raise UnsupportedError(
            f"{where}: {in_words(name)} is no PLY, OBJ or STL file. The library trimesh reads others; install it "
            "with pip install 'slangpy_rt[mesh]'."
        ) from None
    try:
        found = trimesh.load_mesh(name, process=False)
    except Exception as error:  # each of its readers raises what it likes
        raise UnsupportedError(f"{where}: trimesh cannot read {in_words(name)} ({error}).") from error
    if hasattr(found, "to_mesh"):
        found = found.to_mesh()
    if not hasattr(found, "faces") or not len(found.faces):
        raise UnsupportedError(f"{where}: {in_words(name)} holds no triangles.")
    return found


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
        narrower = isinstance(given, NDBuffer) and "int" in given.dtype.name
        expected = 'numbers of type int were expected, as astype("int") makes them' if narrower else _NUMBERS
        raise BindError(f"Mesh: faces is {in_words(given)}; {expected}.")
    full = (*given.shape, 3) if packed else tuple(given.shape)
    if len(full) != 2 or full[1] != 3:
        raise ShapeError(f"Mesh: faces has shape {full}; (triangles, 3) was expected.")
    if full[0] > _MOST:
        raise ShapeError(f"Mesh: faces has {full[0]} triangles; {_MOST} at most can be in a mesh.")
    return given


def _checked_positions(given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        try:
            given = np.asarray(given)
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


def _adapted(device: Any, given: Any, name: str) -> Any:
    """Return another library's array as one on the device, or of NumPy."""
    adapter = converter(type(given))
    if not isinstance(adapter, Adapter):
        return given
    try:
        return adapter.on(device, given)
    except BindError as error:
        raise BindError(f"Scene: the mesh has as {name} {error}") from None


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
