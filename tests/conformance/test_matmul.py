"""spy.matmul: values on every device, beside NumPy's in double precision, with bounds that follow from the types."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import slangpy_rt as spy
from tests.depth import deep, every_device, explore, random_cases, sampled

# Half of the distance between 1 and the next number.
ROUNDING = {"half": 2**-11, "bfloat16": 2**-8, "float": 2**-24, "double": 2**-53}
NUMPY: dict[str, Any] = {
    "half": np.float16,
    "float": np.float32,
    "double": np.float64,
    "int8_t": np.int8,
    "int": np.int32,
}
TORCH = {"half": torch.float16, "bfloat16": torch.bfloat16, "float": torch.float32, "double": torch.float64}
PRIMES = (1, 2, 3, 5, 7, 11, 13, 17, 31, 61, 67, 127, 149, 257)
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": torch.relu,
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def numbers(seed: int, shape: tuple[int, ...], element: str = "float") -> Any:
    """Random numbers of an element type; bfloat16 as floats that are such numbers."""
    rng = np.random.default_rng(seed)
    if element in ("int", "int8_t"):
        kind = NUMPY[element]
        return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)
    found = rng.standard_normal(shape)
    if element == "bfloat16":
        return torch.from_numpy(found).bfloat16().double().numpy()
    return found.astype(NUMPY[element])


def check(got: Any, a: Any, b: Any, sums: str = "float", result: str = "float", factor: float = 1) -> None:
    """Compare a product with that in double precision: at most K roundings of sums and one of the result."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    want, scale = factor * np.matmul(a, b), abs(factor) * np.matmul(abs(a), abs(b))
    assert got.shape == want.shape
    bound = 2 * ROUNDING[sums] * (a.shape[-1] + 2) * scale + ROUNDING[result] * 1.01 * abs(want) + 1e-7
    assert (abs(np.asarray(got, np.float64) - want) <= bound).all()


def laid_out(how: str, values: Any) -> Any:
    """Return an array of the same values in other memory."""
    if how == "fortran":
        return np.asfortranarray(values)
    if how == "backward":
        back = (slice(None, None, -1),) * values.ndim
        return values[back].copy()[back]
    if how == "apart":
        memory = np.zeros([2 * n + 1 for n in values.shape], values.dtype)
        memory[(slice(1, None, 2),) * values.ndim] = values
        return memory[(slice(1, None, 2),) * values.ndim]
    if how == "padded":
        memory = np.zeros([n + 3 for n in values.shape], values.dtype)
        memory[tuple(slice(n) for n in values.shape)] = values
        return memory[tuple(slice(n) for n in values.shape)]
    return values.copy()


LAYOUTS = ("plain", "fortran", "backward", "apart", "padded")


@st.composite
def products(draw: st.DrawFn) -> dict[str, Any]:
    size = st.one_of(st.sampled_from(PRIMES), st.integers(1, 300))
    batch = draw(st.lists(st.integers(1, 3), max_size=3))
    kept = st.lists(st.booleans(), min_size=len(batch), max_size=len(batch))
    return {
        "sizes": (draw(size), draw(size), draw(size)),
        "batches": [[n if k else 1 for n, k in zip(batch, draw(kept), strict=True)] for _ in "ab"],
        "transposed": (draw(st.booleans()), draw(st.booleans())),
        "layouts": (draw(st.sampled_from(LAYOUTS)), draw(st.sampled_from(LAYOUTS))),
        "out": draw(st.sampled_from((None, *LAYOUTS))),
        "alpha": draw(st.sampled_from((1, -0.5, 3.25))),
        "seed": draw(st.integers(0, 2**20)),
    }


@random_cases
def test_random_products(device: spy.Device, pytestconfig: pytest.Config) -> None:
    def test(case: dict[str, Any]) -> None:
        m, n, k = case["sizes"]
        (ta, tb), seed = case["transposed"], case["seed"]
        a = laid_out(case["layouts"][0], numbers(seed, (*case["batches"][0], *((k, m) if ta else (m, k)))))
        b = laid_out(case["layouts"][1], numbers(seed + 1, (*case["batches"][1], *((n, k) if tb else (k, n)))))
        left, right = (a.swapaxes(-1, -2) if ta else a), (b.swapaxes(-1, -2) if tb else b)
        shape = np.matmul(left, right).shape
        out = None if case["out"] is None else laid_out(case["out"], np.zeros(shape, np.float32))
        got = spy.matmul(a, b, transpose_a=ta, transpose_b=tb, out=out, alpha=case["alpha"], device=device)
        assert out is None or got is out
        check(got, left, right, factor=case["alpha"])

    explore(pytestconfig, test, products(), 300, 10)


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("element", ["float", "half", "bfloat16", "double", "int8_t", "int"])
@sampled(54)
def test_element_types(device: spy.Device, element: str, transposed: tuple[bool, bool]) -> None:
    stored = "int16_t" if element == "bfloat16" else element
    if stored not in device.caps.scalars and element != "half":
        with pytest.raises(spy.UnsupportedError, match=f"no '{stored}' in memory"):
            spy.matmul(*[torch.ones(2, 2, dtype=TORCH.get(element, torch.int8))] * 2, device=device)
        return
    ta, tb = transposed
    left, b = numbers(1, (2, 31, 67), element), numbers(2, (2, 67, 5), element)
    a = left.swapaxes(-1, -2).copy() if ta else left
    given = b.swapaxes(-1, -2).copy() if tb else b
    values = [torch.from_numpy(v).to(TORCH[element]) if element == "bfloat16" else v for v in (a, given)]
    got = spy.matmul(*values, transpose_a=ta, transpose_b=tb, device=device)
    if element in ("int", "int8_t"):
        # Sums wrap, as those of int do.
        np.testing.assert_array_equal(got, np.matmul(left.astype(np.int64), b.astype(np.int64)).astype(np.int32))
        return
    got = got.double().numpy() if element == "bfloat16" else got
    check(got, left, b, "double" if element == "double" else "float", element)


@pytest.mark.parametrize("result", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("element", [torch.float16, torch.bfloat16, torch.float32])
@deep
def test_result_types(device: spy.Device, element: torch.dtype, result: torch.dtype) -> None:
    if "int16_t" not in device.caps.scalars:
        pytest.skip("the device has no 16-bit integers in memory")
    a, b = (torch.from_numpy(numbers(k, (33, 33))).to(element) for k in (1, 2))
    got = spy.matmul(a, b, out_dtype=result, device=device)
    assert got.dtype is result
    name = next(n for n, dtype in TORCH.items() if dtype is result)
    check(got.double().numpy(), a.double(), b.double(), "float", name)


def test_precision(device: spy.Device) -> None:
    a, b = numbers(1, (70, 130)), numbers(2, (130, 90))
    for _ in range(2):
        got = spy.matmul(a, b, precision="tf32", device=device)
        want, scale = a.astype(float) @ b, abs(a).astype(float) @ abs(b)
        # Two roundings of 2^-11 each, at most.
        assert (abs(got - want) <= 2**-9.9 * scale).all()
        np.testing.assert_allclose(spy.matmul(a, b, device=device), want, rtol=1e-4, atol=1e-4)
    left = torch.from_numpy(a).requires_grad_()
    spy.matmul(left, torch.from_numpy(b), precision="tf32", device=device).sum().backward()
    np.testing.assert_allclose(left.grad, np.ones((70, 90)) @ b.T, rtol=1e-2, atol=1e-2)


def test_tensors_of_bfloat16(device: spy.Device) -> None:
    a, b = numbers(1, (33, 20)), numbers(2, (20, 17))
    left, right = (spy.Tensor.zeros(device, v.shape, "bfloat16") for v in (a, b))
    left.copy_from(a)
    right.copy_from(b)
    rounded = [torch.from_numpy(v).bfloat16().double().numpy() for v in (a, b)]
    check(spy.matmul(left, right, out_dtype="float").to_numpy(), *rounded)
    for x, y in ((left, right), (spy.Tensor.from_numpy(device, a), spy.Tensor.from_numpy(device, b))):
        product = spy.matmul(x, y, out_dtype="bfloat16")
        assert product.dtype.name == "bfloat16"
        check(product.to_numpy(), *(rounded if x is left else (a, b)), result="bfloat16")


def test_rounding_is_to_the_nearest(device: spy.Device) -> None:
    if "int16_t" not in device.caps.scalars:
        pytest.skip("the device has no 16-bit integers in memory")
    # Ties, numbers beyond the largest, subnormal ones and those that are none.
    values = [1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3.4e38, 65519.0, 1e-39, np.inf, -np.inf, np.nan, -0.0]
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.tensor(values)[:, None]
        got = spy.matmul(x, torch.ones(1, 1), out_dtype=dtype, device=device)
        # Devices may take subnormal floats as 0.
        torch.testing.assert_close(got[:, 0], x[:, 0].to(dtype), rtol=0, atol=2e-39, equal_nan=True)


def test_not_a_number_and_infinity(device: spy.Device) -> None:
    a, b = np.ones((70, 70), np.float32), np.ones((70, 70), np.float32)
    a[3, 69], b[69, 5], b[0, 6], a[4, 0] = np.inf, 0, np.nan, np.nan
    with np.errstate(invalid="ignore"):
        want = a @ b
    got = spy.matmul(a, b, device=device)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    relu = spy.matmul(a, b, device=device, activation="relu")
    np.testing.assert_array_equal(np.isnan(relu), np.isnan(want))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("element", ["float", "double"])
@sampled(15)
def test_activations(device: spy.Device, element: str, name: str) -> None:
    if element not in device.caps.scalars:
        pytest.skip("the device has no doubles")
    x = np.array([[-1000, -20, -3, -1, -0.0, 0, 0.3, 2, 30, 1000]], NUMPY[element])
    bias = numbers(1, (10,), element)
    try:
        got = spy.matmul(np.ones((1, 1), x.dtype), x, bias=bias, activation=name, alpha=0.5, device=device)
    except spy.UnsupportedError as error:
        assert element == "double" and "of double, which SPIR-V has for half and float alone" in str(error)
        return
    want = ACTIVATIONS[name](torch.from_numpy(x.astype(np.float64) / 2 + bias))
    # exp and tanh of GPUs are allowed some units in the last place.
    bound = {"rtol": 1e-13, "atol": 1e-14} if element == "double" else {"rtol": 3e-5, "atol": 1e-6}
    np.testing.assert_allclose(got, want.numpy(), **bound)


def test_one_dimension_and_bias(device: spy.Device) -> None:
    a, x = numbers(1, (2, 3, 4)), numbers(2, (4,))
    for left, right in ((a, x), (x, a.swapaxes(-1, -2)), (a[0], x), (x, a[0].T), (x, x)):
        check(spy.matmul(left, right, device=device), left, right)
    # A bias has a number for each element of the last dimension, also where b is a column.
    rows = numbers(3, (3,))
    np.testing.assert_allclose(spy.matmul(a, x, bias=rows, device=device), a @ x + rows, rtol=1e-5, atol=1e-6)
    turned = np.ascontiguousarray(a.swapaxes(-1, -2))
    got = spy.matmul(turned, x, bias=rows, transpose_a=True, device=device)
    np.testing.assert_allclose(got, a @ x + rows, rtol=1e-5, atol=1e-6)


def test_nothing_and_no_depth(device: spy.Device) -> None:
    for m, n, k in ((0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0)):
        got = spy.matmul(np.ones((m, k), np.float32), np.ones((k, n), np.float32), device=device)
        np.testing.assert_array_equal(got, np.zeros((m, n)))
    assert spy.matmul(np.ones((0, 2, 3), np.float32), np.ones((3, 4), np.float32), device=device).shape == (0, 2, 4)
    out, bias = np.full((2, 3), 7, np.float32), np.arange(3, dtype=np.float32)
    spy.matmul(np.ones((2, 0), np.float32), np.ones((0, 3), np.float32), out=out, bias=bias, device=device)
    np.testing.assert_array_equal(out, [bias, bias])


def test_batches(device: spy.Device) -> None:
    a, b = numbers(1, (2, 1, 3, 4, 5)), numbers(2, (4, 1, 5, 6))
    check(spy.matmul(a, b, device=device), a, b)
    # Dimensions that no one stride visits, and a stride of 0.
    out = np.zeros((3, 4, 2, 4, 6), np.float32).transpose(2, 1, 0, 3, 4)
    check(spy.matmul(a, b, out=out, device=device), a, b)
    same = np.broadcast_to(a[0, 0, 0], (7, 4, 5))
    check(spy.matmul(same, b[0, 0], device=device), same, b[0, 0])
    one = np.broadcast_to(np.float32(2), (4, 5))
    check(spy.matmul(one, b[0, 0], device=device), one, b[0, 0])


@deep
def test_more_matrices_than_a_launch_has(device: spy.Device) -> None:
    a = np.random.default_rng(1).integers(-3, 4, (70001, 2, 3)).astype(np.float32)
    b = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(spy.matmul(a, b, device=device), a @ b)


@pytest.mark.parametrize("n", [5, pytest.param(150, marks=deep), 300])
def test_results_that_share_memory(device: spy.Device, n: int) -> None:
    a, b = numbers(1, (n, n)), numbers(2, (n, n))
    for make, numpy in ((np.copy, np.asarray), (torch.tensor, np.asarray)):
        for place in range(3):
            left, right = make(a), make(b)
            out = (left, right, left.T)[place]
            assert spy.matmul(left, right, out=out, device=device) is out
            check(numpy(out), a, b)
    left, right = (spy.Tensor.from_numpy(device, v) for v in (a, b))
    assert spy.matmul(left, right, out=left) is left
    check(left.to_numpy(), a, b)
    square = a.copy()
    check(spy.matmul(square, square, out=square, device=device), a, a)
    memory = np.concatenate([a.ravel(), b.ravel()])
    moved = memory[n : n + n * n].reshape(n, n)
    check(spy.matmul(memory[: n * n].reshape(n, n), b, out=moved, device=device), a, b)
    rows = np.concatenate([a, b])
    got = spy.matmul(a, b, bias=rows[0], out=rows[:n], device=device)
    np.testing.assert_allclose(got, a.astype(float) @ b + a[0], rtol=1e-3, atol=1e-3)
    # One matrix of the result is an operand of all the others.
    batch = numbers(3, (3, n, n))
    kept = batch.copy()
    check(spy.matmul(batch, batch[0], out=batch, device=device), kept, kept[0])


def test_command_lists(device: spy.Device) -> None:
    commands = spy.CommandList(device)
    a, b = (spy.Tensor.from_numpy(device, numbers(k, s)) for k, s in ((1, (4, 5)), (2, (5, 6))))
    c, d = spy.Tensor.zeros(device, (4, 6)), spy.Tensor.zeros(device, (4, 4))
    square = spy.Tensor.from_numpy(device, 2 * np.eye(3, dtype=np.float32))
    assert spy.matmul.append_to(commands, a, b, out=c) is c
    spy.matmul.append_to(commands, c, c, transpose_b=True, out=d, alpha=0.5)
    spy.matmul.append_to(commands, square, square, out=square)
    for turn in range(2):
        a.copy_from(numbers(3 + turn, (4, 5)))
        commands.submit()
        first = np.matmul(a.to_numpy(), b.to_numpy())
        np.testing.assert_allclose(d.to_numpy(), 0.5 * first @ first.T, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(square.to_numpy(), np.eye(3) * 2 ** (2 ** (turn + 1)))


@pytest.mark.parametrize("options", [{"debug": True}, {"deterministic": True}], ids=["debug", "deterministic"])
def test_other_devices(device: spy.Device, backend_name: str, options: dict[str, Any]) -> None:
    a, b = numbers(1, (70, 300)), numbers(2, (300, 33))
    with spy.Device(backend_name, **options) as other:
        first = spy.matmul(a, b, device=other)
        check(first, a, b)
        np.testing.assert_array_equal(spy.matmul(a, b, device=other), first)


def test_threads(device: spy.Device) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(8):
            m, n, k = rng.integers(1, 60, 3)
            a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n)))
            if not np.array_equal(spy.matmul(a, b, device=device), a @ b):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@every_device
def test_sizes_around_those_of_blocks(device: spy.Device) -> None:
    """Blocks have 72 or 144 rows and 256 columns on the CPU, tiles 64 each way elsewhere: each rest is computed."""
    rng = np.random.default_rng(7)
    edges = {64, 72, 128, 144, 256, 288, 432}
    for m in sorted({n + k for n in edges for k in (-1, 0, 1)}):
        a, b = (rng.integers(-4, 5, s).astype(np.float32) for s in ((m, 3), (3, 5)))
        x, y = spy.Tensor.from_numpy(device, a), spy.Tensor.from_numpy(device, b)
        np.testing.assert_array_equal(spy.matmul(x, y).to_numpy(), a @ b)
        np.testing.assert_array_equal(spy.matmul(y, x, transpose_a=True, transpose_b=True).to_numpy(), (a @ b).T)
    for k in (1, 15, 16, 17, 31, 33):
        a, b = (rng.integers(-4, 5, s).astype(np.float32) for s in ((65, k), (k, 66)))
        c = spy.matmul(spy.Tensor.from_numpy(device, a), spy.Tensor.from_numpy(device, b))
        np.testing.assert_array_equal(c.to_numpy(), a @ b)
