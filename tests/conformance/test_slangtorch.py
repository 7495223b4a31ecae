"""Files written for slang-torch load and run unchanged: views, derivatives, structs and numbers as arguments."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import slangpy_rt as spy
import slangpy_rt.slangtorch as slangtorch

ONE = (1, 1, 1)

SQUARE = """
[AutoPyBindCUDA]
[CUDAKernel]
void square(TensorView<float> input, TensorView<float> output)
{
    // Get the 'global' index of this thread.
    uint3 dispatchIdx = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
    if (dispatchIdx.x >= input.size(0))
        return;
    output[dispatchIdx.x] = input[dispatchIdx.x] * input[dispatchIdx.x];
}
"""

DIFF_SQUARE = """
[AutoPyBindCUDA]
[CUDAKernel]
[Differentiable]
void square(DiffTensorView input, DiffTensorView output)
{
    uint3 dispatchIdx = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
    if (dispatchIdx.x >= input.size(0))
        return;
    output[dispatchIdx.x] = input[dispatchIdx.x] * input[dispatchIdx.x];
}
"""


class Files:
    """Writes Slang files and loads them for one device."""

    def __init__(self, device: spy.Device, folder: Path) -> None:
        self.device, self.folder = device, folder

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def load(self, text: str, name: str = "module.slang", **options: Any) -> Any:
        return slangtorch.loadModule(self.write(name, text), device=self.device, **options)

    def on(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor where the device's library of tensors has them."""
        return value.cuda(self.device.index) if self.device.name == "cuda" else value


@pytest.fixture
def files(device: spy.Device, tmp_path: Path) -> Files:
    return Files(device, tmp_path)


def test_a_kernel_of_the_tutorial(files: Files) -> None:
    m = files.load(SQUARE, "square.slang")
    a = files.on(torch.randn(1024))
    output = torch.zeros_like(a)
    m.square(input=a, output=output).launchRaw(blockSize=(32, 1, 1), gridSize=(64, 1, 1))
    assert torch.equal(output, a * a)


def test_derivatives_of_the_tutorial(files: Files) -> None:
    m = files.load(DIFF_SQUARE)
    size = {"blockSize": (6, 1, 1), "gridSize": ONE}
    x = files.on(torch.tensor((0, 1, 2, 3, 4, 5), dtype=torch.float))
    for given in (lambda t: t, lambda t: (t,), lambda t: m.DiffTensorView(value=t)):
        output = torch.zeros_like(x)
        m.square(input=given(x), output=given(output)).launchRaw(**size)
        assert torch.equal(output, x * x)
    for pair in (lambda *t: t, lambda v, g: m.DiffTensorView(value=v, grad=g)):
        gradient, output_gradient = torch.ones_like(x), torch.arange(6.0).to(x)
        m.square.bwd(input=pair(x, gradient), output=pair(output, output_gradient)).launchRaw(**size)
        # Gradients are added to what is there; those of what is stored are consumed.
        assert torch.equal(gradient, 1 + 2 * x * torch.arange(6.0).to(x)) and not output_gradient.any()
        tangent, output_tangent = torch.arange(6.0).to(x) - 2, torch.zeros_like(x)
        output = torch.zeros_like(x)
        m.square.fwd(input=pair(x, tangent), output=pair(output, output_tangent)).launchRaw(**size)
        assert torch.equal(output, x * x) and torch.equal(output_tangent, 2 * x * tangent)
    # Without a gradient none is kept, and what is stored has none.
    gradient = torch.zeros_like(x)
    m.square.bwd(input=(x, gradient), output=(output,)).launchRaw(**size)
    assert not gradient.any()
    m.square.bwd(input=x, output=(output, torch.ones_like(x))).launchRaw(**size)


def test_an_autograd_function_by_hand(files: Files) -> None:
    m = files.load(
        """
        [AutoPyBindCUDA] [CUDAKernel] [Differentiable]
        void square(DiffTensorView input, DiffTensorView output)
        {
            uint3 at = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
            if (at.x >= input.size(0) || at.y >= input.size(1))
                return;
            output[at.x, at.y] = input[at.xy] * input[at.x, at.y];
        }
        """
    )

    class MySquareFunc(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: torch.Tensor) -> torch.Tensor:
            output = torch.zeros_like(input)
            m.square(input=input, output=output).launchRaw(
                blockSize=(32, 32, 1), gridSize=((input.shape[0] + 31) // 32, (input.shape[1] + 31) // 32, 1)
            )
            ctx.save_for_backward(input, output)
            return output

        @staticmethod
        def backward(ctx: Any, grad_output: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            input, output = ctx.saved_tensors
            input_grad = torch.zeros_like(input)
            m.square.bwd(input=(input, input_grad), output=(output, grad_output.clone())).launchRaw(
                blockSize=(32, 32, 1), gridSize=((input.shape[0] + 31) // 32, (input.shape[1] + 31) // 32, 1)
            )
            return input_grad

    x = files.on(torch.tensor([[3.0, 4.0], [0.0, 1.0]])).requires_grad_()
    y = MySquareFunc.apply(x)
    y.sum().backward()
    assert torch.equal(y.detach(), x.detach() ** 2) and torch.equal(x.grad, 2 * x.detach())


def test_macros_make_modules_side_by_side(files: Files) -> None:
    text = """
    static const uint kMaxSteps = MAX_STEPS;
    float trace<let N : int>(float x) { for (int i = 0; i < N; i++) x += 1; return x; }
    [AutoPyBindCUDA] [CudaKernel]
    void render(TensorView<float> output) { output[cudaThreadIdx().x] = trace<kMaxSteps>(0.5); }
    """
    twenty, fifty = (files.load(text, defines={"MAX_STEPS": steps}) for steps in (20, 50))
    output = files.on(torch.zeros(3))
    for module, expected in ((twenty, 20.5), (fifty, 50.5), (twenty, 20.5)):
        module.render(output=output).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
        assert (output == expected).all()
    with pytest.raises(RuntimeError, match="MAX_STEPS"):
        files.load(text)


BOX = """
float getInputElement(TensorView<float> input, TensorView<float> inputGradToPropagateTo, uint2 loc)
{
    return input[loc];
}

[BackwardDerivativeOf(getInputElement)]
void getInputElement_bwd(
    TensorView<float> input, TensorView<float> inputGradToPropagateTo, uint2 loc, float derivative)
{
    float oldVal;
    inputGradToPropagateTo.InterlockedAdd(loc, derivative, oldVal);
}

[Differentiable]
float computeOutputPixel(TensorView<float> input, TensorView<float> inputGradToPropagateTo, uint2 pixelLoc)
{
    int width = input.dim(0);
    int height = input.dim(1);
    int count = 0;
    float sumValue = 0.0;
    for (int offsetX = -1; offsetX <= 1; offsetX++)
    {
        int x = pixelLoc.x + offsetX;
        if (x < 0 || x >= width) continue;
        for (int offsetY = -1; offsetY <= 1; offsetY++)
        {
            int y = pixelLoc.y + offsetY;
            if (y < 0 || y >= height) continue;
            sumValue += getInputElement(input, inputGradToPropagateTo, uint2(x, y));
            count++;
        }
    }
    sumValue /= count;
    return sumValue;
}

[AutoPyBindCUDA] [CudaKernel]
void boxFilter_fwd(TensorView<float> input, TensorView<float> output)
{
    uint2 pixelLoc = (cudaBlockIdx() * cudaBlockDim() + cudaThreadIdx()).xy;
    if (pixelLoc.x >= input.dim(0) || pixelLoc.y >= input.dim(1)) return;
    output[pixelLoc] = computeOutputPixel(input, output, pixelLoc);
}

[AutoPyBindCUDA] [CudaKernel]
void boxFilter_bwd(
    TensorView<float> input, TensorView<float> resultGradient, TensorView<float> inputGradToPropagateTo)
{
    uint2 pixelLoc = (cudaBlockIdx() * cudaBlockDim() + cudaThreadIdx()).xy;
    if (pixelLoc.x >= input.dim(0) || pixelLoc.y >= input.dim(1)) return;
    bwd_diff(computeOutputPixel)(input, inputGradToPropagateTo, pixelLoc, resultGradient[pixelLoc]);
}
"""


def test_the_box_filter(files: Files) -> None:
    m = files.load(BOX)
    size = {"blockSize": (8, 4, 1), "gridSize": (2, 3, 1)}
    x = torch.randn(11, 9)
    weights = torch.randn(11, 9)
    reference = x.clone().requires_grad_()
    padded = torch.nn.functional.pad(reference, (1, 1, 1, 1))
    total = sum(padded[i : i + 11, j : j + 9] for i in range(3) for j in range(3))
    inside = torch.nn.functional.pad(torch.ones(11, 9), (1, 1, 1, 1))
    expected = total / sum(inside[i : i + 11, j : j + 9] for i in range(3) for j in range(3))
    expected.backward(weights)
    assert reference.grad is not None
    output, gradient = files.on(torch.zeros(11, 9)), files.on(torch.zeros(11, 9))
    m.boxFilter_fwd(input=files.on(x), output=output).launchRaw(**size)
    torch.testing.assert_close(output.cpu(), expected.detach(), rtol=1e-5, atol=1e-6)
    m.boxFilter_bwd(input=files.on(x), resultGradient=files.on(weights), inputGradToPropagateTo=gradient).launchRaw(
        **size
    )
    torch.testing.assert_close(gradient.cpu(), reference.grad, rtol=1e-5, atol=1e-6)


STRUCTS = """
struct Mesh
{
    TensorView<float> vertices;
    TensorView<int> indices;
};
struct Layer<let N : int> { DiffTensorView weights; float scale[N]; }
struct Both { Mesh mesh; Layer<2> layers[2]; float3 by; }

[AutoPyBindCUDA]
[CUDAKernel]
void processMesh(Mesh mesh, TensorView<float> output)
{
    uint at = cudaThreadIdx().x;
    output[at] = mesh.vertices[mesh.indices[at]];
}

[AutoPyBindCUDA] [CUDAKernel] [Differentiable]
void everything(Both both, DiffTensorView output)
{
    uint at = cudaThreadIdx().x;
    float sum = both.by.y * both.mesh.vertices[at];
    for (int k = 0; k < 2; ++k)
        sum += both.layers[k].weights[at] * both.layers[k].scale[1];
    output[at] = sum;
}
"""


def test_structs(files: Files) -> None:
    m = files.load(STRUCTS)
    size = {"blockSize": (4, 1, 1), "gridSize": ONE}
    vertices = files.on(torch.tensor([10.0, 11, 12, 13]))
    indices = files.on(torch.tensor([3, 2, 1, 0], dtype=torch.int32))
    for mesh in (
        m.Mesh(vertices=vertices, indices=indices), {"vertices": vertices, "indices": indices}, (vertices, indices),
    ):  # fmt: skip
        output = torch.zeros_like(vertices)
        m.processMesh(mesh=mesh, output=output).launchRaw(**size)
        assert output.tolist() == [13, 12, 11, 10]
    w = [files.on(torch.arange(4.0)), files.on(torch.ones(4))]
    gradients = [torch.zeros_like(t) for t in w]
    both = m.Both(
        mesh=m.Mesh(vertices, indices),
        layers=[m.Layer(weights=(w[0], gradients[0]), scale=(1, 2)), {"weights": w[1], "scale": [3, 4]}],
        by=(0.0, 0.5, 0.0),
    )
    output = torch.zeros_like(vertices)
    m.everything(both=both, output=output).launchRaw(**size)
    assert torch.equal(output, 0.5 * vertices + 2 * w[0] + 4 * w[1])
    m.everything.bwd(both=both, output=(output, torch.ones_like(output))).launchRaw(**size)
    assert gradients[0].tolist() == [2, 2, 2, 2] and not gradients[1].any()


def test_wrong_structs(files: Files) -> None:
    m = files.load(STRUCTS)
    a, i, output = files.on(torch.zeros(4)), files.on(torch.zeros(4, dtype=torch.int32)), files.on(torch.zeros(4))
    for mesh in ((a,), (a, i, a), {"vertices": a}, {"vertices": a, "Indices": i}):
        with pytest.raises(TypeError, match="vertices, indices"):
            m.processMesh(mesh=mesh, output=output)
    with pytest.raises(ValueError, match="mesh: "):
        m.processMesh(mesh=a, output=output)
    with pytest.raises(RuntimeError, match=r"mesh.indices is float32; 'TensorView<int>' needs int32"):
        m.processMesh(mesh=(a, a), output=output)
    with pytest.raises(TypeError, match=r"^mesh\.indices"):
        m.processMesh(mesh=(a, np.zeros(4, np.int32)), output=output)


NUMBERS = """
enum Kind { A = 3, B = 7 }
struct MyStruct { float3x3 m; bool yes; Kind kind; int8_t small; uint64_t large; double2 d; }
[AutoPyBindCUDA] [CUDAKernel]
void numbers(float3 v, float2x3 m, MyStruct s, float3 array[2], int64_t i, TensorView<double> output)
{
    for (uint k = 0; k < 3; ++k) output[k] = v[k];
    for (uint k = 0; k < 6; ++k) output[3 + k] = m[k / 3][k % 3];
    for (uint k = 0; k < 9; ++k) output[9 + k] = s.m[k / 3][k % 3];
    output[18] = s.yes ? 1.0 : 0.0;
    output[19] = int(s.kind);
    output[20] = s.small;
    output[21] = double(s.large);
    output[22] = s.d.y;
    for (uint k = 0; k < 6; ++k) output[23 + k] = array[k / 3][k % 3];
    output[29] = double(i);
}
"""


def test_numbers_vectors_and_matrices(files: Files) -> None:
    m = files.load(NUMBERS)
    s = m.MyStruct(
        m=((1, 2, 3), (4, 5, 6), (7, 8, 9)), yes=True, kind=7, small=-128, large=2**40, d=torch.tensor([0.5, 0.1])
    )
    output = files.on(torch.zeros(30, dtype=torch.float64))
    m.numbers(
        v=(1.0, 2.0, 3.0), m=[[1, 2, 3], [4, 5, 6]], s=s, array=[(1, 2, 3), (4, 5, 6)], i=-(2**62), output=output
    ).launchRaw(blockSize=ONE, gridSize=ONE)
    expected = [1, 2, 3, *range(1, 7), *range(1, 10), 1, 7, -128, 2**40, np.float32(0.1), *range(1, 7), -(2**62)]
    assert output.tolist() == [float(x) for x in expected]
    fine = {"v": (1, 2, 3), "m": [[1, 2, 3], [4, 5, 6]], "s": s, "array": [(1, 2, 3)] * 2, "i": 1, "output": output}
    wrong: list[tuple[str, Any, type[Exception]]] = [
        ("v", (1, 2), ValueError), ("v", 1.0, ValueError), ("v", (1, 2, "3"), TypeError), ("i", 1.5, TypeError),
        ("i", 2**63, ValueError), ("m", [[1, 2], [3, 4], [5, 6]], ValueError), ("array", [(1, 2, 3)], ValueError),
        ("array", 1, ValueError), ("v", None, ValueError), ("i", None, TypeError), ("output", None, TypeError),
    ]  # fmt: skip
    for name, value, error in wrong:
        with pytest.raises(error, match=f"^{name}"):
            m.numbers(**(fine | {name: value}))


def test_elements_of_every_type(files: Files) -> None:
    scalars = {
        "float": torch.float32, "double": torch.float64, "int": torch.int32, "uint": torch.uint32,
        "int64_t": torch.int64, "uint64_t": torch.uint64, "bool": torch.bool, "int8_t": torch.int8,
        "uint8_t": torch.uint8, "int16_t": torch.int16, "uint16_t": torch.uint16, "half": torch.float16,
    }  # fmt: skip
    there = {scalar: dtype for scalar, dtype in scalars.items() if scalar in files.device.caps.scalars}
    # One kernel for all of them: each takes a second to compile.
    views = [
        f"TensorView<{s}> a_{s}, TensorView<{s}3> v_{s}, TensorView<{s}> b_{s}, TensorView<{s}3> w_{s}" for s in there
    ]
    lines = [f"b_{s}[i, 0] = a_{s}.load(i, 0);\nw_{s}[i] = v_{s}[i].zyx;" for s in there]
    m = files.load(
        f"""
        [AutoPyBindCUDA] [CUDAKernel]
        void copy({", ".join(views)})
        {{
            uint i = cudaThreadIdx().x;
            {" ".join(lines)}
        }}
        """
    )
    given = {}
    for scalar, dtype in there.items():
        given[f"a_{scalar}"] = a = files.on(torch.tensor([[1], [0], [1]])).to(dtype)
        # One scalar beyond where vectors of 4 would be aligned.
        given[f"v_{scalar}"] = v = files.on(torch.tensor([9, 1, 0, 1, 0, 0, 1, 1, 0, 0])).to(dtype)[1:].view(3, 3)
        given[f"b_{scalar}"] = torch.zeros_like(a)
        given[f"w_{scalar}"] = torch.zeros(10, dtype=dtype, device=v.device)[1:].view(3, 3)
    m.copy(**given).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
    for scalar in there:
        a, v, b, w = (given[f"{name}_{scalar}"].tolist() for name in "avbw")
        assert b == a and w == [row[::-1] for row in v], scalar


def test_views_with_gaps_and_up_to_five_dimensions(files: Files) -> None:
    m = files.load(
        """
        [AutoPyBindCUDA] [CUDAKernel]
        void copy(TensorView<float> a, TensorView<float> b, TensorView<int> told)
        {
            uint t = cudaThreadIdx().x;
            uint at[5];
            for (int d = 4; d >= 0; --d) { at[d] = t % a.size(d); t /= a.size(d); }
            b[at[0], at[1], at[2], at[3], at[4]] = a.load(at[0], at[1], at[2], at[3], at[4]);
            told[0] = a.dims();
            for (uint d = 0; d < 5; ++d) told[1 + d] = a.stride(d);
        }
        """
    )
    base = files.on(torch.arange(2 * 3 * 4 * 5 * 6, dtype=torch.float32)).view(2, 3, 4, 5, 6)
    a = base[:, 1:, ::2, :, 1:4].transpose(0, 4)
    b = torch.zeros_like(a)
    told = files.on(torch.zeros(6, dtype=torch.int32))
    m.copy(a=a, b=b, told=told).launchRaw(blockSize=(a.numel(), 1, 1), gridSize=ONE)
    assert torch.equal(a, b) and told.tolist() == [5, *(4 * s for s in a.stride())]
    # What lies between the elements of a view stays.
    whole = files.on(torch.full((3, 2, 2, 5, 4), 7.0))
    m.copy(a=a, b=whole[..., 1:3], told=told).launchRaw(blockSize=(a.numel(), 1, 1), gridSize=ONE)
    assert torch.equal(whole[..., 1:3], a) and (whole[..., 0] == 7).all() and (whole[..., 3] == 7).all()


def test_shared_memory_of_arguments(files: Files) -> None:
    m = files.load(
        """
        [AutoPyBindCUDA] [CUDAKernel]
        void shift(TensorView<float> a, TensorView<float> b) { b[0] = a[1]; }
        """
    )
    x = files.on(torch.arange(4.0))
    m.shift(a=x, b=x).launchRaw(blockSize=ONE, gridSize=ONE)
    assert x.tolist() == [1, 1, 2, 3]
    m.shift(a=x[1:], b=x[2:]).launchRaw(blockSize=ONE, gridSize=ONE)
    assert x.tolist() == [1, 1, 2, 3]


ATOMICS = """
[AutoPyBindCUDA] [CUDAKernel]
void change(TensorView<TYPE> x, TensorView<TYPE> before)
{
    uint i = cudaThreadIdx().x;
    TYPE old;
    x.InterlockedAdd(0, TYPE(2), old);
    x.InterlockedAdd(uint1(0), TYPE(1));
    x.InterlockedExchange(1, TYPE(i), before[i]);
    x.InterlockedCompareExchange(2, TYPE(5), TYPE(6));
#if WHOLE
    x.InterlockedMax(uint1(3), TYPE(i), old);
    x.InterlockedMin(4, TYPE(i) - TYPE(3), old);
    x.InterlockedOr(5, TYPE(1) << TYPE(i % 7), old);
    x.InterlockedAnd(6, ~(TYPE(1) << TYPE(i % 7)), old);
    x.InterlockedXor(7, TYPE(1), old);
#endif
}
"""


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("int", torch.int32), ("uint", torch.uint32), ("int64_t", torch.int64), ("uint64_t", torch.uint64),
        ("float", torch.float32), ("double", torch.float64),
    ],
)  # fmt: skip
def test_atomics(files: Files, kind: str, dtype: torch.dtype) -> None:
    whole = not dtype.is_floating_point
    m = files.load(ATOMICS, defines={"TYPE": kind, "WHOLE": whole})
    x = files.on(torch.tensor([100, 99, 5, 20, 50, 0, 127, 0])).to(dtype)
    before = files.on(torch.zeros(64)).to(dtype)
    m.change(x=x, before=before).launchRaw(blockSize=(64, 1, 1), gridSize=ONE)
    got = x.tolist()
    assert got[0] == 100 + 3 * 64 and got[2] == 6
    # Each value but the last one is taken out once.
    assert sorted([*before.tolist(), got[1]]) == [*range(64), 99]
    if whole:
        lowest = {"int": -3, "int64_t": -3}.get(kind, 0)
        assert got[3:] == [63, lowest, 127, 0, 0]


def test_every_access_of_a_differentiable_view(files: Files) -> None:
    m = files.load(
        """
        [AutoPyBindCUDA] [CUDAKernel] [Differentiable]
        void once(DiffTensorView<float, AtomicAdd> a, DiffTensorView output)
        {
            uint i = cudaThreadIdx().x;
            output.storeOnce(i, 3 * a.loadOnce(uint1(i)));
        }
        [AutoPyBindCUDA] [CUDAKernel] [Differentiable]
        void shared(DiffTensorView a, DiffTensorView<float> output, no_diff float by, float times)
        {
            uint i = cudaThreadIdx().x;
            output.store(uint2(i, 0), times * a.load(uint2(0, 0)) + by * a[1, 0]);
        }
        [AutoPyBindCUDA] [CUDAKernel]
        void look(DiffTensorView a, TensorView<float> output)
        {
            output[0] = a.primal[0, 0];
            output[1] = a.diff.diff[0, 0];
            output[2] = a.dims() + 10 * a.size(0) + 100 * a.stride(0) + take(a.primal);
        }
        float take(TensorView<float> t) { return 0.5 * t.dims(); }
        """
    )
    a, gradient = files.on(torch.randn(8)), files.on(torch.full((8,), 5.0))
    output, output_gradient = torch.zeros_like(a), torch.ones_like(a)
    size = {"blockSize": (8, 1, 1), "gridSize": ONE}
    m.once.bwd(a=(a, gradient), output=(output, output_gradient)).launchRaw(**size)
    # Stored and read, not added and taken.
    assert (gradient == 3).all() and (output_gradient == 1).all()
    a, gradient = files.on(torch.tensor([[2.0], [3.0]])), files.on(torch.zeros(2, 1))
    output, output_gradient = files.on(torch.zeros(8, 1)), files.on(torch.ones(8, 1))
    m.shared.bwd(a=(a, gradient), output=(output, output_gradient), by=4.0, times=0.5).launchRaw(**size)
    assert gradient.tolist() == [[4.0], [32.0]] and not output_gradient.any()
    told = files.on(torch.zeros(3))
    m.look(a=(a, gradient), output=told).launchRaw(blockSize=ONE, gridSize=ONE)
    assert told.tolist() == [2, 4, 2 + 20 + 400 + 1]


def test_extensions_and_wrappers_of_the_user(files: Files) -> None:
    m = files.load(
        """
        struct Scaled : IDiffTensorWrapper
        {
            TensorView<float> sums;
            float factor;
            T load_forward<T : __BuiltinFloatingPointType>(uint i) { return T(0); }
            T load_forward<T : __BuiltinFloatingPointType, let N : int>(vector<uint, N> i) { return T(0); }
            void load_backward<T : __BuiltinFloatingPointType>(uint i, T g)
            {
                sums.InterlockedAdd(i, factor * __realCast<float>(g));
            }
            void load_backward<T : __BuiltinFloatingPointType, let N : int>(vector<uint, N> i, T g) {}
            void store_forward<T : __BuiltinFloatingPointType>(uint i, T t) {}
            void store_forward<T : __BuiltinFloatingPointType, let N : int>(vector<uint, N> i, T t) {}
            T store_backward<T : __BuiltinFloatingPointType>(uint i) { return T(0); }
            T store_backward<T : __BuiltinFloatingPointType, let N : int>(vector<uint, N> i) { return T(0); }
            T loadOnce_forward<T : __BuiltinFloatingPointType>(uint i) { return T(0); }
            T loadOnce_forward<T : __BuiltinFloatingPointType, let N : int>(vector<uint, N> i) { return T(0); }
            void loadOnce_backward<T : __BuiltinFloatingPointType>(uint i, T g) {}
            void loadOnce_backward<T : __BuiltinFloatingPointType, let N : int>(vector<uint, N> i, T g) {}
            void storeOnce_forward<T : __BuiltinFloatingPointType>(uint i, T t) {}
            void storeOnce_forward<T : __BuiltinFloatingPointType, let N : int>(vector<uint, N> i, T t) {}
            T storeOnce_backward<T : __BuiltinFloatingPointType>(uint i) { return T(0); }
            T storeOnce_backward<T : __BuiltinFloatingPointType, let N : int>(vector<uint, N> i) { return T(0); }
        }
        extension<T : __BuiltinFloatingPointType, A : IDiffTensorWrapper> DiffTensorView<T, A>
        {
            [Differentiable] T twice(uint i) { return this.load(i) + this.load(i); }
        }
        [AutoPyBindCUDA] [CUDAKernel] [Differentiable]
        void run(DiffTensorView<float, Scaled> a, DiffTensorView output)
        {
            uint i = cudaThreadIdx().x;
            output[i] = a.twice(i);
        }
        """
    )
    a, sums, output = (files.on(torch.arange(3.0) * k) for k in (1, 0, 0))
    size = {"blockSize": (3, 1, 1), "gridSize": ONE}
    m.run(a=(a, (sums, 10.0)), output=output).launchRaw(**size)
    assert torch.equal(output, 2 * a)
    m.run.bwd(a=m.DiffTensorView(a, m.Scaled(sums, 10.0)), output=(output, torch.ones_like(a))).launchRaw(**size)
    assert sums.tolist() == [20, 20, 20]
    with pytest.raises(ValueError, match=r"a\.grad"):
        m.run(a=a, output=output)


def test_imports_includes_and_public_names(files: Files) -> None:
    files.write("part-of-it.slang", "public float at(TensorView<float> t, uint i) { return t[i] + FACTOR; }")
    files.write("deep.slang", "import part_of_it; public float deeper(TensorView<float> t) { return at(t, 1); }")
    files.write("here.h", "float included(TensorView<float> t) { return t[0]; }\n")
    other = files.folder / "other"
    other.mkdir()
    (other / "elsewhere.slang").write_text("public uint where() { return cudaBlockIdx().x; }")
    text = """
    import deep;
    import elsewhere;
    #include "here.h"
    public struct Visible { float x; }
    // The word import in a comment, and a string: "import nothing;"
    [AutoPyBindCUDA] [CUDAKernel]
    void run(TensorView<float> t, TensorView<float> output)
    {
        output[where()] = deeper(t) + 10 * included(t);
    }
    """
    with pytest.raises(spy.CompileError, match="elsewhere"):
        files.load(text, defines={"FACTOR": 2.5})
    m = files.load(text, defines={"FACTOR": 2.5}, includePaths=[other])
    t, output = files.on(torch.tensor([1.0, 2.0])), files.on(torch.zeros(2))
    m.run(t=t, output=output).launchRaw(blockSize=ONE, gridSize=(2, 1, 1))
    assert output.tolist() == [14.5, 14.5]


def test_a_module_is_a_snapshot(files: Files) -> None:
    files.write("part.slang", "public float factor() { return 2; }")
    text = """
    import part;
    [AutoPyBindCUDA] [CUDAKernel] void run(TensorView<float> t) { t[0] = t[0] * factor(); }
    """
    first = files.load(text)
    assert (
        files.load(text) is first
        and slangtorch.loadModule(str(files.folder / "module.slang"), device=files.device) is first
    )
    t = files.on(torch.ones(1))
    files.write("part.slang", "public float factor() { return 3; }")
    second = files.load(text)
    assert second is not first
    second.run(t=t).launchRaw(blockSize=ONE, gridSize=ONE)
    assert t.item() == 3
    if files.device.backend.target.program:
        # It compiles by itself, from the files as they are.
        with pytest.raises(RuntimeError, match="changed since it was loaded"):
            first.run(t=t).launchRaw(blockSize=ONE, gridSize=ONE)
        return
    first.run(t=t).launchRaw(blockSize=ONE, gridSize=ONE)
    assert t.item() == 6
    second.run(t=t).launchRaw(blockSize=ONE, gridSize=ONE)
    assert t.item() == 18
    files.write("part.slang", "public float factor() { return 2; }")
    files.load(text).run(t=t).launchRaw(blockSize=ONE, gridSize=ONE)
    assert t.item() == 36


def test_launches(files: Files) -> None:
    m = files.load(
        """
        [AutoPyBindCUDA] [CUDAKernel]
        void where(TensorView<int> t)
        {
            uint3 at = cudaBlockIdx() * cudaBlockDim() + cudaThreadIdx();
            if (at.x >= t.size(0) || at.y >= t.size(1) || at.z >= t.size(2)) return;
            uint3 block = cudaBlockIdx();
            uint3 thread = cudaThreadIdx();
            uint3 by = uint3(1, 10, 100);
            t[at] = int(1000 * dot(block, by) + dot(thread, by));
        }
        """
    )
    n = (5, 7, 6)
    x, y, z = np.meshgrid(*map(np.arange, n), indexing="ij")
    expected = z // 2 * 100000 + y // 4 * 10000 + x // 3 * 1000 + z % 2 * 100 + y % 4 * 10 + x % 3
    t = files.on(torch.full(n, -1, dtype=torch.int32))
    bound = m.where(t=t)
    bound.launchRaw(blockSize=(3, 4, 2), gridSize=(2, 2, 3))
    assert np.array_equal(t.cpu().numpy(), expected)
    t.fill_(-1)
    bound.launchTotal(blockSize=(3, 4, 2), totalSize=n)
    assert np.array_equal(t.cpu().numpy(), expected)
    t.fill_(-1)
    bound.autoLaunch(totalSize=n)
    assert (t >= 0).all()
    t.fill_(-1)
    bound.launchRaw(blockSize=(3, 4, 2), gridSize=(2, 0, 3))
    assert (t == -1).all()


def test_wrong_launches(files: Files) -> None:
    m = files.load(DIFF_SQUARE + SQUARE.replace("square(", "plain("))
    a = files.on(torch.zeros(4))
    with pytest.raises(ValueError, match="by name: input, output"):
        m.square(a, a)
    with pytest.raises(ValueError, match="missing output; unknown out;"):
        m.square(input=a, out=a)
    for name in ("fwd", "bwd"):
        with pytest.raises(ValueError, match="Differentiable"):
            getattr(m.plain, name)(input=a, output=a)
    bound = m.square(input=a, output=a)
    for size in ([1, 1, 1], (1, 1), (1, 1, 1.0), (1, 1, -1), 32, None, (1, 1, True)):
        with pytest.raises(ValueError, match="blockSize is "):
            bound.launchRaw(blockSize=size, gridSize=ONE)
        with pytest.raises(ValueError, match="gridSize is "):
            bound.launchRaw(blockSize=ONE, gridSize=size)
    with pytest.raises(ValueError, match="blockSize is "):
        bound.launchRaw(blockSize=(0, 1, 1), gridSize=ONE)
    for block in ((1025, 1, 1), (32, 33, 1), (1, 1, 65)):
        with pytest.raises(RuntimeError, match="threads"):
            bound.launchRaw(blockSize=block, gridSize=ONE)
    bound.launchRaw(blockSize=ONE, gridSize=ONE)
    with pytest.raises(AttributeError, match="'cube'; it has square, plain"):
        m.cube  # noqa: B018
    assert {"square", "plain", "DiffTensorView"} <= set(dir(m)) and "square" in repr(m) and "input" in repr(m.square)


def test_tensors_that_cannot_be_used(files: Files) -> None:
    m = files.load(DIFF_SQUARE)
    a, output = files.on(torch.zeros(4)), files.on(torch.zeros(4))
    wrong: list[tuple[Any, str]] = [
        (a.double(), "input is float64; 'TensorView<float>' needs float32"),
        (a[:1].expand(4), "input is a broadcast view.*contiguous"),
        (a.view(1, 1, 1, 1, 1, 4), "input has 6 dimensions"),
        (a.to_sparse(), "input is no plain tensor"),
        ((a, a), "input.grad lies in the memory of input"),
        ((a, files.on(torch.zeros(5))), "input.grad has shape"),
        ((a, a.double()), "input.grad is float64"),
        ((a, a[:1].expand(4)), "input.grad is a broadcast view"),
    ]
    for value, message in wrong:
        with pytest.raises(RuntimeError, match=message):
            m.square.bwd(input=value, output=(output, torch.ones_like(a)))
    for value in (1.0, None, np.zeros(4, np.float32), (a, a, a), ()):
        with pytest.raises((TypeError, ValueError), match=r"^input"):
            m.square(input=value, output=output)
    # The device stays usable, and an empty tensor is none of them.
    empty = a[:0]
    m.square.bwd(input=(empty, empty.clone()), output=(empty, empty.clone())).launchRaw(
        blockSize=(32, 1, 1), gridSize=ONE
    )
    m.square(input=a, output=output).launchRaw(blockSize=(4, 1, 1), gridSize=ONE)


def test_a_kernel_that_is_never_launched_warns(files: Files) -> None:
    m = files.load(SQUARE)
    a = files.on(torch.zeros(4))
    bound = m.square(input=a, output=a)
    with pytest.warns(RuntimeWarning, match="never launched"):
        del bound
        gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m.square(input=a, output=a).launchRaw(blockSize=ONE, gridSize=(0, 1, 1))


def test_names_of_the_user_meet_none_of_ours(files: Files) -> None:
    m = files.load(
        """
        static float threadIdx = 1;
        struct Call { float local; }
        float diffPair(float x) { return x; }
        float block(float group, float at) { return group + at; }
        [AutoPyBindCUDA] [CUDAKernel] [Differentiable]
        void call(DiffTensorView data, float threads, no_diff float begin, Call sizes)
        {
            uint i = cudaThreadIdx().x;
            data[i] = threads * data.load(i) + begin + sizes.local;
        }
        """.replace("static float threadIdx = 1;", "")
    )
    x = files.on(torch.ones(3))
    m.call(data=x, threads=2.0, begin=3, sizes=m.Call(4)).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
    assert x.tolist() == [9, 9, 9]
    x, g = files.on(torch.ones(3)), files.on(torch.ones(3))
    m.call.bwd(data=(x, g), threads=2.0, begin=3, sizes=(4,)).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
    assert g.tolist() == [2, 2, 2]


def test_arrays_of_views(files: Files) -> None:
    m = files.load(
        """
        [AutoPyBindCUDA] [CUDAKernel] [Differentiable]
        void mix(DiffTensorView inputs[3], TensorView<int> picks[2], DiffTensorView output)
        {
            uint i = cudaThreadIdx().x;
            output[i] = inputs[0][i] * inputs[2][picks[1][i]];
        }
        """
    )
    a, b, c = (files.on(torch.arange(3.0) + k) for k in range(3))
    picks = [
        files.on(torch.tensor([0, 1, 2], dtype=torch.int32)),
        files.on(torch.tensor([2, 1, 0], dtype=torch.int32)),
    ]
    gradients = [torch.zeros_like(a) for _ in range(3)]
    output = torch.zeros_like(a)
    size = {"blockSize": (3, 1, 1), "gridSize": ONE}
    m.mix(inputs=[a, b, c], picks=picks, output=output).launchRaw(**size)
    assert torch.equal(output, a * c.flip(0))
    pairs = tuple(zip((a, b, c), gradients, strict=True))
    m.mix.bwd(inputs=pairs, picks=picks, output=(output, torch.ones_like(a))).launchRaw(**size)
    assert torch.equal(gradients[0], c.flip(0)) and not gradients[1].any() and torch.equal(gradients[2], a.flip(0))


def test_what_would_be_wrong_in_silence_is_refused(files: Files) -> None:
    run = "[AutoPyBindCUDA] [CUDAKernel] void run(TensorView<float> t) { t[0] = gain; }"
    with pytest.raises(spy.UnsupportedError, match="global uniforms gain"):
        files.load(f"uniform float gain;\n{run}")
    with pytest.raises(spy.UnsupportedError, match="printf"):
        files.load('[AutoPyBindCUDA] [CUDAKernel] void run() { printf("%d", 1); }')
    with pytest.raises(spy.UnsupportedError, match="several kernels or host functions 'square'"):
        files.load(SQUARE + SQUARE.replace("TensorView<float> input", "TensorView<double> input"))
    with pytest.raises(spy.UnsupportedError, match=r"extraCudaFlags"):
        files.load(SQUARE, extraCudaFlags=["-O3"])
    with pytest.warns(UserWarning, match="skipSlang"):
        files.load(SQUARE, skipSlang=True)
    m = files.load(SQUARE)
    t = files.on(torch.zeros(4))
    bound = m.square(input=t, output=t)
    bound.launchRaw(blockSize=ONE, gridSize=ONE)
    t.resize_(2)
    with pytest.raises(RuntimeError, match="resized"):
        bound.launchRaw(blockSize=ONE, gridSize=ONE)
    with pytest.raises(spy.BindError, match="fileName"):
        slangtorch.loadModule(7)  # type: ignore[arg-type]
    with pytest.raises(spy.CompileError, match="no file"):
        slangtorch.loadModule(files.folder / "none.slang")
    with pytest.raises(spy.BindError, match="device is 3"):
        slangtorch.loadModule(files.folder / "module.slang", device=3)  # type: ignore[arg-type]
