"""Antialias: the step that mixes colors at silhouettes."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.checks import short_tracebacks
from slangpy_rt.core.errors import ShapeError
from slangpy_rt.graphics.repeats import Result
from slangpy_rt.graphics.runner import Runner
from slangpy_rt.graphics.step import COLORS, Given, Last, Step, Task, array_of, carrying, lifted, pictures
from slangpy_rt.graphics.visibility import over


@short_tracebacks("__call__")
class Antialias(Step):
    """The step from colors to colors that are mixed where silhouettes pass; ``graphics.antialias`` is one."""

    name = "antialias"
    kinds = {"color": COLORS, "seen": ("float4",), "position": ("float4",)}  # noqa: RUF012 - nothing changes it

    def __call__(
        self, color: Any, seen: Any, position: Any, faces: Any, *, _result: Any = None, device: Any = None
    ) -> Any:
        """Mix the colors of pixels between which a silhouette passes, by how much each side covers.

        Parameters
        ----------
        color : array of float to float4, shape (rows, columns) or (pictures, rows, columns)
            The picture.
        seen : array of float4, of the same shape
            What ``rasterize`` returned. It has no derivative here.
        position : array of float4, shape (corners,) or (pictures, corners)
            The corners that it was given. They have the derivatives of silhouettes.
        faces : array of int, shape (triangles, 3)
            The triangles that it was given.
        _result : Tensor, optional
            The array to write to.
        device : Device, optional
            The device for NumPy's arrays and for PyTorch's in host memory.

        Returns
        -------
        array
            The picture, of the shape of ``color``.

        Raises
        ------
        BindError
            If an argument does not fit.
        ShapeError
            If shapes do not fit.
        """
        return self.call(self.given(color, seen, position, faces), _result, device)

    def given(self, color: Any, seen: Any, position: Any, faces: Any) -> Given:
        """Return the arguments of a call."""
        return Given(faces, (), {"color": color, "seen": seen, "position": position})

    def last(self, runner: Runner, task: Task, named: dict[str, Any]) -> Last:
        """Find the silhouettes, and return the call that mixes."""
        color, seen, position = named["color"], named["seen"], named["position"]
        front = pictures(task.where, "color", color, 2, "rows, columns")
        own = pictures(task.where, "position", position, 1, "corners")
        if seen.shape != color.shape:
            raise ShapeError(
                f"{task.where}: seen has shape {seen.shape}; that of color, {color.shape}, was expected."
            )
        if own != front:
            raise ShapeError(
                f"{task.where}: position has shape {position.shape}; {(*front, position.shape[-1])} was expected."
            )
        image, points, flat = (x if front else x[None] for x in (color, seen, position))
        triangles, kernels = task.triangles(flat.shape[1]), task.kernels
        edges = kernels.edges_of(runner, triangles)
        found = kernels.of_points(runner, flat.detach(), triangles, edges, points.detach())
        function = kernels.of_color(color.dtype.name)["_spy_antialiased"]
        args = over(image.shape), found.marks, found.silhouettes, triangles.faces, flat, image
        return Last(function, args, color.shape, image.shape, color.dtype.name)

    def propagate(self, runner: Runner, task: Task, named: dict[str, Any], gradient: Result) -> Tensor:
        """Add the gradients: of most pixels, which no silhouette is at, they are those of the colors."""
        last = self.last(runner, task, named)
        found = array_of(task.where, gradient, last)
        given = lifted(found, last.over)
        module = task.kernels.of_color(last.element)
        _, marks, silhouettes, faces, position, image = last.args
        if image.grad_out is not None:
            kept = carrying(runner, task.device, last.over, last.element, given)
            runner.call(module["_spy_same"].bwds, image, _result=kept)
        task.kernels.add_silhouettes(runner, last.element, (marks, silhouettes, faces, position, image), given)
        return found
