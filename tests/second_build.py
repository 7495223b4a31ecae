"""Runs tests with a second build of the Slang compiler, which is newer than the one that slangpy's wheel has.

    python -m tests.second_build                              all tests of texts and calls; an hour on two cores
    python -m tests.second_build tests/slang tests/golden     the arguments of pytest in their place

The wheel of ``tests/second_build.txt`` is downloaded into a folder that is kept, and ``SLANGPY_RT_SLANG_LIB`` names
the library of the compiler in it. The table of ``doctor --compiler`` comes first. The exit status is that of pytest,
or 1 if a correction is obsolete or does not match the build.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
_WHEEL = ROOT / "tests" / "second_build.txt"
_LIBRARY = "libslang-compiler.so"
ARGUMENTS = ("--deep", "tests/conformance", "tests/golden", "tests/slang")


def library(folder: Path) -> Path:
    """Return the library of the compiler in a folder, downloaded if it is not there.

    Raises
    ------
    SystemExit
        If pip finds no such wheel.
    """
    found = sorted(folder.glob(f"{_LIBRARY}*"))
    if found:
        return found[0]
    with tempfile.TemporaryDirectory() as temp:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "-r", str(_WHEEL)]
        if subprocess.run([*command, "-d", temp]).returncode:
            raise SystemExit(f"pip downloads no wheel for {_WHEEL.relative_to(ROOT)}; it is for Linux on x86-64.")
        (wheel,) = Path(temp).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if Path(name).name.startswith(_LIBRARY))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "part").write_bytes(archive.read(name))
        # Whole, or not there.
        return (folder / "part").replace(folder / Path(name).name)


def main(arguments: list[str]) -> int:
    """Run the table and pytest with the second build; return the exit status."""
    path = library(ROOT / "build" / "second_build")
    environment = {**os.environ, "SLANGPY_RT_SLANG_LIB": str(path)}
    table = subprocess.run([sys.executable, "-m", "slangpy_rt", "doctor", "--compiler"], cwd=ROOT, env=environment)
    tests = subprocess.run([sys.executable, "-m", "pytest", *(arguments or ARGUMENTS)], cwd=ROOT, env=environment)
    return tests.returncode or table.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
