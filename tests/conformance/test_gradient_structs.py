"""Gradients of structs: arrays of them, their fields one by one, and what of them has no gradient."""

from __future__ import annotations

import numpy as np
import pytest
from _gaps import narrowest
from _gradients import filled, integers, same, seed_of, tensor

import slangpy_rt as spy
from tests.depth import needs, one_device, sampled

# What these test does not depend on the device.
pytestmark = one_device

ONE = np.array([1, 2, 3], np.float32)

SLANG = """
import slangpy_rt;

struct Ray : IDifferentiable { float3 o; float3 d; int id; }
[Differentiable] float hit(Ray r, float t) { return dot(r.o + t * r.d, float3(1, 2, 3)) * float(r.id); }
[Differentiable] Ray make(float3 o, float3 d, no_diff int id) { return { 2 * o, d * d, id }; }
[Differentiable] void move(inout Ray r, float by) { r.o = r.o + r.d * by; r.id += 1; }

struct Leaf : IDifferentiable { float2 at; no_diff float kept; double wide; }
struct Tree : IDifferentiable { Leaf left; float w[2]; Leaf others[2]; TAG tag; }
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
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_gradient_structs", SLANG, defines={"TAG": narrowest(device)})


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


@sampled(6)
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


@needs("double")
def test_nested_structs(module: spy.Module) -> None:
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


@needs("double")
def test_nested_structs_by_their_fields(module: spy.Module) -> None:
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
    with pytest.raises(spy.BindError, match="'Plain' is not IDifferentiable"):
        module.plain.bwds(x, y, _result=seed_of(module, g))
    module.plain.bwds(x.detach(), y, _result=seed_of(module, g))
    same(y.grad, g * p["a"] * p["b"])


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
