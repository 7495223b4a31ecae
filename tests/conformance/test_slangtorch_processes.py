"""Processes that load one slang-torch module at once, with an empty cache: one of them compiles each kernel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import slangpy_rt as spy
from tests.depth import deep, needs

PROCESSES = 8
TEXT = """
[AutoPyBindCUDA] [CudaKernel] [Differentiable]
void square(DiffTensorView input, DiffTensorView output)
{
    uint i = cudaThreadIdx().x;
    output[i] = input[i] * input[i];
}
[CudaKernel] void copy(TensorView<float> input, TensorView<float> output)
{
    output[cudaThreadIdx().x] = input[cudaThreadIdx().x];
}
[TorchEntryPoint] TorchTensor<float> copied(TorchTensor<float> input)
{
    var output = TorchTensor<float>.emptyLike(input);
    __dispatch_kernel(copy, uint3(1), uint3(input.size(0), 1, 1))(input, output);
    return output;
}
"""
KERNELS = ["square of module", "square.bwd of module", "copied of module", "copy of module"]
# All begin at one moment: when the last of them is ready.
PROGRAM = """
import sys
import torch
import slangpy_rt as spy
import slangpy_rt.slangtorch as slangtorch
kind, path = sys.argv[1:]
with spy.Device(kind) as device:
    place = torch.device("cuda", device.index) if kind == "cuda" else torch.device("cpu")
    x = torch.arange(8.0, device=place)
    output, gradient = torch.zeros_like(x), torch.ones_like(x)
    print("ready", flush=True)
    sys.stdin.readline()
    m = slangtorch.loadModule(path, device=device)
    size = {"blockSize": (8, 1, 1), "gridSize": (1, 1, 1)}
    m.square(input=x, output=output).launchRaw(**size)
    assert torch.equal(output, x * x)
    m.square.bwd(input=(x, gradient), output=(output, torch.ones_like(x))).launchRaw(**size)
    assert torch.equal(gradient, 1 + 2 * x)
    assert torch.equal(m.copied(x), x)
print("done")
"""


# Importing PyTorch in eight processes takes twenty seconds on two cores.
@needs("pointers")
@deep
def test_eight_processes_compile_each_kernel_once(device: spy.Device, tmp_path: Path) -> None:
    path, cache = tmp_path / "module.slang", tmp_path / "cache"
    path.write_text(TEXT)
    variables = os.environ | {"SLANGPY_RT_CACHE_DIR": str(cache), "SLANGPY_RT_DEBUG": "3"}
    variables["PYTHONPATH"] = os.pathsep.join(sys.path)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, device.name, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables,
        )
        for _ in range(PROCESSES)
    ]  # fmt: skip
    try:
        for process in started:
            assert process.stdout and process.stdout.readline() == "ready\n"
        said = []
        for process in started:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        for process in started:
            out, errors = process.communicate(timeout=240)
            assert (process.returncode, out) == (0, "done\n"), errors
            said.append(errors)
    finally:
        for process in started:
            process.kill()
            process.wait()
    for title in KERNELS:
        compiled = sum(len(re.findall(rf"{title}: compiled in", each)) for each in said)
        found = sum(len(re.findall(rf"{title}: cache hit", each)) for each in said)
        assert (compiled, found) == (1, PROCESSES - 1), (title, said)
    left = [each.name for each in cache.iterdir() if each.suffix in (".lock", ".tmp")]
    assert left == []
