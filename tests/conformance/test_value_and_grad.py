"""``value_and_grad`` beside central differences in double, and PyTorch."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.calls.callee import Callee
from tests.depth import deep, needs, one_device, sampled

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


def test_types_in_turn(device: spy.Device, module: Any) -> None:
    """Results of several types, shapes and ranks on one device: what is kept for one is not used for another."""
    for shape in ((), (3,)):
        for name, dtype in (("scaled", np.float32), ("short", np.float16), ("exact", np.float64)):
            if {"exact": "double", "short": "half"}.get(name, "float") not in device.caps.scalars:
                continue
            x = np.full(shape, 3, dtype) if shape else 3.0
            if name == "exact":
                total, found = module.exact.value_and_grad(x, x)
                wanted, slopes = 27, {"x": 18, "y": 9}
            else:
                function = module.scaled.set(scale=2.0) if name == "scaled" else module.short
                total, found = function.value_and_grad(x)
                wanted, slopes = (18, {"x": 12}) if name == "scaled" else (9, {"x": 6})
            assert total == wanted * np.size(x), (name, shape)
            for key, slope in slopes.items():
                np.testing.assert_array_equal(found[key], np.full(shape, slope), err_msg=f"{name} {shape}")


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


HOLDERS = """
import slangpy_rt;
import mlp;
import sampling;
import rays;
struct Plain { DiffTensor<float, 1> table; int first; }
struct Held : IDifferentiable { DiffTensor<float, 1> table; float k; }
struct Pair : IDifferentiable { float x; float y; }
interface IShape : IDifferentiable { [Differentiable] float area(float t); }
struct Disc : IShape { float r; [Differentiable] float area(float t) { return r * r * t; } }
struct Curve : IShape { DiffTensor<float, 1> table; [Differentiable] float area(float t) { return t * table[1]; } }
[Differentiable] float plain(Plain h, no_diff int i) { return h.table[i + h.first] * h.table[i + h.first]; }
[Differentiable] float held(Held h, no_diff int i) { return h.table[i] * h.table[i] * h.k; }
[Differentiable] float area(IShape shape, float t) { return shape.area(t); }
[Differentiable] float listed(float a[3]) { return a[0] * a[1] + a[2] * a[2]; }
[Differentiable] float structs(Pair a[2]) { return a[0].x * a[1].y; }
[Differentiable] float paired(Pair p, float t) { return p.x * p.x * p.y * t; }
[Differentiable] float length2(float3 v) { return dot(v, v); }
[Differentiable] float scaled(float x, float y) { return x * x * y; }
[Differentiable] float layer(MLP<2, 1> weights, float x[2]) { return weights.run(x)[0]; }
[Differentiable] float seen(Image1 image, float2 uv, float level) { return image.sample(uv, level).x; }
[Differentiable] float depth(Scene scene, float2 at)
{
    let ray = Ray(float3(at, -1), float3(0, 0, 1));
    let hit = scene.trace(ray);
    if (!hit.isHit)
        return 0;
    return scene.at(hit, ray).t;
}
[Differentiable] float writes(RWDiffTensor<float, 1> into, float x) { into[0] = x; return x; }
"""


@pytest.fixture
def holders(device: spy.Device) -> Any:
    return spy.Module.load_from_source(device, "holders_of_gradients", HOLDERS)


@dataclasses.dataclass
class Both:
    """A value of the struct ``Pair``."""

    x: Any
    y: Any


_T = np.array([1, 2, 3], np.float32)
# A function, what it is called with, and the gradients; "t" stands for a Tensor of 1, 2, 3.
GIVEN: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "a struct of arrays": ("plain", ({"table": "t", "first": 1}, [0, 1, 1]), {"h": {"table": [0, 4, 12]}}),
    "a differentiable struct of arrays": (
        "held",
        ({"table": "t", "k": 2.0}, [0, 1, 2]),
        {"h": {"table": [4, 8, 12], "k": 14}},
    ),
    "an array of the host in a struct": (
        "held",
        ({"table": _T, "k": 2.0}, [0, 1, 2]),
        {"h": {"table": [4, 8, 12], "k": 14}},
    ),
    "an interface": ("area", ({"_type": "Disc", "r": 2.0}, "t"), {"shape": {"r": 24}, "t": [4, 4, 4]}),
    "an interface of an array": (
        "area",
        ({"_type": "Curve", "table": "t"}, 3.0),
        {"shape": {"table": [0, 3, 0]}, "t": 2},
    ),
    "a list for an array": ("listed", ([1.0, 2.0, 3.0],), {"a": [2, 1, 6]}),
    "a list of arrays": ("listed", (["t", 2.0, "t"],), {"a": [[2, 2, 2], 6, [2, 4, 6]]}),
    "a tuple for an array": ("listed", ((1, 2, 3),), {"a": [2, 1, 6]}),
    "an array of arrays": ("listed", (np.arange(6.0).reshape(2, 3),), {"a": [[1, 0, 4], [4, 3, 10]]}),
    "a list of structs for an array": (
        "structs",
        ([{"x": 1.0, "y": 2.0}, {"x": 3.0, "y": 4.0}],),
        {"a": [{"x": 4, "y": 0}, {"x": 0, "y": 1}]},
    ),
    "a list for the call": ("scaled", ([1.0, 2.0, 3.0], 2.0), {"x": [4, 8, 12], "y": 14}),
    "lists that broadcast": ("scaled", ((1.0, 2.0), [[2.0], [3.0]]), {"x": [10, 20], "y": [[5], [5]]}),
    "a list of vectors": ("length2", ([[1.0, 2, 3], [4, 5, 6]],), {"v": [[2, 4, 6], [8, 10, 12]]}),
    "a number for a vector": ("length2", (2.0,), {"v": 12}),
    "a vector of arrays": ("length2", (["t", "t", 2.0],), {"v": [[2, 4, 6], [2, 4, 6], 12]}),
    "a vector by its components": (
        "length2",
        ({"x": 1.0, "y": "t", "z": 2.0},),
        {"v": {"x": 6, "y": [2, 4, 6], "z": 12}},
    ),
    "a tuple for a struct": ("paired", ((2.0, 3.0), 1.0), {"p": {"x": 12, "y": 4}, "t": 12}),
    "a dataclass": ("paired", (Both("t", 3.0), 1.0), {"p": {"x": [6, 12, 18], "y": 14}, "t": 42}),
    "a list of structs for the call": (
        "paired",
        ([{"x": 1.0, "y": 2.0}, {"x": 3.0, "y": 4.0}], 1.0),
        {"p": [(4, 1), (24, 9)], "t": 38},
    ),
    "a reference": ("scaled", (spy.floatRef(3), 2.0), {"x": 12, "y": 9}),
    "a pair": ("scaled", (spy.diff_pair(3.0, 100.0), 2.0), {"x": 12, "y": 9}),
    "a view of memory": ("scaled", (memoryview(_T), 2.0), {"x": [4, 8, 12], "y": 14}),
    "an array without dimensions": ("scaled", (np.array(3.0), np.float32(2)), {"x": 12, "y": 9}),
    "weights": (
        "layer",
        (np.float32([[1], [2]]), np.float32([[1, 2], [3, 4]])),
        {"weights": [[4], [6]], "x": [[1, 2]] * 2},
    ),
}


def plain(value: Any, device: Any = None) -> Any:
    """Gradients as lists and numbers; with a device, arguments with Tensors for "t"."""
    if isinstance(value, str) and device is not None:
        return spy.Tensor.from_numpy(device, _T) if value == "t" else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value)(*[plain(getattr(value, f.name), device) for f in dataclasses.fields(value)])
    if isinstance(value, dict):
        return {name: plain(item, device) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([plain(item, device) for item in value])
    return value.tolist() if device is None and hasattr(value, "tolist") else value


@sampled(8)
@pytest.mark.parametrize("name", GIVEN)
def test_what_holds_gradients(device: spy.Device, holders: Any, name: str) -> None:
    function, args, wanted = GIVEN[name]
    _, gradients = getattr(holders, function).value_and_grad(*[plain(a, device) for a in args])
    assert plain(gradients) == wanted


def test_tensors_of_pytorch(holders: Any) -> None:
    """In host memory they get gradients of PyTorch, where PyTorch asks for none itself."""
    torch = pytest.importorskip("torch")
    value, gradients = holders.scaled.value_and_grad(torch.arange(3.0), 2.0)
    assert value == 10 and torch.equal(gradients["x"], torch.tensor([0.0, 4, 8]))
    with pytest.raises(spy.BindError, match="that requires a gradient"):
        holders.scaled.value_and_grad(torch.arange(3.0, requires_grad=True), 2.0)


def test_what_functions_write_whole(device: spy.Device, holders: Any) -> None:
    with pytest.raises(spy.BindError) as caught:
        holders.writes.value_and_grad(spy.Tensor.zeros(device, 2), 1.0)
    assert str(caught.value) == (
        "writes.value_and_grad: float writes(RWDiffTensor<float, 1> into, float x) writes to into; use bwds for such "
        "functions."
    )


def test_images_and_scenes(device: spy.Device, holders: Any) -> None:
    """Their gradients are those of the texels, and of the positions of each mesh."""
    rng = np.random.default_rng(2)
    texels = spy.Tensor.from_numpy(device, rng.random((4, 4), np.float32)).with_grads()
    uv = spy.Tensor.from_numpy(device, rng.random((5, 2), np.float32), "float2")
    image = spy.Image(texels, mips=True)
    _, gradients = holders.seen.value_and_grad(image, uv, 0.5)
    holders.seen.bwds(image, uv, 0.5, _result=spy.diff_pair(None, 1.0))
    image.backward()
    assert gradients["image"]["texels"].shape == (4, 4)
    np.testing.assert_allclose(gradients["image"]["texels"].to_numpy(), image.texels.grad.to_numpy(), atol=1e-6)
    assert image.texels.grad.to_numpy().sum() == pytest.approx(5, 1e-5)
    corners = np.array([[-1, -1, 1], [3, -1, 1], [-1, 3, 2]], np.float32)
    near, far = (spy.Tensor.from_numpy(device, corners + np.float32([0, 0, z]), "float3") for z in (0, 3))
    scene = spy.Scene(device, [spy.Mesh(far, [[0, 1, 2]]), spy.Mesh(near, [[0, 1, 2]])])
    at = np.array([[0, 0], [0.1, 0.2]], np.float32)
    _, gradients = holders.depth.value_and_grad(scene, at)
    behind, seen = (g.to_numpy() for g in gradients["scene"]["positions"])
    np.testing.assert_array_equal(behind, np.zeros((3, 3)))
    # The depth at a place is a mean of those of the corners, by the place's barycentric coordinates.
    weights = np.stack([1 - (at[:, 0] + at[:, 1] + 2) / 4, (at[:, 0] + 1) / 4, (at[:, 1] + 1) / 4])
    np.testing.assert_allclose(seen[:, 2], weights.sum(1), rtol=1e-4)


@needs("half", "double")
@deep
def test_other_types(device: spy.Device, module: Any) -> None:
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
    value, gradients = module.short.value_and_grad(spy.Tensor.full(device, 3, 2, "half"))
    assert (value.dtype.name, value.item(), gradients["x"].tolist()) == ("half", 12, [4] * 3)
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
