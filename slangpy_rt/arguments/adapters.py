"""How a passed value becomes one that can be bound: by an adapter, by a conversion, or as it is.

Other libraries are known by the names of their types and protocols only; an adapter is imported with the first array.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import numpy as np

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.indices import range_of
from slangpy_rt.arguments.stand_ins import meant_by
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.conversion import by_protocol

# What most arguments are: to look at the names of their classes would take 3 us.
_OWN = frozenset({NDBuffer, Tensor})
# Modules and classes of adapters, by the full names of types, by the methods of protocols, and by kinds of results.
_TORCH = "slangpy_rt.interop.torch:TorchAdapter"
_TYPES = {"torch.Tensor": _TORCH}
_PROTOCOLS = {
    "__dlpack__": "slangpy_rt.interop.foreign:ForeignAdapter",
    "__cuda_array_interface__": "slangpy_rt.interop.foreign:ForeignAdapter",
}
_RESULTS = {"torch": _TORCH, "torch_gpu": _TORCH}
# The most dimensions of a NumPy array, since 2.0. It also ends the walk through a list that holds itself.
_DEEPEST = 64


def converter(kind: type) -> Any:
    """Return the conversion of values of a type, or None for values that are bound as they are.

    It is an ``Adapter`` for arrays of other libraries, and otherwise a function that takes the value.
    """
    if kind in _OWN:
        return None
    if kind is range:
        return range_of
    named = _named(kind)
    if named is not None:
        return named
    if hasattr(kind, "__slang_arg__") or hasattr(kind, "get_this"):
        return meant_by
    if issubclass(kind, (np.ndarray, np.generic, NDBuffer)):
        return None
    if kind is memoryview or hasattr(kind, "__array_interface__"):
        return by_protocol
    return next((_load(place) for method, place in _PROTOCOLS.items() if hasattr(kind, method)), None)


def adapter_for_result(value: Any) -> Adapter | None:
    """Return the adapter of an array given as ``_result``; None if it is of no library whose arrays are allowed."""
    adapter = _named(type(value))
    return adapter if adapter is not None and adapter.takes_results else None


def adapter_of_results(kind: str) -> Adapter | None:
    """Return the adapter that makes results of a kind; None for this package's and NumPy's kinds."""
    return _load(_RESULTS[kind]) if kind in _RESULTS else None


def thread_states(values: tuple[Any, ...]) -> list[Callable[[], AbstractContextManager[Any]]]:
    """Return functions whose contexts give another thread the settings that the values' libraries have in this one.

    Examples
    --------
    PyTorch keeps for each thread whether it records gradients.
    """
    kinds = {type(value) for value in values}
    found = {id(a): a for kind in kinds if isinstance(a := converter(kind), Adapter)}
    return [adapter.thread_state() for adapter in found.values()]


def asking_for_autograd(values: tuple[Any, ...]) -> Adapter | None:
    """Return the adapter of the first value whose library's automatic differentiation has to see the call."""
    for value in values:
        adapter = _named(type(value))
        if adapter is not None and adapter.asks_for_autograd(value):
            return adapter
    return None


def _named(kind: type) -> Adapter | None:
    """Return the adapter of a type whose name, or a base class's name, is in the table."""
    for base in kind.__mro__:
        place = _TYPES.get(f"{base.__module__}.{base.__name__}")
        if place is not None:
            return _load(place)
    return None


def _load(place: str) -> Adapter:
    module, _, name = place.partition(":")
    found: Adapter = getattr(import_module(module), name)()
    return found


def is_plain_sequence(value: Any, depth: int = 0) -> bool:
    """Return whether a list or tuple holds numbers only, nested or not; False if it is too deep for an array."""
    if depth >= _DEEPEST:
        return False
    if _NUMBERS.issuperset(map(type, value)):
        return True
    for v in value:
        if isinstance(v, (list, tuple)):
            if not is_plain_sequence(v, depth + 1):
                return False
        elif not isinstance(v, (bool, int, float, np.generic)):
            return False
    return True


_NUMBERS = frozenset({bool, int, float})
