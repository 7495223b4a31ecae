"""The compilers alone: Slang by its own interface, and g++, on the text of a kernel that slangpy_rt generated.

Nothing here corrects what Slang wrote, checks anything, or runs a kernel. Slang has the package's modules as
intermediate code, from the cache in which slangpy_rt keeps them too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.target import Target
from slangpy_rt.slang.com import Out
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.native_session import NativeSession

CXX = ("g++", "-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-w")


def open_session(target: Target) -> NativeSession:
    """A session of Slang with the module that kernels import."""
    folder = os.environ.get("SLANGPY_RT_CACHE_DIR")
    library = Library(None, DiskCache(Path(folder) if folder else None, 1 << 30))
    session = NativeSession(library, target, (shader_directory(),), ())
    path = Path(shader_directory()) / "slangpy_rt.slang"
    session.load_own("slangpy_rt", str(path), path.read_text(), "")
    return session


def emitted(session: NativeSession, target: Target, text: str, name: str) -> bytes:
    """The target code that Slang writes for a kernel's text."""
    module = session.load(name, f"{name}.slang", text)
    parts, out, note = [module], Out(), Out()
    with ExitStack() as stack:
        if target.entry != "range":
            status = module.call("IModule.findEntryPointByName", b"_spy_kernel", out.ref)
            entry = out.take()
            if status < 0 or entry is None:
                raise RuntimeError(note.bytes().decode())
            parts.append(stack.enter_context(entry))
        linked = stack.enter_context(session.linked(parts, name))
        if target.entry == "range":
            status = linked.call("IComponentType.getTargetCode", 0, out.ref, note.ref)
        else:
            status = linked.call("IComponentType.getEntryPointCode", 0, 0, out.ref, note.ref)
        code = out.bytes()
        if status < 0 or not code:
            raise RuntimeError(note.bytes().decode())
        note.bytes()
        return code


def compile_cpp(code: bytes) -> None:
    """Let g++ make a shared library of C++ text."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.cpp"
        source.write_bytes(code)
        subprocess.run([*CXX, str(source), "-o", f"{folder}/kernel.so", "-lm"], check=True)


if __name__ == "__main__":
    # A process that compiles one kernel for the CPU: the module's name and text, and the kernel's text.
    _target = Target("cpp", "", "range")
    _session = open_session(_target)
    _session.load(sys.argv[1], f"{sys.argv[1]}.slang", sys.argv[2])
    compile_cpp(emitted(_session, _target, sys.argv[3], "alone"))
