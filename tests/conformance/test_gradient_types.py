"""Gradients through structs and their methods, generics, derivatives written by hand, pairs and tensors in Slang.

As in test_gradients.py, values are small integers, and results are compared for equality.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy

Array = npt.NDArray[Any]
Requires = Callable[..., None]

SLANG = """
import slangpy_rt;

struct Ray : IDifferentiable { float3 o; float3 d; int id; }
[Differentiable] float hit(Ray r, float t) { return dot(r.o + t * r.d, float3(1, 2, 3)) * float(r.id); }
[Differentiable] Ray make(float3 o, float3 d, no_diff int id) { return { 2 * o, d * d, id }; }
[Differentiable] void move(inout Ray r, float by) { r.o = r.o + r.d * by; r.id += 1; }

struct Leaf : IDifferentiable { float2 at; no_diff float kept; double wide; }
struct Tree : IDifferentiable { Leaf left; float w[2]; Leaf others[2]; uint8_t tag; }
[Differentiable] float fold(Tree t, float x)
{
    return (dot(t.left.at, float2(1, 2)) * t.left.kept + float(t.left.wide)) * x + t.w[0] * t.w[1]
        + t.others[0].at.x * t.others[1].at.y * t.others[1].kept;
}

struct Own : IDifferentiable
{
    typedef OwnGradient Differential;
    [DerivativeMember(OwnGradient.slope)] float value;
    no_diff float extra;
}
struct OwnGradient : IDifferentiable { typedef OwnGradient Differential; float slope; }
[Differentiable] float weigh(Own s, float x) { return s.value * s.extra * x; }

struct Plain { float a; float b; }
[Differentiable] float plain(Plain p, float x) { return p.a * p.b * x; }

struct Machine : IDifferentiable
{
    float s;
    float k;
    [Differentiable] float run(float x) { return s * x + k; }
    [Differentiable] [mutating] void step(float x) { s = s * x; }
    [Differentiable] static float twice(float x) { return 2 * x; }
    [Differentiable] float scaled(no_diff float by) { return s * by; }
}

interface IShape : IDifferentiable { [Differentiable] float area(float scale); }
struct Circle : IShape { float r; [Differentiable] float area(float scale) { return 3 * r * r * scale; } }
struct Box : IShape { float w; float h; [Differentiable] float area(float scale) { return w * h * scale; } }
struct Tile : IShape { float2 size; [Differentiable] float area(float scale) { return size.x * size.y * scale; } }
[Differentiable] float area(IShape shape, float scale) { return shape.area(scale); }
[Differentiable] float area_of<T : IShape>(T shape, float scale) { return 2 * shape.area(scale); }
[Differentiable] T square<T : __BuiltinFloatingPointType>(T a) { return a * a; }
[Differentiable] float sum<let N : int>(float x[N])
{
    float s = 0;
    [MaxIters(8)] for (int k = 0; k < N; ++k) s += x[k] * x[k];
    return s;
}

[BackwardDerivative(cube_backward)] float cube(float x) { return x * x * x; }
void cube_backward(inout DifferentialPair<float> p, float d) { p = diffPair(p.p, 100 * d); }
[ForwardDerivative(line_forward)] float line(float x) { return 5 * x; }
DifferentialPair<float> line_forward(DifferentialPair<float> p) { return diffPair(5 * p.p, 7 * p.d); }
float late(float x) { return x; }
[BackwardDerivativeOf(late)]
void late_backward(inout DifferentialPair<float> p, float d) { p = diffPair(p.p, 9 * d); }
float opaque(float x) { return 3 * x; }
[TreatAsDifferentiable] float treated(float x) { return 3 * x; }
[Differentiable] float outer(float x) { return cube(x) + 2 * line2(x) + x * no_diff opaque(x); }
[Differentiable] float line2(float x) { return x * detach(x); }
[Differentiable] float around(float x) { return treated(x) + 4 * x; }
[Differentiable] [PreferRecompute] float recomputed(float x) { float y = x * x; return y * y; }
[Differentiable] float nested(float x) { return recomputed(x) * recomputed(2 * x); }

void square_backward(inout DifferentialPair<float> p, float d) { p = diffPair(p.p, 2 * p.p * d); }
float both(DifferentialPair<float> p) { return p.p + 10 * p.d; }
float3 both3(DifferentialPair<float3> p) { return p.p + 10 * p.d; }
void fill(out DifferentialPair<float> p, float x) { p = diffPair(x, 2 * x); }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_gradient_types", SLANG)


def integers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def tensor(module: spy.Module, values: Any, dtype: Any = None) -> spy.Tensor:
    return spy.Tensor.from_numpy(module.device, values, dtype)


def seed_of(module: spy.Module, values: Any, dtype: Any = None) -> spy.Tensor:
    """A result to give as ``_result``, whose gradient holds ``values``."""
    gradient = tensor(module, values, dtype)
    return spy.Tensor.empty_like(gradient).with_grads(grad_in=gradient)


def same(array: Any, expected: Any) -> None:
    assert array is not None
    np.testing.assert_array_equal(array.to_numpy() if isinstance(array, spy.NDBuffer) else array, expected)


def filled(module: spy.Module, name: str, count: int, seed: int = 0) -> Array:
    """Structs whose every number, those that have no gradient too, is a small integer."""
    blank = spy.Tensor.zeros(module.device, count, module[name]).to_numpy()

    def fill(array: Array, seed: int) -> None:
        if array.dtype.names is None:
            array[...] = integers(*array.shape, seed=seed).astype(array.dtype)
        else:
            for k, name in enumerate(array.dtype.names):
                fill(array[name], seed * 10 + k + 1)

    fill(blank, seed)
    return blank


# Structs

ONE = np.array([1, 2, 3], np.float32)


def test_arrays_of_structs(module: spy.Module) -> None:
    rays, t, g = filled(module, "Ray", 50), integers(50, seed=1), integers(50, seed=2)
    start = filled(module, "Ray", 50, 3)
    gradient = tensor(module, start, module.Ray)
    x = tensor(module, rays, module.Ray).with_grads(grad_out=gradient)
    y = tensor(module, t).with_grads()
    for times in (1, 2):
        module.hit.bwds(x, y, _result=seed_of(module, g))
        found, scale = gradient.to_numpy(), (times * g * rays["id"])[:, None]
        same(found["o"], start["o"] + scale * ONE)
        same(found["d"], start["d"] + scale * ONE * t[:, None])
        # What has no gradient is not touched.
        same(found["id"], start["id"])
    same(y.grad, 2 * g * rays["id"] * (rays["d"] @ ONE))
    same(x, rays)


def test_a_struct_is_broadcast(module: spy.Module) -> None:
    rays, t, g = filled(module, "Ray", 3), integers(50, seed=1), integers(3, 50, seed=2)
    x = tensor(module, rays, module.Ray).with_grads()
    module.hit.map((0,), (1,)).bwds(x, tensor(module, t), _result=seed_of(module, g))
    scale = rays["id"][:, None] * ONE
    same(x.grad.to_numpy()["o"], g.sum(1)[:, None] * scale)  # type: ignore[union-attr]
    same(x.grad.to_numpy()["d"], (g @ t)[:, None] * scale)  # type: ignore[union-attr]
    one = tensor(module, rays[1:2], module.Ray).with_grads()
    module.hit.bwds(one, tensor(module, t), _result=seed_of(module, g[0]))
    same(one.grad.to_numpy()["o"][0], g[0].sum() * scale[1])  # type: ignore[union-attr]
    # One buffer, two places.
    x = tensor(module, rays, module.Ray).with_grads()
    module.hit.bwds(x[::-2], 2.0, _result=seed_of(module, g[0, :2]))
    same(x.grad.to_numpy()["d"][::-2], 2 * g[0, :2, None] * scale[::-2])  # type: ignore[union-attr]
    same(x.grad.to_numpy()["d"][1], 0)  # type: ignore[union-attr]


def test_structs_by_their_fields(module: spy.Module) -> None:
    t, g = integers(50, seed=1), integers(50, seed=2)
    o, d, k = integers(50, 3, seed=3), integers(3, seed=4), np.arange(50, dtype=np.int32) % 5
    x, y = tensor(module, o, "float3").with_grads(), tensor(module, d, "float3").with_grads()
    r = seed_of(module, g)
    module.hit.bwds({"o": x, "d": y, "id": tensor(module, k)}, tensor(module, t), _result=r)
    same(x.grad, (g * k)[:, None] * ONE)
    same(y.grad, (g * k * t).sum() * ONE)
    # Some with gradients, some without, some numbers, in another order.
    p = spy.diff_pair([1.0, 2, 3])
    module.hit.bwds({"id": 2, "d": p, "o": tensor(module, o, "float3")}, tensor(module, t), _result=r)
    same(p.grad, 2 * (g * t).sum() * ONE)
    z = tensor(module, t).with_grads()
    module.hit.bwds({"_type": "Ray", "o": [0.0, 0, 0], "d": d.tolist(), "id": 3}, z, _result=r)
    same(z.grad, 3 * g * (d @ ONE))
    listed = spy.InstanceList(module.Ray, {"o": x, "d": y, "id": 1})
    module.hit.bwds(listed, 0.0, _result=r)
    same(x.grad, (g * k + g)[:, None] * ONE)


def test_struct_results(module: spy.Module) -> None:
    o, d, seed = integers(50, 3), integers(50, 3, seed=1), filled(module, "Ray", 50, 2)
    x, y = tensor(module, o, "float3").with_grads(), tensor(module, d, "float3").with_grads()
    module.make.bwds(x, y, 3, _result=seed_of(module, seed, module.Ray))
    same(x.grad, 2 * seed["o"])
    same(y.grad, 2 * d * seed["d"])
    # By their fields, a number for one of them.
    parts = {"o": seed_of(module, seed["o"], "float3"), "d": spy.diff_pair(None, [1.0, 1, 1])}
    module.make.bwds(x, y, 3, _result={**parts, "id": spy.diff_pair(None, 0)})
    same(x.grad, 4 * seed["o"])
    same(y.grad, 2 * d * (seed["d"] + 1))


def test_fields_without_a_gradient_need_no_seed(module: spy.Module) -> None:
    x = tensor(module, integers(50, 3), "float3").with_grads()
    seed = {"o": spy.diff_pair(None, [1.0, 10, 100]), "d": spy.diff_pair(None, [0.0, 0, 0])}
    for k, other in enumerate((7, tensor(module, np.zeros(50, np.int32)), spy.diff_pair())):
        module.make.bwds(x, [1.0, 2, 3], 3, _result={**seed, "id": other})
        same(x.grad, np.broadcast_to(2 * (k + 1) * np.array([1, 10, 100]), (50, 3)))


def test_fields_without_a_gradient_may_be_left_out_of_a_seed(module: spy.Module) -> None:
    o, d, g, h = (integers(50, 3, seed=k) for k in range(4))
    x, y = tensor(module, o, "float3").with_grads(), tensor(module, d, "float3").with_grads()
    module.make.bwds(x, y, 3, _result={"o": seed_of(module, g, "float3"), "d": seed_of(module, h, "float3")})
    same(x.grad, 2 * g)
    same(y.grad, 2 * d * h)


def test_inout_structs(module: spy.Module) -> None:
    rays, by, g = filled(module, "Ray", 50), integers(50, seed=1), filled(module, "Ray", 50, 2)
    gradient = tensor(module, g, module.Ray)
    x = tensor(module, rays, module.Ray).with_grads(grad_in=gradient, grad_out=gradient)
    y = tensor(module, by).with_grads()
    module.move.bwds(x, y)
    found = gradient.to_numpy()
    same(found["o"], g["o"])
    same(found["d"], g["d"] + g["o"] * by[:, None])
    same(y.grad, (g["o"] * rays["d"]).sum(1))
    same(x, rays)
    # Into another tensor, it is added.
    start = filled(module, "Ray", 50, 3)
    out = tensor(module, start, module.Ray)
    x = tensor(module, rays, module.Ray).with_grads(grad_in=tensor(module, g, module.Ray), grad_out=out)
    module.move.bwds(x, y)
    found = out.to_numpy()
    same(found["o"], start["o"] + g["o"])
    same(found["d"], start["d"] + g["d"] + g["o"] * by[:, None])
    same(found["id"], start["id"])


def test_inout_structs_by_their_fields(module: spy.Module) -> None:
    o, d, by, g = integers(50, 3), integers(50, 3, seed=1), integers(50, seed=2), integers(50, 3, seed=3)
    x, y = tensor(module, o, "float3").with_grads(), tensor(module, d, "float3").with_grads()
    assert x.grad is not None
    x.grad.copy_from(g)
    k = tensor(module, np.zeros(50, np.int32))
    module.move.bwds({"o": x, "d": y, "id": k}, tensor(module, by))
    same(x.grad, g)
    same(y.grad, g * by[:, None])
    same(k, np.zeros(50))


def test_nested_structs(module: spy.Module, requires: Requires) -> None:
    requires("double")
    trees, x, g = filled(module, "Tree", 40), integers(40, seed=1), integers(40, seed=2)
    t, y = tensor(module, trees, module.Tree).with_grads(), tensor(module, x).with_grads()
    module.fold.bwds(t, y, _result=seed_of(module, g))
    assert t.grad is not None
    found = t.grad.to_numpy()
    left, others = trees["left"], trees["others"]
    same(found["left"]["at"], (g * x * left["kept"])[:, None] * [1, 2])
    same(found["left"]["wide"], g * x)
    same(found["left"]["kept"], 0)
    same(found["w"], g[:, None] * trees["w"][:, ::-1])
    same(found["others"]["at"][:, 0, 0], g * others["at"][:, 1, 1] * others["kept"][:, 1])
    same(found["others"]["at"][:, 1, 1], g * others["at"][:, 0, 0] * others["kept"][:, 1])
    same(found["others"]["kept"], 0)
    same(found["tag"], 0)
    same(y.grad, g * (left["at"] @ [1, 2] * left["kept"] + left["wide"]))


def test_nested_structs_by_their_fields(module: spy.Module, requires: Requires) -> None:
    requires("double")
    trees, g = filled(module, "Tree", 40), integers(40, seed=2)
    at, w = tensor(module, [1.0, 2], "float2").with_grads(), tensor(module, trees["w"]).with_grads()
    leaf = {"at": at, "kept": 3.0, "wide": 0.0}
    others = tensor(module, trees["left"], module.Leaf).with_grads()
    tree = {"left": leaf, "w": w, "others": [others, leaf], "tag": 1}
    module.fold.bwds(tree, 2.0, _result=seed_of(module, g))
    x0 = trees["left"]["at"][:, 0]
    same(w.grad, g[:, None] * trees["w"][:, ::-1])
    same(at.grad, [6 * g.sum(), 12 * g.sum() + (g * x0).sum() * 3])
    same(others.grad.to_numpy()["at"], np.stack([g * 6, 0 * g], 1))  # type: ignore[union-attr]


def test_a_differential_by_hand(module: spy.Module) -> None:
    own, g = filled(module, "Own", 30), integers(30, seed=1)
    x, y = tensor(module, own, module.Own).with_grads(), tensor(module, integers(30, seed=2)).with_grads()
    module.weigh.bwds(x, y, _result=seed_of(module, g))
    found = x.grad.to_numpy()  # type: ignore[union-attr]
    same(found["value"], g * own["extra"] * integers(30, seed=2))
    same(found["extra"], 0)
    same(y.grad, g * own["value"] * own["extra"])
    # By field, the one outside the Differential is a constant.
    value, extra = tensor(module, own["value"]).with_grads(), tensor(module, own["extra"]).with_grads()
    module.weigh.bwds({"value": value, "extra": extra}, 2.0, _result=seed_of(module, g))
    same(value.grad, 2 * g * own["extra"])
    same(extra.grad, np.zeros(30))


def test_structs_that_slang_does_not_differentiate(module: spy.Module) -> None:
    p, g = filled(module, "Plain", 30), integers(30, seed=1)
    x, y = tensor(module, p, module.Plain).with_grads(), tensor(module, integers(30, seed=2)).with_grads()
    module.plain.bwds(x, y, _result=seed_of(module, g))
    same(y.grad, g * p["a"] * p["b"])
    same(x.grad.to_numpy()["a"], 0)  # type: ignore[union-attr]


def test_forward_of_structs(module: spy.Module) -> None:
    rays, dr, t, dt = filled(module, "Ray", 30), filled(module, "Ray", 30, 1), integers(30), integers(30, seed=1)
    x = tensor(module, rays, module.Ray).with_grads(grad_in=tensor(module, dr, module.Ray))
    y = module.hit.fwds(x, tensor(module, t).with_grads(grad_in=tensor(module, dt)))
    o, d, k = rays["o"], rays["d"], rays["id"]
    same(y, (o + t[:, None] * d) @ ONE * k)
    same(y.grad, (dr["o"] + t[:, None] * dr["d"] + dt[:, None] * d) @ ONE * k)
    v = tensor(module, o, "float3").with_grads(grad_in=tensor(module, d, "float3"))
    r = module.make.fwds(v, tensor(module, d, "float3"), 4)
    assert r.dtype.name == "Ray"
    same(r.to_numpy()["o"], 2 * o)
    same(r.to_numpy()["d"], d * d)
    same(r.to_numpy()["id"], 4)
    same(r.grad.to_numpy()["o"], 2 * d)
    same(r.grad.to_numpy()["d"], np.zeros((30, 3)))
    by_field = module.hit.fwds({"o": v, "d": [1.0, 2, 3], "id": 2}, 1.0)
    same(by_field.grad, 2 * d @ ONE)


def test_forward_of_inout_structs(module: spy.Module) -> None:
    rays, dr, by = filled(module, "Ray", 30), filled(module, "Ray", 30, 1), integers(30)
    gradient = tensor(module, dr, module.Ray)
    x = tensor(module, rays, module.Ray).with_grads(grad_in=gradient, grad_out=gradient)
    module.move.fwds(x, tensor(module, by))
    same(x.to_numpy()["o"], rays["o"] + rays["d"] * by[:, None])
    same(x.to_numpy()["id"], rays["id"] + 1)
    same(gradient.to_numpy()["o"], dr["o"] + dr["d"] * by[:, None])
    same(gradient.to_numpy()["d"], dr["d"])
    same(gradient.to_numpy()["id"], dr["id"])


# Methods, generics, interfaces


def test_methods(module: spy.Module) -> None:
    s, x, g = integers(30), integers(30, seed=1), integers(30, seed=2)
    a, b, p = tensor(module, s).with_grads(), tensor(module, x).with_grads(), spy.diff_pair(1.0)
    r = seed_of(module, g)
    module.Machine.run.bwds({"s": a, "k": p}, b, _result=r)
    same(a.grad, g * x)
    same(b.grad, g * s)
    assert p.grad == g.sum()
    machines = tensor(module, filled(module, "Machine", 30), module.Machine).with_grads()
    module.Machine.run.bwds(machines, b, _result=r)
    assert machines.grad is not None
    same(machines.grad.to_numpy()["s"], g * x)
    same(machines.grad.to_numpy()["k"], g)
    module.Machine.twice.bwds(a, _result=r)
    same(a.grad, g * x + 2 * g)
    module.Machine.scaled.bwds({"s": a, "k": 0.0}, 5.0, _result=r)
    same(a.grad, g * x + 7 * g)
    module["Machine.run"].bwds({"s": 2.0, "k": 0.0}, b, _result=r)
    same(b.grad, g * s + g * filled(module, "Machine", 30)["s"] + 2 * g)


def test_mutating_methods(module: spy.Module) -> None:
    m, x, g = filled(module, "Machine", 30), integers(30, seed=1), filled(module, "Machine", 30, 2)
    gradient = tensor(module, g, module.Machine)
    machines = tensor(module, m, module.Machine).with_grads(grad_in=gradient, grad_out=gradient)
    y = tensor(module, x).with_grads()
    module.Machine.step.bwds(machines, y)
    same(gradient.to_numpy()["s"], g["s"] * x)
    same(gradient.to_numpy()["k"], g["k"])
    same(y.grad, g["s"] * m["s"])
    s, q = spy.diff_pair(3.0, 1.0), spy.diff_pair(2.0)
    module.Machine.step.bwds({"s": s, "k": spy.diff_pair(0.0, 5.0)}, q)
    assert (s.grad, q.grad) == (2, 3)


def test_forward_of_methods(module: spy.Module) -> None:
    y = module.Machine.run.fwds({"s": spy.diff_pair(3.0, 1.0), "k": 1.0}, spy.diff_pair(5.0, 10.0))
    assert (y.primal, y.grad) == (16, 35)
    s = spy.diff_pair(3.0, 1.0)
    module.Machine.step.fwds({"s": s, "k": spy.diff_pair(0.0, 0.0)}, spy.diff_pair(5.0, 10.0))
    assert (s.primal, s.grad) == (15, 35)


def test_generics(module: spy.Module, requires: Requires) -> None:
    a, g = integers(30), integers(30, seed=1)
    x = tensor(module, a).with_grads()
    module.square.bwds(x, _result=seed_of(module, g))
    module["square<float>"].bwds(x, _result=seed_of(module, g))
    same(x.grad, 4 * a * g)
    w = tensor(module, integers(10, 3)).with_grads()
    module["sum<3>"].bwds(w, _result=seed_of(module, g[:10]))
    same(w.grad, 2 * integers(10, 3) * g[:10, None])
    requires("double")
    d = tensor(module, a.astype(np.float64)).with_grads()
    module.square.bwds(d, _result=seed_of(module, g.astype(np.float64)))
    same(d.grad, 2 * a * g)


def test_interfaces(module: spy.Module) -> None:
    r, s, g = integers(30), integers(30, seed=1), integers(30, seed=2)
    x, scale = tensor(module, r).with_grads(), tensor(module, s).with_grads()
    seed = seed_of(module, g)
    module.area.bwds({"_type": "Circle", "r": x}, scale, _result=seed)
    same(x.grad, 6 * r * s * g)
    same(scale.grad, 3 * r * r * g)
    boxes = filled(module, "Box", 30)
    y = tensor(module, boxes, module.Box).with_grads()
    module.area.bwds(y, 2.0, _result=seed)
    same(y.grad.to_numpy()["w"], 2 * g * boxes["h"])  # type: ignore[union-attr]
    module.area_of.bwds(y, 1.0, _result=seed)
    same(y.grad.to_numpy()["w"], 4 * g * boxes["h"])  # type: ignore[union-attr]
    module.area.map("Circle").bwds({"r": x}, 1.0, _result=seed)
    same(x.grad, 6 * r * (s + 1) * g)
    tiles = filled(module, "Tile", 30)
    z = tensor(module, tiles, module.Tile).with_grads()
    module.area_of.bwds(z, 1.0, _result=seed)
    same(z.grad.to_numpy()["size"], 2 * g[:, None] * tiles["size"][:, ::-1])  # type: ignore[union-attr]


@pytest.mark.xfail(raises=spy.CompileError, strict=True, reason="Slang 2026.12: vectors behind an interface")
def test_interfaces_of_structs_with_vectors(module: spy.Module) -> None:
    size = tensor(module, integers(30, 2), "float2").with_grads()
    module.area.bwds({"_type": "Tile", "size": size}, 2.0, _result=spy.diff_pair(None, 1.0))
    same(size.grad, 2 * integers(30, 2)[:, ::-1])


# Derivatives by hand


def test_custom_derivatives(module: spy.Module) -> None:
    a, g = integers(30), integers(30, seed=1)
    r = seed_of(module, g)

    def gradient_of(name: str) -> Any:
        x = tensor(module, a).with_grads()
        module[name].bwds(x, _result=r)
        return x.grad

    same(gradient_of("cube"), 100 * g)
    same(gradient_of("outer"), (100 + 2 * a + 3 * a) * g)
    same(gradient_of("around"), 4 * g)
    same(gradient_of("recomputed"), 4 * a**3 * g)
    # x^4 (2 x)^4
    same(gradient_of("nested"), 128 * a**7 * g)
    y = module.line.fwds(tensor(module, a).with_grads(grad_in=tensor(module, g)))
    same(y, 5 * a)
    same(y.grad, 7 * g)


def test_a_derivative_that_names_its_function(module: spy.Module) -> None:
    x = tensor(module, integers(30)).with_grads()
    module.late.bwds(x, _result=seed_of(module, integers(30, seed=1)))
    same(x.grad, 9 * integers(30, seed=1))


# Pairs


def test_pairs_of_arrays(module: spy.Module) -> None:
    a, d = integers(30), integers(30, seed=1)
    buffer = spy.NDDifferentiableBuffer(module.device, "float", (30,))
    buffer.copy_from(a)
    same(buffer.grad, np.zeros(30))
    buffer.grad.copy_from(d)
    x = tensor(module, a).with_grads(grad_in=tensor(module, d))
    for pair in (buffer, x, (tensor(module, a), tensor(module, d)), {"p": a, "d": tensor(module, d)}, (a, d)):
        same(np.asarray(module.both(pair)), a + 10 * d)
    same(np.asarray(module.both((a, 2.0))), a + 20)
    v = tensor(module, integers(30, 3), "float3").with_grads(
        grad_in=tensor(module, integers(30, 3, seed=1), "float3")
    )
    same(module.both3(v), integers(30, 3) + 10 * integers(30, 3, seed=1))


def test_pairs_that_are_written(module: spy.Module) -> None:
    a, d = integers(30), integers(30, seed=1)
    buffer = spy.NDDifferentiableBuffer(module.device, "float", (30,))
    buffer.copy_from(a)
    module.square_backward(buffer, tensor(module, d))
    same(buffer.grad, 2 * a * d)
    same(buffer, a)
    x = tensor(module, a).with_grads()
    module.square_backward(x, tensor(module, d))
    same(x.grad, 2 * a * d)
    module.square_backward(x[::-3], 1.0)
    expected = 2 * a * d
    expected[::-3] = 2 * a[::-3]
    same(x.grad, expected)
    p, g = a.copy(), np.zeros(30, np.float32)
    module.square_backward((p, g), d)
    same(g, 2 * a * d)
    module.square_backward({"p": p, "d": g}, 1.0)
    same(g, 2 * a)
    module.fill(buffer, tensor(module, d))
    same(buffer, d)
    same(buffer.grad, 2 * d)


def test_pairs_of_numbers(module: spy.Module) -> None:
    for pair in (spy.diff_pair(3.0, 2.0), (3.0, 2.0), {"p": 3.0, "d": 2.0}, spy.DiffPair(3.0, 2.0)):
        assert module.both(pair) == 23
    p = spy.diff_pair(3.0, 1.0)
    module.square_backward(p, 2.0)
    assert (p.primal, p.grad) == (3, 12)
    q = spy.diff_pair()
    module.fill(q, 4.0)
    assert (q.primal, q.grad) == (4, 8)
    # A gradient that is not given is zero.
    q = spy.diff_pair(3.0)
    module.square_backward(q, 2.0)
    assert (q.primal, q.grad) == (3, 12)
    assert module.both(spy.diff_pair(3.0)) == 3
    assert module.both3(spy.diff_pair([1.0, 2, 3], [1.0, 0, 0])).tolist() == [11, 2, 3]


# Tensors in Slang

TENSORS = """
import slangpy_rt;
[Differentiable] float at(DiffTensor<float, 1> t, no_diff int i) { return t[i] * t[i]; }
[Differentiable] float box(DiffTensor<float, 2> t, int2 c)
{
    float sum = 0;
    [ForceUnroll]
    for (int y = -1; y <= 1; y++)
        for (int x = -1; x <= 1; x++)
            sum += t[clamp(c.y + y, 0, t.shape[0] - 1), clamp(c.x + x, 0, t.shape[1] - 1)];
    return sum;
}
[Differentiable] float3 gather(DiffTensor<float3, 1> t, int i, float s) { return t[i] * s; }
[Differentiable] float once(DiffTensor<float, 1> t, int i) { int at[1] = { i }; return 3 * t.loadOnce(at); }
[Differentiable] float line(DiffTensor<float, 1> w, float x)
{
    int zero[1] = { 0 };
    int one[1] = { 1 };
    return w.loadUniform(zero) * x + w.loadUniform(one);
}
[Differentiable] void put(WDiffTensor<float, 1> to, no_diff int i, float v) { to[i] = v * v; }
[Differentiable] void advance(RWDiffTensor<float, 1> t, no_diff int i, float v) { t[i + 30] = t[i] * v; }
[Differentiable] float total(DiffTensor<float, 1> row, float s)
{
    float sum = 0;
    [MaxIters(8)]
    for (int k = 0; k < row.shape[0]; ++k)
        sum += row[k] * row[k];
    return sum * s;
}
[Differentiable] void spread(WDiffTensor<float, 1> row, float v)
{
    [MaxIters(8)]
    for (int k = 0; k < row.shape[0]; ++k)
        row[k] = v * float(k);
}
struct Layer
{
    DiffTensor<float, 2> weights;
    [Differentiable] float[3] run(float x[4])
    {
        float y[3];
        [ForceUnroll]
        for (int o = 0; o < 3; o++)
        {
            y[o] = 0;
            [ForceUnroll]
            for (int i = 0; i < 4; i++)
                y[o] += weights[i, o] * x[i];
        }
        return y;
    }
}
[Differentiable] float[3] layer(Layer net, float x[4]) { return net.run(x); }
"""


@pytest.fixture(scope="module")
def tensors(device: spy.Device) -> spy.Module:
    """Functions that take whole tensors."""
    return spy.Module.load_from_source(device, "test_gradient_tensors", TENSORS)


def test_gathered_elements_receive_the_sum(tensors: spy.Module) -> None:
    t, g, k = integers(8), integers(1000, seed=1), np.random.default_rng(2).integers(0, 8, 1000).astype(np.int32)
    x, index, r = tensor(tensors, t).with_grads(), tensor(tensors, k), seed_of(tensors, g)
    expected = np.zeros(8)
    np.add.at(expected, k, 2 * t[k] * g)
    for times in (1, 2):
        tensors.at.bwds(x, index, _result=r)
        same(x.grad, times * expected)
    # Views of both.
    x = tensor(tensors, np.repeat(t, 3)).with_grads()
    tensors.at.bwds(x[::-3], index, _result=r)
    reverse = np.zeros(8)
    np.add.at(reverse, k, 2 * t[::-1][k] * g)
    same(x.grad[::-3], reverse)  # type: ignore[index]
    assert x.grad.to_numpy().sum() == reverse.sum()  # type: ignore[union-attr]
    v, s = tensor(tensors, integers(8, 3), "float3").with_grads(), tensor(tensors, integers(1000)).with_grads()
    g3, rows = integers(1000, 3, seed=4), np.zeros((8, 3))
    tensors.gather.bwds(v, index, s, _result=seed_of(tensors, g3, "float3"))
    np.add.at(rows, k, g3 * integers(1000)[:, None])
    same(v.grad, rows)
    same(s.grad, (g3 * integers(8, 3)[k]).sum(1))


def test_a_stencil(tensors: spy.Module) -> None:
    image, g = integers(5, 7), integers(5, 7, seed=1)
    x = tensor(tensors, image).with_grads()
    tensors.box.bwds(x, spy.grid((5, 7)), _result=seed_of(tensors, g))
    expected = np.zeros((7, 9))
    for y, k in np.ndindex(3, 3):
        expected[y : y + 5, k : k + 7] += g
    # What was read beyond the edge was the edge.
    expected[1] += expected[0]
    expected[-2] += expected[-1]
    expected[:, 1] += expected[:, 0]
    expected[:, -2] += expected[:, -1]
    same(x.grad, expected[1:-1, 1:-1])


def test_elements_loaded_once(tensors: spy.Module) -> None:
    t, g, order = integers(300), integers(300, seed=1), np.random.default_rng(2).permutation(300).astype(np.int32)
    x = tensor(tensors, t).with_grads()
    tensors.once.bwds(x, tensor(tensors, order), _result=seed_of(tensors, g))
    expected = np.zeros(300)
    expected[order] = 3 * g
    same(x.grad, expected)


def test_an_element_loaded_by_all(tensors: spy.Module) -> None:
    t, g = integers(300), integers(300, seed=1)
    w, y = tensor(tensors, [2.0, 3]).with_grads(), tensor(tensors, t).with_grads()
    tensors.line.bwds(w, y, _result=seed_of(tensors, g))
    same(w.grad, [(t * g).sum(), g.sum()])
    same(y.grad, 2 * g)


def test_tensors_without_gradients_are_constants(tensors: spy.Module) -> None:
    g = integers(30)
    y = tensor(tensors, integers(30, seed=1)).with_grads()
    tensors.line.bwds(tensor(tensors, [2.0, 3]), y, _result=seed_of(tensors, g))
    same(y.grad, 2 * g)


def test_stores_take_their_gradient(tensors: spy.Module) -> None:
    v, g, order = integers(30), integers(30, seed=1), np.random.default_rng(2).permutation(30).astype(np.int32)
    to = tensor(tensors, np.zeros(30, np.float32)).with_grads(grad_in=tensor(tensors, g))
    x = tensor(tensors, v).with_grads()
    tensors.put.bwds(to, tensor(tensors, order), x)
    same(x.grad, 2 * v * g[order])
    same(to.grad_in, g)


def test_a_tensor_read_and_written(tensors: spy.Module) -> None:
    t, v, g = integers(60), integers(30, seed=1), integers(60, seed=2)
    into, out = tensor(tensors, g), tensor(tensors, np.zeros(60, np.float32))
    x, y = tensor(tensors, t).with_grads(grad_in=into, grad_out=out), tensor(tensors, v).with_grads()
    tensors.advance.bwds(x, range(30), y)
    same(out, np.concatenate([g[30:] * v, np.zeros(30)]))
    same(y.grad, g[30:] * t[:30])
    same(into, g)


def test_the_derivative_of_a_box_filter_is_one(device: spy.Device) -> None:
    text = """
    import slangpy_rt;
    [Differentiable]
    float box(DiffTensor<float, 2> image, int2 pixel)
    {
        float sum = 0;
        [ForceUnroll]
        for (int k = 0; k < 9; ++k)
        {
            let at = pixel + int2(k % 3, k / 3) - 1;
            if (all(at >= 0) && at.x < image.shape[1] && at.y < image.shape[0])
                sum += image[at];
        }
        return sum;
    }
    """

    def boxed(x: Array) -> Array:
        rows, columns = x.shape
        wide = np.pad(x, 1)
        total: Array = np.sum([wide[y : y + rows, x : x + columns] for y, x in np.ndindex(3, 3)], 0)
        return total

    module = spy.Module.load_from_source(device, "box_filter", text)
    # The second has more pixels than a range on the CPU makes a copy of.
    for rows, columns in ((40, 60), (301, 257)):
        pixels, weights, change = (integers(rows, columns, seed=k) for k in range(3))
        image = tensor(module, pixels).with_grads()
        index = spy.grid((rows, columns))
        same(module.box(image, index), boxed(pixels))
        for times in (1, 2):
            module.box.bwds(image, index, _result=seed_of(module, weights))
            same(image.grad, times * boxed(weights))
        moving = image.with_grads(grad_in=tensor(module, change))
        same(module.box.fwds(moving, index).grad, boxed(change))


def test_rows_of_tensors(tensors: spy.Module) -> None:
    t, s, g = integers(4, 50, 5), integers(50, seed=1), integers(4, 50, seed=2)
    x, y = tensor(tensors, t).with_grads(), tensor(tensors, s).with_grads()
    tensors.total.bwds(x, y, _result=seed_of(tensors, g))
    same(x.grad, 2 * t * (g * s)[..., None])
    same(y.grad, ((t * t).sum(2) * g).sum(0))
    # One row for all, and rows of a view.
    one = tensor(tensors, t[0, 0]).with_grads()
    tensors.total.bwds(one, y, _result=seed_of(tensors, g))
    same(one.grad, 2 * t[0, 0] * (g * s).sum())
    z = tensor(tensors, t[0]).with_grads()
    tensors.total.bwds(z[::-2, 1:4], 1.0, _result=seed_of(tensors, g[0, :25]))
    expected = np.zeros((50, 5))
    expected[::-2, 1:4] = 2 * t[0, ::-2, 1:4] * g[0, :25, None]
    same(z.grad, expected)


def test_rows_that_are_written(tensors: spy.Module) -> None:
    v, g = integers(50), integers(50, 5, seed=1)
    rows = tensor(tensors, np.zeros((50, 5), np.float32)).with_grads(grad_in=tensor(tensors, g))
    x = tensor(tensors, v).with_grads()
    tensors.spread.bwds(rows, x)
    same(x.grad, g @ np.arange(5))


def test_a_struct_around_a_tensor(tensors: spy.Module) -> None:
    w, x, g = integers(4, 3), integers(100, 4, seed=1), integers(100, 3, seed=2)
    weights, batch = tensor(tensors, w).with_grads(), tensor(tensors, x).with_grads()
    tensors.layer.bwds(weights, batch, _result=seed_of(tensors, g))
    same(weights.grad, x.T @ g)
    same(batch.grad, g @ w.T)
    tensors.layer.bwds({"weights": weights}, batch, _result=seed_of(tensors, g))
    same(weights.grad, 2 * x.T @ g)


def test_forward_through_loads(tensors: spy.Module) -> None:
    t, dt, k = integers(8), integers(8, seed=1), np.random.default_rng(2).integers(0, 8, 300).astype(np.int32)
    x, index = tensor(tensors, t).with_grads(grad_in=tensor(tensors, dt)), tensor(tensors, k)
    y = tensors.at.fwds(x, index)
    same(y, t[k] ** 2)
    same(y.grad, 2 * t[k] * dt[k])
    same(x.grad_in, dt)
    # A view, whose tangent is the view of the tangent.
    y = tensors.at.fwds(x[::-2], tensor(tensors, k // 2))
    same(y.grad, 2 * (t * dt)[::-2][k // 2])
    # Without a tangent it is a constant; so is one that has only the other gradient.
    for constant in (x.detach(), x.with_grads(grad_out=tensor(tensors, dt))):
        same(tensors.at.fwds(constant, index).grad, np.zeros(300))
    order = np.random.default_rng(3).permutation(8).astype(np.int32)
    same(tensors.once.fwds(x, tensor(tensors, order)).grad, 3 * dt[order])
    u, du = integers(300, seed=4), integers(300, seed=5)
    y = tensors.line.fwds(x, tensor(tensors, u).with_grads(grad_in=tensor(tensors, du)))
    same(y, t[0] * u + t[1])
    same(y.grad, dt[0] * u + t[0] * du + dt[1])
    v, dv, s = integers(8, 3, seed=6), integers(8, 3, seed=7), integers(300, seed=8)
    moving = tensor(tensors, v, "float3").with_grads(grad_in=tensor(tensors, dv, "float3"))
    same(tensors.gather.fwds(moving, index, tensor(tensors, s)).grad, dv[k] * s[:, None])


def test_forward_through_stores(tensors: spy.Module) -> None:
    v, dv, order = integers(30), integers(30, seed=1), np.random.default_rng(2).permutation(30).astype(np.int32)
    x = tensor(tensors, v).with_grads(grad_in=tensor(tensors, dv))
    index, expected = tensor(tensors, order), np.zeros(30)
    for constant in (False, True):
        to = spy.Tensor.zeros(tensors.device, 30).with_grads(grad_out=tensor(tensors, integers(30, seed=3)))
        tensors.put.fwds(to, index, x.detach() if constant else x)
        expected[order] = v * v
        same(to, expected)
        expected[order] = 0 if constant else 2 * v * dv
        # A tangent is written, not added.
        same(to.grad_out, expected)
    # Without room for the tangent the value alone is written.
    to = spy.Tensor.zeros(tensors.device, 30)
    tensors.put.fwds(to, index, x)
    expected[order] = v * v
    same(to, expected)


@pytest.mark.parametrize("shared", [True, False])
def test_forward_through_a_tensor_read_and_written(tensors: spy.Module, shared: bool) -> None:
    t, dt, v, dv = integers(60), integers(60, seed=1), integers(30, seed=2), integers(30, seed=3)
    into = tensor(tensors, dt)
    out = into if shared else tensor(tensors, np.full(60, 7, np.float32))
    x = tensor(tensors, t).with_grads(grad_in=into, grad_out=out)
    tensors.advance.fwds(x, range(30), tensor(tensors, v).with_grads(grad_in=tensor(tensors, dv)))
    same(x, np.concatenate([t[:30], t[:30] * v]))
    same(out, np.concatenate([dt[:30] if shared else np.full(30, 7), dt[:30] * v + t[:30] * dv]))
    if not shared:
        same(into, dt)


def test_forward_through_rows(tensors: spy.Module) -> None:
    t, dt, s, ds = integers(4, 50, 5), integers(4, 50, 5, seed=1), integers(50, seed=2), integers(50, seed=3)
    x = tensor(tensors, t).with_grads(grad_in=tensor(tensors, dt))
    y = tensors.total.fwds(x, tensor(tensors, s).with_grads(grad_in=tensor(tensors, ds)))
    same(y, (t * t).sum(2) * s)
    same(y.grad, 2 * (t * dt).sum(2) * s + (t * t).sum(2) * ds)
    rows = spy.Tensor.zeros(tensors.device, (50, 5)).with_grads()
    tensors.spread.fwds(rows, tensor(tensors, s).with_grads(grad_in=tensor(tensors, ds)))
    same(rows, np.outer(s, np.arange(5)))
    same(rows.grad, np.outer(ds, np.arange(5)))


def test_forward_through_a_struct_around_a_tensor(tensors: spy.Module) -> None:
    w, dw, x, dx = integers(4, 3), integers(4, 3, seed=1), integers(100, 4, seed=2), integers(100, 4, seed=3)
    weights = tensor(tensors, w).with_grads(grad_in=tensor(tensors, dw))
    batch = tensor(tensors, x).with_grads(grad_in=tensor(tensors, dx))
    for net in (weights, {"weights": weights}):
        y = tensors.layer.fwds(net, batch)
        same(y, x @ w)
        same(y.grad, dx @ w + x @ dw)


def test_a_debug_device_computes_the_same(backend_name: str) -> None:
    with spy.Device(backend_name, debug=True) as device:
        module = spy.Module.load_from_source(device, "checked_gradients", TENSORS)
        test_gathered_elements_receive_the_sum(module)
        test_rows_of_tensors(module)
        x, r = tensor(module, integers(4)).with_grads(), seed_of(module, np.ones(3, np.float32))
        with pytest.raises(spy.OutOfBoundsError, match=r"argument 't' of shape \(4,\) was read at \(4,\)"):
            module.at.bwds(x, tensor(module, np.array([0, 4, 1], np.int32)), _result=r)
        same(x.grad, 2 * integers(4) * [1, 1, 0, 0])


# Modules that others import


def adam_by_hand(parameter: Array, gradient: Array) -> Array:
    """The first step with rate 0.1, whose moments start at zero: Kingma and Ba 2015, algorithm 1."""
    return parameter - 0.1 * gradient / (np.abs(gradient) + 1e-8)


@pytest.mark.parametrize("how", ["imported", "file"])
def test_functions_of_a_library(device: spy.Device, how: str) -> None:
    if how == "file":
        module = spy.Module.load_from_file(device, "mlp.slang")
    else:
        module = spy.Module.load_from_source(device, "borrower", "import mlp; float own(float x) { return x; }")
    a, g = integers(30).astype(np.float64), integers(30, seed=1)
    parameter, mean, variance = (tensor(module, x.astype(np.float32)) for x in (a, 0 * a, 0 * a))
    module["adam"](parameter, tensor(module, g), mean, variance, 0.1, 1)
    # 1 - 0.999 is rounded to 2e-5 of itself in floats, and pow(0.999, 1) to more.
    np.testing.assert_allclose(parameter.to_numpy(), adam_by_hand(a, g), atol=1e-3)
    np.testing.assert_allclose(mean.to_numpy(), 0.1 * g, rtol=1e-5)
    np.testing.assert_allclose(variance.to_numpy(), 0.001 * g * g, rtol=1e-4)
    module.sgd(parameter, tensor(module, g), 0.5)
    np.testing.assert_allclose(parameter.to_numpy(), adam_by_hand(a, g) - 0.5 * g, atol=1e-3)


def test_derivatives_of_imported_functions(device: spy.Device, tmp_path: Path) -> None:
    (tmp_path / "curves.slang").write_text(
        "module curves;\n[Differentiable] public float parabola(float x, float a) { return a * x * x; }\n"
    )
    path = tmp_path / "uses.slang"
    path.write_text("import curves;\n[Differentiable] float shifted(float x) { return parabola(x, 3) + x; }\n")
    module = spy.Module.load_from_file(device, path)
    a, g = integers(30), integers(30, seed=1)
    x, number = tensor(module, a).with_grads(), spy.diff_pair(2.0)
    module["parabola"].bwds(x, number, _result=seed_of(module, g))
    same(x.grad, 4 * a * g)
    assert number.grad == (a * a * g).sum()
    module.shifted.bwds(x, _result=seed_of(module, g))
    same(x.grad, 4 * a * g + (6 * a + 1) * g)


def test_a_generic_struct_of_arrays_of_arrays_loads(backend_name: str) -> None:
    # In a process of its own: one that ends takes the tests along.
    text = f"""if True:
        import slangpy_rt as spy
        with spy.Device({backend_name!r}) as device:
            source = "float f(float x) {{ return x; }} struct A<let N : int> {{ float x[2][N]; }}"
            assert spy.Module.load_from_source(device, "nested_arrays", source).f(2.0) == 2
    """
    subprocess.run([sys.executable, "-c", text], check=True, capture_output=True)
