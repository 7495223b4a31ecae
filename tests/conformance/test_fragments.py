"""Points of triangles with slopes, for functions that pixels call: beside derivatives in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.conformance._corners import CORNER
from tests.depth import deep, needs, one_device

pytestmark = [one_device, needs("uint64_t")]

Floats = npt.NDArray[np.float64]
TEXT = (
    f"import fragments;\nimport sampling;\n{CORNER}"
    + """
[Differentiable] float4 slopes(Fragment<Corner> p) { return float4(p.dx.uv, p.dy.uv); }
[Differentiable] float4 depths(Fragment<Corner> p)
{
    return float4(p.at.uv, p.dx.position.w, p.dy.position.w);
}
float ids(Fragment<Corner> p) { return 100 * p.at.id + p.dx.id + p.dy.id; }
[Differentiable] float4 look<T : ISampled>(Fragment<Corner> p, T image)
{
    return image.sample(p.at.uv, p.dx.uv, p.dy.uv);
}
[Differentiable] float4 plain(Corner c, Image image) { return image.sample(c.uv); }
[Differentiable] float4 both(Fragment<Corner> p, Image image, float bias)
{
    return image.sample(p.at.uv, p.dx.uv, p.dy.uv) * bias;
}
"""
)
SIZE = (20, 28)
# A triangle whose corners are at several distances, larger than the picture.
CORNERS = np.array([[-3, -3.2, 0.3, 1.1], [8.2, -3, 0.5, 2.2], [-1.5, 7, 1, 1.6]], np.float32)
UV = np.array([[0.1, 0.2], [6, 0.4], [0.5, 4.5]], np.float32)
FACES = np.array([[0, 1, 2]])


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "test_fragments", TEXT)


def _values(corners: Floats, values: Floats, x: Floats, y: Floats) -> Floats:
    """Values on the plane of the triangle, at places in pixels."""
    rows, columns = SIZE
    pixel = np.stack([2 * x / columns - 1, 1 - 2 * y / rows, np.ones_like(x)], -1)
    # The point of the plane on the ray through the pixel: corners' (x, y, w) times weights.
    weights = pixel @ np.linalg.inv(corners[:, [0, 1, 3]])
    weights /= weights.sum(-1, keepdims=True)
    found: Floats = weights @ values
    return found


def _slopes(corners: Floats, values: Floats) -> tuple[Floats, Floats]:
    y, x = np.mgrid[: SIZE[0], : SIZE[1]] + 0.5
    h = 1e-4
    return (
        (_values(corners, values, x + h, y) - _values(corners, values, x - h, y)) / (2 * h),
        (_values(corners, values, x, y + h) - _values(corners, values, x, y - h)) / (2 * h),
    )


def _given(**more: Any) -> dict[str, Any]:
    return {"at": CORNERS, "uv": UV, "id": np.array([7, 8, 9], np.int32), "_faces": FACES, **more}


def test_slopes_of_fields(device: spy.Device, module: spy.Module) -> None:
    found = module.slopes.raster(module.project, SIZE, antialias=False)(**_given())
    dx, dy = _slopes(CORNERS.astype(np.float64), UV.astype(np.float64))
    np.testing.assert_allclose(found, np.concatenate([dx, dy], -1), rtol=2e-4, atol=2e-5)


@deep
def test_slopes_of_positions_and_integers(device: spy.Device, module: spy.Module) -> None:
    found = module.depths.raster(module.project, SIZE)(**_given())
    y, x = np.mgrid[: SIZE[0], : SIZE[1]] + 0.5
    np.testing.assert_allclose(found[..., :2], _values(CORNERS, UV, x, y), rtol=1e-4)
    dx, dy = _slopes(CORNERS.astype(np.float64), CORNERS.astype(np.float64)[:, 3:])
    np.testing.assert_allclose(found[..., 2:], np.concatenate([dx, dy], -1), rtol=2e-4, atol=2e-5)
    np.testing.assert_array_equal(module.ids.raster(module.project, SIZE)(**_given()), np.full(SIZE, 700))


@deep
def test_gradients_of_slopes(device: spy.Device, module: spy.Module) -> None:
    weights = np.random.default_rng(1).normal(size=(*SIZE, 4)).astype(np.float32)
    at = spy.Tensor.from_numpy(device, CORNERS, "float4").with_grads()
    uv = spy.Tensor.from_numpy(device, UV, "float2").with_grads()
    draw = module.slopes.raster(module.project, SIZE)
    given = _given(at=at, uv=uv)
    picture = draw(**given).with_grads()
    picture.grad.copy_from(weights)
    draw.bwds(**given, _result=picture)

    def total(corners: Floats, values: Floats) -> float:
        return float((np.concatenate(_slopes(corners, values), -1) * weights).sum())

    for array, k in ((at, 0), (uv, 1)):
        start = [CORNERS.astype(np.float64), UV.astype(np.float64)]
        wanted = np.zeros_like(start[k])
        for index in np.ndindex(wanted.shape):
            ends = []
            for sign in (1, -1):
                moved = [x.copy() for x in start]
                moved[k][index] += sign * 1e-3
                ends.append(total(*moved))
            wanted[index] = (ends[0] - ends[1]) / 2e-3
        np.testing.assert_allclose(array.grad.to_numpy(), wanted, rtol=2e-3, atol=2e-3 * np.abs(wanted).max())


@deep
def test_levels_of_detail(device: spy.Device, module: spy.Module) -> None:
    texels = np.random.default_rng(2).random((32, 64, 4), np.float32)
    image = spy.Image(spy.Tensor.from_numpy(device, texels, "float4"), mips=True)
    dx, dy = _slopes(CORNERS.astype(np.float64), UV.astype(np.float64))
    ways = np.stack([np.linalg.norm(d * [64, 32], axis=-1) for d in (dx, dy)])
    level = np.log2(np.maximum(ways.max(0), 1)).astype(np.float32)
    assert level.min() < 1.8 < 2.1 < level.max()
    y, x = np.mgrid[: SIZE[0], : SIZE[1]] + 0.5
    uv = _values(CORNERS, UV, x, y).astype(np.float32)
    text = "import sampling;\nfloat4 look(Image image, float2 at, float level) { return image.sample(at, level); }"
    wanted = spy.Module.load_from_source(device, "test_fragments_level", text).look(image, uv, level)
    found = module["look<Image>"].raster(module.project, SIZE)(**_given(image=image), _result="numpy")
    np.testing.assert_allclose(found, wanted, atol=2e-3)
    # The same function with a texture; the device may round weights to 8 bits.
    if "textures" in device.caps.features:
        value = {
            "_type": "SampledTexture",
            "texture": spy.Texture.from_numpy(device, texels, mips=True),
            "sampler": device.create_sampler(filter="linear", mip="linear", wrap="repeat"),
        }
        found = module["look<SampledTexture>"].raster(module.project, SIZE)(**_given(image=value), _result="numpy")
        np.testing.assert_allclose(found, wanted, atol=0.02)


@deep
def test_gradients_of_images(device: spy.Device, module: spy.Module) -> None:
    texels = np.random.default_rng(3).random((8, 8, 4), np.float32)
    image = spy.Image(spy.Tensor.from_numpy(device, texels, "float4").with_grads(), mips=True)
    draw = module.both.raster(module.project, SIZE)
    picture = draw(**_given(image=image, bias=2.0)).with_grads()
    picture.grad.copy_from(np.ones((*SIZE, 4), np.float32))
    draw.bwds(**_given(image=image, bias=2.0), _result=picture)
    image.backward()
    # Each pixel gives weights to texels whose sum is one.
    total = image.texels.grad.to_numpy().sum((0, 1))
    np.testing.assert_allclose(total, np.full(4, 2 * SIZE[0] * SIZE[1]), rtol=1e-4)
    found = module.plain.raster(module.project, SIZE)(**_given(image=image), _result="numpy")
    assert found.shape == (*SIZE, 4) and found.std() > 0.05


def test_what_is_no_fragment(device: spy.Device) -> None:
    text = (
        TEXT + "\nstruct Other : IDifferentiable { float4 position; }\nfloat other(Fragment<Other> p) { return 1; }"
    )
    module = spy.Module.load_from_source(device, "test_fragments_other", text)
    with pytest.raises(spy.BindError, match="or a Fragment<Corner>"):
        module.other.raster(module.project, SIZE)
