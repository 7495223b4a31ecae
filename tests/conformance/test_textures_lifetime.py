"""Thousands of textures that are dropped while the device still reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import deep, needs, one_device

TEXT = """
void look(Texture2D<float4> t, SamplerState s, float2 at, inout float sum) { sum += t.SampleLevel(s, at, 0).x; }
"""


def _dropped(device: spy.Device, count: int) -> None:
    module: Any = spy.Module.load_from_source(device, "test_textures_lifetime", TEXT)
    sampler = device.create_sampler(filter="nearest")
    places = spy.Tensor.from_numpy(device, np.full((64, 2), 0.5, np.float32), "float2")
    total = spy.Tensor.zeros(device, 64)
    rng = np.random.default_rng(0)
    wanted = 0
    for k in range(count):
        rows, columns = rng.integers(1, 9, 2)
        texels = np.full((rows, columns, 4), k % 7, np.float32)
        texture = spy.Texture.from_numpy(device, texels, mips=bool(k % 2))
        module.look(texture, sampler, places, total)
        wanted += k % 7
        del texture  # while the call is in flight
    np.testing.assert_array_equal(total.numpy(), np.full(64, wanted))


@needs("textures")
@one_device
@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=deep)])
def test_textures_dropped_in_flight(device: spy.Device, count: int) -> None:
    _dropped(device, count)


@deep
def test_the_validation_layers_say_nothing() -> None:
    reasons = {d.type: d.reason for d in spy.devices()}
    if reasons.get("vulkan", "there is none"):
        pytest.skip(f"vulkan: {reasons.get('vulkan')}")
    with spy.Device("vulkan", debug=True) as device:
        if "without the Vulkan validation layers" in device.info:
            pytest.skip("the Vulkan validation layers are not installed")
        _dropped(device, 10_000)
        said = [text for text in device.backend.messages if "Invalid source language operand" not in text]
    assert not said, "\n".join(said)


def test_descriptors_are_used_again() -> None:
    """Images that were freed leave their numbers to others, however kernels used them: looked up, read or written."""
    reasons = {d.type: d.reason for d in spy.devices()}
    if reasons.get("vulkan", "there is none"):
        pytest.skip(f"vulkan: {reasons.get('vulkan')}")
    text = (
        TEXT
        + """
void look_with(Sampler2D<float4> t, float2 at, inout float sum) { sum += t.SampleLevel(at, 0).x; }
void read(Texture2D<float4> t, int2 at, inout float sum) { sum += t[at].x; }
void write(RWTexture2D<float4> t, int2 at) { t[at] = 1; }
"""
    )
    with spy.Device("vulkan") as device:
        module: Any = spy.Module.load_from_source(device, "test_descriptors", text)
        sampler = device.create_sampler(filter="nearest")
        total = spy.Tensor.zeros(device, 4)
        backend: Any = device.backend

        def used() -> list[int]:
            """Make, use and drop images; return how many numbers are free then."""
            for _ in range(3):
                texture = device.create_texture("rgba32_float", 4, 4, mip_count=2)
                for level in (texture, texture.mip(0), texture.mip(1)):
                    module.write(level, (0, 0)) if level is not texture else module.write(texture, (1, 1))
                    module.read(level, (0, 0), total)
                    module.look(level, sampler, (0.5, 0.5), total)
                    module.look_with(level.with_sampler(sampler), (0.5, 0.5), total)
                del texture, level
            device.synchronize()
            with backend._lock:
                backend._images.sweep(backend._queues, all=True)
                backend._images.sweep(backend._queues, all=True)
            return [len(numbers) for numbers in backend.queue._commands.heap._free]

        free = used()
        assert all(used() == free for _ in range(3))
