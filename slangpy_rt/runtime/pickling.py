"""PickleModule: pickles of arrays, functions and devices, read for one device.

A pickle holds no device: it names one, by type, number and identity, and ``open_device`` finds one that is open. It
opens none, since a program decides how its devices are opened.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

from slangpy_rt.core.errors import DeviceError
from slangpy_rt.runtime.core import LIVE, DeviceCore, a_device


class PickleModule:
    """A module like ``pickle`` whose pickles are read for one device, for ``pickle`` itself and for ``torch.load``.

    Parameters
    ----------
    device : Device
        The device for all that was pickled on any device.

    Attributes
    ----------
    Unpickler : type
        A ``pickle.Unpickler`` for this device.
    Pickler : type
        ``pickle.Pickler``.
    """

    Pickler = pickle.Pickler
    dump = staticmethod(pickle.dump)
    dumps = staticmethod(pickle.dumps)

    def __init__(self, device: DeviceCore) -> None:
        class Unpickler(pickle.Unpickler):
            """Reads each device in a pickle as this one."""

            def find_class(self, module: str, name: str) -> Any:
                if (module, name) == (__name__, open_device.__name__):
                    return lambda *_: device
                return super().find_class(module, name)

        # PyTorch asks which module it was given.
        self.__name__ = "slangpy_rt.pickle_on"
        self.Unpickler = Unpickler
        self._device = device

    def load(self, file: Any, **options: Any) -> Any:
        """Read an object from a file that is open for reading bytes; the options are those of ``pickle.load``."""
        return self.Unpickler(file, **options).load()

    def loads(self, data: Any, **options: Any) -> Any:
        """Read an object from bytes; the options are those of ``pickle.loads``."""
        return self.Unpickler(io.BytesIO(data), **options).load()

    def __repr__(self) -> str:
        return f"<pickle for {self._device!r}>"


def pickle_on(device: DeviceCore) -> PickleModule:
    """Return a module like ``pickle`` whose ``load`` and ``loads`` put arrays and functions on a device.

    Without it a pickle is read for the device that it was made on, if that is still open, and otherwise for the only
    open device of its type and number.

    Parameters
    ----------
    device : Device
        The device to read for.

    Returns
    -------
    PickleModule
        It has ``load``, ``loads``, ``dump``, ``dumps``, ``Pickler`` and ``Unpickler``;
        ``torch.load(path, pickle_module=spy.pickle_on(device), weights_only=False)`` takes it.

    Raises
    ------
    BindError
        If ``device`` is no device.

    Examples
    --------
    >>> with open("weights.pickle", "rb") as file:
    ...     weights = spy.pickle_on(device).load(file)
    """
    return PickleModule(a_device("pickle_on", device))


def device_reference(device: DeviceCore, identity: str) -> tuple[Callable[..., DeviceCore], tuple[str, int, str]]:
    """Return what ``pickle`` writes for a device: a call of ``open_device``."""
    device.check_open()
    return open_device, (device.name, device.index, identity)


def open_device(name: str, index: int, identity: str) -> DeviceCore:
    """Return the open device that a pickle names.

    Parameters
    ----------
    name, index
        Its type and number.
    identity : str
        A text that the device had alone.

    Raises
    ------
    DeviceError
        If it is not open, and none or several of its type and number are.
    """
    found = [d for d in LIVE if not d.closed and (d.name, d.index) == (name, index)]
    same = [d for d in found if d.identity == identity]
    if same:
        return same[0]
    if len(found) == 1:
        return found[0]
    kind = f"{name}:{index}" if index else name
    told = f"{len(found)} such devices are open" if found else "no such device is open"
    first = "" if found else f"Open it first, spy.Device({kind!r}), or name another one: "
    raise DeviceError(
        f"pickle: this was made on a {kind} device, and {told} in this process. "
        f"{first or 'Say which one: '}spy.pickle_on(device).load(file)."
    )
