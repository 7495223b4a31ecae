"""Compute kernels dispatched by hand: threads, groups, system values, and every kind of argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from _gaps import pointer

import slangpy_rt as spy
from tests.depth import needs, sampled
from tests.lanes_off import without_lanes

SLANG = """
import slangpy_rt;
#include "storage.slang"
uniform float gain;
extern static const int factor = 2;
struct P { float a; int b; }

[numthreads(4, 2, 1)]
void mark(
    uint3 thread : SV_DispatchThreadID, uint3 group : SV_GroupID, uint3 local : SV_GroupThreadID,
    uint flat : SV_GroupIndex,
    RWTensor<int, 2> seen, int width, int height)
{
    if (thread.x < width && thread.y < height)
        seen[thread.y, thread.x] = int(
            thread.x + 10 * thread.y + 100 * group.x + 1000 * group.y + 10000 * local.x + 100000 * local.y
            + 1000000 * flat);
}
[shader("compute")]
[numthreads(2, 2, 2)]
void cube(uint3 id : SV_DispatchThreadID, RWTensor<int, 3> t)
{
    t[id.z, id.y, id.x] += int(id.x + 10 * id.y + 100 * id.z);
}
[numthreads(8, 1, 1)]
void scale(uint t : SV_DispatchThreadID, NDBuffer<float, 1> x, float by = 3)
{
    x[int(t)] = x[int(t)] * by * gain * factor;
}
[numthreads(4, 1, 1)]
void plane(int2 t : SV_DispatchThreadID, NDBuffer<int, 2> x) { x[t.y, t.x] = t.x - t.y; }
[numthreads(1, 1, 1)]
void all_kinds(P p, float3 v, POINTER(float) q, NDBuffer<P, 1> b, float m[2], float2x2 x, bool on)
{
    q[0] = p.a + p.b;
    q[1] = v.z;
    q[2] = m[1];
    q[3] = x[0][1] * 10 + x[1][0];
    q[4] = on ? 1 : -1;
    P c = b[1];
    c.b += 5;
    b[1] = c;
}
[numthreads(2, 1, 1)]
void from_memory(int t : SV_DispatchThreadID, float x[64], P p, float y, NDBuffer<float, 1> out_)
{
    out_[t] = x[63 - t] + 100 * p.a + 1000 * p.b + 10000 * y;
}
groupshared int shared_values[4];
[numthreads(4, 1, 1)]
void reverse(uint local : SV_GroupIndex, uint t : SV_DispatchThreadID, NDBuffer<int, 1> x)
{
    shared_values[local] = x[int(t)];
    GroupMemoryBarrierWithGroupSync();
    x[int(t)] = shared_values[3 - local];
}
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The kernels above."""
    return spy.Module.load_from_source(device, "test_dispatch", SLANG)


def marks(width: int, height: int) -> Any:
    """What ``mark`` writes, by the definition of system values for groups of 4 x 2."""
    y, x = np.indices((height, width))
    local_x, local_y = x % 4, y % 2
    flat = local_y * 4 + local_x
    return x + 10 * y + 100 * (x // 4) + 1000 * (y // 2) + 10000 * local_x + 100000 * local_y + 1000000 * flat


@pytest.mark.parametrize(("width", "height"), [(8, 4), (6, 3), (1, 1), (9, 1)])
def test_system_values(device: spy.Device, module: spy.Module, width: int, height: int) -> None:
    seen = spy.Tensor.full(device, (height, width), -1, "int")
    assert module.mark.dispatch((width, height), seen, width, height) is None
    np.testing.assert_array_equal(seen.to_numpy(), marks(width, height))


def test_arguments_by_name_and_on_the_host(module: spy.Module) -> None:
    host = np.full((3, 6), -1, np.int32)
    module.mark.dispatch([np.int64(6), 3, 1], height=3, width=6, seen=host)
    np.testing.assert_array_equal(host, marks(6, 3))
    part = np.full((6, 12), -1, np.int32)
    module.mark.dispatch((6, 3), part[::-2, ::2], 6, 3)
    np.testing.assert_array_equal(part[::-2, ::2], marks(6, 3))
    assert (part[::2] == -1).all() and (part[:, 1::2] == -1).all()


def test_three_dimensions(device: spy.Device, module: spy.Module) -> None:
    t = spy.Tensor.full(device, (2, 4, 6), 5, "int")
    module.cube.dispatch((6, 4, 2), t)
    z, y, x = np.indices((2, 4, 6))
    np.testing.assert_array_equal(t.to_numpy(), 5 + x + 10 * y + 100 * z)


def test_system_values_of_other_types(module: spy.Module) -> None:
    host = np.zeros((3, 4), np.int32)
    module.plane.dispatch((4, 3), host)
    y, x = np.indices((3, 4))
    np.testing.assert_array_equal(host, x - y)


def test_whole_groups_run(module: spy.Module) -> None:
    # As on every GPU API: 5 threads in groups of 8 are 8.
    x = np.ones(16, np.float32)
    module.scale.set(gain=1).dispatch(5, x, 7)
    np.testing.assert_array_equal(x, [14] * 8 + [1] * 8)


def test_no_threads_do_nothing(module: spy.Module) -> None:
    x = np.ones(8, np.float32)
    for threads in (0, (0,), (0, 5), (4, 0, 4)):
        module.scale.set(gain=1).dispatch(threads, x, 7)
    np.testing.assert_array_equal(x, np.ones(8))


def test_defaults_uniforms_and_constants(device: spy.Device, module: spy.Module) -> None:
    x = spy.NDBuffer(device, "float", 8)
    x.from_numpy(np.arange(8))
    module.scale.set(gain=0.5).dispatch(8, x)
    np.testing.assert_array_equal(x.to_numpy(), np.arange(8) * 3)
    module.scale.set({"gain": 1}).constants({"factor": 5}).dispatch(8, x, by=2)
    np.testing.assert_array_equal(x.to_numpy(), np.arange(8) * 30)
    module.scale.constants({"factor": 1}).set(gain=2).dispatch(8, x, 1)
    np.testing.assert_array_equal(x.to_numpy(), np.arange(8) * 60)


def test_every_kind_of_argument(device: spy.Device, module: spy.Module) -> None:
    q, b = spy.NDBuffer(device, "float", 5), spy.NDBuffer(device, module.P, 2)
    b.from_numpy(np.array([(0, 1), (2, 3)], [("a", "f4"), ("b", "i4")]))
    module.all_kinds.dispatch(1, {"a": 2.5, "b": 4}, [1, 2, 3], pointer(q), b, [8, 9], [[1, 2], [3, 4]], True)
    np.testing.assert_array_equal(q.to_numpy(), [6.5, 3, 9, 23, 1])
    np.testing.assert_array_equal(b.to_numpy()["b"], [1, 8])
    where = q.address if "pointers" in device.caps.features else pointer(q)
    module.all_kinds.dispatch(1, (1, 1), spy.float3(4), where, b, np.array([1, 2]), spy.float2x2(5), False)
    np.testing.assert_array_equal(q.to_numpy(), [2, 4, 2, 55, -1])
    np.testing.assert_array_equal(b.to_numpy()["b"], [1, 13])


def test_arguments_too_large_for_the_block(device: spy.Device, module: spy.Module) -> None:
    x, p = np.arange(64), np.array((2, 3), np.dtype([("a", "f4"), ("b", "i4")], align=True))
    out = np.zeros(2, np.float32)
    for y in (np.array(4), spy.Tensor.from_numpy(device, np.float32(4))):
        module.from_memory.dispatch(2, x, p, y, out)
        np.testing.assert_array_equal(out, [63 + 43200, 62 + 43200])


def test_prepared_dispatches(device: spy.Device, module: spy.Module) -> None:
    t = spy.Tensor.zeros(device, (2, 2, 2), "int")
    call = module.cube.bind((2, 2, 2), t)
    np.testing.assert_array_equal(t.to_numpy(), 0)
    for _ in range(3):
        assert call() is None
    z, y, x = np.indices((2, 2, 2))
    np.testing.assert_array_equal(t.to_numpy(), 3 * (x + 10 * y + 100 * z))
    assert "cube(" in module.cube.source((2, 2, 2), t)


@needs("groups")
def test_shared_memory_and_barriers(module: spy.Module) -> None:
    x = np.arange(12, dtype=np.int32)
    module.reverse.dispatch(12, x)
    np.testing.assert_array_equal(x.reshape(3, 4), np.arange(12).reshape(3, 4)[:, ::-1])


@needs("ranges")
def test_shared_memory_is_refused_without_groups(
    device: spy.Device, module: spy.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lanes(device, monkeypatch)
    x = np.arange(4, dtype=np.int32)
    with pytest.raises(spy.UnsupportedError, match="thread groups"):
        module.reverse.dispatch(4, x)
    np.testing.assert_array_equal(x, np.arange(4))


@sampled(3)
@pytest.mark.parametrize("group", ["0, 0, 0", "4096, 1, 1", "1024, 1024, 64", "4294967296, 1, 1"])
def test_group_sizes_that_no_gpu_runs(device: spy.Device, group: str) -> None:
    text = f"import slangpy_rt; [numthreads({group})] void k(RWTensor<float, 1> t) {{ t[0] = 1; }}"
    out = spy.Tensor.zeros(device, 4)
    with pytest.raises((spy.UnsupportedError, spy.CompileError), match=r"numthreads|group"):
        spy.Module.load_from_source(device, "groups", text).k.dispatch(4, out)
    assert not out.to_numpy().any()


def test_a_closed_device_reads_no_files(backend_name: str) -> None:
    with spy.Device(backend_name) as device:
        device.reload()
    with pytest.raises(spy.DeviceError):
        device.reload()
