"""Sessions of the Slang compiler: text in; reflection, target code and layouts out.

It writes no Slang text, calls no downstream compiler and keeps nothing on disk.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from slangpy_rt.backends.base import Target
from slangpy_rt.errors import CompileError, UnsupportedError
from slangpy_rt.slang import _abi, reflect
from slangpy_rt.slang.com import ComPtr, Out, load_library
from slangpy_rt.slang.locate import find_library
from slangpy_rt.types import Compiled, ModuleInfo

_FORMATS = {
    "cpp": _abi.SLANG_CPP_SOURCE,
    "cuda": _abi.SLANG_CUDA_SOURCE,
    "hlsl": _abi.SLANG_HLSL,
    "metal": _abi.SLANG_METAL,
    "spirv": _abi.SLANG_SPIRV,
    "wgsl": _abi.SLANG_WGSL,
}
_OPTIONS = (
    (_abi.DiagnosticColor, _abi.SLANG_DIAGNOSTIC_COLOR_NEVER),
    (_abi.EmitSpirvMethod, _abi.SLANG_EMIT_SPIRV_DIRECTLY),
    (_abi.VulkanUseEntryPointName, 1),
)


class Session:
    """Modules and kernels for one target.

    A session keeps every module it loaded, so that a kernel's ``import`` finds it by name; a changed
    module needs a new session. Sessions of one library take turns: Slang is not thread safe.

    Parameters
    ----------
    library : Library
        The compiler; it is loaded here if it was not.
    target : Target
        What to emit.
    search_paths : tuple of str
        Where ``import`` and ``#include`` look after the importing file's own directory.
    defines : tuple of (str, str)
        Preprocessor macros.

    Raises
    ------
    UnsupportedError
        If the compiler is missing, or knows no such format or profile.
    """

    def __init__(
        self,
        library: Library,
        target: Target,
        search_paths: tuple[str, ...] = (),
        defines: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.target = target
        self._library = library
        self._session: ComPtr | None = None
        self._loaded: dict[str, tuple[str, str]] = {}
        if target.format not in _FORMATS:
            raise UnsupportedError(
                f"target format {target.format!r}: Slang emits none such; use one of {', '.join(_FORMATS)}."
            )
        with library.lock:
            self._session = self._create(search_paths, defines)

    def load_module(self, name: str, path: str, source: str) -> ModuleInfo:
        """Load user code under a name that kernels import.

        Parameters
        ----------
        name : str
            Module name.
        path : str
            Its file, shown in diagnostics; imports are looked up beside it. Need not exist.
        source : str
            The text.

        Raises
        ------
        CompileError
            If Slang refuses the text, or this session holds another module of that name.
        """
        with self._library.lock:
            # Slang would return the old module for a known name, and fail an assertion for a known path.
            known = {n: m for n, m in self._loaded.items() if n == name or m[0] == path}
            loaded = (path, _digest(source))
            if known and known != {name: loaded}:
                other, (place, _) = next(iter(known.items()))
                raise CompileError(
                    f"module {name!r} from {path}: this session already holds module {other!r} from {place}; "
                    "open a new session to load another text under that name or path."
                )
            module = self._load(name, path, source)
            self._loaded[name] = loaded
            info = reflect.module_info(self._library.native, module, name)
            return ModuleInfo(name, info.functions, info.structs, info.entry_points, _dependencies(module))

    def compile(self, text: str, name: str, entry: str) -> Compiled:
        """Emit target code of a kernel.

        Parameters
        ----------
        text : str
            Slang text; its ``import`` finds the modules loaded in this session.
        name : str
            What diagnostics call the text.
        entry : str
            The entry point, or the exported function of a ``"range"`` target.

        Returns
        -------
        Compiled
            The layout is that of struct ``Call``, empty if the kernel takes none.

        Raises
        ------
        CompileError
            If Slang refuses the text or cannot express it on the target.
        """
        # Slang hands back the loaded module of an equal name whatever the text, and fails on an equal path.
        unique = f"{name}_{_digest(text)[:12]}"
        with self._library.lock, ExitStack() as stack:
            module = self._load(unique, f"{unique}.slang", text)
            parts, out, note = [module], Out(), Out()
            whole = self.target.entry == "range"
            if not whole:
                status = module.call("IModule.findEntryPointByName", entry.encode(), out.ref)
                parts.append(stack.enter_context(_object(status, out, note, f"find entry point {entry!r} of {name}")))
            array = (ctypes.c_void_p * len(parts))(*(part.address for part in parts))
            status = self._native().call(
                "ISession.createCompositeComponentType", array, len(parts), out.ref, note.ref
            )
            program = stack.enter_context(_object(status, out, note, f"compose {name}"))
            status = program.call("IComponentType.link", out.ref, note.ref)
            linked = stack.enter_context(_object(status, out, note, f"link {name}"))
            if whole:
                status = linked.call("IComponentType.getTargetCode", 0, out.ref, note.ref)
            else:
                status = linked.call("IComponentType.getEntryPointCode", 0, 0, out.ref, note.ref)
            code = out.bytes()
            if status < 0 or not code:
                raise _failure(note, f"compile {name} for {self.target.format}")
            note.bytes()
            if whole:
                code = _exported(code, entry)
            layout = linked.call("IComponentType.getLayout", 0, None)
            fields, size = reflect.call_layout(self._library.native, layout, whole)
            return Compiled(code, fields, size)

    def close(self) -> None:
        """Release the session with all its modules. Calling it again does nothing."""
        with self._library.lock:
            session, self._session = self._session, None
            if session is not None:
                session.close()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is not None and not sys.is_finalizing():
            self.close()

    def _native(self) -> ComPtr:
        if self._session is None:
            raise UnsupportedError("this Slang session is closed; open a new one.")
        return self._session

    def _create(self, search_paths: tuple[str, ...], defines: tuple[tuple[str, str], ...]) -> ComPtr:
        root = self._library.open()
        profile_name = self.target.profile or ("spirv_1_5" if self.target.format == "spirv" else "")
        profile = root.call("IGlobalSession.findProfile", profile_name.encode()) if profile_name else 0
        if profile_name and not profile:
            raise UnsupportedError(f"profile {profile_name!r} is unknown to Slang {self._library.build_tag}.")
        target = _abi.TargetDesc(
            structureSize=ctypes.sizeof(_abi.TargetDesc),
            format=_FORMATS[self.target.format],
            profile=profile,
            lineDirectiveMode=_abi.SLANG_LINE_DIRECTIVE_MODE_NONE,
        )
        paths = (ctypes.c_char_p * len(search_paths))(*(path.encode() for path in search_paths))
        macros = (_abi.PreprocessorMacroDesc * len(defines))()
        for macro, (name, value) in zip(macros, defines, strict=True):
            macro.name, macro.value = name.encode(), value.encode()
        options = (_abi.CompilerOptionEntry * len(_OPTIONS))()
        for option, (number, choice) in zip(options, _OPTIONS, strict=True):
            option.name, option.value.intValue0 = number, choice
        desc = _abi.SessionDesc(
            structureSize=ctypes.sizeof(_abi.SessionDesc),
            targets=ctypes.addressof(target),
            targetCount=1,
            defaultMatrixLayoutMode=_abi.SLANG_MATRIX_LAYOUT_ROW_MAJOR,
            searchPaths=ctypes.addressof(paths),
            searchPathCount=len(paths),
            preprocessorMacros=ctypes.addressof(macros),
            preprocessorMacroCount=len(macros),
            compilerOptionEntries=ctypes.addressof(options),
            compilerOptionEntryCount=len(options),
        )
        out = Out()
        status = root.call("IGlobalSession.createSession", ctypes.byref(desc), out.ref)
        return _object(status, out, Out(), f"open a session for {self.target.format}")

    def _load(self, name: str, path: str, source: str) -> ComPtr:
        note = Out()
        address = self._native().call(
            "ISession.loadModuleFromSourceString", name.encode(), path.encode(), source.encode(), note.ref
        )
        if not address:
            raise _failure(note, f"load module {name!r} from {path}")
        note.bytes()
        return ComPtr(address, owned=False)


class Library:
    """The Slang compiler. Creating one loads nothing; the first session does.

    Parameters
    ----------
    path : str or None
        The library's file; None for the one inside the slangpy wheel.
    """

    def __init__(self, path: str | None = None) -> None:
        self.lock = threading.RLock()
        self._path = path
        self._native: ctypes.CDLL | None = None
        self._root: ComPtr | None = None

    @property
    def native(self) -> ctypes.CDLL:
        """The loaded library."""
        with self.lock:
            if self._native is None:
                self._native = load_library(find_library(self._path))
            return self._native

    @property
    def build_tag(self) -> str:
        """Version of the compiler as it names itself; loads it."""
        with self.lock:
            tag: bytes = self.open().call("IGlobalSession.getBuildTagString")
            return tag.decode()

    def open(self) -> ComPtr:
        """The one global session, created on first use (0.2 s: it reads Slang's core module).

        Raises
        ------
        UnsupportedError
            If the library is missing, unusable or older than the ABI this package was written for.
        """
        with self.lock:
            if self._root is None:
                desc = _abi.SlangGlobalSessionDesc(
                    structureSize=ctypes.sizeof(_abi.SlangGlobalSessionDesc), minLanguageVersion=2025
                )
                out = Out()
                status = self.native.slang_createGlobalSession2(ctypes.byref(desc), out.ref)
                root = _object(status, out, Out(), "start the Slang compiler")
                self._check_version(root)
                self._root = root
            return self._root

    def close(self) -> None:
        """Release the global session once all sessions are closed; the next use starts another."""
        with self.lock:
            root, self._root = self._root, None
            if root is not None:
                root.close()

    @staticmethod
    def _check_version(root: ComPtr) -> None:
        tag = root.call("IGlobalSession.getBuildTagString").decode()
        match = re.match(r"v?(\d+)\.(\d+)", tag)  # Slang only ever appends slots: newer is fine, older is not.
        if match and (int(match[1]), int(match[2])) < _abi.VERSION[:2]:
            wanted = ".".join(map(str, _abi.VERSION))
            raise UnsupportedError(f"Slang {tag} is too old; expected {wanted} or newer: upgrade slangpy.")


def _object(status: int, out: Out, note: Out, what: str) -> ComPtr:
    found = out.take()
    if status < 0 or found is None:
        raise _failure(note, what)
    note.bytes()
    return found


def _failure(note: Out, what: str) -> CompileError:
    text = note.bytes().rstrip(b"\0").decode(errors="replace").strip()
    return CompileError(f"Slang could not {what}:\n{text or 'it gave no reason.'}")


def _exported(code: bytes, entry: str) -> bytes:
    # Slang 2026.12 gives an exported function of the C++ target C++ linkage, hence a mangled symbol.
    plain, named = f"\nvoid {entry}(".encode(), f"\nSLANG_PRELUDE_EXPORT void {entry}(".encode()
    if code.count(plain) + code.count(named) != 1:
        raise CompileError(
            f"the text has no function {entry!r} to export; expected one declared as\n"
            f"export __extern_cpp void {entry}(int64_t begin, int64_t end, Call* call)"
        )
    return code.replace(plain, named)


def _dependencies(module: ComPtr) -> tuple[tuple[str, str], ...]:
    found = {}
    for index in range(module.call("IModule.getDependencyFileCount")):
        path = Path(module.call("IModule.getDependencyFilePath", index).decode())
        if path.is_file():  # text without a file has a pseudo path
            found[str(path.resolve())] = hashlib.sha256(path.read_bytes()).hexdigest()
    return tuple(sorted(found.items()))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
