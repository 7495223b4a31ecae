"""What becomes of other libraries' memory and contexts when devices on several GPUs are closed, step by step.

    python tests/gpu/two_gpus.py [CURRENT]
    compute-sanitizer --tool memcheck --error-exitcode 86 python tests/gpu/two_gpus.py 1

``CURRENT`` is PyTorch's GPU. After each step: the thread's current context, which primary contexts there are, and
whether PyTorch writes and reads memory of each GPU. The exit status is 1 if it does not.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

import slangpy_rt as spy
from slangpy_rt.backends.cuda.driver import FFI_CUDA, driver

SOURCE = "float mul(float a, float b) { return a * b; }"


def show(step: str) -> None:
    """Print the state, and write and read."""
    cu = driver()
    context, flags, active = FFI_CUDA.new("uintptr_t *"), FFI_CUDA.new("unsigned int *"), FFI_CUDA.new("int *")
    cu.cuCtxGetCurrent(context)
    states = []
    for k in range(torch.cuda.device_count()):
        cu.cuDevicePrimaryCtxGetState(k, flags, active)
        states.append(active[0])
    print(f"{step}: current context {context[0]:#x}, primary contexts {states}, torch {torch.cuda.current_device()}")
    here = torch.ones(1000, device="cuda")
    assert here.tolist() == [1.0] * 1000
    for k in range(torch.cuda.device_count()):
        there = torch.full((1000,), float(k), device=f"cuda:{k}")
        assert there.tolist() == [float(k)] * 1000
        torch.cuda.synchronize(k)


def main() -> None:
    """Open, call and close."""
    torch.cuda.set_device(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    show("before")
    devices = [spy.Device(f"cuda:{k}") for k in range(torch.cuda.device_count())]
    show("opened")
    for k, device in enumerate(devices):
        module = spy.Module.load_from_source(device, "two_gpus", SOURCE)
        x = spy.Tensor.from_numpy(device, np.ones(5000, np.float32))
        t = torch.ones(5000, device=f"cuda:{k}")
        for _ in range(6):
            assert (module.mul(x, 2.0).to_numpy() == 2).all() and bool((module.mul(t, 2.0) == 2).all())
        show(f"called on cuda:{k}")
    for k, device in enumerate(devices):
        device.close()
        show(f"closed cuda:{k}")


if __name__ == "__main__":
    main()
