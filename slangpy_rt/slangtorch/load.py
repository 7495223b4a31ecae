"""loadModule, with the signature of slang-torch 1.3 and a device."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slangpy_rt.calls.module import macro_text
from slangpy_rt.core.checks import flag, paths, table
from slangpy_rt.core.checks import path as checked_path
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.core.wording import in_words
from slangpy_rt.device import Device
from slangpy_rt.slang.files import read_source
from slangpy_rt.slangtorch.devices import Devices, default_device, named_device
from slangpy_rt.slangtorch.module import SlangTorchModule
from slangpy_rt.slangtorch.program import Program, Text

_WHERE = "slangtorch.loadModule"
_lock = threading.Lock()
_loaded: dict[Any, tuple[Program, SlangTorchModule]] = {}


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
        Where ``import`` and ``#include`` look besides the file's own folder.
    device : Device or str, optional
        Where its kernels run: None for the device on which the tensors of each call lie, ``"vulkan"`` or another type
        of ``Device``, or one that is open.
    skipSlang, verbose, skipNinjaCheck, slangGenLineInfo, cudaFastMath, cudaGenLineInfo
        As of slang-torch. Nothing here depends on them: kernels come from the cache where their text has not changed.
    extraSlangFlags, extraCudaFlags
        Empty: flags of compilers are not passed on.

    Returns
    -------
    SlangTorchModule
        The same object as before if no file and no option has changed.

    Raises
    ------
    CompileError
        If there is no such file, or Slang refuses it.
    BindError
        If an argument is of another kind.
    UnsupportedError
        If there are flags, or no such device.
    """
    path = checked_path(_WHERE, "fileName", fileName)
    given_flags = {"verbose": verbose, "skipNinjaCheck": skipNinjaCheck, "slangGenLineInfo": slangGenLineInfo}
    given_flags |= {
        "cudaFastMath": cudaFastMath,
        "cudaGenLineInfo": cudaGenLineInfo,
        "skipSlang": skipSlang is not None and skipSlang,
    }
    for name, value in given_flags.items():
        flag(_WHERE, name, value)
    for name, flags in (("extraSlangFlags", extraSlangFlags), ("extraCudaFlags", extraCudaFlags)):
        if not isinstance(flags, (list, tuple)):
            raise BindError(f"{_WHERE}: {name} is {in_words(flags)}; an empty list was expected.")
        if flags:
            raise UnsupportedError(f"{_WHERE}: {name} is {in_words(flags)}; flags are not passed on, leave them out.")
    folders = tuple(str(folder.absolute()) for folder in paths(_WHERE, "includePaths", includePaths))
    macros = tuple(
        sorted((name, macro_text(_WHERE, name, value)) for name, value in table(_WHERE, "defines", defines).items())
    )
    given = _device(device)
    first = given or default_device()
    key = (str(path.absolute()), folders, macros, first, given is None)
    with _lock:
        known = _loaded.get(key)
        if known is None or first.closed or known[0].changed():
            found, source, places = read_source(_WHERE, path, folders)
            text = Text(Path(found).stem, found, source, places, folders, macros)
            program = Program(text, Devices(given), first)
            known = _loaded[key] = program, SlangTorchModule(program)
    if skipSlang is not None:
        warnings.warn(f"{_WHERE}: skipSlang has no effect; unchanged files are not compiled again.", stacklevel=2)
    return known[1]


def clearSessionShaderCache() -> None:
    """Forget the modules that this process has loaded."""
    with _lock:
        _loaded.clear()


def clearPersistentShaderCache() -> None:
    """Do nothing but warn: kernels are in slangpy_rt's cache, which ``python -m slangpy_rt cache clear`` empties."""
    warnings.warn(
        "slangtorch: kernels are in slangpy_rt's cache; 'python -m slangpy_rt cache clear' empties it.", stacklevel=2
    )


def clearShaderCaches() -> None:
    """Forget the modules that this process has loaded, and warn as ``clearPersistentShaderCache``."""
    clearSessionShaderCache()
    clearPersistentShaderCache()


def _device(device: Device | str | None) -> Device | None:
    if device is None or isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise BindError(f"{_WHERE}: device is {in_words(device)}; a Device, its type as text, or None was expected.")
    return named_device(device)
