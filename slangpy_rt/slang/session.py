"""Sessions of the Slang compiler: text in; reflection, target code and layouts out.

It writes no Slang text, calls no downstream compiler and keeps nothing on disk.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import Compiled, FunctionSig, ModuleInfo, SlangType, StructInfo
from slangpy_rt.slang import _abi, reflect
from slangpy_rt.slang.com import ComPtr, Out
from slangpy_rt.slang.emitted import context_variables, emitted_name, exported
from slangpy_rt.slang.files import check_imports, dependencies, places
from slangpy_rt.slang.library import Library, failure, taken
from slangpy_rt.slang.lookup import Lookup, last_part, parse
from slangpy_rt.slang.target_code import NEEDS_GROUPS, check_depth, check_groups, checked, completed
from slangpy_rt.slang.text import RESERVED, blank, declared, deepest, docs, local_statics, prepare, reserved

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
# At the end, every line and column stays what it was.
_IMPORT = "\nimport slangpy_rt;\n"
_OURS = re.compile(
    r"\b(?:(?:RW)?Tensor|(?:RW|W)?DiffTensor|NDBuffer|(?:RW)?(?:Structured|ByteAddress)Buffer|printf)\b"
)
# Modules of ours, each behind those that it imports.
_SHADERS = ("_spy_handles", "_spy_library", "slangpy_rt", "mlp")
# Files of ours that are modules by themselves; users import the first.
_LIBRARIES = ("mlp", "_spy_folds")
_PART = (
    "'{path}' is a part of slangpy_rt and no module by itself: put 'import slangpy_rt;' into a file of your own, and "
    "load that."
)
_TAKEN = "{place}: '{name}' is a name of slangpy_rt's own, as all that begin with '_spy_' are; choose another."
_LIBRARY = re.compile(r"^module (?:slangpy_rt|_spy_library);", re.M)


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
        for name, _ in defines:
            if name.startswith(RESERVED):
                raise CompileError(_TAKEN.format(place="defines", name=name))
        self.target = target
        # Macros are for the user's files: what we write means the same under any.
        self._undo = "".join(f"#undef {name.partition('(')[0]}\n" for name, _ in defines)
        self._undo += "#line 1\n" if defines else ""
        # shaders/storage.slang looks for it.
        defines += (("_spy_by_handle", "1"),) if target.entry == "handle" else ()
        self._library = library
        self._shaders = next((Path(folder) for folder in search_paths if is_ours(Path(folder) / "any")), None)
        self._library_loaded = False
        self._session: ComPtr | None = None
        self._loaded: dict[str, tuple[str, str]] = {}
        self._folders, self._defines = search_paths, defines
        # Of loaded modules: name, path, text and the digests of its files, for a program.
        self._sources: list[tuple[str, str, str, tuple[tuple[str, str], ...]]] = []
        self._modules: dict[str, ComPtr] = {}
        self._texts: dict[str, str] = {}
        self._cases: dict[str, reflect.Cases] = {}
        self._seen: set[str] = set()
        self._undefined: set[str] = set()
        self._walked: set[int] = set()
        if target.format not in _FORMATS:
            raise UnsupportedError(
                f"target format {target.format!r}: Slang emits none such; use one of {', '.join(_FORMATS)}."
            )
        with library.lock:
            self._session = self._create(search_paths, defines)
            # Whoever drops the last reference may not have the lock.
            self._give = partial(library.dropped.append, self._session)

    __del__ = property(attrgetter("_give"))

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
            check_names(name, path, source)
            if is_ours(Path(path)) and Path(path).stem not in _LIBRARIES:
                raise CompileError(_PART.format(path=path))
            # Slang would return the old module for a known name, and fail an assertion for a known path.
            same = {n: m for n, m in self._loaded.items() if n == name or m[0] == path}
            loaded = (path, _digest(source))
            if same and same != {name: loaded}:
                other, (place, _) = next(iter(same.items()))
                raise CompileError(
                    f"module {name!r} from {path}: this session already holds module {other!r} from {place}; "
                    "open a new session to load another text under that name or path."
                )
            check_depth(deepest(blank(source)), f"load module {name!r} from {path}")
            check_imports(path, source, self._folders)
            prepared, prints = prepare(source), _prints(source)
            ours = self._shaders is not None and _needs_library(source)
            if ours or "import" in source or "include" in source:  # else it cannot lead Slang anywhere
                self._load_library(but=path)
            whole = prepared.text + _IMPORT if ours else prepared.text
            module = self._load(name, path, whole)
            self._loaded[name] = loaded
            self._modules[name], self._texts[name] = module, source
            native = self._library.native
            for known in self._every_module():
                decl = known.call("IModule.getModuleReflection")
                if known.address not in self._walked:
                    self._undefined.update(reflect.undefined_structs(native, decl))
                    self._walked.add(known.address)
            info = reflect.module_info(native, module, name, source, prepared, self._enum_cases(), self._undefined)
            files, texts = dependencies(_files(module), path)
            # The library's own files are found beside each other, before anybody else's.
            theirs = [item for item in texts if not is_ours(Path(item[0]))]
            for file, text in theirs:
                check_names(Path(file).stem, file, text)
            self._sources.append((name, path, whole, files))
            prints = prints or any(_prints(text) for _, text in theirs)
            looked = places([(path, source), *theirs], self._folders)
            return replace(info, dependencies=files, prints=prints, places=looked, declares=self._declared())

    def functions(self, module: str, name: str) -> tuple[FunctionSig, ...]:
        """Overloads of a function or method of a loaded module, in source order, with generic arguments filled in.

        Parameters
        ----------
        module : str
            A name given to ``load_module``.
        name : str
            Such as ``"add"``, ``"ns.add"``, ``"copy<float>"``, ``"S<float, 3>.load<half>"``. Without arguments a
            generic function comes as declared.

        Returns
        -------
        tuple of FunctionSig
            Empty if there is no such function.

        Raises
        ------
        CompileError
            If there is, but it takes no such generic arguments.
        """
        parsed = parse(name)
        if parsed is None or parsed.type != ".".join(parsed.parts):
            return ()
        with self._library.lock:
            look = self._look(module)
            found = look.functions(parsed)
            if not found and parsed.arguments:
                base = parse(".".join((*parsed.parts[:-1], parsed.parts[-1].partition("<")[0])))
                candidates = look.functions(base) if base else ()
                if candidates:
                    path = ".".join(parsed.parts[:-1])
                    owner = path if path and look.find_type(path) else ""
                    raise self._refused(module, parsed.shown, "function", candidates, owner)
            if not found and "<" in name and len(parsed.parts) > 1:
                self.type(module, ".".join(parsed.parts[:-1]))  # has the reason if its arguments are at fault
            return found

    def type(self, module: str, name: str) -> StructInfo | SlangType | None:
        """A type as a loaded module sees it: ``"S<float, 4>"``, ``"float3x4"``, ``"P[3]"``, an alias, an enum.

        Returns
        -------
        StructInfo, SlangType or None
            StructInfo of a struct, with the methods of extensions; None if there is no such type.

        Raises
        ------
        CompileError
            If there is, but it takes no such generic arguments.
        """
        parsed = parse(name)
        if parsed is None:
            return None
        with self._library.lock:
            look = self._look(module)
            decls = [m.call("IModule.getModuleReflection") for m in self._every_module()]
            found = look.type(parsed, decls)
            base = ".".join((*parsed.parts[:-1], parsed.parts[-1].partition("<")[0]))
            if found is None and parsed.arguments and look.find_type(base):
                raise self._refused(module, parsed.shown, "type")
            return found

    def conforms(self, module: str, name: str, interface: str) -> bool:
        """Whether a type implements an interface, as a loaded module sees both.

        Raises
        ------
        CompileError
            If there is no such type or interface.
        """
        with self._library.lock:
            kind, wanted = self._find_type(name, (module,)), self._find_type(interface, (module,))
            return self._look(module).conforms(kind, wanted)

    def compile(
        self,
        text: str,
        name: str,
        entry: str,
        conformances: tuple[tuple[str, str, int], ...] = (),
        link: tuple[str, ...] = (),
        exports: str = "",
    ) -> Compiled:
        """Emit target code of a kernel.

        Parameters
        ----------
        text : str
            Slang text; its ``import`` finds the modules loaded in this session.
        name : str
            What diagnostics call the text.
        entry : str
            The entry point, or the exported function of a ``"range"`` target.
        conformances : tuple of (interface, type, id)
            What an object of an interface may hold, and the number by which it says so; -1 lets Slang number.
        link : tuple of str
            Loaded modules whose ``export`` fills the ``extern`` of others.
        exports : str
            Further text of that use: ``export static const int N = 3;``.

        Returns
        -------
        Compiled
            The layout is that of struct ``_spy_Call``, empty if the kernel takes none. The code of a target with
            ``program`` is JSON: ``modules`` (name, path, text, files), ``folders``, ``defines``, ``kernel`` (name,
            text), ``entry``, ``link``, ``exports``, ``conformances``, and the ``head`` of the text
            and of ``exports``.

        Raises
        ------
        CompileError
            If Slang refuses the text or cannot express it on the target.
        UnsupportedError
            If the kernel needs thread groups and the target is ``"range"``, which has none, or pointers and the
            target is ``"handle"``; if it reads what only a binding could fill.
        """
        # Slang hands back the loaded module of an equal name whatever the text, and fails on an equal path.
        unique = f"{name}_{_digest(text)[:12]}"
        with self._library.lock, ExitStack() as stack:
            self._load_library()
            whole = self.target.entry == "range"
            every = self._undo + text
            module = self._load_range(unique, every, entry) if whole else self._load(unique, f"{unique}.slang", every)
            parts, out, note = [module, *(self._modules[other] for other in link)], Out(), Out()
            if exports:
                parts.append(self._ask(exports))
            parts += (stack.enter_context(self._conformance(*item)) for item in conformances)
            if not whole:
                status = module.call("IModule.findEntryPointByName", entry.encode(), out.ref)
                parts.append(stack.enter_context(taken(status, out, note, f"find entry point {entry!r} of {name}")))
            array = (ctypes.c_void_p * len(parts))(*(part.address for part in parts))
            status = self._native().call(
                "ISession.createCompositeComponentType", array, len(parts), out.ref, note.ref
            )
            program = stack.enter_context(taken(status, out, note, f"compose {name}"))
            status = program.call("IComponentType.link", out.ref, note.ref)
            linked = stack.enter_context(taken(status, out, note, f"link {name}"))
            if whole:
                status = linked.call("IComponentType.getTargetCode", 0, out.ref, note.ref)
            else:
                status = linked.call("IComponentType.getEntryPointCode", 0, 0, out.ref, note.ref)
            code = out.bytes()
            if status < 0 or not code:
                raise failure(note, f"compile {name} for {self.target.format}")
            note.bytes()
            code = checked(code, self.target, name)
            if whole:
                self._check_globals(context_variables(code, entry))
                code = exported(code, entry)
            if not self.target.program:
                code = completed(code, self.target.format, self._double_math)
            layout = linked.call("IComponentType.getLayout", 0, None)
            fields, size = reflect.call_layout(self._library.native, layout, self.target.entry)
            strings = _strings(self._library.native, layout)
            if self.target.program:
                everything = {
                    "modules": self._sources, "folders": self._program_folders(), "defines": self._defines,
                    "head": self._undo, "kernel": (unique, text), "entry": entry, "link": link, "exports": exports,
                    "conformances": conformances,
                }  # fmt: skip
                code = json.dumps(everything).encode()
            return Compiled(code, fields, size, strings)

    def close(self) -> None:
        """Release the session with all its modules. Calling it again does nothing."""
        with self._library.lock:
            session, self._session = self._session, None
            if session is not None:
                del self._give
                session.close()

    def _double_math(self) -> bytes:
        """``shaders/double_math.slang`` for this target, compiled once by this compiler."""
        key = (self.target.format, self.target.profile)
        kept = self._library.compiled
        if key not in kept:
            found = (Path(folder) / "double_math.slang" for folder in self._folders)
            path = next(path for path in found if path.is_file())
            target = replace(self.target, entry="pointer", program=False)
            session = Session(self._library, target, (str(path.parent),))
            try:
                kept[key] = session.compile(path.read_text("utf-8"), "_spy_double_math", "_spy_everything").code
            finally:
                session.close()
        return kept[key]

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
        return taken(status, out, Out(), f"open a session for {self.target.format}")

    def _load_library(self, but: str = "") -> None:
        """Load our own modules before any text could lead Slang to other files of their names.

        One whose file, ``but``, the user loads as a module is left out: Slang fails an assertion for a path that it
        knows.
        """
        if self._shaders is None or self._library_loaded:
            return
        self._library_loaded = True
        # What a file imports is read with the user's macros; so under macros all of ours are loaded from text.
        for name in _SHADERS if self._undo else ("slangpy_rt",):
            if name == "_spy_handles" and self.target.entry != "handle":
                continue
            others = (Path(folder) for folder in self._folders if Path(folder) != self._shaders)
            if name == _LIBRARIES[0] and any((folder / f"{name}.slang").is_file() for folder in others):
                continue  # the user's own, which stands before ours
            path = str(self._shaders / f"{name}.slang")
            # By its folder: the path that is loaded may have links followed.
            if Path(but).stem == name and is_ours(Path(but)):
                continue
            text = self._undo + Path(path).read_text("utf-8")
            self._load(name, path, text)
            if self._undo:
                self._sources.append((name, path, text, ()))

    def _program_folders(self) -> tuple[str, ...]:
        """The search path for a program's compiler: ours first where another folder has a file of the same name."""
        if self._shaders is None:
            return self._folders
        others = [Path(folder) for folder in self._folders if Path(folder) != self._shaders]
        names = [path.name for path in self._shaders.glob("*.slang") if path.stem in _SHADERS[:3]]
        taken = any((folder / name).is_file() for folder in others for name in names)
        return (str(self._shaders), *map(str, others)) if taken else self._folders

    def _load_range(self, name: str, text: str, entry: str) -> ComPtr:
        """Load a kernel for C++, on which Slang 2026.12 drops what it cannot express unless told to check."""
        head = f"export __extern_cpp void {entry}("
        try:
            return self._load(f"{name}_cpp", f"{name}_cpp.slang", text.replace(head, f"[require(cpp)] {head}"))
        except CompileError as error:
            used = re.findall(r"see using of '(\w+)'", str(error))
            check_groups(next((leaf for leaf in used if NEEDS_GROUPS.fullmatch(leaf)), ""))
        # What it says is right for groups alone: it also refuses InterlockedAdd, which works.
        return self._load(name, f"{name}.slang", text)

    def _check_globals(self, used: list[str]) -> None:
        """Refuse global variables that would not have their value in a range kernel."""
        native = self._library.native
        known: dict[str, list[tuple[str, bool, bool]]] = {}
        uniforms = {name for text in self._texts.values() for name in prepare(text).uniforms}
        for module in self._every_module() if used else ():
            decl = module.call("IModule.getModuleReflection")
            for name, static, initial in reflect.global_variables(native, decl):
                # Slang leaves initial values out; a uniform's is zero.
                lost = initial and name not in uniforms
                known.setdefault(emitted_name(name.rpartition(".")[2]), []).append((name, static, lost))
        for text in self._texts.values() if used else ():
            for name in local_statics(text):
                known.setdefault(emitted_name(name), []).append((name, True, True))
        for emitted in used:
            # Names that Slang writes alike are taken for each other.
            for name, static, lost in known.get(emitted, [(emitted, True, True)]):
                if not static:
                    check_groups(f"groupshared variable '{name}'")
                if lost:
                    raise UnsupportedError(
                        f"the function uses the static variable '{name}', whose initial value is lost on this "
                        "device. Make it static const, or make it global and set it in the function."
                    )

    def _conformance(self, interface: str, name: str, number: int) -> ComPtr:
        wanted, kind = self._find_type(interface, self._modules), self._find_type(name, self._modules)
        out, note = Out(), Out()
        status = self._native().call(
            "ISession.createTypeConformanceComponentType", kind, wanted, out.ref, number, note.ref
        )
        return taken(status, out, note, f"let '{interface}' hold '{name}'")

    def _find_type(self, name: str, modules: Iterable[str]) -> int:
        """Slang's own value for a type that one of the modules knows."""
        parsed = parse(name)
        for module in modules:
            found = self._look(module).find_type(parsed.type) if parsed else 0
            if found:
                return found
        listed = ", ".join(f"'{module}'" for module in modules)
        raise CompileError(
            f"there is no type '{name}' in {listed}; declare it there, or import the module that does."
        )

    def _look(self, module: str) -> Lookup:
        self._native()
        native, cases = self._library.native, self._enum_cases()
        layout = self._modules[module].call("IComponentType.getLayout", 0, None)
        return Lookup(
            native, reflect.Reflector(native, cases, layout, self._undefined), layout, docs(self._texts[module])
        )

    def _refused(
        self, module: str, name: str, what: str, candidates: tuple[FunctionSig, ...] = (), owner: str = ""
    ) -> CompileError:
        """Why a generic takes no such arguments, in Slang's words."""
        call = f"void query({owner} it) {{ it.{last_part(name)}(); }}" if owner else f"void query() {{ {name}(); }}"
        line = f"typealias Found = {name};" if what == "type" else call
        listed = "".join(f"\n  {sig}" for sig in candidates)
        try:
            self._ask(f"import {module};\n{line}\n")
        except CompileError as error:
            listed += "\n" + str(error).partition("\n")[2]
        return CompileError(f"module {module!r}: no {what} '{name}'; the generic arguments do not fit.{listed}")

    def _enum_cases(self) -> dict[str, reflect.Cases]:
        """Cases of all enums loaded so far: reflection has their names, constants made of them the values."""
        native = self._library.native
        for module in self._every_module():
            name = (module.call("IModule.getName") or b"").decode()
            if name in self._seen or not name.isidentifier():
                continue
            self._seen.add(name)
            enums = list(reflect.Reflector(native).enums(module.call("IModule.getModuleReflection")))
            cases = [(enum, case) for enum, names in enums for case in names]
            # In the scope of a module that declares another int64_t, ours has its second name.
            wide = f"{RESERVED}int64_t" if "int64_t" in self._declared() else "int64_t"
            lines = [f"static const {wide} c{i} = {wide}({enum}.{case});" for i, (enum, case) in enumerate(cases)]
            if not lines:
                continue
            try:
                head = f"import {_SHADERS[1]};\n" if wide != "int64_t" else ""
                asked = self._ask(f"{head}import {name};\n" + "\n".join(lines))
            except CompileError:  # enums that their module hides: no kernel can name them either
                continue
            values = reflect.constant_values(native, asked.call("IModule.getModuleReflection"))
            numbers = dict(zip(cases, values, strict=True))
            for enum, names in enums:
                self._cases[enum] = tuple((case, numbers[enum, case]) for case in names)
        return self._cases

    def _every_module(self) -> list[ComPtr]:
        """Loaded modules, imported ones included; those of ``load_module`` first."""
        session = self._native()
        count = session.call("ISession.getLoadedModuleCount")
        found = [session.call("ISession.getLoadedModule", index) for index in range(count)]
        own = [module.address for module in self._modules.values()]
        return [ComPtr(address, owned=False) for address in dict.fromkeys([*own, *found])]

    def _declared(self) -> tuple[str, ...]:
        """Names in the outermost scope of each module, but ours."""
        native = self._library.native
        modules = (m.call("IModule.getModuleReflection") for m in self._every_module())
        found = {name for decl in modules for name in reflect.Reflector(native).names(decl)}
        return tuple(sorted(name for name in found if name.isidentifier() and not name.startswith(RESERVED)))

    def _ask(self, text: str) -> ComPtr:
        """Load text of our own that asks something of the loaded modules."""
        text = self._undo + text
        name = f"query_{_digest(text)[:16]}"
        return self._load(name, f"{name}.slang", text)

    def _load(self, name: str, path: str, source: str) -> ComPtr:
        note = Out()
        address = self._native().call(
            "ISession.loadModuleFromSourceString", name.encode(), path.encode(), source.encode(), note.ref
        )
        if not address:
            raise failure(note, f"load module {name!r} from {path}")
        note.bytes()
        return ComPtr(address, owned=False)


def check_names(name: str, path: str, text: str) -> None:
    """Refuse a module, or a file that it is made of, that takes a name of ours.

    Raises
    ------
    CompileError
        If a name in it, or its own, begins with ``_spy_``.
    """
    found = name if name.startswith(RESERVED) else reserved(text)
    if found and not is_ours(Path(path)):
        raise CompileError(_TAKEN.format(place=path, name=found))


def is_ours(path: Path) -> bool:
    """Whether a file lies in our shaders/."""
    return (path.parent / f"{_SHADERS[1]}.slang").is_file()


def _prints(text: str) -> bool:
    """Whether user code calls printf."""
    return "printf" in text and re.search(r"\bprintf\b", blank(text)) is not None


def _needs_library(text: str) -> bool:
    """Whether user code names what our module has, does not declare it itself, and does not import our module."""
    if _OURS.search(text) is None or _LIBRARY.search(text):
        return False
    return not declared(text).issuperset(_OURS.findall(blank(text)))


def _strings(native: ctypes.CDLL, layout: int) -> tuple[tuple[int, str], ...]:
    """Every string whose hash a program may hold, by that."""
    size, found = ctypes.c_size_t(), []
    for index in range(native.spReflection_getHashedStringCount(layout)):
        text = native.spReflection_getHashedString(layout, index, ctypes.byref(size))
        found.append((native.spComputeStringHash(text, len(text)), text.decode("utf-8", "replace")))
    return tuple(found)


def _files(module: ComPtr) -> list[str]:
    count = module.call("IModule.getDependencyFileCount")
    return [module.call("IModule.getDependencyFilePath", index).decode() for index in range(count)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
