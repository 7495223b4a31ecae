"""Gradients to which very many threads add: sums in float64 tell how much of the terms is lost.

One float to which 2^18 times 0.1 is added, a term after the other, is 2.5e-3 off; waves that add up their lanes first
leave 1e-4.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.conformance._cuda_text import compiled_for_cuda
from tests.depth import every_device, needs

COUNT = 1 << 18
# The CPU adds up pieces of 2048 elements, whose own sums lose 2e-5; elsewhere 1024 terms at most follow each other.
LOST = 2e-5
TEXT = """
import slangpy_rt;
[Differentiable] float many(no_diff float x, no_diff int k, DiffTensor<float, 1> w) { return x * w[k]; }
[Differentiable] float half_many(no_diff float x, no_diff int k, DiffTensor<half, 1> w) { return x * float(w[k]); }
[Differentiable] float vectors(no_diff float x, no_diff int k, DiffTensor<float3, 1> w)
{
    return x * (w[k].x + 2 * w[k].y - w[k].z);
}
[Differentiable] float matrix(no_diff float x, no_diff int k, DiffTensor<float, 2> w) { return x * w[k / 2, k % 2]; }
[Differentiable] float both(no_diff float x, no_diff int k, DiffTensor<float, 1> v, RWDiffTensor<float, 1> w)
{
    return x * v[k] + 2 * x * w[3 - k];
}
[Differentiable] float product(no_diff float x, float w) { return x * w; }
struct Model { DiffTensor<float, 1> w; float scale; }
[Differentiable] float inside(no_diff float x, no_diff int k, Model m) { return x * m.w[k] * m.scale; }
"""


def load(device: spy.Device) -> Any:
    return spy.Module.load_from_source(device, "test_gradient_copies", TEXT)


def carrying(device: spy.Device, *shape: int, kind: str = "float") -> spy.Tensor:
    return spy.Tensor.empty(device, shape, kind).with_grads()


class Terms:
    """The terms of a sum: 0.1 for places in no order, and their sums for each of four places."""

    def __init__(self, device: spy.Device, shape: tuple[int, ...] = (COUNT,), value: float = 0.1) -> None:
        rng = np.random.default_rng(0)
        places = rng.integers(0, 4, shape).astype(np.int32)
        self.x = spy.Tensor.full(device, shape, value)
        self.k = spy.Tensor.from_numpy(device, places)
        ones = spy.Tensor.full(device, shape, 1)
        self.seed = spy.Tensor.empty(device, shape).with_grads(grad_in=ones)
        self.sums = np.bincount(places.reshape(-1), minlength=4) * float(np.float32(value))


def error(found: Any, wanted: Any) -> float:
    wanted = np.asarray(wanted, np.float64)
    return float(np.abs(np.asarray(found, np.float64).reshape(wanted.shape) - wanted).max() / np.abs(wanted).max())


@every_device
def test_places_of_a_tensor(device: spy.Device) -> None:
    terms, w = Terms(device), carrying(device, 4)
    for times in (1, 2):
        load(device).many.bwds(terms.x, terms.k, w, _result=terms.seed)
        assert error(w.grad.to_numpy(), times * terms.sums) < LOST


@every_device
def test_one_place(device: spy.Device) -> None:
    terms, w = Terms(device), carrying(device, 1)
    load(device).many.bwds(terms.x, 0, w, _result=terms.seed)
    assert error(w.grad.to_numpy(), terms.sums.sum()) < LOST


@needs(lambda case: ["half"] if case["form"] == "half" else [])
@every_device
@pytest.mark.parametrize("form", ["matrix", "transposed", "half", "vectors", "both", "inside"])
def test_forms(device: spy.Device, form: str) -> None:
    terms, module = Terms(device), load(device)
    x, k = terms.x, terms.k
    wanted: Any = terms.sums
    if form == "half":
        terms = Terms(device, value=1 / 128)
        w = carrying(device, 4, kind="half")
        module.half_many.bwds(terms.x, terms.k, w, _result=terms.seed)
        # 2^-11 is what a half itself loses.
        assert error(w.grad.to_numpy(), terms.sums) < 5e-4
        return
    if form == "vectors":
        w = carrying(device, 4, kind="float3")
        module.vectors.bwds(x, k, w, _result=terms.seed)
        wanted = np.outer(terms.sums, [1, 2, -1])
    elif form == "both":
        v, w = carrying(device, 4), carrying(device, 4)
        module.both.bwds(x, k, v, w, _result=terms.seed)
        assert error(v.grad.to_numpy(), wanted) < LOST
        wanted = 2 * terms.sums[::-1]
    elif form == "inside":
        w, wanted = carrying(device, 4), 2 * terms.sums
        module.inside.bwds(x, k, {"w": w, "scale": 2.0}, _result=terms.seed)
    else:
        w = carrying(device, 2, 2)
        module.matrix.bwds(x, k, w if form == "matrix" else w.T, _result=terms.seed)
        wanted = terms.sums.reshape(2, 2) if form == "matrix" else terms.sums.reshape(2, 2).T
    assert error(w.grad.to_numpy(), wanted) < LOST


@every_device
@pytest.mark.parametrize("shapes", [((4, 1), (4, 1 << 18)), ((1, 4), (1 << 18, 4)), ((1, 8, 1), (512, 8, 256))])
def test_broadcast_rows_and_columns(device: spy.Device, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    terms, w = Terms(device, shapes[1]), carrying(device, *shapes[0])
    load(device).product.bwds(terms.x, w, _result=terms.seed)
    assert error(w.grad.to_numpy(), np.full(shapes[0], terms.sums.sum() / w.grad.to_numpy().size)) < LOST


@every_device
def test_groups_of_two_dimensions(device: spy.Device) -> None:
    terms, w, module = Terms(device, (512, 512)), carrying(device, 4), load(device)
    module.many.bwds.group_size((8, 8))(terms.x, terms.k, w, _result=terms.seed)
    assert error(w.grad.to_numpy(), terms.sums) < LOST


@every_device
def test_a_tensor_for_each_row(device: spy.Device) -> None:
    """Each row of the call has a tensor of its own in a batch."""
    terms, module = Terms(device, (2, COUNT)), load(device)
    w = carrying(device, 2, 4)
    module.many.map((0, 1), (0, 1), (0,)).bwds(terms.x, terms.k, w, _result=terms.seed)
    wanted = [np.bincount(row, minlength=4) * float(np.float32(0.1)) for row in terms.k.to_numpy()]
    assert error(w.grad.to_numpy(), wanted) < LOST


@every_device
def test_calls_in_a_list(device: spy.Device) -> None:
    terms, module = Terms(device), load(device)
    first, second = carrying(device, 4), carrying(device, 4)
    commands = device.command_list()
    for w in (first, second, first):
        module.many.bwds.append_to(commands, terms.x, terms.k, w, _result=terms.seed)
    for _ in range(2):
        commands.submit()
    assert error(first.grad.to_numpy(), 4 * terms.sums) < LOST
    assert error(second.grad.to_numpy(), 2 * terms.sums) < LOST
    third = carrying(device, 4)
    commands.update(1, terms.x, terms.k, third, _result=terms.seed)
    commands.submit()
    assert error(third.grad.to_numpy(), terms.sums) < LOST
    assert error(second.grad.to_numpy(), 2 * terms.sums) < LOST
    assert error(first.grad.to_numpy(), 6 * terms.sums) < LOST


@every_device
def test_threads_of_the_host_and_streams(device: spy.Device) -> None:
    terms, module = Terms(device), load(device)
    gradients = [carrying(device, 4) for _ in range(4)]
    module.many.bwds(terms.x, terms.k, carrying(device, 4), _result=terms.seed)

    def add(w: spy.Tensor, function: Any) -> None:
        for _ in range(4):
            function(terms.x, terms.k, w, _result=terms.seed)

    workers = [threading.Thread(target=add, args=(w, module.many.bwds)) for w in gradients[:2]]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if "streams" in device.caps.features:
        for w in gradients[2:]:
            add(w, module.many.bwds.on(device.stream()))
    device.synchronize()
    for w in gradients[: 4 if "streams" in device.caps.features else 2]:
        assert error(w.grad.to_numpy(), 4 * terms.sums) < LOST


@every_device
def test_an_interrupt_between_the_kernels(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call left in the copies is not added to the gradients of the next one."""
    terms, module, launched = Terms(device), load(device), []
    module.many.bwds(terms.x, terms.k, carrying(device, 4), _result=terms.seed)
    launch = device.launch

    def once(*args: Any) -> None:
        if launched:
            raise KeyboardInterrupt
        launched.append(args)
        launch(*args)

    monkeypatch.setattr(device, "launch", once)
    with contextlib.suppress(KeyboardInterrupt):
        module.many.bwds(terms.x, terms.k, carrying(device, 4), _result=terms.seed)
    monkeypatch.setattr(device, "launch", launch)
    w = carrying(device, 4)
    module.many.bwds(terms.x, terms.k, w, _result=terms.seed)
    assert error(w.grad.to_numpy(), terms.sums) < LOST


def test_kernels_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(device: spy.Device, module: Any) -> None:
        terms = Terms(device)
        module.many.bwds(terms.x, terms.k, carrying(device, 4), _result=terms.seed)
        tiled = Terms(device, (512, 512))
        module.many.bwds.group_size((8, 8))(tiled.x, tiled.k, carrying(device, 4), _result=tiled.seed)
        terms = Terms(device, (4, 1 << 18))
        module.product.bwds(terms.x, carrying(device, 4, 1), _result=terms.seed)
        assert "_spy_copyOf" in module.product.bwds.source(terms.x, carrying(device, 4, 1), _result=terms.seed)

    assert compiled_for_cuda(TEXT, calls, monkeypatch) >= 4
