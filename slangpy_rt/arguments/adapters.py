"""What people pass: which values stand for others, which are plain numbers, and how messages name them."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

import numpy as np

from slangpy_rt.arguments.indices import range_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.wording import describe as describe

# Dimensions of a NumPy array, since 2.0. A list that holds itself has no end.
_DEEPEST = 64


def converter(kind: type) -> Any:
    """What turns values of a type into those they stand for, or None when they stand for themselves.

    It is a function of the value; or of the value and a device, by its method ``on``, for arrays of other libraries.
    """
    if kind is range:
        return range_of
    if is_torch(kind):
        from slangpy_rt.interop.torch import AsArray

        return AsArray()
    if hasattr(kind, "__slang_arg__"):
        return methodcaller("__slang_arg__")
    if hasattr(kind, "get_this"):
        return methodcaller("get_this")
    if issubclass(kind, (np.ndarray, np.generic, NDBuffer)):
        return None
    if kind is memoryview or hasattr(kind, "__array_interface__"):
        return np.asarray
    if not hasattr(kind, "__dlpack__") and not hasattr(kind, "__cuda_array_interface__"):
        return None
    from slangpy_rt.interop.foreign import Foreign

    return Foreign()


def is_torch(kind: type) -> bool:
    """Whether values of a type are tensors of PyTorch, which is imported if they are."""
    return any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in kind.__mro__)


def asks_for_autograd(value: Any) -> bool:
    """Whether a call on a value has to be seen by PyTorch's autograd."""
    return is_torch(type(value)) and bool(converter(type(value)).asks_for_autograd(value))


def is_plain_sequence(value: Any, depth: int = 0) -> bool:
    """Whether a list or tuple holds numbers only, nested or not; one that is too deep for an array does not."""
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
