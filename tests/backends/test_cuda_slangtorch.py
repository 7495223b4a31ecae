"""NVRTC compiles what slang-torch's kernels and host functions become on CUDA: no GPU is needed, and nothing runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from slangpy_rt.backends.cuda.compile import nvrtc_compile, nvrtc_version
from slangpy_rt.backends.targets import target_of
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.target import Caps
from slangpy_rt.slangtorch.devices import Devices
from slangpy_rt.slangtorch.host_text import host_text
from slangpy_rt.slangtorch.kernel_code import KernelCode
from slangpy_rt.slangtorch.kernel_text import KernelText
from slangpy_rt.slangtorch.parameters import parameter_of
from slangpy_rt.slangtorch.program import Program, Text
from tests.conformance._random_kernels import Group
from tests.conformance._slangtorch import COMPONENTS, DIFF_SQUARE, SQUARE
from tests.depth import sampled

try:
    nvrtc_version()
except UnsupportedError as error:
    pytest.skip(str(error), allow_module_level=True)

CAPS = Caps((2**31 - 1, 65535, 65535), frozenset(), frozenset({"atomic_float", "free_group_size"}), lanes=32)
TARGET = target_of("cuda", "", "value", CAPS)
GROUP = (32, 4, 1)
EVERY = ("", "forward", "backward")


class Case(NamedTuple):
    """A file, of which each kernel is compiled, and of the differentiable ones the derivatives."""

    text: str
    half: bool = False


def views(*scalars: str) -> str:
    """A kernel that reads and writes views of these types, and of vectors of them."""
    elements = [f"{scalar}{count}" for scalar in scalars for count in ("", 2, 3, 4)]
    parameters = ", ".join(f"TensorView<{e}> a_{e}, TensorView<{e}> b_{e}" for e in elements)
    lines = [f"b_{e}[at.xy] = a_{e}[at.y, at.x]; b_{e}.store(at.x, a_{e}.load(at.x, 0, 1));" for e in elements]
    return f"""
[AutoPyBindCUDA] [CUDAKernel] void copy({parameters})
{{
    uint3 at = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
    {" ".join(lines)}
}}
"""


def atomics(*scalars: str) -> str:
    """A kernel that changes elements of these types atomically."""
    lines = []
    for s in scalars:
        lines += [
            f"{s} old_{s};",
            f"x_{s}.InterlockedAdd(0, {s}(2), old_{s}); x_{s}.InterlockedAdd(uint2(0, 1), {s}(1));",
        ]
        lines += [f"x_{s}.InterlockedExchange(1, {s}(i), old_{s});"]
        lines += [f"x_{s}.InterlockedCompareExchange(uint1(2), {s}(5), {s}(6));"]
        if "int" in s:
            lines += [f"x_{s}.Interlocked{how}(3, {s}(i), old_{s});" for how in ("Min", "Max", "And", "Or", "Xor")]
    parameters = ", ".join(f"TensorView<{s}> x_{s}" for s in scalars)
    return f"""
[AutoPyBindCUDA] [CudaKernel] void change({parameters})
{{
    uint i = cudaThreadIdx().x;
    {" ".join(lines)}
}}
"""


STRUCTS = """
enum Kind { A = 3, B = 7 }
struct Mesh { TensorView<float> vertices; TensorView<int> indices; }
struct Layer<let N : int> { DiffTensorView weights; float scale[N]; }
struct Numbers { float3x3 m; bool yes; Kind kind; int8_t small; uint64_t large; double2 d; bool2 both; }
struct Everything { Mesh mesh; Layer<2> layers[2]; Numbers numbers; }
T twice<T : __BuiltinFloatingPointType>(T x) { return x + x; }
[AutoPyBindCUDA] [CUDAKernel] [Differentiable]
void run(Everything e, float2x2 m, float3 v[2], DiffTensorView output, no_diff int64_t n, TensorView<bool> flags)
{
    uint at = cudaThreadIdx().x;
    float sum = e.mesh.vertices[e.mesh.indices[at]] + e.numbers.m[1][2] + e.numbers.kind + float(e.numbers.d.y);
    for (int k = 0; k < 2; ++k)
        sum += e.layers[k].weights[at] * e.layers[k].scale[1] * v[k].y + m[k][1];
    if (e.numbers.yes && flags[at] && e.numbers.both.y)
        sum += float(e.numbers.large) + float(n) + e.numbers.small;
    output[at] = sum;
}
[AutoPyBindCUDA] [CUDAKernel] void doubled(TensorView<float> x, TensorView<double> y)
{
    uint at = cudaThreadIdx().x;
    y[at] = twice(double(twice(x[at])));
}
"""

OTHERS = """
[AutoPyBindCUDA] [CUDAKernel] [Differentiable]
void other(DiffTensorView<double> d, DiffTensorView<half> h, DiffTensorView<double, AtomicAdd> output)
{
    uint at = cudaThreadIdx().x;
    output.storeOnce(at, d[at] * double(h.loadOnce(at)) + d.primal[0]);
}
float element(TensorView<float> t, TensorView<float> gradient, uint2 at) { return t[at]; }
[BackwardDerivativeOf(element)]
void element_bwd(TensorView<float> t, TensorView<float> gradient, uint2 at, float d)
{
    float old;
    gradient.InterlockedAdd(at, d, old);
}
[Differentiable] float squared(TensorView<float> t, TensorView<float> g, uint2 at)
{
    return element(t, g, at) * element(t, g, at);
}
[AutoPyBindCUDA] [CUDAKernel] void by_hand(TensorView<float> t, TensorView<float> g)
{
    bwd_diff(squared)(t, g, cudaThreadIdx().xy, 1);
}
"""

OF_GPUS = """
groupshared float shared_[32];
float fast(float x) { __target_switch { case cuda: __intrinsic_asm "__expf($0)"; } }
[CudaDeviceExport] float exported(float x) { return 3 * x; }
[AutoPyBindCUDA] [CUDAKernel] void sums(TensorView<float> t)
{
    uint i = cudaThreadIdx().x;
    shared_[i] = exported(fast(t[i])) + WaveActiveSum(t[i]);
    GroupMemoryBarrierWithGroupSync();
    Ptr<float> there = &shared_[0];
    t[i] = there[31 - i] + *t.data_ptr_at(i);
}
"""

HOST = """
struct Made { TorchTensor<float> tensors[3]; float v; float2 vec; int n; bool yes; }
struct Given { TorchTensor<float> t; int times[2]; float3 by; }
[CudaKernel] void add(TensorView<float> t, float by, float3 v, int n) { t[cudaThreadIdx().x] += by + v.z * n; }
[TorchEntryPoint]
Made make(Given given, float value, uint2 sizes)
{
    Made made;
    made.tensors[0] = given.t;
    made.tensors[1] = TorchTensor<float>.alloc(sizes.x, sizes.y);
    made.tensors[1].fillValue(value);
    made.tensors[2] = TorchTensor<float>.zerosLike(given.t);
    for (int k = 0; k < given.times[1]; ++k)
        __dispatch_kernel(add, uint3(1), uint3(given.t.size(0), 1, 1))(made.tensors[2], 0.5, given.by, k);
    syncTorchCudaStream();
    made.v = value * 2;
    made.vec = given.by.xy;
    made.n = int(given.t.dims() + 10 * given.t.stride(0));
    made.yes = value > 0;
    return made;
}
[TorchEntryPoint] void fill(TorchTensor<float3> f, TorchTensor<int64_t> i, TorchTensor<double> d)
{
    f.fillValue(float3(1, 2, 0.5));
    i.fillValue(9007199254740993LL);
    d.fillZero();
}
"""

CASES = {
    "square": Case(SQUARE),
    "its derivatives": Case(DIFF_SQUARE),
    "random": Case(Group(1000, 4, 900).text),
    "floats": Case(views("float", "double")),
    "half": Case(views("half"), half=True),
    "words": Case(views("int", "uint", "bool")),
    "long": Case(views("int64_t", "uint64_t")),
    "short": Case(views("int16_t", "uint16_t")),
    "bytes": Case(views("int8_t", "uint8_t")),
    "atomics": Case(atomics("int", "uint", "int64_t", "uint64_t", "float", "double")),
    "components": Case(COMPONENTS),
    "structs": Case(STRUCTS),
    "other derivatives": Case(OTHERS, half=True),
    "of GPUs": Case(OF_GPUS),
    "host functions": Case(HOST),
}


class Emitted(NamedTuple):
    """One kernel as CUDA text, and the binary of that."""

    code: str
    cubin: bytes


def program(case: Case, folder: Path) -> tuple[Program, Any]:
    """A file as a CUDA device would load it, and what stands for that device."""
    device: Any = SimpleNamespace(
        backend=SimpleNamespace(target=TARGET, range_target=None), cache=DiskCache.open(None, 0), include_paths=(),
        deterministic=False,
        caps=CAPS, debug=False,
    )  # fmt: skip
    text = Text("module", str(folder / "module.slang"), case.text, (), (str(folder),), (), (), ("--use_fast_math",))
    return Program(text, Devices(None), device), device


def emitted(made: Program, device: Any, text: KernelText) -> Emitted:
    """What Slang and NVRTC make of a kernel's text. Slang has to lay out its arguments as they will be packed."""
    compiled = made.source_on(device).compile(text.text, "kernel", "_spy_kernel")
    assert compiled.layout == text.layout
    cubin = nvrtc_compile(compiled.code, "sm_90")
    assert b"\0_spy_kernel\0" in cubin
    # What follows Slang's prelude.
    return Emitted(compiled.code[compiled.code.rindex(b"#endif") :].decode(), cubin)


@sampled(15)
@pytest.mark.parametrize("name", CASES)
def test_it_compiles(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    if case.half and pytest.importorskip("cuda.pathfinder").find_nvidia_header_directory("cudart") is None:
        pytest.skip("cuda_fp16.h is not installed")
    made, device = program(case, tmp_path)
    functions = made.source.info.functions
    kernels = [sig for sig in functions if "_spy_CudaKernel" in sig.attributes]
    codes = [KernelCode(made, sig) for sig in kernels]
    for sig in kernels:
        for derivative in EVERY if sig.differentiable else EVERY[:1]:
            found = emitted(made, device, KernelCode(made, sig, derivative).text(device, GROUP))
            assert "threadIdx" in found.code
            # Gradients are added by the instruction of the GPU.
            assert ("atomicAdd" in found.code) == (derivative == "backward" or sig.name in ("by_hand", "change"))
    hosts = [sig for sig in functions if "_spy_TorchEntryPoint" in sig.attributes]
    for sig in hosts:
        text = made.text
        params = [parameter_of(p.name, p.type, made.names) for p in sig.params]
        result = None if sig.returns.kind == "void" else parameter_of("result", sig.returns, made.names)
        launched = [(code.sig.name, [parameter for _, parameter in code.params]) for code in codes]
        emitted(
            made, device,
            host_text(
                text.path, text.text, made.others, made.defines, sig.name, params, result, launched, TARGET, (),
            ),
        )  # fmt: skip
    assert kernels
