"""Slang's Optional and Tuple as parameters and as results: None and tuples in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from _cuda_text import compiled_for_cuda

import slangpy_rt as spy
from tests.depth import deep, one_device, sampled

# What these test depends little on the device.
pytestmark = one_device

SLANG = """
import slangpy_rt;
struct Point { float a; int b; };
float number(Optional<float> x) { return x.hasValue ? x.value : -1; }
float vector(Optional<float3> x) { if (let v = x) return v.x + 10 * v.z; return -1; }
float point(Optional<Point> x) { return x.hasValue ? x.value.a + 10 * x.value.b : -1; }
float array(Optional<float[3]> x) { return x.hasValue ? x.value[0] + 10 * x.value[2] : -1; }
float later(float y, Optional<float> x = none) { return x.hasValue ? x.value + y : y; }
Optional<bool> boolean(Optional<bool> x) { return x; }
Optional<float> positive(float x) { if (x > 0) return x; return none; }
Optional<float3> repeated(float x) { if (x > 0) return float3(x); return none; }
Optional<Point> made(float x) { if (x > 0) return Point(x, 3); return none; }
Tuple<float, Optional<int>> partly(float x)
{
    Optional<int> y = none;
    if (x > 2)
        y = 3;
    return makeTuple(x, y);
}
struct Made { float a; __init(float x) { a = x + 11; } };
Optional<Made> held(float x) { if (x > 1) return Made(x); return none; }
Optional<Tuple<float, int>> both(float x) { if (x > 0) return makeTuple(x, 1); return none; }

Tuple<float, int> pair(float x) { return makeTuple(2 * x, 3); }
Tuple<float, float3, Point, float[2]> four(float x)
{
    float two[2] = { x, -x };
    return makeTuple(x, float3(x, 1, 2), Point(x, 4), two);
}
Tuple<float, Tuple<int, float>> nested(float x) { return makeTuple(x, makeTuple(int(x), 2 * x)); }
float taken(Tuple<float, int, float3> x) { return x._0 + 10 * x._1 + 100 * x._2.y; }
float from_nested(Tuple<float, Tuple<int, float>> x) { return x._0 + 10 * x._1._0 + 100 * x._1._1; }
void grow(inout Tuple<float, int> x) { x._0 += 1; x._1 *= 2; }
void fill(float k, out Tuple<float, int> x) { x = makeTuple(k, int(k)); }
float inside(Optional<Tuple<float, int>> x) { if (let v = x) return v._0 + 10 * v._1; return -1; }
struct Holder { Optional<float> o; float k; Tuple<float, int> t; };
float held(Holder h) { return (h.o.hasValue ? h.o.value : h.k) + 10 * h.t._0 + 100 * h.t._1; }

float over(float x) { return 1; }
float over(Optional<float> x) { return 2; }
float over(Tuple<float, int> x) { return 3; }
T first<T : __BuiltinFloatingPointType>(Tuple<T, int> x) { return x._0; }
T either<T : __BuiltinFloatingPointType>(Optional<T> x, T y) { return x.hasValue ? x.value : y; }
Tuple<T, T> twice<T : __BuiltinFloatingPointType>(T x) { return makeTuple(x, x); }

[Differentiable] float scaled(Optional<float> x, float y) { if (x.hasValue) return x.value * x.value * y; return y; }
[Differentiable] Tuple<float, float> products(float a, float b) { return makeTuple(a * b, a * a); }
[Differentiable] Tuple<float, int> mixed(float a) { return makeTuple(a * a, 3); }
[Differentiable] float of_pair(Tuple<float, float> x) { return x._0 * x._1; }
"""
KERNEL = """
[shader("compute")] [numthreads(1, 1, 1)]
void kernel(uniform Optional<float> x, uniform Tuple<float, int> t, RWStructuredBuffer<float> o)
{
    o[0] = (x.hasValue ? x.value : -1) + 10 * t._1;
}
"""
X = np.float32([1, 2, 3])


@pytest.fixture(scope="module")
def module(device: spy.Device) -> Any:
    return spy.Module.load_from_source(device, "wrapped", SLANG)


def tensor(device: spy.Device, array: Any = X) -> spy.Tensor:
    return spy.Tensor.from_numpy(device, np.asarray(array, np.float32))


# Optional


def test_an_optional_takes_none_or_a_value(device: spy.Device, module: Any) -> None:
    assert (module.number(None), module.number(2.0), module.number(3)) == (-1, 2, 3)
    assert module.vector(None) == -1 and module.vector([1, 2, 3]) == 31
    assert module.point(None) == -1 and module.point({"a": 1.0, "b": 2}) == 21
    assert module.array(None) == -1 and module.array([1, 2, 3]) == 31
    assert (module.later(1.0), module.later(1.0, None), module.later(1.0, 2), module.later(x=None, y=4)) == (
        1,
        1,
        3,
        4,
    )
    assert (module.boolean(None), module.boolean(True), module.boolean(False)) == (None, True, False)


def test_arrays_are_values_of_each_element(device: spy.Device, module: Any) -> None:
    np.testing.assert_array_equal(module.number(X), X)
    np.testing.assert_array_equal(module.number(tensor(device)).to_numpy(), X)
    np.testing.assert_array_equal(module.vector(np.stack([X, X])), [31, 31])
    np.testing.assert_array_equal(module.point({"a": X, "b": 1}), X + 10)
    np.testing.assert_array_equal(module.array(np.stack([X, 2 * X])), [31, 62])
    np.testing.assert_array_equal(module.later(X, tensor(device)).to_numpy(), 2 * X)


def test_an_optional_result_is_none_or_a_value(module: Any) -> None:
    assert module.positive(2.0) == 2 and module.positive(-2.0) is None
    assert module.made(2.0) == {"a": 2, "b": 3} and module.made(-2.0) is None
    assert module.repeated(2.0).tolist() == [2, 2, 2] and module.repeated(-2.0) is None
    assert module.both(2.0) == (2, 1) and module.both(-2.0) is None


def test_optional_results_of_arrays_are_values_and_bools(device: spy.Device, module: Any) -> None:
    mixed = np.float32([[1, -2, 3], [-4, 5, -6]])
    there = mixed > 0
    for x, kind in ((mixed, np.ndarray), (tensor(device, mixed), spy.Tensor), (torch.tensor(mixed), torch.Tensor)):
        found = module.positive(x)
        value, has_value = found
        assert found.value is value and found.has_value is has_value and type(value) is type(has_value) is kind
        np.testing.assert_array_equal(np.asarray(value), np.where(there, mixed, 0))
        np.testing.assert_array_equal(np.asarray(has_value), there)
    assert module.positive(tensor(device, mixed)).has_value.dtype.name == "bool"
    value, has_value = module.positive(tensor(device, mixed))
    np.testing.assert_array_equal(value[has_value].to_numpy(), [1, 3, 5])
    # What was in the memory before, and what Slang has in an Optional of nothing, is seen nowhere.
    for of, fill in ((module.repeated, np.float32(7)), (module.made, 7)):
        dirt = [of(np.full((2, 3), fill, np.float32)).value for _ in range(4)]
        del dirt
    vectors = module.repeated(mixed)
    np.testing.assert_array_equal(vectors.value, np.where(there, mixed, 0)[..., None] * np.ones(3))
    points = module.made(mixed)
    np.testing.assert_array_equal(points.value["a"], np.where(there, mixed, 0))
    np.testing.assert_array_equal(points.value["b"], np.where(there, 3, 0))
    (floats, integers), has_value = module.both(mixed)
    np.testing.assert_array_equal(floats, np.where(there, mixed, 0))
    np.testing.assert_array_equal(integers, there)
    np.testing.assert_array_equal(has_value, there)


def test_optional_results_of_other_forms(device: spy.Device, module: Any) -> None:
    single = module.positive(tensor(device, -1.0))
    assert (single.value.item(), single.has_value.item()) == (0, False)
    asked = module.positive(2.0, _result="tensor")
    assert (asked.value.item(), asked.has_value.item()) == (2, True)
    empty = module.positive(np.zeros((0, 3), np.float32))
    assert empty.value.shape == empty.has_value.shape == (0, 3)
    number, maybe = module.partly(X)
    np.testing.assert_array_equal(number, X)
    np.testing.assert_array_equal(maybe.value, [0, 0, 3])
    assert module.partly(1.0) == (1, None) and module.partly(3.0) == (3, 3)
    x, commands = tensor(device, [1, -2]), device.command_list()
    out = module.positive.append_to(commands, x)
    again = module.positive.bind(x)
    for wanted in ([1, 0], [0, 2]):
        commands.submit()
        np.testing.assert_array_equal(out.value.to_numpy(), wanted)
        np.testing.assert_array_equal(again().value.to_numpy(), wanted)
        x *= -1
    np.testing.assert_array_equal(module.held(X).value["a"], [0, 13, 14])


# Tuple


def test_a_tuple_result_is_a_tuple(device: spy.Device, module: Any) -> None:
    assert module.pair(2.0) == (4, 3) and type(module.pair(2.0)) is tuple
    number, vector, point, array = module.four(2.0)
    assert (number, point) == (2, {"a": 2, "b": 4}) and vector.tolist() == [2, 1, 2] and array.tolist() == [2, -2]
    assert module.nested(2.5) == (2.5, (2, 5))
    for x, kind in ((X, np.ndarray), (tensor(device), spy.Tensor)):
        number, vector, point, array = module.four(x)
        assert type(number) is type(vector) is type(point) is type(array) is kind
        np.testing.assert_array_equal(np.asarray(number), X)
        np.testing.assert_array_equal(np.asarray(vector)[:, 0], X)
        np.testing.assert_array_equal((point if kind is np.ndarray else point.to_numpy())["a"], X)
        np.testing.assert_array_equal(np.asarray(array), np.stack([X, -X], 1))
    floats, (integers, doubled) = module.nested(X)
    np.testing.assert_array_equal([floats, integers, doubled], [X, X, 2 * X])


def test_a_tuple_takes_a_tuple(device: spy.Device, module: Any) -> None:
    class Named(NamedTuple):
        weight: Any
        count: Any
        direction: Any

    t, counts = tensor(device), spy.Tensor.from_numpy(device, np.int32([4, 5, 6]))
    for kind in (Named, lambda *items: items, lambda *items: list(items)):
        assert module.taken(kind(1.0, 2, [3, 4, 5])) == 421
        np.testing.assert_array_equal(module.taken(kind(X, 2, [3, 4, 5])), X + 420)
        expected = X + 10 * np.int32([4, 5, 6]) + 400
        np.testing.assert_array_equal(module.taken(kind(t, counts, [3, 4, 5])).to_numpy(), expected)
    assert module.from_nested((1.0, (2, 3.0))) == 321
    assert module.inside(None) == -1 and module.inside((1.0, 2)) == 21
    np.testing.assert_array_equal(module.inside((X, 2)), X + 20)


def test_tuples_that_are_written(device: spy.Device, module: Any) -> None:
    floats, integers = X.copy(), np.int32([1, 2, 3])
    module.grow((floats, integers))
    np.testing.assert_array_equal([floats, integers], [X + 1, 2 * X])
    out = tensor(device, [0, 0, 0]), spy.Tensor.zeros(device, 3, "int")
    module.fill(X, out)
    np.testing.assert_array_equal([t.to_numpy() for t in out], [X, X])
    assert module.pair(X, _result=out) is out
    np.testing.assert_array_equal([t.to_numpy() for t in out], [2 * X, [3, 3, 3]])


def test_both_in_structs(module: Any) -> None:
    assert module.held({"o": None, "k": 1.0, "t": (2.0, 3)}) == 321
    assert module.held({"o": 4.0, "k": 1.0, "t": (2.0, 3)}) == 324
    np.testing.assert_array_equal(module.held({"o": X, "k": 1.0, "t": (2.0, np.int32([1, 2, 3]))}), 101 * X + 20)


def test_kinds_of_results(device: spy.Device, module: Any) -> None:
    t = tensor(device)
    for kind, found in (("numpy", np.ndarray), ("tensor", spy.Tensor), (spy.NDBuffer, spy.NDBuffer)):
        assert {type(item) for item in module.pair(t, _result=kind)} == {found}
        assert {type(item) for item in module.pair.return_type(kind)(t)} == {found}
    # Calls of one signature and of another one are remembered apart.
    for value in (None, 1.0, None, X, 2.0, None):
        np.testing.assert_array_equal(module.number(value), -1 if value is None else value)


def test_overloads_and_generics(device: spy.Device, module: Any) -> None:
    assert (module.over(1.0), module.over(None), module.over((1.0, 2))) == (1, 2, 3)
    assert module.over(X).tolist() == [1, 1, 1]
    assert module.first((1.5, 2)) == 1.5 and module.first((X.astype(np.float64), 2)).dtype == np.float64
    assert (module.either(None, 2.5), module.either(1.5, 2.5)) == (2.5, 1.5)
    assert module.twice(1.5) == (1.5, 1.5) and module["twice<double>"](1.5) == (1.5, 1.5)
    np.testing.assert_array_equal(module.taken.map({"_0": (1,), "_1": (0,)})((X, np.int32([1, 2]), [0, 0, 0])),
                                  X + 10 * np.int32([[1], [2]]))  # fmt: skip


def test_lists_and_bound_calls(device: spy.Device, module: Any) -> None:
    x = tensor(device)
    commands = device.command_list()
    floats, integers = module.pair.append_to(commands, x)
    value = module.number.append_to(commands, None, _result=tensor(device, [0]))
    x.copy_from(X + 1)
    commands.submit()
    np.testing.assert_array_equal([floats.to_numpy(), integers.to_numpy()], [2 * (X + 1), [3, 3, 3]])
    assert value.tolist() == [-1]
    again, none = module.pair.bind(x), module.positive.bind(-1.0)
    x.copy_from(X)
    np.testing.assert_array_equal(again()[0].to_numpy(), 2 * X)
    assert none() is None


def test_kernels(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "wrapped_kernel", KERNEL)
    out = spy.Tensor.zeros(device, 1)
    for x, expected in ((None, 19), (4.0, 24)):
        module.kernel.dispatch(1, x, (0.0, 2), out)
        assert out.tolist() == [expected]


def test_memory_that_items_share(device: spy.Device, module: Any) -> None:
    x = tensor(device, np.arange(8))
    other = tensor(device, np.zeros(4))
    with pytest.raises(spy.ShapeError, match=r"'_result\._0' and '_result\._1' share memory, and both are written"):
        module.products(x[:4], x[4:], _result=(other, other))
    assert not other.to_numpy().any()
    # As if the arguments had been read first.
    module.products(x[:4][::-1], x[:4], _result=(x[:4], other))
    assert x.tolist() == [0, 2, 2, 0, 4, 5, 6, 7] and other.tolist() == [9, 4, 1, 0]
    empty = module.pair(np.zeros((0, 3), np.float32))
    assert [item.shape for item in empty] == [(0, 3), (0, 3)]


# Derivatives


def test_gradients(device: spy.Device, module: Any) -> None:
    x, y = tensor(device).with_grads(), tensor(device, [4, 5, 6]).with_grads()
    ones = tensor(device, [0, 0, 0]).with_grads(grad_in=tensor(device, [1, 1, 1]))
    module.scaled.bwds(x, y, _result=ones)
    b = np.float32([4, 5, 6])
    np.testing.assert_array_equal([x.grad.to_numpy(), y.grad.to_numpy()], [2 * X * b, X * X])
    module.scaled.bwds(None, y, _result=ones)
    np.testing.assert_array_equal(y.grad.to_numpy(), X * X + 1)
    x, y = tensor(device).with_grads(), tensor(device, b).with_grads()
    module.of_pair.bwds((x, y), _result=ones)
    np.testing.assert_array_equal([x.grad.to_numpy(), y.grad.to_numpy()], [b, X])
    tens = tensor(device, [0, 0, 0]).with_grads(grad_in=tensor(device, [10, 10, 10]))
    x, y = tensor(device).with_grads(), tensor(device, b).with_grads()
    module.products.bwds(x, y, _result=(ones, tens))
    np.testing.assert_array_equal([x.grad.to_numpy(), y.grad.to_numpy()], [b + 20 * X, X])


def test_forward_and_value(device: spy.Device, module: Any) -> None:
    out = module.scaled.fwds(spy.diff_pair(3.0, 1.0), 2.0)
    assert (out.primal, out.grad) == (18, 12)
    first, second = module.products.fwds(spy.diff_pair(3.0, 1.0), 2.0)
    assert (first.primal, first.grad, second.primal, second.grad) == (6, 2, 9, 6)
    assert module.scaled.value_and_grad(3.0, 2.0) == (18, {"x": 12, "y": 9})
    assert module.scaled.value_and_grad(None, 2.0) == (2, {"y": 1})
    assert module.of_pair.value_and_grad((3.0, 2.0)) == (6, {"x": (2, 3)})
    value, gradients = module.of_pair.value_and_grad((tensor(device), 2.0))
    assert value.item() == 12 and gradients["x"][0].tolist() == [2, 2, 2] and gradients["x"][1] == 6


def test_an_optional_result_has_no_derivative(device: spy.Device) -> None:
    text = "[Differentiable] Optional<float> root(float x) { if (x > 0) return sqrt(x); return none; }"
    root = spy.Module.load_from_source(device, "optional_root", text).root
    told = "it returns 'Optional<float>', which has no derivative here; return a value."
    for run in (
        lambda: root.bwds(spy.diff_pair(4.0), _result=spy.diff_pair(None, 1.0)),
        lambda: root.bwds(spy.diff_pair(4.0)),
        lambda: root.fwds(spy.diff_pair(4.0, 1.0)),
    ):
        with pytest.raises(spy.UnsupportedError, match=told):
            run()
    with pytest.raises(spy.BindError, match=r"returns 'Optional<float>'; a half, float or double was expected"):
        root.value_and_grad(4.0)


def test_torch(device: spy.Device, module: Any) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.0, 2.0, 3.0])
    floats, integers = module.pair(x)
    assert floats.tolist() == [2, 4, 6] and integers.tolist() == [3, 3, 3]
    assert module.scaled(None, x).tolist() == [1, 2, 3]
    live = x.clone().requires_grad_()
    module.scaled(live, x).sum().backward()
    assert live.grad.tolist() == [2, 8, 18]
    with pytest.raises(spy.BindError, match=r"autograd takes no results of type 'Tuple<float, float>'; write"):
        module.products(live, x)


# Refusals


@sampled(3)
@pytest.mark.parametrize(
    ("run", "said"),
    [
        (lambda m: m.number([None, 1.0]), "argument 'x' holds None of type NoneType at [0]; numbers were expected."),
        (lambda m: m.number(np.array([None, 1.0])), "argument 'x' is an array of dtype object and shape (2,), "),
        (lambda m: m.number("x"), "argument 'x' is 'x' of type str, which does not convert to 'float'."),
        (lambda m: m.positive(X, _result=(X, X)), "results of type 'Optional<float>' lie in no array; leave _result"),
        (lambda m: m.positive(X, _result="list"), "results of type 'Optional<float>' lie in no array; leave _result"),
        (lambda m: m.positive(1.0, _result=np.zeros(())), "results of type 'Optional<float>' lie in no array"),
        (
            lambda m: m.taken((1.0, 2)),
            "argument 'x' is (1.0, 2); 'Tuple<float, int, float3>' takes a tuple of 3, one for each of its items.",
        ),
        (lambda m: m.taken(X), "takes a tuple of 3, one for each of its items."),
        (lambda m: m.taken(None), "argument 'x' is None; 'Tuple<float, int, float3>' takes a tuple of 3"),
        (lambda m: m.taken((1.0, 2.5, [1, 2, 3])), "argument 'x._1' is 2.5 of type float, which does not "),
        (lambda m: m.grow((1.0, 2)), "argument 'x._0' is 'inout' and would be written to; pass an array or a "),
        (lambda m: m.pair(X, _result=X), "_result is an array of dtype float32 and shape (3,); a tuple of 2 arrays"),
        (lambda m: m.pair(X, _result=(X, X)), "_result[1] is an array of dtype float32 and shape (3,), which does"),
        (lambda m: m.taken.map({"_7": ()})((1.0, 2, X)), "map names '_7', which 'Tuple<float, int, float3>' has not"),
        (lambda m: m.first(3.0), "the arguments do not say what T stands for"),
        (lambda m: m.positive.fwds(spy.diff_pair(1.0, 1.0)), ".fwds needs a derivative"),
        (lambda m: m.products.bwds(spy.diff_pair(1.0), 2.0), "the gradient of the result is missing"),
        (lambda m: m.products.bwds(spy.diff_pair(1.0), 2.0, _result=(1, 2)), "_result[0] is 1, which has no "),
    ],
)  # fmt: skip
def test_what_is_refused(module: Any, run: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(spy.SlangPyRtError) as caught:
        run(module)
    assert said in str(caught.value)


def test_optionals_that_are_written_are_refused(device: spy.Device) -> None:
    text = "void f(out Optional<float> x) { x = none; } void g(inout Optional<float> x) { x = none; }"
    module = spy.Module.load_from_source(device, "written", text)
    for name in "fg":
        with pytest.raises(spy.UnsupportedError, match="an Optional that a function writes is not supported; return"):
            module[name](np.zeros((), np.float32))


def test_users_may_have_these_names(device: spy.Device) -> None:
    text = """
    struct Optional<T> { T value; int n; };
    struct Tuple<A, B> { A a; B b; };
    float makeTuple(float x) { return x; }
    float f(Optional<float> x) { return x.value * x.n; }
    Tuple<float, int> t(float x) { Tuple<float, int> r; r.a = makeTuple(x); r.b = 3; return r; }
    """
    module = spy.Module.load_from_source(device, "own_names", text)
    assert module.f({"value": 2.0, "n": 3}) == 6 and module.t(2.0) == {"a": 2, "b": 3}
    with pytest.raises(spy.BindError, match=r"None of type NoneType, which does not convert to 'Optional<float>'"):
        module.f(None)
    # Names of Slang's that kernels write may be a user's.
    text = """
    struct half { float x; };
    float makeTuple(float x) { return x; }
    Tuple<float, float3> t(Tuple<float, float3> x, Optional<float3> y)
    {
        if (y.hasValue)
            return x;
        return Tuple<float, float3>(1, float3(2));
    }
    """
    module = spy.Module.load_from_source(device, "hiding", text)
    number, vector = module.t((5.0, [6, 7, 8]), [1, 2, 3])
    assert number == 5 and vector.tolist() == [6, 7, 8] and module.t((X, [6, 7, 8]), None)[0].tolist() == [1, 1, 1]


def every_call(device: spy.Device, module: Any) -> None:
    """Calls of all functions, for a device that runs nothing."""
    t = tensor(device)
    seed = tensor(device).with_grads()
    for value in (None, t):
        module.number(value)
        module.vector(None if value is None else [1, 2, 3])
        module.point(None if value is None else {"a": t, "b": 1})
        module.array(None if value is None else [1, 2, 3])
        module.scaled.bwds(value, t.with_grads(), _result=seed)
    module.positive(1.0)
    module.made(1.0)
    module.both(1.0)
    module.four(t)
    module.nested(t)
    module.taken((t, 2, [1, 2, 3]))
    module.inside((t, 2))
    module.held({"o": None, "k": t, "t": (2.0, 3)})
    module.products.bwds(t.with_grads(), t, _result=(seed, seed))
    module.of_pair.bwds((t.with_grads(), t), _result=seed)


@deep
def test_kernels_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled_for_cuda(SLANG, every_call, monkeypatch) >= 20
