"""HostFunction: a ``[TorchEntryPoint]`` of a slang-torch module, which writes a log that PyTorch replays."""

from __future__ import annotations

import re
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from operator import is_
from typing import Any

import numpy as np

from slangpy_rt.backends.base import Kernel
from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.target import KernelInfo
from slangpy_rt.core.types import FunctionSig
from slangpy_rt.device import Device
from slangpy_rt.interop.torch_memory import same_as
from slangpy_rt.slangtorch.argument_copies import ArgumentCopies
from slangpy_rt.slangtorch.devices import Place
from slangpy_rt.slangtorch.errors import CopyNeeded
from slangpy_rt.slangtorch.host_log import Log, read_log, replay
from slangpy_rt.slangtorch.host_text import HANDLE_AT, HEAD_CODES, host_text
from slangpy_rt.slangtorch.kernel_code import KernelCode
from slangpy_rt.slangtorch.parameter import BoundTensor, Parameter
from slangpy_rt.slangtorch.parameters import parameter_of
from slangpy_rt.slangtorch.program import Program
from slangpy_rt.slangtorch.torch_tensor import TorchTensorParameter

_ROOM = 1 << 16  # words for a log; a function whose log needs more runs again
_KEPT = 256
_LAUNCHED = re.compile(r"undefined identifier '_spy_Launch_(\w+)'")


class HostFunction:
    """A host function, which allocates tensors and launches kernels.

    It can read sizes and numbers, but no contents of tensors. So it runs once for each set of sizes and numbers, and
    its log is replayed when they are passed again.

    Parameters
    ----------
    program : Program
        The module.
    sig : FunctionSig
        The function.
    kernels : sequence of KernelCode
        The module's kernels.
    """

    def __init__(self, program: Program, sig: FunctionSig, kernels: Sequence[KernelCode]) -> None:
        self.name = sig.name
        self._program, self._sig, self._kernels = program, sig, kernels
        self.params: tuple[tuple[str, Parameter], ...] = tuple(
            (p.name, parameter_of(f"{sig.name}: parameter '{p.name}'", p.type, program.names)) for p in sig.params
        )
        returns = sig.returns
        self.result = (
            None if returns.kind == "void" else parameter_of(f"{sig.name}: its result", returns, program.names)
        )
        # Most functions return one tensor, which is looked up directly.
        self._one = isinstance(self.result, TorchTensorParameter)
        self._logs: OrderedDict[tuple[Any, ...] | bytes, Log] = OrderedDict()
        self._loaded: Kernel | None = None
        codes = "".join(code for _, p in self.params for code in p.codes)
        self._key, self._pack = struct.Struct(f"@{codes}"), struct.Struct(f"@{HEAD_CODES}{codes}")
        self._only_tensors = all(isinstance(parameter, TorchTensorParameter) for _, parameter in self.params)
        # For the last call on tensors alone: its log, its place, and the check whether tensors are like its own.
        self._last: tuple[Log, Place, Callable[..., bool]] | None = None
        self._same: dict[tuple[Any, ...], Callable[..., bool] | None] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        """Call it with its arguments in their order.

        Returns
        -------
        object
            A tensor, a number, a tuple for a vector, a list for an array, a named tuple for a struct; None for void.

        Raises
        ------
        TypeError
            If the arguments are too many or too few, or one is of a type that its parameter does not take.
        ValueError
            If a sequence has a wrong length.
        TensorError
            If a tensor's dtype or memory is not what its parameter needs, or tensors lie on several devices.
        LaunchError
            If it launches more than the device runs.
        CompileError, UnsupportedError
            If a compiler refuses it or its kernels.
        """
        last = self._last
        if last is not None:
            known, there, same = last
            if len(args) == len(self.params) and same(*args) and not there.device.closed:
                return self._replayed(known, there, args)
        if len(args) != len(self.params):
            names = ", ".join(name for name, _ in self.params)
            raise TypeError(f"{self.name}: {len(args)} arguments; it takes {len(self.params)}: {names or 'none'}.")
        copies: ArgumentCopies | None = None
        try:
            block, given = self._packed(args)
        except CopyNeeded:
            copies = ArgumentCopies()
            own = [
                p.replaced(value, partial(copies.of, name))
                for (name, p), value in zip(self.params, args, strict=True)
            ]
            block, given = self._packed(own)
        devices = self._program.devices
        place = devices.place(self.name, given) if given else None
        # Geometries are bytes that each view remembers, with their hashes. Numbers are compared by their bits.
        key = tuple(block) if self._only_tensors else self._key.pack(*block)
        log = self._logs.get(key)
        if log is None:
            log = self._written(block, given)
            with self._lock:
                self._logs[key] = log
                while len(self._logs) > _KEPT:
                    self._logs.popitem(last=False)
        # The check must not see arguments that were converted: the log is of other tensors.
        if place is not None and self._only_tensors and all(map(is_, given, args)):
            self._expect(log, place, args)
        result = self._replayed(log, place, given, copies)
        if copies is not None:
            copies.check(self.name, returned=result)
        return result

    def _packed(self, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the values of the argument block, and the tensors among the arguments."""
        block: list[Any] = []
        packed: list[BoundTensor] = []
        for (name, parameter), value in zip(self.params, args, strict=True):
            start, before = len(block), len(packed)
            parameter.pack(name, value, block, packed)
            if parameter.addresses:
                for handle, (at, _, _) in enumerate(packed[before:], before + 1):
                    if at - start in parameter.addresses:
                        block[at] = handle << HANDLE_AT
        return block, [tensor for _, tensor, _ in packed]

    def _expect(self, log: Log, place: Place, args: tuple[Any, ...]) -> None:
        """Let the next call replay this log if its tensors are like these; equal layouts share one check."""
        key = place, tuple([(v.dtype, v.shape, v.stride(), v.requires_grad) for v in args])
        if key not in self._same:
            if len(self._same) >= _KEPT:
                self._same.clear()
            self._same[key] = same_as(args)
        same = self._same[key]
        self._last = None if same is None else (log, place, same)

    def _replayed(
        self, log: Log, place: Place | None, given: Sequence[Any], copies: ArgumentCopies | None = None
    ) -> Any:
        """Replay a log on the tensors among the arguments, and return the function's result."""
        tensors: dict[int, Any] = dict(enumerate(given, 1))
        replay(log, place, self._program.devices, given, tensors)
        if copies is not None:
            tensors = {handle: copies.original(tensor) for handle, tensor in tensors.items()}
        if self._one:
            found = tensors.get(log.result[0])
            if found is not None:
                return found
        return None if self.result is None else self.result.value(iter(log.result), tensors)

    def __repr__(self) -> str:
        return f"<host function {str(self._sig).replace('_spy_', '')}>"

    def _written(self, block: list[Any], tensors: list[Any]) -> Log:
        """Run the function itself, and return the log that it has written."""
        device = self._program.devices.host()
        with self._lock:
            kernel = self._loaded = self._loaded or self._load(device)
        room = _ROOM
        while True:
            buffer = device.alloc(4 * room)
            device.launch(kernel, (1, 1, 1), self._pack.pack(buffer.address, room, len(tensors), *block), (buffer,))
            head = np.empty(1, np.uint32)
            device.download(buffer, buffer.address, head)
            if head[0] <= room:
                words = np.empty(int(head[0]), np.uint32)
                device.download(buffer, buffer.address, words)
                return read_log(self.name, words.tobytes(), self._kernels, self.result, next(iter(tensors), None))
            room = int(head[0])

    def _load(self, device: Device) -> Kernel:
        text = self._program.text
        kernels = [(code.sig.name, [parameter for _, parameter in code.params]) for code in self._kernels]
        target = device.backend.target
        written = host_text(
            text.path, text.text, self._program.others, self._program.defines, self.name,
            [p for _, p in self.params], self.result, kernels, target, self._program.hidden,
        )  # fmt: skip
        title = f"{self.name} of {text.name}"
        entry = "_spy_run" if target.entry == "range" else "_spy_kernel"
        info = KernelInfo(entry, (1, 1, 1), self._pack.size, (True,), title=title)
        source = self._program.source_on(device, target)
        try:
            return device.kernels.get(source, written.text, title, info, written.layout)
        except CompileError as error:
            # The kernels that there are have structs of such names.
            missing = _LAUNCHED.search(str(error))
            if missing is None:
                raise
            raise UnsupportedError(
                f"{self.name}: a host function of {text.path} launches '{missing[1]}', and that file has no "
                "[CudaKernel] function of this name; move it there from an imported file, or correct the name."
            ) from error
