"""Pictures of arrays: which arrays have one, and the color of each pixel once the PNG is decoded."""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import slangpy_rt as spy
from slangpy_rt.arrays.picture import png
from tests.depth import needs


def decode(data: bytes | None) -> npt.NDArray[np.uint8]:
    assert data is not None and data.startswith(b"\x89PNG\r\n\x1a\n")
    return np.asarray(Image.open(io.BytesIO(data)))


def test_floats_go_through_the_srgb_curve() -> None:
    # IEC 61966-2-1, rounded: 12.92 x below 0.0031308, 1.055 x^(1/2.4) - 0.055 above. In 255ths:
    expected = {0: 0, 0.002: 7, 0.0031308: 10, 0.18: 118, 0.5: 188, 0.75: 225, 1: 255}
    expected |= {-1: 0, 7: 255, np.inf: 255, -np.inf: 0}
    for dtype in (np.float32, np.float16):
        row = np.array([list(expected)], dtype)
        assert decode(png(row)).tolist() == [list(expected.values())]


def test_bytes_and_alpha_stay_as_they_are() -> None:
    codes = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4) * 10
    for array in (codes, codes[..., :3], codes[..., 0]):
        np.testing.assert_array_equal(decode(png(array)), array)
    half = np.full((1, 1, 4), 0.5, np.float32)
    assert decode(png(half)).tolist() == [[[188, 188, 188, 128]]]


def test_nan_is_magenta() -> None:
    for channels in (3, 4):
        pixels = np.ones((2, 2, channels), np.float32)
        pixels[0, 1, channels - 1] = np.nan
        found = decode(png(pixels)).copy()
        assert found[0, 1].tolist() == [255, 0, 255, 255][:channels]
        found[0, 1] = 255
        assert (found == 255).all()
    gray = decode(png(np.array([[0.5, np.nan]], np.float32)))
    assert gray.tolist() == [[[188, 188, 188], [255, 0, 255]]]


@pytest.mark.parametrize(("shape", "step"), [((1024, 1), 1), ((1025, 10), 2), ((7, 2500), 3)])
def test_large_ones_are_thinned_out(shape: tuple[int, int], step: int) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8)
    found = decode(png(array))
    assert max(found.shape) <= 1024
    np.testing.assert_array_equal(found, array[::step, ::step])


def test_nothing_to_show_or_to_show_it_with(monkeypatch: pytest.MonkeyPatch) -> None:
    assert png(np.zeros((0, 5, 3), np.uint8)) is None
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert png(np.zeros((9, 9), np.uint8)) is None


@pytest.mark.parametrize("dtype", ["float3", "float4", "half3", "half4", "uint8_t3", "uint8_t4"])
def test_images_of_vectors(device: spy.Device, dtype: str) -> None:
    for kind in (spy.Tensor, spy.NDBuffer):
        image = kind(device, dtype, (2, 5))
        values = np.zeros((2, 5, int(dtype[-1])))
        values[0, 1], values[1, 4, 0] = 1, 1
        values *= 255 if dtype.startswith("uint8") else 1
        image.copy_from(values.astype(image.to_numpy().dtype))
        shown = decode(image._repr_png_())
        # Each pixel is a square of 52: 5 of them are the first number of pixels from 256 on.
        expected = values * (1 if dtype.startswith("uint8") else 255)
        np.testing.assert_array_equal(shown, expected.repeat(52, axis=0).repeat(52, axis=1))
        # A view, upside down.
        np.testing.assert_array_equal(decode(image[::-1]._repr_png_()), shown[::-1])


@needs(lambda case: {"half", "double"} & {case["dtype"]})
@pytest.mark.parametrize("dtype", ["float", "half", "double", "uint8_t"])
def test_images_of_scalars(device: spy.Device, dtype: str) -> None:
    for channels in ((), (1,), (3,), (4,)):
        one = spy.Tensor.ones(device, (8, 300, *channels), dtype)
        shown = decode(one._repr_png_())
        assert shown.shape == (8, 300, *(channels if channels != (1,) else ()))
        assert (shown == (1 if dtype == "uint8_t" else 255)).all()


def test_images_of_bfloat16(device: spy.Device) -> None:
    values = np.linspace(0, 1, 80, dtype=np.float32).reshape(8, 10)
    image = spy.Tensor.from_numpy(device, values, "bfloat16")
    rounded = spy.Tensor.from_numpy(device, image.astype("float").to_numpy())
    np.testing.assert_array_equal(decode(image._repr_png_()), decode(rounded._repr_png_()))


@needs("textures")
def test_textures_and_images(device: spy.Device) -> None:
    values = np.random.default_rng(1).random((5, 9, 4), np.float32)
    shown = decode(spy.Tensor.from_numpy(device, values, "float4")._repr_png_())
    image = spy.Image(spy.Tensor.from_numpy(device, values, "float4"), mips=True)
    np.testing.assert_array_equal(decode(image._repr_png_()), shown)
    texture = spy.Texture.from_numpy(device, values)
    np.testing.assert_array_equal(decode(texture._repr_png_()), shown)
    stored = (values * 255).astype(np.uint8)
    texture = spy.Texture.from_numpy(device, stored[..., 0])
    np.testing.assert_array_equal(decode(texture._repr_png_())[::29, ::29], stored[..., 0])
    for other in (values[..., :2], np.ones((9, 9), np.uint32)):
        assert spy.Texture.from_numpy(device, other)._repr_png_() is None


def test_closed_devices_show_nothing() -> None:
    with spy.Device("cpu") as device:
        image = spy.Tensor.ones(device, (9, 9))
    assert image._repr_png_() is None


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("float", (7, 8)), ("float", (64,)), ("float", (8, 8, 2)), ("float", ()), ("float", (8, 7, 3)),
        ("int", (8, 8)), ("bool", (8, 8)), ("float2", (8, 8)), ("float3", (8,)), ("float3", (2, 8, 8)),
        ("float", (2, 8, 8, 3)), ("uint3", (8, 8)), ("float3x3", (8, 8)), ("float3", (0, 8)),
    ],
)  # fmt: skip
def test_other_arrays_are_text(device: spy.Device, dtype: str, shape: Any) -> None:
    assert spy.NDBuffer(device, dtype, shape)._repr_png_() is None
