"""Rasterize: the step that finds which point of which triangle each pixel shows."""

from __future__ import annotations

from typing import Any

from slangpy_rt.core.checks import short_tracebacks, whole
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.wording import in_words
from slangpy_rt.graphics.runner import Runner
from slangpy_rt.graphics.step import Given, Last, Step, Task, pictures
from slangpy_rt.graphics.visibility import over

_MOST = 16384  # rows or columns, as of a Raster
_MOST_TRIANGLES = 1 << 24  # a float holds all numbers up to this one


@short_tracebacks("__call__")
class Rasterize(Step):
    """The step from corners and triangles to what each pixel shows; ``graphics.rasterize`` is one."""

    name = "rasterize"
    kinds = {"position": ("float4",), "behind": ("float4",)}  # noqa: RUF012 - nothing changes it

    def __call__(
        self, position: Any, faces: Any, size: Any, *, behind: Any = None, _result: Any = None, device: Any = None
    ) -> Any:
        """Find what each pixel of a picture shows.

        Parameters
        ----------
        position : array of float4, shape (corners,) or (pictures, corners)
            The corners in clip coordinates: x to the right and y up from -w to w, z from 0 to w.
        faces : array of int, shape (triangles, 3)
            The three corners of each triangle; 2^24 triangles at most. Those whose corners there are not are refused
            if it is a NumPy array, and are not drawn otherwise.
        size : tuple of int
            Rows and columns, 1 to 16384. Row 0 is the upper one.
        behind : array, optional
            What an earlier call returned: what is behind that is found.
        _result : Tensor, optional
            The array to write to.
        device : Device, optional
            The device for NumPy's arrays and for PyTorch's in host memory.

        Returns
        -------
        array of float4, shape (rows, columns) or (pictures, rows, columns)
            How much of its triangle's first and second corner a point has, its depth z / w, and the triangle's
            number, which counts from 1. All four are 0 where there is no triangle. The first three have derivatives.

        Raises
        ------
        BindError
            If an argument does not fit.
        ShapeError
            If shapes do not fit.
        """
        return self.call(self.given(position, faces, size, behind=behind), _result, device)

    def given(self, position: Any, faces: Any, size: Any, *, behind: Any = None) -> Given:
        """Return the arguments of a call.

        Raises
        ------
        BindError
            If size is none of a picture.
        """
        if not isinstance(size, (tuple, list)) or len(size) != 2:
            raise BindError(f"{self.name}: size is {in_words(size)}; rows and columns were expected, as (512, 512).")
        sides = tuple(whole(self.name, f"size[{k}]", n, 1, _MOST) for k, n in enumerate(size))
        return Given(faces, sides, {"position": position} | ({} if behind is None else {"behind": behind}))

    def last(self, runner: Runner, task: Task, named: dict[str, Any]) -> Last:
        """Find the words of the pixels, and return the call that finds the points."""
        position, behind = named["position"], named.get("behind")
        size = task.settings
        front = pictures(task.where, "position", position, 1, "corners")
        flat = position if front else position[None]
        triangles = task.triangles(flat.shape[1])
        if triangles.count > _MOST_TRIANGLES:
            raise ShapeError(
                f"{task.where}: faces has {triangles.count} triangles; at most {_MOST_TRIANGLES} were expected."
            )
        nearer = None
        if behind is not None:
            if behind.shape != (*front, *size):
                raise ShapeError(f"{task.where}: behind has shape {behind.shape}; {(*front, *size)} was expected.")
            points = behind if front else behind[None]
            nearer = task.kernels.of_points(runner, flat.detach(), triangles, None, points.detach())
        words = task.kernels.seen(runner, flat.detach(), triangles, size, False, nearer).visibility.words
        shape = (flat.shape[0], *size)
        function = task.kernels.steps_of("float4")["_spy_seen"]
        return Last(function, (over(shape), words, triangles.faces, flat), (*front, *size), shape, "float4")
