"""Compiles LLVM IR inside of this process by llvmlite, to object files that are loaded without a linker.

llvmlite is imported at the first use. Code is made for this machine's processor; nothing here runs it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from slangpy_rt.backends.cpu.half_conversions import HALF_CONVERSIONS
from slangpy_rt.lanes.doubles import CALLED, PREFIX

# run(push, first, last, nx, ny, nz, past, bytes): see lanes/translate.py.
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 7)
_LOCK = threading.Lock()  # LLVM's passes share tables


class LoadedObject:
    """An object file in memory; its code can be called as long as this object lives.

    Attributes
    ----------
    run : function
        The kernel, if the file has one: it takes the address of its push constants, the first group and the one after
        the last, and the number of groups each way.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    @property
    def run(self) -> Callable[..., None]:
        found: Callable[..., None] = _RUN(self.address("run"))
        return found

    def address(self, function: str) -> int:
        """Return the address of a function; 0 if there is none of that name."""
        found: int = self._engine.get_function_address(function)
        return found


class LlvmCompiler:
    """Compiles for one processor.

    Parameters
    ----------
    cpu, features : str or None
        LLVM's names of a processor and of its features; None for this machine's.

    Attributes
    ----------
    widest : int
        The number of lanes up to which kernels are faster on the processor.
    """

    def __init__(self, cpu: str | None = None, features: str | None = None) -> None:
        import llvmlite.binding as llvm

        with _LOCK:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
        self._llvm = llvm
        for name, address in _c_functions().items():
            llvm.add_symbol(name, address)
        self.cpu = llvm.get_host_cpu_name() if cpu is None else cpu
        self.features = llvm.get_host_cpu_features().flatten() if features is None else features
        # Processors of other kinds that LLVM compiles for here have the instructions.
        self._without_halves = platform.machine() in ("x86_64", "AMD64") and "+f16c" not in self.features
        self.widest = 32 if "+avx512f" in self.features else 16
        target = llvm.Target.from_default_triple()
        self._machine = target.create_target_machine(cpu=self.cpu, features=self.features, opt=2, jit=True)

    def toolchain(self) -> str:
        """Return what changes the code that is made of a text: LLVM's version, the processor, its features."""
        version = ".".join(map(str, self._llvm.llvm_version_info))
        return f"LLVM {version}, {self.cpu}, {self.features}"

    def compile(self, text: str, debug: bool = False) -> bytes:
        """Return an object file; for ``debug`` the code is as the text has it, without optimizations.

        Raises
        ------
        RuntimeError
            If LLVM refuses the text.
        """
        llvm = self._llvm
        with _LOCK:
            module = llvm.parse_assembly(text)
            module.verify()
            if self._without_halves:
                module.link_in(llvm.parse_assembly(HALF_CONVERSIONS))
            module.triple, module.data_layout = self._machine.triple, str(self._machine.target_data)
            if debug:
                machine = llvm.Target.from_default_triple().create_target_machine(
                    cpu=self.cpu, features=self.features, opt=0, jit=True
                )
                unchanged: bytes = machine.emit_object(module)
                return unchanged
            options = llvm.create_pipeline_tuning_options(speed_level=2)
            options.loop_vectorization = options.slp_vectorization = False  # the text has vectors already
            builder = llvm.create_pass_builder(self._machine, options)
            builder.getModulePassManager().run(module, builder)
            found: bytes = self._machine.emit_object(module)
            return found

    def load(self, *codes: bytes) -> LoadedObject:
        """Load object files, which may call functions of one another."""
        llvm = self._llvm
        with _LOCK:
            machine = llvm.Target.from_default_triple().create_target_machine(
                cpu=self.cpu, features=self.features, opt=2, jit=True
            )
            engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)  # which takes the machine
            for code in codes:
                engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            engine.finalize_object()
            return LoadedObject(engine)


@cache
def _c_functions() -> dict[str, int]:
    """Return the addresses of C's functions of double that kernels call, by their names in a kernel's text."""
    names = {"darwin": "libSystem.dylib", "win32": "ucrtbase.dll"}
    library = ctypes.CDLL(names.get(sys.platform, "libm.so.6"))
    found = {PREFIX + name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in CALLED}
    return {name: address for name, address in found.items() if address}


def llvmlite_identity() -> str:
    """Return the place, size and date of the llvmlite package without importing it; empty if there is none."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return ""
    stat = Path(spec.origin).stat()
    return f"{spec.origin} {stat.st_size} {stat.st_mtime_ns}"


def why_missing() -> str | None:
    """Return why there is no compiler of LLVM IR, or None if there is one."""
    if importlib.util.find_spec("llvmlite") is None:
        return "the llvmlite package was not found; run: pip install llvmlite"
    return None
