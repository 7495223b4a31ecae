"""Every snippet of Slang's proposal 016 as it stands there, its typing errors aside, with the values it implies.

Not here: torch.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import deep, every_device, one_device

# What these test does not depend on the device.
pytestmark = one_device

# The text's functions return something where there they return nothing, so that there is something to check.
SLANG = """
import slangpy_rt;

// A simple function that adds two numbers together
float add(float a, float b)
{
    return a + b;
}

[numthreads(128, 1, 1)]
void addBuffer(NDBuffer<float, 1> a, NDBuffer<float, 1> b, NDBuffer<float, 1> result, int i : SV_DispatchThreadID)
{
     result[i] = add(a[i], b[i]);
}

float test(int x, float y) { return 10 * x + y; }
float test1(float3 x) { return x.x + 10 * x.y + 100 * x.z; }
float test1(float3 x[2]) { return x[0].x + 10 * x[0].y + 100 * x[0].z + 1000 * x[1].x + 10000 * x[1].y; }
float test2(float3x3 x) { return x[0][1] + 10 * x[1][0] + 100 * x[2][2]; }

struct MyType { int x; float y; }
struct Other { int x; float y; }
float test(MyType v) { return 100 * v.x + v.y; }
float either(MyType v) { return v.x + v.y; }
float either(Other v) { return v.x - v.y; }

struct Pixel { float r; float g; float b; }
Pixel blend(Pixel a, Pixel b)
{
    Pixel c = { a.r + b.r, a.g - b.g, a.b * b.b };
    return c;
}

extern static const int K = 3;
uniform float gain;
float amplify(float x) { return gain * x + K; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device, tmp_path_factory: pytest.TempPathFactory) -> spy.Module:
    """The proposal's example.slang and test.slang."""
    path = tmp_path_factory.mktemp("sp016") / "example.slang"
    path.write_text(SLANG)
    return spy.Module.load_from_file(device, path)


@pytest.fixture
def pa() -> Any:
    """As the proposal makes it: float64, as numpy.random.rand gives it."""
    return np.random.default_rng(1).random(1024)


@pytest.fixture
def pb() -> Any:
    """Another."""
    return np.random.default_rng(2).random(1024)


@every_device
def test_dispatch_of_an_entry_point(device: spy.Device, module: spy.Module, pa: Any, pb: Any) -> None:
    bufferA = spy.NDBuffer(device, shape=(1024,))
    bufferB = spy.NDBuffer(device, shape=(1024,))
    bufferRs = spy.NDBuffer(device, shape=(1024,))
    bufferA.from_numpy(pa)
    bufferB.from_numpy(pb)
    bufferRs.from_numpy(np.zeros(1024))
    assert module.addBuffer.dispatch(1024, bufferA, bufferB, bufferRs) is None
    expected = pa.astype(np.float32) + pb.astype(np.float32)
    np.testing.assert_array_equal(bufferRs.to_numpy(), expected)
    assert str(bufferRs) == str(expected)


def test_print_of_a_buffer(device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, r = (spy.NDBuffer(device, shape=(1024,)) for _ in range(3))
    a.from_numpy(np.full(1024, 1.5))
    b.from_numpy(np.full(1024, 2.0))
    r.clear()
    module.addBuffer.dispatch(1024, a, b, r)
    print(r)
    assert capsys.readouterr().out == "[3.5 3.5 3.5 ... 3.5 3.5 3.5]\n"


def test_a_function_called_directly(module: spy.Module, pa: Any, pb: Any) -> None:
    result = module.add(pa, pb)
    assert type(result) is np.ndarray and result.dtype == np.float32
    np.testing.assert_array_equal(result, pa.astype(np.float32) + pb.astype(np.float32))


def test_devices_and_modules(tmp_path: Path, backend_name: str) -> None:
    path = tmp_path / "example.slang"
    path.write_text("float twice(float x) { return 2 * x; }")
    with spy.Device(backend_name, include_paths=[tmp_path]) as device:
        assert device.load_module_from_file("example.slang").twice(2) == 4
        assert spy.Module.load_from_file(device, "example.slang").twice(3) == 6
    with spy.init_device() as device:
        assert device.name in ("cuda", "d3d12", "vulkan", "cpu")
        assert device.load_module(path).twice(5) == 10


def test_basic_types(module: spy.Module) -> None:
    assert module.test(5, 6.0) == 56.0


def test_vectors_arrays_and_matrices(module: spy.Module) -> None:
    assert module.test1([5, 6, 7]) == 765.0
    assert module.test1([[1, 2, 3], [5, 6, 7]]) == 65321.0
    # Two float3 for an array of two float3: numpy.zeros((2, 3)), in the text with the dimensions exchanged.
    assert module.test1(np.array([[1, 2, 3], [5, 6, 7]])) == 65321.0
    assert module.test2(np.arange(9).reshape(3, 3)) == 1 + 30 + 800
    assert module.test2([[0, 1, 2], [3, 4, 5], [6, 7, 8]]) == 1 + 30 + 800
    assert module.test2(np.zeros((3, 3))) == 0


def test_a_number_of_rows_that_is_not_the_arrays_makes_vectors_of_them(module: spy.Module) -> None:
    rows = np.arange(12).reshape(4, 3)
    np.testing.assert_array_equal(module.test1(rows), rows @ [1, 10, 100])


def test_a_dict_for_a_struct(module: spy.Module) -> None:
    assert module.test({"x": 5, "y": 6.0}) == 506.0
    assert module.test({"_type": "MyType", "x": 5, "y": 6.0}) == 506.0
    assert module.test({"_type": module.MyType, "x": 5, "y": 6.0}) == 506.0


def test_a_dict_that_names_its_type(module: spy.Module) -> None:
    assert module.either({"_type": "MyType", "x": 5, "y": 6.0}) == 11.0
    assert module.either({"_type": "Other", "x": 5, "y": 6.0}) == -1.0
    with pytest.raises(spy.BindError, match="more than one overload"):
        module.either({"x": 5, "y": 6.0})


def test_buffers_of_structs(device: spy.Device, module: spy.Module) -> None:
    image_1 = spy.NDBuffer(device, dtype=module.Pixel, shape=(16, 16))
    image_2 = spy.NDBuffer(device, dtype=module.Pixel, shape=(16, 16))
    flat_1, flat_2 = (0.1 * np.random.default_rng(k).random(16 * 16 * 3).astype(np.float32) for k in (1, 2))
    image_1.from_numpy(flat_1)
    image_2.from_numpy(flat_2)
    result = module.blend(image_1, image_2)
    assert type(result) is spy.NDBuffer and result.shape == (16, 16) and result.dtype.name == "Pixel"
    a, b = flat_1.reshape(16, 16, 3), flat_2.reshape(16, 16, 3)
    pixels = result.to_numpy()
    assert pixels.dtype.names == ("r", "g", "b")
    np.testing.assert_array_equal(pixels["r"], a[..., 0] + b[..., 0])
    np.testing.assert_array_equal(pixels["g"], a[..., 1] - b[..., 1])
    np.testing.assert_array_equal(pixels["b"], a[..., 2] * b[..., 2])


def test_buffers_in_buffers_out(device: spy.Device, module: spy.Module) -> None:
    image_1, image_2 = (spy.NDBuffer(device, shape=(16, 16)) for _ in range(2))
    a = np.random.default_rng(3).random((16, 16)).astype(np.float32)
    image_1.from_numpy(a)
    image_2.from_numpy(a.T)
    result = module.add(image_1, image_2)
    assert type(result) is spy.NDBuffer
    np.testing.assert_array_equal(result.to_numpy(), a + a.T)


def test_function_object_call(module: spy.Module, pa: Any, pb: Any) -> None:
    np.testing.assert_array_equal(module.add.call(pa, pb), module.add(pa, pb))
    assert module.add.call(1, b=2) == 3.0


def test_function_object_constants(module: spy.Module) -> None:
    x = np.arange(4, dtype=np.float32)
    double = module.amplify.set(gain=2)
    np.testing.assert_array_equal(double(x), 2 * x + 3)
    np.testing.assert_array_equal(double.constants({"K": 5})(x), 2 * x + 5)
    # The function that it was made of stays as it was.
    np.testing.assert_array_equal(double(x), 2 * x + 3)


def test_function_object_set(module: spy.Module) -> None:
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(module.amplify.set({"gain": 4})(x), 4 * x + 3)
    np.testing.assert_array_equal(module.amplify.set(gain=0.5)(x), 0.5 * x + 3)


def test_function_object_map(module: spy.Module, pa: Any, pb: Any) -> None:
    a, b = pa[:3].astype(np.float32), pb[:5].astype(np.float32)
    np.testing.assert_array_equal(module.add.map((0,), (1,))(a, b), a[:, None] + b)
    np.testing.assert_array_equal(module.add.map((1,), (0,))(a, b), a + b[:, None])


def test_function_object_return_type(module: spy.Module, pa: Any, pb: Any) -> None:
    result = module.add.return_type(spy.Tensor)(pa, pb)
    assert type(result) is spy.Tensor
    np.testing.assert_array_equal(result.to_numpy(), module.add(pa, pb))


def test_tensor_numpy_and_result(device: spy.Device, module: spy.Module) -> None:
    N = 128
    host = np.random.default_rng(4).random((N, 32)).astype(np.float32)
    inputTensor = spy.Tensor.numpy(device, host)
    assert type(inputTensor) is spy.Tensor and inputTensor.shape == (N, 32)
    np.testing.assert_array_equal(inputTensor.numpy(), host)
    outputTensor = module.add(host, inputTensor, _result=spy.Tensor)
    assert type(outputTensor) is spy.Tensor
    np.testing.assert_array_equal(outputTensor.to_numpy(), host + host)
    zeros = spy.Tensor.zeros(device, dtype=module.float, shape=(N,))
    assert zeros.shape == (N,) and zeros.dtype.name == "float"


# Training an MLP. The text leaves `square` to the reader, and has `loss` take inputs of 8 numbers for an MLP of 32.
# Slang asks for an attribute at loops that it differentiates.
TRAINING = """
import mlp;

[Differentiable]
float[8] compute(MLP<32,8> mlp, float input[32])
{
     return mlp.run(input);
}

[Differentiable]
float square(float x, float y) { return (x - y) * (x - y); }

[Differentiable]
float loss(MLP<32,8> mlp, float input[32], float target[8])
{
    float result = 0.0;
    let output = compute(mlp, input);
    [ForceUnroll]
    for (int i = 0; i < 8; i++) result += square(output[i], target[i]);
    return result;
}

void updateWeights(inout float param, float grad, float step)
{
    param -= grad * step;
}

void squareBackward(inout DifferentialPair<float> x, float dOut)
{
    x = diffPair(x.p, 2 * x.p * dOut);
}
"""


@pytest.fixture(scope="module")
def training(device: spy.Device, tmp_path_factory: pytest.TempPathFactory) -> spy.Module:
    """The proposal's second example.slang."""
    path = tmp_path_factory.mktemp("sp016_training") / "example.slang"
    path.write_text(TRAINING)
    return spy.Module.load_from_file(device, path)


def test_computing_with_an_mlp(device: spy.Device, training: spy.Module) -> None:
    N = 128
    random = np.random.default_rng(5)
    weights, inputs = random.random((32, 8), dtype=np.float32), random.random((N, 32), dtype=np.float32)
    inputTensor = spy.Tensor.numpy(device, inputs)
    for mlp_weights in (spy.Tensor.numpy(device, weights), {"weights": spy.Tensor.numpy(device, weights)}):
        outputTensor = training.compute(mlp_weights, inputTensor, _result=spy.Tensor)
        assert type(outputTensor) is spy.Tensor and outputTensor.shape == (N,)
        np.testing.assert_allclose(outputTensor.to_numpy(), inputs @ weights, rtol=1e-5)


@deep
def test_training_an_mlp(device: spy.Device, training: spy.Module) -> None:
    N, iterations, learning_rate = 128, 50, 1e-4
    random = np.random.default_rng(6)
    w = random.random((32, 8)).astype(np.float32)
    x, t = random.random((N, 32)).astype(np.float32), random.random((N, 8)).astype(np.float32)
    mlp_weights = spy.Tensor.from_numpy(device, w)
    mlp_weights = mlp_weights.with_grads()
    inputTensor, targetOutput = spy.Tensor.from_numpy(device, x), spy.Tensor.from_numpy(device, t)
    lossBuffer = spy.Tensor.zeros(device, dtype=training.float, shape=(N,))
    lossGrad = spy.Tensor.from_numpy(device, np.ones(shape=(N,), dtype=np.float32))
    lossBuffer = lossBuffer.with_grads(grad_in=lossGrad)
    losses = []
    host = w.astype(np.float64)
    for _ in range(iterations):
        mlp_weights.grad_out.clear()
        training.loss.bwds(mlp_weights, inputTensor, targetOutput, _result=lossBuffer)
        # The loss of a sample is the sum of squares of x W - t.
        d = 2 * (x @ host - t)
        np.testing.assert_allclose(mlp_weights.grad_out.to_numpy(), x.T @ d, rtol=1e-4, atol=1e-3)
        training.updateWeights(mlp_weights.flatten_dtype(), mlp_weights.grad_out.flatten_dtype(), learning_rate)
        host -= learning_rate * (x.T @ d)
        np.testing.assert_allclose(mlp_weights.to_numpy(), host, rtol=1e-4, atol=1e-5)
        # A derivative does not compute the loss itself: see docs/gradients.md.
        training.loss(mlp_weights, inputTensor, targetOutput, _result=lossBuffer)
        currentLoss = lossBuffer.to_numpy().mean()
        np.testing.assert_allclose(currentLoss, ((x @ host - t) ** 2).sum(1).mean(), rtol=1e-4)
        losses.append(currentLoss)
    assert all(after < before for before, after in pairwise(losses))
    assert losses[-1] < losses[0] / 10


def test_a_differentiable_buffer_for_a_pair(device: spy.Device, training: spy.Module) -> None:
    values = np.arange(16, dtype=np.float32).reshape(4, 4)
    buffer = spy.NDDifferentiableBuffer(device, shape=(4, 4))
    buffer.from_numpy(values)
    training.squareBackward(buffer, np.full(4, 3))
    np.testing.assert_array_equal(buffer.to_numpy(), values)
    np.testing.assert_array_equal(buffer.grad.to_numpy(), 6 * values)
    # The same pair is what the derivative of a function of floats takes.
    buffer.grad.clear()
    loss = spy.NDDifferentiableBuffer(device, shape=(4, 4))
    loss.grad.from_numpy(np.full((4, 4), 3))
    training.square.bwds(buffer, 1.0, _result=loss)
    np.testing.assert_array_equal(buffer.grad.to_numpy(), 6 * (values - 1))
