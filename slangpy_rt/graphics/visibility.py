"""Visibility: which triangle each pixel of a picture shows, and where silhouettes pass between pixels."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import numpy as np

from slangpy_rt.arguments.indices import grid
from slangpy_rt.arguments.vectors import int2
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.graphics.runner import Parts, Room, Runner
from slangpy_rt.graphics.triangles import Triangles

_WAYS = 4  # from a pixel to those beside it
_LEAST_PLACES = 16  # of a table of edges
# Threads that prepare a picture: more would each write less than 16 numbers of a large one.
_MOST_THREADS = 1 << 18
_ROW_PARTS = 4
_NONE: Parts = {}


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
    thirds : Tensor
        The third corners of the triangles of an edge, for each place of the table, of shape ``(places, 2)``, as
        ``_spy_putSide`` has them.
    places : Tensor
        The place of each side of each triangle, -1 for a side that is no edge.
    """

    thirds: Tensor
    places: Tensor


class Sides(NamedTuple):
    """The edges of triangles that nothing changes, by the sides of the triangles.

    Attributes
    ----------
    beyond : Tensor
        What is beyond each side of each triangle, as ``_spy_beyond`` has it.
    """

    beyond: Tensor


class Seen(NamedTuple):
    """What ``Kernels.seen`` found, and made.

    Attributes
    ----------
    visibility : Visibility
        What the pictures show.
    edges : Edges, Sides or bool
        The edges that it found or was given; False if no silhouettes were asked for.
    arrays : dict
        The arrays that the caller asked for, by name, among others.
    """

    visibility: Visibility
    edges: Edges | Sides | bool
    arrays: dict[str, Tensor]


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
        names = ("_spy_begin", "_spy_emptied", "_spy_zeros", "_spy_copied", "_spy_drawTriangle", "_spy_drawPart")
        self._begin, self._emptied, self._zeros, self._copied, self._draw_triangle, self._draw_part = (
            raster[name] for name in names
        )
        self._draw_and_put, self._put_side, self._beyond, self._find_pairs, self._find_pairs_of = (
            silhouettes[f"_spy_{name}"] for name in ("drawAndPut", "putSide", "beyond", "findPairs", "findPairsOf")
        )
        target = device.backend.target
        self._is_cpu = target.entry == "range" or target.lane_threads
        self._last: tuple[ReferenceType[Any], Triangles] | None = None
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

    def triangles_of(self, where: str, given: Any) -> Triangles:
        """Return triangles; those of a NumPy array stay known, with their edges, while it lives and no others come.

        Parameters
        ----------
        where : str
            The step, for messages.
        given : Any
            Its argument ``faces``.

        Raises
        ------
        BindError, ShapeError
            As ``Triangles`` has them.
        """
        if not isinstance(given, np.ndarray):
            return Triangles(where, self._device, given, "faces")
        last = self._last
        if last is not None and last[1].is_of(given):
            return last[1]
        found = Triangles(where, self._device, given, "faces")
        mine = ref(self)

        def drop(gone: ReferenceType[Any]) -> None:
            kernels = mine()
            if kernels is not None and kernels._last is not None and kernels._last[0] is gone:
                kernels._last = None

        self._last = ref(given, drop), found
        return found

    def edges_of(self, runner: Runner, triangles: Triangles) -> Edges | Sides:
        """Return the edges of triangles, which are found anew where their numbers may have changed."""
        known = self.known_edges(runner, triangles)
        return self._found_edges(runner, triangles) if known is None else known

    def known_edges(self, runner: Runner, triangles: Triangles) -> Sides | None:
        """Return the edges of triangles that nothing changes, found once; None for others."""
        if triangles.edges is None and triangles.is_copy and runner.commands is None:
            edges = self._found_edges(runner, triangles)
            sides = edges.places.shape
            beyond = runner.room(self._device, _NONE, {"beyond": (sides, "int")}).arrays["beyond"]
            runner.call(self._beyond, over(sides), triangles.faces, *edges, _result=beyond)
            triangles.edges = Sides(beyond)
        known: Sides | None = triangles.edges
        return known

    def seen(
        self,
        runner: Runner,
        position: Any,
        triangles: Triangles,
        size: tuple[int, int],
        edges: Edges | Sides | bool,
        nearer: Visibility | None,
        zeros: Parts = _NONE,
        others: Parts = _NONE,
        copied: Tensor | None = None,
    ) -> Seen:
        """Find what pictures show of triangles.

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
        edges : Edges, Sides or bool
            Their edges, to find where silhouettes pass; True to find the edges, too, False for no silhouettes.
        nearer : Visibility or None
            What other pictures show, to find what is behind it.
        zeros, others : mapping
            Other arrays that the caller needs, of zeros and without contents: shapes and element types by name.
        copied : Tensor, optional
            A contiguous array, which the array ``copy`` of ``others`` becomes a copy of.
        """
        device, faces = self._device, triangles.faces
        pictures = position.shape[0]
        shape, finds, mixes = (pictures, *size), edges is True, edges is not False
        table, found = _table(triangles) if finds else (_NONE, _NONE)
        room = runner.room(
            device,
            {**_silhouettes(shape, mixes), "count": ((pictures,), "int"), **table, **zeros},
            {
                "words": (shape, "uint64_t"),
                # Without nearer ones, any array that is not the one written.
                "nothing": ((1, 1, 1), "uint64_t"),
                "large": ((pictures, triangles.count), "int"),
                **found,
                **others,
            },
        )
        arrays = room.arrays
        seen = _visibility(arrays)
        self._prepare(runner, room, seen.words, copied)
        behind = (arrays["nothing"], False) if nearer is None else (nearer.words, True)
        drawn = (faces, position, seen.words, *behind, arrays["large"], arrays["count"])
        everywhere = over((pictures, triangles.count))
        if finds:
            edges = put = _edges(arrays)
            if self._is_cpu:
                self._put_sides(runner, triangles, arrays["keys"], put)
                runner.call(self._draw_triangle, everywhere, *drawn)
            else:
                runner.call(self._draw_and_put, everywhere, *drawn, arrays["keys"], *put)
        else:
            runner.call(self._draw_triangle, everywhere, *drawn)
        # A thread of a CPU takes many rows, one of a GPU a part of one.
        parts = (32, 1) if self._is_cpu else (size[0], -(-size[1] // 32))
        runner.call(self._draw_part, over((pictures, *parts)), int2(*parts[::-1]), *drawn)
        if not isinstance(edges, bool):
            self._pairs(runner, position, triangles, edges, seen)
        return Seen(seen, edges, arrays)

    def of_points(
        self, runner: Runner, position: Any, triangles: Triangles, edges: Edges | Sides | None, points: Any
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
        parts = {**_silhouettes(shape, edges is not None), "words": (shape, "uint64_t")}
        found = _visibility(runner.room(self._device, _NONE, parts).arrays)
        corners = position.shape[1]
        runner.call(self.steps_of("float4")["_spy_putWord"], over(shape), points, triangles.faces, corners, *found)
        if edges is not None:
            self._pairs(runner, position, triangles, edges, found)
        return found

    def prepared(self, runner: Runner, zeros: Parts, others: Parts, copied: Tensor | None) -> dict[str, Tensor]:
        """Return the arrays that ``seen`` makes for its caller, where nothing else has to be found."""
        room = runner.room(self._device, zeros, others)
        if zeros or copied is not None:
            self._prepare(runner, room, None, copied)
        return room.arrays

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
        # A part of a row on a CPU, whose threads then have equal shares of few rows; a pixel on a GPU.
        width = -(-columns // _ROW_PARTS) if self._is_cpu else 1
        parts = (pictures, rows, -(-columns // width))
        # The derivative does not read what it is given as the result's gradient.
        one = runner.room(self._device, _NONE, dict.fromkeys(("result", "gradient"), ((1, 1, 1), "float"))).arrays
        nothing = one["result"].broadcast_to(parts).with_grads(grad_in=one["gradient"].broadcast_to(parts))
        add = self.of_color(color)["_spy_addendsOf"].bwds
        runner.call(add, over(parts), width, *mixed, gradient, _result=nothing)

    def _pairs(
        self, runner: Runner, position: Any, triangles: Triangles, edges: Edges | Sides, found: Visibility
    ) -> None:
        everywhere = over((found.words.shape[0], 3 * triangles.count))
        if isinstance(edges, Sides):
            runner.call(self._find_pairs_of, everywhere, edges.beyond, triangles.faces, position, *found)
        else:
            runner.call(self._find_pairs, everywhere, triangles.faces, *edges, position, *found)

    def _found_edges(self, runner: Runner, triangles: Triangles) -> Edges:
        room = runner.room(self._device, *_table(triangles))
        self._prepare(runner, room, None, None)
        edges = _edges(room.arrays)
        self._put_sides(runner, triangles, room.arrays["keys"], edges)
        return edges

    def _put_sides(self, runner: Runner, triangles: Triangles, keys: Tensor, edges: Edges) -> None:
        runner.call(self._put_side, over(edges.places.shape), triangles.faces, keys, *edges)

    def _prepare(self, runner: Runner, room: Room, words: Tensor | None, copied: Tensor | None) -> None:
        """Empty words, write the zeros of a room, and make its array ``copy`` a copy of another one."""
        copy = room.arrays["copy"] if copied is not None else None
        words, copied, copy = (
            _flat(room.zeros, array, kind) for array, kind in ((words, "uint64_t"), (copied, "uint"), (copy, "uint"))
        )
        if self._is_cpu:
            # Loops over elements are ten times as fast there as loops within threads, and a launch costs nothing.
            runner.call(self._emptied, _result=words)
            runner.call(self._zeros, _result=room.zeros)
            runner.call(self._copied, copied, _result=copy)
            return
        threads = min(max(a.shape[0] for a in (words, room.zeros, copy)), _MOST_THREADS)
        runner.call(self._begin, over((threads,)), threads, words, room.zeros, copied, copy)


def _silhouettes(shape: tuple[int, ...], are_found: bool) -> Parts:
    """Return the arrays of silhouettes, which have no room where none are found."""
    return {
        "marks": (shape if are_found else (1, 1, 1), "uint"),
        "silhouettes": ((*shape, _WAYS if are_found else 0), "uint64_t"),
    }


def _table(triangles: Triangles) -> tuple[Parts, Parts]:
    """Return the arrays of a table of edges: those that have to be zeros, and others."""
    sides = 3 * triangles.count
    many = max(_LEAST_PLACES, 1 << sides.bit_length())
    zeros: Parts = {"keys": ((many,), "uint64_t"), "thirds": ((many, 2), "int")}
    return zeros, {"places": ((sides,), "int")}


def _visibility(arrays: dict[str, Tensor]) -> Visibility:
    return Visibility(*(arrays[name] for name in Visibility._fields))


def _edges(arrays: dict[str, Tensor]) -> Edges:
    return Edges(*(arrays[name] for name in Edges._fields))


def _flat(near: Tensor, array: Tensor | None, kind: str) -> Tensor:
    """Return the memory of a contiguous array as a flat one of another element type; without one an empty array."""
    found = near if array is None else array
    count = 0 if array is None else array.nbytes // (8 if kind == "uint64_t" else 4)
    layout = layout_of(near.device, Tensor, element_type("flat", kind), (count,), None, found.layout.aligned)
    return Tensor.of(layout, found.buffer, found.address)


def kernels_of(device: Any) -> Kernels:
    """Return the kernels of a device, made once."""
    found: Kernels = device.once("graphics", lambda: Kernels(device))
    return found


@lru_cache(256)
def over(shape: tuple[int, ...]) -> grid:
    """Return a grid of a shape; to make one takes 15 us."""
    return grid(shape)
