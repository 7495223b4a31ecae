"""Drawn: the steps of a picture, and of its derivatives."""

from __future__ import annotations

from typing import Any, NamedTuple

from slangpy_rt.arguments.stand_ins import meant_by, stands_in
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.errors import ShapeError
from slangpy_rt.core.structs import fields_of
from slangpy_rt.graphics.runner import Runner
from slangpy_rt.graphics.stages import Declarations, Stages
from slangpy_rt.graphics.triangles import Triangles
from slangpy_rt.graphics.visibility import Kernels, Visibility, over


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


class Drawn:
    """A picture of triangles: what it shows is found when it is made, its colors or their derivatives afterwards.

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
    ) -> None:
        self._settings, self._runner, self._of_shade, self._of_project = settings, runner, of_shade, of_project
        where, device = stages.where, stages.device
        self._color, self._device = declared.color, device
        self._project, self._pixel = stages.project, stages.pixel(declared)
        self._moves = derivative == "backward" and has_gradient(of_project)
        follows = derivative == "forward" and has_tangent(of_project)
        project = self._project.fwds if follows else self._project
        corners = runner.call(project, **of_project, _result="tensor")
        if len(corners.shape) not in (1, 2):
            raise ShapeError(
                f"{where}: {self._project.name} is called over shape {corners.shape}; (corners,) or "
                "(pictures, corners) was expected."
            )
        triangles.check(where, corners.shape[-1])
        if follows:
            corners = _followed(corners)
        self._corners = runner.gradient_of(corners) if self._moves else corners
        flat = self._corners if len(corners.shape) == 2 else self._corners[None]
        views = [_field(flat, leaf.path) for leaf in declared.leaves]
        self._position, self._faces = views[0], triangles.faces
        self._kernels: Kernels = device.once("graphics", lambda: Kernels(device))
        self._antialias = self._kernels.of_color(self._color) if settings.antialias else None
        edges = self._kernels.edges_of(runner, triangles) if settings.antialias else None
        self._layers: list[Visibility] = []
        for _ in range(settings.layers or 1):
            nearer = self._layers[-1] if self._layers else None
            self._layers.append(self._kernels.seen(runner, self._position, triangles, settings.size, edges, nearer))
        self._placed = (triangles.faces, settings.background, *views)
        self._shape = (settings.layers or 1, *flat.shape[:1], *settings.size)
        #: The picture's own shape, without the dimensions that were not asked for.
        self.shape = (*self._shape[: settings.layers is not None], *corners.shape[:-1], *settings.size)

    def colors(self, picture: Tensor) -> None:
        """Write the picture."""
        for seen, into in self._each(picture):
            if self._antialias is None:
                self._shaded(self._pixel, seen, into)
                continue
            image = self._shaded(self._pixel, seen)
            self._runner.call(self._antialias["_spy_antialiased"], *self._mixed(seen, image), _result=into)

    def tangents(self, picture: Tensor) -> None:
        """Write the picture, and its tangent to its gradient."""
        for seen, into in self._each(picture):
            if self._antialias is None:
                self._shaded(self._pixel.fwds, seen, into)
                continue
            image = _followed(self._shaded(self._pixel.fwds, seen))
            self._runner.call(self._antialias["_spy_antialiased"].fwds, *self._mixed(seen, image), _result=into)

    def propagate(self, gradient: Tensor) -> None:
        """Add the gradients of the picture to those of the arguments."""
        call = self._runner.call
        for seen, given in self._each(gradient):
            if self._antialias is None:
                image = Tensor.empty(self._device, self._shape[1:], self._color).with_grads(grad_in=given)
            else:
                plain = self._shaded(self._pixel, seen)
                total = Tensor.empty(self._device, self._shape[1:], given.dtype)
                call(self._antialias["_spy_same"], given, _result=total)
                image = plain.with_grads(total, total)
                self._kernels.add_silhouettes(self._runner, self._color, self._mixed(seen, image)[1:], given)
            if self._moves or has_gradient(self._of_shade):
                self._shaded(self._pixel.bwds, seen, image)
        if self._moves:
            call(self._project.bwds, **self._of_project, _result=self._corners)

    def _each(self, picture: Tensor) -> list[tuple[Visibility, Tensor]]:
        """Return what each layer shows, and its part of a picture."""
        deep = self._settings.layers is not None
        parts = [picture[k] if deep else picture for k in range(len(self._layers))]
        if len(self.shape) - deep == 2:
            parts = [part[None] for part in parts]
        return list(zip(self._layers, parts, strict=True))

    def _shaded(self, pixel: Any, seen: Visibility, result: Any = "tensor") -> Any:
        placed = (over(seen.words.shape), seen.words, *self._placed)
        return self._runner.call(pixel, *placed, **self._of_shade, _result=result)

    def _mixed(self, seen: Visibility, image: Tensor) -> tuple[Any, ...]:
        return over(seen.words.shape), seen.marks, seen.silhouettes, self._faces, self._position, image


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
