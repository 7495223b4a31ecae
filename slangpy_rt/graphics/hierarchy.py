"""Hierarchy: which boxes of some primitives lie in which larger ones, found on the device.

The boxes are sorted along a curve that fills space, and the sorted row is halved again and again, eight parts to a
node (Garanzha, Pantaleoni and McAllister, Simpler and Faster HLBVH with Work Queues, HPG 2011). Boxes of parts are
those of rows of eight, of rows of eight of these, and so on, so that they can be found anew without the hierarchy.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from slangpy_rt.arithmetic.sorting import argsort
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.core.errors import ShapeError
from slangpy_rt.graphics.visibility import over

WIDE = 8  # as in rays.slang, and those below
NODE = 20
BLOCK = 10 * WIDE
INSTANCE = 28
_LEVELS = 20
_EACH = 64  # boxes that a thread takes where all are to become one
_MOST_WORDS = 2**31 - 1


class Hierarchy:
    """The nodes above some boxes: their number, and what is in them.

    Parameters
    ----------
    kernels : Module
        ``_spy_bvh.slang`` on the device.
    boxes : Tensor
        The least and the greatest coordinates of each primitive, six floats; at least one primitive.
    leaf : int
        The most primitives of a part that is not halved: 8 for triangles, which become blocks, 1 for instances.

    Attributes
    ----------
    nodes, blocks : int
        How many there are.
    """

    def __init__(self, kernels: Module, boxes: Tensor, leaf: int) -> None:
        self._kernels: Any = kernels
        self._device = device = boxes.device
        self._count = count = boxes.shape[0] // 6
        self._leaf = leaf
        places, self._order = _sorted(self._kernels, boxes)
        self._sums = self._summed(boxes)
        room = count // 4 + 64
        while True:
            spans: Any = Tensor.empty(device, room, "int2")
            self._children: Any = Tensor.empty(device, room * WIDE, "int2")
            self._links: Any = Tensor.empty(device, room, "int2")
            self._blocks: Any = Tensor.empty(device, count, "int2")
            first = np.zeros(_LEVELS + 2, np.int32)
            first[0] = 1
            counts = Tensor.from_numpy(device, first)
            spans[:1].copy_from(np.array([[0, count - 1]], np.int32))
            parts = 64 if device.backend.target.entry == "range" else 1 << 14
            for level in range(_LEVELS):
                self._kernels["_spy_divide"](
                    over((parts,)),
                    *(parts, level, leaf, places, self._order, self._sums, spans),
                    *(self._children, self._links, self._blocks, counts),
                )
            found = counts.to_numpy()
            self.nodes, self.blocks = int(found[: _LEVELS + 1].sum()), int(found[_LEVELS + 1])
            if self.nodes <= room:
                break
            room = self.nodes
        assert found[_LEVELS] == 0
        if max(self.nodes * NODE, self.blocks * BLOCK) > _MOST_WORDS:
            raise ShapeError(
                f"Scene: {count} triangles that lie like these need {self.blocks * BLOCK} words, and a scene has "
                f"{_MOST_WORDS} at most; make several meshes of them."
            )
        # What was room for more is given back.
        self._children = self._children[: self.nodes * WIDE].copy()
        self._links = self._links[: self.nodes].copy()
        self._blocks = self._blocks[: max(self.blocks, 1)].copy()

    def refit(self, boxes: Tensor) -> None:
        """Take other boxes of the same primitives; which are in one node stays."""
        self._sums = self._summed(boxes)

    def put_nodes(self, nodes: Any, first: int, first_block: int) -> None:
        """Write the nodes to an array from a node on; their blocks are those from ``first_block`` on."""
        self._kernels["_spy_putNode"](
            over((self.nodes,)),
            *(self._count, self._leaf, first, first_block, self._sums, self._children, self._links),
            nodes[first * NODE : (first + self.nodes) * NODE],
        )

    def put_triangles(self, blocks: Any, first: int, corners: Tensor, faces: Tensor) -> None:
        """Write the triangles to an array of blocks from a block on."""
        if self.blocks:
            self._kernels["_spy_putTriangle"](
                over((self.blocks * WIDE,)),
                *(self._blocks, self._order, corners, faces),
                blocks[first * BLOCK : (first + self.blocks) * BLOCK],
            )

    def put_instances(self, into: Any) -> None:
        """Write the numbers of instances in the order in which nodes count them."""
        self._kernels["_spy_putInstance"](over((self._count,)), self._blocks, self._order, into)

    def _summed(self, boxes: Tensor) -> Tensor:
        """Return the boxes in their order, those of eight each, and so on up to one."""
        counts = [self._count]
        while counts[-1] > 1:
            counts.append(-(-counts[-1] // 8))
        sums: Any = Tensor.empty(self._device, 6 * sum(counts))
        self._kernels["_spy_sortedBox"](over((self._count,)), boxes, self._order, sums[: 6 * self._count])
        at = 0
        for many, fewer in pairwise(counts):
            middle, end = at + many, at + many + fewer
            self._kernels["_spy_sumOf"](over((fewer,)), 8, sums[6 * at : 6 * middle], sums[6 * middle : 6 * end])
            at = middle
        return sums  # type: ignore[no-any-return]


def _sorted(kernels: Any, boxes: Any) -> tuple[Tensor, Tensor]:
    """Return the places of boxes on the curve in rising order, and the numbers of the boxes in this order."""
    device, count = boxes.device, boxes.shape[0] // 6
    extent, name = boxes, "_spy_centresOf"
    while True:
        parts = -(-(extent.shape[0] // 6) // _EACH)
        smaller = Tensor.empty(device, 6 * parts)
        kernels[name](over((parts,)), _EACH, extent, smaller)
        extent, name = smaller, "_spy_sumOf"
        if parts == 1:
            break
    axes = Tensor.empty(device, 30, "int")
    kernels["_spy_axesOf"](extent, axes)
    places = Tensor.empty(device, count, "uint")
    kernels["_spy_placeOf"](over((count,)), boxes, extent, axes, _result=places)
    order = argsort(places, 0)
    risen = Tensor.empty(device, count, "uint")
    kernels["_spy_sortedPlace"](places, order, _result=risen)
    return risen, order
