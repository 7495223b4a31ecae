"""Thread groups of the CPU device: launches that threads share, lists, caches, limits, and what is refused."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy

pytest.importorskip("llvmlite")

TEXT = """
import slangpy_rt;
groupshared uint parts[64];
groupshared float values[256];

// Each group counts itself once, after a barrier, in the place of its index.
[shader("compute")] [numthreads(4, 4, 2)]
void count(uint3 group : SV_GroupID, uint at : SV_GroupIndex, uint3 size, RWTensor<uint, 1> counts)
{
    parts[at] = at;
    GroupMemoryBarrierWithGroupSync();
    uint sum = 0;
    for (uint k = 0; k < 32; ++k)
        sum += parts[k];
    if (at == 0)
        counts[(group.z * size.y + group.y) * size.x + group.x] += sum;
}

// Bools of a thread at places that differ between threads, and at places that do not.
[shader("compute")] [numthreads(64, 1, 1)]
void marks(uint i : SV_DispatchThreadID, RWTensor<uint, 1> found)
{
    bool seen[40];
    uint around[3] = { 7, 8, 9 };
    for (uint k = 0; k < 40; ++k)
        seen[k] = k % 3 == i % 3;
    seen[i % 40] = true;
    seen[7] = i == 3;
    uint n = 0;
    for (uint k = 0; k < 40; ++k)
        if (seen[(k * 7 + i) % 40])
            n += k + around[k % 3];
    found[i] = n;
}

// More than fits a thread of the CPU for each lane of a vector.
[shader("compute")] [numthreads(64, 1, 1)]
void large(uint i : SV_DispatchThreadID, RWTensor<float, 1> found)
{
    float a[20000];
    for (uint k = 0; k < 20000; ++k)
        a[k] = k ^ i;
    found[i] = a[(i * 977) % 20000];
}

// The work of a group grows with its index, so that threads of the CPU end at different times.
[shader("compute")] [numthreads(64, 1, 1)]
void uneven(uint group : SV_GroupID, uint at : SV_GroupIndex, RWTensor<uint, 1> sums)
{
    uint x = group;
    for (uint k = 0; k < group * 4; ++k)
        x = x * 1664525 + 1013904223;
    parts[at] = x;
    GroupMemoryBarrierWithGroupSync();
    sums[group * 64 + at] = parts[63 - at] + at;
}

[shader("compute")] [numthreads(256, 1, 1)]
void reverse(uint3 thread : SV_DispatchThreadID, uint at : SV_GroupIndex, RWTensor<float, 1> x)
{
    values[at] = x[thread.x];
    GroupMemoryBarrierWithGroupSync();
    x[thread.x] = values[255 - at];
}

float doubled(float x) { return 2 * x; }
float texel(Texture2D<float> t, SamplerState s, float2 uv) { return t.SampleLevel(s, uv, 0); }
float total(float x) { return WaveActiveSum(x); }
"""


@pytest.fixture
def device() -> Iterator[spy.Device]:
    with spy.Device("cpu") as opened:
        yield opened


@pytest.fixture
def module(device: spy.Device) -> Any:
    return spy.Module.load_from_source(device, "test_cpu_groups", TEXT)


def uneven(groups: int) -> np.ndarray:
    found = np.zeros(groups, np.uint32)
    for group in range(groups):
        x = group
        for _ in range(group * 4):
            x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        found[group] = x
    return (found[:, None] + np.arange(64, dtype=np.uint32)).ravel()


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 2), (1, 1, 7), (64, 9, 11), (40000, 1, 1)])
def test_each_group_runs_once(device: spy.Device, module: Any, shape: tuple[int, int, int]) -> None:
    x, y, z = shape
    counts = spy.Tensor.zeros(device, x * y * z, "uint")
    for turn in range(1, 4):
        module.count.dispatch((4 * x, 4 * y, 2 * z), np.array(shape, np.uint32), counts)
        np.testing.assert_array_equal(counts.to_numpy(), turn * sum(range(32)))


@pytest.mark.parametrize("groups", [1, 63, 400])
def test_groups_of_uneven_work(device: spy.Device, module: Any, groups: int) -> None:
    sums, wanted = spy.Tensor.zeros(device, groups * 64, "uint"), uneven(groups)
    for _ in range(3):
        sums.clear()
        module.uneven.dispatch(groups * 64, sums)
        np.testing.assert_array_equal(sums.to_numpy(), wanted)


def test_arrays_of_bools(module: Any, device: spy.Device) -> None:
    i = np.arange(128)[:, None]
    seen = np.arange(40) % 3 == i % 3
    seen[np.arange(128), np.arange(128) % 40] = True
    seen[:, 7] = i[:, 0] == 3
    k = np.arange(40)
    expected = (np.take_along_axis(seen, (k * 7 + i) % 40, 1) * (k + np.array([7, 8, 9])[k % 3])).sum(1)
    found = spy.Tensor.zeros(device, 128, "uint")
    module.marks.dispatch(128, found)
    np.testing.assert_array_equal(found.to_numpy(), expected)


def test_large_arrays_of_a_thread(module: Any, device: spy.Device) -> None:
    found = spy.Tensor.zeros(device, 256)
    module.large.dispatch(256, found)
    i = np.arange(256)
    np.testing.assert_array_equal(found.to_numpy(), (i * 977 % 20000) ^ i)


def test_a_deterministic_device() -> None:
    with spy.Device("cpu", deterministic=True) as device:
        m: Any = spy.Module.load_from_source(device, "test_cpu_groups", TEXT)
        sums = spy.Tensor.zeros(device, 400 * 64, "uint")
        m.uneven.dispatch(400 * 64, sums)
        np.testing.assert_array_equal(sums.to_numpy(), uneven(400))


@pytest.mark.parametrize("size", [512, 1 << 18])
def test_lists_with_other_kernels(device: spy.Device, module: Any, size: int) -> None:
    x = np.random.default_rng(size).random(size, np.float32)
    tensor, other = spy.Tensor.from_numpy(device, x), spy.Tensor.zeros(device, size)
    commands = device.command_list()
    module.doubled.append_to(commands, tensor, _result=other)
    module.reverse.append_to(commands, size, other)
    module.doubled.append_to(commands, other, _result=tensor)
    wanted = x
    for _ in range(3):
        commands.submit()
        wanted = 4 * wanted.reshape(-1, 256)[:, ::-1].ravel()
        np.testing.assert_array_equal(tensor.to_numpy(), wanted)


def test_threads_launch_at_once(device: spy.Device, module: Any) -> None:
    wanted, wrong = uneven(200), []

    def work() -> None:
        sums = spy.Tensor.zeros(device, 200 * 64, "uint")
        for _ in range(5):
            sums.clear()
            module.uneven.dispatch(200 * 64, sums)
            if not np.array_equal(sums.to_numpy(), wanted):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_kernels_are_unloaded(device: spy.Device) -> None:
    for k in range(3):
        m: Any = spy.Module.load_from_source(device, f"test_unloaded_{k}", TEXT.replace("- at]", f"- at] + {k}"))
        x = spy.Tensor.zeros(device, 4096)
        m.reverse.dispatch(4096, x)
        assert (x.to_numpy() == k).all()
        del m, x
        gc.collect()


def test_other_functions_of_a_module_with_groups(device: spy.Device, module: Any) -> None:
    np.testing.assert_array_equal(module.doubled(np.arange(5, dtype=np.float32)), [0, 2, 4, 6, 8])
    texture = spy.Texture.from_numpy(device, np.ones((4, 4), np.float32))
    found = module.texel(texture, device.create_sampler(), np.full((3, 2), 0.5, np.float32))
    np.testing.assert_array_equal(found, 1)


def test_waves_have_32_lanes(module: Any) -> None:
    x = np.arange(100, dtype=np.float32)
    found = module.total(x)
    np.testing.assert_array_equal(
        found, np.concatenate([np.full(len(w), w.sum()) for w in np.split(x, [32, 64, 96])])
    )


def test_functions_of_our_library(device: spy.Device) -> None:
    """Vulkan's code needs modules of this package that the CPU's C++ does without."""
    m: Any = spy.Module.load_from_source(
        device,
        "test_interlocked_groups",
        """
groupshared uint counted[2];
uint f(uint x)
{
    if (x < 2)
        counted[x] = 0;
    GroupMemoryBarrierWithGroupSync();
    uint before;
    InterlockedAdd(counted[x & 1], x, before);
    InterlockedMax(counted[1 - (x & 1)], 0u);
    GroupMemoryBarrierWithGroupSync();
    return counted[x & 1];
}
""",
    )
    x = np.arange(32, dtype=np.uint32)
    np.testing.assert_array_equal(m.f(x), np.where(x % 2, x[1::2].sum(), x[::2].sum()))


def test_halves_are_rounded_to_even(device: spy.Device) -> None:
    """As on GPUs; GLSL leaves it to the device."""
    m: Any = spy.Module.load_from_source(
        device, "test_rounded_groups", "float f(float x) { return WaveReadLaneAt(round(x), WaveGetLaneIndex()); }"
    )
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.4], np.float32)
    np.testing.assert_array_equal(m.f(x), np.round(x))


def test_lines_and_bounds(capfd: pytest.CaptureFixture[str]) -> None:
    text = """
import slangpy_rt;
groupshared float shared_[32];
float f(float x, int i)
{
    shared_[i % 32] = x;
    GroupMemoryBarrierWithGroupSync();
    if (i == 3)
        printf("%f beside %d\\n", shared_[i + 1], i);
    return shared_[31 - i % 32];
}
[numthreads(32, 1, 1)]
void k(uint3 t : SV_DispatchThreadID, RWTensor<float, 1> x)
{
    shared_[t.x % 32] = x[t.x];
    GroupMemoryBarrierWithGroupSync();
    x[t.x + 1] = shared_[31 - t.x % 32];
}
"""
    with spy.Device("cpu", debug=True) as device:
        m: Any = spy.Module.load_from_source(device, "test_groups_printf", text)
        x = np.arange(32, dtype=np.float32)
        np.testing.assert_array_equal(m.f(x, np.arange(32, dtype=np.int32)), x[::-1])
        assert capfd.readouterr().out == "4.000000 beside 3\n"
        with pytest.raises(spy.OutOfBoundsError, match=r"'x' of shape \(64,\) was written at \(64,\)"):
            m.k.dispatch(64, spy.Tensor.zeros(device, 64))


def test_textures_in_functions_with_groups(device: spy.Device) -> None:
    text = """
float f(Texture2D<float> t, int x) { return WaveActiveSum(t[int2(x, 0)]); }

groupshared float4 tile[64];
[shader("compute")] [numthreads(8, 8, 1)]
void pairs(
    Texture2D<float4> t, SamplerState s, RWTexture2D<float4> to,
    uint3 i : SV_DispatchThreadID, uint k : SV_GroupIndex)
{
    uint w, h;
    to.GetDimensions(w, h);
    tile[k] = t.SampleLevel(s, (float2(i.xy) + 0.5f) / float2(w, h), 0);
    GroupMemoryBarrierWithGroupSync();
    if (i.x < w && i.y < h)
        to[i.xy] = tile[k ^ 1];
}
"""
    m: Any = spy.Module.load_from_source(device, "test_textures_groups", text)
    found = m.f(spy.Texture.from_numpy(device, np.arange(4, dtype=np.float32)[None]), np.arange(4, dtype=np.int32))
    np.testing.assert_array_equal(np.asarray(found), [6, 6, 6, 6])
    texels = np.random.default_rng(0).random((13, 24, 4)).astype(np.float32)
    to = spy.Texture.from_numpy(device, np.zeros_like(texels))
    m.pairs.dispatch((24, 13), spy.Texture.from_numpy(device, texels), {"filter": "nearest"}, to)
    np.testing.assert_array_equal(to.to_numpy().reshape(13, 12, 2, 4)[:, :, ::-1], texels.reshape(13, 12, 2, 4))


PARTS = """
uint match(int x) { return WaveMatch(x).x; }
uint of_pairs(float2 x) { return WaveMatch(x).x; }
uint of_some(int x) { uint found = 0; if (x % 3 != 0) found = WaveMatch(x).x; return found; }
int sums(int x, int y) { return WaveMultiPrefixSum(y, WaveMatch(x)); }
float products(int x, float y) { return WaveMultiPrefixProduct(y, WaveMatch(x)); }
uint bits(int x, uint y) { return WaveMultiPrefixBitOr(y, WaveMatch(x)); }
"""


def test_parts_of_a_wave(device: spy.Device) -> None:
    m: Any = spy.Module.load_from_source(device, "test_parts_of_a_wave", PARTS)
    r = np.random.default_rng(4)
    x = r.integers(0, 5, 96).astype(np.int32)
    waves = x.reshape(3, 32)
    equal = waves[:, :, None] == waves[:, None, :]
    powers = np.uint64(1) << np.arange(32, dtype=np.uint64)
    np.testing.assert_array_equal(m.match(x), (equal * powers).sum(2).reshape(-1))
    pairs = np.stack([x % 2, x // 2], 1).astype(np.float32)
    np.testing.assert_array_equal(m.of_pairs(pairs), (equal * powers).sum(2).reshape(-1))
    some = equal & (waves % 3 != 0)[:, :, None] & (waves % 3 != 0)[:, None, :]
    np.testing.assert_array_equal(m.of_some(x), (some * powers).sum(2).reshape(-1))
    before = equal & np.tri(32, k=-1, dtype=bool)
    y = r.integers(-9, 9, 96).astype(np.int32)
    np.testing.assert_array_equal(m.sums(x, y), (before * y.reshape(3, 1, 32)).sum(2).reshape(-1))
    z = r.choice([0.5, 1, 2], 96).astype(np.float32)
    wanted = np.where(before, z.reshape(3, 1, 32), 1).prod(2)
    np.testing.assert_array_equal(m.products(x, z), wanted.reshape(-1))
    u = r.integers(0, 1 << 31, 96).astype(np.uint32)
    wanted = np.bitwise_or.reduce(np.where(before, u.reshape(3, 1, 32), np.uint32(0)), 2)
    np.testing.assert_array_equal(m.bits(x, u), wanted.reshape(-1))


REMAINDERS = """
float f(float x, float y) { return fmod(x, y); }
half h(half x, half y) { return fmod(x, y); }
"""


def test_remainders_are_exact(device: spy.Device) -> None:
    """Vulkan's own may be off by the divisor."""
    m: Any = spy.Module.load_from_source(device, "test_remainders", REMAINDERS)
    r = np.random.default_rng(0)
    x, y = (r.standard_normal(5000) * 10.0 ** r.uniform(-37, 37, 5000) for _ in range(2))
    edges = np.array([0, -0.0, 1, -4, 4, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3e38])
    x, y = np.append(x, np.repeat(edges, 11)), np.append(y, np.tile(edges, 11))
    with np.errstate(all="ignore"):
        for function, kind in ((m.f, np.float32), (m.h, np.float16)):
            a, b = x.astype(kind), y.astype(kind)
            found, wanted = function(a, b), np.fmod(a, b)
            np.testing.assert_array_equal(found, wanted)
            assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()


LARGE = """
import slangpy_rt;
groupshared float much[300000];
float walk(int n, float x)
{
    float a[20000];
    for (int i = 0; i < 20000; ++i)
        a[i] = x + i;
    float s = 0;
    for (int i = 0; i < n; ++i)
        s += a[(i * 7919 + n) % 20000];
    return s;
}
[numthreads(64, 1, 1)] void apart(uint3 t : SV_DispatchThreadID, uint k : SV_GroupIndex, RWTensor<float, 1> x)
{
    float a[6000];
    for (int i = 0; i < 6000; ++i)
        a[i] = x[t.x] + i;
    much[4000 * k + 17] = a[(k * 101) % 6000];
    GroupMemoryBarrierWithGroupSync();
    x[t.x] = much[4000 * (63 - k) + 17] + a[(k * 37) % 6000];
}
"""


def test_variables_that_are_too_large_for_a_stack(device: spy.Device) -> None:
    m: Any = spy.Module.load_from_source(device, "test_large_variables", LARGE)
    n, x = np.arange(1000, dtype=np.int32) % 50, np.linspace(0, 1, 1000).astype(np.float32)
    steps = np.arange(50)[:, None]
    wanted = np.where(steps < n, x.astype(float) + (steps * 7919 + n) % 20000, 0).sum(0)
    np.testing.assert_allclose(m.walk(n, x), wanted, rtol=1e-5)
    values = np.random.default_rng(0).random(640).astype(np.float32)
    tensor = spy.Tensor.from_numpy(device, values)
    m.apart.dispatch(640, x=tensor)
    k, first = np.arange(640) % 64, np.arange(640) // 64 * 64
    shared = values + (k * 101) % 6000
    np.testing.assert_allclose(tensor.to_numpy(), shared[first + 63 - k] + values + (k * 37) % 6000, rtol=1e-6)


REFUSED = {
    "float f(uint x) { return WaveActiveSum(float(BFloat16(x))); }": "does not translate a number format other than",
    """
    groupshared float much[20000000];
    float f(uint x) { much[x] = x; GroupMemoryBarrierWithGroupSync(); return much[x + 1]; }
    """: "bytes of group memory",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_refused(device: spy.Device, body: str) -> None:
    m: Any = spy.Module.load_from_source(device, "test_refused_groups", body + "float g(float x) { return x + 1; }")
    with pytest.raises(spy.UnsupportedError, match=REFUSED[body]):
        m.f(np.arange(32, dtype=np.uint32))
    assert m.g(1.0) == 2.0


def test_without_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slangpy_rt.backends.cpu.backend.llvmlite_identity", str)
    with spy.Device("cpu") as device:
        assert not {"group_shared", "wave"} & device.caps.features
        m: Any = spy.Module.load_from_source(device, "test_cpu_groups", TEXT)
        with pytest.raises(spy.UnsupportedError, match=r"WaveActiveSum.* without the llvmlite package. Run: pip"):
            m.total(np.ones(4, np.float32))
        np.testing.assert_array_equal(m.doubled(np.ones(3, np.float32)), 2)


PROGRAM = """
import sys
import numpy as np
import slangpy_rt as spy
m = spy.Module.load_from_source(spy.Device("cpu"), "kept", "float total(float x) { return WaveActiveSum(x); }")
assert m.total(np.ones(32, np.float32)).tolist() == [32] * 32
print("slangpy_rt.lanes.translate" in sys.modules)
"""


def test_the_disk_cache_has_machine_code(tmp_path: Path) -> None:
    """The second process translates nothing."""
    env, said = {**os.environ, "SLANGPY_RT_CACHE_DIR": str(tmp_path)}, []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, timeout=300)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip())
    assert said == ["True", "False"]
