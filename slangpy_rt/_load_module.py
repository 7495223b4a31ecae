"""loadModule as a name of the package, where slang-torch's first tutorial has it. Importing it loads no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slangpy_rt.slangtorch import SlangTorchModule


def loadModule(fileName: str | Path, *args: Any, **options: Any) -> SlangTorchModule:
    """Load a Slang file that was written for slang-torch, as ``slangpy_rt.slangtorch.loadModule`` does."""
    # This import loads PyTorch.
    from slangpy_rt.slangtorch import loadModule as load

    return load(fileName, *args, **options)
