"""``value_and_grad`` beside central differences in double, and PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.calls.callee import Callee
from tests.depth import deep, one_device

# What these test depends little on the device.
pytestmark = one_device

TEXT = """
import slangpy_rt;
struct Wave : IDifferentiable { float2 speed; no_diff float fixed; int id; }
[Differentiable] float loss(float x, float y, no_diff float k) { return sin(k * x) * y * y; }
[Differentiable] float length2(float3 v, float3 w) { return dot(v, v) + dot(v, w); }
[Differentiable] float swell(Wave w, float t) { return exp(w.speed.x * t) + w.speed.y * w.fixed * t * w.id; }
[Differentiable] half short(half x) { return x * x; }
[Differentiable] double exact(double x, double y) { return x * x * y; }
[Differentiable] float defaulted(float x, float y = 3, float z = 2) { return x * y + z * z; }
[Differentiable] float whole(DiffTensor<float, 1> table, no_diff int k) { return table[k] * table[k]; }
[Differentiable] float3 many(float3 x) { return x; }
[Differentiable] void writes(float x, out float y) { y = x; }
[Differentiable] float hands(float x, inout float y) { y = x; return x; }
float plain(float x) { return x; }
uniform float scale;
[Differentiable] float scaled(float x) { return scale * x * x; }
"""
Array = npt.NDArray[Any]


@pytest.fixture
def module(device: spy.Device) -> Any:
    return spy.Module.load_from_source(device, "value_and_grad", TEXT)


def differences(f: Callable[..., float], values: list[Array], step: float = 1e-5) -> list[Array]:
    """Central differences of a function of arrays of doubles, by each number of them."""
    found = []
    for k, array in enumerate(values):
        slope = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            ends = []
            for by in (step, -step):
                moved = [v.copy() for v in values]
                moved[k][place] += by
                ends.append(f(*moved))
            slope[place] = (ends[0] - ends[1]) / (2 * step)
        found.append(slope)
    return found


def test_numpy_arrays(module: Any) -> None:
    """They get gradients that are NumPy arrays, where Tensors get Tensors."""
    rng = np.random.default_rng(5)
    x, y = rng.uniform(-1, 1, (4, 3)), rng.uniform(1, 2, 3)

    def loss(x: Array, y: Array) -> float:
        return float((np.sin(1.5 * x) * y * y).sum())

    value, gradients = module.loss.value_and_grad(x[::-1].T, y[:, None], 1.5)
    assert isinstance(value, float) and value == pytest.approx(loss(x, y), rel=1e-5)
    by_x, by_y = differences(loss, [x, y])
    assert type(gradients["x"]) is type(gradients["y"]) is np.ndarray and gradients["x"].dtype == np.float32
    np.testing.assert_allclose(gradients["x"], by_x[::-1].T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients["y"], by_y[:, None], rtol=1e-4)
    v, w = rng.uniform(-1, 1, (5, 3)), rng.uniform(-1, 1, 3)
    _, gradients = module.length2.value_and_grad(v, w)
    np.testing.assert_allclose(gradients["v"], 2 * v + w, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(gradients["w"]), v.sum(0), rtol=1e-5)


def test_arrays(device: spy.Device, module: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (4, 3)), rng.uniform(1, 2, 3)

    def loss(x: Array, y: Array) -> float:
        return float((np.sin(1.5 * x) * y * y).sum())

    tensors = [spy.Tensor.from_numpy(device, v.astype(np.float32)) for v in (x, y)]
    value, gradients = module.loss.value_and_grad(*tensors, 1.5)
    assert (type(value), value.shape, list(gradients)) == (spy.Tensor, (), ["x", "y"])
    assert value.item() == pytest.approx(loss(x, y), 1e-5)
    for name, wanted in zip("xy", differences(loss, [x, y]), strict=True):
        np.testing.assert_allclose(gradients[name].to_numpy(), wanted, 1e-4, 1e-5)
    named, again = module.loss.value_and_grad(tensors[0], k=1.5, y=tensors[1])
    assert named.item() == value.item()
    np.testing.assert_allclose(again["y"].to_numpy(), gradients["y"].to_numpy(), 1e-6)


def test_torch_agrees(device: spy.Device, module: Any) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    theirs = torch.tensor(x, requires_grad=True)
    total = ((theirs * theirs).sum(1) + theirs @ torch.tensor([1.0, 2, 3])).sum()
    total.backward()
    value, gradients = module.length2.value_and_grad(spy.Tensor.from_numpy(device, x, "float3"), spy.float3(1, 2, 3))
    assert value.item() == pytest.approx(total.item(), 1e-5)
    np.testing.assert_allclose(gradients["v"].to_numpy(), theirs.grad.numpy(), 1e-5)
    np.testing.assert_allclose(gradients["w"], x.sum(0), 1e-5)


def test_numbers(module: Any) -> None:
    value, gradients = module.loss.value_and_grad(0.5, 2.0, 1.5)
    assert type(value) is float
    assert value == pytest.approx(np.sin(0.75) * 4, 1e-6)
    assert gradients == {"x": pytest.approx(1.5 * np.cos(0.75) * 4, 1e-6), "y": pytest.approx(4 * np.sin(0.75), 1e-6)}
    assert module.defaulted.value_and_grad(2.0, 3, z=5.0) == (31, {"x": 3, "y": 2, "z": 10})
    assert module.defaulted.value_and_grad(2.0) == (10, {"x": 3})
    value, gradients = module.length2.value_and_grad([1, 2, 3], spy.float3(1))
    assert value == 20
    np.testing.assert_array_equal(gradients["v"], [3, 5, 7])


def test_a_number_beside_arrays(device: spy.Device, module: Any) -> None:
    x = spy.Tensor.from_numpy(device, np.array([1, 2, 3], np.float32))
    value, gradients = module.loss.value_and_grad(x, 2.0, 0.5)
    assert value.item() == pytest.approx(4 * np.sin([0.5, 1, 1.5]).sum(), 1e-6)
    assert gradients["y"] == pytest.approx(4 * np.sin([0.5, 1, 1.5]).sum(), 1e-6)


def test_own_gradients_are_left_alone(device: spy.Device, module: Any) -> None:
    x = spy.Tensor.ones(device, 3).with_grads()
    k = spy.Tensor.ones(device, 3).with_grads()
    _, gradients = module.loss.value_and_grad(x, 1.0, k)
    np.testing.assert_allclose(gradients["x"].to_numpy(), np.full(3, np.cos(1)), 1e-6)
    assert (x.grad.tolist(), k.grad.tolist()) == ([0] * 3, [0] * 3)
    # One array for two parameters has a gradient for each.
    _, gradients = module.loss.value_and_grad(x, x, 1.0)
    np.testing.assert_allclose(gradients["x"].to_numpy(), np.full(3, np.cos(1)), 1e-6)
    np.testing.assert_allclose(gradients["y"].to_numpy(), np.full(3, 2 * np.sin(1)), 1e-6)


def test_structs(device: spy.Device, module: Any) -> None:
    t = spy.Tensor.from_numpy(device, np.array([0.5, 1], np.float32))
    speed = spy.Tensor.from_numpy(device, np.array([[1, 2], [3, 4]], np.float32), "float2")
    wave = {"speed": speed, "fixed": 2.0, "id": 3}
    value, gradients = module.swell.value_and_grad(wave, t)

    def swell(speed: Array, t: Array) -> float:
        return float((np.exp(speed[:, 0] * t) + speed[:, 1] * 2 * t * 3).sum())

    arrays = [np.array([[1.0, 2], [3, 4]]), np.array([0.5, 1])]
    assert value.item() == pytest.approx(swell(*arrays), 1e-5)
    assert (list(gradients), list(gradients["w"])) == (["w", "t"], ["speed"])
    wanted = differences(swell, arrays)
    np.testing.assert_allclose(gradients["w"]["speed"].to_numpy(), wanted[0], 1e-4)
    np.testing.assert_allclose(gradients["t"].to_numpy(), wanted[1], 1e-4)
    waves = spy.Tensor.zeros(device, 2, module.Wave)
    waves["speed"][...] = speed
    waves["fixed"][...] = 2.0
    waves["id"][...] = 3
    value, gradients = module.swell.value_and_grad(waves, t)
    assert value.item() == pytest.approx(swell(*arrays), 1e-5)
    np.testing.assert_allclose(gradients["w"]["speed"].to_numpy(), wanted[0], 1e-4)


@deep
def test_other_types(device: spy.Device, module: Any, requires: Callable[..., None]) -> None:
    table = spy.Tensor.from_numpy(device, np.array([1, 2, 3], np.float32))
    places = spy.Tensor.from_numpy(device, np.array([0, 2, 2], np.int32))
    value, gradients = module.whole.value_and_grad(table, places)
    assert (value.item(), gradients["table"].tolist()) == (19, [2, 0, 12])
    assert "k" not in gradients
    brief = spy.Tensor.full(device, 4, 1.5, "bfloat16")
    value, gradients = module.scaled.set(scale=2.0).value_and_grad(brief)
    assert (value.item(), gradients["x"].dtype.name, gradients["x"].tolist()) == (18, "float", [6] * 4)
    wide = spy.Tensor.full(device, 1, 2).broadcast_to(3)
    assert module.scaled.set(scale=1.0).value_and_grad(wide)[1]["x"].tolist() == [4] * 3
    assert module.scaled.set(scale=1.0).value_and_grad(wide[:0])[0].item() == 0
    requires("half")
    value, gradients = module.short.value_and_grad(spy.Tensor.full(device, 3, 2, "half"))
    assert (value.dtype.name, value.item(), gradients["x"].tolist()) == ("half", 12, [4] * 3)
    requires("double")
    value, gradients = module.exact.value_and_grad(spy.Tensor.full(device, 3, 2, "double"), 1 / 3)
    assert (value.item(), gradients["y"]) == (pytest.approx(4, 1e-15), 12)


def test_it_descends(device: spy.Device, module: Any) -> None:
    x = spy.Tensor.full(device, 4, 3).with_grads()
    optimizer = spy.optim.SGD([x], lr=0.1)
    last = np.inf
    for _ in range(5):
        value, gradients = module.scaled.set(scale=1.0).value_and_grad(x)
        x.grad[...] = gradients["x"]
        optimizer.step()
        assert value.item() < last
        last = value.item()


def test_overloads_are_chosen_once(module: Any, device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    choose = Callee.chosen
    monkeypatch.setattr(Callee, "chosen", lambda *args: chosen.append(args[1:]) or choose(*args))
    x, y = spy.Tensor.ones(device, 4), spy.Tensor.ones(device, 4)
    for k in range(3):
        value, grads = module.loss.value_and_grad(x, y, k=float(k))
        assert value.item() == pytest.approx(4 * np.sin(k), abs=1e-6) and list(grads) == ["x", "y"]
    assert len(chosen) == 1
    x = spy.Tensor.ones(device, 5)
    with pytest.raises(spy.ShapeError):
        module.loss.value_and_grad(x, y, k=1.0)
    assert len(chosen) == 2


def test_an_edited_file(backend_name: str, tmp_path: Path) -> None:
    file = tmp_path / "edited.slang"
    file.write_text("[Differentiable] float f(float x) { return x * x; }")
    with spy.Device(backend_name) as device:
        f = spy.Module.load_from_file(device, file).f.group_size(32)
        assert f.value_and_grad(3.0) == (9.0, {"x": 6.0})
        file.write_text("[Differentiable] float f(float z) { return 2 * z; } /* longer than it was before */")
        time.sleep(0.02)  # files are looked at every 10 ms at most
        assert f.value_and_grad(3.0) == (6.0, {"z": 2.0})
        file.write_text("[Differentiable] float f(no_diff float z) { return 3 * z; } float g(float z) { return z; }")
        time.sleep(0.02)
        with pytest.raises(spy.BindError, match="no argument has a gradient to add to"):
            f.value_and_grad(3.0)


def test_stand_ins_are_asked_once(module: Any) -> None:
    class Three:
        asked = 0

        def __slang_arg__(self) -> float:
            self.asked += 1
            return 3.0

    stand_in = Three()
    assert module.defaulted.value_and_grad(stand_in)[0] == 13 and stand_in.asked == 1


def test_refusals(device: spy.Device, module: Any) -> None:
    buffer = spy.NDBuffer(device, "float", 3)
    told: dict[str, Callable[[], Any]] = {
        "many.value_and_grad: float3 many(float3 x) returns 'float3'; a half, float or double was expected, whose "
        "sum is differentiated. Use bwds for other results.": lambda: module.many.value_and_grad([1, 2, 3]),
        "hands.value_and_grad: float hands(float x, inout float y) writes to y; use bwds for such functions.": (
            lambda: module.hands.value_and_grad(1.0, spy.floatRef(1))
        ),
        "float plain(float x): value_and_grad needs a derivative; mark the function [Differentiable].": (
            lambda: module.plain.value_and_grad(1.0)
        ),
        "loss.value_and_grad: derivatives of derivatives are not supported.": (
            lambda: module.loss.bwds.value_and_grad(1.0, 1.0, 1.0)
        ),
        "loss.value_and_grad: argument 'x' is an NDBuffer<float> of shape (3,); a Tensor was expected, which can "
        "have a gradient.": lambda: module.loss.value_and_grad(buffer, 1.0, 1.0),
    }
    for message, call in told.items():
        with pytest.raises(spy.BindError) as caught:
            call()
        assert str(caught.value) == message
    with pytest.raises(spy.BindError, match="returns 'void'"):
        module.writes.value_and_grad(1.0, spy.floatRef())
    with pytest.raises(spy.ShapeError):
        module.loss.value_and_grad(spy.Tensor.ones(device, 3), spy.Tensor.ones(device, 4), 1.0)
