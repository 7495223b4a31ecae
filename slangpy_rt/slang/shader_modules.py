"""The Slang modules in ``shaders/``: their names, which texts need them, and which names users may not declare.

No module is loaded here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from slangpy_rt.core.errors import CompileError
from slangpy_rt.core.paths import resolved
from slangpy_rt.slang.auto_import import AutoImport
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.text import RESERVED, blank, declared, reserved

# Each module comes after those that it imports.
SHADERS = (
    "_spy_handles", "_spy_library", "slangpy_rt", "slangpy", "mlp", "matmul", "sampling", "cubes", "fragments",
    "rays", "_spy_descriptors", "_spy_addresses",
)  # fmt: skip
# Those of them that users import, and in whose place a user may have a file of the same name.
IMPORTED = ("slangpy", "mlp", "matmul", "sampling", "cubes", "fragments", "rays")
# Where the number of a texture leads: on Vulkan, and on the CPU.
_OF_TEXTURES = ("_spy_descriptors", "_spy_addresses")
# Slang supports its own ``__dispatch_kernel`` only in C++ for PyTorch, and refuses ``uint3(1)`` as a size there. A
# Slang session takes no macros with parameters, so each text begins with this one.
SLANGTORCH_HEAD = "#define __dispatch_kernel(_spy_k, _spy_g, _spy_b) _spy_anyLaunch(_spy_g, _spy_b)\n#line 1\n"
# The module that declares the types and functions of slang-torch, and the names by which a text refers to them.
SLANGTORCH = AutoImport(
    "slangtorch",
    SLANGTORCH_HEAD,
    r"\b(?:TensorView|DiffTensorView|TorchTensor|IDiffTensorWrapper|AtomicAdd|cuda(?:ThreadIdx|BlockIdx|BlockDim)"
    r"|(?:Cuda|CUDA)(?:Kernel|Host|DeviceExport)|AutoPyBindCUDA|TorchEntryPoint|PyExport|syncTorchCudaStream)\b",
)
# Files that may be loaded as modules by themselves.
FILES = (
    *IMPORTED, "_spy_antialias", "_spy_bvh", "_spy_folds", "_spy_matmul", "_spy_optim", "_spy_packing", "_spy_raster",
    "_spy_reduce", "_spy_scan", "_spy_silhouettes", "_spy_sort", "_spy_steps",
)  # fmt: skip
# The same, and texts that ``linalg/user_functions.py`` and ``graphics/pixel_text.py`` write.
LIBRARIES = (*FILES, "_spy_parts", "_spy_product", "_spy_pixel")
TAKEN = "{place}: '{name}' is a name of slangpy_rt's own, as all that begin with '_spy_' are; choose another."
_PART = (
    "'{path}' is a part of slangpy_rt and no module by itself: put 'import slangpy_rt;' into a file of your own, and "
    "load that."
)
_EXPORTED = re.compile(
    r"\b(?:(?:RW)?Tensor|(?:RW|W)?DiffTensor|NDBuffer|(?:RW)?(?:Structured|ByteAddress)Buffer|printf)\b"
)
# For the CPU, Slang 2026.12 emits no more of these functions than additions of integers. Methods of
# these names are others.
_FOR_CPP = re.compile(r"(?<!\.)\bInterlocked(?:Add|Min|Max|And|Or|Xor|Exchange|CompareExchange|CompareStore)\b")
_MODULE = re.compile(r"^module (?:slangpy_rt|_spy_library);", re.M)


def is_ours(path: Path) -> bool:
    """Return whether a file lies in the installed folder ``shaders/``."""
    return _is_our_folder(str(path.parent))


@lru_cache(maxsize=256)
def _is_our_folder(path: str) -> bool:
    # The folder is compared, because a user's folder may hold a file with the same name.
    return resolved(path) == resolved(shader_directory())


def needs_library(text: str, form: str) -> bool:
    """Return whether user code uses a name that ``slangpy_rt.slang`` declares, and does not declare it itself.

    `form` is the format of target code.
    """
    names = (_EXPORTED, _FOR_CPP) if form == "cpp" else (_EXPORTED,)
    if _MODULE.search(text):
        return False
    found = {name for each in names if each.search(text) for name in each.findall(blank(text))}
    return not declared(text).issuperset(found)


def needed_modules(texts: Sequence[str], macros: bool, auto: AutoImport | None) -> list[str]:
    """Return names of the modules in ``shaders/`` that a session loads before a text, each after those it imports.

    Slang applies a user's macros to files that it imports by itself, so with macros each module is loaded as text.
    Those that users import are loaded only if a text names them: checking ``mlp`` alone takes 0.16 s,
    and ``slangpy`` 0.9 s, which later sessions save: see ``NativeSession.load_own``.

    Parameters
    ----------
    texts : sequence of str
        The text, and the files that it may import or include.
    macros : bool
        Whether the session has macros of the user's.
    auto : AutoImport or None
        The module that each text of the session imports implicitly.
    """
    named = {name for name in SHADERS if any(re.search(rf"\b{name}\b", text) for text in texts)}
    needed = [name for name in SHADERS if name in named or name not in (*IMPORTED, *_OF_TEXTURES)]
    names = needed if macros else [name for name in needed if name in ("slangpy_rt", "slangpy")]
    if auto is None:
        return names
    # The module of slang-torch imports ``_spy_library`` alone; a check of ``slangpy_rt`` takes 0.12 s.
    if named.isdisjoint(("slangpy_rt", *IMPORTED)):
        names.remove("slangpy_rt")
    return [*names, auto.module]


def check_names(name: str, path: str, text: str) -> None:
    """Refuse a user's module, or a file that it includes or imports, that uses a reserved name.

    Raises
    ------
    CompileError
        If the module's name or a name in its text begins with ``_spy_``, and the file is not one of ``shaders/``.
    """
    found = name if name.startswith(RESERVED) else reserved(text)
    if found and not is_ours(Path(path)):
        raise CompileError(TAKEN.format(place=path, name=found))


def check_is_module(path: str) -> None:
    """Refuse to load a file of ``shaders/`` that is no module by itself.

    Raises
    ------
    CompileError
        If `path` lies in ``shaders/`` and is not one of LIBRARIES.
    """
    if is_ours(Path(path)) and Path(path).stem not in LIBRARIES:
        raise CompileError(_PART.format(path=path))


def program_folders(ours: Path | None, folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the search path for a device that compiles Slang text itself.

    The folder ``shaders/``, `ours`, comes first if another folder has a file with the name of one of its modules.
    """
    if ours is None:
        return folders
    others = [Path(folder) for folder in folders if Path(folder) != ours]
    names = [path.name for path in ours.glob("*.slang") if path.stem in SHADERS[:3]]
    taken = any((folder / name).is_file() for folder in others for name in names)
    return (str(ours), *map(str, others)) if taken else folders
