"""TorchKernel: a kernel of a slang-torch module, to be called with its arguments by name."""

from __future__ import annotations

from typing import Any

from slangpy_rt.core.types import FunctionSig
from slangpy_rt.device import Device
from slangpy_rt.slangtorch.bound_kernel import BoundKernel
from slangpy_rt.slangtorch.kernel_code import KernelCode
from slangpy_rt.slangtorch.parameter import BoundTensor
from slangpy_rt.slangtorch.program import Program


class TorchKernel:
    """A kernel of a slang-torch module, or the derivative of one.

    Called with all its arguments by name it returns a ``BoundKernel``, which is launched then.

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
        The function's.
    code : KernelCode
        What is compiled.
    """

    def __init__(self, program: Program, sig: FunctionSig, derivative: str = "") -> None:
        self.name = sig.name
        self.code = KernelCode(program, sig, derivative)
        self._names = dict(self.code.params).keys()
        self._derivatives: dict[str, TorchKernel] = {}

    @property
    def fwd(self) -> TorchKernel:
        """Its forward derivative: pairs are values with their tangents.

        Raises
        ------
        ValueError
            If it has none.
        """
        return self._derived("forward")

    @property
    def bwd(self) -> TorchKernel:
        """Its backward derivative: pairs are values with their gradients. Those of what it stores are zero after it.

        Raises
        ------
        ValueError
            If it has none.
        """
        return self._derived("backward")

    def __call__(self, *args: Any, **named: Any) -> BoundKernel:
        """Bind arguments to all parameters, by name.

        Raises
        ------
        ValueError
            If an argument comes by position, is missing or is one too many; or a sequence has a wrong length.
        TypeError
            If a value is of a type that its parameter does not take, or a struct lacks a field.
        TensorError
            If a tensor's dtype or memory is not what its parameter needs, or tensors lie on several devices.
        """
        if args or named.keys() != self._names:
            raise self._misnamed(args, named)
        values: list[Any] = []
        tensors: list[BoundTensor] = []
        for name, parameter in self.code.params:
            parameter.pack(name, named[name], values, tensors)
        return BoundKernel(self.code, values, tensors)

    def __repr__(self) -> str:
        declared = str(self.code.sig).replace("_spy_", "")
        return f"<kernel {self.code}: {declared}>"

    def source(self, device: Device, blockSize: tuple[int, int, int] = (1, 1, 1)) -> str:
        """The Slang text that a device would compile for thread groups of this size."""
        return self.code.text(device, blockSize).text

    def _misnamed(self, args: tuple[Any, ...], named: dict[str, Any]) -> ValueError:
        listed = ", ".join(self._names) or "none"
        if args:
            return ValueError(f"{self.code}: arguments come by name: {listed}.")
        missing = [name for name in self._names if name not in named]
        unknown = [name for name in named if name not in self._names]
        wrong = [
            f"{what} {', '.join(found)}" for what, found in (("missing", missing), ("unknown", unknown)) if found
        ]
        return ValueError(f"{self.code}: {'; '.join(wrong)}; its arguments are {listed}.")

    def _derived(self, derivative: str) -> TorchKernel:
        code = self.code
        if code.derivative or not code.sig.differentiable:
            raise ValueError(f"{code}: it has no {derivative} derivative; mark the function [Differentiable].")
        found = self._derivatives.get(derivative)
        if found is None:
            made = TorchKernel(code.program, code.sig, derivative)
            found = self._derivatives.setdefault(derivative, made)
        return found
