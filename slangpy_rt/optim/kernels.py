"""Kernels: the functions of ``shaders/_spy_optim.slang`` on one device, loaded for each kind of scalars."""

from __future__ import annotations

from typing import Any

from slangpy_rt.calls.function import Function
from slangpy_rt.calls.module import Module

_FILE = "_spy_optim.slang"


class Kernels:
    """The functions of one device.

    Parameters
    ----------
    device : Device
        The device on which they run.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._found: dict[tuple[str, tuple[str, str, str]], Function] = {}

    def function(self, name: str, scalars: tuple[str, str, str]) -> Function:
        """Return a function by its name, for scalars of a parameter, of its gradient and of the computation."""
        found = self._found.get((name, scalars))
        if found is None:
            held, gradient, of = scalars
            macros = {"SPY_HELD": held, "SPY_GRADIENT": gradient, "SPY_OF": of}
            made: Any = Module.load_from_file(self._device, _FILE, defines=macros)[f"_spy_{name}"]
            found = self._found[name, scalars] = made
        return found


def kernels(device: Any) -> Kernels:
    """Return the functions of a device."""
    found: Kernels = device.once("optimizers", lambda: Kernels(device))
    return found
