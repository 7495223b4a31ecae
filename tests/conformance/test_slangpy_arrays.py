"""What SlangPy's programs do with tensors, vectors and modules: views by strides, gradients to set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import one_device

# What these test depends little on the device.
pytestmark = one_device

SLANG = """
import slangpy_rt;
struct S { float x; float twice() { return 2 * x; } }
T same<T>(T x) { return x; }
float add(float a, float b) { return a + b; }
[Differentiable] float square(float x) { return x * x; }
float one(float1 v) { return v.x; }
float3 times(float3x3 m, float3 v) { return mul(m, v); }
int4 four(int4 p) { return p; }
int five(int p[5]) { return p[0] * 10000 + p[1] * 1000 + p[2] * 100 + p[3] * 10 + p[4]; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "slangpy_arrays", SLANG)


def tensor(device: spy.Device, array: Any, **named: Any) -> spy.Tensor:
    return spy.Tensor.from_numpy(device, np.asarray(array, np.float32), **named)


def strided(array: npt.NDArray[Any], shape: Any, strides: Any, offset: int) -> npt.NDArray[Any]:
    steps = tuple(s * array.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(array[offset:], shape, steps)


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((2, 2), (2, 1), 1), ((3, 4), (4, 1), 0), ((2, 3), (-1, 2), 3), ((3, 3), (0, 1), 9), ((4,), (3,), 2),
        ((0, 3), (5, 1), 12), ((2, 2, 2), (1, 2, 4), 0), ((), (), 11),
    ],
)  # fmt: skip
def test_views_by_strides(device: spy.Device, module: spy.Module, shape: Any, strides: Any, offset: int) -> None:
    ramp = np.arange(12, dtype=np.float32)
    view = tensor(device, ramp).view(shape, strides, offset)
    expected = strided(ramp, shape, strides, offset)
    np.testing.assert_array_equal(view.to_numpy(), expected)
    np.testing.assert_array_equal(module.add(view, 1.0, _result="numpy"), expected + 1)


def test_views_of_larger_elements(device: spy.Device, module: spy.Module) -> None:
    ramp = np.arange(24, dtype=np.float32).reshape(8, 3)
    view = tensor(device, ramp, dtype="float3").view((2,), (3,), 1)
    np.testing.assert_array_equal(view.to_numpy(), ramp[[1, 4]])
    structs = spy.Tensor.zeros(device, 4, dtype=module.S)
    field = structs["x"]
    field.copy_from_numpy(np.float32([1, 2, 3, 4]))
    picked = structs.view((2,), (2,), 1)
    assert module.S.twice(picked, _result="numpy").tolist() == [4, 8]


def test_views_have_gradients(device: spy.Device, module: spy.Module) -> None:
    x = tensor(device, [1, 2, 3, 4]).with_grads()
    view = x.view((2,), (2,), 1)
    module.square.bwds(view, tensor(device, [0, 0]).with_grads(grad_in=tensor(device, [1, 10])))
    assert x.grad.to_numpy().tolist() == [0, 4, 0, 80]


def test_an_overlapping_view_is_not_written(device: spy.Device, module: spy.Module) -> None:
    x = tensor(device, [1, 2, 3])
    with pytest.raises(spy.ShapeError):
        module.add(x.view((2, 2), (1, 1)), 1.0, _result=x.view((2, 2), (1, 1)))
    assert x.to_numpy().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (lambda t: t.view((4, 3), (3, 1), 1), "reach from element 1 to 12; Tensor<float> of shape (12,) has"),
        (lambda t: t.view((2,), (-1,)), "reach from element -1 to 0"),
        (lambda t: t.view((2,), (1, 1)), "strides is (1, 1)"),
        (lambda t: t.view((2,), "ab"), "strides is 'ab'"),
        (lambda t: t.view((2,), (1,), 0.5), "offset is 0.5"),
        (lambda t: t.view((2,), (1,), 13), "reach from element 13"),
        (lambda t: t.view((0,), (1,), 13), "offset 13 reach from element"),
        (lambda t: t.view((2**40,), (2**40,)), "reach from element 0"),
        (lambda t: t[::2].view((3,), (2,)), "non-contiguous view"),
        (lambda t: t.view((5, 3)), "cannot be seen as shape (5, 3)"),
    ],
)
def test_views_outside_are_refused(device: spy.Device, run: Callable[[spy.Tensor], Any], said: str) -> None:
    with pytest.raises(spy.ShapeError) as caught:
        run(tensor(device, np.arange(12)))
    assert said in str(caught.value)


def test_gradients_can_be_set(device: spy.Device, module: spy.Module) -> None:
    x, y = tensor(device, [1, 2]), tensor(device, [0, 0])
    x.grad_out = tensor(device, [0, 0])
    y.grad_in = tensor(device, [1, 10])
    module.square.bwds(x, y)
    assert x.grad_out.to_numpy().tolist() == [2, 40]
    y.grad_in = tensor(device, [2, 2])
    module.square.bwds(x, y)
    assert x.grad_out.to_numpy().tolist() == [6, 48] and x.grad_in is None
    y.grad_in = None
    assert y.grad_in is None
    with pytest.raises(spy.BindError, match="without a gradient to read"):
        module.square.bwds(x, y)
    for wrong in (3, np.float32([1, 2])):
        with pytest.raises(spy.BindError, match="grad_in"):
            x.grad_in = wrong  # type: ignore[assignment]
    with pytest.raises(spy.ShapeError, match="shape"):
        x.grad_in = tensor(device, [1, 2, 3])
    with pytest.raises(spy.BindError, match=r"lies in memory in another way; with_grads\(grad_out"):
        x.grad_out = tensor(device, [1, 2, 3, 4])[::2]
    assert x.grad_out.to_numpy().tolist() == [6, 48]


def test_vectors_of_one_and_identities(module: spy.Module) -> None:
    assert module.one(spy.float1(3)) == 3 and spy.int1(4).x == 4
    with pytest.raises(AttributeError, match="has no component 'y'"):
        _ = spy.float1(3).y
    assert module.times(spy.float3x3.identity(), spy.float3(1, 2, 3)).tolist() == [1, 2, 3]
    for kind in (spy.float2x2, spy.float3x4, spy.float4x2):
        np.testing.assert_array_equal(kind.identity(), np.eye(*kind.slang_type.shape))
        assert type(kind.identity()) is kind
    assert not hasattr(spy.float3, "identity")


def test_modules_find_by_name(module: spy.Module) -> None:
    assert module.find_function("add") is module.add and module.require_function("add") is module.add
    assert module.find_struct("S") is module.S and module.require_struct("S") is module.S
    assert module.require_function("same<int>")(3) == 3
    assert module.find_function("S") is None and module.find_struct("add") is None
    assert module.find_function("none") is None and module.find_struct("none") is None
    for require in (module.require_function, module.require_struct):
        with pytest.raises(spy.BindError, match="has no function or type 'none'"):
            require("none")
        with pytest.raises(ValueError, match="a str was expected"):
            require(3)  # type: ignore[arg-type]


def test_ids_of_more_than_three_dimensions(device: spy.Device, module: spy.Module) -> None:
    shape = (2, 3, 1, 4)
    out = spy.Tensor.zeros(device, shape, "int4")
    module.four(spy.call_id(), _result=out)
    expected = np.stack(np.indices(shape)[::-1], -1)
    np.testing.assert_array_equal(out.to_numpy(), expected)
    np.testing.assert_array_equal(module.four(spy.grid(shape), _result="numpy"), expected)
    shape = (2, 3, 2, 4, 5)
    expected = np.tensordot([10000, 1000, 100, 10, 1], np.indices(shape), 1)
    np.testing.assert_array_equal(module.five(spy.grid(shape), _result="numpy"), expected)
    np.testing.assert_array_equal(module.five.call_group_shape((2, 4))(spy.grid(shape), _result="numpy"), expected)


def test_errors_are_value_errors(module: spy.Module) -> None:
    for run in (
        lambda: module.add(1.0, c=2.0),
        lambda: module.add("x", 1.0),
        lambda: module.add(1.0),
        lambda: module.add(np.zeros(2), np.zeros(3)),
        lambda: module.add.set(3),
    ):
        with pytest.raises(ValueError, match=r"add"):
            run()
