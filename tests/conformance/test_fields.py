"""Views of one field of Tensors of structs: values, gradients, and what is no field."""

from __future__ import annotations

import numpy as np
import pytest

import slangpy_rt as spy

SLANG = """
struct Inner { int k; float2x2 m; };
struct Ball { float3 center; bool shown; float radius; Inner inner; int ids[3]; };
struct Plain : IDifferentiable { float3 c; float r; };
float volume(Ball b) { return b.radius * b.radius * b.radius; }
[Differentiable] float product(Plain p) { return p.r * p.c.x; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "fields", SLANG)


def test_reading_and_writing(module: spy.Module) -> None:
    device = module.device
    t = spy.Tensor.zeros(device, (2, 4), module.Ball)
    host = t.to_numpy()
    t["center"][1, 1:3] = spy.float3(1, 2, 3)
    host["center"][1, 1:3] = [1, 2, 3]
    t["radius"] = 2.0
    host["radius"] = 2
    t["shown"][0] = [True, False, True, True]
    host["shown"][0] = [True, False, True, True]
    t["inner"]["k"][...] = np.arange(8, dtype=np.int32).reshape(2, 4)
    host["inner"]["k"] = np.arange(8).reshape(2, 4)
    t[:, ::2]["inner"]["m"][...] = 0.5
    host["inner"]["m"][:, ::2] = 0.5
    np.testing.assert_array_equal(t.to_numpy(), host)
    for name, dtype in (("center", "float3"), ("shown", "bool"), ("radius", "float"), ("ids", "int[3]")):
        assert t[name].dtype.name == dtype and t[name].shape == (2, 4)
        np.testing.assert_array_equal(t[name].to_numpy(), host[name])
        np.testing.assert_array_equal(t[:, ::-2][name].to_numpy(), host[:, ::-2][name])
    np.testing.assert_array_equal(t["inner"]["m"].to_numpy(), host["inner"]["m"])
    assert t["inner"]["k"].sum().item() == 28
    np.testing.assert_array_equal((t["center"] * 2).to_numpy(), host["center"] * 2)
    np.testing.assert_array_equal(module.volume(t, _result="numpy"), np.full((2, 4), 8, np.float32))


def test_gradients(module: spy.Module) -> None:
    device = module.device
    p = spy.Tensor.zeros(device, 3, module.Plain).with_grads()
    p["r"] = 3.0
    p["c"][...] = spy.float3(1, 2, 4)
    y = spy.Tensor.zeros(device, 3).with_grads(grad_in=spy.Tensor.full(device, 3, 1.0))
    module.product.bwds(p, _result=y)
    np.testing.assert_array_equal(p["r"].grad.to_numpy(), [1, 1, 1])
    np.testing.assert_array_equal(p["c"].grad.to_numpy(), [[3, 0, 0]] * 3)


def test_vectors_as_operands(device: spy.Device) -> None:
    a = np.arange(12, dtype=np.float32).reshape(4, 3)
    t, one = spy.Tensor.from_numpy(device, a, "float3"), spy.float3(1, 2, 3)
    np.testing.assert_array_equal((t + one).to_numpy(), a + np.float32([1, 2, 3]))
    np.testing.assert_array_equal((one - t).to_numpy(), np.float32([1, 2, 3]) - a)
    assert (t + one).dtype.name == "float3"
    np.testing.assert_array_equal((t == one).to_numpy(), a == [1, 2, 3])


def test_what_is_no_field(module: spy.Module) -> None:
    t = spy.Tensor.zeros(module.device, 3, module.Ball)
    with pytest.raises(
        IndexError, match=r"'colour' is no field of 'Ball', which has center, shown, radius, inner, ids\."
    ):
        t["colour"]
    with pytest.raises(IndexError, match=r"'x' is no field of 'float3', which has no fields\."):
        t["center"]["x"]
    with pytest.raises(IndexError, match="index a device array"):
        t["center", 0]
