"""The Slang compiler as a shared library: loaded once, with one global session, and one lock for all calls.

Results of its calls become ComPtr objects or exceptions here. Nothing here reads Slang text.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections import deque
from functools import cached_property

from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.slang import _abi
from slangpy_rt.slang.com import ComPtr, Out, load_library
from slangpy_rt.slang.emitted import SHORTER
from slangpy_rt.slang.file_system import FileSystem
from slangpy_rt.slang.locate import find_library, library_version
from slangpy_rt.slang.messages import with_users_lines
from slangpy_rt.slang.module_images import ModuleImages
from slangpy_rt.slang.source_map import SourceMap
from slangpy_rt.slang.spirv import Functions

_NO_CACHE = DiskCache(None, 0)
# Texts that messages can be about.
_MOST_SOURCES = 1024
# Warnings about attributes that ``Session`` renames by macros: ``[shader("vertex")]`` becomes ``[_spy_shader(...)]``.
_HIDDEN = re.compile(
    r"^warning\[E31000\]: unknown attribute\n(?:(?!(?:error|warning|note)\[).*\n)*?.*attribute '_spy_\w+'\n-+'\n*",
    re.M,
)

# Types that files for slang-torch and SlangPy name without the prefix ``_spy_``, which macros and aliases add.
_PREFIXED = re.compile(
    r"\b_spy_((?:Diff)?TensorView|TorchTensor|AtomicAdd|IDiffTensorWrapper|I(?:RW|W)?(?:Diff)?Tensor)\b"
)
# What the functions of slangpy_rt.slang that refuse elements say.
_NEEDED = {
    "_spy_indices": "A tensor takes as many indices as it has dimensions.",
    "_spy_needElement": "Structs are not changed atomically; their fields are, in arrays of their own.",
    "_spy_needSum": "add takes numbers of 32 or 64 bits, half, and vectors of these.",
    "_spy_needScalar": "min, max, exchange and compareExchange take scalars of 32 or 64 bits.",
    "_spy_needInteger": "and, or and xor take integers of 32 or 64 bits.",
}
_NOT_EMITTED = "unexpected IR opcode during code emit"
# What Slang says of an operation that it has no C++ for, around the place.
_ABORTED = re.compile(r"\Aerror\[E99997\]: Slang compilation aborted [^\n]*\n(?:For assistance, [^\n]*\n)?")
_ASSISTANCE = re.compile(r"^For assistance, [^\n]*\n?", re.M)
_NO_CPP = (
    "For the CPU, Slang 2026.12 has no code for this atomic operation. InterlockedAdd(p[i], x) of a pointer T *p and "
    "its like, in a file that has 'import slangpy_rt;', and elements of RWTensor<Atomic<T>, N> have it on every "
    "device."
)
_ALONE = "expected an expression of type 'Atomic<"
_NOT_ALONE = (
    "An Atomic<T> has to be an element of memory that threads share: declare RWTensor<Atomic<T>, N> t, and use t[i], "
    "or a pointer Atomic<T> *p."
)
_INTERNAL = "internal compiler error"
_IN_DERIVATIVE = (
    "Slang 2026.12 cannot differentiate a function that calls InterlockedAdd and the like; put the call into a "
    "function of its own that is not [Differentiable]."
)
# What Slang says of Texture2D.Sample in a kernel.
_NO_NEIGHBOURS = "error[E31210]"
# The message of SPIR-V's optimizer for an instruction of more than 65,535 words, whose 16-bit length has overflowed.
_TOO_LONG = "Invalid instruction word count"


class Library:
    """The Slang compiler. Creating an object loads nothing; the first session loads the shared library.

    Parameters
    ----------
    path : str or None
        The library's file; None for the one inside the slangpy wheel.
    cache : DiskCache
        Where intermediate code of this project's modules stays. Without one it stays in memory.
    """

    def __init__(self, path: str | None = None, cache: DiskCache = _NO_CACHE) -> None:
        self.lock = threading.RLock()
        # The target code of files whose functions other modules get.
        self.compiled: dict[str, bytes] = {}
        # Those of ``cpu_textures.slang``, which only the target of one device gets.
        self.textures: Functions | None = None
        # This project's modules, for later sessions: see ``NativeSession.load_own``.
        self.images = ModuleImages(cache)
        self._path = path
        self._native: ctypes.CDLL | None = None
        self._root: ComPtr | None = None
        self._sources: dict[str, SourceMap] = {}
        # Session objects whose last user is gone; ``open`` and ``close``, which hold the lock, release them.
        self.dropped: deque[ComPtr] = deque()

    @property
    def native(self) -> ctypes.CDLL:
        """The loaded shared library. Reading it loads the library if necessary."""
        with self.lock:
            if self._native is None:
                self._native = load_library(find_library(self._path))
            return self._native

    @cached_property
    def files(self) -> FileSystem:
        """The file system from which sessions read imported and included files."""
        return FileSystem(self.native, self.add_source)

    @cached_property
    def version(self) -> str:
        """A string that identifies the build of the compiler, for keys; reading it loads nothing."""
        return library_version(self._path)

    @property
    def build_tag(self) -> str:
        """The version that the compiler itself reports. Reading it loads the compiler if necessary."""
        with self.lock:
            tag: bytes = self.open().call("IGlobalSession.getBuildTagString")
            return tag.decode()

    def open(self) -> ComPtr:
        """Return the global session. The first call creates it, which takes 0.2 s: Slang reads its core module.

        Raises
        ------
        UnsupportedError
            If the library is missing, unusable or older than the version in ``_abi.VERSION``.
        """
        with self.lock:
            self.dropped.clear()
            if self._root is None:
                desc = _abi.SlangGlobalSessionDesc(
                    structureSize=ctypes.sizeof(_abi.SlangGlobalSessionDesc), minLanguageVersion=2025
                )
                out = Out()
                status = self.native.slang_createGlobalSession2(ctypes.byref(desc), out.ref)
                root = self.taken(status, out, Out(), "start the Slang compiler")
                self._check_version(root)
                self._root = root
            return self._root

    def close(self) -> None:
        """Release the global session; the next use starts another. All sessions have to be closed before."""
        with self.lock:
            self.dropped.clear()
            self.images.clear()
            root, self._root = self._root, None
            if root is not None:
                root.close()

    def add_source(self, path: str, source: SourceMap) -> None:
        """Keep the map of a text that a session reads, for messages about it."""
        self._sources.pop(path, None)
        self._sources[path] = source
        if len(self._sources) > _MOST_SOURCES:
            del self._sources[next(iter(self._sources))]

    def taken(self, status: int, out: Out, note: Out, what: str) -> ComPtr:
        """Return the object that a call of the compiler created.

        Parameters
        ----------
        status : int
            The result of the call; negative if it failed.
        out, note : Out
            The out parameters that received the object and the compiler's messages.
        what : str
            What the compiler was asked to do, for the error message: ``"link kernel_1"``.

        Raises
        ------
        CompileError
            If the call failed or created no object.
        """
        found = out.take()
        if status < 0 or found is None:
            raise self.failure(note, what)
        note.bytes()
        return found

    def failure(self, note: Out, what: str, own: tuple[tuple[str, SourceMap], ...] = ()) -> CompileError:
        """Return an error with the compiler's messages, which begins with ``Slang could not`` and `what`.

        Parameters
        ----------
        note : Out
            The compiler's messages.
        what : str
            What the compiler was asked to do.
        own : tuple of (str, SourceMap)
            Paths and maps of texts besides those of ``add_source``.
        """
        text = note.bytes().rstrip(b"\0").decode(errors="replace").strip()
        return _error(with_users_lines(text, (*self._sources.items(), *own)), what)

    @staticmethod
    def _check_version(root: ComPtr) -> None:
        tag = root.call("IGlobalSession.getBuildTagString").decode()
        match = re.match(r"v?(\d+)\.(\d+)", tag)  # Slang only ever appends slots: newer is fine, older is not.
        if match and (int(match[1]), int(match[2])) < _abi.VERSION[:2]:
            wanted = ".".join(map(str, _abi.VERSION))
            raise UnsupportedError(f"Slang {tag} is too old; expected {wanted} or newer: upgrade slangpy.")


def _error(text: str, what: str) -> CompileError:
    # This message only repeats the ones above it, so it is cut off.
    text = text.partition("\nerror[E39999]: import failed due to compilation error")[0]
    text = text.replace("_spy_AtomicElement", "Atomic")
    text = _PREFIXED.sub(r"\1", _HIDDEN.sub("", text))
    text += "".join(f"\n{said}" for name, said in _NEEDED.items() if f"see call to '{name}'" in text)
    if _NOT_EMITTED in text and re.search(r"Interlocked|[Aa]tomic", text) and what.endswith("for cpp"):
        text = f"{_ABORTED.sub('', text).partition(chr(10) * 2)[0]}\n{_NO_CPP}"
    elif _INTERNAL in text and re.search(r"\bInterlocked", text):
        text = (
            _ASSISTANCE.sub("", _ABORTED.sub("", text)).partition("\nerror[E99997]")[0].rstrip()
            + f"\n{_IN_DERIVATIVE}"
        )
    if _ALONE in text:
        text += f"\n{_NOT_ALONE}"
    if _NO_NEIGHBOURS in text:
        text += "\nOnly pixels have neighbours from which a level follows: use SampleLevel(sampler, at, level)."
    if _TOO_LONG in text:
        text += f"\n{SHORTER}"
    message = f"Slang could not {what}:\n{text or 'it gave no reason.'}"
    # What cannot be encoded, as in a folder's name that is not UTF-8, cannot be printed.
    return CompileError(message.encode("utf-8", "backslashreplace").decode())
