"""Modifiers of a function: map, constants, set, return_type, group_size, bind, and a module's defines."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.calls import callable as callable_module
from tests.depth import deep, needs, one_device, sampled

# What these tests show does not depend on the device; --deep runs them on every one.
pytestmark = one_device

SLANG = """
import slangpy_rt;
float add(float a, float b) { return a + b; }
float copy(float x) { return x; }
float3 scale(float3 v, float s) { return v * s; }
void fill(float x, out float y) { y = x; }
struct Ray { float3 origin; float reach; }
float along(Ray r, float x) { return r.origin.x + 10 * r.reach + 100 * x; }
float row_sum(Tensor<float, 1> row, int k) { return row[0] + 10 * row[k]; }
int2 where_am_i(int2 id, int add) { return id + add; }

extern static const int count = 3;
extern static const float factor = 0.5;
extern static const bool on = false;
extern static const float3 offset = float3(1, 2, 3);
extern static const uint8_t small = 7;
float constants(float x) { return x * count + factor + (on ? 1000 : 0) + offset.y * 100 + small * 10000; }
float unrolled(float x)
{
    float values[count];
    for (int k = 0; k < count; ++k)
        values[k] = x * k;
    float s = 0;
    for (int k = 0; k < count; ++k)
        s += values[k];
    return s;
}

struct Light { float3 color; int n; }
uniform float gain;
uniform float3 bias;
uniform Light light;
uniform int table[4];
float3 lit(float x) { return gain * x + bias + light.color * light.n; }
int entry(int k) { return table[k]; }
#ifdef POWER
int power(int x) { return x * POWER; }
#else
int power(int x) { return -1; }
#endif
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_modifiers", SLANG)


def numbers(*shape: int) -> Any:
    """Whole numbers from 0 as floats."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


# map.


@one_device
def test_outer_product_transpose_and_diagonal(device: spy.Device, module: spy.Module) -> None:
    a, b, g = numbers(3), numbers(4) * 10, numbers(3, 4)
    np.testing.assert_array_equal(module.add.map((0,), (1,))(a, b), a[:, None] + b)
    np.testing.assert_array_equal(module.add.map((1,), (0,))(a, b), a + b[:, None])
    np.testing.assert_array_equal(module.copy.map((1, 0))(g), g.T)
    np.testing.assert_array_equal(module.copy.map((0, 0))(g[:, :3]), np.diagonal(g))
    tensor = spy.Tensor.from_numpy(device, g)
    np.testing.assert_array_equal(module.copy.map((1, 0))(tensor[:, ::-2]).to_numpy(), g[:, ::-2].T)
    np.testing.assert_array_equal(module.copy.map((0, 0))(tensor[:, 1:]).to_numpy(), np.diagonal(g, 1))


def test_dimensions_of_one_argument_alone(module: spy.Module) -> None:
    a, g = numbers(3), numbers(3, 4)
    expected = g + a[:, None]
    np.testing.assert_array_equal(module.add.map(None, (0,))(g, a), expected)
    np.testing.assert_array_equal(module.add.map(b=(0,))(g, a), expected)
    np.testing.assert_array_equal(module.add.map(b=(0,))(b=a, a=g), expected)
    np.testing.assert_array_equal(module.add.map(b=0)(g, a), expected)
    assert module.copy.map((2,))(a).shape == (1, 1, 3)


def test_vectors_and_whole_containers_count_their_own_dimensions(device: spy.Device, module: spy.Module) -> None:
    v, s = numbers(2, 3), numbers(4) + 1
    np.testing.assert_array_equal(module.scale.map((0,), (1,))(v, s), v[:, None] * s[:, None])
    row = spy.Tensor.from_numpy(device, numbers(5))
    result = module.row_sum.map((), (0,))(row, np.array([1, 4], np.int32))
    np.testing.assert_array_equal(result.to_numpy(), [10, 40])


def test_the_results_dimensions(module: spy.Module) -> None:
    g, out = numbers(3, 4), np.zeros((4, 3), np.float32)
    assert module.copy.map((0, 1), _result=(1, 0))(g, _result=out) is out
    np.testing.assert_array_equal(out, g.T)
    module.fill.map((0, 1), (1, 0))(g + 1, out)
    np.testing.assert_array_equal(out, g.T + 1)


def test_fields(device: spy.Device, module: spy.Module) -> None:
    origin, reach, x = numbers(2, 3), numbers(4), numbers(5)
    rays = {"origin": origin, "reach": spy.Tensor.from_numpy(device, reach)}
    expected = origin[:, :1] + 10 * reach
    np.testing.assert_array_equal(module.along.map({"origin": (0,), "reach": (1,)})(rays, 0).to_numpy(), expected)
    mapped = module.along.map({"$type": "Ray", "origin": (0,), "reach": (1,)}, (2,))
    np.testing.assert_array_equal(mapped(rays, x).to_numpy(), expected[..., None] + 100 * x)


def test_types(module: spy.Module) -> None:
    whole = np.arange(3)
    for kind in ("int", int, np.int32, "float", float):
        np.testing.assert_array_equal(module.add.map(kind)(whole, 0.5), whole + 0.5)
    with pytest.raises(spy.BindError):
        module.add.map("int")(numbers(3), 1)


def test_a_map_replaces_the_one_before(module: spy.Module) -> None:
    a, b = numbers(3), numbers(3) * 10
    first = module.add.map((0,), (1,))
    np.testing.assert_array_equal(first.map(b=(0,))(a, b), a + b)
    # The function it was made of stays.
    np.testing.assert_array_equal(first(a, b), a[:, None] + b)
    np.testing.assert_array_equal(module.add(a, b), a + b)


# constants.


@one_device
def test_constants(module: spy.Module) -> None:
    f = module.constants
    assert f(1) == 3 + 0.5 + 200 + 70000
    assert f.constants({"count": 7})(1) == 7 + 0.5 + 200 + 70000
    every = {"count": -7, "factor": 1.5, "on": True, "offset": (1, 20, 3), "small": 255}
    assert f.constants(every)(1) == -7 + 1.5 + 1000 + 2000 + 2550000
    assert f.constants({"offset": spy.float3(4)})(1) == 3 + 0.5 + 400 + 70000
    assert f.constants({"offset": np.array([1, 5, 3])})(1) == 3 + 0.5 + 500 + 70000
    assert f.constants({"count": np.int64(4), "factor": 2})(1) == 4 + 2 + 200 + 70000


def test_constants_add_up_and_the_last_wins(module: spy.Module) -> None:
    f = module.constants.constants({"count": 7}).constants({"factor": 0.0})
    assert f(1) == 7 + 0 + 200 + 70000
    assert f.constants({"count": 8})(1) == 8 + 0 + 200 + 70000
    assert module.constants(1) == 3 + 0.5 + 200 + 70000


def test_a_constant_sizes_an_array(module: spy.Module) -> None:
    x = numbers(4)
    for n in (1, 5):
        np.testing.assert_array_equal(module.unrolled.constants({"count": n})(x), x * sum(range(n)))


# set.


def test_uniforms(module: spy.Module) -> None:
    x = numbers(3)
    values = {"gain": 2, "bias": [1, 2, 3], "light": {"color": [10, 20, 30], "n": 4}}
    expected = 2 * x[:, None] + [1, 2, 3] + 4 * np.array([10, 20, 30])
    f = module.lit
    np.testing.assert_array_equal(f.set(values)(x), expected)
    np.testing.assert_array_equal(f.set(**values)(x), expected)
    np.testing.assert_array_equal(
        f.set({"gain": 5, "bias": 0}, gain=2).set(bias=[1, 2, 3], light=values["light"])(x), expected
    )
    np.testing.assert_array_equal(f.set(**values)(x=x), expected)
    assert module.entry.set(table=[5, 6, 7, 8])(2) == 7


def test_values_of_uniforms_travel_with_the_call(module: spy.Module) -> None:
    base = module.lit.set(bias=0, light={"color": 0, "n": 0})
    two = base.set(gain=2)
    three = two.set(gain=3)
    for f, gain in ((two, 2), (three, 3), (two, 2)):
        np.testing.assert_array_equal(f(1), [gain] * 3)
    texts = {f.source(1.0) for f in (two, three)}
    assert len(texts) == 1, "another value is no other kernel"


# return_type.


def test_return_types(device: spy.Device, module: spy.Module) -> None:
    x = numbers(3)
    tensor = spy.Tensor.from_numpy(device, x)
    for asked, kind in (
        (spy.Tensor, spy.Tensor),
        ("tensor", spy.Tensor),
        (spy.NDBuffer, spy.NDBuffer),
        ("ndbuffer", spy.NDBuffer),
        (np.ndarray, np.ndarray),
        ("numpy", np.ndarray),
    ):
        f = module.add.return_type(asked)
        for left in (x, tensor, 1):
            result = f(left, x)
            assert type(result) is kind
            np.testing.assert_array_equal(np.asarray(result), np.asarray(left) + x)
    # _result has the last word.
    assert type(module.add.return_type("tensor")(x, x, _result="numpy")) is np.ndarray


# group_size.


@sampled(4)
@pytest.mark.parametrize("size", [1, 64, (8,), (1, 1), (4, 8), (3, 5), (2, 4, 8), (1, 1, 1)], ids=str)
def test_thread_groups_change_nothing(device: spy.Device, module: spy.Module, size: Any) -> None:
    x, row = numbers(5, 7, 11), numbers(7, 1)
    f = module.add.group_size(size)
    np.testing.assert_array_equal(f(x, row), x + row)
    tensor = spy.Tensor.from_numpy(device, x)
    np.testing.assert_array_equal(f(tensor[::-1, :, ::2], row).to_numpy(), x[::-1, :, ::2] + row)
    into = np.zeros_like(x)
    module.fill.group_size(size)(tensor, into)
    np.testing.assert_array_equal(into, x)


@deep
def test_thread_groups_and_indices(module: spy.Module) -> None:
    y, x = np.indices((6, 7))
    expected = np.stack([x, y], -1)
    for size in ((4, 4), (1, 8), (5,)):
        np.testing.assert_array_equal(module.where_am_i.group_size(size)(spy.grid((6, 7)), 1), expected + 1)
        result = module.where_am_i.group_size(size)(spy.call_id(), np.zeros((6, 7), np.int32))
        np.testing.assert_array_equal(result, expected)


@needs("grouped calls")
def test_thread_groups_of_more_dimensions_than_the_call(module: spy.Module) -> None:
    with pytest.raises(spy.BindError) as caught:
        module.add.group_size((4, 4))(numbers(3), 1)
    assert str(caught.value) == (
        "float add(float a, float b): group_size (4, 4) counts 2 dimensions; the call has shape (3,)."
    )


# bind.


def test_prepared_calls(device: spy.Device, module: spy.Module) -> None:
    a = spy.Tensor.from_numpy(device, numbers(4))
    into = spy.Tensor.zeros(device, 4)
    call = module.add.bind(a, a, _result=into)
    assert call() is into
    np.testing.assert_array_equal(into.to_numpy(), numbers(4) * 2)
    a.copy_from(np.full(4, 5))
    call()
    np.testing.assert_array_equal(into.to_numpy(), np.full(4, 10))


def test_prepared_calls_make_new_results(device: spy.Device, module: spy.Module) -> None:
    a = spy.Tensor.from_numpy(device, numbers(4))
    host = numbers(4)
    for call in (module.add.bind(a, 1), module.add.bind(host, 1), module.add.bind(b=1, a=host)):
        first = np.asarray(call())
        a.copy_from(numbers(4) * 3)
        host *= 3
        np.testing.assert_array_equal(first, numbers(4) + 1)
        np.testing.assert_array_equal(np.asarray(call()), numbers(4) * 3 + 1)
        a.copy_from(numbers(4))
        host[:] = numbers(4)
    assert module.add.bind(1, 2)() == 3.0


def test_a_prepared_call_keeps_its_arguments(module: spy.Module, device: spy.Device) -> None:
    def made() -> Any:
        return module.scale.bind(spy.Tensor.from_numpy(device, numbers(2, 3), "float3"), 2)

    call = made()
    spy.Tensor.zeros(device, (64, 64))
    np.testing.assert_array_equal(call().to_numpy(), numbers(2, 3) * 2)


def test_a_prepared_call_keeps_the_parts_of_its_arguments(module: spy.Module, device: spy.Device) -> None:
    class Named(NamedTuple):
        origin: Any
        reach: Any

    @dataclass
    class Owned:
        origin: Any
        reach: Any

    x = spy.Tensor.from_numpy(device, numbers(4))
    shorter = spy.Tensor.zeros(device, 2)
    for kind in (dict, Named, Owned):
        reach, origin = spy.Tensor.from_numpy(device, numbers(4)), [1.0, 2.0, 3.0]
        ray = kind(origin=origin, reach=reach)
        call = module.along.bind(ray, x)
        expected = 1 + 110 * numbers(4)
        np.testing.assert_array_equal(call().to_numpy(), expected)
        # An array of another length would be read beyond its end.
        origin[0] = 50.0
        if kind is dict:
            ray |= {"reach": shorter}
        elif kind is Owned:
            ray.reach = shorter
        np.testing.assert_array_equal(call().to_numpy(), expected)
        reach.copy_from(numbers(4) * 2)
        np.testing.assert_array_equal(call().to_numpy(), expected + 10 * numbers(4))
    numbered = [1.0, 2.0, 3.0]
    call = module.scale.bind(numbered, x)
    numbered[:] = ["a"]
    np.testing.assert_array_equal(call().to_numpy(), numbers(4)[:, None] * np.float32([1, 2, 3]))


# What modifiers are among each other.


@sampled(4)
@pytest.mark.parametrize("kind", ["Tensor", "view", "numpy", "slices", "torch"])
@pytest.mark.parametrize("into", ["out", "_result"])
def test_a_diagonal_keeps_the_rest_of_the_array(device: spy.Device, module: spy.Module, kind: str, into: str) -> None:
    """``map((0, 0))`` writes to the diagonal alone, whatever the array lies in."""
    host = np.arange(-20, 5, dtype=np.float32).reshape(5, 5)
    tensor = spy.Tensor.from_numpy(device, host)
    array: Any = {
        "Tensor": tensor,
        "view": tensor[1:4, 2:],
        "numpy": host.copy(),
        "slices": host.copy()[1:4, ::2],
    }.get(kind)
    if kind == "torch":
        array = pytest.importorskip("torch").from_numpy(host.copy())

    def held() -> Any:
        return array if isinstance(array, np.ndarray) else array.numpy()

    before = held().copy()
    for turn in range(2):
        x = np.arange(len(before), dtype=np.float32) + 10 * turn
        if into == "out":
            module.fill.map((0,), (0, 0))(x, array)
        else:
            module.copy.map((0,), _result=(0, 0))(x, _result=array)
        np.fill_diagonal(before, x)
        np.testing.assert_array_equal(held(), before)
    if kind == "view":
        around = tensor.to_numpy()
        around[1:4, 2:] = host[1:4, 2:]
        np.testing.assert_array_equal(around, host)


def test_modifiers_of_modifiers(device: spy.Device, module: spy.Module) -> None:
    a, b = numbers(3), numbers(4)
    f = module.add.map((0,), (1,)).return_type(spy.Tensor).group_size((2, 2))
    result = f(a, b)
    assert type(result) is spy.Tensor
    np.testing.assert_array_equal(result.to_numpy(), a[:, None] + b)
    g = module.lit.set(gain=2).return_type("tensor").set(bias=1, light=(0, 0)).group_size(32)
    np.testing.assert_array_equal(g(a).to_numpy(), np.repeat(2 * a[:, None] + 1, 3, 1))
    # A modifier given twice alike is the same function, with its kernels.
    assert module.add.map((0,), (1,)) is module.add.map((0,), (1,))


@one_device
def test_defines(device: spy.Device, module: spy.Module) -> None:
    assert module.power(2) == -1
    for value in (5, "(2 + 3)"):
        other = spy.Module.load_from_source(device, "test_modifiers", SLANG, defines={"POWER": value})
        assert other.power(2) == 10
    assert module.power(3) == -1


def test_explain_shows_parts_and_uniforms(device: spy.Device, module: spy.Module) -> None:
    f = module.along.map({"origin": (0,), "reach": (1,)}, None)
    rays = {"origin": spy.Tensor.from_numpy(device, numbers(2, 3), "float3"), "reach": numbers(4)}
    title, table, kernel = f.explain(rays, 1).split("\n\n", 2)
    assert title.startswith(f"float along(Ray r, float x) on {device.name}\ncall shape (2, 4), ")
    rows = [line.split()[:2] for line in table.splitlines()]
    assert rows[1:] == [["r.origin", "float3"], ["r.reach", "float"], ["x", "float"], ["_result", "float"]]
    assert kernel == f.source(rays, 1)
    uniform = module.lit.set(gain=1, light=(0, 2), bias=[1, 2, 3]).explain(2.0)
    names = [line.split()[0] for line in uniform.split("\n\n")[1].splitlines()]
    assert names == ["argument", "gain", "light.color", "light.n", "bias", "x", "_result"]


def test_a_function_describes_itself(module: spy.Module) -> None:
    assert module.along.signature == "float along(Ray r, float x)"
    assert module.scale.return_type_name == "float3"
    assert repr(module.along.map((0,))) == "<Slang function float along(Ray r, float x)>"


def test_constants_that_change_are_forgotten(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions for a thousand values of a constant are not all kept; the ones that a program holds stay right."""
    monkeypatch.setattr(callable_module, "_MAX_VARIANTS", 4)
    text = "extern static const int k = 1; float f(float x) { return k * x; }"
    function = spy.Module.load_from_source(device, "forgotten_constants", text).f
    held = function.constants({"k": 0})
    assert function.constants({"k": 0}) is held
    made = [weakref.ref(function.constants({"k": k})) for k in range(1, 40)]
    made += [weakref.ref(function.map(x=(k % 30,)).constants({"k": [k, k + 1]})) for k in range(40)]
    gc.collect()
    assert sum(each() is not None for each in made) <= 8
    assert held(2.0) == 0
    assert function.constants({"k": 3})(2.0) == 6
    again = function.constants({"k": 0})
    assert again is not held
    assert again(2.0) == 0
