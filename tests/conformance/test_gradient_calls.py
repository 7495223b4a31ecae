"""Derivatives are called as functions are: names, options, generators, bound calls, edited files, threads."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _gradients import folded, integers, load, modes, same, seed_of, tensor

import slangpy_rt as spy
from tests.depth import every_device, one_device

# What these test does not depend on the device.
pytestmark = one_device

# Longer than a device waits between two looks at a file.
PAUSE = 0.02


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions of ``_gradients``."""
    return load(device)


# Ways to call


@every_device
def test_default_and_named_arguments(module: spy.Module) -> None:
    a, g = integers(30), integers(30, seed=1)
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    module.last.bwds(x, _result=r)
    same(x.grad, 4 * g)
    module.last.bwds(x, b=2.0, _result=r)
    module.last.bwds(b=x, a=3.0, _result=r)
    same(x.grad, 9 * g)
    module.last.bwds(x, 1.0, out=r)
    same(x.grad, 10 * g)


@every_device
def test_uniforms_and_constants(module: spy.Module) -> None:
    a, g = integers(30), integers(30, seed=1)
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    module.gained.set(gain=5.0).bwds(x, _result=r)
    same(x.grad, 10 * a * g)
    module.gained.bwds.set(gain=1.0)(x, _result=r)
    same(x.grad, 12 * a * g)
    module.gained.set(gain=1.0).constants({"power": 3}).bwds(x, _result=r)
    same(x.grad, (12 * a + 3 * a * a) * g)
    module.gained.bwds.constants({"power": 1}).set(gain=2.0)(x, _result=r)
    same(x.grad, (12 * a + 3 * a * a + 2) * g)


@pytest.mark.parametrize("size", [1, 32, (8, 4), (2, 3, 5)])
def test_group_sizes(module: spy.Module, size: Any) -> None:
    a, b, g = integers(3, 7, 50), integers(7, 1, seed=1), integers(3, 7, 50, seed=2)
    x, y, p = tensor(module, a).with_grads(), tensor(module, b).with_grads(), spy.diff_pair(2.0)
    module.three.group_size(size).bwds(x, y, p, _result=seed_of(module, g))
    same(x.grad, b * g)
    same(y.grad, ((a + 2) * g).sum((0, 2))[:, None])
    assert p.grad == (b * g).sum()


def test_generators_beside_gradients(module: spy.Module) -> None:
    a, g = integers(3, 4), integers(3, 4, seed=1)
    y, x = np.indices((3, 4))
    for index in (spy.call_id(), spy.grid((3, 4)), spy.grid((-1, -1))):
        t = tensor(module, a).with_grads()
        module.at.bwds(t, index, _result=seed_of(module, g))
        same(t.grad, g * (10 * y + x + 1))
    one = tensor(module, [2.0]).with_grads()
    module.at.bwds(one, spy.grid((3, 4)), _result=spy.diff_pair(None, 1.0))
    same(one.grad, [(10 * y + x + 1).sum()])


def test_random_numbers_beside_gradients(module: spy.Module) -> None:
    noise = spy.rand_float(1, 2, seed=7)
    drawn = np.asarray(module.noisy(tensor(module, np.ones(300, np.float32)), noise))
    assert len(set(drawn.tolist())) > 290
    x, g = tensor(module, integers(300)).with_grads(), integers(300, seed=1)
    module.noisy.bwds(x, noise, _result=seed_of(module, g))
    same(x.grad, drawn * g)


def test_overloads(module: spy.Module) -> None:
    a, g = integers(5, 3), integers(5, 3, seed=1)
    x = tensor(module, a, "float3").with_grads()
    module.over.bwds(x, _result=seed_of(module, g, "float3"))
    same(x.grad, 3 * g)
    y = tensor(module, a[:, 0]).with_grads()
    module.over.bwds(y, _result=seed_of(module, g[:, 0]))
    same(y.grad, 2 * g[:, 0])


def test_every_call_of_a_signature_takes_its_own_values(module: spy.Module) -> None:
    assert module.mul.bwds is module.mul.bwds
    for k in range(1, 5):
        a, b, g = integers(12), integers(12, seed=k), integers(12, seed=k + 10)
        x, p = tensor(module, a).with_grads(), spy.diff_pair(float(k))
        module.three.bwds(x, p, tensor(module, b), _result=seed_of(module, g))
        same(x.grad, k * g)
        assert p.grad == ((a + b) * g).sum()
        module.three.bwds(x, p, tensor(module, b), _result=spy.diff_pair(None, float(k)))
        same(x.grad, k * g + k * k)
    # The gradients lie elsewhere in the same layout.
    x = tensor(module, integers(12))
    for k in range(3):
        gradient = spy.Tensor.zeros(module.device, 12)
        module.copy.bwds(x.with_grads(grad_out=gradient), _result=seed_of(module, integers(12, seed=k)))
        same(gradient, 3 * integers(12, seed=k))


def test_gradients_join_and_leave_between_calls(module: spy.Module) -> None:
    a, b, g = integers(12), integers(12, seed=1), integers(12, seed=2)
    x, y, r = tensor(module, a), tensor(module, b), seed_of(module, g)
    xg, yg = x.with_grads(), y.with_grads()
    for args in ((xg, y), (xg, yg), (x, yg), (xg, yg), (xg, y)):
        module.mul.bwds(*args, _result=r)
    same(xg.grad, 4 * b * g)
    same(yg.grad, 3 * a * g)


def test_bound_calls(module: spy.Module) -> None:
    a, b, g = integers(12), integers(12, seed=1), integers(12, seed=2)
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    y = tensor(module, b)
    replay = module.mul.bwds.bind(x, y, _result=r)
    same(x.grad, np.zeros(12))
    assert replay() is None
    y.copy_from(b + 1)
    replay()
    same(x.grad, (2 * b + 1) * g)
    p = spy.diff_pair(2.0)
    replay = module.mul.bwds.bind(p, y, _result=r)
    replay()
    replay()
    assert p.grad == 2 * ((b + 1) * g).sum()


@pytest.mark.parametrize("other", [2.0, "array"])
def test_bound_calls_keep_the_gradients_of_then(module: spy.Module, other: Any) -> None:
    a, g = integers(12), integers(12, seed=2)
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    y = tensor(module, np.full(12, 2, np.float32)) if other == "array" else other
    replay, total = module.mul.bwds.bind(x, y, _result=r), x.grad
    replay()
    r.grad_in = tensor(module, 10 * g)
    x.grad_out = x.grad_in = tensor(module, np.zeros(12, np.float32))
    replay()
    r.grad_in = x.grad_in = x.grad_out = None
    assert replay() is None
    same(total, 6 * g)
    # Of a result that is returned, the program's own tensor comes back.
    out = tensor(module, np.zeros(12, np.float32)).with_grads()
    forward = module.mul.bind(x, y, _result=out)
    out.grad_in = out.grad_out = None
    assert forward() is out
    same(out, 2 * a)


def test_source_and_explain(module: spy.Module) -> None:
    x, r = spy.Tensor.ones(module.device, 12).with_grads(), seed_of(module, integers(12))
    text = module.mul.bwds.source(x, 2.0, _result=r)
    assert "bwd_diff(_spy_primal)" in text and "a_grad_out" in text and "b_grad_out" not in text
    told = module.mul.bwds.explain(x, 2.0, _result=r)
    assert told.startswith("backward derivative of float mul(float a, float b) on ") and text in told
    assert "fwd_diff(_spy_primal)" in module.mul.fwds.source(x, 2.0)
    # Each gradient has a line of its own, with how it is moved.
    rows = modes(module.split.bwds.explain(x, tensor(module, [1.0]).with_grads(), r, r))
    assert {name: access for name, (_, access) in rows.items()} == {
        "a": "in", "a.grad_out": "accumulate", "b": "in", "b.grad_out": "sum",
        "sum.grad_in": "seed", "product.grad_in": "seed",
    }  # fmt: skip
    assert list(modes(module.mul.fwds.explain(x, 2.0))) == [
        "a", "a.grad_in", "b", "_result", "_result.grad_out",
    ]  # fmt: skip
    # Asking runs nothing.
    same(x.grad, np.zeros(12))


def test_a_gradient_in_ndbuffers(module: spy.Module) -> None:
    b, g = integers(12), integers(12, seed=1)
    x = spy.NDDifferentiableBuffer(module.device, "float", (12,))
    x.copy_from(integers(12, seed=2))
    r = spy.NDDifferentiableBuffer(module.device, "float", (12,))
    r.grad.copy_from(g)
    module.mul.bwds(x, tensor(module, b), _result=r)
    same(x.grad, b * g)
    same(r.grad, g)
    same(x.primal, integers(12, seed=2))
    assert type(x.primal) is spy.NDBuffer
    same(x[3:5].grad, (b * g)[3:5])


# Devices, files and threads


def test_an_edited_function_has_the_new_derivative(device: spy.Device, tmp_path: Path) -> None:
    path = tmp_path / "edited.slang"

    def write(text: str) -> None:
        time.sleep(PAUSE)
        path.write_text(text)

    write("[Differentiable] float f(float x) { return x * x; }")
    module = spy.Module.load_from_file(device, path)
    a, g = integers(30), integers(30, seed=1)
    bwds, fwds, mapped = module.f.bwds, module.f.fwds, module.f.map((0,)).bwds
    x, r = tensor(module, a).with_grads(), seed_of(module, g)
    bwds(x, _result=r)
    mapped(x, _result=r)
    same(x.grad, 4 * a * g)
    write("[Differentiable] float f(float x) { return 5 * x; }")
    bwds(x, _result=r)
    mapped(x, _result=r)
    same(x.grad, 4 * a * g + 10 * g)
    same(fwds(x.with_grads(grad_in=tensor(module, g))).grad, 5 * g)
    # What it no longer has, or no longer is, it says.
    write("float f(float x) { return 5 * x; }")
    with pytest.raises(spy.BindError, match=r"\.bwds needs a derivative; mark the function \[Differentiable\]"):
        bwds(x, _result=r)
    write("[Differentiable] float f(float x, float y) { return x * y; }")
    bwds(x, 3.0, _result=r)
    same(x.grad, 4 * a * g + 13 * g)


def test_a_closed_device_refuses_derivatives(backend_name: str) -> None:
    with spy.Device(backend_name) as device:
        module = spy.Module.load_from_source(device, "closing", "[Differentiable] float f(float x) { return 2 * x; }")
        x, r = tensor(module, integers(30)).with_grads(), seed_of(module, integers(30, seed=1))
        bwds, replay = module.f.bwds, module.f.bwds.bind(x, _result=r)
        bwds(x, _result=r)
        replay()
        same(x.grad, 4 * integers(30, seed=1))
        bwds(x, _result=r)
    for call in (lambda: bwds(x, _result=r), replay, lambda: module.f.bwds(x, _result=r)):
        with pytest.raises(spy.DeviceError, match="was closed"):
            call()


def test_threads_with_arrays_of_their_own(device: spy.Device, module: spy.Module) -> None:
    count, times = 4, 25
    b, g = integers(5000, 7), integers(5000, 7, seed=1)
    y, r = tensor(module, b), seed_of(module, g)
    shapes = ((5000, 7), (7,), (5000, 1), (1,))
    start, failed = threading.Barrier(count), []

    def work(k: int) -> None:
        try:
            a = [integers(*shape, seed=k) for shape in shapes]
            x = [tensor(module, values).with_grads() for values in a]
            number = spy.diff_pair(0.0)
            start.wait()
            for _ in range(times):
                for one in x:
                    module.mul.bwds(one, y, _result=r)
                module.mul.bwds(number, y, _result=r)
            for one, shape in zip(x, shapes, strict=True):
                same(one.grad, times * folded(b * g, shape))
            assert number.grad == times * (b * g).sum()
        except BaseException as error:
            failed.append(error)
            start.abort()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def test_a_derivative_is_one_object(device: spy.Device) -> None:
    """And has the uniforms of the function that was asked for it."""
    text = "uniform float k; [Differentiable] float times(float x) { return k * x; }"
    times = spy.Module.load_from_source(device, "one_derivative", text).times
    assert times.bwds is times.bwds and times.fwds is times.fwds
    twice = times.set(k=2.0)
    assert twice.bwds is twice.bwds
    thrice = twice.set(k=3.0)
    for function, k in ((twice, 2.0), (thrice, 3.0), (twice.group_size(32), 2.0)):
        x = spy.Tensor.from_numpy(device, np.ones(3, np.float32)).with_grads()
        seed = spy.Tensor.from_numpy(device, np.ones(3, np.float32))
        function.bwds(x, _result=spy.Tensor.zeros_like(seed).with_grads(grad_in=seed))
        np.testing.assert_array_equal(x.grad.to_numpy(), np.full(3, k))


def test_gradients_by_name_and_in_one_buffer(device: spy.Device) -> None:
    text = "[Differentiable] float times(float a, float b) { return a * b; }"
    times = spy.Module.load_from_source(device, "named_derivative", text).times
    total = spy.Tensor.zeros(device, 3)
    a, b = (spy.Tensor.from_numpy(device, np.full(3, n, np.float32)) for n in (2, 5))
    seed = spy.Tensor.from_numpy(device, np.ones(3, np.float32))
    out = spy.Tensor.zeros_like(seed).with_grads(grad_in=seed)
    for _ in range(2):
        times.bwds(b=b.with_grads(grad_out=total), a=a.with_grads(grad_out=total), _result=out)
    np.testing.assert_array_equal(total.to_numpy(), np.full(3, 14))
    apart = spy.Tensor.zeros(device, 3)
    times.bwds(b=b.with_grads(grad_out=apart), a=a.with_grads(grad_out=total), _result=out)
    np.testing.assert_array_equal(total.to_numpy(), np.full(3, 19))
    np.testing.assert_array_equal(apart.to_numpy(), np.full(3, 2))
