"""Operators of Tensors against NumPy: types, broadcasting, views, results in place, and what is refused."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF, SLANG_OF
from tests.depth import needs, one_device, sampled

pytestmark = one_device

ARITHMETIC = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow,
}  # fmt: skip
COMPARISONS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
BITWISE = {"&": operator.and_, "|": operator.or_, "^": operator.xor}
FLOATS = ("half", "float", "double")
TYPES = tuple(NUMPY_OF)


def data(name: str, *shape: int, seed: int = 0) -> npt.NDArray[Any]:
    """Numbers of a type: negative ones, zeros and fractions where it has them."""
    rng = np.random.default_rng(seed)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    low = 0 if name.startswith("u") else -6
    whole = rng.integers(low, 7, shape)
    return (whole + (0.25 if name in FLOATS else 0)).astype(NUMPY_OF[name])


def has(device: spy.Device, *names: str) -> bool:
    """Whether arrays of these types can lie on a device."""
    return device.caps.scalars.issuperset(names)


def common(a: str, b: str) -> str:
    """The type that docs/tensors.md gives for two arrays."""
    floats = [t for t in (a, b) if t in FLOATS]
    if floats:
        return max(floats, key=FLOATS.index)
    return SLANG_OF[np.result_type(NUMPY_OF[a], NUMPY_OF[b])]


def same(got: Any, wanted: npt.NDArray[Any], dtype: str) -> None:
    """Compare values, and the element type."""
    assert isinstance(got, spy.Tensor)
    assert got.dtype.name == dtype
    if np.issubdtype(wanted.dtype, np.inexact):
        rtol = {"half": 2e-3, "float": 3e-6, "double": 1e-12}[dtype.rstrip("234x")]
        np.testing.assert_allclose(got.to_numpy().astype("d"), wanted.astype("d"), rtol, 1e-30)
    else:
        np.testing.assert_array_equal(got.to_numpy(), wanted)


@pytest.fixture
def tensor(device: spy.Device) -> Callable[[npt.NDArray[Any]], spy.Tensor]:
    """Make a Tensor of an array."""
    return lambda array: spy.Tensor.from_numpy(device, array)


@pytest.mark.parametrize("sign", ARITHMETIC)
def test_floats(tensor: Any, sign: str) -> None:
    a, b = data("float", 40, 7), data("float", 7, seed=1)
    f = ARITHMETIC[sign]
    if sign == "**":
        b = np.trunc(b)
        a = a[:, :7]
    with np.errstate(all="ignore"):
        same(f(tensor(a), tensor(b)), f(a, b), "float")
        same(f(tensor(a)[::-2], tensor(b)), f(a[::-2], b), "float")
        same(f(tensor(a), 2.5 if sign != "**" else 3), f(a, np.float32(2.5 if sign != "**" else 3)), "float")
        same(f(2, tensor(b)), f(np.float32(2), b), "float")


@pytest.mark.parametrize("sign", ARITHMETIC)
def test_integers(tensor: Any, sign: str) -> None:
    a, b = data("int", 300), data("int", 300, seed=1)
    b[b == 0] = 5
    f = ARITHMETIC[sign]
    if sign == "**":
        b = abs(b)
    wanted = f(a, b)
    same(f(tensor(a), tensor(b)), wanted, "float" if sign == "/" else "int")
    same(f(tensor(a), 3), f(a, np.int32(3)), "float" if sign == "/" else "int")


def test_floor_of_rounded_quotients(device: spy.Device, tensor: Any) -> None:
    # Elsewhere fmod is computed from a rounded quotient (docs/intrinsics.md).
    first = 0 if device.name in ("cpu", "cuda") else 6
    a = np.array([1, 2, 3, 7, 1, -1, 5.5, 0, -0.25], np.float32)[first:]
    b = np.array([0.1, 0.1, 0.3, 0.7, -0.1, 0.1, np.inf, 3, np.inf], np.float32)[first:]
    same(tensor(a) % tensor(b), np.mod(a, b), "float")
    same(tensor(a) // tensor(b), np.floor_divide(a, b), "float")


def test_powers(tensor: Any) -> None:
    a = np.array([-2, -2, -8, 0, 0, 2, -3, 4, 0], np.float32)
    b = np.array([3, 2, -1, 2, 0, -0.5, 0, 0.5, -1], np.float32)
    with np.errstate(all="ignore"):
        same(tensor(a) ** tensor(b), a**b, "float")
        assert np.isnan((tensor(a[:1]) ** 0.5).item())
    assert (tensor(np.array([3, 1, -1, -1], np.int32)) ** tensor(np.array([-1, -2, -3, -2], np.int32))).tolist() == [
        0, 1, -1, 1,
    ]  # fmt: skip


@pytest.mark.parametrize("sign", COMPARISONS)
def test_comparisons(tensor: Any, sign: str) -> None:
    a, b = data("float", 4, 50), data("int", 50, seed=1)
    f = COMPARISONS[sign]
    same(f(tensor(a), tensor(b)), f(a, b), "bool")
    same(f(tensor(b), 2), f(b, 2), "bool")
    same(f(2.5, tensor(a)), f(2.5, a), "bool")


@pytest.mark.parametrize("sign", BITWISE)
def test_bits(tensor: Any, sign: str) -> None:
    f = BITWISE[sign]
    a, b = data("int", 90), data("int", 90, seed=1)
    same(f(tensor(a), tensor(b)), f(a, b), "int")
    p, q = data("bool", 90), data("bool", 90, seed=1)
    same(f(tensor(p), tensor(q)), f(p, q), "bool")
    same(f(tensor(p), True), f(p, True), "bool")


def test_shifts_and_one_operand(tensor: Any) -> None:
    a, b = data("int", 60), data("uint", 60, seed=1).astype(np.int32)
    same(tensor(a) << tensor(b), a << b, "int")
    same(tensor(a) >> 1, a >> 1, "int")
    same(-tensor(a), -a, "int")
    same(abs(tensor(a)), abs(a), "int")
    same(~tensor(a), ~a, "int")
    same(~tensor(a > 0), ~(a > 0), "bool")
    x = data("float", 5, 9)
    same(-tensor(x).T, -x.T, "float")
    same(abs(tensor(x)[1:, ::3]), abs(x[1:, ::3]), "float")


@sampled(216)
@pytest.mark.parametrize("b", TYPES)
@pytest.mark.parametrize("a", TYPES)
def test_types_of_results(device: spy.Device, tensor: Any, a: str, b: str) -> None:
    of = SLANG_OF.get(np.result_type(NUMPY_OF[a], NUMPY_OF[b]), "")
    if not has(device, a, b, common(a, b)) or of == "":
        assert device.name != "cpu" or of == ""
        return
    x, y = data(a, 3, 5), data(b, 5, seed=1)
    wide = NUMPY_OF[common(a, b)]
    same(tensor(x) + tensor(y), x.astype(wide) + y.astype(wide), common(a, b))
    same(tensor(x) < tensor(y), x.astype(wide) < y.astype(wide), "bool")


def test_types_with_numbers(device: spy.Device, tensor: Any) -> None:
    for kind in ("half", "float"):
        if has(device, kind):
            x = data(kind, 6)
            same(tensor(x) * 2.0, x * NUMPY_OF[kind].type(2), kind)
            same(1 - tensor(x), NUMPY_OF[kind].type(1) - x, kind)
    n, p = data("int", 6), data("bool", 6)
    same(tensor(n) * 0.5, (n * 0.5).astype("f"), "float")
    same(tensor(n) / 2, (n / 2).astype("f"), "float")
    same(tensor(p) + 1, p + np.int32(1), "int")
    same(tensor(n) + np.int64(1), n + 1, "int")
    same(tensor(n) * [1, 2, 3, 4, 5, 6], n * np.arange(1, 7, dtype=np.int32), "int")
    same(data("float", 2, 6) - tensor(n), data("float", 2, 6) - n.astype("f"), "float")


def test_bfloat16(device: spy.Device) -> None:
    x = spy.Tensor.from_numpy(device, np.array([1.0, 2.5, -3.0], np.float32), "bfloat16")
    total = x + x
    assert total.dtype.name == "bfloat16"
    assert total.tolist() == [2.0, 5.0, -6.0]
    assert (x * 2.0).dtype.name == "bfloat16"
    assert (x + spy.Tensor.ones(device, 3)).dtype.name == "float"
    assert (x > 1).tolist() == [False, True, False]
    assert x.astype("float").tolist() == [1.0, 2.5, -3.0]
    assert x.sum().item() == 0.5


def test_vectors(device: spy.Device) -> None:
    a, b = data("float", 4, 5, 3), data("float", 5, 3, seed=1)
    x, y = (spy.Tensor.from_numpy(device, z, "float3") for z in (a, b))
    s = spy.Tensor.from_numpy(device, a[:, :, 0].copy())
    same(x + y, a + b, "float3")
    same(x * s, a * a[:, :, :1], "float3")
    same(2.0 - x, 2 - a, "float3")
    assert (x > y).dtype.name == "bool3"
    np.testing.assert_array_equal((x > y).to_numpy(), a > b)
    m = spy.Tensor.from_numpy(device, data("float", 6, 2, 2), "float2x2")
    same(m * m, data("float", 6, 2, 2) ** 2, "float2x2")
    x[1:3] *= 2.0
    a[1:3] *= 2
    np.testing.assert_array_equal(x.to_numpy(), a)
    with pytest.raises(spy.BindError, match="elements of different shapes"):
        x + m


def test_in_place(tensor: Any) -> None:
    a = data("float", 6, 8)
    t = tensor(a)
    same_one = t
    for name in ("iadd", "isub", "imul", "itruediv"):
        f = getattr(operator, name)
        t = f(t, 1.5)
        a = f(a, np.float32(1.5))
    assert t is same_one
    np.testing.assert_allclose(t.to_numpy(), a, 1e-6)
    t[1:] += t[:-1]
    a[1:] += a[:-1].copy()
    np.testing.assert_allclose(t.to_numpy(), a, 1e-6)
    n = tensor(np.arange(5, dtype=np.int32))
    for refused in (lambda: operator.iadd(n, 0.5), lambda: operator.itruediv(n, 2)):
        with pytest.raises(spy.BindError, match="in place"):
            refused()
    assert n.tolist() == [0, 1, 2, 3, 4]


def test_items_that_are_vectors(device: spy.Device) -> None:
    """Host data is written as to NumPy's array with the vectors' dimensions last; numbers go to all components."""
    t, a = spy.Tensor.zeros(device, (2, 3), "float2"), np.zeros((2, 3, 2), np.float32)
    for key, value in (
        ((0, 1), [1, 2]),
        (1, np.arange(6).reshape(3, 2)),
        (..., np.array([7.0, 8.0])),
        (0, np.array([[1.0], [2.0], [3.0]])),
        ((slice(None), slice(0, 2)), [4.0, 5.0]),  # as many elements as components
        ((slice(None), slice(None, None, 2)), np.array([[4.0], [5.0]])),
        (1, 6),
        (np.array([[True, False, True], [False, True, False]]), [1.0, 2.0]),
    ):
        t[key], a[key] = value, value
        np.testing.assert_array_equal(t.to_numpy(), a)
    t[0] = spy.Tensor.from_numpy(device, np.array([1, 2, 3], np.float32))  # a number for each element
    np.testing.assert_array_equal(t.to_numpy()[0], [[1, 1], [2, 2], [3, 3]])
    with pytest.raises(spy.ShapeError) as error:
        t[0] = np.zeros((3, 4))
    assert str(error.value) == (
        "Tensor[...] = value: an array of shape (3, 4) does not broadcast to shape (3, 2), whose last dimensions are "
        "those of 'float2'."
    )
    with pytest.raises(spy.BindError, match="the result is 'double', and the array holds 'int'"):
        spy.Tensor.zeros(device, 2, "int2")[0] = np.array([1.5, 2])
    struct = spy.Module.load_from_source(device, "items", "struct S { float2 place; float mass; }").S
    s = spy.Tensor.zeros(device, 2, struct)
    s["place"], s["mass"] = np.array([[1, 2], [3, 4]], np.float32), 5
    assert s["place"].tolist() == [[1, 2], [3, 4]] and s["mass"].tolist() == [5, 5]


def test_items(tensor: Any) -> None:
    a = data("float", 5, 6)
    t = tensor(a)
    for key, value in [
        (0, 7.0), ((slice(None), 2), 1), ((slice(1, None, 2), slice(None, None, -1)), data("float", 6, seed=3)),
        (..., [1, 2, 3, 4, 5, 6]), ((slice(1, 3), slice(0, 2)), np.array(4)), (slice(0, 0), 9),
    ]:  # fmt: skip
        t[key] = tensor(value) if isinstance(value, np.ndarray) and value.ndim else value
        a[key] = value
        np.testing.assert_array_equal(t.to_numpy(), a)
    t[:, 1:] = t[:, :-1]
    a[:, 1:] = a[:, :-1].copy()
    np.testing.assert_array_equal(t.to_numpy(), a)
    t[t > 2] = 0
    a[a > 2] = 0
    np.testing.assert_array_equal(t.to_numpy(), a)
    t[t == 0] = -t
    n = tensor(np.zeros(3, np.int32))
    n[0] = True
    for key, value, error in [
        (1, 1.5, spy.BindError), (1, "x", spy.BindError), (slice(None), np.zeros(4, np.int32), spy.ShapeError),
        (5, 1, IndexError), (n, 1, IndexError), (tensor(np.zeros(2, bool)), 1, IndexError), ([0, 1], 1, IndexError),
    ]:  # fmt: skip
        with pytest.raises(error):
            n[key] = value
    assert n.tolist() == [1, 0, 0]


def test_where_and_clip(tensor: Any) -> None:
    a, b = data("float", 5, 6), data("float", 6, seed=1)
    same(tensor(a).where(tensor(a) > 1, tensor(b)), np.where(a > 1, a, b), "float")
    same(tensor(a).where(a > 1, 0), np.where(a > 1, a, 0), "float")
    same(tensor(a).clip(-1, 2.5), a.clip(-1, 2.5), "float")
    same(tensor(a).clip(high=tensor(b)), np.minimum(a, b), "float")
    nan = np.array([np.nan, 1, 5], np.float32)
    same(tensor(nan).clip(2, 3), nan.clip(2, 3), "float")
    same(tensor(data("int", 6)).clip(0), data("int", 6).clip(0), "int")


def test_as_numbers(device: spy.Device, tensor: Any) -> None:
    one = tensor(np.array([2.5], np.float32))
    assert (float(one), int(one), bool(one), f"{one:.3f}", one.item()) == (2.5, 2, True, "2.500", 2.5)
    assert isinstance(tensor(np.array(3, np.int32)).item(), int)
    assert [10, 20, 30][tensor(np.array(1, np.int32))] == 20
    assert tensor(np.array([[1, 2]], np.int32)).tolist() == [[1, 2]]
    pair = tensor(np.zeros(2, np.float32))
    for refused in (float, bool, lambda t: t.item(), lambda t: f"{t:.2f}"):
        with pytest.raises(spy.BindError):
            refused(pair)
    with pytest.raises(TypeError, match="index"):
        [1][one]
    assert f"{pair}" == str(pair)
    assert (pair == None) is False  # noqa: E711
    assert pair in {pair: 1}
    assert len({pair, one}) == 2


def test_shapes_and_types(device: spy.Device, tensor: Any) -> None:
    a = data("float", 4, 6)
    t = tensor(a)
    np.testing.assert_array_equal(t.T.to_numpy(), a.T)
    np.testing.assert_array_equal(t.T.reshape(3, -1).to_numpy(), a.T.reshape(3, -1))
    assert t.reshape((2, 12)).buffer is t.buffer
    assert t.strides == (6, 1)
    assert t.T[1:, ::2].strides == (1, 12)
    assert t.copy().buffer is not t.buffer
    np.testing.assert_array_equal(t[:, ::2].copy().to_numpy(), a[:, ::2])
    same(t.astype("int"), a.astype(np.int32), "int")
    same(t.astype(bool), a.astype(bool), "bool")
    same(spy.Tensor.from_numpy(device, a[:, :3].copy(), "float3").astype("int"), a[:, :3].astype(np.int32), "int3")
    np.testing.assert_allclose(spy.Tensor.linspace(device, -1, 2, 7).to_numpy(), np.linspace(-1, 2, 7), 1e-6)
    assert t.to(device) is t
    with spy.Device("null") as other:
        assert t.to(other).tolist() == a.tolist()
    for sizes in [(5, -1), (-1, -1), (3,), (2.5,), ("a",)]:
        with pytest.raises(spy.ShapeError):
            t.reshape(*sizes)
    with pytest.raises(spy.BindError, match="another shape"):
        t.astype("float3")
    same(t @ tensor(a.T.copy()), a @ a.T, "float")


def test_what_is_refused(device: spy.Device, tensor: Any) -> None:
    module = spy.Module.load_from_source(device, "test_operators", "struct P { float x; int n; }")
    structs = spy.Tensor.zeros(device, 3, module.P)
    t, n, p = (tensor(data(k, 3)) for k in ("float", "int", "bool"))
    for case, error, words in [
        (lambda: structs + 1, spy.BindError, "write a Slang function"),
        (lambda: t & 1, spy.BindError, "floating-point"),
        (lambda: ~t, spy.BindError, "floating-point"),
        (lambda: p - p, spy.BindError, "bools"),
        (lambda: -p, spy.BindError, "bools"),
        (lambda: t + tensor(data("float", 4)), spy.ShapeError, "broadcast"),
        (lambda: t + "a", TypeError, "unsupported operand"),
        (lambda: t + None, TypeError, "unsupported operand"),
        (lambda: t + np.zeros(3, complex), spy.BindError, "complex"),
        (lambda: n + 2**40, spy.BindError, "1099511627776"),
        (lambda: t.where(1.5, t), spy.BindError, "where"),
    ]:
        with pytest.raises(error, match=words):
            case()


def test_structs_are_copied(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "test_struct_items", "struct P { float x; int n; }")
    t = spy.Tensor.zeros(device, 4, module.P)
    t[1:3] = np.array([(1.5, 2), (3.5, 4)], t.to_numpy().dtype)
    t[0:1] = t[2:3]
    assert t.to_numpy().tolist() == [(3.5, 4), (1.5, 2), (3.5, 4), (0, 0)]
    assert t[::2].copy().to_numpy().tolist() == [(3.5, 4), (3.5, 4)]
    assert t[::-1].reshape(2, 2).to_numpy().tolist() == [[(0, 0), (3.5, 4)], [(1.5, 2), (3.5, 4)]]


def test_lists_and_arrays_that_do_not_fit(device: spy.Device, tensor: Any) -> None:
    n = tensor(data("int", 2))
    with pytest.raises(spy.BindError, match="1099511627776"):
        n * [1, 2**40]
    with pytest.raises(spy.BindError, match="add: a NumPy array of dtype"):
        n + np.zeros(2, "M8[s]")
    with pytest.raises(spy.ShapeError):
        n += tensor(data("int", 3, 2))
    assert n.tolist() == data("int", 2).tolist()
    with spy.Device("null") as other, pytest.raises(spy.BindError, match=r"add: one operand is .* on Device\('null'"):
        n + spy.Tensor.zeros(other, 2, "int")


def test_nothing_and_no_dimension(tensor: Any) -> None:
    empty = tensor(np.zeros((0, 3), np.float32))
    assert (empty + 1).shape == (0, 3)
    assert (empty == empty).tolist() == []
    empty[...] = 1
    single = tensor(np.array(2, np.float32))
    assert (single + single).item() == 4
    assert (single + single).shape == ()


def test_copies_by_pythons_module(device: spy.Device) -> None:
    a = data("float", 3, 4)
    t = spy.Tensor.from_numpy(device, a).with_grads()
    for one in (t, t[::2, 1:]):
        shallow, deep = copy.copy(one), copy.deepcopy(one)
        assert shallow.address == one.address and deep.address != one.address
        assert shallow.grad.address == one.grad.address and deep.grad.address != one.grad.address
        assert deep.grad_in is deep.grad_out and deep.grad.dtype == one.grad.dtype
        np.testing.assert_array_equal(deep.to_numpy(), one.to_numpy())
        deep[...] = 7
        assert not (one.to_numpy() == 7).any()
    both = copy.deepcopy({"first": t, "second": [t]})
    assert both["first"] is both["second"][0]  # type: ignore[index]
    assert copy.deepcopy(spy.Tensor.zeros(device, 0)).shape == (0,)
    kept = spy.Tensor.zeros(device, 4).with_grads(grad_out=spy.Tensor.full(device, 4, 2.0))
    found = copy.deepcopy(kept)
    assert found.grad_in is None and found.grad.to_numpy().tolist() == [2, 2, 2, 2]


def test_plus_makes_a_new_tensor(device: spy.Device) -> None:
    t = spy.Tensor.ones(device, 3)
    made = +t
    t += 1
    np.testing.assert_array_equal(made.to_numpy(), 1)


@needs("uint64_t", "int64_t")
@sampled(4)
@pytest.mark.parametrize("sign", BITWISE)
def test_integers_without_a_common_type(device: spy.Device, sign: str) -> None:
    """NumPy computes them in double, of which bits are not asked for."""
    u, i = (spy.Tensor.from_numpy(device, np.arange(3, dtype=t)) for t in (np.uint64, np.int64))
    names = {"&": "and", "|": "or", "^": "xor"}
    for a, b, first, second in ((u, i, "uint64_t", "int64_t"), (i, u, "int64_t", "uint64_t")):
        with pytest.raises(spy.BindError) as caught:
            BITWISE[sign](a, b)
        assert str(caught.value) == (
            f"{names[sign]}: no integer type has all numbers of '{first}' and of '{second}'; convert one: "
            "x.astype('int64_t')."
        )
    assert BITWISE[sign](u.astype("int64_t"), i).dtype.name == "int64_t"
    with pytest.raises(spy.BindError, match="one operand has floating-point numbers"):
        BITWISE[sign](u, spy.Tensor.ones(device, 3))


def test_a_power_with_a_modulus(device: spy.Device) -> None:
    x = spy.Tensor.full(device, 3, 5, "int")
    assert pow(x, 2).tolist() == pow(x, 2, None).tolist() == [25] * 3
    with pytest.raises(spy.BindError) as caught:
        pow(x, 2, 3)
    assert str(caught.value) == "pow: there is no power with a modulus; write x ** y % n."
