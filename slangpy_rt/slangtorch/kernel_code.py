"""KernelCode: the code of one kernel of a slang-torch module, and the kernels that devices have loaded from it."""

from __future__ import annotations

import struct
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from slangpy_rt.backends.base import Dispatch, Kernel
from slangpy_rt.backends.extras import Occupancy
from slangpy_rt.core.errors import CompileError, OutOfBoundsError, UnsupportedError
from slangpy_rt.core.target import KernelInfo, Target
from slangpy_rt.core.types import FunctionSig
from slangpy_rt.device import Device
from slangpy_rt.runtime.diagnostics import Checked, Launch, Launcher
from slangpy_rt.runtime.foreign_stream import foreign_stream
from slangpy_rt.slangtorch.copies import Copies
from slangpy_rt.slangtorch.devices import Place
from slangpy_rt.slangtorch.errors import LaunchError
from slangpy_rt.slangtorch.kernel_text import (
    MAX_THREADS,
    KernelText,
    address_offsets,
    argument_format,
    kernel_text,
)
from slangpy_rt.slangtorch.parameter import BoundTensor, Parameter
from slangpy_rt.slangtorch.parameters import parameter_of
from slangpy_rt.slangtorch.program import Program

_ENDINGS = {"": "", "forward": ".fwd", "backward": ".bwd"}
_MAX_DEPTH = 64
MAX_GRID = 2**31 - 1
_MAX_RANGE = 2**62
# The most launch sizes whose plans are remembered.
_KEPT = 1024
# Threads of a group, where the launch leaves them open. The first has the most groups for a number of threads.
SUITED = (256, 128, 384, 512)
Triple = tuple[int, int, int]


class Plan(NamedTuple):
    """A kernel ready to launch in a number of thread groups of a size.

    Attributes
    ----------
    pack : callable
        Makes the argument block from the values of ``head`` and of the arguments.
    groups : tuple of int
        The thread groups that the backend launches; for a kernel that runs ranges, the threads.
    head : tuple of int
        For a kernel that runs ranges: the grid and the size of its groups; else empty.
    place : Place or None
        Where the kernel runs instead, because the tensors' device refuses it.
    """

    kernel: Kernel
    pack: Callable[..., bytes]
    groups: Triple
    head: tuple[int, ...]
    place: Place | None = None


class KernelCode:
    """The code of one kernel, or of a derivative of one.

    Parameters
    ----------
    program : Program
        The module.
    sig : FunctionSig
        The function.
    derivative : str
        ``"forward"``, ``"backward"`` or empty.

    Attributes
    ----------
    name : str
        The function's name, followed by ``.fwd`` or ``.bwd`` for a derivative.
    params : tuple of (str, Parameter)
        Its parameters by name.
    blocks : dict
        The fastest sizes of thread groups that ``fastest_block`` found, by kinds of launches.

    Raises
    ------
    UnsupportedError
        If a parameter is of a type that Python has no values for.
    """

    def __init__(self, program: Program, sig: FunctionSig, derivative: str = "") -> None:
        self.program, self.sig, self.derivative = program, sig, derivative
        self.name = f"{sig.name}{_ENDINGS[derivative]}"
        self.params: tuple[tuple[str, Parameter], ...] = tuple(
            (p.name, parameter_of(f"{sig.name}: parameter '{p.name}'", p.type, program.names)) for p in sig.params
        )
        self.blocks: dict[Any, Triple] = {}
        self._suited: dict[Device, int] = {}
        self._loaded: dict[tuple[Device, Triple, int], Kernel] = {}
        self._targets: dict[Device, Target] = {}
        self._plans: dict[tuple[Device, bool, Triple, Triple], Plan] = {}
        # Where the kernel runs if the CPU device has refused it.
        self._instead: Place | None = None
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return self.name

    def text(self, device: Device, group: Triple) -> KernelText:
        """Return the text that a device compiles for thread groups of a size; some devices have one for all sizes."""
        free = "free_group_size" in device.caps.features
        params = [(param, parameter) for param, (_, parameter) in zip(self.sig.params, self.params, strict=True)]
        text = self.program.text
        return kernel_text(
            text.path, text.text, self.program.others, self.program.defines, self.sig.name, params, self.derivative,
            self._target(device), None if free else group, self.program.hidden, self.program.prelude, device.debug,
        )  # fmt: skip

    def home(self, params: Mapping[str, Parameter], given: Mapping[str, Any]) -> torch.device:
        """Return PyTorch's device on which a call with arguments of these parameters allocates other tensors."""
        tensors: list[BoundTensor] = []
        for name, parameter in params.items():
            parameter.pack(name, given[name], [], tensors)
        return self.program.devices.home([tensor for _, tensor, _ in tensors])

    def launch(
        self,
        place: Place,
        group: Triple,
        grid: Triple,
        values: list[Any],
        tensors: Sequence[Any],
        places: Sequence[int],
    ) -> None:
        """Launch the kernel.

        Parameters
        ----------
        place : Place
            The device, and how it uses the tensors.
        group, grid : tuple of int
            Threads of a group, and groups, in x, y and z.
        values : list
            Values of the argument block; addresses of tensors are set here.
        tensors : sequence of torch.Tensor
            The tensors.
        places : sequence of int
            For each tensor, the index of its address among the values.

        Raises
        ------
        LaunchError
            If it is more than the device runs.
        CompileError, UnsupportedError
            If the device's compiler refuses it.
        """
        device, straight, stream = place
        plan = self._plans.get((device, straight, group, grid)) or self._plan(device, straight, group, grid)
        if plan.place is not None:
            device, straight, stream = plan.place
        if device.closed:
            device.check_open()
        if not straight:
            # Another thread may launch it too, with copies of its own.
            values = list(values)
            copies = Copies(device, tensors, places, values)
            launch = self._checking(device, tensors, places, device.launch) if device.debug else device.launch
            try:
                launch(plan.kernel, plan.groups, plan.pack(*plan.head, *values), (copies.buffer,))
            except OutOfBoundsError:
                copies.bring_back()  # as where the kernel works in the tensors' own memory
                raise
            copies.bring_back()
            return
        for at, tensor in zip(places, tensors):  # noqa: B905 (the keyword costs 0.1 us)
            values[at] = tensor.data_ptr()
        launch = device.launch if stream is None else foreign_stream(device, stream(None)).direct
        if device.debug:
            launch = self._checking(device, tensors, places, launch)
        launch(plan.kernel, plan.groups, plan.pack(*plan.head, *values), ())

    def suited_threads(self, place: Place) -> int:
        """Return the number of threads of a group, of those in ``SUITED``, with which the most threads run at once.

        Raises
        ------
        CompileError, UnsupportedError
            If the device's compiler refuses the kernel.
        """
        device = place.device
        backend = device.backend
        if not isinstance(backend, Occupancy):
            return SUITED[0]
        found = self._suited.get(device)
        if found is None:
            kernel = self.load(device, (min(SUITED), 1, 1), 0 if place.straight else 1)
            found = max(SUITED, key=lambda threads: backend.resident_threads(kernel, threads))
            self._suited[device] = found
        return found

    def dispatch(
        self,
        device: Device,
        group: Triple,
        grid: Triple,
        values: list[Any],
        tensors: Sequence[Any],
        places: Sequence[int],
    ) -> Dispatch:
        """Return a dispatch for a later launch, on a device that works in the tensors' own memory."""
        # With the placeholder as buffer, calls on memory of other libraries wait for each other in a command list.
        plan = self._plans.get((device, False, group, grid)) or self._plan(device, False, group, grid)
        for at, tensor in zip(places, tensors, strict=True):
            values[at] = tensor.data_ptr()
        buffers = (device.placeholder, device.diagnostics.buffer) if device.debug else (device.placeholder,)
        return Dispatch(plan.kernel, plan.groups, plan.pack(*plan.head, *values), buffers)

    def load(self, device: Device, group: Triple, buffers: int = 0) -> Kernel:
        """Return the kernel as a device runs it; kernels are loaded once.

        Parameters
        ----------
        group : tuple of int
            Threads of a group in x, y and z.
        buffers : int
            The number of the device's buffers that a launch passes.

        Raises
        ------
        CompileError, UnsupportedError
            If the device's compiler refuses it.
        """
        target = self._target(device)
        found = self._loaded.get((device, group if target.groups else (1, 1, 1), buffers))
        if found is None:
            with self._lock:
                found = self._load_either(device, group, buffers)
        return found

    def _target(self, device: Device) -> Target:
        """Return the target that the kernel is compiled for on a device."""
        backend = device.backend
        return backend.target if backend.range_target is None else self._targets.get(device, backend.target)

    def _load_either(self, device: Device, group: Triple, buffers: int) -> Kernel:
        """Return the kernel for the device's target, or if that cannot express it, for its target of ranges."""
        ranges = device.backend.range_target
        try:
            return self._load_once(device, group, buffers)
        except (CompileError, UnsupportedError) as refusal:
            if ranges is None or device in self._targets:
                raise
            self._targets[device] = ranges
            try:
                return self._load_once(device, group, buffers)
            except (CompileError, UnsupportedError):
                del self._targets[device]
                raise refusal from None

    def _load_once(self, device: Device, group: Triple, buffers: int) -> Kernel:
        key = device, group if self._target(device).groups else (1, 1, 1), buffers
        found = self._loaded.get(key) or self._load(*key)
        return self._loaded.setdefault(key, found)

    def launcher(self, device: Device, tensors: Sequence[Any], places: Sequence[int]) -> Launcher | None:
        """Return what launches the kernel on a debug device, where accesses of these tensors are checked.

        Parameters
        ----------
        tensors, places
            As for ``launch``.
        """
        if not device.debug:
            return None
        parameters = [p for _, p in self.params]
        offsets = {at: (k, offset) for k, at, offset in address_offsets(self._target(device), parameters)}
        arrays = []
        for tensor, at in zip(tensors, places, strict=True):
            k, offset = offsets[at]
            arrays.append(Checked(self.params[k][0], tuple(tensor.shape), offset, 0, 0))
        return Launcher(device.diagnostics, f"{self} of {self.program.text.name}", tuple(arrays), False)

    def _checking(self, device: Device, tensors: Sequence[Any], places: Sequence[int], launch: Launch) -> Launch:
        """Return a function that launches the kernel and raises OutOfBoundsError for accesses outside of tensors."""
        launcher = self.launcher(device, tensors, places)
        return launch if launcher is None else partial(launcher.launch, launch)

    def _plan(self, device: Device, straight: bool, group: Triple, grid: Triple) -> Plan:
        # Command lists, which do not copy tensors back, are told what the CPU device says.
        other = self._instead if straight and "zero_copy" in device.caps.features else None
        if other is None or other.device.closed:
            try:
                plan, other = self._plan_on(device, straight, group, grid), None
            except UnsupportedError as error:
                other = self.program.devices.instead_of(device) if straight else None
                if other is None:
                    raise
                warnings.warn(
                    f"{self}: it runs on {other.device!r}, and its tensors are copied there and back at each launch, "
                    f"because the CPU device refuses it: {error.__cause__ or error}",
                    RuntimeWarning,
                    stacklevel=4,
                )
        if other is not None:
            plan = self._plan_on(other.device, False, group, grid)._replace(place=other)
            self._instead = other
        if len(self._plans) >= _KEPT:
            self._plans.clear()
        self._plans[device, straight, group, grid] = plan
        return plan

    def _plan_on(self, device: Device, straight: bool, group: Triple, grid: Triple) -> Plan:
        """Return the plan of a launch on a device; raise UnsupportedError if the device cannot have the kernel."""
        threads = group[0] * group[1] * group[2]
        if threads > MAX_THREADS or group[2] > _MAX_DEPTH:
            raise LaunchError(
                f"{self}: blockSize {group} has {threads} threads; at most {MAX_THREADS}, {_MAX_DEPTH} in z."
            )
        kernel = self.load(device, group, 0 if straight else 1)
        target = self._target(device)
        ranged = not target.groups
        limits = (MAX_GRID,) * 3 if ranged else device.caps.max_groups
        if any(n > most for n, most in zip(grid, limits, strict=True)):
            raise LaunchError(f"{self}: gridSize {grid}; {device!r} runs at most {limits}.")
        total = grid[0] * grid[1] * grid[2] * threads
        if ranged and total > _MAX_RANGE:
            raise LaunchError(f"{self}: gridSize {grid} of blockSize {group} is more than 2^62 threads.")
        # Ranges have no thread groups: each thread computes its position from grid and group size.
        head = (*grid, *group) if ranged else ()
        pack = struct.Struct(argument_format(target, [p for _, p in self.params], device.debug)).pack
        if device.debug:
            pack = _with_last(pack, device.diagnostics.buffer.address)
        return Plan(kernel, pack, (total, 1, 1) if ranged else grid, head)

    def _load(self, device: Device, group: Triple, buffers: int) -> Kernel:
        if device.deterministic and self.derivative == "backward":
            raise UnsupportedError(
                f"{self}: its gradients are added in no certain order, and {device!r} is deterministic; use another."
            )
        target = self._target(device)
        text = self.text(device, group)
        entry = "_spy_run" if target.entry == "range" else "_spy_kernel"
        title = f"{self} of {self.program.text.name}"
        size = struct.calcsize(argument_format(target, [p for _, p in self.params], device.debug))
        # A debug device's launches have the buffer of its diagnostics, too.
        info = KernelInfo(entry, group, size, (True,) * (buffers + device.debug), title=title)
        source = self.program.source_on(device, target)
        if target.program and source.changed():
            raise CompileError(
                f"{title}: a file of the module changed since it was loaded, and {device!r} would compile the new "
                "one; load the module again."
            )
        try:
            return device.kernels.get(source, text.text, title, info, text.layout)
        except UnsupportedError as error:
            # Such messages say which types of devices have what the kernel needs.
            how = " loadModule has device= for that." if "device type" in str(error) else ""
            raise UnsupportedError(f"{self}: {error}{how}") from error


def _with_last(pack: Callable[..., bytes], last: int) -> Callable[..., bytes]:
    """Return a function that packs its values and a last one behind them."""
    return lambda *values: pack(*values, last)
