"""Gradients added up in Slang: alone, atomically, over a thread group, and through differentiable tensors.

Values are small integers, whose sums every type holds exactly, in any order: results are compared for equality.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from _gaps import pointer

import slangpy_rt as spy
from slangpy_rt.core.target import Target
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.session import Session
from tests.depth import needs, one_in, sampled

SHADERS = Path(__file__).resolve().parents[2] / "shaders"

SLANG = """
import slangpy_rt;
#include "storage.slang"

void scatter_float(POINTER(float) at, int i, float x) { float._spy_scatter(at + i, x); }
void scatter_half(POINTER(half) at, int i, half x) { half._spy_scatter(at + i, x); }
void scatter_double(POINTER(double) at, int i, double x) { double._spy_scatter(at + i, x); }
void scatter_float3(POINTER(float) at, int i, float3 x) { float3._spy_scatter(at + 3 * i, x); }
void scatter_matrix(POINTER(float) at, int i, float2x3 x) { float2x3._spy_scatter(at + 6 * i, x); }
void scatter_array(POINTER(float) at, int i, float2 x[3]) { Array<float2, 3>._spy_scatter(at + 6 * i, x); }

void uniform_float3(POINTER(float) at, float3 x) { float3._spy_scatterUniform(at, x); }
void accumulate(POINTER(float) at, int i, float2x3 x) { float2x3._spy_accumulate(at + 6 * i, x); }
void branches(POINTER(float) at, int i, float x)
{
    if (i % 3 == 0)
        float._spy_scatter(at, x);
    else if (i % 3 == 1)
        float._spy_scatter(at + 1, x);
    for (int k = 0; k < i % 5; ++k)
        if (k != 2)
            float._spy_scatter(at + 2 + (i % 7 == 0 ? k : 0), x);
}
float3 sums(float3 a, float b[3])
{
    let sum = Array<float, 3>._spy_sum(Array<float, 3>._spy_zero(), b);
    return float3._spy_sum(float3._spy_sum(a, float3._spy_zero()), float3(sum[0], sum[1], sum[2]));
}
"""


pytestmark = pytest.mark.usefixtures("internal_names")


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above, without what the device has no type for."""
    lines = SLANG.splitlines()
    kept = [line for line in lines if "half" not in line or "half" in device.caps.scalars]
    return spy.Module.load_from_source(device, "test_accumulate", "\n".join(kept))


@pytest.mark.parametrize("native", [True, False])
def test_vulkan_adds_floats_natively(native: bool) -> None:
    # No device is needed to see it.
    session = Session(Library(), Target("spirv", "", "pointer"), (str(SHADERS),))
    text = f"""
import slangpy_rt;
export static const bool _spy_float_atomics = {str(native).lower()};
struct Call {{ float *a; }};
[shader("compute")] [numthreads(64, 1, 1)]
void kernel(uint3 t : SV_DispatchThreadID, uniform Call *call) {{ float3._spy_scatter(call.a, float3(t)); }}
"""
    words = np.frombuffer(session.compile(text, "adds", "kernel").code, np.uint32)
    session.close()
    found, at = set(), 5  # the header's words
    while at < len(words):
        found.add(int(words[at]) & 0xFFFF)
        at += int(words[at]) >> 16
    # OpAtomicFAddEXT and OpAtomicCompareExchange.
    assert found & {6035, 230} == ({6035} if native else {230})


def integers(*shape: int, seed: int = 0) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


KINDS = {
    "float": (np.float32, ()),
    "half": (np.float16, ()),
    "double": (np.float64, ()),
    "float3": (np.float32, (3,)),
    "matrix": (np.float32, (2, 3)),
    "array": (np.float32, (3, 2)),
}


@needs(lambda case: [{"half": "half", "double": "double"}.get(case["kind"], "float")])
@sampled(18)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("elements", [1, 2, 37, 5000])
def test_scatter(device: spy.Device, module: spy.Module, kind: str, elements: int) -> None:
    dtype, shape = KINDS[kind]
    count = 5000
    index = np.random.default_rng(1).permutation(np.arange(count) % elements).astype(np.int32)
    if kind == "half" and elements < 5:
        count = 500  # half holds every integer up to 2048 only
    x = integers(count, *shape)
    expected = integers(elements, *shape, seed=2)
    at = spy.Tensor.from_numpy(device, expected.astype(dtype).reshape(-1))
    np.add.at(expected, index[:count], x)
    getattr(module, f"scatter_{kind}")(pointer(at), index[:count], x.astype(dtype))
    np.testing.assert_array_equal(at.to_numpy().reshape(expected.shape), expected)


@sampled(12)
@pytest.mark.parametrize("run", [1, 4, 8, 32, 50])
def test_scatter_of_runs(device: spy.Device, module: spy.Module, run: int) -> None:
    # Waves with one address, with two and with many.
    count = 4001
    index = (np.arange(count) // run).astype(np.int32)
    x = integers(count, 3)
    expected = np.zeros((index[-1] + 1, 3))
    np.add.at(expected, index, x)
    at = spy.Tensor.zeros(device, expected.size)
    module.scatter_float3(pointer(at), index, x.astype(np.float32))
    np.testing.assert_array_equal(at.to_numpy().reshape(-1, 3), expected)


def test_scatter_loses_nothing_under_contention(device: spy.Device, module: spy.Module) -> None:
    at = spy.Tensor.zeros(device, 3)
    module.scatter_float(pointer(at), np.arange(300_000, dtype=np.int32) % 3, np.float32(1))
    np.testing.assert_array_equal(at.to_numpy(), [100_000] * 3)


def test_scatter_in_branches_and_loops(device: spy.Device, module: spy.Module) -> None:
    i = np.random.default_rng(3).integers(0, 1000, 3001).astype(np.int32)
    x = integers(3001)
    expected = np.zeros(8)
    for n, v in zip(i.tolist(), x.tolist(), strict=True):
        if n % 3 < 2:
            expected[n % 3] += v
        for k in range(n % 5):
            if k != 2:
                expected[2 + (k if n % 7 == 0 else 0)] += v
    at = spy.Tensor.zeros(device, 8)
    module.branches(pointer(at), i, x.astype(np.float32))
    np.testing.assert_array_equal(at.to_numpy(), expected)


@needs("{kind}")
@pytest.mark.parametrize("kind", ["float", "double", "half"])
def test_scatter_onto_what_is_no_number_ends(device: spy.Device, module: spy.Module, kind: str) -> None:
    # NaN is unequal to itself, which a loop that compares and exchanges must not mind.
    dtype = KINDS[kind][0]
    at = spy.Tensor.from_numpy(device, np.array([np.nan, np.inf, 1, -np.inf], dtype))
    getattr(module, f"scatter_{kind}")(pointer(at), np.arange(64, dtype=np.int32) % 4, np.ones(64, dtype))
    np.testing.assert_array_equal(at.to_numpy(), [np.nan, np.inf, 17, -np.inf])


@needs("half")
def test_halves_of_one_word_are_added_apart(device: spy.Device, module: spy.Module) -> None:
    at = spy.Tensor.from_numpy(device, np.array([1, -2, 3, 65504], np.float16))
    module.scatter_half(
        pointer(at), np.array([0, 1] * 300 + [2], np.int32), np.array([-1, 1] * 300 + [0.5], np.float16)
    )
    np.testing.assert_array_equal(at.to_numpy(), [-299, 298, 3.5, 65504])


def test_scatter_to_one_element(device: spy.Device, module: spy.Module) -> None:
    x = integers(1003, 3)
    at = spy.Tensor.full(device, 3, 5.0)
    module.uniform_float3(pointer(at), x.astype(np.float32))
    np.testing.assert_array_equal(at.to_numpy(), 5 + x.sum(0))


def test_accumulate(device: spy.Device, module: spy.Module) -> None:
    x, start = integers(101, 2, 3), integers(101, 2, 3, seed=1)
    at = spy.Tensor.from_numpy(device, start.astype(np.float32).reshape(-1))
    module.accumulate(pointer(at), np.arange(101, dtype=np.int32)[::-1], x.astype(np.float32))
    np.testing.assert_array_equal(at.to_numpy().reshape(101, 2, 3), start + x[::-1])


def test_sum_and_zero(module: spy.Module) -> None:
    a, b = integers(20, 3), integers(20, 3, seed=1)
    np.testing.assert_array_equal(module.sums(a.astype(np.float32), b.astype(np.float32)), a + b)


@sampled(2)
@pytest.mark.parametrize("native", [True, False])
def test_without_float_atomics(device: spy.Device, native: bool) -> None:
    # Both ways that Vulkan devices add a float; elsewhere the constant changes nothing.
    source = f"export static const bool _spy_float_atomics = {str(native).lower()};" + SLANG.split("void")[0]
    source += "void scatter_float(POINTER(float) at, int i, float x) { float._spy_scatter(at + i, x); }"
    module = spy.Module.load_from_source(device, f"atomics_{native}", source)
    at = spy.Tensor.zeros(device, 5)
    index, x = np.random.default_rng(4).integers(0, 5, 4000).astype(np.int32), integers(4000)
    module.scatter_float(pointer(at), index, x.astype(np.float32))
    np.testing.assert_array_equal(at.to_numpy(), np.bincount(index, x, 5))


WAVES = """
import slangpy_rt;
[numthreads(100, 1, 1)]
void wave_sums(int t : SV_DispatchThreadID, Tensor<float2, 1> x, Tensor<int, 1> on, RWTensor<float3, 1> sums)
{
    if (on[t] > 0)
        sums[t] = float3(float2._spy_waveSum(x[t]), WaveReadLaneFirst(t));
}
"""


@needs("groups", "wave")
def test_wave_sum(device: spy.Device) -> None:
    x, on = integers(300, 2), integers(300, seed=1)
    sums = spy.Tensor.full(device, 300, -1.0, "float3")
    module = spy.Module.load_from_source(device, "wave_sums", WAVES)
    module.wave_sums.dispatch(300, x.astype(np.float32), on.astype(np.int32), sums)
    found = sums.to_numpy()
    assert (found[on <= 0] == -1).all()
    # The third number is the same in all lanes of a wave, and in them alone.
    for first in np.unique(found[on > 0, 2]):
        lanes = (found[:, 2] == first) & (on > 0)
        np.testing.assert_array_equal(found[lanes, :2], np.broadcast_to(x[lanes].sum(0), (lanes.sum(), 2)))


GROUP = """
import slangpy_rt;
#include "storage.slang"
[numthreads(SIZE)]
void add(
    uint3 group : SV_GroupID, uint thread : SV_GroupIndex, int size, POINTER(SCALAR) x, POINTER(SCALAR) all,
    POINTER(SCALAR) own)
{
    // Threads without a value bring zero.
    KIND value = KIND._spy_zero();
    if (thread % 3 != 1)
        value = KIND._spy_load(x + KIND._spy_count * (group.x * size + thread));
    _spy_scatterGroup<KIND>(all, value, thread);
    _spy_scatterGroup<KIND>(own + KIND._spy_count * group.x, KIND._spy_sum(value, value), thread);
}
"""
# The last one's sums are too many for the group's memory.
GROUPED = {
    "float": ("float", "float", ()),
    "half": ("vector<half, 2>", "half", (2,)),
    "double": ("double", "double", ()),
    "float3": ("float3", "float", (3,)),
    "matrix": ("float4x4", "float", (4, 4)),
    "array": ("Array<float, 17>", "float", (17,)),
}


@needs("groups", "wave", lambda case: [GROUPED[case["kind"]][1]])
@sampled(4)
@pytest.mark.parametrize(
    "size", one_in(3, [(5, 4, 5), (1, 1, 1), (3, 1, 1), (64, 1, 1), (32, 1, 1), (8, 16, 2), (1000, 1, 1)])
)
@pytest.mark.parametrize("kind", one_in(2, GROUPED))
def test_scatter_group(device: spy.Device, kind: str, size: tuple[int, int, int]) -> None:
    name, scalar, shape = GROUPED[kind]
    text = GROUP.replace("KIND", name).replace("SCALAR", scalar).replace("SIZE", str(size)[1:-1])
    module = spy.Module.load_from_source(device, f"group_{kind}_{'_'.join(map(str, size))}", text)
    groups, threads = 3, int(np.prod(size))
    x = integers(groups, threads, *shape)
    if kind == "half":
        x[:, 100:-100] = 0  # half holds every integer up to 2048 only
    dtype = {"half": np.float16, "double": np.float64}.get(scalar, np.float32)
    every, own = (spy.Tensor.full(device, n * int(np.prod(shape)), 1, scalar) for n in (1, groups))
    flat = spy.Tensor.from_numpy(device, x.astype(dtype).reshape(-1))
    module.add.dispatch((groups * size[0], *size[1:]), threads, pointer(flat), pointer(every), pointer(own))
    sums = x[:, np.arange(threads) % 3 != 1].sum(1)
    np.testing.assert_array_equal(every.to_numpy().reshape(shape), 1 + sums.sum(0))
    np.testing.assert_array_equal(own.to_numpy().reshape(groups, *shape), 1 + 2 * sums)


TENSORS = """
import slangpy_rt;
#include "storage.slang"

[Differentiable]
float3 mix(DiffTensor<float3, 2> t, DiffTensor<float3, 2> u, DiffTensor<float, 2> w, int i, int j)
{
    int last[2] = { 1, 2 };
    int here[2] = { i, j };
    return t[i, j] * t[int2(0, i)] + 3 * u.loadOnce(here) * w.loadUniform(last) + w[here] * 2;
}
void mix_backward(
    POINTER(float) t, POINTER(float) t_gradient, POINTER(float) u_gradient, POINTER(float) w,
    POINTER(float) w_gradient, bool both, int i, int j, float3 d)
{
    int shape[2] = { 2, 3 };
    int64_t wide[2] = { 36, 12 };
    // This gradient has its rows from last to first.
    int64_t flipped[2] = { -36, 12 };
    int64_t narrow[2] = { 12, 4 };
    let a = DiffTensor<float3, 2>(BITS(t), shape, wide, BITS(t_gradient) + 36, flipped);
    let b = DiffTensor<float3, 2>(BITS(t), shape, wide, BITS(u_gradient), wide);
    let c = DiffTensor<float, 2>(BITS(w), shape, narrow, both ? BITS(w_gradient) : 0, narrow);
    bwd_diff(mix)(a, b, c, i, j, d);
}

[Differentiable]
void move(RWDiffTensor<float2, 1> t, WDiffTensor<float, 1> w, int i, float x)
{
    float2 v = t[i];
    t[i + 100] = v * x;
    w[i] = v.x + v.y * x;
}
float move_backward(
    POINTER(float) t, POINTER(float) t_in, POINTER(float) t_out, POINTER(float) w, POINTER(float) w_in,
    bool seeded, int i, float x)
{
    int shape[1] = { 200 };
    int64_t two[1] = { 8 };
    int64_t one[1] = { 4 };
    let a = RWDiffTensor<float2, 1>(
        BITS(t), shape, two, seeded ? BITS(t_in) : 0, two, BITS(t_out), two);
    let b = WDiffTensor<float, 1>(BITS(w), shape, one, BITS(w_in), one, 0, one);
    var p = diffPair(x, 0.0f);
    bwd_diff(move)(a, b, i, p);
    return p.d;
}
[Differentiable]
float4 corners(DiffTensor<float, 3> t, DiffTensor<float, 1> line, int i)
{
    return float4(t[1, 2, 3], t[int3(2, 1, 0)], line[i], 0) * t.shape[2];
}
float4 read(POINTER(float) t)
{
    int shape[3] = { 2, 3, 4 };
    int64_t stride[3] = { 48, 16, 4 };
    int size[1] = { 24 };
    int64_t step[1] = { 4 };
    let a = DiffTensor<float, 3>(BITS(t), shape, stride, BITS(t), stride);
    let b = DiffTensor<float, 1>(BITS(t), size, step, 0, step);
    return corners(a, b, 5);
}
"""


@pytest.fixture(scope="module")
def tensors(device: spy.Device) -> spy.Module:
    """Functions over differentiable tensors, whose derivatives they call themselves."""
    return spy.Module.load_from_source(device, "test_accumulate_tensors", TENSORS)


@pytest.mark.parametrize("both", [True, False])
def test_loads_carry_gradients_back(device: spy.Device, tensors: spy.Module, both: bool) -> None:
    t, w, d = integers(2, 3, 3), integers(2, 3, seed=1), integers(2, 3, 3, seed=2)
    t_expected, u_expected, w_expected = integers(2, 3, 3, seed=3), integers(2, 3, 3, seed=4), integers(2, 3, seed=5)
    starts = (t, t_expected[::-1], u_expected, w, w_expected)
    flat = [spy.Tensor.from_numpy(device, x.astype(np.float32).reshape(-1)) for x in starts]
    # t[i,j] t[i,0] + 3 u[i,j] w[1,2] + 2 w[i,j], where u has the values of t.
    for i, j in np.ndindex(2, 3):
        t_expected[i, j] += d[i, j] * t[i, 0]
        t_expected[i, 0] += d[i, j] * t[i, j]
        u_expected[i, j] += d[i, j] * 3 * w[1, 2]
        if both:
            w_expected[1, 2] += 3 * (d[i, j] * t[i, j]).sum()
            w_expected[i, j] += 2 * d[i, j].sum()
    i, j = np.indices((2, 3), np.int32)
    tensors.mix_backward(*map(pointer, flat), both, i, j, d.astype(np.float32))
    np.testing.assert_array_equal(flat[1].to_numpy().reshape(2, 3, 3)[::-1], t_expected)
    np.testing.assert_array_equal(flat[2].to_numpy().reshape(2, 3, 3), u_expected)
    np.testing.assert_array_equal(flat[4].to_numpy().reshape(2, 3), w_expected)


@pytest.mark.parametrize("seeded", [True, False])
def test_stores_take_their_gradient(device: spy.Device, tensors: spy.Module, seeded: bool) -> None:
    t, t_in, t_start = integers(200, 2), integers(200, 2, seed=1), integers(200, 2, seed=2)
    w_in, x = integers(200, seed=3), integers(100, seed=4)
    starts = (t, t_in, t_start, np.zeros(200), w_in)
    flat = [spy.Tensor.from_numpy(device, a.astype(np.float32).reshape(-1)) for a in starts]
    slope = tensors.move_backward(*map(pointer, flat), seeded, np.arange(100, dtype=np.int32), x.astype(np.float32))
    # a[i + 100] = v x and w[i] = v.x + v.y x, where v = a[i].
    v, seed, seed_w = t[:100], t_in[100:] * seeded, w_in[:100]
    expected = t_start.copy()
    expected[:100] += seed * x[:, None] + seed_w[:, None] * np.stack([np.ones(100), x], 1)
    np.testing.assert_array_equal(flat[2].to_numpy().reshape(200, 2), expected)
    np.testing.assert_array_equal(np.asarray(slope), (seed * v).sum(1) + seed_w * v[:, 1])
    # A backward pass runs the function itself too.
    np.testing.assert_array_equal(flat[0].to_numpy().reshape(200, 2)[100:], v * x[:, None])
    np.testing.assert_array_equal(flat[3].to_numpy()[:100], v[:, 0] + v[:, 1] * x)


def test_subscripts_and_shape(device: spy.Device, tensors: spy.Module) -> None:
    t = integers(2, 3, 4)
    flat = spy.Tensor.from_numpy(device, t.astype(np.float32).reshape(-1))
    value = np.asarray(tensors.read(pointer(flat))).reshape(-1)
    np.testing.assert_array_equal(value, 4 * np.array([t[1, 2, 3], t[0, 1, 2], t.ravel()[5], 0]))


def test_a_debug_device_checks_both_ways(backend_name: str) -> None:
    # The read outside is zero, its gradient goes nowhere, and the call says so.
    with spy.Device(backend_name, debug=True) as checked:
        module = spy.Module.load_from_source(checked, "checked", CHECKED)
        t, gradient = spy.Tensor.from_numpy(checked, np.arange(8, dtype=np.float32)), spy.Tensor.zeros(checked, 12)
        with pytest.raises(spy.OutOfBoundsError):
            module.triple_backward(pointer(t), pointer(gradient), np.array([1, 6, 7, 8, 11, -1], np.int32), t)
        np.testing.assert_array_equal(gradient.to_numpy(), [0, 3, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0])


CHECKED = """
import slangpy_rt;
#include "storage.slang"
[Differentiable] float triple(DiffTensor<float, 1> t, int i) { return 3 * t[i]; }
// Only kernels that take a Tensor are checked.
void triple_backward(POINTER(float) t, POINTER(float) gradient, int i, Tensor<float, 1> tensor)
{
    int shape[1] = { 8 };
    int64_t stride[1] = { 4 };
    bwd_diff(triple)(DiffTensor<float, 1>(BITS(t), shape, stride, BITS(gradient), stride), i, 1);
}
"""
