"""Kernels that use thread groups on the CPU, beside lavapipe and NumPy.

- "tree sums" adds up each 256 of 2^20 numbers in shared memory; "bitonic sort" sorts each 512 of 2^19 keys in shared
  memory; "product" multiplies two matrices of 512 x 512 by tiles of 16 x 16; "wave sums" computes ``WaveActiveSum``
  and ``WavePrefixSum`` of 2^19 numbers, in waves of 32 and, on lavapipe, of 8; "64 steps" is the one of
  ``cpu_simd.py`` as a raw kernel; "histogram" counts 2^20 numbers in 256 shared bins by atomics.
- "lavapipe" is the same kernel on a Vulkan device that is one in software. "NumPy" is the same work by its functions:
  ``reshape(-1, 256).sum(1)``, ``sort``, ``@``, ``cumsum``, ``bincount``.

Results are compared with NumPy's before they are timed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("SLANGPY_RT_CACHE_DIR", "")

import numpy as np
import numpy.typing as npt
from _common import Bench, whole, with_lavapipe

import slangpy_rt as spy

Array = npt.NDArray[Any]
_SLANG = """
import slangpy_rt;

groupshared float sums[256];
[shader("compute")] [numthreads(256, 1, 1)]
void tree(uint3 thread : SV_DispatchThreadID, uint at : SV_GroupIndex, uint group : SV_GroupID, RWTensor<float, 1> x,
          RWTensor<float, 1> result)
{
    sums[at] = x[thread.x];
    GroupMemoryBarrierWithGroupSync();
    for (uint half = 128; half > 0; half >>= 1)
    {
        if (at < half)
            sums[at] += sums[at + half];
        GroupMemoryBarrierWithGroupSync();
    }
    if (at == 0)
        result[group] = sums[0];
}

groupshared uint keys[512];
[shader("compute")] [numthreads(256, 1, 1)]
void bitonic(uint at : SV_GroupIndex, uint group : SV_GroupID, RWTensor<uint, 1> x, RWTensor<uint, 1> result)
{
    uint first = group * 512 + at;
    keys[at] = x[first];
    keys[at + 256] = x[first + 256];
    GroupMemoryBarrierWithGroupSync();
    for (uint size = 2; size <= 512; size <<= 1)
        for (uint stride = size >> 1; stride > 0; stride >>= 1)
        {
            uint low = 2 * stride * (at / stride) + at % stride;
            uint a = keys[low], b = keys[low + stride];
            if ((a > b) == ((low & size) == 0))
            {
                keys[low] = b;
                keys[low + stride] = a;
            }
            GroupMemoryBarrierWithGroupSync();
        }
    result[first] = keys[at];
    result[first + 256] = keys[at + 256];
}

groupshared float left[16][16];
groupshared float right[16][16];
[shader("compute")] [numthreads(16, 16, 1)]
void product(uint3 t : SV_GroupThreadID, uint3 g : SV_GroupID, Tensor<float, 2> a, Tensor<float, 2> b,
             RWTensor<float, 2> result)
{
    uint row = g.y * 16 + t.y, column = g.x * 16 + t.x;
    float sum = 0;
    for (uint k = 0; k < 512; k += 16)
    {
        left[t.y][t.x] = a[row, k + t.x];
        right[t.y][t.x] = b[k + t.y, column];
        GroupMemoryBarrierWithGroupSync();
        for (uint j = 0; j < 16; ++j)
            sum += left[t.y][j] * right[j][t.x];
        GroupMemoryBarrierWithGroupSync();
    }
    result[row, column] = sum;
}

[shader("compute")] [numthreads(64, 1, 1)]
void waves(uint3 thread : SV_DispatchThreadID, RWTensor<uint, 1> x, RWTensor<uint, 1> result)
{
    result[thread.x] = WaveActiveSum(x[thread.x]) - WavePrefixSum(x[thread.x]);
}

[shader("compute")] [numthreads(64, 1, 1)]
void steps(uint3 thread : SV_DispatchThreadID, RWTensor<float, 1> x, RWTensor<float, 1> result)
{
    float a = x[thread.x], s = 0;
    for (int i = 0; i < 64; ++i)
        s += max(min(a * i, 1.0f), s * 0.5f);
    result[thread.x] = s;
}

groupshared uint bins[256];
[shader("compute")] [numthreads(256, 1, 1)]
void histogram(uint at : SV_GroupIndex, uint group : SV_GroupID, RWTensor<uint, 1> x, RWTensor<uint, 1> result)
{
    bins[at] = 0;
    GroupMemoryBarrierWithGroupSync();
    for (uint k = 0; k < 16; ++k)
        InterlockedAdd(bins[x[(group * 16 + k) * 256 + at]], 1);
    GroupMemoryBarrierWithGroupSync();
    result[group * 256 + at] = bins[at];
}
"""


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("cpu_groups", __doc__ or "", ("cpu",))
    rng = np.random.default_rng(0)
    n, half = 1 << 20, 1 << 19
    floats, keys, small = (
        rng.random(n, np.float32),
        rng.integers(0, 1 << 32, half, np.uint32),
        rng.integers(0, 9, half),
    )
    small, bytes_ = small.astype(np.uint32), rng.integers(0, 256, n).astype(np.uint32)
    a, b = (rng.random((512, 512), np.float32) for _ in range(2))
    for device in bench.devices:
        opened = _opened(bench, device)
        _row(bench, device, "tree sums, 2^20", opened, "tree", n, (floats,), n // 256, _sums)
        _row(bench, device, "bitonic sort, 2^19", opened, "bitonic", half // 2, (keys,), half, _sorted)
        _row(bench, device, "product, 512^3", opened, "product", (512, 512), (a, b), (512, 512), np.matmul)
        _row(bench, device, "wave sums, 2^19", opened, "waves", half, (small,), half, _waves)
        _row(bench, device, "64 steps as a raw kernel, 2^20", opened, "steps", n, (floats,), n, _steps)
        _row(bench, device, "histogram, 2^20", opened, "histogram", n // 16, (bytes_,), n // 16, _histogram)
    return bench.finish()


def _opened(bench: Bench, device: str) -> dict[str, tuple[spy.Device, Any]]:
    """Our device, and the Vulkan device where it is one in software, with the module."""
    return {
        who: (d, spy.Module.load_from_source(d, "bench_groups", _SLANG))
        for who, d in with_lavapipe(bench, device).items()
    }


def _row(
    bench: Bench, device: str, case: str, opened: dict[str, tuple[spy.Device, Any]], name: str, threads: Any,
    arrays: tuple[Array, ...], shape: Any, numpy: Callable[..., Array],
) -> None:  # fmt: skip
    wanted, samplers = numpy(*arrays), {"NumPy": whole(partial(numpy, *arrays), _nothing, 1, 1e3)}
    for who, (opened_device, module) in opened.items():
        inputs = [spy.Tensor.from_numpy(opened_device, array) for array in arrays]
        out = spy.Tensor.zeros(opened_device, shape, "uint" if wanted.dtype == np.uint32 else "float")
        call = getattr(module, name).bind(threads, *inputs, out)
        call()
        if name == "waves":
            wanted = _waves(*arrays, opened_device.caps.lanes)
        np.testing.assert_allclose(out.to_numpy(), wanted, rtol=1e-4, err_msg=f"{case}: {who}")
        samplers[who] = whole(call, opened_device.synchronize, 1, 1e3)
    bench.compare(device, case, "ms", samplers)
    bench.save()


def _nothing() -> None:
    """Wait for NumPy, which is done when it returns."""


def _sums(x: Array) -> Array:
    return x.reshape(-1, 256).sum(1)


def _sorted(x: Array) -> Array:
    return np.sort(x.reshape(-1, 512), 1).ravel()


def _waves(x: Array, lanes: int = 32) -> Array:
    rows = x.reshape(-1, lanes)
    sums = rows.cumsum(1)
    return (sums[:, -1:] - sums + rows).astype(np.uint32).ravel()


def _steps(x: Array) -> Array:
    s = np.zeros_like(x)
    for i in range(64):
        s += np.maximum(np.minimum(x * np.float32(i), np.float32(1)), s * np.float32(0.5))
    return s


def _histogram(x: Array) -> Array:
    rows = x.reshape(-1, 16 * 256)
    places = rows + 256 * np.arange(len(rows), dtype=np.uint32)[:, None]
    return np.bincount(places.ravel(), minlength=256 * len(rows)).astype(np.uint32)


if __name__ == "__main__":
    raise SystemExit(main())
