"""Called functions that share memory, wait or exchange values within a thread group: a thread runs one element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.conformance._cuda_text import compiled_for_cuda
from tests.depth import deep, fixture_needs, needs, one_in, sampled

# 32 values are shared: SlangPy runs such functions in groups of 32 threads as well.
IMPORTED = """
#define PASTE(A, B) A##B
PASTE(group, shared) float other_values[32];
public float far(float x, uint i)
{
    other_values[i % 32] = x;
    PASTE(GroupMemory, BarrierWithGroupSync)();
    float sum = 0;
    for (int k = 0; k < 32; ++k)
        sum += other_values[k];
    return sum;
}
"""
TEXT = """
import test_thread_groups_far;
groupshared float values[32];
float direct(float x, uint i)
{
    values[i % 32] = x;
    GroupMemoryBarrierWithGroupSync();
    float sum = 0;
    for (int k = 0; k < 32; ++k)
        sum += values[k];
    return sum;
}
float called(float x, uint i) { return direct(x, i); }
float imported(float x, uint i) { return far(x, i); }
#define SUM(x, i) direct(x, i)
float by_macro(float x, uint i) { return SUM(x, i); }
T generic<T : __BuiltinFloatingPointType>(T x, uint i) { return T(direct(x.toFloat(), i)); }
interface ISum { float sum(float x, uint i); }
struct Shared : ISum
{
    float factor;
    float sum(float x, uint i) { return factor * direct(x, i); }
    float method(float x, uint i) { return sum(x, i); }
    static float own(float x, uint i) { return direct(x, i); }
}
float by_interface<S : ISum>(S s, float x, uint i) { return s.sum(x, i); }
float switched(float x, uint i)
{
    __target_switch
    {
    case spirv: return direct(x, i);
    case cuda: return direct(x, i);
    case hlsl: return direct(x, i);
    default: return 0;
    }
}
float changed(inout float x, uint i) { x = direct(x, i); return x; }
[Differentiable] float weighted(float x, no_diff uint i, float w) { return x * w * no_diff direct(1, i); }
float apart(float x, uint i) { return 2 * x + i; }
float WaveHeight(float x, uint i) { return apart(x, i); }
"""
FORMS = ("direct", "called", "imported", "by_macro", "generic<float>", "Shared.own", "switched")
LANES = """
uint lanes(float x) { return WaveGetLaneCount(); }
uint lane(float x) { return WaveGetLaneIndex(); }
uint by_assembly(float x)
{
    __target_switch
    {
    case spirv:
        return spirv_asm {
            OpCapability GroupNonUniform;
            result:$$uint = OpLoad builtin(SubgroupLocalInvocationId:uint)
        };
    default: return WaveGetLaneIndex();
    }
}
float sum(float x) { return WaveActiveSum(x); }
bool first(float x) { return WaveIsFirstLane(); }
float before(float x) { return WavePrefixSum(x); }
float quad(float x) { return QuadReadAcrossX(x); }
float read(float x) { return WaveReadLaneAt(x, 1); }
"""


@pytest.fixture
@fixture_needs("groups")
def module(device: spy.Device, tmp_path: Path) -> Any:
    (tmp_path / "test_thread_groups_far.slang").write_text(IMPORTED)
    path = tmp_path / "test_thread_groups.slang"
    path.write_text(TEXT)
    return spy.Module.load_from_file(device, path)


def sums(x: np.ndarray) -> np.ndarray:
    """The sum of each 32 values, for each of them."""
    return np.repeat(x.reshape(-1, 32).sum(1), 32).reshape(x.shape)


@sampled(1)
@pytest.mark.parametrize("name", one_in(2, FORMS))
def test_shared_memory(module: Any, name: str) -> None:
    x, i = np.arange(64, dtype=np.float32), np.arange(64, dtype=np.uint32)
    owner, _, method = name.rpartition(".")
    function = getattr(module[owner], method) if owner else module[name]
    np.testing.assert_array_equal(function(x, i), sums(x))


@pytest.mark.parametrize("way", ["interface", "method", "inout", "transposed", "list", "tape"])
def test_shared_memory_in_other_calls(device: spy.Device, module: Any, way: str) -> None:
    x, i = np.arange(64, dtype=np.float32), np.arange(64, dtype=np.uint32)
    tensor, out = spy.Tensor.from_numpy(device, x), spy.Tensor.zeros(device, 64)
    if way == "interface":
        found = module.by_interface(module.Shared(factor=2.0), x, i) / 2
    elif way == "method":
        found = module.Shared.method(module.Shared(factor=3.0), x, i) / 3
    elif way == "inout":
        module.changed(tensor, i)
        found = tensor.to_numpy()
    elif way == "transposed":
        x, i = np.arange(4096, dtype=np.float32).reshape(64, 64), np.arange(4096, dtype=np.uint32).reshape(64, 64)
        turned = spy.Tensor.from_numpy(device, np.ascontiguousarray(x.T)).T
        found = module.direct(turned, i).to_numpy()
    elif way == "list":
        commands = spy.CommandList(device)
        module.direct.append_to(commands, tensor, spy.Tensor.from_numpy(device, i), _result=out)
        commands.submit()
        found = out.to_numpy()
    else:
        found = module.direct(x.reshape(2, 32), i.reshape(2, 32)).reshape(64)
        x = x.reshape(64)
    np.testing.assert_array_equal(found, sums(x))


@pytest.mark.parametrize("form", ["sum", "rows", "columns"])
def test_gradients(device: spy.Device, module: Any, form: str) -> None:
    """Of a value that all elements share: its gradient is a sum, to which threads of several elements would add."""
    shape = (64,) if form == "sum" else (64, 32)
    x = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    i = spy.Tensor.from_numpy(device, np.arange(x.size, dtype=np.uint32).reshape(shape))
    w = np.ones({"sum": (1,), "rows": (64, 1), "columns": (1, 32)}[form], np.float32) * 2
    tensors = [spy.Tensor.from_numpy(device, a).with_grads() for a in (x, w)]
    result = spy.Tensor.zeros(device, shape).with_grads(grad_in=spy.Tensor.full(device, shape, 1.0, "float"))
    module.weighted.bwds(tensors[0], i, tensors[1].broadcast_to(shape), _result=result)
    np.testing.assert_allclose(tensors[0].grad.to_numpy(), np.broadcast_to(w * 32, shape), rtol=1e-5)
    kept = {"sum": (0,), "rows": (1,), "columns": (0,)}[form]
    np.testing.assert_allclose(tensors[1].grad.to_numpy(), 32 * x.sum(kept, keepdims=True), rtol=1e-4, atol=1e-3)


@needs("groups", "wave")
@sampled(1)
@pytest.mark.parametrize("size", [64, pytest.param(61, marks=deep)])
def test_waves(device: spy.Device, size: int) -> None:
    module: Any = spy.Module.load_from_source(device, "test_thread_groups_lanes", LANES)
    x = np.arange(1, size + 1, dtype=np.float32)
    lanes = int(module.lanes(x)[0])
    lane = np.arange(size) % lanes
    waves = [x[k : k + lanes] for k in range(0, size, lanes)]
    whole = size // lanes * lanes
    wanted = {
        "lane": lane,
        "by_assembly": lane,
        "sum": np.concatenate([np.full(len(w), w.sum()) for w in waves]),
        "first": lane == 0,
        "before": np.concatenate([np.cumsum(w) - w for w in waves]),
        "read": np.concatenate([np.full(len(w), w[1]) for w in waves]),
    }
    for name, values in wanted.items():
        np.testing.assert_array_equal(module[name](x), values, err_msg=name)
    np.testing.assert_array_equal(module.quad(x)[:whole], x[:whole].reshape(-1, 2)[:, ::-1].reshape(whole))


ATOMICS = """
import slangpy_rt;
groupshared uint unsigned_[8];
groupshared int signed_[8];

// All threads change the same numbers, in group memory and in arrays. out[0..15] holds the results in group memory;
// out[32..] holds what each addition to unsigned_[6] returned.
[shader("compute")] [numthreads(64, 1, 1)]
void change(
    uint at : SV_GroupIndex, Tensor<uint, 1> x, RWTensor<uint, 1> out, RWTensor<uint, 1> far,
    RWTensor<int, 1> farSigned)
{
    if (at < 8)
    {
        unsigned_[at] = at == 4 || at == 0 ? 0xffffffff : at == 1 ? 5 : 0;
        signed_[at] = 7;
    }
    GroupMemoryBarrierWithGroupSync();
    let u = x[int(at)];
    let i = int(u);
    InterlockedMin(unsigned_[0], u); InterlockedMax(unsigned_[1], u); InterlockedAdd(unsigned_[2], u);
    InterlockedOr(unsigned_[3], u); InterlockedAnd(unsigned_[4], u); InterlockedXor(unsigned_[5], u);
    InterlockedMin(signed_[0], i); InterlockedMax(signed_[1], i); InterlockedAdd(signed_[2], i);
    InterlockedMin(far[0], u); InterlockedMax(far[1], u); InterlockedAdd(far[2], u);
    InterlockedMin(farSigned[0], i); InterlockedMax(farSigned[1], i);
    // A number of its own for each thread.
    uint before;
    InterlockedAdd(unsigned_[6], 1, before);
    out[32 + int(before)] = before;
    // Half of the threads.
    if ((at & 1) != 0)
        InterlockedMax(unsigned_[7], u);
    else
        InterlockedMin(signed_[3], i);
    GroupMemoryBarrierWithGroupSync();
    if (at < 8)
    {
        out[int(at)] = unsigned_[at];
        out[int(at) + 8] = uint(signed_[at]);
    }
}
"""


@needs("groups")
@sampled(1)
def test_atomic_operations_of_a_group(device: spy.Device) -> None:
    """Numbers above 2^31 are large as uint and negative as int, in the group's memory and in an array."""
    module: Any = spy.Module.load_from_source(device, "test_atomic_groups", ATOMICS)
    x = np.random.default_rng(1).integers(0, 2**32, 64, np.uint32)
    for given in (x, x | np.uint32(1 << 31), x >> np.uint32(1)):
        out, far = spy.Tensor.zeros(device, 96, "uint"), spy.Tensor.from_numpy(device, np.uint32([2**32 - 1, 0, 0]))
        signed = spy.Tensor.from_numpy(device, np.int32([2**31 - 1, -(2**31)]))
        module.change.dispatch(64, spy.Tensor.from_numpy(device, given), out, far, signed)
        i, total = given.view(np.int32), np.uint32(int(given.sum(dtype=np.uint64)) % 2**32)
        found = out.to_numpy()
        unsigned = [
            given.min(), max(given.max(), 5), total, np.bitwise_or.reduce(given), np.bitwise_and.reduce(given),
            np.bitwise_xor.reduce(given), 64, given[1::2].max(),
        ]  # fmt: skip
        np.testing.assert_array_equal(found[:8], unsigned)
        added = np.uint32((int(total) + 7) % 2**32).view(np.int32)
        signs = [min(i.min(), 7), max(i.max(), 7), added, min(i[::2].min(), 7)]
        np.testing.assert_array_equal(found[8:12].view(np.int32), signs)
        np.testing.assert_array_equal(found[32:], np.arange(64))
        np.testing.assert_array_equal(far.to_numpy(), [given.min(), given.max(), total])
        np.testing.assert_array_equal(signed.to_numpy(), [i.min(), i.max()])


WAVES = """
import slangpy_rt;
[shader("compute")] [numthreads(64, 1, 1)]
void waves(uint at : SV_GroupIndex, Tensor<int, 1> x, RWTensor<int, 2> out)
{
    let k = int(at);
    let v = x[k];
    let odd = (v & 1) != 0;
    out[0, k] = int(WaveGetLaneCount());
    // All lanes, and then those of a branch.
    for (int part = 0; part < 2; ++part)
    {
        if (part == 1 && v % 3 == 0)
            continue;
        let r = 1 + 16 * part;
        out[r + 0, k] = WaveActiveSum(v); out[r + 1, k] = WaveActiveMin(v); out[r + 2, k] = WaveActiveMax(v);
        out[r + 3, k] = WaveActiveBitOr(v); out[r + 4, k] = WaveActiveBitAnd(v); out[r + 5, k] = WaveActiveBitXor(v);
        out[r + 6, k] = int(WaveActiveCountBits(odd)); out[r + 7, k] = int(WavePrefixCountBits(odd));
        out[r + 8, k] = WavePrefixSum(v); out[r + 9, k] = WaveActiveAnyTrue(odd) ? 1 : 0;
        out[r + 10, k] = WaveActiveAllTrue(odd) ? 1 : 0; out[r + 11, k] = WaveActiveAllEqual(v) ? 1 : 0;
        out[r + 12, k] = WaveReadLaneFirst(v); out[r + 13, k] = WaveIsFirstLane() ? 1 : 0;
        out[r + 14, k] = WavePrefixProduct(v | 1); out[r + 15, k] = int(WaveActiveMax(uint(v)));
    }
}
"""


@needs("groups", "wave")
@sampled(1)
def test_wave_operations_beside_numpy(device: spy.Device) -> None:
    """Of all lanes of a wave, and of those in a branch; numbers of both signs, all of them odd, and all equal."""
    module: Any = spy.Module.load_from_source(device, "test_wave_operations", WAVES)
    x = np.random.default_rng(2).integers(-(2**31), 2**31, 64, np.int32)
    for given in (x, x | np.int32(1), np.full(64, -7, np.int32)):
        out = spy.Tensor.zeros(device, (33, 64), "int")
        module.waves.dispatch(64, spy.Tensor.from_numpy(device, given), out)
        found = out.to_numpy()
        lanes = int(found[0, 0])
        for start in range(0, 64, lanes):
            wave = np.arange(start, start + lanes)
            for part in range(2):
                # The sign of a remainder is that of the number, as in C.
                active = wave if part == 0 else wave[np.fmod(given[wave], 3) != 0]
                if not active.size:
                    continue
                v = given[active].astype(np.int64)
                odd = (v & 1) != 0
                rows = [
                    v.sum(), v.min(), v.max(), np.bitwise_or.reduce(v), np.bitwise_and.reduce(v),
                    np.bitwise_xor.reduce(v), odd.sum(), odd.cumsum() - odd, v.cumsum() - v, odd.any(), odd.all(),
                    (v == v[0]).all(), v[0], np.arange(v.size) == 0,
                    [int(np.prod(v[:n].astype(object) | 1)) for n in range(v.size)],
                    given[active].view(np.uint32).max(),
                ]  # fmt: skip
                for row, wanted in enumerate(rows):
                    values = np.array([int(w) % 2**32 for w in np.broadcast_to(np.array(wanted, object), v.shape)])
                    got = found[1 + 16 * part + row, active].view(np.uint32)
                    np.testing.assert_array_equal(got, values, err_msg=f"row {row}, part {part}, lanes {lanes}")


def test_other_functions_of_the_module(device: spy.Device, module: Any) -> None:
    """A thread still runs several elements of a function that reaches nothing of the kind."""
    x, i = np.arange(61, dtype=np.float32), np.arange(61, dtype=np.uint32)
    for name in ("apart", "WaveHeight"):
        np.testing.assert_array_equal(module[name](x, i), 2 * x + i)
        assert ("_spy_neighbours" in module[name].source(x, i)) == (
            device.backend.target.groups and not device.backend.target.lane_threads
        )
    assert "_spy_neighbours" not in module.direct.source(x, i)
    assert "[numthreads(32, 1, 1)]" in module.direct.source(x, i)
    assert "[numthreads(64, 1, 1)]" in module.direct.group_size(64).source(x, i)


@needs("groups", "wave")
def test_kernels_of_the_disk_cache(device: spy.Device) -> None:
    """What the code of a kernel uses is in its cache entry."""
    text = "uint lane(float x) { return WaveGetLaneIndex(); } float twice(float x) { return 2 * x; }"
    x, found = np.arange(64, dtype=np.float32), []
    for _ in range(2):
        with spy.Device(device.backend.name) as opened:
            module: Any = spy.Module.load_from_source(opened, "test_thread_groups_cache", text)
            found.append((module.lane(x).tolist(), module.lane.source(x), module.twice.source(x)))
    assert found[0] == found[1] and found[0][0][1] == 1


@deep
def test_kernels_compile_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(device: spy.Device, module: Any) -> None:
        x = spy.Tensor.zeros(device, 64)
        for name in ("lane", "sum", "first", "quad", "twice"):
            module[name](x)
            assert ("_spy_neighbours" in module[name].source(x)) == (name == "twice")

    assert compiled_for_cuda(LANES + "float twice(float x) { return 2 * x; }", calls, monkeypatch) >= 5
