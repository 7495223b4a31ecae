"""Sums, means, extremes and their places along axes, against NumPy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import deep, every_case, every_device, needs, one_device, sampled

pytestmark = one_device

SHAPES = [(1,), (31,), (32,), (33,), (1000,), (70_001,), (3, 1), (1, 3), (64, 64), (7, 2050), (2050, 7), (4, 5, 66)]
NAMES = ("sum", "mean", "min", "max", "argmin", "argmax")


def data(*shape: int, kind: str = "f", seed: int = 0) -> npt.NDArray[Any]:
    """Numbers with many equal ones among them."""
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 50, shape) if kind == "u" else rng.integers(-40, 40, shape) / (4 if kind == "f" else 1)
    ).astype({"f": np.float32, "i": np.int32, "u": np.uint32}[kind])


def check(name: str, got: spy.Tensor, array: npt.NDArray[Any], axis: Any, keepdims: bool = False) -> None:
    """Compare with NumPy's reduction."""
    more = {} if name.startswith("arg") else {"keepdims": keepdims}
    wide = array.astype("d") if name in ("sum", "mean") else array
    wanted = np.asarray(getattr(wide, name)(axis=axis, **more))
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got.to_numpy(), wanted, 2e-6, 1e-4)
    kind = "float" if array.dtype.kind == "f" else {"i": "int", "u": "uint"}[array.dtype.kind]
    if name == "sum" and kind != "float":
        kind = {"int": "int64_t", "uint": "uint64_t"}[kind]
    assert got.dtype.name == ("int" if name.startswith("arg") else "float" if name == "mean" else kind)


@sampled(72)
@pytest.mark.parametrize("shape", SHAPES)
def test_floats(device: spy.Device, shape: tuple[int, ...]) -> None:
    a = data(*shape)
    t = spy.Tensor.from_numpy(device, a)
    for name in NAMES:
        for axis in (None, *range(len(shape)), -1):
            check(name, getattr(t, name)(axis=axis), a, axis)
        if not name.startswith("arg"):
            check(name, getattr(t, name)(0, keepdims=True), a, 0, True)
            check(name, getattr(t, name)(tuple(range(len(shape))), True), a, tuple(range(len(shape))), True)


@sampled(18)
@pytest.mark.parametrize("name", NAMES)
def test_integers(device: spy.Device, name: str) -> None:
    for kind in "iu":
        a = data(9, 200, kind=kind)
        t = spy.Tensor.from_numpy(device, a)
        check(name, getattr(t, name)(), a, None)
        check(name, getattr(t, name)(axis=1), a, 1)


def test_large_sums(device: spy.Device) -> None:
    large = spy.Tensor.full(device, 3000, 2_000_000_000, "int")
    assert large.sum().item() == 6_000_000_000_000
    assert large.mean().item() == pytest.approx(2e9)


@sampled(54)
@pytest.mark.parametrize("name", NAMES)
def test_views(device: spy.Device, name: str) -> None:
    a = data(40, 6, 50)
    t = spy.Tensor.from_numpy(device, a)
    for view in (lambda x: x[::-2, 1:4, 3::5], lambda x: x.T, lambda x: x[5], lambda x: x[:, 2:3]):
        check(name, getattr(view(t), name)(), view(a), None)
        check(name, getattr(view(t), name)(axis=0), view(a), 0)


def test_views_of_one_number(device: spy.Device) -> None:
    a = data(40, 6, 50)
    t = spy.Tensor.from_numpy(device, a)
    wide = t[:1, 0, 0].broadcast_to((300,))
    assert wide.sum().item() == pytest.approx(300 * a[0, 0, 0])


@deep
def test_vectors(device: spy.Device) -> None:
    a = data(30, 40, 3)
    t = spy.Tensor.from_numpy(device, a, "float3")
    for name in ("sum", "mean", "min", "max"):
        for axis, outer in ((None, (0, 1)), (0, 0), (1, 1)):
            got = getattr(t, name)(axis)
            assert got.dtype.name == "float3"
            np.testing.assert_allclose(got.to_numpy(), getattr(a.astype("d"), name)(axis=outer), 1e-5, 1e-4)
    with pytest.raises(spy.BindError, match="order"):
        t.argmax()


@deep
@sampled(2)
def test_halves_and_bools(device: spy.Device) -> None:
    if "half" in device.caps.scalars:
        ones = spy.Tensor.ones(device, 5000, "half")
        assert (ones.sum().dtype.name, ones.sum().item(), ones.mean().item()) == ("half", 5000, 1)
    p = data(8, 90) > 5
    t = spy.Tensor.from_numpy(device, p)
    assert t.sum().item() == p.sum()
    assert t.mean().item() == pytest.approx(p.mean())
    for name in ("any", "all", "min", "max"):
        got = getattr(t, name)(axis=1)
        assert got.dtype.name == "bool"
        np.testing.assert_array_equal(got.to_numpy(), getattr(p, name)(axis=1))
    x = spy.Tensor.from_numpy(device, data(4, 9))
    np.testing.assert_array_equal(x.any(0).to_numpy(), data(4, 9).any(0))
    assert (x.all().item(), (x == x).all().item()) == (bool(data(4, 9).all()), True)


def test_any_and_all_of_nothing(device: spy.Device) -> None:
    for shape, axis in (((0,), None), ((0, 3), 0), ((0, 3), 1), ((2, 0), 1)):
        a, t = np.zeros(shape, np.float32), spy.Tensor.zeros(device, shape)
        for name in ("any", "all"):
            got = getattr(t, name)(axis)
            assert got.dtype.name == "bool"
            np.testing.assert_array_equal(got.to_numpy(), getattr(a, name)(axis))
    with pytest.raises(
        spy.ShapeError, match=r"^Tensor\.any: axis 2 does not name different dimensions of Tensor<bool>"
    ):
        spy.Tensor.zeros(device, 3).any(axis=2)


def test_numbers_that_are_none(device: spy.Device) -> None:
    a = data(100)
    a[[40, 70]] = np.nan
    t = spy.Tensor.from_numpy(device, a)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(t, name)().to_numpy(), getattr(a, name)())
    a = np.array([-np.inf, 3, np.inf], np.float32)
    t = spy.Tensor.from_numpy(device, a)
    assert (t.min().item(), t.max().item(), t.argmax().item()) == (-np.inf, np.inf, 2)


@deep
def test_nothing(device: spy.Device) -> None:
    t = spy.Tensor.zeros(device, (0, 3))
    assert t.sum().item() == 0
    assert t.sum(0).tolist() == [0, 0, 0]
    assert t.sum(1).shape == (0,)
    assert np.isnan(t.mean().item())
    for name in ("min", "max", "argmin", "argmax"):
        with pytest.raises(spy.ShapeError, match="no elements"):
            getattr(t, name)()
    single = spy.Tensor.full(device, (), 4.0)
    for same in (single.sum(), t.sum(())):
        assert same.buffer is not single.buffer and same.buffer is not t.buffer
    assert [getattr(single, name)().item() for name in NAMES] == [4, 4, 4, 4, 0, 0]


def test_what_is_refused(device: spy.Device) -> None:
    t = spy.Tensor.ones(device, (2, 3))
    module = spy.Module.load_from_source(device, "test_reductions", "struct P { float x; }")
    for axis, error in [
        (2, spy.ShapeError),
        (-3, spy.ShapeError),
        ((0, 0), spy.ShapeError),
        (1.5, spy.BindError),
        ("a", spy.BindError),
    ]:
        with pytest.raises(error, match="axis"):
            t.sum(axis)
    with pytest.raises(spy.BindError, match="one axis"):
        t.argmax((0, 1))
    with pytest.raises(spy.BindError, match="arithmetic"):
        spy.Tensor.zeros(device, 3, module.P).sum()


@deep
def test_sums_of_many(device: spy.Device) -> None:
    a = np.random.default_rng(0).random(3_000_001, np.float32)
    t = spy.Tensor.from_numpy(device, a)
    assert t.sum().item() == pytest.approx(a.sum(dtype="d"), rel=1e-6)
    assert t.argmax().item() == a.argmax()
    assert t[::-1].argmin().item() == a[::-1].argmin()


def test_numpys_functions_call_these_methods(device: spy.Device) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = spy.Tensor.from_numpy(device, x)
    for f in (np.sum, np.mean, np.min, np.max, np.any, np.all):
        found = f(t, axis=1)  # type: ignore[operator]
        assert isinstance(found, spy.Tensor)
        np.testing.assert_array_equal(found.to_numpy(), f(x, axis=1))  # type: ignore[operator]
    for refused in (lambda: t.sum(dim=1), lambda: np.sum(t, dtype=np.float64), lambda: t.any(out=x)):
        with pytest.raises(
            spy.BindError, match=r"^Tensor\.(sum|any): there is no parameter '(dim|dtype|out)'; it has axis"
        ):
            refused()


@every_case
@pytest.mark.parametrize("entry", [pytest.param(name, marks=needs(name)) for name in ("ranges", "grouped calls")])
def test_extremes_of_many_negative_numbers(device: spy.Device, entry: str) -> None:
    """More than one thread's share, and no whole number of shares: no place without a number counts as 0."""
    a = -np.random.default_rng(4).permutation(np.arange(1, 2101)).astype(np.float32)
    t = spy.Tensor.from_numpy(device, a)
    assert (t.max().item(), t.min().item()) == (-1, -2100)
    assert t.argmax().item() == a.argmax()


@needs("{kind}_t")
@every_device
@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_means_of_large_integers(device: spy.Device, kind: str) -> None:
    """Sums of them are larger than 64 bits count to; NumPy computes means in float64."""
    most = np.iinfo(kind).max
    mixed = np.random.default_rng(0).integers(0, most, (6, 70, 50), kind)
    for array in (np.full(1000, most, kind), mixed, np.array([most, most // 2, 3], kind)):
        t = spy.Tensor.from_numpy(device, array)
        for axis in (None, 0, -1, tuple(range(array.ndim))[:2]):
            found = t.mean(axis)
            assert found.dtype.name == "float"
            np.testing.assert_allclose(found.to_numpy(), array.mean(axis), 1e-6)


@every_device
def test_sums_of_many_terms(device: spy.Device) -> None:
    """One float that takes each term in turn is 1e-2 off after 2^20 times 0.1."""
    t = spy.Tensor.full(device, (1 << 20,), 0.1)
    exact = float(np.float32(0.1))
    for view in (t, t.reshape(1 << 18, 4), t.reshape(4, 1 << 18), t.reshape(2, 1 << 17, 4)):
        for axis in range(len(view.shape)):
            np.testing.assert_allclose(view.sum(axis).to_numpy(), view.shape[axis] * exact, 2e-6)
            np.testing.assert_allclose(view.mean(axis).to_numpy(), exact, 2e-6)


@every_device
@pytest.mark.parametrize("inner", [True, False])
def test_rows_of_each_length(device: spy.Device, inner: bool) -> None:
    """Of rows between other numbers, from one element to more than a thread has at a time: nothing else counts."""
    few, many = (40, 3), (40, 33_000)
    for shape, lengths in ((few, range(1, 34)), (many, (1, 7, 8, 9, 15, 23))):
        # Numbers beside a row would change each reduction; integers make sums exact.
        a = np.full((shape[0] + 2, shape[1]), np.nan, np.float32)
        own = np.random.default_rng(2).integers(-50, 50, shape).astype(np.float32)
        a[1:-1] = own
        t = spy.Tensor.from_numpy(device, a if not inner else a.T)
        for n in lengths:
            part, axis = (t[:, 1 : n + 1], 1) if inner else (t[1 : n + 1], 0)
            for name in NAMES:
                found = getattr(part, name)(axis).to_numpy()
                wanted = getattr(own[:n].astype("d"), name)(0)
                np.testing.assert_allclose(found, wanted, 1e-6, err_msg=f"{name} of {n}")
