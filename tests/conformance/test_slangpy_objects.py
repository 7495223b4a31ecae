"""Objects that SlangPy's programs make: tensors that point to others, instances of all types, kernels of programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.null import NullBackend
from tests.depth import deep, every_device, one_device

# What these test depends little on the device.
pytestmark = one_device

SLANG = """
import slangpy_rt;
extension float3 { float spread() { return max(this.x, max(this.y, this.z)) - min(this.x, min(this.y, this.z)); } }
extension float { [mutating] void grow(float by) { this += by; } }
enum Color { Red, Green = 5 }
float add(float a, float b) { return a + b; }
[Differentiable] float mul(float a, float b) { return a * b; }
int number(Color c) { return int(c); }
float first(float3 v) { return v.x; }
"""
KERNEL = """
uniform float gain;
[shader("compute")] [numthreads(4, 1, 1)]
void fill(uint3 tid : SV_DispatchThreadID, uniform float start, RWStructuredBuffer<float> values)
{
    if (tid.x < 6)
        values[tid.x] = start + gain * tid.x;
}
[shader("compute")] [numthreads(1, 1, 1)] void other(RWStructuredBuffer<float> values) { values[0] = 1; }
float plain(float x) { return x; }
"""
# Both packages run this text.
PROGRAM = """
program = device.load_program("filled.slang", ["fill"])
kernel = device.create_compute_kernel(program)
kernel.dispatch(thread_count=[6, 1, 1], vars={"gain": 2.5}, start=1.0, values=values)
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "slangpy_objects", SLANG)


def tensor(device: spy.Device, array: Any, **named: Any) -> spy.Tensor:
    return spy.Tensor.from_numpy(device, np.asarray(array, np.float32), **named)


# point_to


@every_device
def test_a_tensor_points_to_another(device: spy.Device, module: spy.Module) -> None:
    a, b = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.arange(24, 48, dtype=np.float32).reshape(2, 3, 4)
    here, there = tensor(device, a), tensor(device, b)
    view, variable = here[1], tensor(device, np.zeros((3, 4)))
    same = variable
    view.point_to(there[0])
    np.testing.assert_array_equal(view.to_numpy(), b[0])
    np.testing.assert_array_equal(module.add(view, 1).to_numpy(), b[0] + 1)
    # Another layout: each second row, from behind.
    variable.point_to(there.view((6, 4))[::-2])
    np.testing.assert_array_equal(module.add(same, 1).to_numpy(), b.reshape(6, 4)[::-2] + 1)
    module.add(1.0, 0.0, _result=same)
    expected = b.copy().reshape(6, 4)
    expected[1::2] = 1
    np.testing.assert_array_equal(there.to_numpy().reshape(6, 4), expected)
    np.testing.assert_array_equal(here.to_numpy(), a)


def test_what_was_bound_before_stays(device: spy.Device, module: spy.Module) -> None:
    x, other, out = tensor(device, [1, 2, 3, 4]), tensor(device, np.zeros(8)), tensor(device, np.zeros(4))
    commands = device.command_list()
    module.add.append_to(commands, x, 10.0, _result=out)
    bound = module.add.bind(x, 10.0, _result=out), module.add.bind(x, out, _result=out)
    x.point_to(other[::2])
    for run, expected in (
        (bound[0], [11, 12, 13, 14]),
        (bound[1], [12, 14, 16, 18]),
        (commands.submit, [11, 12, 13, 14]),
    ):
        run()
        assert out.tolist() == expected


def test_gradients_stay_when_a_tensor_points_elsewhere(device: spy.Device, module: spy.Module) -> None:
    x, y = tensor(device, [1, 2]).with_grads(), tensor(device, [10, 20])
    seed = tensor(device, [0, 0]).with_grads(grad_in=tensor(device, [1, 1]))
    gradient = x.grad
    x.point_to(y)
    module.mul.bwds(x, 3.0, _result=seed)
    assert x.tolist() == [10, 20] and x.grad is gradient and gradient.tolist() == [3, 3] and y.grad_out is None


def test_memory_that_nothing_points_to_is_freed() -> None:
    with spy.Device("null") as device:
        backend = device.backend
        assert isinstance(backend, NullBackend)
        a, b = spy.Tensor.zeros(device, 4), spy.Tensor.zeros(device, 4)
        live = backend.live
        a.point_to(b)
        assert backend.live == live - 1


def test_targets_that_do_not_fit(device: spy.Device) -> None:
    x, integers = tensor(device, [1, 2]).with_grads(), spy.Tensor.zeros(device, 2, "int")
    with spy.Device("null") as elsewhere:
        told = {
            "target is 3; a Tensor was expected.": 3,
            "target is a Tensor<int> of shape (2,); 'float' was expected, as here.": integers,
            "target is a Tensor<float> of shape (2, 1); shape (2,) was expected, as here.": spy.Tensor.zeros(
                device, (2, 1)
            ),
            f"target is on {elsewhere!r}; this tensor on {device!r}.": spy.Tensor.zeros(elsewhere, 2),
            "grad_in lies in the tensor's own memory; give it memory of its own.": x.grad,
        }
        for message, target in told.items():
            with pytest.raises(spy.SlangPyRtError) as caught:
                x.point_to(target)
            assert str(caught.value) == f"Tensor.point_to: {message}"
    assert x.tolist() == [1, 2]


# Instances


def test_instances_of_types_that_are_no_structs(device: spy.Device, module: spy.Module) -> None:
    vectors = spy.InstanceTensor(module.find_struct("float3"), 2)
    assert not vectors.to_numpy().any() and vectors.slang_type.name == "float3" and vectors.shape == (2,)
    values = np.float32([[1, 5, 2], [7, 7, 7]])
    vectors.copy_from_numpy(values)
    np.testing.assert_array_equal(vectors.spread().to_numpy(), np.ptp(values, axis=1))
    np.testing.assert_array_equal(module.first(vectors).to_numpy(), values[:, 0])
    numbers = spy.InstanceTensor(module.require_struct("float"), (2, 2))
    numbers.grow(np.float32([[1, 2], [3, 4]]))
    assert numbers.to_numpy().tolist() == [[1, 2], [3, 4]]
    given = tensor(device, [1, 2])
    for kind in ("float", module.find_struct("float"), np.float32, given.dtype):
        held = spy.InstanceTensor(kind, 2, given)
        assert module.add(held, 1).tolist() == [2, 3] and repr(held) == "InstanceTensor(float, shape=(2,))"
        assert "to_numpy" in dir(held)


def test_instances_of_enums(device: spy.Device, module: spy.Module) -> None:
    colors = spy.Tensor.from_numpy(device, np.int32([0, 5]), dtype=module.Color)
    for kind in (module.Color, module.find_struct("Color")):
        assert module.number(spy.InstanceTensor(kind, 2, colors)).tolist() == [0, 5]


def test_types_are_found_as_structs(module: spy.Module) -> None:
    found = module.find_struct("float3")
    assert found is module.find_struct("float3") and found.name == "float3" and found.fields == {}
    assert isinstance(module.float3, type(spy.Tensor.zeros(module.device, 1, "float3").dtype))
    assert module.find_struct("add") is None and module.find_struct("nothing") is None
    with pytest.raises(spy.BindError, match="has no function or type 'nothing'"):
        module.require_struct("nothing")


def test_instances_that_do_not_fit(device: spy.Device, module: spy.Module) -> None:
    given = tensor(device, [1, 2])
    told = {
        "InstanceTensor: 'float' names no device; give data=Tensor.zeros(device, (2,), 'float'), or "
        "module.find_struct('float') as the struct.": lambda: spy.InstanceTensor("float", 2),
        "InstanceTensor: data is a Tensor<float> of shape (2,); a Tensor<int> of shape (2,) was expected.": lambda: (
            spy.InstanceTensor("int", 2, given)
        ),
        "InstanceTensor: data is a Tensor<float> of shape (2,); a Tensor<float> of shape (3,) was "
        "expected.": lambda: spy.InstanceTensor("float", 3, given),
        "InstanceTensor.construct: 'float' is no struct; use copy_from_numpy.": lambda: spy.InstanceTensor(
            "float", 2, given
        ).construct(1),
    }
    for message, run in told.items():
        with pytest.raises(spy.BindError) as caught:
            run()
        assert str(caught.value) == message
    with pytest.raises(spy.BindError, match="InstanceTensor: struct"):
        spy.InstanceTensor(3, 2, given)
    with pytest.raises(AttributeError, match=r"'float' has no method 'grow' here; module\.find_struct\('float'\)"):
        spy.InstanceTensor("float", 2, given).grow(1)


# Kernels


@deep
def test_kernels_of_programs(backend_name: str, tmp_path: Path, slangpy_on_vulkan: None) -> None:
    (tmp_path / "filled.slang").write_text(KERNEL)
    theirs = subprocess.run(
        [sys.executable, "-c", f"""
import sys, slangpy as spy, numpy as np
device = spy.create_device(type=spy.DeviceType.vulkan, include_paths=[sys.argv[1]])
values = device.create_buffer(element_count=6, struct_size=4, usage=spy.BufferUsage.unordered_access)
{PROGRAM}
print(*values.to_numpy().view(np.float32))
""", str(tmp_path)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    with spy.Device(backend_name, include_paths=[tmp_path]) as device:
        values = spy.Tensor.zeros(device, 6)
        exec(PROGRAM, {"device": device, "values": values})
        assert values.tolist() == [float(x) for x in theirs.stdout.split()]
        program = device.load_program(tmp_path / "filled.slang", ["other", "fill"])
        assert repr(program) == "ShaderProgram(filled: other, fill)" and program.kernels[1].name == "fill"
        with spy.Device("null", include_paths=[tmp_path]) as elsewhere:
            one = device.load_program("filled", ["fill"])
            told = {
                f"{program!r} has 2 kernels; one was expected.": lambda: device.create_compute_kernel(program),
                "program is 3; what Device.load_program returns was expected.": lambda: device.create_compute_kernel(
                    3
                ),
                f"{one!r} is on {device!r}, and this is {elsewhere!r}.": lambda: elsewhere.create_compute_kernel(one),
            }
            for message, run in told.items():
                with pytest.raises(spy.BindError) as caught:
                    run()
                assert str(caught.value) == f"Device.create_compute_kernel: {message}"
        told = {
            "entry_point_names is 'fill'; a list of names of kernels was expected.": "fill",
            "'plain' of module 'filled' is no kernel; mark it [shader(\"compute\")] and [numthreads(x, y, z)].": [
                "plain"
            ],
        }
        for message, names in told.items():
            with pytest.raises(spy.BindError) as caught:
                device.load_program("filled.slang", names)
            assert str(caught.value) == f"Device.load_program: {message}"
        with pytest.raises(spy.BindError, match="no function or type 'none'"):
            device.load_program("filled.slang", ["none"])
        with pytest.raises(spy.CompileError, match=r"nowhere\.slang"):
            device.load_program("nowhere", ["fill"])
