"""Image: a picture in a Tensor that Slang functions sample as a texture, with gradients."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arguments.indices import grid
from slangpy_rt.arguments.vectors import int2
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.core.checks import flag
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.wording import in_words

_TYPES = {"float": "Image1", "float2": "Image2", "float3": "Image3", "float4": "Image"}
_WRAPS = ("repeat", "mirror", "clamp", "border")
_FILTERS = ("nearest", "linear")


class Image:
    """A picture in a Tensor that Slang functions sample, with gradients of texels, places and levels.

    It is passed for parameters of the types ``Image`` (of float4), ``Image3``, ``Image2`` and ``Image1``, which
    ``import sampling;`` brings.

    Parameters
    ----------
    texels : Tensor
        Elements of float, float2, float3 or float4, of shape ``(rows, columns)``. A contiguous one
        without smaller levels is used in place; others are copied; a copy's gradient begins at 0.
    wrap : str or tuple of str
        What lies beside the picture: ``"repeat"``, ``"mirror"``, ``"clamp"`` or ``"border"``, which is 0; one of
        them, or one for columns and one for rows.
    filter : str
        ``"linear"`` mixes the four nearest texels, ``"nearest"`` takes one.
    mips : bool
        Whether there are smaller levels, each texel the mean of two by two, down to one texel.

    Raises
    ------
    BindError
        If a parameter is of a wrong type.
    ShapeError
        If the Tensor has no texels, or other dimensions.

    Attributes
    ----------
    texels : Tensor
        The largest level, of shape ``(rows, columns)``; with gradients if the Tensor given had some. With smaller
        levels, write to this one, and call ``update``.
    """

    def __init__(self, texels: Tensor, wrap: Any = "repeat", filter: str = "linear", mips: bool = False) -> None:
        if not isinstance(texels, Tensor) or texels.dtype.name not in _TYPES:
            raise BindError(
                f"Image: texels is {in_words(texels)}; a Tensor of float, float2, float3 or float4 was expected."
            )
        if len(texels.shape) != 2 or 0 in texels.shape:
            raise ShapeError(f"Image: texels has shape {texels.shape}; (rows, columns), both above 0, was expected.")
        wraps = (wrap, wrap) if isinstance(wrap, str) else wrap
        if not isinstance(wraps, (tuple, list)) or len(wraps) != 2 or any(w not in _WRAPS for w in wraps):
            raise BindError(f"Image: wrap is {in_words(wrap)}; one or two of {', '.join(_WRAPS)} were expected.")
        if not isinstance(filter, str) or filter not in _FILTERS:
            raise BindError(f"Image: filter is {in_words(filter)}; 'nearest' or 'linear' was expected.")
        self._wrap = [_WRAPS.index(w) for w in wraps]
        self._filter = _FILTERS.index(filter)
        self._sizes = _sizes(texels.shape) if flag("Image", "mips", mips) else [texels.shape]
        if len(self._sizes) == 1 and texels.is_contiguous:
            self._chain: Any = texels.view(texels.shape[0] * texels.shape[1])
            self.texels: Any = texels
            return
        chain: Any = Tensor.empty(texels.device, sum(r * c for r, c in self._sizes), texels.dtype)
        self._chain = chain if texels.grad_out is None else chain.with_grads()
        self.texels = self._level(0)
        self.texels.copy_from(texels)
        self.update()

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return len(self._sizes)

    def update(self) -> None:
        """Make the smaller levels of the largest one, after it was written to."""
        for k, (rows, columns) in enumerate(self._sizes[:-1]):
            shape = self._sizes[k + 1]
            self._smaller(
                grid(shape), int2(columns, rows), self._part(k).detach(), _result=self._level(k + 1).detach()
            )

    def backward(self) -> None:
        """Add the gradients of the smaller levels to that of the largest, and set them to 0.

        Call it after ``bwds``, before the gradient of ``texels`` is used.

        Raises
        ------
        BindError
            If the texels have no gradient.
        """
        if self.texels.grad_out is None:
            raise BindError("Image.backward: the texels have no gradient; make the Image of a Tensor with_grads().")
        for k in range(len(self._sizes) - 2, -1, -1):
            rows, columns = self._sizes[k]
            below = self._level(k + 1)
            self._smaller.bwds(grid(below.shape), int2(columns, rows), self._part(k), _result=below)
            below.grad.clear()

    def get_this(self) -> dict[str, Any]:
        """Return the value for a parameter of a Slang function."""
        rows, columns = self._sizes[0]
        return {
            "_type": _TYPES[self.texels.dtype.name], "texels": self._chain, "size": [columns, rows],
            "levels": self.levels, "wrap": self._wrap, "filter": self._filter,
        }  # fmt: skip

    def __repr__(self) -> str:
        rows, columns = self._sizes[0]
        levels = f", {self.levels} levels" if self.levels > 1 else ""
        return f"<Image of {rows} x {columns} texels of {self.texels.dtype.name}{levels}>"

    def _part(self, level: int) -> Any:
        """Return the texels of a level as they lie in the Tensor of all levels."""
        first = sum(r * c for r, c in self._sizes[:level])
        rows, columns = self._sizes[level]
        return self._chain[first : first + rows * columns]

    def _level(self, level: int) -> Any:
        return self._part(level).view(self._sizes[level])

    @property
    def _smaller(self) -> Any:
        device = self.texels.device
        module: Any = device.once("sampling", lambda: Module.load_from_file(device, "sampling.slang"))
        return module["_spy_smaller"]


def _sizes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return rows and columns of each level: half of those of the level before, rounded down, and 1 at least."""
    sizes = [shape]
    while max(sizes[-1]) > 1:
        rows, columns = sizes[-1]
        sizes.append((max(rows // 2, 1), max(columns // 2, 1)))
    return sizes
