"""Slang's own session object, ``ISession``: opening one for a target, loading modules into it, and linking them.

Which modules are loaded, and what texts declare, is up to the caller, which holds the library's lock at every call.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path

from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.paths import working_directory
from slangpy_rt.core.target import Target
from slangpy_rt.slang import _abi
from slangpy_rt.slang.com import ComPtr, Out
from slangpy_rt.slang.flags import parse_flags
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.module_info import files_of
from slangpy_rt.slang.source_map import SourceMap
from slangpy_rt.slang.text import RESERVED

FORMATS = {
    "cpp": _abi.SLANG_CPP_SOURCE,
    "cuda": _abi.SLANG_CUDA_SOURCE,
    "hlsl": _abi.SLANG_HLSL,
    "metal": _abi.SLANG_METAL,
    "spirv": _abi.SLANG_SPIRV,
    "wgsl": _abi.SLANG_WGSL,
}
_MODULE = re.compile(r"^[ \t]*module[ \t]+(\w+)[ \t]*;", re.M)
_OPTIONS = (
    (_abi.DiagnosticColor, _abi.SLANG_DIAGNOSTIC_COLOR_NEVER),
    (_abi.EmitSpirvMethod, _abi.SLANG_EMIT_SPIRV_DIRECTLY),
    (_abi.VulkanUseEntryPointName, 1),
    (_abi.ForceCLayout, 1),
)


class NativeSession:
    """An ``ISession`` object of the compiler.

    Parameters
    ----------
    library : Library
        The compiler, which is loaded if necessary.
    target : Target
        The target that the session compiles for.
    search_paths : tuple of str
        Folders in which ``import`` and ``#include`` look after the importing file's own.
    defines : tuple of (str, str)
        Preprocessor macros.

    Raises
    ------
    UnsupportedError
        If the compiler is missing, or knows no such format or profile.
    CompileError
        If Slang refuses one of the target's flags.
    """

    def __init__(
        self, library: Library, target: Target, search_paths: tuple[str, ...], defines: tuple[tuple[str, str], ...]
    ) -> None:
        if target.format not in FORMATS:
            raise UnsupportedError(
                f"target format {target.format!r}: Slang emits none such; use one of {', '.join(FORMATS)}."
            )
        self._library, self._folders = library, search_paths
        # Macros of users are undefined in this project's modules.
        own = tuple(item for item in defines if item[0].startswith(RESERVED))
        self._kind = target.format, target.profile, target.flags, own
        self._pointer: ComPtr | None = _create(library, target, search_paths, defines)
        # The thread that drops the last reference may lack the lock, so it only appends the object to a queue.
        self._give = partial(library.dropped.append, self._pointer)

    # The finalizer runs no Python code: a KeyboardInterrupt inside a ``__del__`` that is a Python function would be
    # printed and then ignored.
    __del__ = property(attrgetter("_give"))

    @property
    def pointer(self) -> ComPtr:
        """The reference to the ``ISession`` object.

        Raises
        ------
        UnsupportedError
            If the session is closed.
        """
        if self._pointer is None:
            raise UnsupportedError("this Slang session is closed; open a new one.")
        return self._pointer

    def load(self, name: str, path: str, text: str, source: SourceMap | None = None) -> ComPtr:
        """Load a text as a module and return the module.

        Parameters
        ----------
        name : str
            The name by which other modules import it.
        path : str
            The path that diagnostics show, relative to which imports are looked up.
        text : str
            The Slang text.
        source : SourceMap, optional
            Where the text was made of a user's: its map, for messages.

        Raises
        ------
        CompileError
            If Slang refuses the text.
        """
        note = Out()
        if source:
            self._library.add_source(path, source)
        with self._library.files.searching(self._folders, path, text):
            address = self.pointer.call(
                "ISession.loadModuleFromSourceString", name.encode(), os.fsencode(path), text.encode(), note.ref
            )
        if not address:
            error = self._library.failure(note, f"load module {name!r} from {path}", ((path, SourceMap.of(text)),))
            named = _MODULE.search(text)
            if named and f"undefined identifier '{named[1]}'" in str(error):
                raise CompileError(
                    f"{error}\n'{named[0]}' hides {named[1]} in this file; give the module another name."
                )
            raise error
        note.bytes()
        return ComPtr(address, owned=False)

    def load_own(self, name: str, path: str, text: str, head: str) -> None:
        """Load a module of this project and those that it imports, from intermediate code if that is kept.

        Parameters
        ----------
        name, path, text
            As for ``load``.
        head : str
            The lines that undefine the user's macros, so that they change nothing in the module. These lines and
            macros are no part of what the intermediate code is kept for.

        Raises
        ------
        CompileError
            If Slang refuses the text or the code.
        """
        images, folder = self._library.images, Path(path).parent
        key = images.key(self._library.version, *self._kind, name, str(folder), text)
        before = set(map(_name, self.modules()))
        if kept := images.get(key):
            for other, code in kept:
                if other not in before:
                    self._load_image(other, str(folder / f"{other}.slang"), code)
            return
        module = self.load(name, path, head + text)
        # In a deleted working directory, with a relative search path, Slang 2026.12 leaves a module's own file out of
        # the code or writes it as a path from there. Modules that import it would not depend on the file.
        if working_directory() and images.wanted(key):
            # Modules that this one imports come before it, those that were loaded earlier included.
            files = {Path(file).stem for file in files_of(module)} | {name}
            parts = [module for module in self.modules() if _name(module) in files]
            images.put(key, f"{name} for {self._kind[0]}", tuple((_name(part), self._code(part)) for part in parts))

    def _load_image(self, name: str, path: str, code: bytes) -> None:
        note = Out()
        address = self._library.native.slang_createBlob(code, len(code))
        if not address:
            raise CompileError(f"Slang could not read the {len(code):,} bytes of the intermediate code of {name!r}.")
        with ComPtr(address) as blob:
            found = self.pointer.call(
                "ISession.loadModuleFromIRBlob", name.encode(), os.fsencode(path), blob.address, note.ref
            )
        if not found:
            raise self._library.failure(note, f"load module {name!r} from its intermediate code")
        note.bytes()

    def _code(self, module: ComPtr) -> bytes:
        """Return the intermediate code of a module."""
        out = Out()
        status = module.call("IModule.serialize", out.ref)
        if status < 0:
            raise self._library.failure(Out(), f"write the intermediate code of {_name(module)!r}")
        return out.bytes()

    def modules(self) -> list[ComPtr]:
        """Return all loaded modules, imported ones included."""
        session = self.pointer
        count = session.call("ISession.getLoadedModuleCount")
        found = (session.call("ISession.getLoadedModule", index) for index in range(count))
        return [ComPtr(address, owned=False) for address in found]

    def conformance(self, kind: int, interface: int, number: int, what: str) -> ComPtr:
        """Return the component that lets an object of an interface have a type, linked into a program.

        Parameters
        ----------
        kind, interface : int
            The addresses of the type and the interface.
        number : int
            The number that marks the type in such an object; -1 lets Slang choose it.
        what : str
            What the compiler is asked to do, for the error message.

        Raises
        ------
        CompileError
            If the type does not implement the interface.
        """
        out, note = Out(), Out()
        status = self.pointer.call(
            "ISession.createTypeConformanceComponentType", kind, interface, out.ref, number, note.ref
        )
        return self._library.taken(status, out, note, what)

    @contextmanager
    def linked(self, parts: Sequence[ComPtr], name: str, optimized: bool = True) -> Iterator[ComPtr]:
        """Link components to a program, which is released at the end of the ``with`` block.

        Without optimizations SPIR-V keeps the functions of Slang's core module, and their names.

        Raises
        ------
        CompileError
            If the components do not fit together; the message has `name`.
        """
        out, note = Out(), Out()
        array = (ctypes.c_void_p * len(parts))(*(part.address for part in parts))
        status = self.pointer.call("ISession.createCompositeComponentType", array, len(parts), out.ref, note.ref)
        with self._library.taken(status, out, note, f"compose {name}") as program:
            if optimized:
                status = program.call("IComponentType.link", out.ref, note.ref)
            else:
                option = _abi.CompilerOptionEntry(name=_abi.Optimization)  # its value 0 is no optimization
                status = program.call("IComponentType.linkWithOptions", out.ref, 1, ctypes.byref(option), note.ref)
            with self._library.taken(status, out, note, f"link {name}") as linked:
                yield linked

    def close(self) -> None:
        """Release the object with all its modules. Calling it again does nothing."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            del self._give
            pointer.close()


def _name(module: ComPtr) -> str:
    found: bytes = module.call("IModule.getName")
    return found.decode()


def _create(
    library: Library, target: Target, search_paths: tuple[str, ...], defines: tuple[tuple[str, str], ...]
) -> ComPtr:
    root = library.open()
    profile_name = target.profile or ("spirv_1_5" if target.format == "spirv" else "")
    profile = root.call("IGlobalSession.findProfile", profile_name.encode()) if profile_name else 0
    if profile_name and not profile:
        raise UnsupportedError(f"profile {profile_name!r} is unknown to Slang {library.build_tag}.")
    wanted = _abi.TargetDesc(
        structureSize=ctypes.sizeof(_abi.TargetDesc),
        format=FORMATS[target.format],
        profile=profile,
        lineDirectiveMode=_abi.SLANG_LINE_DIRECTIVE_MODE_NONE,
    )
    paths = (ctypes.c_char_p * len(search_paths))(*map(os.fsencode, search_paths))
    macros = (_abi.PreprocessorMacroDesc * len(defines))()
    for macro, (name, value) in zip(macros, defines, strict=True):
        macro.name, macro.value = name.encode(), value.encode()
    given = parse_flags(root, target.flags)
    options = (_abi.CompilerOptionEntry * (len(_OPTIONS) + len(given.options)))(
        *(
            _abi.CompilerOptionEntry(number, _abi.CompilerOptionValue(intValue0=choice))
            for number, choice in _OPTIONS
        ),
        *given.options,
    )
    desc = _abi.SessionDesc(
        structureSize=ctypes.sizeof(_abi.SessionDesc),
        targets=ctypes.addressof(wanted),
        targetCount=1,
        fileSystem=library.files.address,
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
    return library.taken(status, out, Out(), f"open a session for {target.format}")
