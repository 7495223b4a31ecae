"""Chooses the library of a product's arguments. It imports PyTorch only where a program has imported it before."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.conversion import as_array
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.host_arrays import HostArrays
from slangpy_rt.linalg.own_arrays import OwnArrays


def arrays_of(where: str, values: Sequence[tuple[str, Any]]) -> tuple[Arrays, dict[str, Any]]:
    """Return the library of the arguments, and the arguments as its arrays by name; lists become NumPy's arrays.

    Raises
    ------
    BindError
        If they are of several libraries, or one is no array.
    """
    torch = sys.modules.get("torch")
    kinds: list[Arrays] = []
    found: dict[str, Any] = {}
    for name, value in values:
        if isinstance(value, NDBuffer):
            kind: Arrays = OwnArrays()
        elif torch is not None and isinstance(value, torch.Tensor):
            from slangpy_rt.linalg.torch_arrays import TorchArrays

            kind = TorchArrays()
        elif isinstance(value, (np.ndarray, list, tuple)):
            kind = HostArrays()
            if name == "out" and not isinstance(value, np.ndarray):
                raise BindError(f"{where}: out is {in_words(value)}, which holds no memory; pass a NumPy array.")
            value = as_array(f"{where}: {name}", value)
        else:
            raise BindError(
                f"{where}: {name} is {in_words(value)}; a Tensor, a NumPy array or a torch tensor was expected."
            )
        kinds.append(kind)
        found[name] = value
        if type(kind) is not type(kinds[0]):
            raise BindError(
                f"{where}: {values[0][0]} is {kinds[0].name} and {name} is {kind.name}; arrays of one library were "
                "expected."
            )
    return kinds[0], found
