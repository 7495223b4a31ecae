"""Raster: two functions of a module, one for corners and one for pixels, as one function that draws triangles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import converter
from slangpy_rt.arguments.indices import grid
from slangpy_rt.arguments.scope import ScopeOfUniforms
from slangpy_rt.arguments.vectors import int2
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.callee import Callee
from slangpy_rt.calls.function import Function
from slangpy_rt.calls.spelling import Spelling
from slangpy_rt.core.checks import flag, whole
from slangpy_rt.core.errors import BindError, CompileError, ShapeError
from slangpy_rt.core.types import FunctionSig
from slangpy_rt.core.wording import class_in_words, in_words, meant
from slangpy_rt.graphics.pixel_text import COLORS, Leaf, leaves_of, pixel_text
from slangpy_rt.graphics.triangles import Triangles, is_same
from slangpy_rt.graphics.visibility import Kernels, Visibility
from slangpy_rt.slang.declarations import find_overloads, gone
from slangpy_rt.slang.locate import shader_directory

_MOST = 16384  # rows or columns: places in 256ths of a pixel are then exact in a float
# Modifiers that say how one call runs; a picture has several.
_REFUSED = {"maps": "map", "named_maps": "map", "returns": "return_type", "conformances": "type_conformances",
            "derivative": "bwds or .fwds"}  # fmt: skip


class Raster:
    """A function that draws triangles; ``Function.raster`` makes it.

    Parameters
    ----------
    shade : Function
        The color of a point, float to float4: its first parameter is the struct that `project` returns.
    project : Function
        Where a corner is, and what else it has: a struct with the field ``float4 position``, in clip coordinates.
    size : tuple of int
        Rows and columns of the picture, 1 to 16384.
    background : number or sequence of numbers
        The color of pixels without a triangle.
    antialias : bool
        Whether pixels at silhouettes mix the colors on both sides. Without it pictures have no gradients of
        silhouettes, either.

    Raises
    ------
    BindError
        If the functions do not fit each other, or a parameter is of a wrong type.
    """

    def __init__(self, shade: Function, project: Any, size: Any, background: Any = 0, antialias: Any = True) -> None:
        self._where = where = f"{shade.name}.raster"
        if not isinstance(project, Function):
            raise BindError(f"{where}: project is {in_words(project)}; a function of the module was expected.")
        self._size = _checked_size(where, size)
        self._antialias = flag(where, "antialias", antialias)
        self._shade, self._project = Callee(shade), Callee(project)
        for callee in (self._shade, self._project):
            said = [name for option, name in _REFUSED.items() if getattr(callee.options, option)]
            if callee.stream is not None:
                said.append("stream")
            if said:
                raise BindError(
                    f"{where}: '{callee.function.name}' has .{said[0]}; the function itself was expected, with "
                    ".set(...), .constants(...) and .group_size(...) at most."
                )
        if self._project.scope is not self._shade.scope:
            raise BindError(
                f"{where}: '{project.name}' and '{shade.name}' are of different modules; they share a struct, so "
                "that both have to be of one."
            )
        self._signatures()
        self._background = _color(where, background, self._signatures()[0].returns.name)
        self._triangles: Triangles | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the picture."""
        return self._size

    def __call__(self, *, _faces: Any = None, _result: Any = None, **named: Any) -> Any:
        """Draw triangles.

        Parameters
        ----------
        _faces : Tensor or (F, 3) int array
            The three corners of each triangle. Both sides of a triangle are drawn.
        _result : Tensor, ``"tensor"`` or ``"numpy"``, optional
            The array to write the picture to, or the kind of a new one.
        **named
            The parameters of both functions by name. Those of `project` have the dimension of corners, if they have
            one; those of `shade` broadcast with the picture, whose dimensions are rows and columns.

        Returns
        -------
        Tensor or numpy.ndarray
            The picture, of shape `size`, with elements of the type that `shade` returns. It is a NumPy array if no
            argument is an array on a device.

        Raises
        ------
        BindError
            If an argument does not fit, or `_faces` names corners that there are not.
        ShapeError
            If shapes do not fit.
        """
        kind = _result if isinstance(_result, str) else None
        if kind not in (None, "tensor", "numpy") or not (kind or _result is None or isinstance(_result, Tensor)):
            raise BindError(
                f"{self._where}: _result is {in_words(_result)}; a Tensor, 'tensor' or 'numpy' was expected."
            )
        if isinstance(_result, Tensor):
            self._check_picture(self._where, _result)
        picture = _Drawn(self, _faces, named, gradients=False).antialiased(None if kind else _result)
        if kind is None and _result is None:
            kind = "tensor" if any(_on_device(value) for value in (_faces, *named.values())) else "numpy"
        return picture.to_numpy() if kind == "numpy" else picture

    def bwds(self, *, _faces: Any = None, _result: Any = None, **named: Any) -> None:
        """Add the gradients of a picture to those of the arguments.

        Parameters
        ----------
        _faces, **named
            As for a call.
        _result : Tensor
            The picture, whose ``grad_in`` is the gradient to propagate back.

        Raises
        ------
        BindError
            If a function is not ``[Differentiable]``, `_result` has no gradient, or no argument has one to add to.
        """
        where = f"{self._where}.bwds"
        gradient = _result.grad_in if isinstance(_result, Tensor) else None
        if gradient is None:
            raise BindError(
                f"{where}: _result is {in_words(_result)}; a picture with a gradient was expected, as "
                "with_grads() makes it."
            )
        self._check_picture(where, _result)
        if not any(_has_gradient(value) for value in named.values()):
            raise BindError(f"{where}: no argument has a gradient to add to; with_grads() makes one.")
        shade, project, _ = self._signatures()
        self._shade.check_differentiable(shade, ".bwds")
        if any(_has_gradient(named.get(p.name)) for p in project.params):
            self._project.check_differentiable(project, ".bwds")
        _Drawn(self, _faces, named, gradients=True).propagate(gradient)

    def __repr__(self) -> str:
        rows, columns = self._size
        project, shade = self._project.function.name, self._shade.function.name
        return f"<draws triangles by {project} and {shade} on {rows} rows of {columns} pixels>"

    def _check_picture(self, where: str, picture: Tensor) -> None:
        color, device = self._signatures()[0].returns.name, self._shade.scope.device
        if picture.device is not device:
            raise BindError(f"{where}: _result is of {picture.device!r}; the module is on {device!r}.")
        if picture.shape != self._size or picture.dtype.name != color:
            raise ShapeError(
                f"{where}: _result is {in_words(picture)}; a Tensor<{color}> of shape {self._size} was expected."
            )

    def _signatures(self) -> tuple[FunctionSig, FunctionSig, tuple[Leaf, ...]]:
        """Return the declarations of both functions, as they are in the text now, and the leaves of their struct."""
        where = self._where
        self._shade.scope.look()
        shade, project = (_only(where, callee) for callee in (self._shade, self._project))
        source = self._shade.scope.source
        if source.statics:
            raise BindError(
                f"{where}: its module may change static variables, which would keep their values from one pixel to "
                "the next; use parameters and local variables instead."
            )
        for sig in (shade, project):
            for p in sig.params:
                if p.direction != "in":
                    raise BindError(f"{where}: {sig} writes its parameter '{p.name}'; a picture is its result alone.")
        leaves = leaves_of(f"{where}: {project}", self._shade.scope.struct(project.returns))
        if not shade.params or shade.params[0].type.name != project.returns.name:
            raise BindError(
                f"{where}: the first parameter of {shade} was expected to be {project.returns.name}, which "
                f"'{project.name}' returns."
            )
        if shade.returns.name not in COLORS:
            raise BindError(f"{where}: {shade} was expected to return one of {', '.join(COLORS)}.")
        types = {p.name: p.type.name for p in project.params}
        for p in shade.params[1:]:
            if types.get(p.name, p.type.name) != p.type.name:
                raise BindError(
                    f"{where}: '{p.name}' is {types[p.name]} in {project} and {p.type.name} in {shade}; give one of "
                    "them another name."
                )
        return shade, project, leaves

    def _pixel(self, shade: FunctionSig, leaves: tuple[Leaf, ...]) -> Any:
        """Return the function that pixels call, made once for the module's text."""
        scope, options = self._shade.scope, self._shade.options
        source = scope.source
        key = ("raster", source.digest, shade, leaves, repr(options.constants), options.group)
        found = scope.ready.get(key)
        if found is None:
            folder = Path(shader_directory())
            texts = {
                "_spy_raster": (folder / "_spy_raster.slang").read_text("utf-8"),
                "_spy_pixel": pixel_text(Spelling(str(shade), source), source.name, shade, leaves),
            }
            try:
                made = source.followed_by(texts, dict(options.constants))
            except CompileError as error:
                internal = "is not accessible from the current context" in str(error)
                hint = " It is internal to its module; write 'public' in front of it." * internal
                raise CompileError(f"{self._where}: pixels cannot call {shade}.{hint}\n{error}") from error
            inner = ScopeOfUniforms(scope.device, made, source)
            # The user knows none of its other parameters.
            sigs = tuple(replace(sig, title=f"{self._where}: {shade}") for sig in find_overloads(made, "_spy_pixel"))
            found = Function(inner, "_spy_pixel", sigs)
            if options.group:
                found = found.group_size(options.group)
            found = scope.ready.setdefault(key, found)
        values = dict(zip(options.uniforms, self._shade.values, strict=True))
        return found.set(values) if values else found


class _Drawn:
    """One picture, as far as its colors before silhouettes are mixed."""

    def __init__(self, raster: Raster, faces: Any, named: dict[str, Any], gradients: bool) -> None:
        where, device = raster._where, raster._shade.scope.device
        shade, project, leaves = raster._signatures()
        ours = [p.name for p in project.params]
        theirs = [p.name for p in shade.params[1:]]
        known = list(dict.fromkeys(ours + theirs))
        for name in named:
            if name not in known:
                raise BindError(
                    f"{where}: there is no parameter '{name}'; the functions have {', '.join(known) or 'none'}."
                    f"{meant(name, known)}"
                )
        for name, value in named.items():
            if isinstance(converter(type(value)), Adapter):
                raise BindError(
                    f"{where}: '{name}' is {class_in_words(value)}; pictures take Tensors, and "
                    "Tensor.from_dlpack(device, array) makes one of the same memory."
                )
        if faces is None:
            raise BindError(f"{where}: argument _faces is missing; it has the three corners of each triangle.")
        self._of_project = {name: value for name, value in named.items() if name in ours}
        self._of_shade = {name: value for name, value in named.items() if name in theirs}
        self._project = raster._project.function
        self._moves = gradients and any(_has_gradient(value) for value in self._of_project.values())
        self._corners: Any = self._project(**self._of_project, _result="tensor")
        if len(self._corners.shape) != 1:
            raise ShapeError(
                f"{where}: {project} is called over shape {self._corners.shape}; one dimension, that of the corners, "
                "was expected."
            )
        if self._moves:
            self._corners = self._corners.with_grads()
        if not is_same(raster._triangles, where, device, faces):
            raster._triangles = Triangles(where, device, faces)
        triangles = raster._triangles
        assert triangles is not None
        triangles.check(where, self._corners.shape[0])
        views = [_field(self._corners, leaf.path) for leaf in leaves]
        self._position = views[0]
        kernels: Kernels = device.once("graphics", lambda: Kernels(device))
        self._visibility: Visibility = kernels.seen(self._position, triangles, raster.size, raster._antialias)
        self._kernels = kernels.of_color(shade.returns.name) if raster._antialias else None
        self._pixel = raster._pixel(shade, leaves)
        rows, columns = raster.size
        self._placed = (
            grid(raster.size),
            int2(columns, rows),
            self._visibility.words,
            triangles.faces,
            raster._background,
            *views,
        )

    def antialiased(self, result: Any) -> Any:
        """Return the picture, which is written to `result` if that is given."""
        if self._kernels is None:
            return self._pixel(*self._placed, **self._of_shade, _result="tensor" if result is None else result)
        image = self._shaded()
        blended = self._kernels["_spy_same"](image, _result="tensor" if result is None else result)
        blended = result if blended is None else blended
        pairs = self._visibility.pairs
        each = grid((len(pairs),))
        addends = self._kernels["_spy_addend"](each, pairs, self._position, image, _result="tensor")
        self._kernels["_spy_blend"](each, addends, pairs, self._position, blended)
        return blended

    def propagate(self, gradient: Tensor) -> None:
        """Add the gradients of the picture to those of the arguments."""
        image = self._shaded().with_grads()
        if self._kernels is None:
            image = image.with_grads(grad_in=gradient)
        else:
            self._kernels["_spy_same"](gradient, _result=image.grad)
            pairs = self._visibility.pairs
            each = grid((len(pairs),))
            addend = Tensor.empty(image.device, len(pairs), image.dtype).with_grads()
            self._kernels["_spy_addendGradient"](each, pairs, self._position, gradient, _result=addend.grad)
            self._kernels["_spy_addend"].bwds(each, pairs, self._position, image, _result=addend)
        if self._moves or any(_has_gradient(value) for value in self._of_shade.values()):
            self._pixel.bwds(*self._placed, **self._of_shade, _result=image)
        if self._moves:
            self._project.bwds(**self._of_project, _result=self._corners)

    def _shaded(self) -> Any:
        return self._pixel(*self._placed, **self._of_shade, _result="tensor")


def _checked_size(where: str, size: Any) -> tuple[int, int]:
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        raise BindError(f"{where}: size is {in_words(size)}; rows and columns were expected, such as (512, 512).")
    rows, columns = (whole(where, f"size[{k}]", n, 1, _MOST) for k, n in enumerate(size))
    return rows, columns


def _color(where: str, background: Any, color: str) -> Any:
    width = int(color[5:] or 1)
    try:
        numbers = np.asarray(background, dtype=np.float32)
    except (TypeError, ValueError):
        numbers = np.zeros((0, 0), np.float32)
    if numbers.shape not in ((), (width,)):
        raise BindError(f"{where}: background is {in_words(background)}; a number was expected, or {width} of them.")
    values = np.broadcast_to(numbers, width)
    return float(values[0]) if width == 1 else [float(x) for x in values]


def _only(where: str, callee: Callee) -> FunctionSig:
    overloads = callee.overloads
    if not overloads:
        raise gone(callee.function.name, callee.scope.source)
    if len(overloads) > 1:
        raise BindError(f"{where}: '{overloads[0].name}' has {len(overloads)} declarations; give one another name.")
    if overloads[0].generics:
        raise BindError(
            f'{where}: {overloads[0]} is generic; name its arguments, as in module["{overloads[0].name}<float>"].'
        )
    return overloads[0]


def _field(array: Any, path: Iterable[str]) -> Any:
    for name in path:
        array = array[name]
    return array


def _on_device(value: Any) -> bool:
    return any(isinstance(part, NDBuffer) for part in _parts(value))


def _has_gradient(value: Any) -> bool:
    return any(isinstance(part, Tensor) and part.grad_out is not None for part in _parts(value))


def _parts(value: Any) -> Iterable[Any]:
    """Return a value, or all that dicts, tuples and lists hold."""
    if isinstance(value, dict):
        return [part for item in value.values() for part in _parts(item)]
    if isinstance(value, (tuple, list)):
        return [part for item in value for part in _parts(item)]
    return [value]
