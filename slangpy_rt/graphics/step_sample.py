"""Sample: the step that looks pictures up at places."""

from __future__ import annotations

from typing import Any

import numpy as np

from slangpy_rt.core.checks import flag, short_tracebacks
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.wording import in_words
from slangpy_rt.graphics.image import Image, check_shape, modes, value_of
from slangpy_rt.graphics.pyramid import Pyramid, sampling
from slangpy_rt.graphics.runner import Runner
from slangpy_rt.graphics.step import COLORS, Given, Last, Step, Task


@short_tracebacks("__call__")
class Sample(Step):
    """The step from places to colors of a picture; ``graphics.sample`` is one."""

    name = "sample"
    kinds = {"image": COLORS, "uv": ("float2", "float3"), "level": ("float",)}  # noqa: RUF012 - nothing changes it
    scalars = ("level",)

    def __call__(
        self,
        image: Any,
        uv: Any,
        level: Any = None,
        *,
        wrap: Any = None,
        filter: str | None = None,
        mips: bool | None = None,
        _result: Any = None,
        device: Any = None,
    ) -> Any:
        """Look a picture up at places.

        Parameters
        ----------
        image : Image, or array of float to float4, shape (rows, columns) or (6, n, n)
            The picture. (0, 0) is the corner of its first texel. Six pictures are the faces of a cube: see ``Image``.
        uv : array of float2, or of float3 for a cube
            The places, or the directions, in an array of any shape.
        level : array of float, or float, optional
            Which of the smaller levels to take at each place, and between two of them a mixture; of the shape of
            ``uv``. The largest one unless given.
        wrap : str or tuple of str, optional
            What lies beside the picture, as for ``Image``: ``"repeat"`` unless given. An Image has its own.
        filter : str, optional
            ``"linear"``, unless given, or ``"nearest"``. An Image has its own.
        mips : bool, optional
            Whether there are smaller levels. By default they are made where a level is given. An Image has its own.
        _result : Tensor, optional
            The array to write to.
        device : Device, optional
            The device for NumPy's arrays and for PyTorch's in host memory.

        Returns
        -------
        array
            The color of each place, of the shape of ``uv``.

        Raises
        ------
        BindError
            If an argument does not fit.
        ShapeError
            If shapes do not fit.
        """
        return self.call(self.given(image, uv, level, wrap=wrap, filter=filter, mips=mips), _result, device)

    def given(
        self, image: Any, uv: Any, level: Any = None, *, wrap: Any = None, filter: Any = None, mips: Any = None
    ) -> Given:
        """Return the arguments of a call.

        Raises
        ------
        BindError
            If settings do not fit, or an Image has some of its own.
        """
        named = {"image": image, "uv": uv}
        if level is not None:
            named["level"] = float(level) if isinstance(level, (np.floating, np.integer)) else level
        if isinstance(image, Image):
            for name, value in (("wrap", wrap), ("filter", filter), ("mips", mips)):
                if value is not None:
                    raise BindError(
                        f"{self.name}: {name} is {in_words(value)}; an Image has its own, so leave it out."
                    )
            return Given(None, (), named)
        wraps, number = modes(self.name, "repeat" if wrap is None else wrap, "linear" if filter is None else filter)
        levels = level is not None if mips is None else flag(self.name, "mips", mips)
        return Given(None, (tuple(wraps), number, levels), named)

    def last(self, runner: Runner, task: Task, named: dict[str, Any]) -> Last:
        """Make the smaller levels, and return the call that looks up."""
        image, uv, level = named["image"], named["uv"], named.get("level")
        if not isinstance(level, (int, float, type(None))) and level.shape != uv.shape:
            raise ShapeError(f"{task.where}: level has shape {level.shape}; that of uv, {uv.shape}, was expected.")
        after = None
        if isinstance(image, Image):
            value, kind = image.get_this(), image.texels.dtype.name
        else:
            wrap, filter, mips = task.settings
            check_shape(task.where, "image", image.shape)
            pyramid, kind = Pyramid(runner, image, mips), image.dtype.name
            value = value_of(pyramid, list(wrap), filter)
            if pyramid.is_copy and image.grad_out is not None:

                def after() -> None:
                    pyramid.gather(runner)
                    antialias = task.kernels.of_color(kind)
                    runner.call(antialias["_spy_same"].bwds, image, _result=pyramid.base)

        cube = len((image.texels if isinstance(image, Image) else image).shape) == 3
        places = "float3" if cube else "float2"
        if uv.dtype.name != places:
            raise BindError(
                f"{task.where}: uv has elements of {uv.dtype.name}; of {places} were expected for {in_words(image)}."
            )
        function = sampling(task.device, cube)["_spy_looked"]
        args = (value, uv) if level is None else (value, uv, level)
        return Last(function, args, uv.shape, uv.shape, kind, after)
