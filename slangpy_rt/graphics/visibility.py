"""Visibility: which triangle each pixel of a picture shows, and where silhouettes pass between pixels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from slangpy_rt.arguments.indices import grid
from slangpy_rt.arguments.vectors import int2
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.graphics.triangles import Triangles

_PAIR = 6  # numbers of a pair
_WAYS = 4  # from a pixel to those beside it


class Visibility(NamedTuple):
    """What was seen of some triangles.

    Attributes
    ----------
    words : Tensor
        A uint64_t for each pixel: depth and number of the triangle that it shows.
    pairs : Tensor
        Pairs of pixels that a silhouette parts, of shape ``(N, 6)``.
    """

    words: Tensor
    pairs: Tensor


class Kernels:
    """The kernels of one device that find what is visible, and those that mix colors at silhouettes.

    Parameters
    ----------
    device : Device
        Where they run.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._raster: Any = Module.load_from_file(device, "_spy_raster.slang")
        self._silhouettes: Any = Module.load_from_file(device, "_spy_silhouettes.slang")
        self._antialias: dict[str, Any] = {}

    def of_color(self, color: str) -> Any:
        """Return the module that mixes colors of a type."""
        found = self._antialias.get(color)
        if found is None:
            found = Module.load_from_file(self._device, "_spy_antialias.slang", defines={"SPY_COLOR": color})
            self._antialias[color] = found
        return found

    def seen(self, position: Tensor, triangles: Triangles, size: tuple[int, int], silhouettes: bool) -> Visibility:
        """Return what is visible of triangles.

        Parameters
        ----------
        position : Tensor
            Corners in clip coordinates, float4.
        triangles : Triangles
            Their corners' numbers, and their edges.
        size : tuple of int
            Rows and columns.
        silhouettes : bool
            Whether to find where silhouettes pass.
        """
        device, faces = self._device, triangles.faces
        words = Tensor.empty(device, size, "uint64_t")
        self._raster["_spy_empty"](_result=words)
        # Their number, and then their numbers.
        large = Tensor.zeros(device, triangles.count + 1, "int")
        self._raster["_spy_drawTriangle"](grid((triangles.count,)), faces, position, words, large)
        # A thread of a CPU takes many rows, one of a GPU a part of one.
        parts = (32, 1) if self._device.backend.target.entry == "range" else (size[0], -(-size[1] // 32))
        self._raster["_spy_drawPart"](grid(parts), int2(*parts[::-1]), faces, position, words, large)
        if not silhouettes:
            return Visibility(words, Tensor.empty(device, (0, _PAIR), "int"))
        edges = triangles.edges
        room = 8 * sum(size) + 64
        while True:
            pairs, kept = (Tensor.empty(device, (room, _PAIR), "int") for _ in range(2))
            count = Tensor.zeros(device, 2, "int")
            farthest = Tensor.zeros(device, (*size, _WAYS), "uint")
            self._silhouettes["_spy_findPairs"](
                grid((len(edges),)), edges, faces, position, words, pairs, count, farthest
            )
            self._silhouettes["_spy_keepPair"](
                grid((room,)), pairs, position, farthest, kept, count, int2(size[1], size[0])
            )
            found, left = np.asarray(count.to_numpy()).tolist()
            if found <= room:
                return Visibility(words, kept[:left])
            room = found
