"""The file system from which Slang reads imported and included files, an ``ISlangFileSystemExt`` in Python.

Paths mean what they mean to Slang's own file system. Files of users are passed on with the statements that
``rebinding`` adds; files in ``shaders/``, and those that are not UTF-8 text, as they are. Nothing is written.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slangpy_rt.core.errors import CompileError
from slangpy_rt.core.paths import resolved
from slangpy_rt.slang import _abi
from slangpy_rt.slang.corrections.rebinding import rebinding_edits
from slangpy_rt.slang.files import decoded, names_files, reachable, read_file, real
from slangpy_rt.slang.shader_modules import is_ours
from slangpy_rt.slang.source_map import SourceMap

# SLANG_FAIL and SLANG_E_NOT_FOUND, SLANG_E_NOT_IMPLEMENTED, SLANG_E_NO_INTERFACE of slang.h.
_FAIL, _NOT_FOUND = 0x80004005 - (1 << 32), 0x82000005 - (1 << 32)
_NOT_IMPLEMENTED, _NO_INTERFACE = 0x80004001 - (1 << 32), 0x80004002 - (1 << 32)
_FOLDER, _FILE = 0, 1  # SlangPathType
_SIMPLIFIED, _FROM_FILE = 0, 1  # PathKind, SlangPathType
_DIRECT = 1  # OSPathKind: paths are those of the operating system
_IDENTIFIERS = frozenset(_abi.IDENTIFIERS.values())


class FileSystem:
    """An object that Slang calls for each file. It exists as long as a Slang session has a reference to it.

    Parameters
    ----------
    native : ctypes.CDLL
        The loaded compiler, which makes the objects that hold results.
    add_source : callable
        A function that takes the path and the map of each text that is passed on.
    """

    def __init__(self, native: ctypes.CDLL, add_source: Callable[[str, SourceMap], None]) -> None:
        self._native = native
        self._add_source = add_source
        self._folders: tuple[str, ...] = ()
        # The module that is loaded, and the texts around its files by their paths, once one of these is read.
        self._module = ("", "")
        self._around: dict[str, str] | None = None
        own = {
            name: slot for name, (slot, _, _) in _abi.METHODS.items() if name.partition(".")[0] in _abi.IDENTIFIERS
        }
        methods = {slot: name for name, slot in own.items()}
        # The callbacks have to live as long as the object whose table points to them.
        self._callbacks = [self._callback(methods[slot]) for slot in range(len(methods))]
        self._table = (ctypes.c_void_p * len(methods))(
            *(ctypes.cast(callback, ctypes.c_void_p).value for callback in self._callbacks)
        )
        self._object = ctypes.c_void_p(ctypes.addressof(self._table))

    @property
    def address(self) -> int:
        """The address of the object."""
        return ctypes.addressof(self._object)

    @contextmanager
    def searching(self, folders: tuple[str, ...], path: str, text: str) -> Iterator[None]:
        """Look up files that a file names in `folders`, too, while a module is loaded. The library's lock is held.

        Parameters
        ----------
        folders : tuple of str
            The search path.
        path, text : str
            The module. An included file uses its structs, functions and macros.
        """
        before = self._folders, self._module, self._around
        self._folders, self._module, self._around = folders, (path, text), None
        try:
            yield
        finally:
            self._folders, self._module, self._around = before

    def _callback(self, name: str) -> Any:
        _, result, parameters = _abi.METHODS[name]
        method = getattr(self, name.partition(".")[2])

        def call(_: int, *args: Any) -> int:
            try:
                return int(method(*args))
            except Exception:  # no exception can pass through Slang; a file that cannot be read is one not found
                return _FAIL

        return ctypes.CFUNCTYPE(result, ctypes.c_void_p, *parameters)(call)

    # The methods of the interfaces, by their names in slang.h.

    def queryInterface(self, identifier: int, out: int) -> int:
        found = self.castAs(identifier)
        _write(out, found)
        if found:
            self.addRef()
        return 0 if found else _NO_INTERFACE

    # Slang's references are references of Python: a session that is collected with this object still calls it.
    def addRef(self) -> int:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        return 1

    def release(self) -> int:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(self))
        return 1

    def castAs(self, identifier: int) -> int:
        return self.address if ctypes.string_at(identifier, 16) in _IDENTIFIERS else 0

    def loadFile(self, path: bytes, out: int) -> int:
        file = _slashes(path)
        try:
            data = read_file(file)
        except OSError:
            return _NOT_FOUND
        if not is_ours(Path(file)):
            try:
                text = decoded(file, data)
            except CompileError:  # the session reports it
                return self._blob(data, out)
            source = SourceMap.of(text).edited(rebinding_edits(text, self._others(file, text)))
            self._add_source(file, source)
            data = source.text.encode()
        return self._blob(data, out)

    def _others(self, file: str, text: str) -> list[str]:
        """Return the texts that a file may use: those that it names, the module, and those that the module names."""
        if self._around is None:
            path, module = self._module
            found = reachable(path, module, self._folders) if names_files(module) else []
            self._around = {real(name): other for name, other in [(path, module), *found]}
        named = reachable(file, text, self._folders) if names_files(text) else []
        others = self._around | {real(name): other for name, other in named}
        return [other for name, other in others.items() if name != real(file)]

    def getFileUniqueIdentity(self, path: bytes, out: int) -> int:
        return self.getPath(_SIMPLIFIED + 1, path, out)

    def calcCombinedPath(self, kind: int, start: bytes, path: bytes, out: int) -> int:
        folder = os.path.dirname(start) if kind == _FROM_FILE else start  # noqa: PTH120
        found = os.path.join(folder, path)  # noqa: PTH118
        if os.name != "nt" and b"\\" in path and not os.path.lexists(found):
            # The folder's own name may have backslashes, which stay.
            found = os.path.join(folder, path.replace(b"\\", b"/"))  # noqa: PTH118
        return self._blob(found + b"\0", out)

    def getPathType(self, path: bytes, out: int) -> int:
        try:
            mode = Path(_slashes(path)).stat().st_mode
        except (OSError, ValueError):
            return _NOT_FOUND
        ctypes.c_uint32.from_address(out).value = _FOLDER if stat.S_ISDIR(mode) else _FILE
        return 0

    def getPath(self, kind: int, path: bytes, out: int) -> int:
        if kind == _SIMPLIFIED:
            return self._blob(os.path.normpath(path) + b"\0", out)
        return self._blob(os.fsencode(resolved(_slashes(path))) + b"\0", out)

    def clearCache(self) -> int:
        return 0

    def enumeratePathContents(self, *_: Any) -> int:
        return _NOT_IMPLEMENTED

    def getOSPathKind(self) -> int:
        return _DIRECT

    def _blob(self, data: bytes, out: int) -> int:
        blob = self._native.slang_createBlob(data, len(data))
        _write(out, blob or 0)
        return 0 if blob else _FAIL


def _write(out: int, address: int) -> None:
    ctypes.c_void_p.from_address(out).value = address


def _slashes(path: bytes) -> str:
    """Return a path that exists as it is; any other with slashes, as Slang reads one with backslashes."""
    if os.name == "nt" or b"\\" not in path or os.path.lexists(path):
        return os.fsdecode(path)
    return os.fsdecode(path.replace(b"\\", b"/"))
