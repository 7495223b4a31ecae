"""Access to Slang's COM objects through ctypes: method calls, and one release of each reference.

Nothing here depends on modules, targets or types. No lock is taken: Slang counts references without atomics, so the
caller must hold a lock around every use.
"""

from __future__ import annotations

import ctypes
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.slang import _abi


class ComPtr:
    """A reference to a COM object, released by ``close`` or with the last Python reference to it.

    Parameters
    ----------
    address : int
        The object's address.
    owned : bool
        Whether this object has to release the reference. References to objects that a Slang session keeps, such as
        modules, belong to Slang and are not released.
    """

    __slots__ = ("_release", "address", "owned")

    # The finalizer runs no Python code (see ``interrupts.py``): a KeyboardInterrupt raised inside a ``__del__`` that
    # is a Python function would be printed and ignored.
    __del__ = property(attrgetter("_release"))

    def __init__(self, address: int, owned: bool = True) -> None:
        self.address = address
        self.owned = owned
        if owned:
            slot, prototype = _prototype("ISlangUnknown.release")
            table = ctypes.cast(address, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
            self._release = partial(prototype(table[slot]), address)

    def call(self, method: str, *args: Any) -> Any:
        """Call a method by its name in ``_abi.METHODS``: ``"Interface.method"``."""
        slot, prototype = _prototype(method)
        table = ctypes.cast(self.address, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
        return prototype(table[slot])(self.address, *args)

    def close(self) -> None:
        """Release the reference. Calling it again does nothing."""
        address, self.address = self.address, 0
        if address and self.owned:
            release = self._release
            del self._release
            release()

    def __enter__(self) -> ComPtr:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Out:
    """An out parameter: a pointer-sized variable into which a COM method writes the address of an object."""

    __slots__ = ("ref", "value")

    def __init__(self) -> None:
        self.value = ctypes.c_void_p()
        self.ref = ctypes.byref(self.value)

    def take(self) -> ComPtr | None:
        """Return the object, which the caller then has to release; None if the method wrote no address."""
        address, self.value.value = self.value.value, None
        return ComPtr(address) if address else None

    def bytes(self) -> bytes:
        """Return the contents of the object, an ``ISlangBlob``, and release it; empty if the method wrote none."""
        blob = self.take()
        if blob is None:
            return b""
        with blob:
            size = blob.call("ISlangBlob.getBufferSize")
            return ctypes.string_at(blob.call("ISlangBlob.getBufferPointer"), size) if size else b""


def load_library(path: Path) -> ctypes.CDLL:
    """Load the compiler and give every function of ``_abi.FUNCTIONS`` its prototype.

    Raises
    ------
    UnsupportedError
        If the file cannot be loaded, or the library lacks one of the functions.
    """
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _abi.FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        version = ".".join(map(str, _abi.VERSION))
        raise UnsupportedError(
            f"Slang library {str(path)!r} is unusable; expected Slang {version} or newer: {error}"
        ) from error
    return library


@cache
def _prototype(method: str) -> tuple[int, Any]:
    slot, result, arguments = _abi.METHODS[method]
    return slot, ctypes.CFUNCTYPE(result, ctypes.c_void_p, *arguments)
