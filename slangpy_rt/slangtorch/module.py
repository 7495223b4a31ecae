"""SlangTorchModule: a loaded slang-torch file, with its kernels as attributes."""

from __future__ import annotations

from typing import Any

from slangpy_rt.calls.module import Module
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.slangtorch.bound_kernel import checked_sizes
from slangpy_rt.slangtorch.diff_pair import DiffTensorView
from slangpy_rt.slangtorch.host_function import HostFunction
from slangpy_rt.slangtorch.kernel import TorchKernel
from slangpy_rt.slangtorch.kernel_code import KernelCode
from slangpy_rt.slangtorch.parameters import structs_in
from slangpy_rt.slangtorch.program import Program

_MARKS = {"_spy_CudaKernel", "_spy_TorchEntryPoint"}


class _AsModule:
    """The attribute ``module`` of a SlangTorchModule. A property would hide a kernel of its name."""

    def __get__(self, owner: SlangTorchModule | None, kind: type) -> Any:
        if owner is None:
            return self
        device = owner._spy_program.devices.first()
        return Module(device, owner._spy_program.source_on(device))


class SlangTorchModule:
    """The kernels of a slang-torch file, and the named tuples of the structs that they take, as attributes.

    It does not change when the file is edited: ``loadModule`` returns a new one then.

    Attributes
    ----------
    DiffTensorView : type
        A tensor with its gradient.
    module : Module
        The same text as a Module of slangpy_rt, whose functions are called over whole arrays. It is on the device
        given to ``loadModule``, or else on PyTorch's GPU, or on the CPU.
    """

    DiffTensorView = DiffTensorView

    def __init__(self, program: Program) -> None:
        functions = program.source.info.functions
        launched = [sig for sig in functions if "_spy_CudaKernel" in sig.attributes]
        kernels = [TorchKernel(program, sig) for sig in launched if "_spy_AutoPyBindCUDA" in sig.attributes]
        _refuse_overloads(program, [sig.name for sig in functions if _MARKS & set(sig.attributes)])
        hosts = [sig for sig in functions if "_spy_TorchEntryPoint" in sig.attributes]
        codes = [KernelCode(program, sig) for sig in launched] if hosts else []
        entries = [HostFunction(program, sig, codes) for sig in hosts]
        parameters = [parameter for kernel in kernels for _, parameter in kernel.code.params]
        parameters += [parameter for entry in entries for _, parameter in entry.params]
        parameters += [entry.result for entry in entries if entry.result is not None]
        structs = [found for parameter in parameters for found in structs_in(parameter)]
        items: dict[str, Any] = {s.name: s.python_type for s in structs}
        items |= {kernel.name: kernel for kernel in kernels} | {entry.name: entry for entry in entries}
        # No name that the file declares can begin with ``_spy_``.
        self._spy_program, self._spy_items = program, items
        self.__dict__.update(items)

    module = _AsModule()

    def precompile(self, blockSize: tuple[int, int, int] | None = None) -> None:
        """Compile all kernels and their derivatives now instead of at their first launches.

        Parameters
        ----------
        blockSize : tuple of int, optional
            Threads of a group; devices that compile a kernel for each size, such as Vulkan's, need it.

        Raises
        ------
        ValueError
            If it is no tuple of three ints, or missing for a device that needs it.
        CompileError, UnsupportedError
            If the device's compiler refuses a kernel.
        """
        device = self._spy_program.devices.first()
        free = device.backend.target.entry == "range" or "free_group_size" in device.caps.features
        if not free and blockSize is None:
            raise ValueError(f"precompile: {device!r} has a kernel for each size of thread groups; give blockSize.")
        block = (1, 1, 1) if blockSize is None else checked_sizes("precompile", "blockSize", blockSize, 1)
        straight = device.caps.dlpack_device != 0
        for kernel in self._spy_items.values():
            if isinstance(kernel, TorchKernel):
                for each in (kernel, kernel.fwd, kernel.bwd) if kernel.differentiable else (kernel,):
                    each.code.load(device, block, 0 if straight else 1)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "_spy_")):
            raise AttributeError(name)
        program, items = self._spy_program, self._spy_items
        hint = ""
        if name in {sig.name for sig in program.source.info.functions}:
            hint = f" The function '{name}' lacks [AutoPyBindCUDA] and [CudaKernel], or [TorchEntryPoint]."
        raise AttributeError(
            f"module '{program.text.name}' has no kernel or struct '{name}'; it has "
            f"{', '.join(items) or 'none'}.{hint}"
        )

    def __repr__(self) -> str:
        return (
            f"SlangTorchModule({self._spy_program.text.path!r}: {', '.join(self._spy_items) or 'nothing for Python'})"
        )


def _refuse_overloads(program: Program, names: list[str]) -> None:
    """Refuse several kernels or host functions of one name, of which Python could call only one."""
    for name in names:
        if names.count(name) > 1:
            raise UnsupportedError(
                f"module '{program.text.name}': it has several kernels or host functions '{name}'; give each a name."
            )
