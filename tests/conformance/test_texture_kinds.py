"""Every kind of texture in every way that calls take one: whole, texel by texel, by levels, and as a result."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import needs, sampled

pytestmark = [sampled(12), needs("textures")]

SLANG = """
void copy_1d(Texture1D<float4> a, RWTexture1D<float4> b, uint at) { b[at] = a[at]; }
void copy_2d(Texture2D<float4> a, RWTexture2D<float4> b, uint2 at) { b[at] = a[at]; }
void copy_3d(Texture3D<float4> a, RWTexture3D<float4> b, uint3 at) { b[at] = a[at]; }
void copy_1d_array(Texture1DArray<float4> a, RWTexture1DArray<float4> b, uint2 at) { b[at] = a[at]; }
void copy_2d_array(Texture2DArray<float4> a, RWTexture2DArray<float4> b, uint3 at) { b[at] = a[at]; }
void put(float4 x, out float4 y) { y = 2 * x; }
float4 twice(float4 x) { return 2 * x; }
half4 halves(half4 x) { return half(2) * x; }
void put_halves(inout half4 x) { x *= half(2); }
float either(float4 x) { return 1; }
float either(half4 x) { return 2; }
T same<T>(T x) { return x; }
float in_line(Texture1D<float> t) { return t[uint(2)]; }
float in_plane(Texture2D<float> t) { return t[uint2(3, 1)]; }
float in_volume(Texture3D<float> t, float k) { return k * t[uint3(2, 1, 3)]; }
"""
# The sizes of each kind: layers, then the largest level. None is a power of two.
KINDS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "1d": ((), (9,)), "2d": ((), (7, 10)), "3d": ((), (5, 7, 6)), "1d_array": ((3,), (9,)),
    "2d_array": ((3,), (7, 10)),
}  # fmt: skip
CUBES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {"cube": ((6,), (5, 5)), "cube_array": ((12,), (5, 5))}
RNG = np.random.default_rng(5)
Array = npt.NDArray[Any]
# Of each scalar that texels store as it is, the dtype and the format of one channel.
STORED = {
    "float": ("f4", "32_float"), "half": ("f2", "16_float"), "uint": ("u4", "32_uint"), "int": ("i4", "32_sint"),
    "uint16_t": ("u2", "16_uint"), "int16_t": ("i2", "16_sint"), "uint8_t": ("u1", "8_uint"),
    "int8_t": ("i1", "8_sint"),
}  # fmt: skip


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_texture_kinds", SLANG)


def every_value(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Random values of a dtype, its least and largest ones among them."""
    if dtype.kind == "f":
        values = RNG.normal(size=shape).astype(dtype)
        values.flat[:2] = np.finfo(dtype).min, np.finfo(dtype).max
        return values
    info = np.iinfo(dtype)
    values = RNG.integers(info.min, info.max, shape, dtype, endpoint=True)
    values.flat[:2] = info.min, info.max
    return values


def size_of(kind: str, level: int) -> tuple[int, ...]:
    layers, size = (KINDS | CUBES)[kind]
    return (*layers, *[max(n >> level, 1) for n in size])


def made(device: spy.Device, kind: str, levels: int, empty: bool = False) -> tuple[spy.Texture, list[Array]]:
    """A texture whose layers and levels were written one by one, and its texels by level, layers first."""
    layers, size = (KINDS | CUBES)[kind]
    width, height, depth = (*size[::-1], None, None)[:3]
    length = (layers[0] // 6 if "cube" in kind else layers[0]) if "array" in kind else None
    texture = device.create_texture(
        "rgba32_float", width, height, depth, array_length=length, mip_count=levels, type=kind
    )  # fmt: skip
    assert texture.mip_count == (levels or max(size).bit_length())
    texels = []
    for k in range(texture.mip_count):
        shape = (*size_of(kind, k), 4)
        level = np.zeros(shape, np.float32) if empty else RNG.random(shape, np.float32)
        for j, layer in enumerate(level if layers else [level]):
            texture.copy_from(layer, mip=k, layer=j)
        texels.append(level)
    return texture, texels


def read(texture: spy.Texture, kind: str, level: int) -> Array:
    layers = (KINDS | CUBES)[kind][0]
    found = [texture.to_numpy(mip=level, layer=j) for j in range(layers[0] if layers else 1)]
    return np.array(found) if layers else found[0]


def places(shape: tuple[int, ...]) -> Array:
    """The place of each texel as functions take it: x first."""
    at = np.stack(np.indices(shape)[::-1], -1).astype(np.uint32)
    return at[..., 0] if len(shape) == 1 else at


@pytest.mark.parametrize("levels", [0, 1, 3])
@pytest.mark.parametrize("kind", [*KINDS, *CUBES])
def test_copies_of_the_host(device: spy.Device, kind: str, levels: int) -> None:
    texture, texels = made(device, kind, levels)
    for k, level in enumerate(texels):
        np.testing.assert_array_equal(read(texture, kind, k), level)


@needs(lambda case: ["loads of lines"] if case["kind"].startswith("1d") else [])
@pytest.mark.parametrize("levels", [0, 1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_whole(device: spy.Device, module: spy.Module, kind: str, levels: int) -> None:
    a, texels = made(device, kind, levels)
    b, before = made(device, kind, levels, empty=True)
    copy = getattr(module, f"copy_{kind}")
    copy(a, b, places(texels[0].shape[:-1]))
    for k, level in enumerate(texels):
        np.testing.assert_array_equal(read(b, kind, k), before[k] if k else level)
    for k, level in enumerate(texels):
        copy(a.mip(k), b.mip(k), places(level.shape[:-1]))
    for k, level in enumerate(texels):
        np.testing.assert_array_equal(read(b, kind, k), level)


@needs(lambda case: ["loads of lines"] if case["kind"].startswith("1d") else [])
@pytest.mark.parametrize("levels", [0, 1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_texel_by_texel(device: spy.Device, module: spy.Module, kind: str, levels: int) -> None:
    a, texels = made(device, kind, levels)
    b, before = made(device, kind, levels, empty=True)
    module.put(a, b)
    for k, level in enumerate(texels):
        np.testing.assert_array_equal(read(b, kind, k), before[k] if k else 2 * level)
    for k in range(len(texels)):
        module.put(a.mip(k), b.mip(k))
    for k, level in enumerate(texels):
        np.testing.assert_array_equal(read(b, kind, k), 2 * level)
        found = module.twice(a.mip(k), _result="numpy")
        assert isinstance(found, np.ndarray) and found.shape == level.shape
        np.testing.assert_array_equal(found, 2 * level)


@needs("half")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.uint8])
def test_texels_as_halves(device: spy.Device, module: spy.Module, dtype: Any) -> None:
    values = RNG.integers(0, 256, (3, 5, 4))
    texels = values.astype(dtype) if dtype == np.uint8 else (values / 256).astype(dtype)
    texture = spy.Texture.from_numpy(device, texels)
    wanted = values / (255 if dtype == np.uint8 else 256)
    np.testing.assert_allclose(np.asarray(module.halves(texture)), (2 * wanted).astype(np.float16), rtol=2e-3)
    assert np.asarray(module.either(texture))[0, 0] == 1, "an overload of float fits better"
    if dtype == np.float16:
        return
    before = texture.to_numpy()
    with pytest.raises(spy.BindError, match="whose texels are 'float4'; 'half4' was expected"):
        module.put_halves(texture)
    np.testing.assert_array_equal(texture.to_numpy(), before)


@needs(
    "{scalar}", lambda case: ["writes of narrow channels"] if np.dtype(STORED[case["scalar"]][0]).itemsize < 4 else []
)
@needs(lambda case: ["loads of lines"] if case["dims"] == 1 else [])
@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("scalar", STORED)
def test_results(device: spy.Device, module: spy.Module, scalar: str, dims: int, channels: int) -> None:
    dtype, kind = np.dtype(STORED[scalar][0]), STORED[scalar][1]
    shape = (4, 3, 5)[-dims:]
    values = every_value(dtype, (*shape, channels))
    values = values[..., 0] if channels == 1 else values
    name = scalar if channels == 1 else f"{scalar}{channels}"
    given = spy.Tensor.from_numpy(device, values, name)
    for asked in ("texture", spy.Texture):
        result = module.same(given, _result=asked)
        assert isinstance(result, spy.Texture)
        assert result.type == f"{dims}d" and result.shape == shape
        assert (result.width, result.height, result.depth) == (*shape[::-1], 1, 1)[:3]
        assert result.format == f"{['r', 'rg', '', 'rgba'][channels - 1]}{kind}"
        np.testing.assert_array_equal(result.to_numpy(), values)
        # Texel by texel, and into a texture that is there.
        read = module.same.map(name)(result, _result="numpy")
        assert read.dtype == dtype
        np.testing.assert_array_equal(read, values)
        other = spy.Texture.from_numpy(device, np.zeros_like(values), type=f"{dims}d", format=result.format)
        module.same.map(name)(result, _result=other)
        np.testing.assert_array_equal(other.to_numpy(), values)


@needs(lambda case: [case["name"].removesuffix("3")])
@pytest.mark.parametrize("name", ["double", "int64_t", "float3", "half3"])
def test_results_that_no_texel_holds(device: spy.Device, module: spy.Module, name: str) -> None:
    given = spy.Tensor.zeros(device, (2, 2), name)
    with pytest.raises(spy.BindError, match=rf"vectors of 2 or 4 of them, not '{name}'\.$"):
        module.same(given, _result="texture")


@needs("half")
def test_results_that_the_device_does_not_write(
    device: spy.Device, module: spy.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = type(device.backend)
    monkeypatch.setattr(images, "stores", lambda self, format: format.dtype.itemsize == 4, raising=False)
    given = spy.Tensor.zeros(device, (2, 2), "half4")
    with pytest.raises(spy.UnsupportedError, match=r"'half4' is rgba16_float, .* 32 bits; return 'float4'"):
        module.same(given, _result="texture")
    assert module.same(spy.Tensor.zeros(device, (2, 2), "float4"), _result="texture").format == "rgba32_float"


@pytest.mark.parametrize("shape", [(2, 2), (8, 2), (4, 128), (2, 2, 2), (3, 16, 5), (2, 128, 4)])
def test_shapes(device: spy.Device, module: spy.Module, shape: tuple[int, ...]) -> None:
    texels = RNG.random((*shape, 4), np.float32)
    texture = spy.Texture.from_numpy(device, texels, type=f"{len(shape)}d")
    np.testing.assert_array_equal(module.twice(texture, _result="numpy"), 2 * texels)


@needs("loads of lines")
def test_calls_of_one_element(device: spy.Device, module: spy.Module) -> None:
    line, plane, volume = (RNG.random((4,) * dims, np.float32) for dims in (1, 2, 3))

    def texture(texels: Array) -> spy.Texture:
        return spy.Texture.from_numpy(device, texels[..., None], type=f"{texels.ndim}d")

    assert module.in_plane(texture(plane)) == plane[1, 3]
    assert module.in_volume(texture(volume), 0.5) == volume[3, 1, 2] / 2
    factors = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(module.in_volume(texture(volume), factors), factors * volume[3, 1, 2])
    assert module.in_line(texture(line)) == line[2]
