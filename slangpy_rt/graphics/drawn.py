"""Drawn: the steps of a picture, and of its derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from slangpy_rt.arguments.stand_ins import meant_by, stands_in
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor, gradient_type
from slangpy_rt.core.errors import ShapeError
from slangpy_rt.core.structs import fields_of
from slangpy_rt.graphics.runner import Runner
from slangpy_rt.graphics.stages import Declarations, Stages
from slangpy_rt.graphics.triangles import Triangles
from slangpy_rt.graphics.visibility import Edges, Seen, Sides, kernels_of, over


class Settings(NamedTuple):
    """What a picture is like.

    Attributes
    ----------
    size : tuple of int
        Rows and columns.
    background : float or list of float
        The color of pixels without a triangle.
    antialias : bool
        Whether silhouettes mix colors.
    layers : int or None
        How many surfaces behind each other a picture shows; None for one, without a dimension for it.
    """

    size: tuple[int, int]
    background: Any
    antialias: bool
    layers: int | None


class Found(NamedTuple):
    """What the steps of a picture found.

    Attributes
    ----------
    corners : Tensor
        What the function for corners returned.
    layers : tuple of Seen
        What each layer shows.
    """

    corners: Any
    layers: tuple[Seen, ...]


class Drawn:
    """A picture of triangles: its corners are found when it is made, what it shows and its colors afterwards.

    The steps run over ``(pictures, rows, columns)`` for each layer: corners of one dimension are one picture.

    Parameters
    ----------
    stages : Stages
        The two functions.
    declared : Declarations
        Their declarations now.
    settings : Settings
        What the picture is like.
    runner : Runner
        How to run the steps.
    triangles : Triangles
        What to draw.
    of_project, of_shade : dict
        The arguments of both functions.
    derivative : str
        "", "backward" or "forward".
    earlier : Found, optional
        What the same picture found before in the same command list, for its gradient.

    Raises
    ------
    BindError
        If arguments do not fit.
    ShapeError
        If corners have no dimension, or more than two.
    """

    def __init__(
        self,
        stages: Stages,
        declared: Declarations,
        settings: Settings,
        runner: Runner,
        triangles: Triangles,
        of_project: dict[str, Any],
        of_shade: dict[str, Any],
        derivative: str,
        earlier: Found | None = None,
    ) -> None:
        self._settings, self._runner, self._of_shade, self._of_project = settings, runner, of_shade, of_project
        where = stages.where
        self.color, self._triangles, self._leaves = declared.color, triangles, declared.leaves
        self._project, self._pixel = stages.project, stages.pixel(declared, of_shade)
        self._moves = derivative == "backward" and has_gradient(of_project)
        follows = derivative == "forward" and has_tangent(of_project)
        project = self._project.fwds if follows else self._project
        corners = earlier.corners if earlier is not None else runner.call(project, **of_project, _result="tensor")
        if len(corners.shape) not in (1, 2):
            raise ShapeError(
                f"{where}: {self._project.name} is called over shape {corners.shape}; (corners,) or "
                "(pictures, corners) was expected."
            )
        #: How many corners there are.
        self.corners = corners.shape[-1]
        triangles.check(where, self.corners)
        self._earlier = earlier
        self._given, self._layers = corners, list[Seen]()
        self._corners = _followed(corners) if follows else corners
        self._kernels = kernels_of(stages.device)
        self._antialias = self._kernels.of_color(self.color) if settings.antialias else None
        pictures = corners.shape[:-1]
        self._over = (*(pictures or (1,)), *settings.size)
        #: The picture's own shape, without the dimensions that were not asked for.
        self.shape = (*(() if settings.layers is None else (settings.layers,)), *pictures, *settings.size)

    @property
    def found(self) -> Found:
        """The corners, and what was found of the layers so far."""
        return Found(self._given, tuple(self._layers))

    def colors(self, picture: Tensor) -> None:
        """Write the picture."""
        for seen, into in self._each(picture):
            if self._antialias is None:
                self._shaded(self._pixel, seen, into)
                continue
            image = self._shaded(self._pixel, seen, seen.arrays["image"])
            self._runner.call(self._antialias["_spy_antialiased"], *self._mixed(seen, image), _result=into)

    def tangents(self, picture: Tensor) -> None:
        """Write the picture, and its tangent to its gradient."""
        for seen, into in self._each(picture):
            if self._antialias is None:
                self._shaded(self._pixel.fwds, seen, into)
                continue
            image = _followed(self._shaded(self._pixel.fwds, seen, "tensor"))
            self._runner.call(self._antialias["_spy_antialiased"].fwds, *self._mixed(seen, image), _result=into)

    def propagate(self, gradient: Tensor) -> None:
        """Add the gradients of the picture to those of the arguments."""
        call = self._runner.call
        for seen, given in self._each(gradient, is_gradient=True):
            image = seen.arrays["image"]
            if self._antialias is None:
                image = image.with_grads(grad_in=given)
            else:
                if self._earlier is None:
                    self._shaded(self._pixel, seen, image)
                total = seen.arrays["copy"]
                if not given.layout.contiguous:
                    call(self._antialias["_spy_same"], given, _result=total)
                image = image.with_grads(total, total)
                self._kernels.add_silhouettes(self._runner, self.color, self._mixed(seen, image)[1:], given)
            if self._moves or has_gradient(self._of_shade):
                self._shaded(self._pixel.bwds, seen, image)
        if self._moves:
            call(self._project.bwds, **self._of_project, _result=self._corners)

    def _each(self, picture: Tensor, is_gradient: bool = False) -> Iterator[tuple[Seen, Tensor]]:
        """Find what each layer shows, and yield it with its part of a picture, or of a picture's gradient."""
        runner, triangles, size = self._runner, self._triangles, self._settings.size
        position = self._views()[0].detach()
        edges: Edges | Sides | bool = False
        if self._antialias is not None and self._earlier is None:
            edges = self._kernels.known_edges(runner, triangles) or True
        others = {"image": (self._over, self.color)} if self._earlier is None or self._antialias is None else {}
        seen = None
        for k in range(self._settings.layers or 1):
            part = picture if self._settings.layers is None else picture[k]
            part = part if len(part.shape) == len(self._over) else part[None]
            is_copied = is_gradient and self._antialias is not None
            if is_copied:
                others["copy"] = self._over, self.color
            zeros = {}
            if self._moves and seen is None:
                zeros["gradient"] = self._corners.shape, gradient_type(self._corners.dtype)
            copied = part if is_copied and part.layout.contiguous else None
            if self._earlier is not None:
                earlier = self._earlier.layers[k]
                made = self._kernels.prepared(runner, zeros, others, copied)
                seen = Seen(earlier.visibility, earlier.edges, {**earlier.arrays, **made})
            else:
                nearer = None if seen is None else seen.visibility
                seen = self._kernels.seen(runner, position, triangles, size, edges, nearer, zeros, others, copied)
            self._layers.append(seen)
            edges = seen.edges
            if zeros:
                self._corners = self._corners.with_grads(seen.arrays["gradient"], seen.arrays["gradient"])
            yield seen, part

    def _views(self) -> list[Any]:
        """Return the fields of corners, the position first, as arrays of pictures and corners."""
        flat = self._corners if len(self._corners.shape) == 2 else self._corners[None]
        return [_field(flat, leaf.path) for leaf in self._leaves]

    def _shaded(self, pixel: Any, seen: Seen, result: Any) -> Any:
        placed = seen.visibility.words, self._triangles.faces, self._settings.background, *self._views()
        return self._runner.call(pixel, over(self._over), *placed, **self._of_shade, _result=result)

    def _mixed(self, seen: Seen, image: Tensor) -> tuple[Any, ...]:
        _, marks, silhouettes = seen.visibility
        return over(self._over), marks, silhouettes, self._triangles.faces, self._views()[0], image


def has_gradient(value: Any) -> bool:
    """Return whether a value is, or holds, one whose gradient can be added to."""
    return any(getattr(part, "grad_out", None) is not None for part in parts(value))


def has_tangent(value: Any) -> bool:
    """Return whether a value is, or holds, one with a tangent."""
    return any(getattr(part, "grad_in", None) is not None for part in parts(value))


def parts(value: Any) -> list[Any]:
    """Return the arrays among a value and what dicts, tuples, lists and stand-ins hold."""
    if isinstance(value, NDBuffer):
        return [value]
    if stands_in(type(value)):
        value = meant_by(value)
    fields = fields_of(value)
    if fields is not None:
        value = list(fields.values())
    if isinstance(value, (tuple, list)):
        return [part for item in value for part in parts(item)]
    return [value] if isinstance(value, NDBuffer) else []


def _followed(result: Any) -> Any:
    """Return what ``fwds`` gave, with the tangent where the next step reads it."""
    return result.detach().with_grads(grad_in=result.grad_out)


def _field(array: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        array = array[name]
    return array
