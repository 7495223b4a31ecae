"""KernelCode: the code of one kernel of a slang-torch module, and what devices have loaded of it."""

from __future__ import annotations

import struct
import threading
from typing import NamedTuple

from slangpy_rt.backends.base import Kernel
from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.target import KernelInfo
from slangpy_rt.core.types import FunctionSig
from slangpy_rt.device import Device
from slangpy_rt.slangtorch.kernel_text import KernelText, kernel_text
from slangpy_rt.slangtorch.parameter import Parameter
from slangpy_rt.slangtorch.parameters import parameter_of
from slangpy_rt.slangtorch.program import Program

_ENDINGS = {"": "", "forward": ".fwd", "backward": ".bwd"}
Triple = tuple[int, int, int]


class Loaded(NamedTuple):
    """A kernel that a device has loaded, and what packs its argument block."""

    kernel: Kernel
    pack: struct.Struct


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
    params : tuple of (str, Parameter)
        What it takes.

    Raises
    ------
    UnsupportedError
        If a parameter is of a type that Python has no values for.
    """

    def __init__(self, program: Program, sig: FunctionSig, derivative: str = "") -> None:
        self.program, self.sig, self.derivative = program, sig, derivative
        self.params: tuple[tuple[str, Parameter], ...] = tuple(
            (p.name, parameter_of(f"{sig.name}: parameter '{p.name}'", p.type)) for p in sig.params
        )
        self._loaded: dict[tuple[Device, Triple, int], Loaded] = {}
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return f"{self.sig.name}{_ENDINGS[self.derivative]}"

    def text(self, device: Device, group: Triple) -> KernelText:
        """Write what a device compiles for thread groups of a size."""
        params = [(param, parameter) for param, (_, parameter) in zip(self.sig.params, self.params, strict=True)]
        text = self.program.text
        return kernel_text(
            text.path, text.text, self.program.defines, self.sig.name, params, self.derivative,
            device.backend.target, group,
        )  # fmt: skip

    def load(self, device: Device, group: Triple, buffers: int) -> Loaded:
        """Return the kernel as a device runs it; what was loaded before is kept.

        Parameters
        ----------
        group : tuple of int
            Threads of a group in x, y and z.
        buffers : int
            How many buffers of the device a launch names.

        Raises
        ------
        CompileError, UnsupportedError
            If the device's compiler refuses it.
        """
        ranged = device.backend.target.entry == "range"
        key = (device, (1, 1, 1) if ranged else group, buffers)
        found = self._loaded.get(key)
        if found is None:
            with self._lock:
                found = self._loaded.get(key) or self._load(*key)
                self._loaded[key] = found
        return found

    def _load(self, device: Device, group: Triple, buffers: int) -> Loaded:
        if device.deterministic and self.derivative == "backward":
            raise UnsupportedError(
                f"{self}: its gradients are added in no certain order, and {device!r} is deterministic; use another."
            )
        text = self.text(device, group)
        pack = struct.Struct(text.format)
        entry = "_spy_run" if device.backend.target.entry == "range" else "_spy_kernel"
        title = f"{self} of {self.program.text.name}"
        info = KernelInfo(entry, group, pack.size, (True,) * buffers, title=title)
        source = self.program.source_on(device)
        if device.backend.target.program and source.changed():
            raise CompileError(
                f"{title}: a file of the module changed since it was loaded, and {device!r} would compile the new "
                "one; load the module again."
            )
        return Loaded(device.kernels.get(source, text.text, title, info, text.layout), pack)
