"""Opens the CPU device as it is where llvmlite is missing: all kernels run over ranges of elements, in C++."""

from __future__ import annotations

import pytest

import slangpy_rt as spy


def without_lanes(device: spy.Device, patch: pytest.MonkeyPatch) -> None:
    """Let the modules that a CPU device loads from here on have kernels over ranges of elements alone."""
    if device.backend.range_target is not None:
        patch.setattr(device.backend, "target", device.backend.range_target)
        patch.setattr(device.backend, "range_target", None)
