"""Finds backends by name, those of other packages included. Importing this package imports no backend.

The code of backends handles bytes, integers and buffers. It knows no Slang types, no tensors and no broadcasting.
"""

from __future__ import annotations

import importlib
import sys

from slangpy_rt.backends.base import Backend
from slangpy_rt.backends.others import import_other, other_backends

# The order decides which device ``automatic`` opens: on Windows CUDA before D3D12, on macOS Metal.
REGISTRY = {
    "cuda": "slangpy_rt.backends.cuda.backend:CudaBackend",
    "d3d12": "slangpy_rt.backends.d3d12.backend:D3D12Backend",
    "metal": "slangpy_rt.backends.rhi.apis:RhiMetal",
    "vulkan": "slangpy_rt.backends.vulkan.backend:VulkanBackend",
    "cpu": "slangpy_rt.backends.cpu.backend:CpuBackend",
    "rhi-vulkan": "slangpy_rt.backends.rhi.apis:RhiVulkan",
    "rhi-cuda": "slangpy_rt.backends.rhi.apis:RhiCuda",
    "rhi-d3d12": "slangpy_rt.backends.rhi.apis:RhiD3D12",
    "rhi-vulkan-handles": "slangpy_rt.backends.rhi.apis:RhiVulkanHandles",
    "null": "slangpy_rt.backends.null:NullBackend",
}
# ``automatic`` opens none of the others: they reach the same hardware another way, or run nothing. Outside of Windows
# D3D12 is Vulkan behind another library.
_OTHERS = {"null"} if sys.platform == "win32" else {"null", "d3d12"}
AUTOMATIC = tuple(name for name in REGISTRY if name not in _OTHERS and not name.startswith("rhi-"))


def known(name: str) -> bool:
    """Tell whether a backend has that name. Other packages are searched only for names not in ``REGISTRY``."""
    return name in REGISTRY or name in other_backends()


def names() -> list[str]:
    """Return the names of all backends: slangpy_rt's own, then those of other packages."""
    return list(dict.fromkeys([*REGISTRY, *other_backends()]))


def backend_class(name: str) -> type[Backend]:
    """Import the class of a backend, and return it.

    Raises
    ------
    KeyError
        If no backend has that name.
    UnsupportedError
        If a backend of another package cannot be imported, or lacks methods of the contract.
    """
    if name not in REGISTRY:
        return import_other(name, other_backends()[name])
    module, _, attribute = REGISTRY[name].partition(":")
    found: type[Backend] = getattr(importlib.import_module(module), attribute)
    return found
