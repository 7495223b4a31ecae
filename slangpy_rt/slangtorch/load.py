"""loadModule, with the signature of slang-torch 1.3 and a device."""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from slangpy_rt.calls.macros import macro_text
from slangpy_rt.core.checks import flag, paths, table
from slangpy_rt.core.checks import path as checked_path
from slangpy_rt.core.errors import BindError, CompileError, UnsupportedError
from slangpy_rt.core.log import log, milliseconds
from slangpy_rt.core.weak import WeakValues
from slangpy_rt.core.wording import in_words
from slangpy_rt.device import Device
from slangpy_rt.interop.opened_devices import named_device
from slangpy_rt.slang.files import read_source
from slangpy_rt.slangtorch.devices import Devices
from slangpy_rt.slangtorch.module import SlangTorchModule
from slangpy_rt.slangtorch.program import Program, Text

_WHERE = "slangtorch.loadModule"
_lock = threading.Lock()
_loaded: WeakValues[SlangTorchModule] = WeakValues()
# Keeps modules alive for programs that call loadModule in each step. Each may hold some 50 MB of Slang's memory.
_recent: deque[SlangTorchModule] = deque(maxlen=8)


def loadModule(
    fileName: str | Path,
    skipSlang: Any = None,
    verbose: bool = False,
    defines: Mapping[str, Any] | None = None,
    includePaths: Sequence[str | Path] = (),
    skipNinjaCheck: bool = False,
    slangGenLineInfo: bool = True,
    cudaFastMath: bool = True,
    cudaGenLineInfo: bool = True,
    extraSlangFlags: Sequence[str] = (),
    extraCudaFlags: Sequence[str] = (),
    *,
    device: Device | str | None = None,
) -> SlangTorchModule:
    """Load a Slang file that was written for slang-torch.

    Parameters
    ----------
    fileName : path
        The file.
    defines : mapping, optional
        Preprocessor macros.
    includePaths : sequence of path
        Folders in which ``import`` and ``#include`` look besides the file's own.
    device : Device or str, optional
        The device that its kernels run on: None for the device on which the tensors of each call lie, ``"vulkan"`` or
        another type of ``Device``, or an open device.
    verbose : bool
        Whether to print the file's name and the loading time on stderr.
    cudaFastMath : bool
        Whether NVRTC compiles with ``--use_fast_math``, as by default in slang-torch; other devices ignore it.
    extraCudaFlags : sequence of str
        Options of NVRTC. Those of nvcc alone, such as ``-Xcompiler``, are dropped with a warning.
    skipSlang, skipNinjaCheck, slangGenLineInfo, cudaGenLineInfo
        As in slang-torch; they have no effect: unchanged kernels come from the cache.
    extraSlangFlags : sequence of str
        Options of Slang's command line, each value of one in its text or in the next: ``-DN=4`` or ``-D``, ``N=4``.
        Those that choose a target, an entry point or a file are refused.

    Returns
    -------
    SlangTorchModule
        The same object as before if it still exists, and no file and no option has changed.

    Raises
    ------
    CompileError
        If there is no such file, or Slang refuses it or a flag.
    BindError
        If an argument is of another kind.
    UnsupportedError
        If there is no such device, or one that has no pointers, or one that takes no flags of Slang's.
    """
    started = time.perf_counter()
    path = checked_path(_WHERE, "fileName", fileName)
    flags = {"verbose": verbose, "skipNinjaCheck": skipNinjaCheck, "slangGenLineInfo": slangGenLineInfo}
    flags |= {"cudaFastMath": cudaFastMath, "cudaGenLineInfo": cudaGenLineInfo}
    for name, value in {**flags, "skipSlang": skipSlang is not None and skipSlang}.items():
        flag(_WHERE, name, value)
    if skipSlang is not None:
        warnings.warn(f"{_WHERE}: skipSlang has no effect; unchanged files are not compiled again.", stacklevel=2)
    more_macros, more_folders, slang_flags = _slang_flags(_texts("extraSlangFlags", extraSlangFlags))
    options = _nvrtc_options(cudaFastMath, _texts("extraCudaFlags", extraCudaFlags))
    given_folders = (*paths(_WHERE, "includePaths", includePaths), *more_folders)
    folders = tuple(str(folder.absolute()) for folder in given_folders)
    given_macros = {**more_macros, **table(_WHERE, "defines", defines)}
    macros = tuple(sorted((name, macro_text(_WHERE, name, value)) for name, value in given_macros.items()))
    given = _device(device)
    devices = Devices(given)
    first = devices.first()
    key = (str(path.absolute()), folders, macros, slang_flags, options, first, given is None)
    with _lock:
        known = _loaded.get(key)
        if known is None or first.closed or known._spy_program.changed():
            found, source, places = read_source(_WHERE, path, folders)
            text = Text(Path(found).stem, found, source, places, folders, macros, slang_flags, options)
            program = Program(text, devices, first)
            known = SlangTorchModule(program)
            _loaded.put(key, known)
        with suppress(ValueError):
            _recent.remove(known)
        _recent.append(known)
    log(3, f"{_WHERE}: {path} loaded in {milliseconds(started)}", always=verbose)
    return known


def clearSessionShaderCache() -> None:
    """Forget the modules that this process has loaded."""
    with _lock:
        _loaded.clear()
        _recent.clear()


def clearPersistentShaderCache() -> None:
    """Do nothing but warn: kernels are in slangpy_rt's cache, which ``python -m slangpy_rt cache clear`` empties."""
    warnings.warn(
        "slangtorch: kernels are in slangpy_rt's cache; 'python -m slangpy_rt cache clear' empties it.", stacklevel=2
    )


def clearShaderCaches() -> None:
    """Forget the modules that this process has loaded, and warn as ``clearPersistentShaderCache`` does."""
    clearSessionShaderCache()
    clearPersistentShaderCache()


def _device(device: Device | str | None) -> Device | None:
    if device is None:
        return None
    if not isinstance(device, (Device, str)):
        raise BindError(f"{_WHERE}: device is {in_words(device)}; a Device, its type as text, or None was expected.")
    found = named_device(device) if isinstance(device, str) else device
    if "pointers" not in found.caps.features:
        raise UnsupportedError(
            f"{_WHERE}: device is {found!r}, which has no pointers, and kernels of slang-torch take their tensors as "
            "pointers; give a device of type cuda, vulkan or cpu, or None."
        )
    return found


def _texts(name: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, (list, tuple)) or not all(isinstance(text, str) and "\n" not in text for text in given):
        raise BindError(f"{_WHERE}: {name} is {in_words(given)}; a list of texts of one line was expected.")
    return tuple(given)


def _slang_flags(given: tuple[str, ...]) -> tuple[dict[str, str], list[Path], tuple[str, ...]]:
    """Return the macros and the folders that flags of Slang's command line give, and the other flags."""
    macros: dict[str, str] = {}
    folders: list[Path] = []
    others: list[str] = []
    waiting = list(given)
    while waiting:
        flag_text = waiting.pop(0)
        if not flag_text.startswith(("-D", "-I")):
            others.append(flag_text)
            continue
        # "-I", "folder" are two texts, "-Ifolder" is one.
        value = flag_text[2:] or (waiting.pop(0) if waiting else "")
        if not value:
            raise CompileError(f"{_WHERE}: extraSlangFlags has {in_words(flag_text)} without a value; give it one.")
        if flag_text.startswith("-I"):
            folders.append(Path(value))
        else:
            name, _, text = value.partition("=")
            macros[name] = text
    return macros, folders, tuple(others)


# Options of nvcc that NVRTC does not have, or that the device decides.
_OF_NVCC = re.compile(
    r"-O\d*$|-?-(gencode|arch|gpu-architecture|generate-code|code|expt-|Xcompiler|compiler-options)"
)


def _nvrtc_options(fast: bool, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options of NVRTC; those that nvcc alone has are dropped with a warning."""
    kept, dropped, waiting = ["--use_fast_math"] if fast else [], [], list(given)
    while waiting:
        option = waiting.pop(0)
        if not _OF_NVCC.match(option):
            kept.append(option)
            continue
        dropped.append(option)
        # "-Xcompiler -fPIC" are two texts, "-arch=sm_90" is one.
        if waiting and "=" not in option and not option.startswith(("-O", "--expt-", "-expt-")):
            dropped.append(waiting.pop(0))
    if dropped:
        warnings.warn(f"{_WHERE}: extraCudaFlags: {' '.join(dropped)} is of nvcc alone, and dropped.", stacklevel=3)
    return tuple(kept)
