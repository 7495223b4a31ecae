"""Training by PyTorch's DistributedDataParallel, on the CPU: two processes compute what one does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from _ddp import check_that_two_processes_train_as_one

import slangpy_rt as spy
from tests.depth import deep

pytestmark = pytest.mark.skipif(
    "cpu" not in [d.type for d in spy.devices() if d.available] or not torch.distributed.is_available(),
    reason="needs a C++ compiler, and a PyTorch with torch.distributed",
)


@deep
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    check_that_two_processes_train_as_one(tmp_path, "cpu", steps=24, batch=4096)
