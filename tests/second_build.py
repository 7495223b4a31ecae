"""Runs tests with a second build of the Slang compiler, which is newer than the one that slangpy's wheel has.

    python -m tests.second_build                              all tests of texts and calls; an hour on two cores
    python -m tests.second_build tests/slang tests/golden     the arguments of pytest in their place

The wheel of ``tests/second_build.txt`` is downloaded into a folder that is kept, and ``SLANGPY_RT_SLANG_LIB`` names
the library of the compiler in it. SPIR-V's optimizer, which that wheel lacks, is the one in slangpy's wheel. The
table of ``doctor --compiler`` comes first. The exit status is that of pytest, or 1 if a correction has not the state
that its record expects of this build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from slangpy_rt.slang.locate import find_library

ROOT = Path(__file__).parents[1]
_WHEEL = ROOT / "tests" / "second_build.txt"
# The compiler, and its module of GLSL.
_LIBRARIES = re.compile(r"libslang-(?:compiler\.so|glsl-module-)[^/]*$")
ARGUMENTS = ("--deep", "tests/conformance", "tests/golden", "tests/slang")


def library(folder: Path) -> Path:
    """Return the library of the compiler in a folder, downloaded if it is not there.

    Raises
    ------
    SystemExit
        If pip finds no such wheel.
    """
    if not folder.is_dir():
        with tempfile.TemporaryDirectory() as temp:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes"]
            if subprocess.run([*command, "-r", str(_WHEEL), "-d", temp]).returncode:
                raise SystemExit(f"pip downloads no wheel for {_WHEEL.relative_to(ROOT)}; it is for Linux on x86-64.")
            (wheel,) = Path(temp).glob("*.whl")
            part = folder.with_name("part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if found := _LIBRARIES.search(name):
                        (part / found[0]).write_bytes(archive.read(name))
            (glsl,) = part.glob("libslang-glsl-module-*")
            (optimizer,) = find_library().parent.glob("libslang-glslang-*.so")
            shutil.copy(optimizer, part / glsl.name.replace("glsl-module", "glslang"))
            part.replace(folder)  # whole, or not there
    (compiler,) = folder.glob("libslang-compiler.so*")
    return compiler


def main(arguments: list[str]) -> int:
    """Run the table and pytest with the second build; return the exit status."""
    path = library(ROOT / "build" / "second_build")
    environment = {**os.environ, "SLANGPY_RT_SLANG_LIB": str(path)}
    table = subprocess.run([sys.executable, "-m", "slangpy_rt", "doctor", "--compiler"], cwd=ROOT, env=environment)
    tests = subprocess.run([sys.executable, "-m", "pytest", *(arguments or ARGUMENTS)], cwd=ROOT, env=environment)
    return tests.returncode or table.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
