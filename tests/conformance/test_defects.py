"""Defects known of the closest relative, SlangPy 0.43.1, none of which may be here; named after what a user does.

Each was reproduced there, on Vulkan. Not here: what concerns ray tracing, hot reload, gradients and command lists.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest
from _gaps import pointer

import slangpy_rt as spy
from tests.depth import one_device

# What these test does not depend on the device.
pytestmark = one_device

SLANG = """
import slangpy_rt;
#include "storage.slang"
float add(float a, float b) { return a + b; }
int add_int(int a, int b) { return a + b; }
uint8_t small(uint8_t a) { return a; }
struct Pair { float x; float y; static float twice(float v) { return 2 * v; } float sum() { return x + y; } }
float pair(Pair p) { return p.x + 10 * p.y; }
int ranked(int x) { return 1; }
int ranked(float x) { return 2; }
int splat(float x) { return 1; }
int splat(float3 x) { return 3; }
int sign(int x) { return 1; }
int sign(uint x) { return 2; }
int whole(float x) { return 1; }
int whole(Tensor<float, 1> x) { return 2; }
float defaults(float a, float b = 7) { return a + b; }
float noise(float x) { return x; }
float row(Tensor<float, 1> r, int k) { return r[k]; }
float mixed(float x, POINTER(float) p, int k, Tensor<float, 1> t) { return x + 10 * p[k] + 100 * t[k]; }
int2 index(int2 i) { return i; }
void bump(inout float x, float by) { x += by; }
void fill(float x, out float y) { y = x; }
enum Mode { Off, On = 3 }
int mode(Mode m) { return int(m); }
extern static const int KK = 1;
uniform float gain;
float scaled(float x) { return x * gain * KK; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_defects", SLANG)


class Mode(enum.IntEnum):
    ON = 3


def test_02_a_tensor_of_another_device_is_refused(backend_name: str, device: spy.Device, module: spy.Module) -> None:
    with spy.Device(backend_name) as other:
        there = spy.Tensor.full(other, 3, 7)
        with pytest.raises(spy.BindError, match="is on "):
            module.add(there, 1)
        with pytest.raises(spy.BindError, match="is on "):
            module.add(1, spy.Tensor.zeros(device, 3), _result=there)
        np.testing.assert_array_equal(there.to_numpy(), [7, 7, 7])


def test_03_static_methods_can_be_called(module: spy.Module) -> None:
    np.testing.assert_array_equal(module.Pair.twice(np.arange(3)), [0, 2, 4])


def test_04_overloads_on_convertible_types_resolve(device: spy.Device, module: spy.Module) -> None:
    assert module.ranked(1) == 1 and module.ranked(1.0) == 2
    assert module.splat(1) == 1 and module.splat([1, 2, 3]) == 3
    assert module.sign(1) == 1 and module.sign(np.uint32(1)) == 2
    tensor = spy.Tensor.zeros(device, 3)
    assert module.whole(tensor).to_numpy() == 2 and module.whole(1.0) == 1


def test_05_default_arguments_are_honoured(module: spy.Module) -> None:
    np.testing.assert_array_equal(module.defaults(np.arange(3)), [7, 8, 9])


@pytest.mark.parametrize("values", [range(0, 10, 3), range(10, 0, -3), range(1, 2, 5)], ids=str)
def test_06_a_range_keeps_its_last_element(module: spy.Module, values: range) -> None:
    np.testing.assert_array_equal(np.asarray(module.add_int(values, 0)), list(values))


def test_07_a_grid_of_one_dimension_has_offset_and_stride(module: spy.Module) -> None:
    result = module.add_int(spy.grid(4, offset=10, stride=-3), 0)
    np.testing.assert_array_equal(np.asarray(result), [10, 7, 4, 1])


def test_08_every_parameter_of_rand_float_counts(module: spy.Module) -> None:
    shape = np.zeros(64, np.float32)

    def drawn(**how: Any) -> Any:
        return module.add(shape, spy.rand_float(seed=5, **how))

    plain = drawn()
    np.testing.assert_array_equal(drawn(), plain)
    for other in (drawn(warmup=3), drawn(hash_seed=False)):
        assert (other != plain).mean() > 0.9


def test_09_a_numpy_array_for_a_whole_tensor(module: spy.Module) -> None:
    host = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(module.row(host, np.array([4, 0], np.int32)), [4, 0])
    np.testing.assert_array_equal(module.row(host[::-2], np.array([0, 2], np.int32)), [4, 0])


def test_10_numpy_arrays_of_any_layout(module: spy.Module) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    frozen = base.copy()
    frozen.setflags(write=False)
    for array in (base[::2, ::-1], base.T, np.asfortranarray(base), np.array(3.5, np.float32), frozen, base[:0]):
        np.testing.assert_array_equal(module.add(array, 1), array + 1)
    np.testing.assert_array_equal(module.add(np.broadcast_to(np.float32(2), (3, 3)), 1), np.full((3, 3), 3))


def test_10_inputs_are_not_read_back(device: spy.Device, module: spy.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    result = spy.Tensor.zeros(device, 64)
    module.add(np.ones(64, np.float32), np.ones(64, np.float32), _result=result)
    fetched = []
    monkeypatch.setattr(device, "download", lambda *args: fetched.append(args))
    module.add(np.ones(64, np.float32), np.full(64, 2, np.float32), _result=result)
    assert fetched == []
    monkeypatch.undo()
    np.testing.assert_array_equal(result.to_numpy(), np.full(64, 3))


def test_11_a_numpy_result_of_numbers(module: spy.Module) -> None:
    result = module.add(1, 2, _result="numpy")
    assert type(result) is np.ndarray and result.shape == () and result == 3


def test_12_a_struct_with_fields_missing_is_refused(module: spy.Module) -> None:
    for value in ({"x": 1}, {"y": 1}, {}, (1,), {"x": 1, "y": 2, "z": 3}):
        with pytest.raises(spy.BindError, match=r"argument 'p'"):
            module.pair(value)


def test_13_nothing_is_silently_ignored(module: spy.Module) -> None:
    with pytest.raises(spy.BindError, match="no uniform 'gian'"):
        module.scaled.set(gian=3)
    with pytest.raises(spy.BindError, match="no constant 'KKK'"):
        module.scaled.constants({"KKK": 3})(1)
    with pytest.raises(spy.BindError, match="would be written to"):
        module.bump(3.0, 1)
    with pytest.raises(spy.BindError, match="returns nothing"):
        module.fill(1, np.zeros(3, np.float32), _result="numpy")
    with pytest.raises(spy.BindError, match="no parameter 'c'"):
        module.add(1, 2, c=3)
    with pytest.raises(spy.BindError, match="map names 'c'"):
        module.add.map(c=(0,))(1, 2)


def test_14_what_is_documented_is_there(device: spy.Device, module: spy.Module) -> None:
    pairs = spy.InstanceTensor(module.Pair, 3)
    np.testing.assert_array_equal(pairs.to_numpy()["x"], [0, 0, 0])
    np.testing.assert_array_equal(spy.Tensor.ones(device, 3).to_numpy(), [1, 1, 1])
    assert spy.Tensor(device, "float", (2, 3)).shape == (2, 3)


def test_16_messages_speak_of_arguments_not_of_generated_code(module: spy.Module) -> None:
    mistakes: list[Any] = [
        lambda: module.add_int(np.ones(3), 1),
        lambda: module.index(spy.call_id(), _result=np.zeros((2, 3, 4, 2), np.int32)),
        lambda: module.index(spy.grid((2, 3, 4))),
        lambda: module.add.map((0, 1))(np.ones(3), 1),
        lambda: module.row.map((0,))(np.ones(3, np.float32), 1),
        lambda: module.small(300),
        lambda: module.small(-1),
        lambda: module.add_int(1.5, 1),
        lambda: module.add(None, 1),
        lambda: module.add(object(), 1),
        lambda: module.pair(3),
    ]
    for mistake in mistakes:
        with pytest.raises(spy.SlangPyRtError) as caught:
            mistake()
        message = str(caught.value)
        assert "argument '" in message and "0x" not in message and "kernel_" not in message, message


def test_17_enums_take_ints(module: spy.Module) -> None:
    for value in (3, "On", Mode.ON, np.int64(3), module.Mode.On):
        assert module.mode(value) == 3


def test_17_tuples_and_numpy_scalars(module: spy.Module) -> None:
    np.testing.assert_array_equal(module.add((1, 2, 3), np.float64(0.5)), [1.5, 2.5, 3.5])
    np.testing.assert_array_equal(module.add(((1, 2), (3, 4)), np.uint8(1)), [[2, 3], [4, 5]])
    assert module.pair((1, 2)) == 21


def test_17_pointers_tensors_and_numbers_in_one_call(device: spy.Device, module: spy.Module) -> None:
    p = spy.Tensor.from_numpy(device, np.array([5, 6, 7], np.float32))
    k = np.array([2, 0], np.int32)
    t = np.array([1, 2, 3], np.float32)
    result = module.mixed(np.array([[1], [2], [3]], np.float32), pointer(p), k, t)
    expected = np.array([[1], [2], [3]]) + 10 * np.array([7, 5]) + 100 * np.array([3, 1])
    np.testing.assert_array_equal(np.asarray(result), expected)


def test_18_a_result_that_would_race_is_refused(device: spy.Device, module: spy.Module) -> None:
    x = np.arange(3, dtype=np.float32)
    one, tensor = np.full(1, 7, np.float32), spy.Tensor.full(device, (2, 1), 7)
    for target in (one, tensor[0], tensor[0].broadcast_to(3)):
        with pytest.raises(spy.ShapeError):
            module.add(x, x, _result=target)
        with pytest.raises(spy.ShapeError):
            module.fill(x, target)
    with pytest.raises(spy.ShapeError):
        module.bump(spy.floatRef(1), x)
    assert one[0] == 7
    np.testing.assert_array_equal(tensor.to_numpy(), [[7], [7]])
