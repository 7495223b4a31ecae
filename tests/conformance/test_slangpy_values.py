"""Values as SlangPy's programs give them: parameter blocks, hooks of ``set`` and ``write``, packed values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import one_device

# What these test depends little on the device.
pytestmark = one_device

SLANG = """
import slangpy_rt;
struct Params { float k; float3 color; }
ParameterBlock<Params> params; // of plain data
/* and this one */ ConstantBuffer<Params> second;
uniform float gain;
float add_k(float x) { return x + params.k + second.color.y + gain; }
[Differentiable] float scaled(float x) { return x * gain; }
struct Val { int x; float y[2]; }
int inc(Val v) { return v.x + int(v.y[1]); }
float total(float x[3]) { return x[0] + x[1] + x[2]; }
void write(inout float x) { x += 1; }
float first(Tensor<float, 1> t) { return t[0]; }
struct Point
{
    float x;
    float2 y;
    __init(float a) { x = a; y = float2(a, 2 * a); }
    [mutating] void shift(float by) { x += by; y += by; }
}
[numthreads(1, 1, 1)]
void kernel(RWTensor<float, 1> o) { o[0] = gain + params.k; }
"""
BLOCK = {"k": 10.0, "color": [1.0, 2.0, 3.0]}


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "slangpy_values", SLANG)


def test_parameter_blocks_are_uniforms(module: spy.Module) -> None:
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(module.add_k(x), x)
    np.testing.assert_array_equal(module.add_k.set({"params": BLOCK})(x), x + 10)
    np.testing.assert_array_equal(module.add_k.set(params=BLOCK, second=BLOCK)(x), x + 12)
    with pytest.raises(spy.BindError, match=r"color"):
        module.add_k.set(params={"k": 1.0})(x)


def test_blocks_of_resources_stay(device: spy.Device) -> None:
    text = "struct P { float a; Texture2D<float> b; }; ParameterBlock<P> p; float f(float x) { return x; }"
    assert spy.Module.load_from_source(device, "resources", text).f(2.0) == 2
    text = (
        "struct P { StructuredBuffer<float> b; }; struct Q { P p; float a; }; ParameterBlock<Q> q; "
        "float f(float x) { return x; }"
    )
    assert spy.Module.load_from_source(device, "nested", text).f(2.0) == 2
    text = "struct P { float a; RWStructuredBuffer<float> b; }; ParameterBlock<P> p; float f(float x) { return x; }"
    with pytest.raises(
        spy.BindError, match=r"^f\.set: there is no uniform 'p'; the module has none\. What is declared"
    ):
        spy.Module.load_from_source(device, "buffers", text).f.set(p={"a": 1.0})
    text = "struct Q { float a; }; struct R { ParameterBlock<Q> q; }; float f(float x) { return x; }"
    assert spy.Module.load_from_source(device, "inner", text).f(2.0) == 2


def test_lines_of_a_text_with_blocks_keep_their_numbers(device: spy.Device) -> None:
    text = "struct P { float a; };\nParameterBlock<\n  P\n> p;\nfloat f(float x)\n{\n    return x * wrong;\n}\n"
    with pytest.raises(spy.CompileError, match=r"lines.slang:7:16"):
        spy.Module.load_from_source(device, "lines", text)


def test_a_function_is_asked_at_each_call(device: spy.Device, module: spy.Module) -> None:
    state: dict[str, Any] = {"gain": 2.0}
    asked: list[Any] = []

    def hook(function: Any) -> dict[str, Any]:
        asked.append(function.name)
        return state

    f = module.scaled.set(hook)
    assert f(3.0) == 6
    state["gain"] = 5.0
    assert f(3.0) == 15 and asked == ["scaled", "scaled"]
    # What is set later takes precedence, whichever kind it is.
    assert f.set(gain=7.0)(1.0) == 7
    assert module.scaled.set(gain=7.0).set(hook)(1.0) == 5
    assert f.set(lambda _: {"gain": 8.0})(1.0) == 8
    assert f.return_type("numpy")(np.float32([1, 2])).tolist() == [5, 10]
    x = spy.diff_pair(3.0)
    f.bwds(x, spy.diff_pair(None, 1.0))
    assert x.grad == 5
    commands = device.command_list()
    out = f.append_to(commands, spy.Tensor.full(device, 2, 2.0))
    commands.submit()
    assert out.to_numpy().tolist() == [10, 10]
    o = spy.Tensor.zeros(device, 1)
    module.kernel.set(lambda k: {"gain": 3.0}).write(lambda c: c.params.write(BLOCK)).dispatch(1, o)
    assert o.to_numpy().tolist() == [13]
    assert module.scaled(3.0) == 0


def test_a_function_writes_through_a_cursor(module: spy.Module) -> None:
    x = np.arange(2, dtype=np.float32)

    def whole(cursor: Any, scale: float, *, k: float) -> None:
        cursor.write({"params": {"k": scale * k, "color": [0, 0, 0]}})

    def by_attribute(cursor: Any) -> None:
        cursor.params.k = 10
        cursor.params.color = [1, 2, 3]

    def by_item(cursor: Any) -> None:
        cursor["params"]["k"] = 10
        cursor.find_field("params").find_field("color").write((1, 2, 3))

    for f in (
        module.add_k.write(whole, 2.0, k=5.0),
        module.add_k.write(by_attribute),
        module.add_k.write(by_item),
    ):
        np.testing.assert_array_equal(f(x), x + 10)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (lambda m: m.scaled.set(lambda f: 3)(1.0), "scaled.set: the function returned 3; a dict"),
        (lambda m: m.scaled.set(lambda f: {"wrong": 3})(1.0), "there is no uniform 'wrong'"),
        (lambda m: m.scaled.set(lambda f: {"gain": "x"})(1.0), "'gain' is 'x'"),
        (lambda m: m.scaled.write(3), "scaled.write: 3 is no function that gets a cursor"),
        (lambda m: m.scaled.write(lambda c: c.write(3))(1.0), "write: 3 is no dict of values by name"),
        (lambda m: m.scaled.write(lambda c: c[0])(1.0), "write: 0 is no name of a uniform or field"),
        (lambda m: m.scaled.write(lambda c: setattr(c, "gain", 3) or c.gain.x)(1.0), "was given 3, and has no field"),
        (lambda m: spy.pack(3, 4), "pack: module is 3; a module was expected"),
        (lambda m: spy.pack(m, {"_type": "Wrong"}), "knows no type 'Wrong'"),
        (lambda m: m.write(spy.pack(m, np.float32([1, 2]))), "would be written to"),
    ],
)
def test_what_is_wrong_is_named(module: spy.Module, run: Callable[[spy.Module], Any], said: str) -> None:
    with pytest.raises(spy.BindError) as caught:
        run(module)
    assert said in str(caught.value)
    assert module.scaled.set(gain=2.0)(3.0) == 6


def test_packed_values_are_those_of_when_they_were_packed(device: spy.Device, module: spy.Module) -> None:
    value = {"_type": "Val", "x": 41, "y": [0.0, 1.0]}
    packed = spy.pack(module, value)
    assert spy.pack(module, packed) is packed
    value["x"] = 0
    value["y"][1] = 9.0  # type: ignore[index]
    assert module.inc(packed) == 42 and module.inc(packed) == 42
    listed = spy.pack(module, [{"_type": "Val", "x": k, "y": [0.0, 1.0]} for k in range(4)])
    assert module.inc(listed, _result="numpy").tolist() == [1, 2, 3, 4]
    array = np.float32([1, 2, 3])
    kept = spy.pack(module, array)
    array[:] = 0
    assert module.total(kept) == 6
    # Arrays on a device are taken by reference.
    tensor = spy.Tensor.full(device, 3, 2.0)
    first = spy.pack(module, tensor)
    tensor.copy_from_numpy(np.float32([5, 6, 7]))
    assert module.first(first) == 5
    xs = spy.Tensor.from_numpy(device, np.int32([1, 2]))
    instances = spy.InstanceList(module.Val, {"x": xs, "y": [0.0, 3.0]})
    both = instances.pack()
    instances.y = [0.0, 0.0]
    assert module.inc(both, _result="numpy").tolist() == [4, 5]


def test_instances_are_constructed(device: spy.Device, module: spy.Module) -> None:
    x, y = spy.Tensor.zeros(device, 3), spy.Tensor.zeros(device, 3, "float2")
    points = spy.InstanceList(module.Point, {"x": x, "y": y})
    points.construct(np.float32([1, 2, 3]))
    assert points.x is x and x.to_numpy().tolist() == [1, 2, 3]
    np.testing.assert_array_equal(y.to_numpy(), [[1, 2], [2, 4], [3, 6]])
    points.shift(0.5)
    np.testing.assert_array_equal(y.to_numpy(), [[1.5, 2.5], [2.5, 4.5], [3.5, 6.5]])
    points.construct(5.0)
    assert x.to_numpy().tolist() == [5, 5, 5]
    new = spy.InstanceList(module.Point)
    new.construct(tensor := spy.Tensor.from_numpy(device, np.float32([1, 2])))
    assert new.x.to_numpy().tolist() == [1, 2] and tensor.shape == (2,)
    one = spy.InstanceList(module.Point)
    one.construct(4.0)
    assert one.x == 4
    with pytest.raises(spy.ShapeError, match=r"shapes \(2,\) and \(3,\); one shape"):
        spy.InstanceList(module.Point, {"x": x, "y": spy.Tensor.zeros(device, 2, "float2")}).construct(1.0)
    with pytest.raises(spy.BindError, match=r"'y' is .*; a Tensor of 'float2' was expected"):
        spy.InstanceList(module.Point, {"x": x, "y": spy.Tensor.zeros(device, (3, 2))}).construct(1.0)
    with pytest.raises(spy.ShapeError):
        points.construct(np.float32([1, 2]))
    assert x.to_numpy().tolist() == [5, 5, 5]
