"""The CPU device on a machine without a C++ compiler: LLVM compiles all kernels, this project's own included."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy

pytest.importorskip("llvmlite.binding")

TEXT = """
import slangpy_rt;
[Differentiable] float wave(float x, float k) { return sin(k * x) * x; }
[Differentiable] float picked(DiffTensor<float, 1> t, no_diff int i) { return t[i] * t[i]; }
void count(int place, RWTensor<int, 1> counts) { counts.add(place, 1); }
float read(Texture2D<float> t, int x) { return t[int2(x, 0)]; }
struct Vertex { float4 at : SV_Position; float3 color; }
"""


@pytest.fixture(scope="module")
def device() -> Iterator[spy.Device]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slangpy_rt.backends.cpu.backend.find_compiler", lambda: None)
        patch.setattr("slangpy_rt.backends.cpu.compile.find_compiler", lambda: None)
        with spy.Device("cpu") as opened:
            yield opened


@pytest.fixture(scope="module")
def module(device: spy.Device) -> Any:
    return spy.Module.load_from_source(device, "test_no_cpp_compiler", TEXT)


def test_calls_and_gradients(device: spy.Device, module: Any) -> None:
    x = np.linspace(-2, 2, 1001).astype(np.float32)
    np.testing.assert_allclose(module.wave(x, 3.0), np.sin(3 * x) * x, atol=1e-6)
    a = spy.Tensor.from_numpy(device, x).with_grads()
    k = spy.Tensor.from_numpy(device, np.array([3], np.float32)).with_grads()
    ones = spy.Tensor.full(device, (1001,), 1)
    module.wave.bwds(a, k, _result=spy.Tensor.empty(device, (1001,)).with_grads(grad_in=ones))
    np.testing.assert_allclose(a.grad.to_numpy(), np.sin(3 * x) + 3 * x * np.cos(3 * x), atol=1e-5)
    slopes = x.astype(np.float64) ** 2 * np.cos(3 * x.astype(np.float64))
    np.testing.assert_allclose(k.grad.to_numpy(), slopes.sum(), rtol=1e-4)
    counts = spy.Tensor.zeros(device, (7,), "int")
    module.count(np.arange(1000, dtype=np.int32) % 7, counts)
    np.testing.assert_array_equal(counts.to_numpy(), np.bincount(np.arange(1000) % 7))


def test_modules_of_this_project(device: spy.Device) -> None:
    r = np.random.default_rng(0)
    values = r.random((300, 40)).astype(np.float32)
    tensor = spy.Tensor.from_numpy(device, values)
    np.testing.assert_allclose(tensor.sum(axis=0).to_numpy(), values.sum(0), rtol=1e-5)
    np.testing.assert_allclose(spy.cumsum(tensor, 1).to_numpy(), values.cumsum(1), rtol=1e-5)
    np.testing.assert_array_equal(tensor.max(axis=1).to_numpy(), values.max(1))
    other = r.random((40, 30)).astype(np.float32)
    product = spy.matmul(tensor, spy.Tensor.from_numpy(device, other))
    np.testing.assert_allclose(product.to_numpy(), values @ other, rtol=1e-5)
    numbers = r.integers(0, 1000, 5000).astype(np.int32)
    np.testing.assert_array_equal(spy.sort(spy.Tensor.from_numpy(device, numbers)).to_numpy(), np.sort(numbers))


def test_textures_are_refused(device: spy.Device, module: Any) -> None:
    assert "textures" not in device.caps.features
    with pytest.raises(spy.UnsupportedError) as caught:
        module.read(spy.Texture.from_numpy(device, np.ones((4, 4), np.float32)), np.arange(4, dtype=np.int32))
    assert "textures" in str(caught.value)


PROGRAM = """
import numpy as np
import slangpy_rt as spy
with spy.Device("cpu") as device:
    module = spy.Module.load_from_source(device, "alone", "float add(float a, float b) { return a + b; }")
    print(module.add(np.ones(3, np.float32), 2.0).tolist(), device.backend.compilers[0])
"""


def test_the_setting_of_the_environment() -> None:
    given = {**os.environ, "SLANGPY_RT_CXX": "none"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=given)
    assert done.stdout.split() == ["[3.0,", "3.0,", "3.0]", "LLVM"], done.stderr
