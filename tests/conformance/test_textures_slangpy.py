"""Textures beside slangpy's on its Vulkan device: the same texels, samplers and functions give the same colors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import deep, needs

# slangpy opens a device of its own, and compiles too.
pytestmark = [deep, needs("textures")]

SLANG = """
float4 look(Texture2D<float4> t, SamplerState s, float2 at, float level) { return t.SampleLevel(s, at, level); }
float4 cube(TextureCube<float4> t, SamplerState s, float3 at, float level) { return t.SampleLevel(s, at, level); }
float4 invert(float4 x) { return 1 - x; }
"""
WRAPS = {"repeat": "wrap", "mirror": "mirror_repeat", "clamp": "clamp_to_edge", "border": "clamp_to_border"}
RNG = np.random.default_rng(11)


@pytest.fixture(scope="module")
def theirs() -> Iterator[tuple[Any, Any, Any]]:
    """slangpy, its device and the functions above."""
    sp = pytest.importorskip("slangpy")
    try:
        opened = sp.Device(
            type=sp.DeviceType.vulkan, enable_rhi_validation=False, enable_hot_reload=False,
            compiler_options={"include_paths": [sp.SHADER_PATH]},
        )  # fmt: skip
    except RuntimeError as error:
        pytest.skip(f"slangpy has no Vulkan device here: {error}")
    yield sp, opened, sp.Module.load_from_source(opened, "test_textures_slangpy", SLANG)
    opened.close()


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above, here."""
    return spy.Module.load_from_source(device, "test_textures_slangpy", SLANG)


@pytest.mark.parametrize("mip", ["nearest", "linear"])
@pytest.mark.parametrize("filter", ["nearest", "linear"])
@pytest.mark.parametrize("wrap", WRAPS)
def test_samples(device: spy.Device, module: spy.Module, theirs: Any, wrap: str, filter: str, mip: str) -> None:
    sp, opened, other = theirs
    levels = [RNG.random((8 >> k, 16 >> k, 4), np.float32) for k in range(4)]
    ours = device.create_texture("rgba32_float", 16, 8, mip_count=4)
    peer = opened.create_texture(
        format=sp.Format.rgba32_float, width=16, height=8, mip_count=4,
        usage=sp.TextureUsage.shader_resource | sp.TextureUsage.copy_destination,
    )  # fmt: skip
    for k, level in enumerate(levels):
        ours.copy_from(level, mip=k)
        peer.copy_from_numpy(level, mip=k)
    at = RNG.uniform(-1.5, 2.5, (500, 2)).astype(np.float32)
    lod = RNG.uniform(-1, 5, 500).astype(np.float32)
    mode = getattr(sp.TextureAddressingMode, WRAPS[wrap])
    how, between = (
        getattr(sp.TextureFilteringMode, "point" if each == "nearest" else each) for each in (filter, mip)
    )
    sampler = opened.create_sampler(
        min_filter=how, mag_filter=how, mip_filter=between,
        address_u=mode, address_v=mode, address_w=mode, border_color=sp.float4(0, 0, 0, 0), min_lod=0,
    )  # fmt: skip
    expected = other.look(peer, sampler, at, lod, _result="numpy")
    found = module.look(ours, device.create_sampler(filter, wrap, mip), at, lod)
    # At the middle between two texels or levels, rounding decides which is the nearest.
    differ = np.abs(found - expected).max(1) > 2e-6
    assert differ.sum() <= (2 if "nearest" in (filter, mip) else 0), (differ.sum(), at[differ], lod[differ])


def test_elementwise(device: spy.Device, module: spy.Module, theirs: Any) -> None:
    sp, opened, other = theirs
    texels = RNG.integers(0, 256, (5, 7, 4), np.uint8)
    peer = opened.create_texture(
        format=sp.Format.rgba8_unorm, width=7, height=5, usage=sp.TextureUsage.shader_resource, data=texels
    )
    expected = other.invert(peer, _result="numpy")
    found = module.invert(spy.Texture.from_numpy(device, texels)).to_numpy()
    np.testing.assert_allclose(found, np.asarray(expected).reshape(5, 7, 4), atol=1e-6)
