"""Derivatives of slang-torch's kernels: .fwd and .bwd, wrappers of gradients, PyTorch's autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _slangtorch import DIFF_SQUARE, ONE, Files, files

import slangpy_rt as spy
from tests.depth import one_device

__all__ = ["files"]  # the fixture

pytestmark = one_device


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


SCALED = """
[Differentiable] float3 scaled(float3 v, float k) { return (k) * v; }
[Differentiable] float3 weighted(float3 v, float k)
{
    float w = 1; float m = fmod(k, 2); TURN(w);
    [MaxIters(4)] for (int i = 0; i < 3; ++i) w = w * k + 0.1;
    return w * v;
}
[AutoPyBindCUDA] [CUDAKernel] [Differentiable]
void run(DiffTensorView x, DiffTensorView k, DiffTensorView y)
{
    uint i = cudaThreadIdx().x;
    if (i >= x.size(0))
        return;
    float3 v = float3(x[i, 0], x[i, 1], x[i, 2]);
    float3 r = scaled(v, k[i]) + weighted(v, k[i]);
    y[i, 0] = r.x; y[i, 1] = r.y; y[i, 2] = r.z;
}
"""


def test_scalars_with_vectors(files: Files) -> None:
    """The forms of which Slang's own derivative is wrong, in the module's own text."""
    m = files.load(SCALED.replace("TURN(w);", ""))
    x, k = files.on(torch.rand(4, 3)), files.on(torch.rand(4))
    y, up = files.on(torch.zeros(4, 3)), files.on(torch.rand(4, 3))
    gradients = torch.zeros_like(x), torch.zeros_like(k)
    m.run.bwd(x=(x, gradients[0]), k=(k, gradients[1]), y=(y, up.clone())).launchRaw(
        blockSize=(4, 1, 1), gridSize=ONE
    )
    x, k = x.requires_grad_(), k.requires_grad_()
    w = k**3 + 0.1 * (k**2 + k + 1)
    wanted = torch.autograd.grad(((k + w)[:, None] * x * up).sum(), (x, k))
    for found, same in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(found, same, rtol=1e-4, atol=1e-5)


def test_messages_have_the_users_lines(files: Files) -> None:
    with pytest.raises(spy.CompileError) as caught:
        files.load(SCALED)
    line = SCALED.splitlines()[4]
    assert "_spy_" not in str(caught.value)
    assert f":5:{line.index('TURN') + 1}\n  |\n5 | {line}\n  | {' ' * line.index('TURN')}^^^^ undefined" in str(
        caught.value
    )
