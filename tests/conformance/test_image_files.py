"""Images in files beside Pillow and OpenEXR: colours, channels, bits, and what is refused."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import one_device

PIL = pytest.importorskip("PIL.Image")
OpenEXR = pytest.importorskip("OpenEXR")
Array = npt.NDArray[Any]
SIZE = (5, 7)
pytestmark = one_device


def codes(channels: int, dtype: Any = np.uint8) -> Array:
    most = np.iinfo(dtype).max
    found = np.random.default_rng(channels).integers(0, most + 1, (*SIZE, channels)).astype(dtype)
    found[0, 0], found[0, 1] = 0, most
    return found


def light(shown: Array) -> Array:
    """The sRGB curve by IEC 61966-2-1, in double, one number at a time."""
    return np.vectorize(lambda x: x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4)(shown)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_of_8_bits(device: spy.Device, tmp_path: Path, channels: int) -> None:
    stored, file = codes(channels), tmp_path / "a.png"
    PIL.fromarray(stored[..., 0] if channels == 1 else stored).save(file)
    wanted = stored / 255
    raw = spy.load_image(device, file, color="raw")
    assert raw.dtype.name == ("float" if channels == 1 else f"float{channels}")
    assert raw.shape == SIZE
    np.testing.assert_allclose(raw.to_numpy().reshape(wanted.shape), wanted, 1e-6)
    np.testing.assert_array_equal(spy.load_image(device, file, "srgb").to_numpy(), raw.to_numpy())
    colors = slice(0, channels if channels in (1, 3) else channels - 1)
    wanted[..., colors] = light(wanted[..., colors])
    linear = spy.load_image(device, str(file))
    np.testing.assert_allclose(linear.to_numpy().reshape(wanted.shape), wanted, 1e-5)
    for image, color in ((linear, "linear"), (raw, "raw"), (raw, "srgb"), (linear.flatten_dtype(), "linear")):
        spy.save_image(tmp_path / "b.png", image, color)
        again = np.asarray(PIL.open(tmp_path / "b.png"))
        np.testing.assert_array_equal(again.reshape(stored.shape), stored)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_of_16_bits(device: spy.Device, tmp_path: Path, channels: int) -> None:
    stored, file = codes(channels, np.uint16), tmp_path / "a.png"
    spy.save_image(file, stored)
    data = file.read_bytes()
    assert (data[24], data[25]) == (16, {1: 0, 2: 4, 3: 2, 4: 6}[channels])
    raw = spy.load_image(device, file, "raw")
    np.testing.assert_allclose(raw.to_numpy().reshape(stored.shape), stored / 65535, 1e-6)
    # Pillow keeps the upper 8 of 16 bits of colours.
    theirs = np.asarray(PIL.open(file)).reshape(stored.shape) if channels != 2 else stored
    np.testing.assert_array_equal(theirs, stored >> 8 if channels > 2 else stored)
    spy.save_image(tmp_path / "b.png", spy.load_image(device, file), bits=16)
    found = spy.load_image(device, tmp_path / "b.png", "raw").to_numpy().reshape(stored.shape)
    np.testing.assert_allclose(found, stored / 65535, atol=1e-6)


def filtered(pixels: Array) -> bytes:
    """A PNG of 16 bits whose rows have PNG's filters by turns, written byte by byte as its standard says."""
    height, width, channels = pixels.shape
    step = 2 * channels
    rows = [bytes(width * step), *(row.astype(">u2").tobytes() for row in pixels)]
    out = b""
    for y in range(height):
        above, row = rows[y], rows[y + 1]
        out += bytes([y % 5])
        for k, x in enumerate(row):
            a = row[k - step] if k >= step else 0
            b = above[k]
            c = above[k - step] if k >= step else 0
            p = a + b - c
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            out += bytes([(x - (0, a, b, (a + b) // 2, paeth)[y % 5]) % 256])
    head = struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[channels], 0, 0, 0)
    packed = zlib.compress(out)
    chunks = [(b"IHDR", head), (b"tEXt", b"a\0b"), (b"IDAT", packed[:50]), (b"IDAT", packed[50:]), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(c)) + n + c + struct.pack(">I", zlib.crc32(n + c)) for n, c in chunks
    )


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (13, 1), (12, 17)])
def test_filters_of_png(device: spy.Device, tmp_path: Path, size: tuple[int, int]) -> None:
    stored = np.random.default_rng(5).integers(0, 65536, (*size, 3)).astype(np.uint16)
    data = filtered(stored)
    # Pillow reads the file too.
    np.testing.assert_array_equal(np.asarray(PIL.open(io.BytesIO(data))), stored >> 8)
    (tmp_path / "a.png").write_bytes(data)
    found = spy.load_image(device, tmp_path / "a.png", "raw").to_numpy()
    np.testing.assert_array_equal(np.round(found * 65535).astype(np.uint16), stored)


def test_damaged_files(device: spy.Device, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = filtered(codes(3, np.uint16))
    exr = tmp_path / "whole.exr"
    spy.save_image(exr, np.ones((8, 8, 3), np.float32))
    spy.save_image(tmp_path / "a.jpg", np.ones((8, 8, 3), np.float32))
    for name, data in (("a.png", whole), ("b.exr", exr.read_bytes()), ("c.jpg", (tmp_path / "a.jpg").read_bytes())):
        for cut in (0, 5, 20, 30, len(data) // 2, len(data) - 13):
            (tmp_path / name).write_bytes(data[:cut])
            with pytest.raises(spy.BindError, match="load_image: cannot read '"):
                spy.load_image(device, tmp_path / name)
        if name == "b.exr":
            capfd.readouterr()  # OpenEXR prints what it finds wrong.
    damaged = bytearray(whole)
    damaged[60] ^= 1
    (tmp_path / "a.png").write_bytes(damaged)
    with pytest.raises(spy.BindError, match="its check sums are wrong, so it is damaged"):
        spy.load_image(device, tmp_path / "a.png")
    assert capfd.readouterr() == ("", "")


def test_sizes_are_checked_before_memory_is_taken(device: spy.Device, tmp_path: Path) -> None:
    """A small file may say that it has any number of pixels."""
    stored = codes(3, np.uint16)
    head = lambda w, h: struct.pack(">IIBBBBB", w, h, 16, 2, 0, 0, 0)  # noqa: E731
    whole, name = filtered(stored), tmp_path / "a.png"
    for size in ((30000, 23000), (2**31 - 1, 2**31 - 1), (1, 178_956_971)):
        many = size[0] * size[1]
        crc = struct.pack(">I", zlib.crc32(b"IHDR" + head(*size)))
        name.write_bytes(whole[:16] + head(*size) + crc + whole[33:])
        with pytest.raises(spy.BindError) as caught:
            spy.load_image(device, name)
        assert str(caught.value) == (
            f"load_image: cannot read '{name}': it has {size[0]} x {size[1]} pixels, and the limit is 178956970; "
            f"pass max_pixels={many} if you trust it."
        )
        if size[0] == 30000:
            tracemalloc.start()
            with pytest.raises(spy.BindError, match="pixels are missing"):
                spy.load_image(device, name, max_pixels=many)
            with pytest.raises(spy.BindError, match="pixels are missing"):
                spy.load_image(device, name, max_pixels=None)
            assert tracemalloc.get_traced_memory()[1] < 1 << 22
            tracemalloc.stop()
    spy.save_image(tmp_path / "b.exr", stored.astype(np.float32))
    data = bytearray((tmp_path / "b.exr").read_bytes())
    at = data.index(b"dataWindow\0box2i\0") + 21
    data[at : at + 16] = struct.pack("<4i", 0, 0, 99_999, 99_999)
    (tmp_path / "c.exr").write_bytes(data)
    with pytest.raises(spy.BindError, match="it has 100000 x 100000 pixels, and the limit is 178956970"):
        spy.load_image(device, tmp_path / "c.exr")
    spy.save_image(tmp_path / "d.jpg", np.zeros((4, 5, 3), np.uint8))
    name.write_bytes(whole)
    for file, many in ((name, 35), (tmp_path / "b.exr", 35), (tmp_path / "d.jpg", 20)):
        assert spy.load_image(device, file, max_pixels=many).size == many
        with pytest.raises(
            spy.BindError, match=f"and the limit is {many - 1}; pass max_pixels={many} if you trust it"
        ):
            spy.load_image(device, file, max_pixels=many - 1)
    with pytest.raises(spy.BindError, match=r"load_image: max_pixels is 0; a whole number from 1 to"):
        spy.load_image(device, name, max_pixels=0)


def test_chunks_of_png(device: spy.Device, tmp_path: Path) -> None:
    """Chunks of any number and length: of no byte, of one byte, and one that says it has 2 GiB."""
    stored = codes(3, np.uint16)
    whole = filtered(stored)
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))  # noqa: E731
    begin = whole.index(b"IDAT") - 4
    packed = zlib.compress(zlib.decompress(whole[begin + 8 : begin + 58] + whole[begin + 70 : -16]))
    parts = b"".join(chunk(b"IDAT", packed[k : k + 1]) + chunk(b"IDAT", b"") for k in range(len(packed)))
    file = tmp_path / "a.png"
    file.write_bytes(whole[:33] + chunk(b"tEXt", b"x") * 20000 + parts + chunk(b"IEND", b"") + b"rest")
    found = spy.load_image(device, file, "raw").to_numpy()
    np.testing.assert_array_equal(np.round(found * 65535).astype(np.uint16), stored)
    file.write_bytes(whole[:33] + struct.pack(">I", 2**31) + b"tEXt" + whole[33:])
    with pytest.raises(spy.BindError, match="it is damaged: it breaks off"):
        spy.load_image(device, file)


@pytest.mark.skipif(os.name == "nt", reason="no named pipes in folders")
def test_pipes_and_devices(device: spy.Device, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    for path, told in (
        (pipe, "it is no ordinary file"),
        ("/dev/zero", "it is no ordinary file"),
        (tmp_path, "no ordi"),
    ):
        with pytest.raises(spy.BindError, match=f"load_image: cannot read '.*{told}"):
            spy.load_image(device, path)


@pytest.mark.parametrize("suffix", [".png", ".exr", ".jpg", ".tga"])
def test_bytes_at_random(device: spy.Device, tmp_path: Path, suffix: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever is cut off or changed, there is an image or a BindError."""
    random, file = np.random.default_rng(11), tmp_path / f"a{suffix}"
    spy.save_image(file, codes(3).astype(np.float32 if suffix == ".exr" else np.uint8))
    whole = filtered(codes(3, np.uint16)) if suffix == ".png" else file.read_bytes()
    for k in range(150):
        data = bytearray(whole[: random.integers(len(whole)) + 1] if k % 4 == 0 else whole)
        for at in random.integers(len(data), size=random.integers(1, 4)):
            data[at] = random.integers(256)
        if k % 2:  # with check sums that are right
            at = 8
            while suffix == ".png" and at + 12 + int.from_bytes(data[at : at + 4], "big") <= len(data):
                end = at + 8 + int.from_bytes(data[at : at + 4], "big")
                data[end : end + 4] = struct.pack(">I", zlib.crc32(data[at + 4 : end]))
                at = end + 4
        file.write_bytes(data)
        try:
            spy.load_image(device, file, max_pixels=10**6)
        except spy.BindError as error:
            assert str(error).startswith(f"load_image: cannot read '{file}': ")
    capfd.readouterr()  # OpenEXR prints what it finds wrong.


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["float", "half"])
def test_exr(device: spy.Device, tmp_path: Path, channels: int, dtype: str) -> None:
    kind = np.float16 if dtype == "half" else np.float32
    stored = np.random.default_rng(channels).normal(size=(*SIZE, channels), scale=10).astype(kind)
    stored[0, 0], stored[1, 1] = np.nan, np.inf
    file = tmp_path / "a.exr"
    spy.save_image(file, spy.Tensor.from_numpy(device, stored))
    with OpenEXR.File(str(file), separate_channels=True) as opened:
        planes = {name: channel.pixels for name, channel in opened.channels().items()}
    for k, name in enumerate(["Y", "YA", "RGB", "RGBA"][channels - 1]):
        assert planes[name].dtype == kind
        np.testing.assert_array_equal(planes[name], stored[..., k])
    found = spy.load_image(device, file, dtype=dtype)
    np.testing.assert_array_equal(found.to_numpy().reshape(stored.shape), stored)
    shown = np.clip(stored[2:], 0, 1)
    spy.save_image(file, shown, "srgb")
    count = channels if channels in (1, 3) else channels - 1
    wanted = shown.astype(np.float64)
    wanted[..., :count] = light(wanted[..., :count])
    again = spy.load_image(device, file).to_numpy().reshape(wanted.shape)
    np.testing.assert_allclose(again, wanted, 2e-3 if dtype == "half" else 1e-5, 1e-7)


def test_other_formats(device: spy.Device, tmp_path: Path) -> None:
    smooth = np.linspace(0, 255, 64 * 64 * 3).reshape(64, 64, 3).astype(np.uint8)
    for suffix in ("bmp", "tif", "TIFF", "webp", "tga", "jpg", "jpeg"):
        file = tmp_path / f"a.{suffix}"
        spy.save_image(file, smooth)
        exact = suffix not in ("jpg", "jpeg")
        np.testing.assert_allclose(np.asarray(PIL.open(file)).astype(int), smooth, atol=0 if exact else 6)
        found = spy.load_image(device, file, "raw").to_numpy() * 255
        np.testing.assert_allclose(found, np.asarray(PIL.open(file)), atol=1e-3)


def test_palettes_and_orientation(device: spy.Device, tmp_path: Path) -> None:
    picture = PIL.fromarray(np.array([[[255, 0, 0], [0, 255, 0]]], np.uint8))
    picture.convert("P", palette=1, colors=4).save(tmp_path / "p.gif")
    assert spy.load_image(device, tmp_path / "p.gif", "raw").tolist() == [[[1, 0, 0], [0, 1, 0]]]
    PIL.fromarray(np.array([[True, False]])).save(tmp_path / "1.png")
    assert spy.load_image(device, tmp_path / "1.png").tolist() == [[1, 0]]
    exif = PIL.Exif()
    exif[0x0112] = 6
    picture.save(tmp_path / "turned.png", exif=exif)
    assert spy.load_image(device, tmp_path / "turned.png").shape == (2, 1)


def test_channels(device: spy.Device, tmp_path: Path) -> None:
    def load(stored: Array, channels: int) -> Array:
        PIL.fromarray(stored).save(tmp_path / "a.png")
        return spy.load_image(device, tmp_path / "a.png", "raw", channels).to_numpy() * 255

    grey, both, three, four = codes(1)[..., 0], codes(2), codes(3), codes(4)
    full = np.full((*SIZE, 1), 255)
    near: Callable[[Array, Array], None] = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3)  # noqa: E731
    near(load(grey, 3), np.repeat(grey[..., None], 3, 2))
    near(load(grey, 2), np.concatenate([grey[..., None], full], 2))
    near(load(both, 1), both[..., 0])
    near(load(both, 4), both[..., [0, 0, 0, 1]])
    near(load(three, 4), np.concatenate([three, full], 2))
    near(load(four, 3), four[..., :3])
    near(load(four, 4), four)
    with pytest.raises(spy.BindError, match=r"channels is 1, and .* has colours; 3 or 4 was expected"):
        load(three, 1)


def test_images_are_arguments(device: spy.Device, tmp_path: Path) -> None:
    spy.save_image(tmp_path / "a.png", spy.Tensor.full(device, (4, 4), 0.25, "float3"))
    module = spy.Module.load_from_source(device, "image_files", "float3 half_as_bright(float3 c) { return c * 0.5; }")
    dark = module.half_as_bright(spy.load_image(device, tmp_path / "a.png"))
    np.testing.assert_allclose(dark.to_numpy(), 0.125, 0.02)
    module_half = spy.load_image(device, tmp_path / "a.png", dtype="half")
    assert module_half.dtype.name == "half3"


def test_refusals(device: spy.Device, tmp_path: Path) -> None:
    png, image = tmp_path / "a.png", np.ones((4, 6, 3), np.float32)
    spy.save_image(png, image)
    spoiled = image.copy()
    spoiled[2, 3, 1] = np.nan
    (tmp_path / "text.png").write_text("no image")
    told: dict[str, Callable[[], Any]] = {
        f"load_image: cannot read '{tmp_path}/none.png' (No such file or directory); name another file.": (
            lambda: spy.load_image(device, tmp_path / "none.png")
        ),
        "load_image: color is 'sRGB'; 'linear', 'srgb' or 'raw' was expected.": (
            lambda: spy.load_image(device, png, "sRGB")
        ),
        "load_image: channels is 5; a whole number from 1 to 4 was expected.": (
            lambda: spy.load_image(device, png, channels=5)
        ),
        "load_image: dtype is 'int'; 'float' or 'half' was expected.": (
            lambda: spy.load_image(device, png, dtype="int")
        ),
        "save_image: path is 'a.xyz'; it has to end in one of .png, .jpg, .jpeg, .bmp, .tif, .tiff, .webp, .tga, "
        ".exr.": lambda: spy.save_image("a.xyz", image),
        "save_image: bits is 16; 8 was expected, or 16 for a PNG file.": (
            lambda: spy.save_image("a.jpg", image, bits=16)
        ),
        "save_image: image is 3; a Tensor or an array of NumPy was expected.": lambda: spy.save_image(png, 3),
        "save_image: image is Tensor<float> of shape (3, 40, 60), with channels first; move them to the end: "
        "numpy.moveaxis(image.to_numpy(), 0, -1).": (
            lambda: spy.save_image(png, spy.Tensor.zeros(device, (3, 40, 60)))
        ),
        "save_image: image is Tensor<float> of shape (4,); shape (height, width), or (height, width, channels) with "
        "1 to 4 channels, was expected.": lambda: spy.save_image(png, spy.Tensor.zeros(device, 4)),
        "save_image: image is Tensor<int> of shape (4, 4) of int32; float, half, double, uint8_t or uint16_t was "
        "expected.": lambda: spy.save_image(png, spy.Tensor.zeros(device, (4, 4), "int")),
        "save_image: image has 4 channels; a .jpg file has 1 or 3. Leave some out: image.to_numpy()[..., :3].": (
            lambda: spy.save_image("a.jpg", np.ones((4, 4, 4), np.float32))
        ),
        "save_image: image holds NaN, first at (2, 3); an EXR file can hold it, others cannot.": (
            lambda: spy.save_image(png, spoiled)
        ),
        "save_image: image holds uint8; an EXR file holds float or half.": (
            lambda: spy.save_image(tmp_path / "a.exr", np.ones((4, 4), np.uint8))
        ),
    }
    for message, call in told.items():
        with pytest.raises(spy.SlangPyRtError) as caught:
            call()
        assert str(caught.value) == message
    with pytest.raises(spy.BindError, match="it is no image that Pillow knows"):
        spy.load_image(device, tmp_path / "text.png")
    with pytest.raises(spy.BindError, match="No such file or directory"):
        spy.save_image(tmp_path / "none" / "a.png", image)
    # What was there before is there still.
    assert spy.load_image(device, png).shape == (4, 6)
    PIL.new("CMYK", (4, 4)).save(tmp_path / "a.jpg")
    with pytest.raises(spy.BindError, match=r"Pillow's mode 'CMYK'; convert it"):
        spy.load_image(device, tmp_path / "a.jpg")
