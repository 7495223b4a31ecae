"""Training by PyTorch's DistributedDataParallel, on two GPUs: two processes compute what one does on one."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

import slangpy_rt as spy

# By its path: the tests' folders are no packages.
CHECK = runpy.run_path(str(Path(__file__).parents[1] / "conformance" / "_ddp.py"))

pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < 2 or not any(d.type == "cuda" and d.available for d in spy.devices()),
    reason="needs two CUDA GPUs, and a PyTorch that has them",
)


def test_two_gpus_train_as_one(tmp_path: Path) -> None:
    CHECK["check_that_two_processes_train_as_one"](tmp_path, "cuda", steps=60, batch=1 << 16)
