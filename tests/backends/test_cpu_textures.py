"""Textures of the CPU in lanes: on a device for a debugger, and functions whose code is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.cpu.group_functions import GroupFunctions
from slangpy_rt.backends.cpu.llvm import LlvmCompiler
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.lanes.translate import LaneFunction, translate
from tests.lanes._kernels import Kernels

pytest.importorskip("llvmlite")

SLANG = """
float4 look(Texture2D<float4> t, SamplerState s, float2 at) { return t.SampleLevel(s, at, 0); }
float4 own(Sampler2D<float4> t, float2 at) { return 2 * t.SampleLevel(at, 0); }
float4 invert(float4 x) { return 1 - x; }
"""
LONG = "x = x * 1664525u + 1013904223u; x ^= x >> 13; " * 80
KERNELS = Kernels(f"""
[noinline] uint mixed(uint x) {{ {LONG} return x; }}
[shader("compute")] [numthreads(64, 1, 1)]
void first(uint3 thread : SV_DispatchThreadID, uniform uint *a) {{ a[thread.x] = mixed(a[thread.x]); }}
[shader("compute")] [numthreads(64, 1, 1)]
void second(uint3 thread : SV_DispatchThreadID, uniform uint *a) {{ a[thread.x] += mixed(a[thread.x] + 1); }}
""")


def test_a_device_for_a_debugger() -> None:
    """Its kernels have no calls; results differ by the rounding of sums that are not fused."""
    texels = np.random.default_rng(1).random((5, 6, 4)).astype(np.float32)
    at = np.random.default_rng(2).uniform(-1, 2, (30, 2)).astype(np.float32)
    found = []
    for debug in (False, True):
        with spy.Device("cpu", debug=debug) as device:
            module: Any = spy.Module.load_from_source(device, "debugged_textures", SLANG)
            texture = spy.Texture.from_numpy(device, texels, mips=True)
            found.append(np.asarray(module.look(texture, {}, at)))
            np.testing.assert_allclose(np.asarray(module.own(texture.with_sampler({}), at)), 2 * found[-1], atol=1e-5)
            np.testing.assert_array_equal(module.invert(texture, _result="texture").to_numpy(), 1 - texels)
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_functions_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write: Callable[[LaneFunction], str] = LaneFunction.write
    monkeypatch.setattr(LaneFunction, "write", lambda self: written.append(self.name) or write(self))
    compiler = LlvmCompiler()
    first, second = (translate(KERNELS.code(name)) for name in ("first", "second"))
    for folder in (None, tmp_path):
        functions = GroupFunctions(DiskCache(folder, 1 << 20))
        codes = [functions.compiled(compiler, kernel.functions) for kernel in (first, second)]
        assert codes[0] == codes[1]
    assert len(written) == 2
    # Another process finds it on the disk.
    assert GroupFunctions(DiskCache(tmp_path, 1 << 20)).compiled(compiler, second.functions) == codes[0]
    assert len(written) == 2
