"""Host functions of slang-torch: they allocate, fill, launch and return, on every device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _slangtorch import Files, files

import slangpy_rt as spy
from tests.depth import one_device

__all__ = ["files"]  # the fixture

pytestmark = one_device

# As the tutorial has it, in four pieces.
SQUARE = """
[BackwardDifferentiable]
float square(float x)
{
    return x * x;
}

[CudaKernel]
void square_fwd_kernel(TensorView<float> input, TensorView<float> output)
{
    uint3 globalIdx = cudaBlockIdx() * cudaBlockDim() + cudaThreadIdx();

    if (globalIdx.x > input.size(0) || globalIdx.x > input.size(1))
        return;
    float result = square(input.load(globalIdx.x, globalIdx.y));
    output.store(globalIdx.x, globalIdx.y, result);
}

[TorchEntryPoint]
TorchTensor<float> square_fwd(TorchTensor<float> input)
{
    var result = TorchTensor<float>.alloc(input.size(0), input.size(1));
    let blockCount = uint3(1);
    let groupSize = uint3(result.size(0), result.size(1), 1);
    __dispatch_kernel(square_fwd_kernel, blockCount, groupSize)(input, result);
    return result;
}

[CudaKernel]
void square_bwd_kernel(TensorView<float> input, TensorView<float> grad_in, TensorView<float> grad_output)
{
    uint3 globalIdx = cudaBlockIdx() * cudaBlockDim() + cudaThreadIdx();

    if (globalIdx.x > input.size(0) || globalIdx.x > input.size(1))
        return;

    DifferentialPair<float> dpInput = diffPair(input.load(globalIdx.x, globalIdx.y));
    var gradInElem = grad_in.load(globalIdx.x, globalIdx.y);
    __bwd_diff(square)(dpInput, gradInElem);
    grad_output.store(globalIdx.x, globalIdx.y, dpInput.d);
}

[TorchEntryPoint]
TorchTensor<float> square_bwd(TorchTensor<float> input, TorchTensor<float> grad_in)
{
    var grad_out = TorchTensor<float>.alloc(input.size(0), input.size(1));
    let blockCount = uint3(1);
    let groupSize = uint3(input.size(0), input.size(1), 1);
    __dispatch_kernel(square_bwd_kernel, blockCount, groupSize)(input, grad_in, grad_out);
    return grad_out;
}
"""


def test_the_tutorial(files: Files) -> None:
    m = files.load(SQUARE)
    assert spy.loadModule(files.folder / "module.slang", device=files.device) is m
    x = files.on(torch.randn(2, 2))
    for _ in range(2):
        y = m.square_fwd(x)
        torch.testing.assert_close(y, x * x)

    class MySquareFuncInSlang(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(input)
            found: torch.Tensor = m.square_fwd(input)
            return found

        @staticmethod
        def backward(ctx: Any, grad_output: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            (input,) = ctx.saved_tensors
            found: torch.Tensor = m.square_bwd(input, grad_output)
            return found

    x = files.on(torch.tensor([[3.0, 4.0], [0.0, 1.0]])).requires_grad_()
    MySquareFuncInSlang.apply(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[6, 8], [0, 2]]


KINDS = """
struct MyReturnType { TorchTensor<float> tensors[3]; float v; float2 vec; int n; bool yes; }
struct MyInput { TorchTensor<float> t; int times[2]; float3 by; }

[CudaKernel] void add(TensorView<float> t, float by, float3 v, int n)
{
    t[cudaThreadIdx().x] += by + v.z * n;
}

[TorchEntryPoint]
MyReturnType make(MyInput input, float value, uint2 sizes)
{
    MyReturnType made;
    made.tensors[0] = input.t;
    made.tensors[1] = TorchTensor<float>.alloc(sizes.x, sizes.y);
    made.tensors[1].fillValue(value);
    made.tensors[2] = TorchTensor<float>.zerosLike(input.t);
    for (int k = 0; k < input.times[1]; ++k)
        __dispatch_kernel(add, uint3(1, 1, 1), uint3(input.t.size(0), 1, 1))(made.tensors[2], 0.5, input.by, k);
    syncTorchCudaStream();
    made.v = value * 2;
    made.vec = input.by.xy;
    made.n = int(input.t.dims() + 10 * input.t.stride(0));
    made.yes = value > 0;
    return made;
}

[TorchEntryPoint] TorchTensor<float3> vectors() { var t = TorchTensor<float3>.alloc(4, 4); t.fillZero(); return t; }
[TorchEntryPoint] TorchTensor<int> five()
{
    var t = TorchTensor<int>.alloc(1, 2, 3, 4, 5);
    t.fillValue(7);
    return t;
}
[TorchEntryPoint] void fill(TorchTensor<float3> f, TorchTensor<int64_t> i, TorchTensor<uint8_t> b)
{
    f.fillValue(float3(1, 2, 0.5));
    i.fillValue(9007199254740993LL);
    b.fillValue(uint8_t(200));
}
[TorchEntryPoint] TorchTensor<float3> six() { return TorchTensor<float3>.alloc(1, 1, 1, 1, 1); }
[TorchEntryPoint] float only_numbers(float x, int3 v, double d) { return x + v.y + float(d); }
[TorchEntryPoint] void in_place(TorchTensor<float> t) { t.fillZero(); t.getView(); }
[TorchEntryPoint] TorchTensor<float> many(TorchTensor<float> t, int n)
{
    for (int k = 0; k < n; ++k)
        __dispatch_kernel(add, uint3(1), uint3(1, 1, 1))(t.getView(), 1.0, float3(0), 0);
    return t;
}
"""


def test_arguments_and_results_of_every_kind(files: Files) -> None:
    m = files.load(KINDS)
    t = files.on(torch.arange(5.0))
    for given in (
        m.MyInput(t, (1, 3), (1, 2, 3)),
        {"t": t, "times": [1, 3], "by": (1.0, 2.0, 3.0)},
        [t, [1, 3], [1, 2, 3]],
    ):
        tensors, v, vec, n, yes = got = m.make(given, 1.5, (2, 3))
        assert isinstance(got, tuple) and isinstance(tensors, list) and tensors[0] is t
        assert tensors[1].tolist() == [[1.5] * 3] * 2 and tensors[1].device == t.device
        assert tensors[2].tolist() == [0.5 * 3 + 3 * (0 + 1 + 2)] * 5
        assert (v, vec, n, yes) == (3.0, (1.0, 2.0), 1 + 40, True)
        # What was allocated before stays as it was.
        assert m.make(given, -1.0, (2, 3)).tensors[1].data_ptr() != tensors[1].data_ptr()
    assert m.vectors().shape == (4, 4, 3) and not m.vectors().any()
    assert m.five().shape == (1, 2, 3, 4, 5) and m.five().dtype == torch.int32 and (m.five() == 7).all()
    assert m.only_numbers(1.5, (1, 2, 3), 0.25) == 3.75
    assert m.in_place(t) is None and not t.any()
    kinds = (((2, 3), torch.float), (2, torch.int64), (2, torch.uint8))
    f, i, b = (files.on(torch.zeros(shape, dtype=dtype)) for shape, dtype in kinds)
    m.fill(f, i, b)
    assert f.tolist() == [[1, 2, 0.5]] * 2 and i.tolist() == [2**53 + 1] * 2 and b.tolist() == [200] * 2
    with pytest.raises(RuntimeError, match="five"):
        m.six()
    # More than the log has room for at first.
    x = files.on(torch.zeros(1))
    assert m.many(x, 3000) is x and x.item() == 3000
    assert m.many(x, 5) is x and x.item() == 3005


def test_tensors_of_the_host_are_converted(files: Files) -> None:
    m = files.load(SQUARE)
    x = torch.tensor([[1, 2], [3, 4]])
    if files.device.name == "cuda":
        with pytest.raises(RuntimeError, match="input is int64; 'TorchTensor<float>' needs float32"):
            m.square_fwd(files.on(x))
        return
    assert m.square_fwd(x).tolist() == [[1, 4], [9, 16]]
    with pytest.raises(RuntimeError, match="complex"):
        m.square_fwd(x.to(torch.complex64))


def test_wrong_calls(files: Files) -> None:
    m = files.load(KINDS)
    t = files.on(torch.zeros(3))
    for args in ((), (t,), (t, 1, 2)):
        with pytest.raises(TypeError, match=r"many: .* takes 2: t, n"):
            m.many(*args)
    with pytest.raises(TypeError):
        m.many(t=t, n=1)
    with pytest.raises(TypeError, match=r"'TorchTensor<float>' takes a torch\.Tensor"):
        m.many([1.0], 1)
    with pytest.raises(TypeError, match=r"input.*t, times, by"):
        m.make((t, (1, 2)), 1.0, (1, 1))
    with pytest.raises(RuntimeError, match="threads"):
        m.make((files.on(torch.zeros(2000)), (1, 1), (0, 0, 0)), 1.0, (1, 1))
    assert "many" in dir(m) and "TorchTensor<float> t, int n" in repr(m.many)


def test_results_are_remembered_by_sizes_and_numbers(files: Files) -> None:
    m = files.load(KINDS)
    for n in (1, 2, 3, 1, 2):
        for size in (1, 4):
            t = files.on(torch.zeros(size))
            m.many(t, n)
            assert t.tolist() == [n] + [0] * (size - 1)
    # Strides are sizes too.
    t = files.on(torch.zeros(4, 2))
    assert m.make((t[:, 0], (0, 0), (0, 0, 0)), 1.0, (1, 1)).n == 1 + 80


def test_numbers_are_remembered_by_their_bits(files: Files) -> None:
    m = files.load("[TorchEntryPoint] float reciprocal(float x) { return 1 / x; }")
    assert [m.reciprocal(x) for x in (0.0, -0.0, 2.0)] == [float("inf"), -float("inf"), 0.5]


def test_views_of_tensors_are_filled(files: Files) -> None:
    m = files.load(
        """
        [CudaKernel] void add(TensorView<float> a) { a[cudaThreadIdx().x] += 1; }
        [TorchEntryPoint]
        TorchTensor<float> filled(TorchTensor<float> like)
        {
            var made = TorchTensor<float>.emptyLike(like);
            made.getView().fillValue(4);
            __dispatch_kernel(add, uint3(1, 1, 1), uint3(3, 1, 1))(made);
            return made;
        }
        [TorchEntryPoint]
        TorchTensor<float3> vectors()
        {
            var made = TorchTensor<float3>.alloc(2, 2);
            TensorView<float3> view = made;
            view.fillValue(float3(1, 2, 3));
            return made;
        }
        [TorchEntryPoint]
        TorchTensor<int> none() { var made = TorchTensor<int>.alloc(3); made.getView().fillZero(); return made; }
        """
    )
    assert m.filled(files.on(torch.zeros(3))).tolist() == [5.0] * 3
    assert m.vectors().tolist() == [[[1, 2, 3]] * 2] * 2
    assert m.none().tolist() == [0] * 3


def test_a_struct_is_named_by_its_attribute(files: Files) -> None:
    files.write("part.slang", '[PyExport("Ray")]\nstruct Line { float from; float to; }\n')
    m = files.load(
        """
        import part;
        // [PyExport("Wrong")] struct Mesh
        [PyExport("Surface")]
        struct Mesh { TensorView<float> heights; float scale; }
        [AutoPyBindCUDA] [CUDAKernel] void scale(Mesh mesh, Line line)
        {
            uint at = cudaThreadIdx().x;
            mesh.heights[at] = mesh.heights[at] * mesh.scale + line.to;
        }
        [TorchEntryPoint] Line turned(Line line) { return { line.to, line.from }; }
        """
    )
    heights = files.on(torch.ones(3))
    m.scale(mesh=m.Surface(heights, 2), line=m.Ray(0, 1)).launchRaw(blockSize=(3, 1, 1), gridSize=(1, 1, 1))
    assert heights.tolist() == [3.0] * 3
    assert repr(m.turned(m.Ray(1, 2))) == "Ray(_0=2.0, to=1.0)"
    assert not hasattr(m, "Mesh") and not hasattr(m, "Line") and not hasattr(m, "Wrong")
    with pytest.raises(ValueError, match="'Surface' takes its named tuple"):
        m.scale(mesh=3, line=(0, 1))


def test_rows_of_four_gibibytes_are_refused(files: Files) -> None:
    module = files.load(
        """
        [TorchEntryPoint] TorchTensor<float> rows() { return TorchTensor<float>.alloc(2, 1 << 30); }
        [TorchEntryPoint] TorchTensor<float> empty() { return TorchTensor<float>.alloc(2, 0, 1 << 30, 1 << 10); }
        """
    )
    with pytest.raises(RuntimeError, match=r"rows: it allocates a tensor of 2 x 1073741824 torch\.float32"):
        module.rows()
    assert module.empty().shape == (2, 0, 1 << 30, 1 << 10)


ADDRESSES = """
[AutoPyBindCUDA] [CudaKernel]
void scale(float *from, TensorView<float> to, int count)
{
    uint at = (cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim()).x;
    if (at < count)
        to[at] = 2 * from[at];
}

[TorchEntryPoint]
TorchTensor<float> doubled(TorchTensor<float> input)
{
    let result = TorchTensor<float>.emptyLike(input);
    __dispatch_kernel(scale, uint3(1), uint3(64, 1, 1))(input.data_ptr(), result, int(input.size(0)));
    return result;
}

[TorchEntryPoint]
TorchTensor<float> of_new(TorchTensor<float> input)
{
    let ones = TorchTensor<float>.emptyLike(input);
    ones.fillValue(1);
    let result = TorchTensor<float>.zerosLike(input);
    __dispatch_kernel(scale, uint3(1), uint3(64, 1, 1))(ones.data_ptr(), result.getView(), int(input.size(0)));
    return result;
}

[TorchEntryPoint]
TorchTensor<float> beyond(TorchTensor<float> input)
{
    let result = TorchTensor<float>.emptyLike(input);
    __dispatch_kernel(scale, uint3(1), uint3(64, 1, 1))(input.data_ptr() + 3, result, 2);
    return result;
}
"""


def test_addresses_of_tensors(files: Files) -> None:
    m = files.load(ADDRESSES)
    x = files.on(torch.arange(40.0))
    assert m.doubled(x).tolist() == (2 * x).tolist()
    assert m.of_new(x).tolist() == [2.0] * 40
    assert m.doubled(x[5:]).tolist() == (2 * x[5:]).tolist()
    with pytest.raises(spy.UnsupportedError, match="not the beginning of a tensor"):
        m.beyond(x)
    to = files.on(torch.zeros(40))
    m.scale(**{"from": x, "to": to, "count": 10}).launchRaw(blockSize=(64, 1, 1), gridSize=(1, 1, 1))
    assert to.tolist() == (2 * x[:10]).tolist() + [0.0] * 30
    for wrong in (x.int(), x.double(), 5):
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            m.scale(**{"from": wrong, "to": to, "count": 10}).launchRaw(blockSize=(64, 1, 1), gridSize=(1, 1, 1))
