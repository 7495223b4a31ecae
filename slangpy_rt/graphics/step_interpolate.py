"""Interpolate: the step that finds corners' values at the points that pixels show."""

from __future__ import annotations

from typing import Any

from slangpy_rt.core.checks import short_tracebacks
from slangpy_rt.core.errors import ShapeError
from slangpy_rt.graphics.runner import Runner
from slangpy_rt.graphics.step import COLORS, Given, Last, Step, Task, pictures
from slangpy_rt.graphics.visibility import over


@short_tracebacks("__call__")
class Interpolate(Step):
    """The step from values of corners to values of pixels; ``graphics.interpolate`` is one."""

    name = "interpolate"
    kinds = {"values": COLORS, "seen": ("float4",)}  # noqa: RUF012 - nothing changes it

    def __call__(self, values: Any, seen: Any, faces: Any, *, _result: Any = None, device: Any = None) -> Any:
        """Find the values of corners at the points that pixels show, with perspective.

        Parameters
        ----------
        values : array of float to float4, shape (corners,) or (pictures, corners)
            Of each corner. Without a dimension of pictures they are those of each picture.
        seen : array of float4, shape (rows, columns) or (pictures, rows, columns)
            What ``rasterize`` returned.
        faces : array of int, shape (triangles, 3)
            The triangles that it was given.
        _result : Tensor, optional
            The array to write to.
        device : Device, optional
            The device for NumPy's arrays and for PyTorch's in host memory.

        Returns
        -------
        array
            The value of each pixel, of the shape of ``seen``; 0 where there is no triangle.

        Raises
        ------
        BindError
            If an argument does not fit.
        ShapeError
            If shapes do not fit.
        """
        return self.call(self.given(values, seen, faces), _result, device)

    def given(self, values: Any, seen: Any, faces: Any) -> Given:
        """Return the arguments of a call."""
        return Given(faces, (), {"values": values, "seen": seen})

    def last(self, runner: Runner, task: Task, named: dict[str, Any]) -> Last:
        """Return the call that finds the values."""
        values, seen = named["values"], named["seen"]
        front = pictures(task.where, "seen", seen, 2, "rows, columns")
        own = pictures(task.where, "values", values, 1, "corners")
        if own and own not in (front or (1,), (1,)):
            raise ShapeError(f"{task.where}: values has {own[0]} pictures, and seen {(front or (1,))[0]}.")
        points, flat = seen if front else seen[None], values if own else values[None]
        kind = values.dtype.name
        function = task.kernels.steps_of(kind)["_spy_interpolated"]
        args = over(points.shape), points, task.triangles(flat.shape[1]).faces, flat
        return Last(function, args, seen.shape, points.shape, kind)
