"""Copies of texels between textures, arrays of the device and arrays of the host of any layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import one_device

RNG = np.random.default_rng(3)


def image(*shape: int) -> npt.NDArray[Any]:
    return RNG.random(shape, np.float32)


def test_copies(device: spy.Device) -> None:
    texels = image(3, 5, 4)
    texture = spy.Texture.from_numpy(device, texels, mips=True)
    tensor = spy.Tensor.empty(device, (3, 5), "float4")
    tensor.copy_from(texture)
    np.testing.assert_array_equal(tensor.to_numpy(), texels)
    plain = spy.NDBuffer(device, "float", (3, 5, 4))
    texture.copy_to(plain)
    np.testing.assert_array_equal(plain.to_numpy(), texels)
    wide = spy.Tensor.from_numpy(device, image(3, 10, 4))
    texture.copy_from(wide[:, ::2])
    np.testing.assert_array_equal(texture.to_numpy(), wide.to_numpy()[:, ::2])
    texture.copy_from(tensor)
    texture.generate_mips()
    np.testing.assert_allclose(texture.to_numpy(texture.mip_count - 1)[0, 0], texels.mean((0, 1)), atol=1e-5)
    other = device.create_texture("rgba32_float", 5, 3, array_length=2)
    other.copy_from(texture, layer=1)
    np.testing.assert_array_equal(other.to_numpy(layer=1), texels)
    part = spy.Tensor.empty(device, (4, 5), "float4")[1:]
    part.copy_from(texture)
    np.testing.assert_array_equal(part.to_numpy(), texels)


@one_device
def test_arrays_of_any_kind(device: spy.Device) -> None:
    texels = image(3, 5, 4)
    swapped, fixed = texels.astype(texels.dtype.newbyteorder("S")), texels.copy()
    fixed.flags.writeable = False
    for given in (swapped, fixed, texels[::-1, ::-1], np.asfortranarray(texels)):
        texture = spy.Texture.from_numpy(device, given)
        np.testing.assert_array_equal(texture.to_numpy(), given)
        np.testing.assert_array_equal(texture.copy_from(given[::-1]).to_numpy(), given[::-1])
    whole = np.arange(6, dtype=">u4").reshape(2, 3)
    np.testing.assert_array_equal(spy.Texture.from_numpy(device, whole), whole)
    layers = image(2, 3, 5, 4)
    texture = spy.Texture.from_numpy(device, layers, type="2d_array")
    np.testing.assert_array_equal(np.asarray(texture), layers)
    assert np.asarray(texture, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy=False asks for none"):
        np.asarray(texture, copy=False)


@one_device
def test_copies_between_levels(device: spy.Device) -> None:
    """A view of a level is copied as a texture of its size: into levels of that size, and into no others."""
    levels = [image(8 >> k, 16 >> k, 4) for k in range(3)]
    source = device.create_texture("rgba32_float", 16, 8, mip_count=3)
    for k, level in enumerate(levels):
        source.copy_from(level, mip=k)
    for k in range(3):
        alone = device.create_texture("rgba32_float", 16 >> k, 8 >> k)
        alone.copy_from(source.mip(k))
        np.testing.assert_array_equal(alone.to_numpy(), levels[k])
        other = device.create_texture("rgba32_float", 16, 8, mip_count=3, array_length=2)
        for place in range(3):
            for into, mip in ((other, place), (other.mip(place), 0)):
                if place == k:
                    into.copy_from(source.mip(k), mip=mip, layer=1)
                    np.testing.assert_array_equal(other.to_numpy(place, 1), levels[k])
                else:
                    with pytest.raises(spy.ShapeError, match="sizes and formats have to be equal"):
                        into.copy_from(source.mip(k), mip=mip, layer=1)
        tensor = spy.Tensor.empty(device, (8 >> k, 16 >> k), "float4")
        source.mip(k).copy_to(tensor)
        np.testing.assert_array_equal(tensor.to_numpy(), levels[k])
