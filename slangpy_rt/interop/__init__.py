"""Exchange with other libraries, such as PyTorch and CuPy; a library is imported when it is first used.

Calls find the adapters here by a table of names; no package below imports this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slangpy_rt.core.checks import short_traceback

if TYPE_CHECKING:
    from slangpy_rt.calls.function import Function
    from slangpy_rt.device import Device
    from slangpy_rt.interop.source_kernel import SourceKernel


@short_traceback
def create_torch_device(type: str = "automatic", **options: Any) -> Device:
    """Open a device for work on PyTorch's tensors, in the order of PyTorch's own work.

    Parameters
    ----------
    type : str
        ``"cuda"`` for PyTorch's current GPU, ``"cuda:1"`` for another, ``"cpu"``, ``"vulkan"``, which copies
        PyTorch's tensors, or ``"automatic"``: the GPU by CUDA if PyTorch has one, else the CPU.
    **options
        As for ``Device``.

    Returns
    -------
    Device
        On CUDA it shares PyTorch's context, and its own queue is the stream that is PyTorch's current one now; calls
        on PyTorch's tensors always run on the stream that is current at the call.

    Raises
    ------
    UnsupportedError
        If PyTorch has no such device.
    """
    from slangpy_rt.interop.devices import torch_device

    return torch_device(type, options)


@short_traceback
def torch_module(function: Function, **parameters: Any) -> Any:
    """Make a ``torch.nn.Module`` of a Slang function whose named parameters are learned.

    Parameters
    ----------
    function : Function
        A ``[Differentiable]`` function.
    **parameters : torch.Tensor
        First values of the learned parameters, by their names in Slang.

    Returns
    -------
    torch.nn.Module
        A module that is called with the other arguments.

    Raises
    ------
    BindError
        If the function has no parameter of a name, or a value is no tensor.
    """
    from slangpy_rt.interop.operators import SlangModule

    return SlangModule(function, **parameters)


@short_traceback
def torch_operator(function: Function, arguments: str | None = None) -> Any:
    """Make a PyTorch operator of a Slang function; ``torch.compile`` keeps it whole in its graph.

    Parameters
    ----------
    function : Function
        A function with one declaration, which returns its result. The operator is differentiable if the function is.
    arguments : str, optional
        The operator's arguments as a PyTorch schema: ``"Tensor x, float exposure"``. All are tensors by default.

    Returns
    -------
    torch.library.CustomOpDef
        An operator to call with positional arguments. PyTorch keeps it until the process ends.

    Raises
    ------
    BindError
        If the function has overloads, writes to its parameters or returns nothing.
    """
    from slangpy_rt.interop.operators import operator_of

    return operator_of(function, arguments)


@short_traceback
def kernel(source: str, device: Device | None = None) -> SourceKernel:
    """Make a callable of Slang text that has one compute kernel, with macros that each call may set.

    Parameters
    ----------
    source : str
        Slang text with exactly one ``[numthreads]`` function.
    device : Device, optional
        The device of all calls; by default each call runs on the device on which its arrays lie.

    Returns
    -------
    SourceKernel
        ``kernel(*arguments, grid=..., num_warps=None, defines=None)`` runs it. A macro with a list of values is
        searched.

    Raises
    ------
    BindError
        If ``source`` is no text, or ``device`` no device.

    Examples
    --------
    >>> double = kernel(text)
    >>> double(x, y, n, grid=lambda config: cdiv(n, config.TX), defines={"TX": [64, 128]})
    """
    from slangpy_rt.interop.source_kernel import SourceKernel
    from slangpy_rt.runtime.core import a_device

    return SourceKernel(source, None if device is None else a_device("kernel", device))


def empty(shape: int | Sequence[int], dtype: Any = "float", device: Any = None) -> Any:
    """Return a new array whose contents are not set.

    Parameters
    ----------
    shape : int or sequence of int
        The array's shape.
    dtype : dtype
        An element type. One of PyTorch's makes a tensor of PyTorch; others, as ``Tensor.empty`` takes them, a Tensor.
    device : Device, torch.device or str, optional
        A Device for a Tensor. For a tensor of PyTorch its device: by default the one that
        ``torch.set_default_device`` has set, or else the current GPU, or the CPU where PyTorch has no GPU.

    Returns
    -------
    Tensor or torch.Tensor

    Raises
    ------
    BindError
        If the type is no element type, or a Tensor has no device.
    """
    if type(dtype).__module__ == "torch":
        from slangpy_rt.interop.torch_memory import empty_tensor

        return empty_tensor(shape, dtype, device)
    from slangpy_rt.arrays.tensor import Tensor
    from slangpy_rt.core.errors import BindError

    if device is None:
        raise BindError(
            "empty: a Tensor needs a device; give device=..., or a dtype of PyTorch for a tensor of PyTorch."
        )
    return Tensor.empty(device, shape, dtype)
