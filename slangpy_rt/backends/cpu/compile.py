"""Finds, identifies and calls the C++ compiler of this machine. Nothing here loads a kernel."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

from slangpy_rt.backends.cpu.kernel import RUN_LIST, load_vector_math
from slangpy_rt.backends.cpu.prepared import Prepared
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.paths import absolute
from slangpy_rt.core.programs import Programs, Result

# The most bytes of local variables. Threads have stacks of 8 MiB on Linux, and an overflow ends the process.
_LARGEST_FRAME = 4 << 20
# The value of SLANGPY_RT_CXX by which a machine with C++ compilers is taken for one without.
NO_COMPILER = "none"
# -fno-math-errno lets sqrt vectorize, and -fno-trapping-math lets a branch become a choice of two results; neither
# changes a result. -fopenmp-simd is for the loops of ``slang/cpp_lanes.py``; no OpenMP library is linked. Without
# -fvisibility=hidden the compiler may not inline functions of a shared library into each other: x + x over 16M floats
# takes 40 ms instead of 4. The macro leaves out the special functions of libstdc++'s <math.h>, whose text takes 0.06
# of the 0.18 s of a small kernel: it is what keeps their header from being read twice.
_FLAGS = (
    "-std=c++17", "-D_GLIBCXX_BITS_SPECFUN_H", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-fwrapv",
    "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-fno-exceptions", "-fno-rtti",
    f"-Wframe-larger-than={_LARGEST_FRAME}",
    "-Werror=return-type",
)  # fmt: skip
# Clang's option to vectorize loops with loops inside.
_VPLAN = "-enable-vplan-native-path"
# glibc 2.22 has sine, cosine, exponential, logarithm and power as vector functions.
_FIRST_LIBMVEC = 222
# The warning is searched for, because no flag makes it an error in both g++ and clang++.
_LARGE_FRAME = re.compile(r"warning: (?:the frame size of|stack frame size) \(?(\d+)")

# g++ writes ``In function 'float g_0(float)':`` and, some lines below, the error; clang++ writes the error only.
# The name in the example is that of the user's function ``g``, to which Slang adds a number.
_NO_RETURN = re.compile(
    r"(?:In function '(?:[^'\n]*?\b(\w+?)_\d+\([^'\n]*)':\n(?:(?!.*In function).*\n)*?)?"
    r".*error: (?:no return statement in function returning non-void|control reaches end of non-void function|"
    r"non-void function does not return a value)"
)
# What clang's driver says when the compiler that it started has crashed.
_CRASH = re.compile(r"frontend command failed|PLEASE (?:SUBMIT|ATTACH)")
_UNKNOWN = re.compile(r"error: (?:'([A-Za-z]\w*)' was not declared|use of undeclared identifier '([A-Za-z]\w*)')")


def toolchain() -> str:
    """Describe everything besides the source that changes a library; starts no compiler."""
    command = find_compiler()
    if command is None:
        return "no compiler"
    stat = Path(command[0]).stat()
    flags = (*_FLAGS, *_machine_flags(command), *_lane_flags(command))
    facts = (stat.st_size, stat.st_mtime_ns, *flags, _cpu_identity(), f"{zlib.crc32(RUN_LIST):08x}")
    return " ".join(map(str, (*command, *facts)))


def compile_library(code: bytes, prepared: Prepared, programs: Programs) -> bytes:
    """Compile the C++ that Slang emitted to a shared library, and return the library's bytes.

    No interrupt may stop it but by ``programs``.

    Raises
    ------
    CompileError
        If the compiler refuses the code, takes too long or is stopped, or a function has a path without a return
        statement.
    UnsupportedError
        If there is no compiler, the function's local variables exceed ``_LARGEST_FRAME`` bytes, or it uses a function
        that C++ does not have.
    """
    command = find_compiler()
    if command is None:
        raise UnsupportedError(
            "device cpu: no C++ compiler was found. Install g++ or clang++, or run `pip install 'slangpy_rt[cpu]'`, "
            "or name one in SLANGPY_RT_CXX."
        )
    with tempfile.TemporaryDirectory(prefix="slangpy_rt-") as folder:
        source, library = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        flags = [*_FLAGS, *_machine_flags(command), *_lane_flags(command)]
        text, using = prepared.kernel(code, command, flags, toolchain(), programs)

        def run(text: bytes, *more: str) -> Result:
            source.write_bytes(text)
            # Messages of g++ are searched in English.
            environment = {"LC_ALL": "C"} | (_zig_caches(folder) if command[1:] else {})
            arguments = [*command, *flags, *more, source.name, "-o", library.name, "-lm"]
            # zig cannot parse paths that are not UTF-8, or have backslashes, in its own lists of dependencies.
            return programs.run(arguments, environment=environment, folder=folder)[0]

        result = run(text, *using)
        whole = code + RUN_LIST
        if result.returncode and using:
            # What was compiled before may be gone: somebody emptied the cache, or the process begins to end.
            result = run(whole)
            if not result.returncode:
                prepared.discard(using)
        if result.returncode and _VPLAN in flags and (_VPLAN in result.stderr or _CRASH.search(result.stderr)):
            # A later clang may have the option no more, because it does so by itself. With it, clang 22 (zig 0.17)
            # crashes on some kernels, such as one of a deterministic device that adds up gradients of structs.
            flags = [flag for flag in flags if flag not in ("-mllvm", _VPLAN)]
            result = run(whole)
        if result.returncode and b"#ifdef SPY_MASKS" in code:
            # The second form of functions has fewer operations than the first, which says what is wrong with it.
            result = run(whole, "-USPY_MASKS")
        if frame := _LARGE_FRAME.search(result.stderr):
            raise UnsupportedError(
                f"the function has local variables of {int(frame[1]):,} bytes, which may not fit a thread's stack on "
                f"this device; {_LARGEST_FRAME:,} bytes do. Make the arrays smaller, or pass them as parameters."
            )
        if missing := _NO_RETURN.search(result.stderr):
            name = f"the function {missing[1]}" if missing[1] else "a function"
            raise CompileError(
                f"{name} ends without a return statement on some path, and its result would be "
                "what happens to lie in memory; return a value on every path."
            )
        if unknown := _UNKNOWN.search(result.stderr):
            raise UnsupportedError(
                f"the function uses {unknown[1] or unknown[2]}, which Slang writes into C++ and which C++ does not "
                "have; use a device of another type (cuda or vulkan)."
            )
        if result.returncode:
            raise CompileError(f"{Path(command[0]).name} refused the C++ that Slang emitted:\n{result.stderr}")
        if not library.is_file():
            raise CompileError(
                f"{command[0]} ended without an error and wrote no library; name a C++ compiler in SLANGPY_RT_CXX."
            )
        return library.read_bytes()


def find_compiler() -> list[str] | None:
    """Return the command of a C++ compiler, whose first item is the program's path; None if there is none."""
    if CONFIG.cxx == NO_COMPILER:
        return None
    asked = [CONFIG.cxx] if CONFIG.cxx else ["g++", "clang++", "c++", "zig"]
    for name in asked:
        if name == "zig":
            spec = importlib.util.find_spec("ziglang")
            if spec is not None and spec.submodule_search_locations:
                zig = Path(spec.submodule_search_locations[0]) / ("zig.exe" if os.name == "nt" else "zig")
                if zig.exists():
                    return [absolute(zig), "c++"]
        found = shutil.which(name, path=CONFIG.path)
        if found:
            return [absolute(found)]
    return None


def _machine_flags(command: list[str]) -> list[str]:
    """Return the flags that depend on the processor. zig must not link its C++ runtime."""
    return ["-march=native", *(["-nostdlib++"] if command[1:] else [])]


def _lane_flags(command: list[str]) -> list[str]:
    """Return the flags by which the compiler runs several elements at a time in loops that are marked for that.

    Clang vectorizes loops with loops inside, and calls libmvec, by options alone (clang 12 and later).
    """
    flags = ["-DSPY_MASKS"]
    if version := _libmvec():
        flags.append(f"-DSPY_LIBMVEC={version}")
    if command[1:] or "clang" in Path(command[0]).name:
        # After a crash clang would leave the text and a script among the temporary files.
        flags += ["-mllvm", _VPLAN, "-Wno-pass-failed", "-fno-crash-diagnostics"]
        flags += ["-fveclib=libmvec"] if version else []
        # 64 steps of min and max on 2^20 floats take 20 ms of a Xeon's core for 32; without AVX-512 nothing changes.
        flags += ["-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else []
    else:
        # Elements before an aligned address would be computed by other functions than those behind it, so that
        # a result depended on where an array lies.
        flags += ["--param", "vect-max-peeling-for-alignment=0"]
    return flags


def _libmvec() -> int:
    """Return the version of glibc, 236 for 2.36, if it has a vector library that keeps within 4 ULP; otherwise 0."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return 0
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        major, minor = (int(part) for part in version.split(".")[:2])
    except (ValueError, OSError):
        return 0  # another C library
    number = 100 * major + minor
    return number if name == "glibc" and number >= _FIRST_LIBMVEC and load_vector_math() else 0


def _zig_caches(folder: str) -> dict[str, str]:
    """Return the environment variables that give zig cache folders of slangpy_rt.

    zig compiles its C library into a cache (8 s, once), and fails where it finds no home directory for one.
    """
    from platformdirs import user_cache_path

    try:
        shared = user_cache_path("slangpy_rt") / "zig"
        shared.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError, KeyError):  # the last two without a home directory
        shared = Path(folder)
    return {"ZIG_GLOBAL_CACHE_DIR": str(shared), "ZIG_LOCAL_CACHE_DIR": "zig"}


def _cpu_identity() -> str:
    """Return what -march=native depends on, so that a kernel built elsewhere is not run here."""
    if sys.platform == "linux":
        with Path("/proc/cpuinfo").open("rb") as file:
            lines = file.read(8192).split(b"\n\n")[0].splitlines()
        kept = [line for line in lines if line.startswith((b"model name", b"flags", b"Features", b"CPU"))]
        return f"{zlib.crc32(b' '.join(kept)):08x}"
    return f"{platform.machine()} {platform.processor()}"
