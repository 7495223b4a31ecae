"""Visibility: which triangle each pixel of a picture shows, and where silhouettes pass between pixels."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from slangpy_rt.arguments.indices import grid
from slangpy_rt.arguments.vectors import int2
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.graphics.runner import Runner
from slangpy_rt.graphics.triangles import Triangles

_WAYS = 4  # from a pixel to those beside it
_LEAST_PLACES = 16  # of a table of edges


class Visibility(NamedTuple):
    """What pictures show of some triangles.

    Attributes
    ----------
    words : Tensor
        A uint64_t for each pixel, of shape ``(pictures, rows, columns)``: depth and number of the triangle that it
        shows.
    marks : Tensor
        A uint for each pixel: which of its silhouettes there are, and of those of pixels beside it.
    silhouettes : Tensor
        A uint64_t for each pixel and each way to one beside it, of shape ``(pictures, rows, columns, 4)``; the last
        dimension is 0 where no silhouettes were asked for.
    """

    words: Tensor
    marks: Tensor
    silhouettes: Tensor


class Edges(NamedTuple):
    """The edges of some triangles, in a table by their corners.

    Attributes
    ----------
    counts : Tensor
        How many triangles an edge has, for each place of the table.
    thirds : Tensor
        The third corners of two of these triangles, of shape ``(places, 2)``.
    places : Tensor
        The place of each side of each triangle, -1 for a side that is no edge.
    """

    counts: Tensor
    thirds: Tensor
    places: Tensor


class Kernels:
    """The kernels of one device that find what is visible, and those that mix colors at silhouettes.

    Parameters
    ----------
    device : Device
        Where they run.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        raster: Any = Module.load_from_file(device, "_spy_raster.slang")
        silhouettes: Any = Module.load_from_file(device, "_spy_silhouettes.slang")
        names = ("_spy_clearPixel", "_spy_zero", "_spy_drawTriangle", "_spy_drawPart")
        self._clear_pixel, self._zero, self._draw_triangle, self._draw_part = (raster[name] for name in names)
        edge_names = ("_spy_clearEdge", "_spy_putSide", "_spy_findPairs")
        self._clear_edge, self._put_side, self._find_pairs = (silhouettes[name] for name in edge_names)
        self._antialias: dict[str, Any] = {}
        self._steps: dict[str, Any] = {}

    def of_color(self, color: str) -> Any:
        """Return the module that mixes colors of a type."""
        found = self._antialias.get(color)
        if found is None:
            found = Module.load_from_file(self._device, "_spy_antialias.slang", defines={"SPY_COLOR": color})
            self._antialias[color] = found
        return found

    def steps_of(self, kind: str) -> Any:
        """Return the module of single steps on values of a type."""
        found = self._steps.get(kind)
        if found is None:
            found = Module.load_from_file(self._device, "_spy_steps.slang", defines={"SPY_VALUE": kind})
            self._steps[kind] = found
        return found

    def edges_of(self, runner: Runner, triangles: Triangles) -> Edges:
        """Return the edges of triangles, which are found anew where their numbers may have changed."""
        if triangles.edges is not None:
            known: Edges = triangles.edges
            return known
        edges = self._found_edges(runner, triangles)
        if triangles.is_copy and runner.commands is None:
            triangles.edges = edges
        return edges

    def seen(
        self,
        runner: Runner,
        position: Any,
        triangles: Triangles,
        size: tuple[int, int],
        edges: Edges | None,
        nearer: Visibility | None,
    ) -> Visibility:
        """Return what pictures show of triangles.

        Parameters
        ----------
        runner : Runner
            How to run the steps.
        position : Tensor
            Corners in clip coordinates, float4, of shape ``(pictures, corners)``.
        triangles : Triangles
            Their corners' numbers.
        size : tuple of int
            Rows and columns.
        edges : Edges or None
            Their edges, to find where silhouettes pass.
        nearer : Visibility or None
            What other pictures show, to find what is behind it.
        """
        device, faces = self._device, triangles.faces
        pictures = position.shape[0]
        shape = (pictures, *size)
        found = Visibility(*_room(device, shape, edges is not None))
        words = found.words
        runner.call(self._clear_pixel, over(shape), *found)
        # Without nearer ones, any array that is not the one written.
        behind = (Tensor.empty(device, (1, 1, 1), "uint64_t"), False) if nearer is None else (nearer.words, True)
        large = Tensor.empty(device, (pictures, triangles.count), "int")
        count = Tensor.empty(device, pictures, "int")
        runner.call(self._zero, _result=count)
        runner.call(
            self._draw_triangle,
            over((pictures, triangles.count)),
            *(faces, position, words, *behind, large, count),
        )
        # A thread of a CPU takes many rows, one of a GPU a part of one.
        parts = (32, 1) if device.backend.target.entry == "range" else (size[0], -(-size[1] // 32))
        runner.call(
            self._draw_part,
            over((pictures, *parts)),
            int2(*parts[::-1]),
            *(faces, position, words, *behind, large, count),
        )
        if edges is not None:
            self._pairs(runner, position, triangles, edges, found)
        return found

    def of_points(
        self, runner: Runner, position: Any, triangles: Triangles, edges: Edges | None, points: Any
    ) -> Visibility:
        """Return what pictures show by the points that their pixels show, as ``_spy_seen`` finds them.

        Parameters
        ----------
        points : Tensor
            Elements of float4, of shape ``(pictures, rows, columns)``.
        runner, position, triangles, edges
            As for ``seen``.
        """
        shape = points.shape
        found = Visibility(*_room(self._device, shape, edges is not None))
        corners = position.shape[1]
        runner.call(self.steps_of("float4")["_spy_putWord"], over(shape), points, triangles.faces, corners, *found)
        if edges is not None:
            self._pairs(runner, position, triangles, edges, found)
        return found

    def add_silhouettes(self, runner: Runner, color: str, mixed: tuple[Any, ...], gradient: Tensor) -> None:
        """Add the gradients of what silhouettes add to pictures.

        Parameters
        ----------
        runner : Runner
            How to run the step.
        color : str
            The type of colors.
        mixed : tuple
            Marks, silhouettes, faces, positions and colors; the last two have gradients to add to.
        gradient : Tensor
            That of the pictures, of shape ``(pictures, rows, columns)``.
        """
        pictures, rows, columns = gradient.shape
        # A thread of a CPU takes a row, one of a GPU a pixel.
        width = columns if self._device.backend.target.entry == "range" else 1
        parts = (pictures, rows, columns // width)
        nothing = Tensor.empty(self._device, parts, "float").with_grads()
        add = self.of_color(color)["_spy_addendsOf"].bwds
        runner.call(add, over(parts), width, *mixed, gradient, _result=nothing)

    def _pairs(self, runner: Runner, position: Any, triangles: Triangles, edges: Edges, found: Visibility) -> None:
        everywhere = over((found.words.shape[0], 3 * triangles.count))
        runner.call(self._find_pairs, everywhere, triangles.faces, *edges, position, *found)

    def _found_edges(self, runner: Runner, triangles: Triangles) -> Edges:
        device, faces = self._device, triangles.faces
        sides = 3 * triangles.count
        many = max(_LEAST_PLACES, 1 << sides.bit_length())
        keys = Tensor.empty(device, many, "uint64_t")
        edges = Edges(
            Tensor.empty(device, many, "int"),
            Tensor.empty(device, (many, 2), "int"),
            Tensor.empty(device, sides, "int"),
        )
        runner.call(self._clear_edge, over((many,)), keys, edges.counts)
        runner.call(self._put_side, over((sides,)), faces, keys, *edges)
        return edges


@lru_cache(256)
def over(shape: tuple[int, ...]) -> grid:
    """Return a grid of a shape; to make one takes 15 us."""
    return grid(shape)


def _room(device: Any, shape: tuple[int, ...], silhouettes: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return arrays for words, marks and silhouettes; without silhouettes the last two have no room."""
    return (
        Tensor.empty(device, shape, "uint64_t"),
        Tensor.empty(device, shape if silhouettes else (1, 1, 1), "uint"),
        Tensor.empty(device, (*shape, _WAYS if silhouettes else 0), "uint64_t"),
    )
