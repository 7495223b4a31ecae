"""The command ``doctor``: one page on what works here, by a call on every device, and what to install for more."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from dataclasses import fields
from functools import partial
from importlib import metadata

import numpy as np

import slangpy_rt as spy
from slangpy_rt.core.config import CONFIG, read_config
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.locate import compiler_version
from slangpy_rt.tools.canaries import compiler_verdicts, is_expected, rows
from slangpy_rt.tools.machine import attempt, cache_rows, cxx, nvrtc, open_cache, print_rows

_SOURCE = "float doctor(float x, float y) { return x * y + 1; }"
# What brings a device that is missing, on the systems where something does.
_BRINGS = {
    "cpu": "run `pip install llvmlite`",
    "cuda": "needs an NVIDIA GPU with its driver, and `pip install 'slangpy_rt[cuda]'`",
    "vulkan": "needs a GPU's Vulkan driver; on Debian and Ubuntu `apt install mesa-vulkan-drivers` has one for CPUs",
}
_SYSTEMS = {"cuda": ("linux", "win32"), "vulkan": ("linux", "win32")}
# Packages that are used where they are, what for, and what installs them.
_PACKAGES = {
    "torch": ("PyTorch's tensors and autograd", "slangpy_rt[torch]"),
    "ziglang": ("textures of the device cpu without g++ and clang++", "slangpy_rt[cpu]"),
    "llvmlite": ("the compiler of the device cpu", "llvmlite"),
    "nvidia-cuda-nvrtc": ("kernels of the device cuda", "slangpy_rt[cuda]"),
    "ml_dtypes": ("bfloat16 in NumPy arrays", "ml_dtypes"),
    "Pillow": ("pictures in notebooks, in files and of the demo", "slangpy_rt[images]"),
    "OpenEXR": ("files of pictures in OpenEXR", "slangpy_rt[images]"),
    "trimesh": ("files of meshes but PLY, OBJ and STL", "slangpy_rt[mesh]"),
    "nvtx": ("names of calls in profilers", "slangpy_rt[labels]"),
}


def doctor(args: argparse.Namespace) -> int:
    """Print the page; return 0 if a call is right on at least one device, else 1.

    With ``--compiler`` the page is the table of corrections, and 0 means that each has the state that is expected.
    """
    if args.compiler:
        return _corrections()
    slangpy, numpy = _version("slangpy"), np.__version__
    print(f"slangpy_rt {spy.__version__} on {platform.system()} {platform.machine()}")
    print(f"Python {platform.python_version()}, NumPy {numpy}, slangpy {slangpy or 'missing'}\n\ndevices")
    found, working = attempt(spy.devices), []
    for info in [] if isinstance(found, str) else found:
        reason = None if info.available else str(info.reason)
        said = f"no      {reason}" if reason else attempt(partial(_try, info.type))
        if said.startswith("works"):
            working.append(info.type)
        print(f"  {info.type:20}{said}")
        if reason and sys.platform in _SYSTEMS.get(info.type, (sys.platform,)) and info.type in _BRINGS:
            print(f"  {'':28}{_BRINGS[info.type]}")
    if isinstance(found, str):
        print(f"  {found}")
    print("\ncompilers")
    print_rows(2, [("Slang", attempt(compiler_version)), ("C++", attempt(cxx)), ("NVRTC", attempt(nvrtc))])
    print("\npackages")
    for name, (purpose, install) in _PACKAGES.items():
        version = _version(name)
        print(f"  {name:20}{version or f'missing: {purpose}; `pip install {_quoted(install)}`'}")
    print("\ncache")
    print_rows(2, attempt(lambda: cache_rows(open_cache())))
    plain = read_config({"PATH": CONFIG.path})
    changed = [f.name for f in fields(CONFIG) if getattr(CONFIG, f.name) != getattr(plain, f.name)]
    if changed:
        print("\nsettings of the environment (SLANGPY_RT_...)")
        print_rows(2, [(name, f" {getattr(CONFIG, name)}") for name in changed])
    print(f"\n{_summary(working)}")
    return 0 if working else 1


def _corrections() -> int:
    library = Library(CONFIG.slang_lib)
    print(f"Slang {library.build_tag}\n\ncorrections of what it writes")
    found = compiler_verdicts(library)
    for name, states in rows(found):
        print(f"  {name:38}{states}")
    return 0 if all(is_expected(each, library.build_tag) for each in found) else 1


def _summary(working: list[str]) -> str:
    if not working:
        return "No device works. The shortest way to one: pip install llvmlite"
    best = attempt(lambda: spy.init_device().name)
    return f"{len(working)} of the devices work; spy.init_device() opens '{best}'."


def _try(name: str) -> str:
    """Return what became of a call: ``works`` or ``fails``, and details."""
    started = time.perf_counter()
    try:
        with spy.Device(name) as device:
            module = spy.Module.load_from_source(device, "doctor", _SOURCE)
            result = module.doctor(np.arange(4, dtype=np.float32), 2)
            seconds = time.perf_counter() - started
            if np.array_equal(result, [1, 3, 5, 7]):
                return f"works   {device.info} ({seconds:.1f} s for a first call)"
            return f"fails   {device.info}: 0..3 times 2 plus 1 is {result.tolist()} there"
    except Exception as error:  # as in attempt
        return f"fails   {type(error).__name__}: {' '.join(str(error).split())}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _quoted(name: str) -> str:
    return f"'{name}'" if "[" in name else name
