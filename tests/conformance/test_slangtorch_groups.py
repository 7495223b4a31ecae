"""Kernels of slang-torch that use group memory, waves and pointers, as PPISP's and inline-mlp's do."""

from __future__ import annotations

import torch
from _slangtorch import ONE, Files, files

from tests.depth import needs, one_device

__all__ = ["files"]  # the fixture

pytestmark = one_device


def test_pointers_to_elements(files: Files) -> None:
    m = files.load("""
    struct Row { float *first; [mutating] void add(uint at, float x) { first[at] += x; } }
    [AutoPyBindCUDA] [CudaKernel]
    void point(TensorView<float> a, TensorView<float> b)
    {
        Row row = { a.data_ptr_at(uint2(1, 1)) };
        row.add(0, 10);
        row.add(1, 20);
        *b.data_ptr_at(2) = *a.data_ptr_at(uint2(0, 1));
    }
    """)
    a, b = files.on(torch.arange(6.0).view(2, 3)), files.on(torch.zeros(3))
    m.point(a=a, b=b).launchRaw(ONE, ONE)
    assert a.tolist() == [[0, 1, 2], [3, 14, 25]] and b.tolist() == [0, 0, 1]


@needs("groups", "wave")
def test_group_memory_waves_and_recomputation(files: Files) -> None:
    m = files.load("""
    struct Pool
    {
        static groupshared float values[64];
        static float sum() { float found = 0; for (uint k = 0; k < 64; ++k) found += values[k]; return found; }
    }
    [PreferRecompute] [Differentiable] float scaled(float x, no_diff float by) { return x * x * by; }
    [AutoPyBindCUDA] [CudaKernel] [Differentiable]
    void pooled(DiffTensorView a, DiffTensorView output, TensorView<float> sums)
    {
        uint i = cudaThreadIdx().x;
        no_diff gathered(a.primal, sums, i);
        output[i] = scaled(a[i], 3);
    }
    void gathered(TensorView<float> a, TensorView<float> sums, uint i)
    {
        Pool.values[i] = a[i];
        GroupMemoryBarrierWithGroupSync();
        float waves = WaveActiveSum(WaveIsFirstLane() ? WaveActiveSum(0) + 1 : 0);
        if (i == 0) { sums[0] = Pool.sum(); sums[1] = waves; sums[2] = Pool.values[63]; }
    }
    """)
    a, output = files.on(torch.arange(64.0)), files.on(torch.zeros(64))
    sums, gradient, ones = files.on(torch.zeros(3)), files.on(torch.zeros(64)), files.on(torch.ones(64))
    m.pooled(a=a, output=output, sums=sums).launchRaw((64, 1, 1), ONE)
    assert torch.equal(output, 3 * a * a) and sums.tolist() == [2016, 1, 63]
    m.pooled.bwd(a=(a, gradient), output=(output, ones), sums=sums).launchRaw((64, 1, 1), ONE)
    assert torch.equal(gradient, 6 * a)
