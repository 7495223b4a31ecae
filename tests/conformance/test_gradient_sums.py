"""Gradients that many elements add to: how much of the sum is lost, against sums in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import every_device, needs

TEXT = """
import slangpy_rt;
#define S SCALAR
[Differentiable] S number(no_diff S x, S w) { return x * w; }
[Differentiable] S vectors(no_diff S x, vector<S, 3> w) { return x * (w.x + 2 * w.y - w.z); }
[Differentiable] S arrays(no_diff S x, S w[3]) { return x * (w[0] + 2 * w[1] - w[2]); }
[Differentiable] S once(no_diff S x, DiffTensor<S, 1> w) { return x * w[0]; }
[Differentiable] S many(no_diff S x, no_diff int k, DiffTensor<S, 1> w) { return x * w[k]; }
struct Pair : IDifferentiable { S a; vector<S, 2> b; }
[Differentiable] S structs(no_diff S x, Pair w) { return x * (w.a + 2 * w.b.x - w.b.y); }
[Differentiable] S both(no_diff S x, S v, S w) { return x * (v + 2 * w); }
"""
FORMS = ("number", "rows", "columns", "vectors", "arrays", "once", "many", "structs", "both")


def lost(device: spy.Device, form: str, scalar: str, count: int, value: float) -> float:
    """Return the largest error of a gradient of `count` equal terms, relative to the gradient."""
    module: Any = spy.Module.load_from_source(device, f"test_gradient_sums_{scalar}", TEXT.replace("SCALAR", scalar))
    dtype = np.dtype(np.float16 if scalar == "half" else np.float32)
    shape = {"rows": (4, count // 4), "columns": (count // 4, 4)}.get(form, (count,))
    x = spy.Tensor.full(device, shape, value, scalar)
    seed = spy.Tensor.empty(device, shape, scalar).with_grads(grad_in=spy.Tensor.full(device, shape, 1, scalar))

    def held(*dims: int, kind: str = scalar) -> spy.Tensor:
        return spy.Tensor.from_numpy(device, np.ones(dims, dtype), kind).with_grads()

    terms = count * float(dtype.type(value))
    three = terms * np.array([1, 2, -1])
    if form == "structs":
        parts = {"a": held(1), "b": held(1, 2, kind=f"{scalar}2")}
        module.structs.bwds(x, parts, _result=seed)
        found = np.concatenate([parts[name].grad.to_numpy().reshape(-1) for name in ("a", "b")])
        wanted = three
    elif form == "both":
        w = held(1)
        module.both.bwds(x, w, w, _result=seed)
        found, wanted = w.grad.to_numpy(), np.array([3 * terms])
    elif form == "many":
        w = held(4)
        module.many.bwds(x, np.arange(count, dtype=np.int32) % 4, w, _result=seed)
        found, wanted = w.grad.to_numpy(), np.full(4, terms / 4)
    elif form == "once":
        w = held(4)
        module.once.bwds(x, w, _result=seed)
        found, wanted = w.grad.to_numpy(), np.array([terms, 0, 0, 0])
    elif form in ("vectors", "arrays"):
        w = held(1, 3, kind=f"{scalar}3" if form == "vectors" else f"{scalar}[3]")
        module[form].bwds(x, w, _result=seed)
        found, wanted = w.grad.to_numpy().reshape(3), three
    else:
        w = held(*{"rows": (4, 1), "columns": (1, 4)}.get(form, (1,)))
        module.number.bwds(x, w, _result=seed)
        found = w.grad.to_numpy()
        wanted = np.full(found.shape, count * float(dtype.type(value)) / found.size)
    return float(np.abs(found.astype(np.float64) - wanted).max() / np.abs(wanted).max())


@needs("half")
@every_device
@pytest.mark.parametrize("form", FORMS)
def test_sums_of_half(device: spy.Device, form: str) -> None:
    """A half to which 0.001 is added stays at 4; the sum here is 32.8."""
    assert lost(device, form, "half", 1 << 15, 0.001) < 1.1e-3


@every_device
@pytest.mark.parametrize("form", FORMS)
def test_sums_of_float(device: spy.Device, form: str) -> None:
    """One sum of 2^20 times 0.1, a term after the other, is 1e-2 off."""
    # Ranges of the CPU add up pieces of 2048; of two gradients in one place a GPU's 1024 groups make 2048 additions.
    assert lost(device, form, "float", 1 << 20, 0.1) < (5e-5 if device.backend.target.entry == "range" else 2e-5)


@needs("double")
@every_device
def test_exact_sums_of_pieces(device: spy.Device) -> None:
    """What threads of a deterministic device add up by themselves loses no more."""
    with spy.Device(device.backend.name, deterministic=True) as opened:
        for form in ("number", "rows", "once"):
            assert lost(opened, form, "float", 1 << 20, 0.1) < 5e-5


@needs("half")
def test_sums_of_half_are_added_to_the_gradient(device: spy.Device) -> None:
    module: Any = spy.Module.load_from_source(device, "test_gradient_sums_half", TEXT.replace("SCALAR", "half"))
    w = spy.Tensor.from_numpy(device, np.ones(1, np.float16)).with_grads()
    w.grad.copy_from_numpy(np.full(1, 7, np.float16))
    x = spy.Tensor.full(device, (64,), 0.25, "half")
    ones = spy.Tensor.full(device, (64,), 1, "half")
    for _ in range(2):
        module.number.bwds(x, w, _result=spy.Tensor.empty(device, (64,), "half").with_grads(grad_in=ones))
    assert w.grad.to_numpy().tolist() == [39]


@needs("half")
def test_sums_of_half_in_a_list(device: spy.Device) -> None:
    module: Any = spy.Module.load_from_source(device, "test_gradient_sums_half", TEXT.replace("SCALAR", "half"))
    w = spy.Tensor.from_numpy(device, np.ones(1, np.float16)).with_grads()
    x = spy.Tensor.full(device, (64,), 0.25, "half")
    seed = spy.Tensor.empty(device, (64,), "half").with_grads(grad_in=x)
    with pytest.raises(spy.BindError) as caught:
        module.number.bwds.append_to(spy.CommandList(device), x, w, _result=seed)
    assert str(caught.value) == (
        "backward derivative of half number(half x, half w): a command list does not take 'w.grad_out': nothing "
        "would move it when the list runs. Use a Tensor or an NDBuffer; bwds has to be called by itself on a "
        "deterministic device, and where it adds up gradients of half."
    )
