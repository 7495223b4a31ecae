"""Exchange with other libraries, such as PyTorch and CuPy; a library is imported when it is first used.

Calls find the adapters here by a table of names; no package below imports this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slangpy_rt.calls.function import Function
    from slangpy_rt.device import Device


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
