"""Image: a picture in a Tensor that Slang functions sample as a texture, with gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

from slangpy_rt.arrays.operators import RECORDER
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.checks import flag, short_tracebacks
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.shapes import as_shape
from slangpy_rt.core.wording import in_words
from slangpy_rt.graphics.pyramid import Pyramid
from slangpy_rt.graphics.runner import Runner
from slangpy_rt.runtime.pickling import check_state, damaged, reads

_TYPES = {"float": "Image1", "float2": "Image2", "float3": "Image3", "float4": "Image"}
_CUBES = {"float": "ImageCube1", "float2": "ImageCube2", "float3": "ImageCube3", "float4": "ImageCube"}
_WRAPS = ("repeat", "mirror", "clamp", "border")
_FILTERS = ("nearest", "linear")


@short_tracebacks("__init__", "update", "backward")
class Image:
    """A picture in a Tensor that Slang functions sample, with gradients of texels, places and levels.

    It is passed for parameters of the types ``Image`` (of float4), ``Image3``, ``Image2`` and ``Image1``, which
    ``import sampling;`` brings. Six pictures around a place, of shape ``(6, n, n)``, are passed for ``ImageCube``,
    ``ImageCube3``, ``ImageCube2`` and ``ImageCube1``, which ``import cubes;`` brings.

    Parameters
    ----------
    texels : Tensor
        Elements of float, float2, float3 or float4, of shape ``(rows, columns)`` or ``(6, n, n)``, the faces of a
        cube in the order +x, -x, +y, -y, +z, -z. A contiguous one without smaller levels is used in place; others are
        copied; a copy's gradient begins at 0.
    wrap : str or tuple of str
        What lies beside the picture: ``"repeat"``, ``"mirror"``, ``"clamp"`` or ``"border"``, which is 0; one of
        them, or one for columns and one for rows. Beside a face of a cube is the next one, whatever this says.
    filter : str
        ``"linear"`` mixes the four nearest texels, ``"nearest"`` takes one.
    mips : bool
        Whether there are smaller levels, each of half the size, down to one texel. A texel is the mean of those that
        it covers: of two by two, and where a size is odd of parts of three.

    Raises
    ------
    BindError
        If a parameter is of a wrong type.
    ShapeError
        If the Tensor has no texels, or other dimensions.

    Attributes
    ----------
    texels : Tensor
        The largest level, in the shape of the Tensor given; with gradients if the Tensor given had some. With smaller
        levels, write to this one, and call ``update``.
    """

    def __init__(self, texels: Tensor, wrap: Any = "repeat", filter: str = "linear", mips: bool = False) -> None:
        if not isinstance(texels, Tensor) or texels.dtype.name not in _TYPES:
            raise BindError(
                f"Image: texels is {in_words(texels)}; a Tensor of float, float2, float3 or float4 was expected."
            )
        check_shape("Image", "texels", texels.shape)
        self._wrap, self._filter = modes("Image", wrap, filter)
        self._pyramid = Pyramid(Runner(), texels, flag("Image", "mips", mips))
        self.texels: Any = self._pyramid.base
        recorder = RECORDER.get()
        if recorder is not None and self._pyramid.is_copy and texels.grad_out is not None:
            recorder.note((texels,), (self.texels,), partial(_add, texels.grad_out, self.texels.grad_out))

    def __getstate__(self) -> dict[str, Any]:
        state = {n: v for n, v in self.__dict__.items() if n not in ("_pyramid", "_wrap", "_filter", "texels")}
        wrap = tuple([_WRAPS[k] for k in self._wrap])
        return {**state, "_again": (wrap, _FILTERS[self._filter], *self._pyramid.state)}

    @reads("an Image")
    def __setstate__(self, state: Any) -> None:
        state = check_state("an Image", state, ("_again",))
        again = state["_again"]
        if not isinstance(again, tuple) or len(again) != 5:
            raise damaged("an Image", f"it holds {in_words(again)}; a tuple of five items was expected")
        wrap, filter, texels, shape, mips = again
        mips = flag("pickle", "mips", mips)
        if not isinstance(texels, Tensor) or texels.dtype.name not in _TYPES:
            raise damaged("an Image", f"its texels are {in_words(texels)}")
        check_shape("pickle", "texels", as_shape("pickle", shape))
        self.__dict__.update({name: value for name, value in state.items() if name != "_again"})
        self._wrap, self._filter = modes("pickle", wrap, filter)
        self._pyramid = Pyramid.of(texels, shape, mips)
        self.texels = self._pyramid.base

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return len(self._pyramid.sizes)

    def _repr_png_(self) -> bytes | None:
        """Return a PNG of the largest level, for notebooks, as the Tensor does."""
        made: bytes | None = self.texels._repr_png_()
        return made

    def update(self) -> None:
        """Make the smaller levels of the largest one, after it was written to."""
        self._pyramid.shrink(Runner())

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
        self._pyramid.gather(Runner())
        for k in range(1, self.levels):
            self._pyramid.level(k).grad.clear()

    def get_this(self) -> dict[str, Any]:
        """Return the value for a parameter of a Slang function."""
        recorder = RECORDER.get()
        if recorder is not None and self.levels > 1 and self.texels.grad_out is not None:
            # After the derivatives of the calls that take this value.
            recorder.note((self.texels,), (self._pyramid.chain,), self.backward)
        return value_of(self._pyramid, self._wrap, self._filter)

    def gradient_of_this(self, gradient: dict[str, Any]) -> dict[str, Any]:
        """Return the gradient of ``get_this``'s value as that of ``texels``, in their shape."""
        total = gradient["texels"]
        self._pyramid.gather(Runner(), self._pyramid.chain.detach().with_grads(total, total))
        return {"texels": self._pyramid.level(0, total)}

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self._pyramid.sizes[0]))
        levels = f", {self.levels} levels" if self.levels > 1 else ""
        return f"<Image of {shape} texels of {self.texels.dtype.name}{levels}>"


def _add(total: Any, own: Any) -> None:
    """Add the gradient of copied texels to that of the Tensor that they were copied from."""
    total += own


def value_of(pyramid: Pyramid, wrap: list[int], filter: int) -> dict[str, Any]:
    """Return the value of a Slang parameter that samples a picture."""
    *faces, rows, columns = pyramid.sizes[0]
    if faces:
        return {
            "_type": _CUBES[pyramid.chain.dtype.name], "texels": pyramid.chain, "size": rows,
            "levels": len(pyramid.sizes), "filter": filter,
        }  # fmt: skip
    return {
        "_type": _TYPES[pyramid.chain.dtype.name], "texels": pyramid.chain, "size": [columns, rows],
        "levels": len(pyramid.sizes), "wrap": wrap, "filter": filter,
    }  # fmt: skip


def check_shape(where: str, name: str, shape: tuple[int, ...]) -> None:
    """Refuse shapes of texels that no picture has.

    Raises
    ------
    ShapeError
        If it is neither ``(rows, columns)`` nor ``(6, n, n)``, or has a 0.
    """
    if 0 in shape or not (len(shape) == 2 or (len(shape) == 3 and shape[0] == 6 and shape[1] == shape[2])):
        raise ShapeError(
            f"{where}: {name} has shape {shape}; (rows, columns), both above 0, or (6, n, n) for a cube was expected."
        )


def modes(where: str, wrap: Any, filter: Any) -> tuple[list[int], int]:
    """Return the numbers of what lies beside a picture, for columns and for rows, and that of a filter.

    Raises
    ------
    BindError
        If there are no such ones.
    """
    wraps = (wrap, wrap) if isinstance(wrap, str) else wrap
    known = isinstance(wraps, (tuple, list)) and all(isinstance(w, str) and w in _WRAPS for w in wraps)
    if not known or len(wraps) != 2:
        raise BindError(f"{where}: wrap is {in_words(wrap)}; one or two of {', '.join(_WRAPS)} were expected.")
    if not isinstance(filter, str) or filter not in _FILTERS:
        raise BindError(f"{where}: filter is {in_words(filter)}; 'nearest' or 'linear' was expected.")
    return [_WRAPS.index(w) for w in wraps], _FILTERS.index(filter)
