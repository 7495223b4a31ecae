"""Raster: two functions of a module, one for corners and one for pixels, as one function that draws triangles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import converter
from slangpy_rt.arguments.stand_ins import ask, note_on
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.operators import RECORDER
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.core.checks import flag, short_tracebacks, whole
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.shapes import Shape
from slangpy_rt.core.wording import class_in_words, in_words, meant
from slangpy_rt.graphics.drawn import Drawn, Found, Settings, has_gradient, has_tangent, parts
from slangpy_rt.graphics.kept import Kept, Known, arrays_beside, signed
from slangpy_rt.graphics.planner import Planner
from slangpy_rt.graphics.recorded import recorded, values_of
from slangpy_rt.graphics.runner import Runner
from slangpy_rt.graphics.stages import Declarations, Stages
from slangpy_rt.graphics.triangles import Triangles
from slangpy_rt.graphics.visibility import kernels_of
from slangpy_rt.runtime.stream import Stream

_MOST = 16384  # rows or columns: places in 256ths of a pixel are then exact in a float
_MOST_LAYERS = 64
# Methods that other packages of the library call.
_INTERNAL = {"check_differentiable", "faces_of", "run", "uniforms", "where"}


@short_tracebacks("__init__", "__call__")
class Raster:
    """A function that draws triangles; ``Function.raster`` makes it.

    Parameters
    ----------
    shade : Function
        The color of a point, float to float4: its first parameter is the struct that `project` returns, or a
        ``Fragment`` of it.
    project : Function
        Where a corner is, and what else it has: a struct with the field ``float4 position``, in clip coordinates.
    size : tuple of int
        Rows and columns of the picture, 1 to 16384.
    background : number or sequence of numbers
        The color of pixels without a triangle.
    antialias : bool
        Whether pixels at silhouettes mix the colors on both sides. Without it pictures have no gradients of
        silhouettes, either.
    layers : int, optional
        How many surfaces behind each other to draw, 1 to 64; the picture then has a first dimension for them, the
        nearest first.

    Raises
    ------
    BindError
        If the functions do not fit each other, or a parameter is of a wrong type.
    """

    def __init__(
        self,
        shade: Any,
        project: Any,
        size: Any,
        background: Any = 0,
        antialias: Any = True,
        layers: Any = None,
    ) -> None:
        where = f"{shade.name}.raster"
        if not isinstance(size, (tuple, list)) or len(size) != 2:
            raise BindError(f"{where}: size is {in_words(size)}; rows and columns were expected, such as (512, 512).")
        rows, columns = (whole(where, f"size[{k}]", n, 1, _MOST) for k, n in enumerate(size))
        flag(where, "antialias", antialias)
        if layers is not None:
            layers = whole(where, "layers", layers, 1, _MOST_LAYERS)
        self._stages = stages = Stages(shade, project)
        color = _color(where, background, stages.declarations().color)
        self._settings = Settings((rows, columns), color, antialias, layers)
        self._derivative = ""
        self._stream: Stream | None = None
        self._kept = Kept()

    @property
    def device(self) -> Any:
        """The device of the functions' module."""
        return self._stages.device

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the picture."""
        return self._settings.size

    @property
    def bwds(self) -> Raster:
        """The function that adds the gradients of a picture to those of the arguments.

        It is called with the picture as ``_result``, whose ``grad_in`` is the gradient to propagate back, and returns
        None.
        """
        return self._variant("backward")

    @property
    def fwds(self) -> Raster:
        """The function that draws a picture with its tangent: how it changes as arguments do by their ``grad_in``.

        It returns a Tensor whose ``grad`` is the tangent, or fills the one that it is given as ``_result``.
        """
        return self._variant("forward")

    def __call__(self, /, *, _faces: Any = None, _result: Any = None, **named: Any) -> Any:
        """Draw triangles.

        Parameters
        ----------
        _faces : Tensor or (F, 3) int array
            The three corners of each triangle. Both sides of a triangle are drawn.
        _result : Tensor, ``"tensor"`` or ``"numpy"``, optional
            The array to write the picture to, or the kind of a new one.
        **named
            The parameters of both functions by name. Those of `project` have the dimension of corners, if they have
            one, and before it that of pictures; those of `shade` broadcast with the pictures, whose last dimensions
            are rows and columns.

        Returns
        -------
        Tensor or numpy.ndarray
            The picture, of shape `size` with dimensions of layers and pictures in front where there are any, and
            elements of the type that `shade` returns. It is a NumPy array if no argument is an array on a device.

        Raises
        ------
        BindError
            If an argument does not fit, or `_faces` names corners that there are not.
        ShapeError
            If shapes do not fit.
        """
        for value in named.values():
            adapter = converter(type(value))
            if isinstance(adapter, Adapter) and adapter.draws and not self._derivative:
                if _result is not None:
                    raise BindError(
                        f"{self.where}: _result is {in_words(_result)}; the picture is a new one of the kind of "
                        f"{class_in_words(value)}, so leave _result out."
                    )
                if self._stream is not None:
                    raise BindError(
                        f"{self.where}: .stream is not for {class_in_words(value)}; such pictures are drawn on the "
                        "current stream of that library."
                    )
                return adapter.draw(self, _faces, named)
        recorder = None if self._derivative else RECORDER.get()
        if recorder is not None and has_gradient(named):
            if _result not in (None, "tensor"):
                raise BindError(
                    f"{self.where}: an argument carries a gradient, and a GradTape records new Tensors; leave "
                    "_result out, or pass tensor.detach()."
                )
            if self._stream is not None:
                raise BindError(
                    f"{self.where}: an argument carries a gradient, and a GradTape records what runs on the device "
                    "without a stream; leave .stream out, or pass tensor.detach()."
                )
            values, asked = ask(tuple(named.values()))
            note_on(recorder, asked)
            given = dict(zip(named, values, strict=True))
            return recorder.call(
                self,
                (),
                {"_faces": _faces, **given},
                lambda: self._called(Runner(), _faces, "tensor", given),
                tuple([value for _, value in self.uniforms]),
            )
        return self._called(Runner(stream=self._stream), _faces, _result, named)

    def stream(self, stream: Stream) -> Raster:
        """Return the same function, whose steps run on a stream.

        Raises
        ------
        BindError
            If it is no stream of the device.
        """
        if not isinstance(stream, Stream) or stream.device is not self.device:
            raise BindError(f"{self.where}.stream: {in_words(stream)} is no stream of {self.device!r}.")
        made = self._copy(self._derivative)
        made._stream = stream
        return made

    def append_to(self, commands: CommandList, /, *, _faces: Any = None, _result: Any = None, **named: Any) -> Any:
        """Record the steps of a picture in a command list instead of running them.

        Parameters
        ----------
        commands : CommandList
            A command list of the same device.
        _faces, _result, **named
            As for a call, but the arguments that are arrays have to be on the device.

        Returns
        -------
        Tensor or None
            The picture that the list will draw; None for ``bwds``.

        Raises
        ------
        BindError
            As a call does; also if an argument is a NumPy array.
        """
        if not isinstance(commands, CommandList) or commands.device is not self._stages.device:
            raise BindError(
                f"{self.where}.append_to: {in_words(commands)} is no command list of {self._stages.device!r}."
            )
        if self._stream is not None:
            raise BindError(
                f"{self.where}.append_to: .stream is for calls; a list is submitted to a stream as a whole."
            )
        first = len(commands.calls)
        kind = "tensor" if self._derivative != "backward" else None
        try:
            return self._called(Runner(commands), _faces, _result if _result is not None else kind, named)
        except BaseException:
            # Nothing is recorded if an argument does not fit.
            del commands.calls[first:]
            raise

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self)} - _INTERNAL)

    def __repr__(self) -> str:
        rows, columns = self._settings.size
        project, shade = self._stages.names
        what = {"": "draws triangles", "backward": "gradients of triangles", "forward": "tangents of triangles"}
        return f"<{what[self._derivative]} by {project} and {shade} on {rows} rows of {columns} pixels>"

    @property
    def uniforms(self) -> tuple[tuple[str, Any], ...]:
        """The names and values of the functions' uniforms; only the library reads this."""
        return self._stages.uniforms

    @property
    def where(self) -> str:
        """The name for messages; only the library reads this."""
        return self._stages.where + {"": "", "backward": ".bwds", "forward": ".fwds"}[self._derivative]

    def _variant(self, derivative: str) -> Raster:
        if self._derivative:
            raise BindError(f"{self.where}: a derivative has no derivatives.")
        return self._copy(derivative)

    def _copy(self, derivative: str) -> Raster:
        made = object.__new__(Raster)
        made._stages, made._settings, made._kept = self._stages, self._settings, self._kept
        made._derivative, made._stream = derivative, self._stream
        return made

    def run(
        self, runner: Runner, faces: Any, named: dict[str, Any], result: Tensor | Callable[[Shape, str], Tensor]
    ) -> Tensor | None:
        """Run the steps of a picture or of its derivative; only the library calls this.

        Parameters
        ----------
        result : Tensor or callable
            The picture, or a function that makes it, of a shape and an element type; for ``bwds`` its gradient.
        """
        if runner.commands is not None:
            return self._recorded(runner, runner.commands, faces, named, result)
        # The steps of earlier calls of the same signature are repeated.
        named, key = signed(self._derivative, named)
        known, age = self._kept.known.get(key), self._stages.age
        if known is None or known.age is not age:
            drawn, picture = self._drawn(runner, faces, named, result)
            if key is not None:
                self._kept.note(key, Known(age, drawn.shape, drawn.color, drawn.corners, {}))
        else:
            triangles = self._made_of(faces)
            triangles.check(self._stages.where, known.corners)
            picture = result if isinstance(result, Tensor) else result(known.shape, known.color)
            if self._settings.antialias:
                kernels_of(self.device).known_edges(runner, triangles)
            given = arrays_beside(triangles, picture)
            layouts = tuple([array.layout for array in given])
            plan = known.plans.get(layouts)
            if plan is not None:
                plan.run(runner.stream, given, named)
            elif layouts in known.plans:
                self._drawn(runner, faces, named, picture)
            else:
                planner = Planner(runner.stream, self.device, given)
                self._drawn(planner, faces, named, picture)
                known.add(layouts, planner.plan())
        return None if self._derivative == "backward" else picture

    def _recorded(
        self, runner: Runner, commands: CommandList, faces: Any, named: dict[str, Any], result: Any
    ) -> Tensor | None:
        """Record the steps; a gradient uses what the same picture found before in the same list."""
        values, first = values_of(self._stages.age, faces, named), len(commands.calls)
        earlier = self._kept.recorded.get(commands) if self._derivative == "backward" else None
        if earlier is not None and not earlier.serves(commands, values):
            earlier = None
        drawn, picture = self._drawn(runner, faces, named, result, None if earlier is None else earlier.found)
        if not self._derivative:
            made = recorded(commands, first, drawn.found, values, [faces, *named.values()])
            if made is not None:
                self._kept.recorded[commands] = made
        return None if self._derivative == "backward" else picture

    def _drawn(
        self, runner: Runner, faces: Any, named: dict[str, Any], result: Any, earlier: Found | None = None
    ) -> tuple[Drawn, Tensor]:
        """Run the steps one by one; return what ran them, and the picture, or its gradient."""
        declared = self._stages.declarations()
        ours = [p.name for p in declared.project.params]
        theirs = [p.name for p in declared.shade.params[1:]]
        self._check_names(list(dict.fromkeys(ours + theirs)), named)
        declared = self._stages.specialised(declared, named)
        of_project = {name: value for name, value in named.items() if name in ours}
        of_shade = {name: value for name, value in named.items() if name in theirs}
        self._check_arguments(declared, of_project, of_shade)
        triangles = self._made_of(faces)
        drawn = Drawn(
            self._stages,
            declared,
            self._settings,
            runner,
            triangles,
            of_project,
            of_shade,
            self._derivative,
            earlier,
        )
        if isinstance(result, Tensor):
            self._check_picture(result, drawn.shape, declared.color)
        picture = result if isinstance(result, Tensor) else result(drawn.shape, declared.color)
        if self._derivative == "backward":
            drawn.propagate(picture)
        elif self._derivative == "forward":
            drawn.tangents(picture)
        else:
            drawn.colors(picture)
        return drawn, picture

    def faces_of(self, given: Any, make: Callable[[], Any]) -> Any:
        """Return the faces that were made of another library's array, or make them; only the library calls this."""
        found = self._kept.foreign
        if found is None or found[0] is not given:
            found = self._kept.foreign = given, make()
        return found[1]

    def check_differentiable(self, names: Iterable[str]) -> None:
        """Refuse gradients of arguments if functions have none.

        Raises
        ------
        BindError
            If a function is not ``[Differentiable]``.
        """
        declared = self._stages.declarations()
        ours = {p.name for p in declared.project.params}
        self._stages.check_differentiable(
            declared, "an argument that requires a gradient", not ours.isdisjoint(names)
        )

    def _called(self, runner: Runner, faces: Any, result: Any, named: dict[str, Any]) -> Any:
        self._check_result(result, runner.commands is not None)

        def made(shape: Shape, color: str) -> Tensor:
            picture = Tensor.empty(self.device, shape, color)
            return picture.with_grads() if self._derivative else picture

        given = result.grad_in if self._derivative == "backward" else result
        picture = self.run(runner, faces, named, given if isinstance(given, Tensor) else made)
        if self._derivative or isinstance(result, Tensor):
            return picture
        is_host = result == "numpy"
        if result is None:
            is_host = not any(isinstance(value, NDBuffer) for value in (faces, *parts(named)))
        return picture.to_numpy() if is_host and picture is not None else picture

    def _made_of(self, faces: Any) -> Triangles:
        if faces is None:
            raise BindError(f"{self.where}: argument _faces is missing; it has the three corners of each triangle.")
        found = self._kept.triangles
        if found is None or not found.is_of(faces):
            found = self._kept.triangles = Triangles(self.where, self._stages.device, faces)
        return found

    def _check_names(self, known: list[str], named: dict[str, Any]) -> None:
        for name, value in named.items():
            if name not in known:
                raise BindError(
                    f"{self.where}: there is no parameter '{name}'; the functions have {', '.join(known) or 'none'}."
                    f"{meant(name, known)}"
                )
            if isinstance(converter(type(value)), Adapter):
                raise BindError(
                    f"{self.where}: '{name}' is {class_in_words(value)}; Tensors are taken here, and "
                    "Tensor.from_dlpack(device, array) makes one of the same memory."
                )

    def _check_result(self, result: Any, is_recorded: bool) -> None:
        """Refuse results that are no picture, or that have no gradient where the derivative reads or writes one."""
        if not self._derivative and isinstance(result, Tensor):
            return
        # Nothing would copy a NumPy array when a list runs.
        drawn = ("tensor",) if is_recorded else ("tensor", "numpy")
        kinds = {"": drawn, "forward": ("tensor",), "backward": ()}[self._derivative]
        expected = " or ".join(["a Tensor", *map(repr, kinds)])
        if self._derivative == "backward":
            good = isinstance(result, Tensor) and result.grad_in is not None
            expected = "a picture with a gradient, as with_grads() makes it,"
        elif self._derivative and isinstance(result, Tensor):
            good = result.grad_out is not None
            expected = "a Tensor with an array for the tangent, as with_grads() makes it,"
        else:
            good = result is None or isinstance(result, Tensor) or (isinstance(result, str) and result in kinds)
        if not good:
            raise BindError(f"{self.where}: _result is {in_words(result)}; {expected} was expected.")

    def _check_arguments(self, declared: Declarations, of_project: dict[str, Any], of_shade: dict[str, Any]) -> None:
        """Refuse derivatives of nothing."""
        if self._derivative == "backward":
            if not has_gradient((of_project, of_shade)):
                raise BindError(f"{self.where}: no argument has a gradient to add to; with_grads() makes one.")
            self._stages.check_differentiable(declared, ".bwds", has_gradient(of_project))
        elif self._derivative == "forward":
            if not has_tangent((of_project, of_shade)):
                raise BindError(
                    f"{self.where}: no argument has a tangent; with_grads(grad_in=tangent) gives one to a Tensor."
                )
            self._stages.check_differentiable(declared, ".fwds", has_tangent(of_project))

    def _check_picture(self, picture: Tensor, shape: tuple[int, ...], color: str) -> None:
        device = self._stages.device
        if picture.device is not device:
            raise BindError(f"{self.where}: _result is of {picture.device!r}; the module is on {device!r}.")
        if picture.shape != shape or picture.dtype.name != color:
            raise ShapeError(
                f"{self.where}: _result is {in_words(picture)}; a Tensor<{color}> of shape {shape} was expected."
            )


def _color(where: str, background: Any, color: str) -> Any:
    width = int(color[5:] or 1)
    try:
        # NumPy makes a NaN of None.
        numbers = np.zeros((0, 0)) if background is None else np.asarray(background, dtype=np.float32)
    except (TypeError, ValueError):
        numbers = np.zeros((0, 0))
    if numbers.shape not in ((), (width,)):
        raise BindError(f"{where}: background is {in_words(background)}; a number was expected, or {width} of them.")
    values = np.broadcast_to(numbers, width)
    return float(values[0]) if width == 1 else [float(x) for x in values]
