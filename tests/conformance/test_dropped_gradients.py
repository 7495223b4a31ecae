"""Gradients of fields whose struct is not IDifferentiable: Slang computes none, and they are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import one_device

SLANG = """
import slangpy_rt;
struct P { float k; float2 v; }
struct Q : IDifferentiable { float a; P p; no_diff P q; }
struct Table { DiffTensor<float, 1> w; float s; no_diff float t; }
[Differentiable] float plain(P p, float x) { return p.k * x; }
[Differentiable] float constant(no_diff P p, float x) { return p.k * x; }
[Differentiable] float nested(Q q, float x) { return q.a * x * q.p.k * q.q.k; }
[Differentiable] float list(P ps[2], float x) { return ps[0].k * x + ps[1].k; }
[Differentiable] float table(Table t, no_diff int i) { return t.w[i] * t.s * t.t; }
"""
VALUES = np.array([3, 4], np.float32)


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "dropped", SLANG)


def tensor(module: spy.Module, values: Any = VALUES) -> spy.Tensor:
    """A Tensor with a gradient of zeros."""
    return spy.Tensor.from_numpy(module.device, np.asarray(values, np.float32)).with_grads()


def seed(module: spy.Module) -> spy.Tensor:
    return spy.Tensor.empty(module.device, (2,), "float").with_grads(
        grad_in=spy.Tensor.ones(module.device, (2,), "float")
    )


def p(k: Any) -> dict[str, Any]:
    return {"k": k, "v": [0.0, 0.0]}


def cases(module: spy.Module) -> dict[str, tuple[str, Callable[[spy.Tensor], Any], str]]:
    """By a name: the function, its first argument with a gradient in it, and the place of that."""
    indices = {"w": tensor(module), "t": 1.0}
    return {
        "field": ("plain", lambda k: p(k), "p.k"),
        "field of a field": ("nested", lambda k: {"a": 1.0, "p": p(k), "q": p(1.0)}, "q.p.k"),
        "element": ("list", lambda k: [p(1.0), p(k)], "ps[1].k"),
        "beside a DiffTensor": ("table", lambda k: {**indices, "s": k}, "t.s"),
    }


@one_device
@pytest.mark.parametrize("name", ["field", "field of a field", "element", "beside a DiffTensor"])
def test_gradients_that_slang_drops_are_refused(module: spy.Module, name: str) -> None:
    function, make, place = cases(module)[name]
    f, k = module[function], tensor(module)
    other = np.arange(2, dtype=np.int32) if function == "table" else tensor(module)
    pair = spy.Tensor.zeros_like(k)
    for call in (
        lambda: f.bwds(make(k), other, _result=seed(module)),
        lambda: f.fwds(make(k.with_grads(grad_in=pair)), other),
        lambda: f.bwds.append_to(module.device.command_list(), make(k), other, _result=seed(module)),
    ):
        with pytest.raises(spy.BindError, match=r"is not IDifferentiable\. Write 'struct") as caught:
            call()
        assert f"argument '{place}' carries a gradient" in str(caught.value)
    with spy.grad_tape(), pytest.raises(spy.BindError, match=f"argument '{place.replace('[', '.')[:2]}"):
        f(make(k), other)
    assert (k.grad.to_numpy() == 0).all()
    f(make(k.detach()), other)
    report = f.check_grads(make(k), other)
    assert report.ok and "is not IDifferentiable" in report[place].reason


@one_device
def test_declared_constants_may_carry_gradients(module: spy.Module) -> None:
    k, x = tensor(module), tensor(module)
    module.constant.bwds(p(k), x, _result=seed(module))
    module.nested.bwds({"a": 1.0, "p": p(1.0), "q": p(k)}, x, _result=seed(module))
    np.testing.assert_array_equal(x.grad.to_numpy(), 2 * VALUES)
    assert (k.grad.to_numpy() == 0).all()
    w = tensor(module)
    module.table.bwds({"w": w, "s": 2.0, "t": k}, np.arange(2, dtype=np.int32), _result=seed(module))
    np.testing.assert_array_equal(w.grad.to_numpy(), 2 * VALUES)
    with spy.grad_tape() as tape:
        tape.backward(module.constant(p(k), x).sum())
    assert (k.grad.to_numpy() == 0).all()
