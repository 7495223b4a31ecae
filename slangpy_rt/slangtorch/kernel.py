"""TorchKernel: a kernel of a slang-torch module, to be called with its arguments by name and then launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from slangpy_rt.core.types import FunctionSig
from slangpy_rt.device import Device
from slangpy_rt.runtime.core import a_device
from slangpy_rt.slangtorch.argument_copies import ArgumentCopies
from slangpy_rt.slangtorch.binder import Binder
from slangpy_rt.slangtorch.bound_kernel import BoundKernel, checked_sizes
from slangpy_rt.slangtorch.errors import CopyNeeded
from slangpy_rt.slangtorch.kernel_code import KernelCode, Triple
from slangpy_rt.slangtorch.kernel_function import KernelFunction, Like
from slangpy_rt.slangtorch.program import Program


class TorchKernel:
    """A kernel of a slang-torch module, or the derivative of one.

    A call with all its arguments by name returns a ``BoundKernel``, which has the methods that launch it.

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
        The function's name.
    code : KernelCode
        The kernel's code.
    """

    def __init__(self, program: Program, sig: FunctionSig, derivative: str = "") -> None:
        self.name = sig.name
        self.code = KernelCode(program, sig, derivative)
        params = dict(self.code.params)
        self._names = params.keys()
        self._binder = Binder(self.code.name, params, program.devices)

    @cached_property
    def fwd(self) -> TorchKernel:
        """The kernel's forward derivative: pairs are values with their tangents.

        Raises
        ------
        ValueError
            If it has none.
        """
        return self._derived("forward")

    @cached_property
    def bwd(self) -> TorchKernel:
        """The kernel's backward derivative: pairs are values with their gradients.

        It leaves zeros in the gradients of values that the kernel stores.

        Raises
        ------
        ValueError
            If it has none.
        """
        return self._derived("backward")

    def __call__(self, /, *args: Any, **named: Any) -> BoundKernel:
        """Bind arguments to all parameters, by name.

        Raises
        ------
        ValueError
            If an argument is passed by position, missing or unknown; or a sequence has a wrong length.
        TypeError
            If a value is of a type that its parameter does not take, or a struct lacks a field.
        TensorError
            If a tensor's dtype or memory is not what its parameter needs, or tensors lie on several devices.
        """
        bound = None if args else self._binder.find(named)
        if bound is not None:
            return BoundKernel(self.code, bound)
        if args or named.keys() != self._names:
            raise self._misnamed(args, named)
        try:
            return BoundKernel(self.code, self._binder.bind(named))
        except CopyNeeded:
            if self.code.derivative != "backward":
                raise
        copies = ArgumentCopies()
        return BoundKernel(self.code, self._binder.bind(self._with_own_gradients(named, copies)), copies)

    @property
    def differentiable(self) -> bool:
        """Whether it has derivatives."""
        return self.code.sig.differentiable and not self.code.derivative

    def function(
        self,
        outputs: Mapping[str, Like],
        threads: Callable[[Mapping[str, Any]], Any] | Sequence[int],
        block: tuple[int, int, int] | None = None,
        consume: bool = False,
    ) -> KernelFunction:
        """Make a function of the inputs whose results are the tensors that the kernel writes.

        PyTorch differentiates it by the kernel's backward derivative.

        Parameters
        ----------
        outputs : mapping of str to (str or callable)
            The parameters that the kernel writes: for each the name of an input whose shape and dtype it has, or a
            function that takes the mapping of all inputs and returns (shape, dtype). They begin as zeros.
        threads : callable, or sequence of int
            The number of threads: up to three numbers, x first; or a function that takes the mapping of all
            arguments, results included, and returns them.
        block : tuple of int, optional
            Threads of a group; chosen by the number of threads if not given.
        consume : bool
            Whether the backward derivative, which leaves zeros in the gradients of the results, may overwrite
            PyTorch's tensors of these instead of copies.

        Raises
        ------
        ValueError
            If the kernel has no such parameters, or an argument is of another kind.
        UnsupportedError
            If a parameter keeps gradients in a struct of the module's.

        Examples
        --------
        >>> square = m.square.function(outputs={"output": "input"}, threads=lambda a: a["input"].shape)
        >>> y = square(x)
        """
        return KernelFunction(self, outputs, threads, block, consume)

    def launch(self, given: Mapping[str, Any], block: Triple, grid: Triple) -> None:
        """Launch the kernel once with all arguments, in ``grid`` groups of ``block`` threads."""
        place, values, tensors, _ = self._binder.find(given) or self._binder.bind(given)
        if 0 not in grid:
            self.code.launch(place, block, grid, values, *tensors[:2])

    def launch_flat(self, given: Sequence[Any], form: list[int], block: Triple, grid: Triple) -> bool:
        """Launch the kernel once with the tensors that ``Binder.find_flat`` takes; return False if it finds none."""
        found = self._binder.find_flat(given, form)
        if found is not None and 0 not in grid:
            self.code.launch(found[0], block, grid, found[1], *found[2][:2])
        return found is not None

    def __repr__(self) -> str:
        declared = str(self.code.sig).replace("_spy_", "")
        return f"<kernel {self.code}: {declared}>"

    def source(self, device: Device, blockSize: tuple[int, int, int] = (1, 1, 1)) -> str:
        """Return the Slang text that a device would compile for thread groups of this size."""
        where = f"{self.code}.source"
        block = checked_sizes(where, "blockSize", blockSize, 1)
        return self.code.text(a_device(where, device), block).text

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

    def _with_own_gradients(self, named: Mapping[str, Any], copies: ArgumentCopies) -> dict[str, Any]:
        """Return the arguments with copies of gradients that are broadcast views, such as PyTorch's of a sum."""
        found = dict(named)
        for name, parameter in self.code.params:
            value = named[name]
            if parameter.is_pair and isinstance(value, tuple) and len(value) == 2:
                found[name] = value[0], copies.of(f"{name}.grad", value[1])
        return found

    def _derived(self, derivative: str) -> TorchKernel:
        if not self.differentiable:
            raise ValueError(f"{self.code}: it has no {derivative} derivative; mark the function [Differentiable].")
        return TorchKernel(self.code.program, self.code.sig, derivative)
