"""What a call does not write stays as it was: the rest of its arrays, and gradients of what it does not read.

Each array is filled with a number that no result has; what is read and what is expected comes from NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import slangpy_rt as spy
from tests.depth import every_case, one_device

pytestmark = one_device

Array = npt.NDArray[np.float32]
TEXT = """
struct Both { float x; float y; }
float twice(float a) { return 2 * a; }
void give(float a, out float b) { b = 2 * a; }
void lift(inout float a, float b) { a += b; }
float3 three(float a) { return float3(a, 2 * a, 3 * a); }
Both both(float a) { return { a, 2 * a }; }
void store(RWTensor<float, 1> to, int i, float x) { to[i] = x; }
[Differentiable] float mul(float a, float b) { return a * b; }
[Differentiable] float pick(DiffTensor<float, 1> a, int i) { return a[i] * a[i]; }
[shader("compute")] [numthreads(64, 1, 1)]
void fill(uint3 t : SV_DispatchThreadID, RWTensor<float, 1> to, uint n) { if (t.x < n) to[t.x] = t.x; }
"""
REST = np.float32(-77)
X = np.arange(1, 4, dtype=np.float32)
# Places of a 3 x 3 array with room around it, which a call of three elements or of 3 x 3 writes.
PARTS: dict[str, Any] = {
    "rows": np.s_[2:5, 2:5],
    "steps": np.s_[1:6:2, 1:6:2],
    "backwards": np.s_[5:2:-1, 4:1:-1],
    "last": np.s_[4:, 4:],
    "columns": np.s_[:3, 3:6],
}


@pytest.fixture(scope="module")
def module(device: spy.Device) -> Any:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_untouched", TEXT)


def rest(*shape: int) -> Array:
    return np.full(shape, REST, np.float32)


def tensor(device: spy.Device, values: Any) -> spy.Tensor:
    return spy.Tensor.from_numpy(device, np.asarray(values, np.float32))


def host(value: Any) -> Any:
    return value.to_numpy() if isinstance(value, spy.NDBuffer) else np.asarray(value)


KINDS: dict[str, Callable[[spy.Device, Array], Any]] = {
    "a tensor": tensor,
    "NumPy's": lambda device, values: values.copy(),
    "torch's": lambda device, values: torch.from_numpy(values.copy()),
}


@every_case
@pytest.mark.parametrize("kind", KINDS)
def test_off_a_diagonal(device: spy.Device, module: Any, kind: str) -> None:
    made = KINDS[kind]
    x, wanted = made(device, X), rest(3, 3)
    np.fill_diagonal(wanted, 2 * X)
    to = made(device, rest(3, 3))
    module.twice.map((0,), _result=(0, 0))(x, _result=to)
    np.testing.assert_array_equal(host(to), wanted)
    to = made(device, rest(3, 3))
    module.give.map((0,), (0, 0))(x, to)
    np.testing.assert_array_equal(host(to), wanted)
    to = made(device, rest(3, 3))
    module.lift.map((0, 0), (0,))(to, x)
    np.fill_diagonal(wanted, REST + X)
    np.testing.assert_array_equal(host(to), wanted)


@every_case
@pytest.mark.parametrize("part", PARTS)
def test_around_a_part(device: spy.Device, module: Any, part: str) -> None:
    place = PARTS[part]
    square = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    makers = list(KINDS.values()) if part != "backwards" else list(KINDS.values())[:2]  # torch has no such steps
    for made in makers:
        x, to, wanted = made(device, square), made(device, rest(7, 7)), rest(7, 7)
        wanted[place] = 2 * square
        module.twice(x, _result=to[place])
        np.testing.assert_array_equal(host(to), wanted)
        module.give(x, to[place])
        np.testing.assert_array_equal(host(to), wanted)
        module.lift(to[place], x)
        wanted[place] += square
        np.testing.assert_array_equal(host(to), wanted)


def test_between_vectors_and_structs(device: spy.Device, module: Any) -> None:
    wide, wanted = tensor(device, rest(7, 3)), rest(7, 3)
    wanted[1:6:2] = X[:, None] * X
    rows = spy.Tensor.from_numpy(device, rest(7, 3), "float3")
    module.three(X, _result=rows[1:6:2])
    np.testing.assert_array_equal(rows.to_numpy(), wanted)
    module.twice.map((0,), _result=(0,))(X, _result=wide[1:6:2, 1])
    wanted = rest(7, 3)
    wanted[1:6:2, 1] = 2 * X
    np.testing.assert_array_equal(wide.to_numpy(), wanted)
    pairs = spy.Tensor.full(device, 5, {"x": REST, "y": REST}, module.Both)
    module.both(X, _result=pairs[1:4])
    np.testing.assert_array_equal(pairs.to_numpy()["x"], [REST, *X, REST])
    np.testing.assert_array_equal(pairs.to_numpy()["y"], [REST, *(2 * X), REST])


@pytest.mark.parametrize("n", [1, 63, 65, 130])
def test_behind_the_last_element(device: spy.Device, module: Any, n: int) -> None:
    """Threads of the last group that have no element, and those of a kernel that was dispatched over more before."""
    to = tensor(device, rest(256))
    x = np.arange(n, dtype=np.float32)
    wanted = rest(256)
    wanted[3 : n + 3] = 2 * x
    module.twice(tensor(device, x), _result=to[3 : n + 3])
    np.testing.assert_array_equal(to.to_numpy(), wanted)
    module.store(to, np.arange(n, dtype=np.int32) + 100, x)
    wanted[100 : n + 100] = x
    np.testing.assert_array_equal(to.to_numpy(), wanted)
    to = tensor(device, rest(256))
    module.fill.dispatch(192, to, 192)
    to.copy_from(rest(256))
    module.fill.dispatch(n, to, n)
    wanted = rest(256)
    wanted[:n] = x
    np.testing.assert_array_equal(to.to_numpy(), wanted)
    to[5 : n + 5] = 1
    wanted[5 : n + 5] = 1
    to[n + 6 : n + 20 : 3] += 2
    wanted[n + 6 : n + 20 : 3] += 2
    np.testing.assert_array_equal(to.to_numpy(), wanted)


def test_gradients_off_a_diagonal(device: spy.Device, module: Any) -> None:
    square = np.arange(9, dtype=np.float32).reshape(3, 3)
    function, wanted = module.mul.map((0, 0), (0,)), np.diag(X)
    a = torch.from_numpy(square.copy()).requires_grad_()
    function(a, torch.from_numpy(X)).sum().backward()
    np.testing.assert_array_equal(a.grad, wanted)
    function(a, torch.from_numpy(X)).sum().backward()
    np.testing.assert_array_equal(a.grad, 2 * wanted)
    seed = spy.Tensor.zeros(device, 3).with_grads(grad_in=tensor(device, np.ones(3)))
    t, x = tensor(device, square).with_grads(), tensor(device, X)
    # The first gradient of an array that has none yet, and one more.
    for times in (1, 2):
        function.bwds(t, x, _result=seed)
        np.testing.assert_array_equal(t.grad.to_numpy(), times * wanted)
    given = tensor(device, np.full((3, 3), 5))
    function.bwds(tensor(device, square).with_grads(grad_out=given), x, _result=seed)
    np.testing.assert_array_equal(given.to_numpy(), 5 + wanted)
    value, found = function.value_and_grad(tensor(device, square), x)
    np.testing.assert_array_equal(found["a"].to_numpy(), wanted)
    np.testing.assert_array_equal(value.to_numpy(), (np.diag(square) * X).sum())


def test_gradients_of_parts(device: spy.Device, module: Any) -> None:
    """A gradient is added to where the call reads, and nowhere else."""
    whole = np.arange(12, dtype=np.float32)
    seed = spy.Tensor.zeros(device, 3).with_grads(grad_in=tensor(device, np.ones(3)))
    for part in (np.s_[2:5], np.s_[1:6:2], np.s_[8:5:-1], np.s_[9:]):
        into, x = tensor(device, np.full(12, 5)), tensor(device, X)
        wanted = np.full(12, 5, np.float32)
        wanted[part] += X
        module.mul.bwds(tensor(device, whole[part]).with_grads(grad_out=into[part]), x, _result=seed)
        np.testing.assert_array_equal(into.to_numpy(), wanted)
        if (part.step or 1) > 0:
            a = torch.from_numpy(whole.copy()).requires_grad_()
            module.mul(a[part], torch.from_numpy(X)).sum().backward()
            np.testing.assert_array_equal(a.grad, wanted - 5)
    at = np.array([1, 4, 4], np.int32)
    t = tensor(device, whole).with_grads()
    wanted = np.zeros(12, np.float32)
    np.add.at(wanted, at, 2 * whole[at])
    for times in (1, 2):
        module.pick.bwds(t, at, _result=seed)
        np.testing.assert_array_equal(t.grad.to_numpy(), times * wanted)
    # The array itself, the seed and the other argument are read alone.
    np.testing.assert_array_equal(t.to_numpy(), whole)
    np.testing.assert_array_equal(seed.grad_in.to_numpy(), np.ones(3))
