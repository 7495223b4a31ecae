"""slang-torch's API: modules written for slang-torch 1.3 load and run unchanged.

The package has slang-torch's functions to load a Slang file and to launch its kernels on PyTorch's tensors. It has no
compiler, no cache and no launch path of its own: those are slangpy_rt's. Only ``slangpy_rt.loadModule`` imports it.
"""

from slangpy_rt.slangtorch.diff_pair import DiffTensorView
from slangpy_rt.slangtorch.load import (
    clearPersistentShaderCache,
    clearSessionShaderCache,
    clearShaderCaches,
    loadModule,
)
from slangpy_rt.slangtorch.module import SlangTorchModule

__all__ = [
    "DiffTensorView",
    "SlangTorchModule",
    "clearPersistentShaderCache",
    "clearSessionShaderCache",
    "clearShaderCaches",
    "loadModule",
]
