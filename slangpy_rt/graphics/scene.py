"""Scene: triangles on a device that rays are traced against, in functions that have a parameter of type Scene."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays.operators import RECORDER
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.core.checks import flag, short_tracebacks
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.wording import in_words
from slangpy_rt.graphics.hierarchy import BLOCK, INSTANCE, NODE, WIDE, Hierarchy
from slangpy_rt.graphics.mesh import Mesh
from slangpy_rt.graphics.visibility import over
from slangpy_rt.runtime.core import a_device

_LARGEST = float(np.finfo(np.float32).max)
_MATRIX = "a matrix of 3 x 4 or 4 x 4 numbers, or None, was expected"


@short_tracebacks("__init__", "update", "backward")
class Scene:
    """Triangles that rays are traced against, with a hierarchy of boxes that is built on the device.

    It is passed for parameters of the type ``Scene``, which ``import rays;`` brings. ``scene.trace(ray)`` and
    ``scene.blocked(ray)`` in Slang find what a ray meets, and ``scene.at(hit, ray)`` has the derivatives.

    Parameters
    ----------
    device : Device
        Where rays are traced.
    meshes : sequence
        Each a ``Mesh``, or a tuple of a ``Mesh`` and a transform: a matrix of 3 x 4 numbers, or of 4 x 4 with the
        last row 0, 0, 0, 1, that takes columns ``(x, y, z, 1)`` of the mesh to the scene. A mesh that is named
        several times lies in memory once. The number of one of them is a hit's ``instance``.

    Raises
    ------
    BindError
        If ``device`` is no Device, an item no mesh, or its transform no matrix of real numbers that can be inverted.
    ShapeError
        If a mesh has other shapes, or more triangles than a scene can have.
    """

    def __init__(self, device: Any, meshes: Sequence[Any]) -> None:
        a_device("Scene", device)
        if not isinstance(meshes, (list, tuple)):
            raise BindError(f"Scene: meshes is {in_words(meshes)}; a list of Mesh was expected.")
        pairs = [_pair(k, item) for k, item in enumerate(meshes)]
        self._device = device
        self._kernels: Module = device.once("rays", lambda: Module.load_from_file(device, "_spy_bvh.slang"))
        self._meshes: list[Mesh] = list({id(mesh): mesh for mesh, _ in pairs}.values())
        self._instances = [self._meshes.index(mesh) for mesh, _ in pairs]
        names = [f"Scene: meshes[{k}]: the transform" for k in range(len(pairs))]
        self._transforms = _matrices(names, [given for _, given in pairs])
        self._parts: list[_Part] = []
        self._is_flat = False
        self._value: dict[str, Any] = {}
        self._build()

    def __reduce__(self) -> tuple[Any, ...]:
        meshes = [(self._meshes[k], own) for k, own in zip(self._instances, self._transforms, strict=True)]
        return type(self), (self._device, meshes)

    @property
    def meshes(self) -> list[Mesh]:
        """The meshes, each once."""
        return list(self._meshes)

    @property
    def count(self) -> int:
        """How many triangles there are, those of each instance counted."""
        return sum(self._parts[k].sizes[1] for k in self._instances)

    def update(self, transforms: Sequence[Any] | None = None, rebuild: bool = False) -> None:
        """Read the places of corners anew, after they changed.

        Boxes are fitted to the triangles, and which triangles are in one box stays: it takes a part of the time of
        building. Where triangles moved far from those they were near to, tracing becomes slow, though not wrong;
        ``rebuild=True`` makes a new hierarchy.

        Parameters
        ----------
        transforms : sequence, optional
            New transforms of all instances; None for one is no transform.
        rebuild : bool
            Whether to build the hierarchy anew.

        Raises
        ------
        ShapeError
            If a mesh has another number of corners or triangles than before, without ``rebuild``; or if there are
            more or fewer transforms than instances.
        BindError
            If a transform is no matrix that can be inverted.
        """
        where = "Scene.update"
        again = flag(where, "rebuild", rebuild)
        matrices = self._transforms
        if transforms is not None:
            if not isinstance(transforms, (list, tuple, np.ndarray)):
                raise BindError(f"{where}: transforms is {in_words(transforms)}; a list was expected.")
            if len(transforms) != len(self._instances):
                raise ShapeError(
                    f"{where}: transforms has the length {len(transforms)}; one was expected for each of the scene's "
                    f"instances, of which there are {len(self._instances)}."
                )
            names = [f"{where}: transforms[{k}]" for k in range(len(transforms))]
            matrices = _matrices(names, transforms)
        if not again:
            for mesh, part in zip(self._meshes, self._parts, strict=True):
                if mesh.sizes != part.sizes:
                    raise ShapeError(
                        f"{where}: a mesh had {part.sizes[0]} corners and {part.sizes[1]} triangles, and now has "
                        f"{mesh.sizes[0]} and {mesh.sizes[1]}: update cannot; pass rebuild=True."
                    )
        before = self._transforms, self._is_flat
        try:
            self._transforms = matrices
            if again or self._is_flat != self._is_flat_now():
                self._build()
            else:
                self._fit()
        except BaseException:
            self._transforms, self._is_flat = before
            raise

    def backward(self) -> None:
        """Add the gradients of corners to those of the meshes' positions, and set the scene's own to 0.

        Calls of ``bwds`` do this themselves. It is for command lists: call it after they were submitted. A scene of
        one mesh uses its positions in place and has nothing to do.
        """
        if len(self._meshes) < 2 or self._corners.grad_out is None:
            return
        total: Any = self._corners.grad_out
        for part in self._parts:
            if part.corners.grad_out is not None and part.sizes[0]:
                self._kernels["_spy_addTo"](over((part.sizes[0],)), total[part.first_corner :], part.corners.grad_out)
        total.clear()

    def get_this(self) -> dict[str, Any]:
        """Return the value for a parameter of a Slang function."""
        recorder = RECORDER.get()
        if recorder is not None and len(self._meshes) > 1 and self._corners.grad_out is not None:
            # After the derivatives of the calls that take this value.
            parts = [part.corners for part in self._parts if part.corners.grad_out is not None]
            recorder.note(tuple(parts), (self._corners,), self.backward)
        return self._value

    def gradient_of_this(self, gradient: dict[str, Any]) -> dict[str, Any]:
        """Return the gradient of ``get_this``'s value as those of the meshes' positions."""
        total = gradient["_spy_corners"]
        return {"positions": [total[p.first_corner : p.first_corner + p.sizes[0]] for p in self._parts]}

    def update_this(self, value: Any) -> None:
        """Take the gradients that a call has added."""
        self.backward()

    def __repr__(self) -> str:
        many = len(self._instances)
        instances = f" in {many} instances" if many != 1 else ""
        return f"<Scene of {self.count} triangle{'s' * (self.count != 1)}{instances} on {self._device!r}>"

    def _is_flat_now(self) -> bool:
        return len(self._instances) == 1 and self._transforms[0] is None

    def _build(self) -> None:
        """Make the hierarchies of meshes and that of instances."""
        device, kernels = self._device, self._kernels
        self._is_flat = self._is_flat_now()
        parts: list[_Part] = []
        node, block, corner, triangle = 0, 0, 0, 0
        for mesh in self._meshes:
            corners, faces = mesh.corners_on(device), mesh.triangles_on(device)
            hierarchy = None
            if faces.shape[0]:
                hierarchy = Hierarchy(kernels, self._boxes(corners, faces), WIDE)
            parts.append(
                _Part(mesh.sizes, corners, faces, _is_on_host(mesh), hierarchy, node, block, corner, triangle)
            )
            node += hierarchy.nodes if hierarchy else 1
            block += hierarchy.blocks if hierarchy else 0
            corner += corners.shape[0]
            triangle += faces.shape[0]
        # The nodes above all instances come last; there are fewer than instances.
        self._parts, self._first = parts, node
        many = max(len(self._instances), 1)
        words = max((node + many) * NODE, block * BLOCK + many, corner, triangle)
        if words > 2**31 - 1:
            raise ShapeError(
                f"Scene: the hierarchy needs arrays of {words} words, and {2**31 - 1} is the most; use fewer "
                "triangles."
            )
        self._nodes: Any = Tensor.empty(device, (node + many) * NODE, "int")
        # And the numbers of instances after the blocks.
        self._blocks: Any = Tensor.empty(device, max(block, 1) * BLOCK + many, "int")
        self._top: Hierarchy | None = None
        self._put(fresh=True)

    def _fit(self) -> None:
        """Fit the boxes to where the corners are now."""
        # All are read before anything is written.
        given = [(mesh.corners_on(self._device), mesh.triangles_on(self._device)) for mesh in self._meshes]
        parts = []
        for mesh, part, (corners, faces) in zip(self._meshes, self._parts, given, strict=True):
            # Command lists hold the scene's own copies.
            if part.is_copy and _is_on_host(mesh):
                part.corners.copy_from(corners)
                part.faces.copy_from(faces)
                parts.append(part)
            else:
                parts.append(part._replace(corners=corners, faces=faces, is_copy=_is_on_host(mesh)))
        for part in parts:
            if part.hierarchy is not None:
                part.hierarchy.refit(self._boxes(part.corners, part.faces))
        self._parts = parts
        self._put(fresh=False)

    def _put(self, fresh: bool) -> None:
        """Write nodes, blocks and instances, and what is passed to functions."""
        device, kernels = self._device, self._kernels
        for part in self._parts:
            if part.hierarchy is None:
                kernels["_spy_emptyNode"](self._nodes[part.node * NODE : (part.node + 1) * NODE])
                continue
            part.hierarchy.put_nodes(self._nodes, part.node, part.block)
            part.hierarchy.put_triangles(self._blocks, part.block, part.corners.detach(), part.faces)
        words = self._instance_words()
        instances: Any = Tensor.from_numpy(device, words) if fresh else self._value["_spy_instances"]
        if not fresh:
            instances.copy_from(words)
        root = self._parts[self._instances[0]].node if self._is_flat else self._first
        if not self._is_flat and not self._instances:
            kernels["_spy_emptyNode"](self._nodes[root * NODE : (root + 1) * NODE])
        elif not self._is_flat:
            many = len(self._instances)
            boxes = Tensor.empty(device, 6 * many)
            kernels["_spy_instanceBox"](over((many,)), instances, self._nodes[: root * NODE], boxes)
            if fresh or self._top is None:
                self._top = Hierarchy(kernels, boxes, 1)
                self._top.put_instances(self._blocks[-many:])
            else:
                self._top.refit(boxes)
            self._top.put_nodes(self._nodes, root, self._blocks.shape[0] - many)
        self._corners, faces = self._gathered(fresh)
        self._value = {
            "_type": "Scene", "_spy_nodes": self._nodes, "_spy_blocks": self._blocks, "_spy_instances": instances,
            "_spy_corners": self._corners, "_spy_faces": faces, "_spy_root": root, "_spy_isFlat": self._is_flat,
        }  # fmt: skip

    def _boxes(self, corners: Tensor, faces: Tensor) -> Tensor:
        boxes = Tensor.empty(self._device, 6 * faces.shape[0])
        self._kernels["_spy_triangleBox"](over((faces.shape[0],)), corners.detach(), faces, boxes)
        return boxes

    def _gathered(self, fresh: bool) -> tuple[Any, Any]:
        """Return the corners of all meshes in one array, and their triangles."""
        if len(self._parts) == 1:
            return self._parts[0].corners, self._parts[0].faces
        many = [sum(part.sizes[k] for part in self._parts) for k in (0, 1)]
        corners: Any = Tensor.empty(self._device, many[0], "float3") if fresh else self._corners.detach()
        faces: Any = Tensor.empty(self._device, (many[1], 3), "int") if fresh else self._value["_spy_faces"]
        tangent: Any = None if fresh else self._corners.grad_in
        if tangent is None and any(part.corners.grad_in is not None for part in self._parts):
            tangent = Tensor.zeros(self._device, many[0], "float3")
        for part in self._parts:
            at, to = slice(part.first_corner, part.first_corner + part.sizes[0]), part.first_triangle
            if part.sizes[0]:
                corners[at].copy_from(part.corners.detach())
                if part.corners.grad_in is not None:
                    tangent[at].copy_from(part.corners.grad_in)
                elif tangent is not None:
                    tangent[at].clear()
            if part.sizes[1]:
                faces[to : to + part.sizes[1]].copy_from(part.faces)
        added = any(part.corners.grad_out is not None for part in self._parts)
        if tangent is None and not added:
            return corners, faces
        total: Any = None if fresh else self._corners.grad_out
        if added and total is None:
            total = Tensor.zeros(self._device, many[0], "float3")
        return corners.with_grads(tangent, total), faces

    def _instance_words(self) -> npt.NDArray[np.int32]:
        words = np.zeros((max(len(self._instances), 1), INSTANCE), np.int32)
        if self._instances:
            matrices = np.stack([np.eye(4)[:3] if m is None else m for m in self._transforms])
            numbers = words[:, :24].view(np.float32)
            numbers[:, :12] = _inverses(matrices).reshape(-1, 12)
            numbers[:, 12:] = matrices.reshape(-1, 12)
            starts = np.array([(part.node, part.first_triangle, part.first_corner) for part in self._parts])
            words[:, 24:27] = starts[self._instances]
        return words.ravel()


class _Part(NamedTuple):
    """A mesh on the device: its arrays, its hierarchy if it has triangles, and where its parts begin."""

    sizes: tuple[int, int]
    corners: Tensor
    faces: Tensor
    is_copy: bool
    hierarchy: Hierarchy | None
    node: int
    block: int
    first_corner: int
    first_triangle: int


def _is_on_host(mesh: Mesh) -> bool:
    """Return whether a scene has copies of both arrays of a mesh."""
    return isinstance(mesh.positions, np.ndarray) and isinstance(mesh.faces, np.ndarray)


def _pair(number: int, item: Any) -> tuple[Mesh, Any]:
    """Return the mesh of an item of a scene's list, and what is given as its transform."""
    if isinstance(item, Mesh):
        return item, None
    if isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], Mesh):
        return item[0], item[1]
    if hasattr(item, "vertices") and hasattr(item, "faces"):
        return Mesh(item), None
    raise BindError(
        f"Scene: meshes[{number}] is {in_words(item)}; a Mesh, or a tuple of a Mesh and a transform, was expected."
    )


def _matrices(names: list[str], given: Sequence[Any]) -> list[npt.NDArray[np.float64] | None]:
    """Return each transform as three rows of four doubles, and None for none; all are checked at once."""
    found = [_rows(name, value) for name, value in zip(names, given, strict=True)]
    named = [(name, rows) for name, rows in zip(names, found, strict=True) if rows is not None]
    if not named:
        return found
    stacked = np.stack([rows for _, rows in named])
    are_held = (np.abs(stacked) <= _LARGEST).all(axis=(1, 2))
    if not are_held.all():
        raise BindError(f"{named[int(are_held.argmin())][0]} has numbers that no float holds.")
    sizes = np.linalg.norm(stacked[:, :, :3], axis=(1, 2))
    parts = np.linalg.det(stacked[:, :, :3] / np.where(sizes, sizes, 1)[:, None, None])
    can_lead_back = np.abs(parts) >= 1e-18
    # In place of matrices that have no inverse is one that has.
    inverses = _inverses(np.where(can_lead_back[:, None, None], stacked, np.eye(4)[:3]))
    can_lead_back &= (np.abs(inverses) <= _LARGEST).all(axis=(1, 2))
    if not can_lead_back.all():
        raise BindError(
            f"{named[int(can_lead_back.argmin())][0]} makes all points lie in a plane, or nearly so, and cannot be "
            "inverted."
        )
    return found


def _rows(where: str, given: Any) -> npt.NDArray[np.float64] | None:
    """Return a transform as three rows of four doubles."""
    if given is None:
        return None
    try:
        found = np.asarray(given)
        found = found if found.dtype.kind == "c" else found.astype(np.float64)
    except (TypeError, ValueError):
        raise BindError(f"{where} is {in_words(given)}; {_MATRIX}.") from None
    if found.dtype.kind == "c":
        raise BindError(f"{where} is {in_words(given)}, of complex numbers; {_MATRIX}.")
    if found.shape not in ((3, 4), (4, 4)):
        raise BindError(f"{where} has shape {found.shape}; {_MATRIX}.")
    if found.shape == (4, 4) and not np.array_equal(found[3], [0, 0, 0, 1]):
        raise BindError(f"{where} has the last row {found[3].tolist()}; 0, 0, 0, 1 was expected.")
    return found[:3]


def _inverses(matrices: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the three rows of the transforms that lead back."""
    square = np.zeros((len(matrices), 4, 4))
    square[:, :3] = matrices
    square[:, 3, 3] = 1
    return np.asarray(np.linalg.inv(square)[:, :3], np.float64)
