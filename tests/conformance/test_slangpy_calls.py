"""Ways to call that SlangPy has: results by position, derivatives of methods, numbers of threads of all kinds."""

from __future__ import annotations

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
uniform float gain;
[Differentiable] float square(float x) { return x * x; }
[Differentiable] float product(float x, float y) { return x * y; }
[Differentiable] float either(float x) { return x; }
[Differentiable] float either(float x, float y) { return x * y; }
[Differentiable] void cube(float x, out float y) { y = x * x * x; }
struct Line : IDifferentiable
{
    float slope;
    float start;
    [Differentiable] float at(float x) { return slope * x + start; }
    [mutating] void shift(float by) { start += by; }
}
void numbered(uint3 dispatchThreadID, RWTensor<float, 3> o, float by)
{
    o[int3(dispatchThreadID)] = dispatchThreadID.x + 10 * dispatchThreadID.y + 100 * dispatchThreadID.z + by * gain;
}
void line(int tid, RWTensor<float, 1> o, float by) { o[tid] = tid + by; }
void plane(int2 tid, RWTensor<int, 2> o) { o[tid] = tid.x + 10 * tid.y; }
void named(int tid, RWTensor<float, 1> o, float thread_count, float vars) { o[tid] = thread_count + 10 * vars; }
int returns(int tid) { return tid; }
void writes(int tid, out float x) { x = tid; }
void no_index(float x, RWTensor<float, 1> o) { o[0] = x; }
void two(int tid, RWTensor<float, 1> o) {}
void two(int2 tid, RWTensor<float, 1> o) {}
[numthreads(4, 1, 1)]
void kernel(uint3 tid : SV_DispatchThreadID, RWTensor<float, 1> o)
{
    if (tid.x < o.shape[0])
        o[tid.x] += tid.x + gain;
}
[numthreads(1, 1, 1)]
void of_names(RWTensor<float, 1> o, float thread_count, float vars) { o[0] = thread_count + 10 * vars; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "slangpy_calls", SLANG)


def tensor(device: spy.Device, array: Any) -> spy.Tensor:
    return spy.Tensor.from_numpy(device, np.asarray(array, np.float32))


def seeded(device: spy.Device, array: Any) -> spy.Tensor:
    return tensor(device, 0 * np.asarray(array)).with_grads(grad_in=tensor(device, array))


def test_the_last_argument_of_bwds_may_be_the_result(device: spy.Device, module: spy.Module) -> None:
    x, y = tensor(device, [1, 2, 3]).with_grads(), tensor(device, [4, 5, 6]).with_grads()
    seed = seeded(device, [1, 10, 100])
    module.square.bwds(x, seed)
    np.testing.assert_array_equal(x.grad.to_numpy(), [2, 40, 600])
    x.grad.clear()
    module.product.bwds(x, y, seed)
    module.product.bwds(x, y, seed)
    np.testing.assert_array_equal(x.grad.to_numpy(), [8, 100, 1200])
    np.testing.assert_array_equal(y.grad.to_numpy(), [2, 40, 600])
    both = spy.diff_pair(3.0)
    module.square.bwds(both, spy.diff_pair(None, 2.0))
    assert both.grad == 12
    # An overload that takes as many arguments comes first.
    with pytest.raises(spy.BindError, match="missing"):
        module.either.bwds(x, seed)
    module.either.bwds(x, y, seed)
    # A function without a result has no place for one.
    module.cube.bwds(x, seed)
    with pytest.raises(spy.BindError, match="3 positional arguments were given; it takes 2"):
        module.cube.bwds(x, seed, seed)
    with pytest.raises(spy.BindError, match="3 positional arguments were given; it takes 1"):
        module.square.bwds(x, y, seed)
    with pytest.raises(spy.BindError, match="2 positional arguments were given; it takes 1"):
        module.square.bwds(x, y, _result=seed)
    with pytest.raises(spy.BindError, match="2 positional arguments were given; it takes 1"):
        module.square(x, seed)


def test_methods_of_instances_have_derivatives(device: spy.Device, module: spy.Module) -> None:
    slopes = tensor(device, [2, 3, 4]).with_grads()
    lines = spy.InstanceList(module.Line, {"slope": slopes, "start": 1.0})
    x, seed = tensor(device, [1, 2, 3]).with_grads(), seeded(device, [1, 10, 100])
    lines.at.bwds(x, _result=seed)
    lines.at.bwds(x, seed)
    np.testing.assert_array_equal(slopes.grad.to_numpy(), [2, 40, 600])
    np.testing.assert_array_equal(x.grad.to_numpy(), [4, 60, 800])
    tangent = lines.at.fwds(spy.diff_pair(1.0, 1.0))
    # The slopes' gradients are their tangents, each for a start of 1.
    np.testing.assert_array_equal(tangent.grad_out.to_numpy(), [2 + 2, 40 + 3, 600 + 4])
    numbers = spy.InstanceTensor(module.Line, 2)
    numbers.shift(np.float32([5, 6]))
    assert numbers.at(1.0, _result="numpy").tolist() == [5, 6]
    found = lines.at.return_type("numpy")(2.0)
    assert found.tolist() == [5, 7, 9] and isinstance(found, np.ndarray)
    commands = device.command_list()
    recorded = lines.at.append_to(commands, 3.0)
    commands.submit()
    assert recorded.to_numpy().tolist() == [7, 10, 13]
    assert "slope" in lines.at.source(1.0) and lines.at.name == "Line.at"


def test_no_command_list_is_a_call(device: spy.Device, module: spy.Module) -> None:
    assert module.square(3.0, _append_to=None) == 9
    o = tensor(device, [0, 0])
    module.kernel.set(gain=1.0).dispatch(2, o, _append_to=None)
    assert o.to_numpy().tolist() == [1, 2]
    assert module.square.group_size([32])(3.0, _append_to=None) == 9


def ramp(x: int, y: int = 1, z: int = 1) -> npt.NDArray[Any]:
    k, j, i = np.indices((z, y, x))
    return (i + 10 * j + 100 * k).astype(np.float32)


@pytest.mark.parametrize("threads", [(3, 2, 5), (33, 1, 1), (1, 1, 7)])
def test_plain_functions_run_once_for_each_thread(
    device: spy.Device, module: spy.Module, threads: tuple[int, int, int]
) -> None:
    x, y, z = threads
    for given in (threads, list(threads), spy.uint3(*threads), np.array(threads)):
        # What lies behind the last thread stays as it is.
        o = spy.Tensor.full(device, (z + 1, y + 1, x + 1), -1.0)
        module.numbered.dispatch(given, o=o, by=2.0, vars={"gain": 3.0})
        found = o.to_numpy()
        np.testing.assert_array_equal(found[:z, :y, :x], ramp(x, y, z) + 6)
        found[:z, :y, :x] = -1
        assert (found == -1).all()
    o = spy.Tensor.zeros(device, (z, y, x))
    module.numbered.thread_group_size(spy.uint3(8, 2, 1)).dispatch(thread_count=threads, o=o, by=0.0)
    np.testing.assert_array_equal(o.to_numpy(), ramp(x, y, z))


def test_indices_of_one_and_two_numbers(device: spy.Device, module: spy.Module) -> None:
    o = tensor(device, [0] * 5)
    module.line.dispatch(4, o, 1.0)
    module.line.dispatch(spy.uint3(2, 1, 1), o, 10.0)
    assert o.to_numpy().tolist() == [10, 11, 3, 4, 0]
    plane = spy.Tensor.zeros(device, (2, 3), "int")
    module.plane.dispatch((3, 2), plane)
    np.testing.assert_array_equal(plane.to_numpy(), ramp(3, 2)[0])
    module.line.dispatch(0, o, 5.0)
    assert o.to_numpy().tolist() == [10, 11, 3, 4, 0]
    commands = device.command_list()
    module.line.dispatch(5, o, 0.5, _append_to=commands)
    commands.submit()
    assert o.to_numpy().tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]


def test_kernels_take_numbers_of_threads_as_slangpy_does(device: spy.Device, module: spy.Module) -> None:
    o = tensor(device, [0, 0, 0])
    kernel = module.kernel.set(gain=100.0)
    kernel.dispatch(spy.uint3(3, 1, 1), o=o)
    kernel.dispatch(thread_count=np.array([3, 1, 1]), o=o)
    module.kernel.dispatch((3, 1, 1), vars={"gain": 0.5}, o=o)
    assert o.to_numpy().tolist() == [200.5, 203.5, 206.5]
    module.kernel.thread_group_size(spy.uint3(2, 1, 1)).set(gain=0.0).dispatch(3, o)
    assert o.to_numpy().tolist() == [200.5, 204.5, 208.5]


def test_parameters_may_have_the_names_of_ours(device: spy.Device, module: spy.Module) -> None:
    o = tensor(device, [0])
    module.of_names.dispatch(1, o, thread_count=3.0, vars=4.0)
    assert o.to_numpy().tolist() == [43]
    module.named.dispatch(1, o, thread_count=5.0, vars=6.0)
    assert o.to_numpy().tolist() == [65]


def test_groups_of_calls(device: spy.Device, module: spy.Module) -> None:
    x, y = np.float32([[1], [2], [3]]), np.float32([[4, 5]])
    for shape in ((2, 2), 4, spy.uint2(2, 2)):
        found = module.product.call_group_shape(shape)(x, y)
        np.testing.assert_array_equal(found, x * y)
    for size in (spy.uint3(2, 2, 1), (4, 1, 1), 8):
        np.testing.assert_array_equal(module.product.thread_group_size(size)(x, y), x * y)
    for modifier in (
        module.product.call_group_shape,
        module.product.thread_group_size,
        module.kernel.thread_group_size,
    ):
        for wrong in ((0, 1), (2048,), spy.float2(1, 2), (1, 1, 1, 1), "8", None):
            with pytest.raises(spy.BindError, match="not one to three whole numbers whose product is 1 to 1024"):
                modifier(wrong)


def test_what_cannot_be_dispatched_is_refused(device: spy.Device, module: spy.Module) -> None:
    o = tensor(device, [0])
    for run, said in (
        (lambda: module.returns.dispatch(1), "returns.dispatch: 'int returns(int tid)' returns a value"),
        (lambda: module.writes.dispatch(1, o), "writes.dispatch: all threads would write to 'x'"),
        (lambda: module.no_index.dispatch(1, o), "no_index.dispatch: the first parameter of 'void no_index(float x"),
        (lambda: module.two.dispatch(1, o), "two.dispatch: there are 2 overloads"),
        (lambda: module.line.dispatch((1, 2), o, 1.0), r"line.dispatch: threads is (1, 2); 'int tid' counts 1"),
        (lambda: module.line.dispatch(o=o, by=1.0), "line.dispatch: threads is missing"),
        (lambda: module.line.dispatch(1, o, 1.0, thread_count=2), "line.dispatch: threads was given twice"),
        (lambda: module.line.dispatch(-1, o, 1.0), "line.dispatch: threads is -1"),
        (lambda: module.line.dispatch(2**31, o, 1.0), "line.dispatch: threads is 2147483648; at most"),
        (lambda: module.line.dispatch(spy.float2(1, 1), o, 1.0), "line.dispatch: threads is"),
        (lambda: module.line.dispatch(1, o, 1.0, vars=3), "line.dispatch: vars is 3"),
        (lambda: module.line.dispatch(1, o, 1.0, vars={"other": 3}), "there is no uniform 'other'"),
        (lambda: module.kernel.dispatch(o=o), "kernel.dispatch: threads is missing"),
        (lambda: module.kernel.dispatch(1, o, thread_count=1), "kernel.dispatch: threads was given twice"),
        (lambda: module.kernel.dispatch(1, o, vars=1), "kernel.dispatch: vars is 1"),
    ):  # fmt: skip
        with pytest.raises(spy.BindError) as caught:
            run()
        assert said in str(caught.value)
    assert o.to_numpy().tolist() == [0]
