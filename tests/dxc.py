"""DXC, Microsoft's compiler of HLSL, and the validator inside it, by ctypes: HLSL in, DXIL containers out.

For tests alone. It reads no files, signs nothing and runs nothing.
"""

from __future__ import annotations

import ctypes
import struct
import uuid
from ctypes import c_char_p, c_int32, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

# What Slang 2026.12 hands to DXC 1.8; tests/slang/test_dxil.py compares what either makes of that.
OPTIONS = (
    "-T", "cs_6_6", "-E", "_spy_kernel", "-HV", "2021", "-enable-16bit-types", "-Zpr", "-O1", "-no-warnings",
    "-disable-payload-qualifiers",
)  # fmt: skip
# Classes and interfaces of dxcapi.h, and the slots that are called here; an interface's own begin at 3.
_COMPILER, _VALIDATOR, _UTILS = (
    "73e22d93-e6ce-47f3-b5bf-f0664f39c1b0",
    "8ca3e215-f728-4cf3-8cdd-88af917587a1",
    "6245d6af-66e0-48fd-80b4-4d271796748c",
)
_ICOMPILER3, _IVALIDATOR, _IUTILS, _IRESULT, _IVERSION = (
    "228b4687-5a6a-4730-900c-9702b2203f54",
    "a6e82bd2-1fd7-4826-9811-2857e797f49a",
    "4605c4cb-2019-492a-ada4-65f20bb7d67f",
    "58346cda-dde7-4497-9461-6f87af5e0659",
    "b04f5b50-2059-4f12-a8ff-a1e0cde1cc7e",
)
_QUERY, _RELEASE = 0, 2
_COMPILE = _VALIDATE = _GET_VERSION = _GET_STATUS = _GET_POINTER = 3
_GET_RESULT = _GET_SIZE = 4
_GET_ERRORS = 5
_CREATE_BLOB = 6
_UTF8 = 65001
# What a kernel needs of a device, as bits of a container's part SFI0 (D3D_SHADER_REQUIRES_* of d3d12shader.h).
FEATURES = {
    0x1: "double",
    0x4000: "waves",
    0x8000: "64-bit integers",
    0x40000: "16-bit types",
    0x2000000: "indexing of the heap",
    0x10000000: "64-bit atomics behind the heap",
}


class Dxc:
    """DXC in a shared library.

    Parameters
    ----------
    path : str or Path
        The library.

    Raises
    ------
    DxcError
        If it cannot be loaded or is no DXC.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            self._create = ctypes.CDLL(str(path)).DxcCreateInstance
        except (OSError, AttributeError) as error:
            raise DxcError(f"{path} is no library of DXC: {error}") from None
        self._create.restype, self._create.argtypes = c_int32, [c_void_p] * 3
        with self._new(_COMPILER, _ICOMPILER3) as compiler, compiler.query(_IVERSION) as told:
            major, minor = c_uint32(), c_uint32()
            told.call(_GET_VERSION, ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)

    def compile(self, text: str, options: tuple[str, ...] = OPTIONS) -> bytes:
        """A DXIL container; DXC validates it unless ``-Vd`` is among the options.

        Raises
        ------
        DxcError
            If DXC or its validator refuses the text; with what it says.
        """
        encoded = text.encode()
        given = _Buffer(ctypes.cast(c_char_p(encoded), c_void_p), len(encoded), _UTF8)
        words = (ctypes.c_wchar_p * len(options))(*options)
        with self._new(_COMPILER, _ICOMPILER3) as compiler, _Object() as result:
            compiler.call(
                _COMPILE, ctypes.byref(given), ctypes.byref(words), c_uint32(len(options)), None, _guid(_IRESULT),
                result.ref,
            )  # fmt: skip
            return result.outcome()

    def validate(self, container: bytes) -> None:
        """Have the validator alone look at a container.

        Raises
        ------
        DxcError
            If it refuses.
        """
        with (
            self._new(_VALIDATOR, _IVALIDATOR) as validator,
            self._new(_UTILS, _IUTILS) as utils,
            _Object() as blob,
            _Object() as result,
        ):
            utils.call(_CREATE_BLOB, container, c_uint32(len(container)), c_uint32(0), blob.ref)
            # 0: the container stays as it is.
            validator.call(_VALIDATE, blob.value, c_uint32(0), result.ref)
            result.outcome()

    def _new(self, kind: str, interface: str) -> _Object:
        made = _Object()
        _check(self._create(_guid(kind), _guid(interface), made.ref), f"make an object of class {kind}")
        return made


class DxcError(Exception):
    """What DXC refuses, in its words."""


def parts(container: bytes) -> dict[str, tuple[int, int]]:
    """Parts of a container by name: where the contents begin and end."""
    (count,) = struct.unpack_from("<I", container, 28)
    out = {}
    for at in struct.unpack_from(f"<{count}I", container, 32):
        name, size = struct.unpack_from("<4sI", container, at)
        out[name.decode()] = (at + 8, at + 8 + size)
    return out


def features(container: bytes) -> set[str]:
    """What a kernel needs of a device besides shader model 6.6."""
    (bits,) = struct.unpack_from("<Q", container, parts(container)["SFI0"][0])
    return {FEATURES.get(1 << k, f"feature {k}") for k in range(64) if bits >> k & 1}


class _Buffer(ctypes.Structure):
    """Text for the compiler, with its encoding."""

    _fields_ = (("pointer", c_void_p), ("size", c_size_t), ("encoding", c_uint32))


class _Object:
    """A COM object, or the place for one; given back at the end of a ``with``."""

    def __init__(self) -> None:
        self.value = c_void_p()
        self.ref = ctypes.byref(self.value)

    def slot(self, number: int, result: Any, *kinds: Any) -> Any:
        """A method, by its place in the table."""
        table = ctypes.cast(self.value, ctypes.POINTER(ctypes.POINTER(c_void_p)))[0]
        return ctypes.CFUNCTYPE(result, c_void_p, *kinds)(table[number])

    def call(self, number: int, *args: Any) -> None:
        """Call a method that returns whether it succeeded."""
        kinds = [type(arg) if isinstance(arg, c_uint32) else c_void_p for arg in args]
        _check(self.slot(number, c_int32, *kinds)(self.value, *args), f"call slot {number}")

    def query(self, interface: str) -> _Object:
        """The same object by another interface."""
        found = _Object()
        self.call(_QUERY, _guid(interface), found.ref)
        return found

    def bytes(self) -> bytes:
        """What a blob holds; nothing if there is none."""
        if not self.value:
            return b""
        size = self.slot(_GET_SIZE, c_size_t)(self.value)
        return ctypes.string_at(self.slot(_GET_POINTER, c_void_p)(self.value), size) if size else b""

    def outcome(self) -> bytes:
        """What an operation made."""
        status = c_int32()
        self.call(_GET_STATUS, ctypes.byref(status))
        with _Object() as errors, _Object() as made:
            self.call(_GET_ERRORS, errors.ref)
            if status.value < 0:
                said = errors.bytes().rstrip(b"\0").decode(errors="replace").strip()
                raise DxcError(said or f"status {status.value & 0xFFFFFFFF:#x}, without a word.")
            self.call(_GET_RESULT, made.ref)
            return made.bytes()

    def __enter__(self) -> _Object:
        return self

    def __exit__(self, *_: object) -> None:
        if self.value:
            self.slot(_RELEASE, c_uint32)(self.value)
            self.value.value = None


def _guid(text: str) -> Any:
    return ctypes.create_string_buffer(uuid.UUID(text).bytes_le, 16)


def _check(status: int, what: str) -> None:
    if status < 0:
        raise DxcError(f"DXC could not {what}: status {status & 0xFFFFFFFF:#x}.")
