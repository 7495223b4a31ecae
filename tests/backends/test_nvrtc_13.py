"""A backward kernel on which NVRTC 13.0 did not finish: it compiles, and its accesses are those of global memory.

PyTorch's wheels for CUDA 13.0 bring this version. No GPU is needed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slangpy_rt.slangtorch.kernel_code import KernelCode
from tests.backends.test_cuda_slangtorch import GROUP, Case, program

# Ten derivatives of ``storeOnce`` are copied into the kernel, each with an address that is 0 for threads that return
# before. Without the empty assembly in ``_spy_ofTensor`` NVRTC 13.0.88 does not finish. It finishes kernels with
# fewer outputs, or with simpler functions between.
TEXT = """
struct Ellipse : IDifferentiable { float3 center; float2x2 shape; float3 color; }

[Differentiable] Ellipse ellipse(float3 at, float3 size, float4 turn, no_diff float4x4 view)
{
    Ellipse result;
    result.center = mul(view, float4(at, 1)).xyz;
    let q = normalize(turn);
    float3x3 rotation = float3x3(
        1 - 2 * (q.y * q.y + q.z * q.z), 2 * (q.x * q.y - q.w * q.z), 2 * (q.x * q.z + q.w * q.y),
        2 * (q.x * q.y + q.w * q.z), 1 - 2 * (q.x * q.x + q.z * q.z), 2 * (q.y * q.z - q.w * q.x),
        2 * (q.x * q.z - q.w * q.y), 2 * (q.y * q.z + q.w * q.x), 1 - 2 * (q.x * q.x + q.y * q.y));
    float3x3 scale = float3x3(size.x, 0, 0, 0, size.y, 0, 0, 0, size.z);
    let axes = mul(rotation, scale);
    let c = mul(axes, transpose(axes));
    result.shape = float2x2(c[1][1], c[0][1], c[1][0], c[0][0]);
    result.color = max(at * 0.5 + 0.2, 0.0);
    return result;
}
[AutoPyBindCUDA] [CUDAKernel] [Differentiable]
void project(DiffTensorView position, DiffTensorView sizes, DiffTensorView turns, TensorView<float> view,
    DiffTensorView centers, DiffTensorView shapes, DiffTensorView colors, TensorView<int> tiles)
{
    let thread = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
    uint i = thread.x;
    if (i >= position.size(0))
        return;
    float4x4 matrix = float4x4(view[0, 0]);
    float3 at = float3(position[i, 0], position[i, 1], position[i, 2]);
    float3 size = float3(sizes[i, 0], sizes[i, 1], sizes[i, 2]);
    float4 turn = float4(turns[i, 0], turns[i, 1], turns[i, 2], turns[i, 3]);
    let seen = ellipse(at, size, turn, matrix);
    if (seen.center.z <= 0.2)
        return;
    tiles[i] = int(seen.center.x);
    if (tiles[i] == 0)
        return;
    [ForceUnroll]
    for (int k = 0; k < 3; ++k)
        centers.storeOnce(uint2(i, k), seen.center[k]);
    [ForceUnroll]
    for (int k = 0; k < 2; ++k)
        [ForceUnroll]
        for (int l = 0; l < 2; ++l)
            shapes.storeOnce(uint3(i, k, l), seen.shape[k][l]);
    [ForceUnroll]
    for (int k = 0; k < 3; ++k)
        colors.storeOnce(uint2(i, k), seen.color[k]);
}
"""
# A library that is loaded already is the one that cuda.bindings takes.
COMPILE = """
import ctypes, sys
path, code, version = sys.argv[1:]
if path:
    ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
from cuda.bindings import nvrtc
assert version in ("", "%d.%d" % nvrtc.nvrtcVersion()[1:]), nvrtc.nvrtcVersion()
_, program = nvrtc.nvrtcCreateProgram(open(code, "rb").read(), b"kernel.cu", 0, [], [])
options = [b"--gpu-architecture=sm_90", b"--std=c++17", b"-w"]
status, = nvrtc.nvrtcCompileProgram(program, len(options), options)
assert not status, status
ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
nvrtc.nvrtcGetPTX(program, ptx)
sys.stdout.write(ptx.rstrip(b"\\0").decode())
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CUDA text of the backward kernel."""
    folder = tmp_path_factory.mktemp("nvrtc")
    made, device = program(Case(TEXT), folder)
    (sig,) = (sig for sig in made.source.info.functions if "_spy_CudaKernel" in sig.attributes)
    text = KernelCode(made, sig, "backward").text(device, GROUP)
    path = folder / "kernel.cu"
    path.write_bytes(made.source_on(device).compile(text.text, "kernel", "_spy_kernel").code)
    return path


def check(code: Path, library: str, version: str, **environment: str) -> None:
    """Compile the kernel by a library, or by the one that is installed, within a minute; look at its accesses."""
    found = subprocess.run(
        [sys.executable, "-c", COMPILE, library, str(code), version],
        capture_output=True, text=True, timeout=60, env=os.environ | environment,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    spaces = set(re.findall(r"^\s*(?:@!?%p\d+ )?((?:ld|st|red|atom)\.\w+)", found.stdout, re.MULTILINE))
    assert spaces == {"ld.param", "ld.global", "st.global", "atom.global"}


def test_nvrtc_13_compiles_a_backward_kernel_with_many_outputs(code: Path, nvrtc_13: str) -> None:
    # Its other libraries lie beside it.
    check(code, nvrtc_13, "13.0", LD_LIBRARY_PATH=str(Path(nvrtc_13).parent))


def test_its_accesses_are_of_global_memory(code: Path) -> None:
    check(code, "", "")
