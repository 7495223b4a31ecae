"""PickleModule: pickles of arrays, functions and devices, read for one device, and the checks of all readers.

A pickle holds no device: it names one, by type, number and identity, and ``open_device`` finds one that is open. It
opens none, since a program decides how its devices are opened.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from slangpy_rt.core.errors import BindError, DeviceError, SlangPyRtError
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import LIVE, DeviceCore, a_device

F = TypeVar("F", bound=Callable[..., Any])
# Errors of Python and NumPy by which a value of a wrong type, length or size shows.
_RAW = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


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


def damaged(what: str, why: str) -> BindError:
    """Return the error for a pickle whose contents do not agree with each other."""
    return BindError(f"pickle: {what} is damaged: {why}. Write the pickle again.")


def reads(what: str) -> Callable[[F], F]:
    """Return a decorator of functions that ``pickle`` calls: Python's own errors in them become a BindError.

    Parameters
    ----------
    what : str
        What the function reads, as the subject of the message: ``"an array"``.
    """

    def changed(function: F) -> F:
        @wraps(function)
        def call(*args: Any) -> Any:
            try:
                return function(*args)
            except SlangPyRtError:
                raise
            except _RAW as error:
                raise damaged(what, f"{type(error).__name__}: {error}") from error

        read: Any = call
        return read  # type: ignore[no-any-return]

    return changed


def check_values(what: str, values: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Check that host data in a pickle has a dtype and a shape, and return it in C order.

    Nothing of the shape's size is allocated before.
    """
    if not isinstance(values, np.ndarray) or values.dtype != dtype or values.shape != shape:
        raise damaged(what, f"its values are {in_words(values)}; an array of {dtype} of shape {shape} was expected")
    return np.asarray(values, order="C")


def check_state(what: str, state: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Check that the state of an object in a pickle is a dict with some names, and return it."""
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise damaged(what, f"its state is {in_words(state)}; a dict by name was expected")
    missing = [name for name in names if name not in state]
    if missing:
        raise damaged(what, f"its state has no {', '.join(missing)}")
    return state
