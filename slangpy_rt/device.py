"""Device: the public face of an open device. It makes modules, command lists, streams, events and timers.

Memory, launches and closing are in ``DeviceCore``, which lower packages use; only ``interop``, ``slangtorch`` and the
package itself import this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slangpy_rt.backends.selection import DeviceType
from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.calls.module import Module
from slangpy_rt.core.checks import path as checked_path
from slangpy_rt.core.checks import short_traceback, short_tracebacks
from slangpy_rt.core.errors import BindError
from slangpy_rt.runtime.core import DeviceCore, another
from slangpy_rt.runtime.stream import Event, Stream, Timer, lane_of, open_stream, stream_handle

if TYPE_CHECKING:
    from slangpy_rt.calls.moves import Moves
    from slangpy_rt.calls.raw_kernel import Kernel
    from slangpy_rt.calls.shader_program import ShaderProgram
    from slangpy_rt.textures.sampler import Sampler
    from slangpy_rt.textures.texture import Texture


# What ``dir`` and completion show; what else the packages below use is no part of the public class.
_SHOWN = (
    *(
        "caps",
        "close",
        "closed",
        "command_list",
        "create_compute_kernel",
        "create_sampler",
        "create_texture",
        "debug",
    ),
    *("deterministic", "event", "hot_reload", "include_paths", "index", "info", "load_module"),
    *("load_module_from_file", "load_module_from_source", "load_program", "name", "reload", "stream", "synchronize"),
    *("timer", "wait"),
)


@short_tracebacks("__init__", "load_module", "load_module_from_source", "load_program", "create_compute_kernel")
@short_tracebacks("stream", "create_texture", "create_sampler")
class Device(DeviceCore):
    """A place to run Slang functions.

    Parameters
    ----------
    type : DeviceType or str
        ``"cuda"``, ``"d3d12"``, ``"metal"``, ``"vulkan"``, ``"cpu"``, or ``"automatic"`` for the first of these that
        works here (``SLANGPY_RT_DEVICE`` overrides automatic); ``"cuda:1"`` for the second of a type.
        ``"rhi-vulkan"`` and ``"rhi-cuda"`` are those APIs by slang-rhi, as D3D12 and Metal are.
    include_paths : sequence of path
        Where ``import`` and ``#include`` look, besides the folder of the file itself.
    debug : bool
        Turns on driver checks where there are any: the Vulkan validation layers, a wait after each CUDA launch.
        Kernels also check each index into a Tensor, RWTensor or NDBuffer parameter: one that is outside raises
        OutOfBoundsError at the end of the call, and touches no memory. Pointers (``float *p``) cannot be checked.
        On the CPU, kernels with thread groups are compiled for gdb, with the lines and variables of the Slang text.
    index : int
        Number of the device among those of its type, from 0.
    hot_reload : bool
        Whether a call first checks whether files of its module were edited.
    deterministic : bool
        Whether ``bwds`` computes the same bits each time. Where threads add to one place, a sum of floats depends on
        the order of the threads; a deterministic device computes exact sums instead, which takes longer and, while a
        call runs, 96 bytes for each float and half of such a gradient, 552 for each double.
    stream : stream of another library or int, optional
        A CUDA stream for the device's own queue, as ``Device.stream`` takes it: work of the device and work of that
        library on the stream run in the order in which they were queued.

    Raises
    ------
    UnsupportedError
        If there is no such device here; the message says why.
    """

    def __init__(
        self,
        type: DeviceType | str = DeviceType.automatic,
        include_paths: Sequence[str | Path] = (),
        debug: bool = False,
        index: int = 0,
        hot_reload: bool = True,
        deterministic: bool = False,
        stream: Any = None,
    ) -> None:
        handle = None if stream is None else stream_handle("Device", stream)
        super().__init__(type, include_paths, debug, index, hot_reload, deterministic, handle, stream)

    def __reduce__(self) -> tuple[Any, ...]:
        from slangpy_rt.runtime.pickling import device_reference

        return device_reference(self, self.identity)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name in _SHOWN or name.startswith("__")]

    def load_module(self, path: str | Path, defines: Mapping[str, Any] | None = None) -> Module:
        """Load a Slang file; the same as ``Module.load_from_file(device, path)``."""
        return Module.load_from_file(self, path, defines=defines)

    load_module_from_file = load_module

    def load_module_from_source(self, name: str, source: str, defines: Mapping[str, Any] | None = None) -> Module:
        """Load Slang text; the same as ``Module.load_from_source(device, name, source)``."""
        return Module.load_from_source(self, name, source, defines=defines)

    def load_program(self, module_name: str | Path, entry_point_names: Sequence[str]) -> ShaderProgram:
        """Load a Slang file for ``create_compute_kernel``; ``load_module(path).name`` is such a kernel, too.

        Parameters
        ----------
        module_name : path
            The file, with or without its suffix, as given or in one of the include paths.
        entry_point_names : sequence of str
            Names of functions with ``[numthreads]``.

        Raises
        ------
        CompileError
            If there is no such file, or Slang refuses it.
        BindError
            If the file has no kernel of a name.
        """
        from slangpy_rt.calls.shader_program import program_of  # few programs need it

        path = Path(checked_path("Device.load_program", "module_name", module_name))
        if not path.name:
            raise BindError("Device.load_program: module_name is empty; give the path of a file with Slang text.")
        file = path if path.suffix == ".slang" else path.with_name(f"{path.name}.slang")
        return program_of(self.load_module(file), entry_point_names)

    def create_compute_kernel(self, program: ShaderProgram) -> Kernel:
        """Return the kernel of a program, to be run by ``dispatch``.

        Parameters
        ----------
        program : ShaderProgram
            What ``load_program`` returned for one name.

        Raises
        ------
        BindError
            If it is no such program, or one of another device.
        """
        from slangpy_rt.calls.shader_program import kernel_of

        kernel = kernel_of(program)
        if kernel.device is not self:
            raise BindError(
                f"Device.create_compute_kernel: {program!r} is on {another(kernel.device, self)}, and this is "
                f"{self!r}."
            )
        return kernel

    def stream(self, external: Any = None) -> Stream:
        """Make a queue of work beside the device's own; see ``Stream``.

        Parameters
        ----------
        external : stream of another library or int, optional
            A CUDA stream to use instead of a new one: anything with ``__cuda_stream__``, a stream of PyTorch or
            CuPy, which is kept, or a ``CUstream`` as a number, which has to outlive the device. The device does not
            know which work its library queues there: order that against work on other streams with events.

        Raises
        ------
        UnsupportedError
            If the device has no streams of other libraries.
        BindError
            If ``external`` is no stream.
        """
        return open_stream(self, external)

    def event(self) -> Event:
        """Make a new event; ``record`` queues it on a stream or on the device's own queue."""
        self.check_open()
        return Event(self)

    def timer(self, stream: Stream | None = None) -> Timer:
        """Return a context manager that measures, on the device's clock, the work that its block queues.

        Parameters
        ----------
        stream : Stream, optional
            The stream whose work is measured; the device's own queue unless given.
        """
        lane_of(self, "Device.timer", stream)
        return Timer(self, stream)

    def command_list(self) -> CommandList:
        """Make a new list for ``function.append_to(list, ...)``; as a context manager it is submitted at its end."""
        self.check_open()
        return CommandList(self)

    def create_texture(
        self,
        format: str,
        width: int,
        height: int | None = None,
        depth: int | None = None,
        array_length: int | None = None,
        mip_count: int = 1,
        type: str | None = None,
        usage: str | Sequence[str] | None = None,
    ) -> Texture:
        """Make a texture whose texels are undefined until they are written.

        Parameters
        ----------
        format : str
            The texel format, by SlangPy's names: ``"rgba8_unorm"``, ``"rgba8_unorm_srgb"``, ``"r16_float"``,
            ``"rg32_float"``, ``"rgba32_uint"``, ``"r8_sint"``, ``"rg16_uint"``; r, rg and rgba of each.
        width, height, depth : int
            The size in texels; a height makes a plane of a line, a depth a volume of a plane.
        array_length : int, optional
            The number of layers of a texture array, or of cubes.
        mip_count : int
            The number of levels; 0 for all that there can be.
        type : str, optional
            ``"1d"``, ``"2d"``, ``"3d"``, ``"cube"``, ``"1d_array"``, ``"2d_array"`` or ``"cube_array"``; by the sizes
            unless given.
        usage : str or sequence of str, optional
            ``"shader_resource"`` for textures that kernels only read; with ``"unordered_access"`` they may write too,
            as they may if nothing is given and the format allows it.

        Raises
        ------
        BindError
            If a value is none of these.
        ShapeError
            If a cube's faces are not squares.
        UnsupportedError
            If the device has no such textures.
        OutOfMemoryError
            If the device cannot hold it.
        """
        from slangpy_rt.textures.texture import create_texture

        return create_texture(self, format, width, height, depth, array_length, mip_count, type, usage)

    def create_sampler(
        self,
        filter: str = "linear",
        wrap: str | Sequence[str] = "repeat",
        mip: str = "linear",
        anisotropy: int = 1,
        border: str = "transparent",
        bias: float = 0.0,
        min_level: float = 0.0,
        max_level: float = 1000.0,
    ) -> Sampler:
        """Make a sampler; ``Sampler`` has the parameters."""
        from slangpy_rt.textures.sampler import Sampler

        return Sampler(self, filter, wrap, mip, anisotropy, border, bias, min_level, max_level)

    @property
    def moves(self) -> Moves:
        # Imported here, because few programs copy arrays by kernels.
        from slangpy_rt.calls.moves import MOVES, Moves

        return self.once("moves", lambda: Moves(self.load_module_from_source("slangpy_rt_moves", MOVES)))

    @property
    def folds(self) -> Module:
        # Imported here, because it loads the code that binds arguments, which no program needs before its first call.
        from slangpy_rt.arguments.exact import FOLDS

        return self.once("folds", lambda: self.load_module_from_file(FOLDS))


@short_traceback
def create_device(
    type: DeviceType | str = DeviceType.automatic,
    include_paths: Sequence[str | Path] = (),
    debug: bool = False,
    index: int = 0,
    hot_reload: bool = True,
    deterministic: bool = False,
    stream: Any = None,
) -> Device:
    """Open a device; ``Device`` has the parameters."""
    return Device(type, include_paths, debug, index, hot_reload, deterministic, stream)


@short_traceback
def init_device(include_paths: Sequence[str | Path] = ()) -> Device:
    """Open the first device that works here, as ``Device("automatic")`` does; ``SLANGPY_RT_DEVICE`` overrides it."""
    return Device(DeviceType.automatic, include_paths)
