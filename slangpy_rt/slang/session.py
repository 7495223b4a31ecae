"""A session of the Slang compiler in this process: it turns Slang text into reflection, target code and layouts.

The session writes no Slang text besides ``import`` lines and small modules that query Slang, runs no compiler of a
target language, and writes nothing to disk.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import Compiled, Conformances, FunctionSig, ModuleInfo, SlangType, StructInfo
from slangpy_rt.slang.auto_import import AutoImport
from slangpy_rt.slang.call_layout import call_layout, hashed_strings
from slangpy_rt.slang.com import ComPtr, Out
from slangpy_rt.slang.compiler_session import CompilerSession
from slangpy_rt.slang.core_functions import explained
from slangpy_rt.slang.corrections.rebinding import rebinding_edits
from slangpy_rt.slang.corrections.spirv_math import has_doubles
from slangpy_rt.slang.cuda_methods import lacking_methods
from slangpy_rt.slang.derivative_checks import (
    Facts,
    check_accessors,
    check_derivatives,
    facts,
    has_derivatives,
    takes_derivatives,
)
from slangpy_rt.slang.emitted import context_variables, exported
from slangpy_rt.slang.files import check_imports, dependencies, names_files, places, reachable, real, telling
from slangpy_rt.slang.groups import may_use_groups, uses_groups
from slangpy_rt.slang.imports import imported
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.lookup import Lookup, last_part, parse
from slangpy_rt.slang.macros import Macro, macros_of
from slangpy_rt.slang.module_info import constant_values, files_of, module_info, undefined_structs
from slangpy_rt.slang.native_session import NativeSession
from slangpy_rt.slang.range_kernels import check_globals, load_range
from slangpy_rt.slang.reflect import Reflector
from slangpy_rt.slang.reflect_types import Cases
from slangpy_rt.slang.shader_modules import (
    IMPORTED,
    SHADERS,
    TAKEN,
    check_is_module,
    check_names,
    is_ours,
    needed_modules,
    needs_library,
    program_folders,
)
from slangpy_rt.slang.source_map import SourceMap
from slangpy_rt.slang.spirv import Functions
from slangpy_rt.slang.spirv_textures import with_texture_calls
from slangpy_rt.slang.static_variables import changes_statics, has_statics
from slangpy_rt.slang.target_code import check_text, checked, completed, takes_textures
from slangpy_rt.slang.text import RESERVED, docs, entry_attributes, prepare, undefining

# At the end of the text, so that its lines and columns stay what they were.
_IMPORT = "\nimport slangpy_rt;\n"
# C++ has no shader stages; CUDA and Metal lack geometry or ray tracing stages.
_WITHOUT_STAGES = ("cpp", "cuda", "metal")
_HIDDEN = tuple((name, f"{RESERVED}{name}") for name in ("shader", "numthreads", "patchconstantfunc"))
# The name under which double_math.slang is compiled; it holds no constant that Slang rounds.
_DOUBLE_MATH = "_spy_double_math"


class Session(CompilerSession):
    """Modules and kernels for one target, in this process.

    Sessions of one library take turns, because Slang is not thread safe.

    Parameters
    ----------
    library : Library
        The compiler; it is loaded here if it was not.
    target : Target
        What to compile for.
    search_paths : tuple of str
        Where ``import`` and ``#include`` look after the importing file's own directory.
    defines : tuple of (str, str)
        Preprocessor macros.
    auto_import : AutoImport or None
        A module of this project that each text imports implicitly, as does each imported file that needs it.

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
        auto_import: AutoImport | None = None,
    ) -> None:
        for name, _ in defines:
            if name.startswith(RESERVED):
                raise CompileError(TAKEN.format(place="defines", name=name))
        self.target = target
        # The user's macros are meant for the user's files, so generated text begins with ``#undef`` lines for them.
        self._undo = undefining(defines)
        # shaders/storage.slang tests this macro.
        defines += (("_spy_by_handle", "1"),) if target.entry == "handle" else ()
        self._library = library
        self._shaders = next((Path(folder) for folder in search_paths if is_ours(Path(folder) / "any")), None)
        self._own: set[str] = set()  # names of this project's modules that were loaded
        self._auto_import = auto_import
        self._loaded: dict[str, tuple[str, str]] = {}
        self._folders, self._defines = search_paths, defines
        # For a target that compiles programs itself: name, path, text and file digests of each module.
        self._sources: list[tuple[str, str, str, tuple[tuple[str, str], ...]]] = []
        self._modules: dict[str, ComPtr] = {}
        self._texts: dict[str, str] = {}
        # Whether loaded texts may have static variables that are not ``const``.
        self._statics = False
        # Texts of the user's files by path, and for derivatives the macros and facts of these.
        self._near: dict[str, str] = {}
        self._macros: dict[str, Macro] = {}
        self._facts: dict[str, tuple[str, Facts]] = {}
        # Included files with functions that need rebound values, for a target that compiles programs itself.
        self._unbound: list[str] = []
        # Whether functions of loaded modules that are not ours may use anything of a thread group.
        self._groups = False
        self._apart = False  # whether this session compiles one kernel for another one
        self._cases: dict[str, Cases] = {}
        self._seen: set[str] = set()
        self._undefined: set[str] = set()
        self._imported: set[str] = set()
        self._walked: set[int] = set()
        with library.lock:
            self._native = NativeSession(library, target, search_paths, defines)
            self.build_tag = library.build_tag

    def load_module(self, name: str, path: str, source: str) -> ModuleInfo:
        with self._library.lock:
            check_names(name, path, source)
            check_is_module(path)
            # For a known name Slang would return the old module; for a known path it would fail an assertion.
            same = {n: m for n, m in self._loaded.items() if n == name or m[0] == path}
            loaded = (path, _digest(source))
            if same and same != {name: loaded}:
                other, (place, _) = next(iter(same.items()))
                raise CompileError(
                    f"module {name!r} from {path}: this session already holds module {other!r} from {place}; "
                    "open a new session to load another text under that name or path."
                )
            check_text(source, f"load module {name!r} from {path}")
            check_imports(path, source, self._folders)
            prepared = prepare(source, self.target.format)
            near = reachable(path, source, self._folders) if names_files(source) else []
            check_accessors([(path, source), *near], self._defines)
            read = prepared.source.edited(rebinding_edits(prepared.text, (text for _, text in near)))
            self._near |= {path: source, **dict(near)}
            ours = self._shaders is not None and needs_library(source, self.target.format)
            auto = self._auto_import
            read = read.edited([(len(read.text), len(read.text), _IMPORT)]) if ours else read
            if ours or auto or names_files(source):  # any other text makes Slang read no file
                self._load_library(read.text, *(text for _, text in near), but=path)
            self._hide_entry_points(path, source)
            around = [(path, source), *near]
            if auto:
                read = auto.around(read)
                self._load_imports(path, source, around, auto)
            if self.target.program:
                self._load_rebound(path, source, around)
            with telling(path, source, self._folders):
                module = self._native.load(name, path, read.text, read)
            self._loaded[name] = loaded
            self._modules[name], self._texts[name] = module, source
            native = self._library.native
            for known in self._every_module():
                decl = known.call("IModule.getModuleReflection")
                if known.address not in self._walked:
                    self._undefined.update(undefined_structs(native, decl))
                    self._walked.add(known.address)
            opened = files_of(module)
            self._groups |= any(map(self._may_use_groups, self._parts(module, path, opened)))
            files, texts = dependencies(opened, path)
            # This project's own files import only each other and Slang finds those first, in the same folder.
            theirs = [item for item in texts if not is_ours(Path(item[0]))]
            for file, text in theirs:
                check_names(Path(file).stem, file, text)
            others = [text for _, text in theirs]
            info = module_info(native, module, name, source, prepared, self._enum_cases(), self._undefined, others)
            self._sources.append((name, path, read.text, files))
            every = [*self._texts.values(), *others]
            self._statics |= has_statics(every, self._defines)
            changed = self._statics and changes_statics(every, self._defines)
            looked = places([(path, source), *theirs], self._folders, opened)
            info = replace(info, dependencies=files, places=looked, declares=self._declared())
            return replace(info, statics=changed, groups=self._groups)

    def functions(self, module: str, name: str) -> tuple[FunctionSig, ...]:
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
                self.type(module, ".".join(parsed.parts[:-1]))  # raises if the arguments of the type do not fit
            return found

    def type(self, module: str, name: str) -> StructInfo | SlangType | None:
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
        with self._library.lock:
            kind, wanted = self._find_type(name, (module,)), self._find_type(interface, (module,))
            return self._look(module).conforms(kind, wanted)

    def compile(
        self,
        text: str,
        name: str,
        entry: str,
        conformances: Conformances = (),
        link: tuple[str, ...] = (),
        exports: str = "",
    ) -> Compiled:
        # For a known name Slang would return the old module whatever the text; for a known path it would fail.
        unique = f"{name}_{_digest(text)[:12]}"
        with self._library.lock, ExitStack() as stack:
            if self.target.format == "cuda" and takes_textures(text) and not self._apart:
                stack.enter_context(lacking_methods())
                again = Session(self._library, self.target, self._folders, self._defines, self._auto_import)
                stack.enter_context(closing(again))._apart = True
                for other, (path, _) in self._loaded.items():
                    again.load_module(other, path, self._texts[other])
                return again.compile(text, name, entry, conformances, link, exports)
            theirs = (near for file, near in self._near.items() if not is_ours(Path(file)))
            if has_derivatives(text) or any(map(has_derivatives, theirs)):
                facts_of_files = self._derivative_facts()
                check_derivatives(text, facts_of_files)
                self._check_files(text, facts_of_files)
            self._load_library(text, exports)
            ranged = self.target.entry == "range"
            whole = self._undo + text
            texts = {path: self._texts[other] for other, (path, _) in self._loaded.items()}
            with explained(f"compile {name}"):
                if ranged:
                    module = load_range(self._native, unique, whole, entry, texts)
                else:
                    module = self._native.load(unique, f"{unique}.slang", whole)
            parts, out, note = [module, *(self._modules[other] for other in link)], Out(), Out()
            if exports:
                parts.append(self._ask(exports))
            parts += (stack.enter_context(self._conformance(*item)) for item in conformances)
            if not ranged:
                status = module.call("IModule.findEntryPointByName", entry.encode(), out.ref)
                what = f"find entry point {entry!r} of {name}"
                parts.append(stack.enter_context(self._library.taken(status, out, note, what)))
            # LLVM keeps the rules of floats, and the optimizer of SPIR-V does not: it writes 0 for ``0 * x``.
            optimized = not self.target.lane_threads
            linked = stack.enter_context(self._native.linked(parts, name, optimized=optimized))
            code = self._code(linked, name)
            if self.target.format == "spirv" and optimized and name != _DOUBLE_MATH and has_doubles(code):
                # Optimizers merge a constant that Slang rounds (rounded_constants.py) with an equal one of a user.
                plain = stack.enter_context(self._native.linked(parts, name, optimized=False))
                code = self._code(plain, name)
            code = checked(code, self.target, name, self._texts.values(), text)
            groups = self._groups and uses_groups(code, self.target.format)
            if ranged:
                used = context_variables(code, entry)
                check_globals(self._library.native, used, self._every_module(), self._texts.values())
                code = exported(code, entry)
            if not self.target.program:
                double_math = None if self.target.lane_threads else self._double_math
                code = completed(code, self.target.format, double_math, self._statics)
            if self.target.lane_threads:
                code = with_texture_calls(code, self._texture_functions)
            layout = linked.call("IComponentType.getLayout", 0, None)
            fields, size = call_layout(self._library.native, layout, self.target.entry)
            strings = hashed_strings(self._library.native, layout)
            if self.target.program:
                everything = {
                    "modules": self._sources, "folders": program_folders(self._shaders, self._folders),
                    "defines": self._defines,
                    "head": self._undo, "kernel": (unique, text), "entry": entry, "link": link, "exports": exports,
                    "conformances": conformances,
                }  # fmt: skip
                code = json.dumps(everything).encode()
            return Compiled(code, fields, size, strings, groups)

    def close(self) -> None:
        with self._library.lock:
            self._native.close()

    def _code(self, linked: ComPtr, name: str) -> bytes:
        """Return the target code of a linked program; raise CompileError if there is none."""
        out, note = Out(), Out()
        if self.target.entry == "range":
            status = linked.call("IComponentType.getTargetCode", 0, out.ref, note.ref)
        else:
            status = linked.call("IComponentType.getEntryPointCode", 0, 0, out.ref, note.ref)
        code = out.bytes()
        if status < 0 or not code:
            raise self._library.failure(note, f"compile {name} for {self.target.format}")
        note.bytes()
        return code

    def _double_math(self) -> bytes:
        return self._functions("double_math")

    def _texture_functions(self) -> Functions:
        if self._library.textures is None:
            self._library.textures = Functions(self._functions("cpu_textures"))
        return self._library.textures

    def _functions(self, file: str) -> bytes:
        """Return the SPIR-V code of a file of ``shaders/`` that other modules get functions of."""
        folder = next(Path(folder) for folder in self._folders if (Path(folder) / f"{file}.slang").is_file())
        text = (folder / f"{file}.slang").read_text("utf-8")
        images = self._library.images
        key = images.key(self._library.version, "functions", file, text, self.target.format, self.target.profile)
        kept = self._library.compiled
        if key not in kept and (found := images.get(key)):
            kept[key] = found[0][1]
        if key not in kept:
            target = replace(self.target, entry="pointer", program=False, flags=())
            with closing(Session(self._library, target, (str(folder),))) as session:
                kept[key] = session.compile(text, f"_spy_{file}", "_spy_everything").code
            if images.wanted(key):
                images.put(key, f"functions of {file}", ((file, kept[key]),))
        return kept[key]

    def _hide_entry_points(self, path: str, source: str) -> None:
        """Turn entry points of imported and included files into plain functions, for a target that lacks stages.

        Slang crashes on, or refuses, a program with a shader stage that the target lacks. Macros rename the
        attributes of entry points, which Slang then ignores, also in files that Slang reads by itself.
        Nothing changes if some text uses these names otherwise. A new native session loads the earlier modules again.
        """
        names = {name.partition("(")[0] for name, _ in self._defines}
        lacks = self.target.format in _WITHOUT_STAGES and names.isdisjoint(dict(_HIDDEN)) and names_files(source)
        texts = [text for _, text in reachable(path, source, self._folders)] if lacks else []
        found = [entry_attributes(text) for text in texts]
        if not any(has for has, _ in found) or any(other for _, other in (entry_attributes(source), *found)):
            return
        self._defines += _HIDDEN
        self._undo = undefining(self._defines)
        old, self._native = self._native, NativeSession(self._library, self.target, self._folders, self._defines)
        # Nothing uses a module of the old session from here on.
        old.close()
        loaded, self._sources, own, self._own = self._sources, [], self._own, set()
        self._walked.clear()
        self._imported.clear()
        if own:
            self._load_library(*own, source, *texts, *self._texts.values(), but=path)
        for name, place, text, files in loaded:
            if name in self._modules:
                self._modules[name] = self._native.load(name, place, text)
                self._sources.append((name, place, text, files))

    def _load_library(self, *texts: str, but: str = "") -> None:
        """Load this project's Slang modules, before an ``import`` of the user's finds other files of the same names.

        Those that users import are loaded if `texts` name them. The module in the file `but` is left out: the user
        is about to load it, and Slang fails on a path known to it.
        """
        if self._shaders is None:
            return
        for name in needed_modules(texts, bool(self._undo), self._auto_import):
            if name in self._own or (name == "_spy_handles" and self.target.entry != "handle"):
                continue
            self._own.add(name)
            others = {*map(Path, self._folders), *([Path(but).parent] if but else [])} - {self._shaders}
            if name in IMPORTED and any((folder / f"{name}.slang").is_file() for folder in others):
                continue  # the user has a file of that name
            path = str(self._shaders / f"{name}.slang")
            # Paths are not compared, because symbolic links in ``but`` may have been resolved.
            if Path(but).stem == name and is_ours(Path(but)):
                continue
            text = Path(path).read_text("utf-8")
            self._native.load_own(name, path, text, self._undo)
            # A device that compiles by itself would import the file of this name beside the user's.
            if self._undo or (but and (Path(but).parent / f"{name}.slang").is_file()):
                self._sources.append((name, path, self._undo + text, ()))

    def _load_imports(self, path: str, source: str, near: list[tuple[str, str]], auto: AutoImport) -> None:
        """Load those files imported by `source` that need the module `auto`, with an ``import`` of it added."""
        for name, file, text in imported(path, source, self._folders):
            if auto.needed(text) and name not in self._imported:
                self._imported.add(name)
                check_names(Path(file).stem, file, text)
                read = prepare(text, self.target.format).source
                read = auto.around(read.edited(rebinding_edits(read.text, _but(file, near))))
                self._native.load(name, file, read.text, read)
                self._sources.append((name, file, read.text, ()))

    def _load_rebound(self, path: str, source: str, near: list[tuple[str, str]]) -> None:
        """Load imported files with rebound values: a device that compiles by itself reads files as they are."""
        found = imported(path, source, self._folders)
        for name, file, text in found:
            edits = rebinding_edits(text, _but(file, near))
            if edits and name not in self._imported:
                self._imported.add(name)
                check_names(Path(file).stem, file, text)
                read = SourceMap.of(text).edited(edits)
                self._native.load(name, file, read.text, read)
                self._sources.append((name, file, read.text, ()))
        files = {os.path.realpath(file) for _, file, _ in found}
        self._unbound += (
            file for file, text in near[1:] if file not in files and rebinding_edits(text, _but(file, near))
        )

    def _derivative_facts(self) -> list[Facts]:
        """Return what the derivatives of the files' functions depend on; only derivatives read the files for it."""
        macros = macros_of(self._near.values(), self._defines)
        if macros != self._macros:
            self._macros, self._facts = macros, {}
        for file, text in self._near.items():
            if self._facts.get(file, ("",))[0] != text:
                self._facts[file] = text, facts(file, text, macros)
        return [self._facts[file][1] for file in self._near]

    def _check_files(self, text: str, files: list[Facts]) -> None:
        """Refuse derivatives of functions in included files on a device that compiles these as they are.

        Raises
        ------
        UnsupportedError
            If there are such files and the kernel takes derivatives.
        """
        if self._unbound and takes_derivatives(text, files):
            raise UnsupportedError(
                f"this device compiles included files by itself, and Slang 2026.12 gets derivatives in "
                f"'{self._unbound[0]}' wrong. Import the file in place of including it, or use the device 'vulkan', "
                "'cuda' or 'cpu'."
            )

    def _conformance(self, interface: str, name: str, number: int) -> ComPtr:
        wanted, kind = self._find_type(interface, self._modules), self._find_type(name, self._modules)
        return self._native.conformance(kind, wanted, number, f"let '{interface}' hold '{name}'")

    def _find_type(self, name: str, modules: Iterable[str]) -> int:
        """Return the address of Slang's reflection object of the type `name`, from the first module that has it.

        Raises
        ------
        CompileError
            If no module has the type.
        """
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
        native, cases = self._library.native, self._enum_cases()
        layout = self._modules[module].call("IComponentType.getLayout", 0, None)
        return Lookup(native, Reflector(native, cases, layout, self._undefined), layout, docs(self._texts[module]))

    def _refused(
        self, module: str, name: str, what: str, candidates: tuple[FunctionSig, ...] = (), owner: str = ""
    ) -> CompileError:
        """Return the error for generic arguments that do not fit, with Slang's messages for a text that uses them."""
        call = f"void query({owner} it) {{ it.{last_part(name)}(); }}" if owner else f"void query() {{ {name}(); }}"
        line = f"typealias Found = {name};" if what == "type" else call
        listed = "".join(f"\n  {sig}" for sig in candidates)
        try:
            self._ask(f"import {module};\n{line}\n")
        except CompileError as error:
            listed += "\n" + str(error).partition("\n")[2]
        return CompileError(f"module {module!r}: no {what} '{name}'; the generic arguments do not fit.{listed}")

    def _enum_cases(self) -> dict[str, Cases]:
        """Return the cases of all enums loaded so far.

        Slang's reflection has only the names of cases, but it has the values of constants. So a module is loaded that
        declares a constant for each case: ``static const int64_t c0 = int64_t(Color.red);``.
        """
        native = self._library.native
        for module in self._every_module():
            name = (module.call("IModule.getName") or b"").decode()
            if name in self._seen or not name.isidentifier():
                continue
            self._seen.add(name)
            enums = list(Reflector(native).enums(module.call("IModule.getModuleReflection")))
            cases = [(enum, case) for enum, names in enums for case in names]
            # A module may declare its own int64_t; _spy_library declares another name for the built-in type.
            wide = f"{RESERVED}int64_t" if "int64_t" in self._declared() else "int64_t"
            lines = [f"static const {wide} c{i} = {wide}({enum}.{case});" for i, (enum, case) in enumerate(cases)]
            if not lines:
                continue
            try:
                head = f"import {SHADERS[1]};\n" if wide != "int64_t" else ""
                asked = self._ask(f"{head}import {name};\n" + "\n".join(lines))
            except CompileError:  # the module does not export its enums, so no kernel can name them either
                continue
            values = constant_values(native, asked.call("IModule.getModuleReflection"))
            numbers = dict(zip(cases, values, strict=True))
            for enum, names in enums:
                self._cases[enum] = tuple((case, numbers[enum, case]) for case in names)
        return self._cases

    def _every_module(self) -> list[ComPtr]:
        """Return all loaded modules, imported ones included; those of ``load_module`` come first."""
        every = (*self._modules.values(), *self._native.modules())
        return list({module.address: module for module in every}.values())

    def _parts(self, module: ComPtr, path: str, opened: list[str]) -> list[ComPtr]:
        """Return a loaded module and those that it imports; a module that Slang refused has no intermediate code."""
        others = (other for other in self._native.modules() if other.address != module.address)
        files = {other.address: (other, files_of(other)[:1]) for other in others}
        return [module, *(other for other, first in files.values() if first != [path] and {*first} & {*opened})]

    def _may_use_groups(self, module: ComPtr) -> bool:
        """Return whether functions of a module that is not ours may use anything of a thread group."""
        if all(is_ours(Path(file)) for file in files_of(module)):
            return False
        out = Out()
        module.call("IModule.disassemble", out.ref)
        return may_use_groups(out.bytes())

    def _declared(self) -> tuple[str, ...]:
        """Return the names in the outermost scopes of all modules, except those that begin with ``_spy_``."""
        native = self._library.native
        modules = (m.call("IModule.getModuleReflection") for m in self._every_module())
        found = {name for decl in modules for name in Reflector(native).names(decl)}
        return tuple(sorted(name for name in found if name.isidentifier() and not name.startswith(RESERVED)))

    def _ask(self, text: str) -> ComPtr:
        """Load a generated module `text`, which imports loaded modules, and return it for reflection or linking."""
        text = self._undo + text
        name = f"query_{_digest(text)[:16]}"
        return self._native.load(name, f"{name}.slang", text)


def _but(file: str, near: list[tuple[str, str]]) -> list[str]:
    """Return the texts of all files but one."""
    return [text for name, text in near if real(name) != real(file)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
