"""Gradients through operators, reductions and calls in a block of ``grad_tape``, against PyTorch's."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import torch

import slangpy_rt as spy
from tests.depth import deep, every_case, one_device, one_in, sampled

pytestmark = one_device

TOLERANCE: dict[Any, float] = {np.float16: 4e-3, np.float32: 2e-6, np.float64: 1e-12}
ROWS = np.array([True, False, True])


class Case(NamedTuple):
    """One formula, for Tensors and for PyTorch's tensors, and its operands: shapes of random numbers, or numbers."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    operands: tuple[Any, ...]


def same(name: str, formula: Callable[..., Any], *operands: Any) -> Case:
    """Make a case of a formula that both libraries read."""
    return Case(name, formula, formula, operands)


CASES = [
    same("add", lambda a, b: a + b + 1, (3, 4), (4,)),
    same("sub", lambda a, b: 2 - a - b, (3, 4), (3, 1)),
    same("mul", lambda a, b: a * b * 3, (3, 4), (2, 3, 4)),
    same("truediv", lambda a, b: a / b + 2 / b, (3, 4), ()),
    same("pow", lambda a, b: abs(a) ** b, (3, 4), (3, 4)),
    same("powers", lambda a: a**2 + a**3 + 2**a, (3, 4)),
    same("powers at the border", lambda a, b: a**b, [0.0, 0, -2, -2, 3, 0], [0.0, 2, 2, 0.5, -1, -1]),
    same("power 0", lambda a: a**0 + 0 ** abs(a), [0.0, 2, -1]),
    same("mod", lambda a, b: a % b, (3, 4), (3, 4)),
    same("neg and abs", lambda a: -a * abs(a), [1.0, -2, 0, -0.0, np.nan]),
    same("matmul", lambda a, b: a @ b, (3, 4), (4, 5)),
    same("an operand twice", lambda a: (a * a + a) * (a * a), (3, 4)),
    same("broadcast back", lambda a: a - a.sum(0, True) * a.mean(1, True), (3, 4)),
    same("sum", lambda a: a.sum(), (3, 4)),
    same("sum of axes", lambda a: a.sum((0, 2)), (3, 4, 2)),
    same("mean", lambda a: a.mean(-1), (3, 4, 2)),
    Case("min with ties", lambda a: a.min(1), lambda a: a.amin(1), ([[1.0, 1, 2], [3, 0, 0]],)),
    Case("max with ties", lambda a: a.max(), lambda a: a.amax(), ([[1.0, 1, 3], [3, 0, 0]],)),
    Case("max of axes", lambda a: a - a.max((0, 1), True), lambda a: a - a.amax((0, 1), True), ((3, 4, 2),)),
    Case("max and NaN", lambda a: a.max(0), lambda a: a.amax(0), ([[np.nan, 1], [2, 1]],)),
    Case("where", lambda a, b: a.where(a > 0, b), lambda a, b: torch.where(a > 0, a, b), ((3, 4), (4,))),
    Case(
        "where and infinity",
        lambda a: (1 / a).where(a > 0, a),
        lambda a: torch.where(a > 0, 1 / a, a),
        ([1.0, 0, -1],),
    ),
    Case("clip", lambda a, b: a.clip(-0.5, b), lambda a, b: a.clamp(torch.full_like(b, -0.5), b), ((3, 4), (4,))),
    Case("clip at a bound", lambda a: a.clip(0, 1), lambda a: a.clamp(0, 1), ([-1.0, 0, 0.5, 1, 2],)),
    Case("clip above", lambda a: a.clip(None, 0.1), lambda a: a.clamp(max=0.1), ((3, 4),)),
    Case("cumsum", lambda a: spy.cumsum(a, 1), lambda a: a.cumsum(1), ((3, 4),)),
    Case("cumsum of all", lambda a: spy.cumsum(a.T), lambda a: a.T.reshape(-1).cumsum(0), ((3, 4),)),
    Case("sort", lambda a: spy.sort(a, 0), lambda a: a.sort(0)[0], ((3, 4),)),
    Case("views", lambda a: a.T[1:, ::-1] * 2, lambda a: a.T[1:].flip(1) * 2, ((3, 4),)),
    same("reshape", lambda a: a.T.reshape(-1) * a.reshape(12), (3, 4)),
    Case("broadcast_to", lambda a, b: a.broadcast_to((5, 3, 4)) * b, lambda a, b: a * b, ((3, 1), (5, 3, 4))),
    Case("overlap", lambda a: a.view((3, 2), (1, 1)) * 2, lambda a: a.as_strided((3, 2), (1, 1)) * 2, ((4,),)),
    same("mask", lambda a: a[a > 0] * 2, (3, 4)),
    Case("mask of rows", lambda a: a[ROWS] * 2, lambda a: a[[0, 2]] * 2, ((3, 4),)),
    Case("copy", lambda a: a.copy() * a, lambda a: a * a, ((3, 4),)),
    Case("astype", lambda a: a.astype("float") * 2, lambda a: a.float() * 2, ((3, 4),)),
    same("no elements", lambda a: a[:0] * 2 + a[:0].sum(), (3, 4)),
]


def gradients(device: spy.Device, case: Case, dtype: Any) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Result and gradients of a case, each of ours with PyTorch's."""
    rng = np.random.default_rng(7)
    data = [
        (rng.normal(size=x) if isinstance(x, tuple) else np.array(x)).astype(dtype, copy=False) for x in case.operands
    ]
    data = [np.asarray(x, dtype) for x in data]
    ours = [spy.Tensor.from_numpy(device, x).with_grads() for x in data]
    theirs = [torch.tensor(x, requires_grad=True) for x in data]
    with spy.grad_tape() as tape:
        result = case.ours(*ours)
    wanted = case.theirs(*theirs)
    assert result.shape == tuple(wanted.shape)
    weights = rng.normal(size=result.shape).astype(wanted.detach().numpy().dtype)
    tape.backward(result, spy.Tensor.from_numpy(device, weights))
    wanted.backward(torch.from_numpy(np.asarray(weights)))
    found = [(result.to_numpy(), wanted.detach().numpy())]
    return found + [
        (x.grad.to_numpy(), np.zeros_like(d) if y.grad is None else y.grad.numpy())
        for x, y, d in zip(ours, theirs, data, strict=True)
    ]


@sampled(18)
@pytest.mark.parametrize("case", one_in(9, CASES), ids=lambda case: case.name)
def test_torch_agrees(device: spy.Device, case: Case) -> None:
    for got, wanted in gradients(device, case, np.float32):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=TOLERANCE[np.float32])


@deep
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_torch_agrees_on_other_types(device: spy.Device, case: Case, dtype: Any) -> None:
    name = "half" if dtype is np.float16 else "double"
    if name not in device.caps.scalars or (name == "double" and case.name == "matmul"):
        pytest.skip(f"{device.name} has no {name} here")
    if name == "double" and case.name.startswith("pow") and device.name.startswith("rhi"):
        pytest.skip("slang-rhi compiles SPIR-V by itself, which has no pow of double")
    for got, wanted in gradients(device, case, dtype):
        np.testing.assert_allclose(got, wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


FUNCTIONS = """
import slangpy_rt;
[Differentiable] float wave(float x, no_diff float k) { return sin(k * x); }
[Differentiable] float whole(DiffTensor<float, 1> x)
{
    float sum = 0;
    [ForceUnroll] for (int i = 0; i < 3; ++i)
        sum += x[i] * x[i + 1];
    return sum;
}
[Differentiable] Tuple<float, float> two(float x, float y) { return makeTuple(x * y, x + y); }
struct Pair : IDifferentiable
{
    float a;
    float b;
    [Differentiable] float product() { return a * b; }
}
[Differentiable] Pair paired(float a, float b) { return { a, 2 * b }; }
[Differentiable] float first(Pair p) { return p.a * p.a * p.b; }
uniform float scale;
[Differentiable] float scaled(float x) { return x * x * scale; }
float plain(float x) { return x; }
int sign(float x) { return x > 0 ? 1 : -1; }
[Differentiable] void square(float x, out float y) { y = x * x; }
void write(float x, out float y) { y = x; }
"""


@pytest.fixture
def functions(device: spy.Device) -> spy.Module:
    """Functions to call in a block."""
    return spy.Module.load_from_source(device, "test_grad_tape", FUNCTIONS)


@pytest.fixture
def operands(device: spy.Device) -> tuple[Any, Any, Any, Any]:
    """Two Tensors that carry gradients, and PyTorch's of the same values."""
    data = np.random.default_rng(3).normal(size=(2, 5)).astype(np.float32)
    ours = [spy.Tensor.from_numpy(device, x).with_grads() for x in data]
    return (*ours, *[torch.tensor(x, requires_grad=True) for x in data])


CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "no_diff": (lambda f, a, b: f.wave(a, b) * b, lambda a, b: torch.sin(b.detach() * a) * b),
    "a constant": (lambda f, a, b: f.wave(a, k=2.0) + b, lambda a, b: torch.sin(2 * a) + b),
    "a whole array": (lambda f, a, b: f.whole(b) * a, lambda a, b: (b[:3] * b[1:4]).sum() * a),
    "a tuple": (lambda f, a, b: f.two(a, b)[0] * f.two(a, a)[1], lambda a, b: a * b * (a + a)),
    "a struct": (lambda f, a, b: f.first(f.paired(a, b)), lambda a, b: a * a * 2 * b),
    "a dict": (lambda f, a, b: f.first({"a": a * b, "b": b}), lambda a, b: (a * b) ** 2 * b),
    "a method": (lambda f, a, b: f.Pair.product(f.paired(a, b)), lambda a, b: a * 2 * b),
    "a field": (lambda f, a, b: f.paired(a, b)["b"] * a, lambda a, b: 2 * b * a),
    "integers": (lambda f, a, b: f.sign(a) * b, lambda a, b: torch.sign(a) * b),
    "a uniform": (lambda f, a, b: f.scaled.set({"scale": 3.0})(a * b), lambda a, b: 3 * (a * b) ** 2),
    "no elements": (lambda f, a, b: f.wave(a[:0], 1.0).sum() + b, lambda a, b: b + 0 * a),
}


@pytest.mark.parametrize("name", one_in(4, CALLS))
def test_calls_are_recorded(functions: spy.Module, operands: tuple[Any, ...], name: str) -> None:
    ours, theirs = CALLS[name]
    a, b, x, y = operands
    with spy.grad_tape() as tape:
        loss = ours(functions, a, b).sum()
    tape.backward(loss)
    wanted = theirs(x, y).sum()
    wanted.backward()
    np.testing.assert_allclose(loss.to_numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
    for got, of in ((a, x), (b, y)):
        expected = np.zeros(5) if of.grad is None else of.grad.numpy()
        np.testing.assert_allclose(got.grad.to_numpy(), expected, rtol=1e-5, atol=1e-6)


HOLDERS = """
import slangpy_rt;
import mlp;
import sampling;
import rays;
struct Plain { DiffTensor<float, 1> table; int first; }
struct Held : IDifferentiable { DiffTensor<float, 1> table; no_diff float k; }
struct Pair : IDifferentiable { float x; float y; }
interface IShape : IDifferentiable { [Differentiable] float area(float t); }
struct Disc : IShape { float r; [Differentiable] float area(float t) { return r * r * t; } }
[Differentiable] float plain(Plain h, no_diff int i) { return h.table[i + h.first] * h.table[i + h.first]; }
[Differentiable] float held(Held h, no_diff int i) { return h.table[i] * h.table[i] * h.k; }
[Differentiable] float area(IShape shape, float t) { return shape.area(t); }
[Differentiable] float listed(float a[3]) { return a[0] * a[1] + a[2] * a[2]; }
[Differentiable] float paired(Pair p) { return p.x * p.x * p.y; }
[Differentiable] float seen(Image1 image, float2 uv, float level) { return image.sample(uv, level).x; }
[Differentiable] float depth(Scene scene, float2 at)
{
    let ray = Ray(float3(at, -1), float3(0, 0, 1));
    let hit = scene.trace(ray);
    if (!hit.isHit)
        return 0;
    return scene.at(hit, ray).t;
}
struct Model
{
    HashGrid<2, 2, 2, 64, 2, 8> grid;
    Network<4, 1, 8, 1> network;
    [Differentiable] float at(float2 place) { return network.run(grid.encode(place))[0]; }
}
[Differentiable] float modelled(Model model, no_diff float2 place) { return model.at(place); }
[Differentiable] float layered(MLP<2, 1> weights, no_diff float x[2]) { return weights.run(x)[0]; }
int count() { return Network<4, 1, 8, 1>.count; }
"""


@dataclasses.dataclass
class Both:
    """A value of the struct ``Pair``."""

    x: Any
    y: Any


@pytest.fixture
def holders(device: spy.Device) -> Any:
    """Functions whose parameters hold arrays."""
    return spy.Module.load_from_source(device, "holders_on_a_tape", HOLDERS)


INDEX = [0, 1, 1]
HELD: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "a struct of arrays": (
        lambda f, a, b: f.plain({"table": a, "first": 1}, INDEX),
        lambda a, b: a[1] ** 2 + 2 * a[2] ** 2,
    ),
    "made on the tape": (
        lambda f, a, b: f.held({"table": a * b, "k": 2.0}, INDEX),
        lambda a, b: 2 * (a[0] * b[0]) ** 2 + 4 * (a[1] * b[1]) ** 2,
    ),
    "a field without a gradient": (
        lambda f, a, b: f.held({"table": a, "k": b[0]}, INDEX),
        lambda a, b: b[0].detach() * (a[0] ** 2 + 2 * a[1] ** 2),
    ),
    "an interface": (lambda f, a, b: f.area({"_type": "Disc", "r": a}, b), lambda a, b: a * a * b),
    "a list for an array": (lambda f, a, b: f.listed([a, 2.0, b]), lambda a, b: 2 * a + b * b),
    "a dataclass": (lambda f, a, b: f.paired(Both(a * b, b)), lambda a, b: (a * b) ** 2 * b),
    "one array for a struct": (
        lambda f, a, b: f.layered(a[:2].view((2, 1)), [[3.0, 4]]),
        lambda a, b: a[0] * 3 + a[1] * 4,
    ),
}


@sampled(3)
@pytest.mark.parametrize("name", HELD)
def test_what_holds_gradients(holders: Any, operands: tuple[Any, ...], name: str) -> None:
    ours, theirs = HELD[name]
    a, b, x, y = operands
    with spy.grad_tape() as tape:
        loss = ours(holders, a, b).sum()
    tape.backward(loss)
    theirs(x, y).sum().backward()
    for got, of in ((a, x), (b, y)):
        expected = np.zeros(5) if of.grad is None else of.grad.numpy()
        np.testing.assert_allclose(got.grad.to_numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_model_of_a_grid_and_a_network(device: spy.Device, holders: Any) -> None:
    """The change of the loss by a step along each gradient is the product of both, by differences."""
    rng = np.random.default_rng(4)
    starts = {"grid": rng.normal(0, 1, (2 * 64, 2)), "network": rng.normal(0, 0.5, holders.count())}
    places = rng.random((32, 2), np.float32)

    def model(moved: dict[str, Any]) -> dict[str, Any]:
        return {
            "grid": spy.Tensor.from_numpy(device, moved["grid"].astype(np.float32)).with_grads(),
            "network": spy.Tensor.from_numpy(device, moved["network"].astype(np.float32)).with_grads(),
        }

    given = model(starts)
    with spy.grad_tape() as tape:
        loss = holders.modelled(given, places).sum()
    tape.backward(loss)
    _, gradients = holders.modelled.value_and_grad(given, places)
    for name, array in given.items():
        gradient = array.grad.to_numpy().astype(float)
        np.testing.assert_allclose(gradients["model"][name].to_numpy(), gradient, rtol=1e-4, atol=1e-5)
        step = 1e-3 * gradient / np.linalg.norm(gradient)
        ends = [
            holders.modelled(model({**starts, name: starts[name] + way * step}), places)
            .to_numpy()
            .astype(float)
            .sum()
            for way in (1, -1)
        ]
        assert (ends[0] - ends[1]) / 2e-3 == pytest.approx(np.linalg.norm(gradient), rel=2e-2)


@pytest.mark.parametrize("way", ["in place", "levels", "levels made on the tape", "sample"])
def test_images(device: spy.Device, holders: Any, way: str) -> None:
    """Weights of texels sum up to 1, and PyTorch interpolates as an Image of one level does."""
    rng = np.random.default_rng(2)
    start = rng.random((4, 6), np.float32)
    uv = spy.Tensor.from_numpy(device, rng.uniform(0.2, 0.8, (5, 2)).astype(np.float32), "float2")
    texels = spy.Tensor.from_numpy(device, start).with_grads()
    with spy.grad_tape() as tape:
        if way == "sample":
            loss = spy.graphics.sample(spy.Image(texels * 3), uv).sum()
        else:
            image = spy.Image(texels * 3 if way[-4:] == "tape" else texels, mips=way != "in place")
            loss = holders.seen(image, uv, 0.0 if way == "in place" else 0.75).sum()
    tape.backward(loss)
    # Without levels texels are used in place; with them the Image has a copy, which the tape knows if it made it.
    own = image.texels if way == "levels" else texels
    factor = 3 if way in ("sample", "levels made on the tape") else 1
    assert own.grad.to_numpy().sum() == pytest.approx(5 * factor, 1e-5)
    if way in ("in place", "sample"):
        x = torch.tensor(start, requires_grad=True)
        at = torch.from_numpy(uv.to_numpy())[None, None] * 2 - 1
        torch.nn.functional.grid_sample(x[None, None], at, align_corners=False).sum().backward()
        np.testing.assert_allclose(texels.grad.to_numpy(), factor * x.grad.numpy(), atol=1e-5)


@pytest.mark.parametrize("made", ["before", "on the tape"])
def test_scenes(device: spy.Device, holders: Any, made: str) -> None:
    corners = np.float32([[-1, -1, 1], [3, -1, 1], [-1, 3, 2]])
    near, far = (
        spy.Tensor.from_numpy(device, corners + np.float32([0, 0, z]), "float3").with_grads() for z in (0, 3)
    )
    at = np.float32([[0, 0], [0.1, 0.2]])
    scene = spy.Scene(device, [spy.Mesh(far, [[0, 1, 2]]), spy.Mesh(near, [[0, 1, 2]])])
    with spy.grad_tape() as tape:
        if made == "on the tape":
            scene = spy.Scene(device, [spy.Mesh(far, [[0, 1, 2]]), spy.Mesh(near * 1.0, [[0, 1, 2]])])
        loss = holders.depth(scene, spy.Tensor.from_numpy(device, at, "float2")).sum()
    tape.backward(loss)
    # The depth at a place is a mean of those of the corners, by the place's barycentric coordinates.
    weights = np.stack([1 - (at[:, 0] + at[:, 1] + 2) / 4, (at[:, 0] + 1) / 4, (at[:, 1] + 1) / 4])
    np.testing.assert_allclose(near.grad.to_numpy()[:, 2], weights.sum(1), rtol=1e-4)
    np.testing.assert_array_equal(far.grad.to_numpy(), np.zeros((3, 3)))


def test_stand_ins_are_told(holders: Any, device: spy.Device) -> None:
    """``update_this`` is called once the gradients are there, as ``bwds`` does it."""

    class Mine:
        def __init__(self) -> None:
            self.a = spy.Tensor.full(device, 3, 2.0).with_grads()
            self.told: list[Any] = []

        def get_this(self) -> Any:
            return {"x": self.a, "y": 3.0}

        def update_this(self, value: Any) -> None:
            self.told.append(value["x"].grad.tolist())

    mine = Mine()
    with spy.grad_tape() as tape:
        loss = holders.paired(mine).sum()
    assert mine.told == []
    tape.backward(loss)
    assert mine.told == [[12.0] * 3]


def test_vectors_bfloat16_and_structs(device: spy.Device) -> None:
    rows, numbers = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([2, 3], np.float32)
    v = spy.Tensor.from_numpy(device, rows, "float3").with_grads()
    s = spy.Tensor.from_numpy(device, numbers).with_grads()
    with spy.grad_tape() as tape:
        loss = (v * s + spy.float3(1, 2, 3) * v).sum(axis=0)
    tape.backward(loss, 1)
    np.testing.assert_array_equal(v.grad.to_numpy(), numbers[:, None] + [[1, 2, 3]])
    np.testing.assert_array_equal(s.grad.to_numpy(), rows.sum(1))
    b = spy.Tensor.full(device, 3, 1.5, "bfloat16").with_grads()
    with spy.grad_tape() as tape:
        loss = (b * b * 2).sum()
    tape.backward(loss)
    assert b.grad.dtype.name == "float"
    np.testing.assert_array_equal(b.grad.to_numpy(), [6, 6, 6])


def test_a_product_with_a_bias(device: spy.Device) -> None:
    data = [np.random.default_rng(1).normal(size=s).astype(np.float32) for s in ((4, 3), (4, 5), (5,))]
    a, b, c = (spy.Tensor.from_numpy(device, x).with_grads() for x in data)
    spy.matmul(a, b, transpose_a=True, bias=c)  # a known product must not be repeated in a block
    with spy.grad_tape() as tape:
        loss = (spy.matmul(a, b, transpose_a=True, bias=c, alpha=2) ** 2).sum()
    tape.backward(loss)
    x, y, z = (torch.tensor(d, requires_grad=True) for d in data)
    ((2 * (x.T @ y) + z) ** 2).sum().backward()
    for got, of in ((a, x), (b, y), (c, z)):
        np.testing.assert_allclose(got.grad.to_numpy(), of.grad.numpy(), rtol=1e-4, atol=1e-5)  # type: ignore[union-attr]
    with spy.grad_tape(), pytest.raises(spy.BindError, match="products without out, out_dtype and activation"):
        spy.matmul(a, b, transpose_a=True, activation="relu")


@deep
def test_a_picture(device: spy.Device) -> None:
    text = """struct Corner : IDifferentiable { float4 position; }
    [Differentiable] Corner project(float2 at) { return { float4(at, 0.5, 1) }; }
    [Differentiable] float shade(Corner c, float tone) { return tone; }"""
    module = spy.Module.load_from_source(device, "test_grad_tape_picture", text)
    picture = module.shade.raster(module.project, (8, 8))
    at = spy.Tensor.from_numpy(device, [[-0.7, -0.6], [0.8, -0.5], [0.1, 0.7]], "float2")
    tone, faces = spy.Tensor.full(device, (), 2.0), np.array([[0, 1, 2]], np.int32)
    mine = at.with_grads(), tone.with_grads()
    with spy.grad_tape() as tape:
        loss = (picture(_faces=faces, at=mine[0], tone=mine[1]) ** 2).sum()
    tape.backward(loss)
    theirs = at.with_grads(), tone.with_grads()
    drawn = picture(_faces=spy.Tensor.from_numpy(device, faces), at=at, tone=tone)
    picture.bwds(_faces=faces, at=theirs[0], tone=theirs[1], _result=drawn.with_grads(grad_in=drawn * 2))
    for got, wanted in zip(mine, theirs, strict=True):
        assert np.abs(wanted.grad.to_numpy()).max() > 0.1
        np.testing.assert_allclose(got.grad.to_numpy(), wanted.grad.to_numpy(), rtol=1e-5)


def test_nothing_is_recorded_outside(functions: spy.Module, operands: tuple[Any, ...]) -> None:
    a, b, *_ = operands
    made: list[Any] = []
    with spy.grad_tape():
        inside = a * b
        assert inside.grad_out is not None and inside.detach().grad_out is None
        assert (a.detach() * b.detach()).grad_out is None
        other = threading.Thread(target=lambda: made.append(a * b))
        other.start()
        other.join()
    with pytest.raises(KeyError), spy.grad_tape():
        raise KeyError
    made += [a * b, functions.wave(a, 1.0), a.sum(), a[a > 0], a.copy(), a @ b, spy.cumsum(a)]
    assert [x.grad_out for x in made] == [None] * len(made)
    assert a.device.observers == ()


def test_backward_adds_and_empties_the_tape(device: spy.Device) -> None:
    a = spy.Tensor.from_numpy(device, [1.0, 2, 3]).with_grads()
    with spy.grad_tape() as tape:
        y = a * 2
        loss = (y * y).sum()
        assert repr(tape) == "<GradTape of 3 operations>"
        tape.backward(loss)
        np.testing.assert_array_equal(a.grad.to_numpy(), [8, 16, 24])
        np.testing.assert_array_equal(y.grad.to_numpy(), [4, 8, 12])
        a *= 2  # allowed: nothing needs the old values any more
        tape.backward((a * 3).sum())
    np.testing.assert_array_equal(a.grad.to_numpy(), [11, 19, 27])
    with pytest.raises(spy.BindError, match="backward was called before"):
        tape.backward(loss)


@deep
def test_a_training_loop(device: spy.Device) -> None:
    x = spy.Tensor.linspace(device, 0, 1, 20)
    w = spy.Tensor.zeros(device, ()).with_grads()
    b = spy.Tensor.zeros(device, ()).with_grads()
    p, q = torch.zeros((), requires_grad=True), torch.zeros((), requires_grad=True)
    t = torch.linspace(0, 1, 20)
    for _ in range(5):
        for g in (w.grad, b.grad):
            g.clear()
        with spy.grad_tape() as tape:
            loss = ((w * x + b - (3 * x + 1)) ** 2).mean()
        tape.backward(loss)
        w -= 0.5 * w.grad
        b -= 0.5 * b.grad
        p.grad = q.grad = None
        ((p * t + q - (3 * t + 1)) ** 2).mean().backward()
        with torch.no_grad():
            p -= 0.5 * p.grad
            q -= 0.5 * q.grad
    np.testing.assert_allclose([w.item(), b.item()], [p.item(), q.item()], rtol=1e-5)


ON_TAPE = "is an operand or a result on a GradTape, whose backward needs its values"
MEMORY = "it would write to the memory of an operand or a result on a GradTape, whose backward needs its values"


def test_what_is_needed_is_not_overwritten(device: spy.Device, functions: spy.Module) -> None:
    a = spy.Tensor.from_numpy(device, [1.0, 2, 3]).with_grads()
    k, other = spy.Tensor.from_numpy(device, [4.0, 5, 6]), spy.Tensor.ones(device, 3)
    commands = device.command_list()
    functions.write.append_to(commands, other, k)
    with spy.grad_tape() as tape:
        y = a * k

        def in_place(array: Any) -> None:
            array += 1

        refused: list[tuple[Callable[[], Any], str]] = [
            (lambda: in_place(a), ON_TAPE),
            (lambda: in_place(a[1:]), ON_TAPE),
            (lambda: in_place(k), ON_TAPE),
            (lambda: in_place(y), ON_TAPE),
            (lambda: y.__setitem__(0, 1.0), ON_TAPE),
            (lambda: y.__setitem__(other > 0, 1.0), ON_TAPE),
            (lambda: other.__setitem__(0, y[0]), "a value carries a gradient"),
            (lambda: other.__iadd__(a), "a value carries a gradient"),
            (lambda: functions.write(other, k), MEMORY),
            (lambda: functions.plain(other, _result=y.detach()), MEMORY),
            (k.clear, "clear: " + MEMORY),
            (lambda: k.copy_from([1, 2, 3]), "a copy from the host: " + MEMORY),
            (commands.submit, "a command list: " + MEMORY),
        ]
        for call, message in refused:
            with pytest.raises(spy.BindError, match=message):
                call()
        other += 1
    with pytest.raises(spy.BindError, match=MEMORY):
        k.clear()
    np.testing.assert_array_equal(k.to_numpy(), [4, 5, 6])
    tape.backward(y, 1)
    np.testing.assert_array_equal(a.grad.to_numpy(), [4, 5, 6])
    k.clear()
    assert device.observers == ()


def test_a_tape_that_is_dropped_lets_go(device: spy.Device) -> None:
    a = spy.Tensor.from_numpy(device, [1.0, 2, 3]).with_grads()
    with spy.grad_tape() as tape:
        y = a * a
    assert device.observers
    del tape
    gc.collect()
    assert device.observers == ()
    a.clear()
    assert y.grad_out is not None


def test_what_is_refused(device: spy.Device, functions: spy.Module) -> None:
    a = spy.Tensor.from_numpy(device, [1.0, 2, 3]).with_grads()
    f = functions
    with spy.grad_tape() as tape:
        refused: list[tuple[Callable[[], Any], str]] = [
            (lambda: f.plain(a), "needs a derivative; mark the function"),
            (
                lambda: f.square(a, spy.Tensor.empty(device, 3)),
                "it writes to y, and a GradTape records results",
            ),
            (lambda: f.paired(a, np.ones(3, np.float32)), "a GradTape keeps arrays on the device alone"),
            (
                lambda: f.wave(a, 1.0, _result="numpy"),
                "records new Tensors, and the result goes to 'numpy'",
            ),
            (lambda: f.wave.return_type("numpy")(a, 1.0), "the result goes to 'numpy'"),
            (lambda: f.wave(a, 1.0, _result=spy.Tensor.empty(device, 3)), "the result goes to a Tensor<float>"),
            (lambda: f.wave.bind(a, 1.0), "does not record bind"),
            (lambda: f.wave.append_to(device.command_list(), a, 1.0), "does not record a command list"),
            (lambda: spy.grad_tape().__enter__(), "a block of another tape is open here"),
            (lambda: tape.backward(3.0), "result is 3.0; a Tensor was expected"),
            (
                lambda: tape.backward(spy.Tensor.ones(device, ())),
                "it carries no gradient",
            ),
            (lambda: tape.backward((a // 2).sum()), "floordiv: the operation has no gradient"),
        ]
        for call, message in refused:
            with pytest.raises(spy.BindError, match=message):
                call()
        y = a * 2
        with pytest.raises(spy.ShapeError, match="is not a single number; reduce it, result"):
            tape.backward(y)
        for gradient in (spy.Tensor.ones(device, 7), "one"):
            with pytest.raises(spy.ShapeError, match="a number was expected, or an array that broadcasts to"):
                tape.backward(y, gradient)
        tape.backward(y, [1.0, 2, 3])
        with pytest.raises(spy.BindError, match="backward was called before"):
            tape.backward(y, 1)
    np.testing.assert_array_equal(a.grad.to_numpy(), [2, 4, 6])


@deep
def test_results_in_a_block_are_tensors_as_others(device: spy.Device) -> None:
    a = spy.Tensor.from_numpy(device, [1.0, 2, 3]).with_grads()
    with spy.grad_tape():
        y = a * 2
        assert pickle.loads(pickle.dumps(y)).tolist() == [2, 4, 6]
        assert copy.deepcopy(y).tolist() == [2, 4, 6]
        assert float(y.sum()) == 12 and bool((y > 1).all()) and y.argmax().item() == 2
        assert str(y) == "[2. 4. 6.]" and int(spy.argsort(y)[0]) == 0 and spy.nonzero(y)[0].shape == (3,)
        with pytest.raises(spy.BindError, match="one operand is a Tensor, one PyTorch"):
            y + torch.ones(3)
        assert y.__add__("text") is NotImplemented


AXES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "cumsum": (lambda a, k: spy.cumsum(a, k), lambda a, k: a.cumsum(k), (-3, -2, -1, 1)),
    "sort": (lambda a, k: spy.sort(a, k), lambda a, k: a.sort(k)[0], (-3, -2, -1, 1)),
    "mean": (lambda a, k: a.mean(k), lambda a, k: a.mean(k), (-3, -1, (-2, 0))),
    "max": (lambda a, k: a.max(k), lambda a, k: a.amax(k), (-3, -1, (-2, 0))),
}


@every_case
@pytest.mark.parametrize("name", AXES)
def test_axes_counted_from_either_end(device: spy.Device, name: str) -> None:
    """Three dimensions of different sizes: a gradient along another axis has other numbers, or another shape."""
    ours, theirs, axes = AXES[name]
    for axis in axes:
        case = Case(name, lambda a, k=axis: ours(a, k), lambda a, k=axis: theirs(a, k), ((2, 3, 4),))
        for got, wanted in gradients(device, case, np.float32):
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=TOLERANCE[np.float32], err_msg=f"axis {axis}")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_views_that_overlap(device: spy.Device, dtype: Any) -> None:
    """Several elements of a view lie in one place, whose gradient is the sum of theirs."""
    if dtype is np.float64 and "double" not in device.caps.scalars:
        pytest.skip("the device has no doubles")
    views = (((3, 2), (1, 1), 0), ((3, 3), (-1, 1), 2), ((2, 3), (-2, -1), 5), ((4, 3), (1, 0), 1))
    for shape, strides, offset in views:
        case = Case(
            "overlap",
            lambda a, given=(shape, strides, offset): a.view(*given) * 2,
            lambda a, given=(shape, strides, offset): a[given[2] + index_of(*given[:2])] * 2,
            ((8,),),
        )
        for got, wanted in gradients(device, case, dtype):
            np.testing.assert_allclose(got, wanted, rtol=4e-3, atol=TOLERANCE[dtype])


def index_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """The places of a view's elements, from the first."""
    return torch.from_numpy(np.einsum("i...,i->...", np.indices(shape), np.array(strides)))
