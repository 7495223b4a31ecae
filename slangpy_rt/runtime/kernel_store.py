"""KernelStore: the loaded kernels of a device, from memory, from the disk cache, or compiled. It knows no device."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from slangpy_rt.backends.base import Backend, Kernel
from slangpy_rt.core.cache_entry import Entry
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import BindError, CompileError, CompileLimitError
from slangpy_rt.core.log import log, milliseconds
from slangpy_rt.core.target import KernelInfo, Target
from slangpy_rt.core.types import Compiled, Conformances, LayoutField
from slangpy_rt.core.weak import WeakValues
from slangpy_rt.runtime.compile_progress import compiling
from slangpy_rt.runtime.diagnostics import Diagnostics
from slangpy_rt.slang.locate import compiler_version
from slangpy_rt.slang.source import Source

Strings = tuple[tuple[int, str], ...]
# A kernel's key, which buffers it writes, and its group size.
Place = tuple[str, tuple[bool, ...], tuple[int, int, int]]


class KernelStore:
    """The loaded kernels of one device, by cache key."""

    def __init__(self, backend: Backend, cache: DiskCache, diagnostics: Diagnostics) -> None:
        self._backend = backend
        self._cache = cache
        self._diagnostics = diagnostics
        # Weak: a kernel lives as long as a prepared call or a command list holds it, and goes with an edited module.
        self._kernels: WeakValues[Kernel] = WeakValues()
        self._toolchain: str | None = None
        self._lock = threading.RLock()
        # A lock for each kernel that is being compiled, so that threads compile several at a time.
        self._making: dict[Place, Any] = {}

    def get(
        self,
        source: Source,
        text: str,
        title: str,
        info: KernelInfo,
        block: tuple[LayoutField, ...],
        conformances: Conformances = (),
    ) -> Kernel:
        """Return a loaded kernel for generated text: from memory, from the disk cache, or compiled now.

        Raises
        ------
        CompileError
            If a compiler refuses it, or lays the argument block out otherwise than ``block`` says.
        """
        found = self.find(source, text, title, info, block, conformances)
        assert found is not None
        return found

    def find(
        self,
        source: Source,
        text: str,
        title: str,
        info: KernelInfo,
        block: tuple[LayoutField, ...],
        conformances: Conformances = (),
        grouped: bool = False,
    ) -> Kernel | None:
        """Return a kernel as ``get`` does; if ``grouped``, only one whose code uses anything of a thread group."""
        key = self.key(source, text, conformances)
        # One text may be launched with other buffers (a pointer from an array or from a number) and group sizes.
        place = key, info.written, info.group_size
        with self._lock:
            found = self._kernels.get(place)
            if found is not None:
                return found
            making = self._making.setdefault(place, threading.RLock())
        with making:
            # Another thread may have made it while this one waited.
            with self._lock:
                found = self._kernels.get(place)
            try:
                if found is not None:
                    return found
                # Drivers compile what is loaded: a pipeline of Vulkan may take seconds, also from the disk cache.
                with compiling(title, self._backend.name, "Slang") as go_on:
                    return self._load(place, source, text, title, info, block, conformances, grouped, go_on)
            except CompileLimitError as error:
                raise CompileError(f"{title}: {error}") from None
            finally:
                with self._lock:
                    self._making.pop(place, None)

    def key(self, source: Source, text: str, conformances: Conformances = ()) -> str:
        """Return the cache key of generated text: everything that changes its binary is in it.

        The source's digest contains that of this package's code.
        """
        if self._toolchain is None:
            self._toolchain = self._backend.toolchain()
        target = source.target
        return DiskCache.key(
            "kernel", source.digest, text, target.format, target.profile, target.entry, target.nesting,
            self._toolchain, compiler_version(), conformances,
        )  # fmt: skip

    def _load(
        self,
        place: Place,
        source: Source,
        text: str,
        title: str,
        info: KernelInfo,
        block: tuple[LayoutField, ...],
        conformances: Conformances,
        grouped: bool,
        go_on: Callable[[str], None],
    ) -> Kernel | None:
        """Return a kernel from the disk cache, or compiled; ``go_on`` gets the name of each compiler but Slang."""
        key = place[0]
        started = time.perf_counter()
        edited = _override_folder() / f"{key}.slang" if CONFIG.override else None
        if edited is not None and edited.is_file():
            log(3, f"{title}: using {edited}")
            compiled = self._compile(source, edited.read_text(), key, title, info, block, conformances)
            if grouped and not compiled.groups:
                return None
            binary = self._built(source.target, compiled, title, info, started, go_on)
            return self._loaded(place, source.target, binary, info, compiled.strings, go_on)
        entry = self._entry(key)
        if entry is None:
            with self._cache.lock(key):
                entry = self._entry(key)
                if entry is None:
                    named: dict[str, Any] = {"title": title, "device": self._backend.name}
                    plain = DiskCache.key("without groups", key) if grouped else ""
                    if plain and self._cache.get(plain) is not None:
                        return None
                    compiled = self._compile(source, text, key, title, info, block, conformances)
                    if grouped and not compiled.groups:
                        self._cache.put(plain, named | {"kind": "kernel without groups"}, b"")
                        return None
                    binary = self._built(source.target, compiled, title, info, started, go_on)
                    named |= {"kind": "kernel", "text": text, "groups": compiled.groups}
                    self._cache.put(key, named | {"strings": compiled.strings}, binary)
                    return self._loaded(place, source.target, binary, info, compiled.strings, go_on)
        if grouped and not entry.meta.get("groups"):
            return None
        log(3, f"{title}: cache hit {key}")
        return self._loaded(place, source.target, entry.payload, info, entry.meta.get("strings", ()), go_on)

    def _entry(self, key: str) -> Entry | None:
        """Return a kernel's entry; None if there is none, or one whose strings are none."""
        entry = self._cache.get(key)
        strings = entry.meta.get("strings", []) if entry else []
        whole = isinstance(strings, list) and all(
            isinstance(item, list) and len(item) == 2 and type(item[0]) is int and isinstance(item[1], str)
            for item in strings
        )
        return entry if whole else None

    def _loaded(
        self,
        place: Place,
        target: Target,
        binary: bytes,
        info: KernelInfo,
        strings: Any,
        go_on: Callable[[str], None],
    ) -> Kernel:
        """Load a kernel, and keep it."""
        go_on(self._backend.compilers_of(target)[1])
        kernel = self._backend.load(binary, info)
        with self._lock:
            self._diagnostics.learn(strings)
            return self._kernels.setdefault(place, kernel)

    def _compile(
        self,
        source: Source,
        text: str,
        key: str,
        title: str,
        info: KernelInfo,
        block: tuple[LayoutField, ...],
        conformances: Conformances,
    ) -> Compiled:
        """Compile a kernel to target code."""
        log(4, f"{title}:\n{text}")
        self._backend.begin_compiler()
        try:
            compiled = source.compile(text, f"kernel_{key[:16]}", info.entry, conformances)
        except CompileError as error:
            unset = [c.name for c in source.constants if not c.has_default]
            if unset and "unresolved external symbol" in str(error):
                raise CompileError(
                    f"{title}: the module declares {', '.join(unset)} without a value; give one with "
                    f".constants({{'{unset[0]}': ...}}), or with constants= when the module is loaded."
                ) from error
            # The kernel's module is not the user's, which the message names.
            if inner := re.search(r"'([^'\n]+)' is not accessible from the current context", str(error)):
                raise CompileError(
                    f"{title}: '{inner[1]}' is internal to its module; write 'public' in front of it. A file that "
                    "says 'module', 'public' or '__include' keeps to itself what is not public."
                ) from error
            raise
        if compiled.layout != block:
            raise CompileError(
                f"{title}: Slang lays the argument block out as {compiled.layout} on {self._backend.name}; "
                f"{block} was expected. This is a defect of slangpy_rt."
            )
        log(5, f"{title}:\n{compiled.code.decode('utf-8', 'replace')}")
        return compiled if source.prints else replace(compiled, strings=())

    def _built(
        self, target: Target, compiled: Compiled, title: str, info: KernelInfo, started: float,
        go_on: Callable[[str], None],
    ) -> bytes:  # fmt: skip
        """Return the binary of a kernel's target code."""
        go_on(self._backend.compilers_of(target)[0])
        binary = self._backend.compile(compiled.code, info.entry)
        log(3, f"{title}: compiled in {milliseconds(started)}")
        return binary

    def forget(self) -> None:
        """Drop all kernels."""
        self._kernels.clear()


def _override_folder() -> Path:
    """Return the folder of edited kernels that the environment names."""
    folder = Path(CONFIG.override or "")
    if not folder.is_dir():
        raise BindError(f"environment variable SLANGPY_RT_OVERRIDE={CONFIG.override!r}: there is no such folder.")
    return folder
