"""spy.matmul of arrays like those of an earlier product: contents and addresses differ, or something else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import slangpy_rt as spy
from slangpy_rt.linalg import known_product
from tests.depth import deep, every_case, sampled

MAKERS: dict[str, Callable[[spy.Device, Any], Any]] = {
    "NumPy": lambda device, values: values.copy(),
    "torch": lambda device, values: torch.from_numpy(values.copy()),
    "Tensor": lambda device, values: spy.Tensor.from_numpy(device, values),
}
M, N, K = 33, 20, 17


def whole(rng: np.random.Generator, *shape: int) -> Any:
    """Small whole numbers, whose products are exact."""
    return rng.integers(-4, 5, shape).astype(np.float32)


def numpy_of(array: Any) -> Any:
    return array.to_numpy() if isinstance(array, spy.NDBuffer) else np.asarray(array)


def is_repeated(device: spy.Device, library: str) -> bool:
    """Whether products are known: none is that moves host memory, or whose accesses a debug device checks."""
    return not device.debug and (library == "Tensor" or "zero_copy" in device.caps.features)


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each known product that was asked for, whether it ran."""
    ran: list[bool] = []
    run = known_product.KnownProduct.run

    def noted(self: Any, *values: Any) -> Any:
        found = run(self, *values)
        ran.append(found is not known_product.MISS)
        return found

    monkeypatch.setattr(known_product.KnownProduct, "run", noted)
    return ran


@sampled(12)
@pytest.mark.parametrize("given", [False, True], ids=["new", "given"])
@pytest.mark.parametrize("library", list(MAKERS))
def test_other_contents(device: spy.Device, library: str, given: bool, repeated: list[bool]) -> None:
    made, rng = MAKERS[library], np.random.default_rng(1)
    options: Any = {"alpha": 2, "activation": "relu", "device": device}
    earlier: list[tuple[Any, Any]] = []
    for _ in range(3):
        a, b, bias = whole(rng, M, K), whole(rng, K, N), whole(rng, N)
        out = made(device, np.zeros((M, N), np.float32)) if given else None
        got = spy.matmul(made(device, a), made(device, b), out=out, bias=made(device, bias), **options)
        assert out is None or got is out
        earlier.append((got, np.maximum(2 * (a @ b) + bias, 0)))
    for got, want in earlier:
        np.testing.assert_array_equal(numpy_of(got), want)
    assert repeated == [True, True] * is_repeated(device, library)


@deep
def test_other_options(device: spy.Device) -> None:
    rng = np.random.default_rng(2)
    a, b = whole(rng, N, N), whole(rng, N, N)
    x, y = (spy.Tensor.from_numpy(device, v) for v in (a, b))
    for _ in range(2):
        for alpha in (1, 2, 1.0, 0, -0.0, 0.0, True):
            got = spy.matmul(x, y, alpha=alpha).to_numpy()
            np.testing.assert_array_equal(got, alpha * (a @ b))
            np.testing.assert_array_equal(np.signbit(got), np.signbit(np.float32(alpha) * (a @ b)))
        for ta in (False, True):
            for tb in (False, True):
                got = spy.matmul(x, y, transpose_a=ta, transpose_b=tb).to_numpy()
                np.testing.assert_array_equal(got, (a.T if ta else a) @ (b.T if tb else b))
        for activation in (None, "relu", "tanh"):
            got = spy.matmul(x, y, activation=activation, alpha=0.01).to_numpy()
            sums = 0.01 * (a @ b)
            want = {"relu": np.maximum(sums, 0), "tanh": np.tanh(sums)}.get(activation or "", sums)
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-6)
        for wrong in ("no", None, [True], 1.0):
            with pytest.raises(spy.BindError, match="transpose_a"):
                spy.matmul(x, y, transpose_a=wrong)  # type: ignore[arg-type]
        for wrong in ({}, [], "sin"):
            with pytest.raises(spy.BindError, match="activation"):
                spy.matmul(x, y, activation=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("library", list(MAKERS))
def test_other_layouts(device: spy.Device, library: str) -> None:
    made, rng = MAKERS[library], np.random.default_rng(3)
    for _ in range(2):
        for first in range(4):
            # Parts of one array begin at any multiple of 4 bytes.
            a, b = whole(rng, N, N + 4), whole(rng, N, N)
            left, right = made(device, a), made(device, b)
            got = spy.matmul(left[:, first : first + N], right, device=device)
            np.testing.assert_array_equal(numpy_of(got), a[:, first : first + N] @ b)
    wide = made(device, np.zeros((N, N), np.float64))
    for _ in range(2):
        with pytest.raises(spy.BindError, match="elements of type"):
            spy.matmul(right, wide, device=device)


@every_case
@pytest.mark.parametrize("name", ["a", "b", "out", "bias"])
def test_one_array_in_another_layout(device: spy.Device, name: str) -> None:
    """Of a product that is known, one array comes with other strides: reversed, each second number, transposed."""
    rng = np.random.default_rng(9)
    shapes = {"a": (N, K), "b": (K, M), "out": (N, M), "bias": (M,)}
    views: list[Callable[[Any], Any]] = [lambda x: x, lambda x: x[::-1], lambda x: x[..., ::-1]]
    for view in (*views, lambda x: x.T.copy().T, lambda x: x):
        for turn in range(2):
            host = {key: whole(rng, *shape) for key, shape in shapes.items()}
            given: dict[str, Any] = {key: spy.Tensor.from_numpy(device, value) for key, value in host.items()}
            if turn and name != "out":
                twice = spy.Tensor.from_numpy(device, np.repeat(host[name], 2, -1))
                given[name] = twice[..., ::2]
            else:
                given[name], host[name] = view(given[name]), view(host[name])
            spy.matmul(**given)
            np.testing.assert_array_equal(given["out"].to_numpy(), host["a"] @ host["b"] + host["bias"])


@every_case
@pytest.mark.parametrize("name", ["a", "b", "bias"])
@pytest.mark.parametrize("size", [8, 160])
def test_a_known_product_does_not_write_what_it_reads(
    device: spy.Device, name: str, size: int, repeated: list[bool]
) -> None:
    """After products with an ``out`` of its own, ``out`` is an operand, or begins or ends within one."""
    rng = np.random.default_rng(10)
    for place in (None, 0, 1, size - 1):
        host = {"a": whole(rng, size, size), "b": whole(rng, size, size), "bias": whole(rng, size)}
        given: dict[str, Any] = {key: spy.Tensor.from_numpy(device, value) for key, value in host.items()}
        out = spy.Tensor.zeros(device, (size, size))
        if place is not None:
            # Rows around the operand, so that ``out`` begins before it or after it.
            memory = spy.Tensor.zeros(device, 4 * size * size)
            rows = memory.view((size,) if name == "bias" else (size, size), offset=size * size)
            rows[...] = host[name]
            given[name] = rows
            start = size * size + (place * size if name != "bias" else -place * size)
            out = memory.view((size, size), offset=start)
        wanted = host["a"] @ host["b"] + host["bias"]
        for _ in range(2 if place is None else 1):
            repeated.clear()
            spy.matmul(**given, out=out)
        np.testing.assert_array_equal(out.to_numpy(), wanted)
        if place is None:
            assert repeated == [True] or not is_repeated(device, "Tensor")
        else:
            # The product of copies may be a known one.
            assert repeated[:1] != [True]


@pytest.mark.parametrize("library", list(MAKERS))
def test_shared_memory(device: spy.Device, library: str, repeated: list[bool]) -> None:
    made, rng = MAKERS[library], np.random.default_rng(4)
    for turn in range(3):
        a, b, bias = whole(rng, N, N), whole(rng, N, N), whole(rng, N)
        for place in range(3):
            left, right, last = made(device, a), made(device, b), made(device, bias)
            out = (made(device, np.zeros((N, N), np.float32)), left, right)[place]
            spy.matmul(left, right, out=out, bias=last, device=device)
            np.testing.assert_array_equal(numpy_of(out), a @ b + bias)
        rows = made(device, np.concatenate([a, bias[None]]))
        left = made(device, a)
        spy.matmul(left, made(device, b), out=rows[1:], bias=rows[N], device=device)
        np.testing.assert_array_equal(numpy_of(rows)[1:], a @ b + bias)
        assert True in repeated or turn == 0 or not is_repeated(device, library)


def test_arrays_that_must_not_be_written(device: spy.Device) -> None:
    a, out = np.eye(3, dtype=np.float32), np.zeros((3, 3), np.float32)
    for _ in range(2):
        spy.matmul(a, a, out=out, device=device)
        out.flags.writeable = False
        with pytest.raises(spy.BindError, match="must not be changed"):
            spy.matmul(a, a, out=out, device=device)
        out.flags.writeable = True


def test_autograd_comes_and_goes(device: spy.Device) -> None:
    a = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(2):
        assert spy.matmul(a, a, device=device).grad_fn is None
        x = a.clone().requires_grad_()
        y = spy.matmul(x, x, device=device)
        y.sum().backward()
        np.testing.assert_array_equal(x.grad, (torch.ones(2, 2) @ a.T + a.T @ torch.ones(2, 2)).numpy())
        with torch.no_grad():
            assert spy.matmul(x, x, device=device).grad_fn is None


def test_other_libraries(device: spy.Device) -> None:
    a = np.eye(3, dtype=np.float32)
    t = torch.from_numpy(a)
    x = spy.Tensor.from_numpy(device, a)
    for _ in range(2):
        for one in (a, t, x):
            np.testing.assert_array_equal(numpy_of(spy.matmul(one, one, device=device)), a)
            for other in (a, t, x, 3, None, a.tolist()):
                if type(other) is type(one) or (one is a and isinstance(other, list)):
                    continue
                with pytest.raises(spy.BindError):
                    spy.matmul(one, other, device=device)
                with pytest.raises(spy.BindError):
                    spy.matmul(one, one, out=other if other is not None else 1, device=device)
        for wrong in (3, "cpu", 0, False):
            with pytest.raises((spy.BindError, spy.DeviceError)):
                spy.matmul(x, x, device=wrong)  # type: ignore[arg-type]


def test_another_device_and_a_closed_one(device: spy.Device, backend_name: str) -> None:
    a = np.eye(3, dtype=np.float32)
    x = spy.Tensor.from_numpy(device, a)
    with spy.Device(backend_name) as other:
        y = spy.Tensor.from_numpy(other, a)
        for _ in range(2):
            spy.matmul(x, x)
            spy.matmul(y, y)
            with pytest.raises(spy.BindError, match="runs on"):
                spy.matmul(x, x, device=other)
            with pytest.raises(spy.BindError, match="lies on"):
                spy.matmul(x, y)
    for _ in range(2):
        with pytest.raises(spy.DeviceError, match="closed"):
            spy.matmul(y, y)
        with pytest.raises(spy.DeviceError, match="closed"):
            spy.matmul(a, a, device=other)


def test_more_products_than_are_remembered(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slangpy_rt.linalg.known_products._MOST", 3)
    rng = np.random.default_rng(5)
    for _ in range(2):
        for n in range(1, 9):
            a, b = whole(rng, n, 5), whole(rng, 5, n)
            got = spy.matmul(*(spy.Tensor.from_numpy(device, v) for v in (a, b)))
            np.testing.assert_array_equal(got.to_numpy(), a @ b)


STEPS = """
uniform Tensor<float, 1> factors;
uniform float gain;
uniform uint64_t high;
float scaled(float x, int row, int column) { return gain * factors[column] * x + float(high >> 62); }
"""


@pytest.mark.parametrize("library", list(MAKERS))
def test_values_of_a_function(device: spy.Device, library: str, repeated: list[bool]) -> None:
    """A known product has the values of this call: contents, arrays and numbers, none of which the result changes."""
    if "uint64_t" not in device.caps.scalars:
        pytest.skip("the device has no 64-bit integers")
    made, rng = MAKERS[library], np.random.default_rng(5)
    scaled = spy.Module.load_from_source(device, "steps_with_values", STEPS).scaled
    a, b = whole(rng, M, K), whole(rng, K, N)
    left, right = made(device, a), made(device, b)
    factors = [made(device, np.arange(N, dtype=np.float32) + i) for i in range(2)]
    for turn in range(3):
        for gain, high in ((2.0, 0), (-0.0, 0), (0.0, 0), (2.0, 3 << 62)):
            for i, values in enumerate(factors):
                got = numpy_of(spy.matmul(left, right, activation=scaled.set(factors=values, gain=gain, high=high)))
                want = np.float32(gain) * (np.arange(N, dtype=np.float32) + i) * (a @ b) + (high >> 62)
                np.testing.assert_array_equal(got, want)
                np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
        if turn == 1 and library != "NumPy" and is_repeated(device, library):
            # Of the first turn none was known, of the second all but those with a large number.
            assert repeated == [True] * 6
    # Other contents in the same place, which is known; then the same array as part of the result.
    new = whole(rng, N)
    if library == "Tensor":
        factors[0].copy_from(new)
    else:
        factors[0][:] = new if library == "NumPy" else torch.from_numpy(new)
    got = spy.matmul(left, right, activation=scaled.set(factors=factors[0], gain=2.0, high=0))
    np.testing.assert_array_equal(numpy_of(got), 2 * new * (a @ b))
    for _ in range(3):
        out = made(device, np.ones((M, N), np.float32))
        spy.matmul(left, right, out=out, activation=scaled.set(factors=out[3], gain=2.0, high=0))
        np.testing.assert_array_equal(numpy_of(out), 2 * (a @ b))
