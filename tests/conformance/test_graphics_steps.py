"""Single steps of pictures of triangles, beside whole pictures, PyTorch's gradients in doubles, and areas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import slangpy_rt as spy
from tests.depth import deep, needs, one_device

pytestmark = [one_device, needs("uint64_t")]

Floats = npt.NDArray[np.float32]
graphics = spy.graphics
SIZE = (40, 48)
PLACE = np.array([[5.3, 31.2], [24.7, 3.9], [40.1, 28.3]])
AREA = abs(np.linalg.det([PLACE[1] - PLACE[0], PLACE[2] - PLACE[0]])) / 2
WEIGHTS = (np.mgrid[: SIZE[0], : SIZE[1]][1] * 0.02 + np.mgrid[: SIZE[0], : SIZE[1]][0] * 0.05).astype(np.float32)
TEXT = """
struct Corner : IDifferentiable { float4 position; float3 color; }
[Differentiable] Corner project(float4 at, float3 color) { Corner c; c.position = at; c.color = color; return c; }
[Differentiable] float3 shade(Corner c) { return c.color; }
"""


def _body(seed: int = 0) -> tuple[Floats, Floats, npt.NDArray[np.int32]]:
    """A closed body of 80 triangles before the eye, with colors at its corners."""
    rng = np.random.default_rng(seed)
    t = (1 + 5**0.5) / 2
    points = np.array(
        [[-1, t, 0], [1, t, 0], [-1, -t, 0], [1, -t, 0], [0, -1, t], [0, 1, t],
         [0, -1, -t], [0, 1, -t], [t, 0, -1], [t, 0, 1], [-t, 0, -1], [-t, 0, 1]], np.float64,
    )  # fmt: skip
    faces = np.array(
        [[0, 11, 5], [0, 5, 1], [0, 1, 7], [0, 7, 10], [0, 10, 11], [1, 5, 9], [5, 11, 4], [11, 10, 2], [10, 7, 6],
         [7, 1, 8], [3, 9, 4], [3, 4, 2], [3, 2, 6], [3, 6, 8], [3, 8, 9], [4, 9, 5], [2, 4, 11], [6, 2, 10],
         [8, 6, 7], [9, 8, 1]], np.int32,
    )  # fmt: skip
    points = points / np.linalg.norm(points[0]) @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    distance = 3 - points[:, 2]
    at = np.stack([2 * points[:, 0], 2.4 * points[:, 1], (distance - 1) * 1.25, distance], -1)
    return at.astype(np.float32), rng.random((12, 3), np.float32), faces


def _clip(place: npt.NDArray[Any], depth: float) -> Floats:
    x, y = place.T
    rows, columns = SIZE
    return np.stack([2 * x / columns - 1, 1 - 2 * y / rows, np.full(len(x), depth), np.ones(len(x))], -1).astype(
        np.float32
    )


def test_steps_make_the_picture(device: spy.Device) -> None:
    at, color, faces = _body()
    module = spy.Module.load_from_source(device, "test_graphics_steps", TEXT)
    draw = module.shade.raster(module.project, SIZE)
    wanted = draw(at=at, color=color, _faces=faces)
    position = spy.Tensor.from_numpy(device, at, "float4")
    seen = graphics.rasterize(position, faces, SIZE)
    assert seen.shape == SIZE and seen.dtype.name == "float4"
    found = seen.numpy()
    covered = found[..., 3] > 0
    assert 0.3 < covered.mean() < 0.8 and len(np.unique(found[..., 3])) > 8
    assert (found[covered][:, 2] > 0).all() and (found[~covered] == 0).all()
    colors = graphics.interpolate(color, seen, faces)
    picture = graphics.antialias(colors, seen, position, faces)
    np.testing.assert_allclose(picture.numpy(), wanted, atol=2e-6)
    # Points by NumPy: corners of the triangle of each pixel, mixed, lie at the pixel.
    corners = at.astype(np.float64)[faces[found[..., 3].astype(int) - 1]]
    weights = np.concatenate([found[..., :2], 1 - found[..., :2].sum(-1, keepdims=True)], -1)
    point = (weights[..., None] * corners).sum(-2)
    y, x = np.mgrid[: SIZE[0], : SIZE[1]] + 0.5
    inside = covered & (weights.min(-1) > 1e-3)
    np.testing.assert_allclose((point[..., 0] / point[..., 3] + 1)[inside] / 2 * SIZE[1], x[inside], atol=2e-3)
    np.testing.assert_allclose((1 - point[..., 1] / point[..., 3])[inside] / 2 * SIZE[0], y[inside], atol=2e-3)
    np.testing.assert_allclose((point[..., 2] / point[..., 3])[inside], found[inside][:, 2], atol=1e-5)


@deep
def test_gradients_are_those_of_the_picture(device: spy.Device) -> None:
    at, color, faces = _body(1)
    module = spy.Module.load_from_source(device, "test_graphics_steps", TEXT)
    upstream = np.random.default_rng(2).normal(size=(*SIZE, 3)).astype(np.float32)

    def given() -> tuple[spy.Tensor, spy.Tensor]:
        return (
            spy.Tensor.from_numpy(device, at, "float4").with_grads(),
            spy.Tensor.from_numpy(device, color, "float3").with_grads(),
        )

    whole, parts = given(), given()
    draw = module.shade.raster(module.project, SIZE)
    picture = draw(at=whole[0], color=whole[1], _faces=faces).with_grads()
    picture.grad.copy_from(upstream)
    draw.bwds(at=whole[0], color=whole[1], _faces=faces, _result=picture)

    position, values = parts
    seen = graphics.rasterize(position, faces, SIZE).with_grads()
    colors = graphics.interpolate(values, seen, faces).with_grads()
    result = graphics.antialias(colors, seen, position, faces).with_grads()
    result.grad.copy_from(upstream)
    graphics.antialias.bwds(colors, seen, position, faces, _result=result)
    graphics.interpolate.bwds(values, seen, faces, _result=colors)
    graphics.rasterize.bwds(position, faces, SIZE, _result=seen)
    for found, wanted in zip(parts, whole, strict=True):
        expected = wanted.grad.numpy()
        assert np.abs(expected).max() > 1
        np.testing.assert_allclose(found.grad.numpy(), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@deep
def test_gradients_of_depth(device: spy.Device) -> None:
    at, _, faces = _body(3)
    weights = np.random.default_rng(4).normal(size=SIZE).astype(np.float32)
    position = spy.Tensor.from_numpy(device, at, "float4").with_grads()
    seen = graphics.rasterize(position, faces, SIZE).with_grads()
    numbers = seen.numpy()[..., 3].astype(np.int64) - 1
    seen.grad.copy_from(np.stack([0 * weights, 0 * weights, weights, weights], -1))
    graphics.rasterize.bwds(position, faces, SIZE, _result=seen)
    corners = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    face = corners[torch.from_numpy(faces.astype(np.int64))[torch.from_numpy(numbers).clamp(min=0)]]
    y, x = np.mgrid[: SIZE[0], : SIZE[1]] + 0.5
    ray = torch.from_numpy(np.stack([2 * x / SIZE[1] - 1, 1 - 2 * y / SIZE[0], np.ones(SIZE)], -1))
    inside = torch.linalg.solve(face[..., [0, 1, 3]].transpose(-1, -2), ray[..., None])[..., 0]
    depth = (inside * face[..., 2]).sum(-1) / (inside * face[..., 3]).sum(-1)
    (depth * torch.from_numpy(weights * (numbers >= 0))).sum().backward()
    wanted = corners.grad.numpy()  # type: ignore[union-attr]
    np.testing.assert_allclose(position.grad.numpy(), wanted, rtol=5e-3, atol=5e-3 * np.abs(wanted).max())


@deep
def test_what_is_behind(device: spy.Device) -> None:
    at = np.concatenate([_clip(PLACE, depth) for depth in (0.6, 0.2, 0.4)])
    faces = np.arange(9, dtype=np.int32).reshape(3, 3)
    position = spy.Tensor.from_numpy(device, at, "float4")
    seen, numbers = None, []
    for _ in range(4):
        seen = graphics.rasterize(position, faces, SIZE, behind=seen)
        numbers.append(seen.numpy()[..., 3])
    covered = numbers[0] == 2
    assert covered.sum() == pytest.approx(AREA, rel=0.05)
    for found, number in zip(numbers, (2, 3, 1, 0), strict=True):
        np.testing.assert_array_equal(found, np.where(covered, number, 0))


@deep
def test_several_pictures(device: spy.Device) -> None:
    at, color, faces = _body(5)
    shifts = np.array([[0, 0, 0, 0], [0.7, 0, 0, 0]], np.float32)
    many = spy.Tensor.from_numpy(device, at + shifts[:, None], "float4")
    seen = graphics.rasterize(many, faces, SIZE)
    colors = graphics.interpolate(color, seen, faces)
    pictures = graphics.antialias(colors, seen, many, faces).numpy()
    assert pictures.shape == (2, *SIZE, 3)
    own = graphics.interpolate(np.stack([color, color]), seen, faces)
    np.testing.assert_array_equal(own.numpy(), colors.numpy())
    for k in range(2):
        one = spy.Tensor.from_numpy(device, at + shifts[k], "float4")
        alone = graphics.rasterize(one, faces, SIZE)
        np.testing.assert_array_equal(alone.numpy(), seen.numpy()[k])
        wanted = graphics.antialias(graphics.interpolate(color, alone, faces), alone, one, faces)
        np.testing.assert_allclose(pictures[k], wanted.numpy(), atol=1e-6)


@deep
def test_command_lists(device: spy.Device) -> None:
    position = spy.Tensor.from_numpy(device, _clip(PLACE, 0.5), "float4")
    faces = spy.Tensor.from_numpy(device, np.array([[0, 1, 2]], np.int32))
    ones = spy.Tensor.ones(device, 3)
    uv = spy.Tensor.from_numpy(device, np.random.default_rng(0).random((*SIZE, 2), np.float32), "float2")
    texels = spy.Tensor.from_numpy(device, np.ones((4, 6), np.float32))
    commands = device.command_list()
    seen = graphics.rasterize.append_to(commands, position, faces, SIZE)
    plain = graphics.interpolate.append_to(commands, ones, seen, faces)
    into = spy.Tensor.zeros(device, SIZE)
    assert graphics.antialias.append_to(commands, plain, seen, position, faces, _result=into) is into
    looked = graphics.sample.append_to(commands, texels, uv, 1.3)
    learned = spy.Tensor.ones(device, (4, 6)).with_grads()
    result = spy.Tensor.zeros(device, SIZE).with_grads()
    result.grad.copy_from(np.ones(SIZE, np.float32))
    assert graphics.sample.bwds.append_to(commands, learned, uv, 1.3, _result=result) is None
    commands.submit()
    assert into.numpy().sum(dtype=np.float64) == pytest.approx(AREA, rel=2e-3)
    np.testing.assert_allclose(looked.numpy(), np.ones(SIZE), rtol=1e-6)
    texels.copy_from(np.full((4, 6), 3, np.float32))
    position.copy_from(_clip(PLACE * 0.5, 0.5))
    commands.submit()
    assert into.numpy().sum(dtype=np.float64) == pytest.approx(AREA / 4, rel=5e-3)
    np.testing.assert_allclose(looked.numpy(), np.full(SIZE, 3), rtol=1e-6)
    # The list was submitted twice; smaller levels begin with gradients of 0 each time.
    assert learned.grad.numpy().sum() == pytest.approx(2 * SIZE[0] * SIZE[1], rel=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_sampling(device: spy.Device, channels: int) -> None:
    rng = np.random.default_rng(channels)
    texels = rng.random((6, 9, channels), np.float32)
    uv = rng.uniform(-0.3, 1.3, (5, 7, 2)).astype(np.float32)
    kind = "float" if channels == 1 else f"float{channels}"
    shaped = texels[..., 0] if channels == 1 else texels
    image = spy.Tensor.from_numpy(device, shaped, kind).with_grads()
    places = spy.Tensor.from_numpy(device, uv, "float2").with_grads()
    result = graphics.sample(image, places, wrap="clamp").with_grads()
    upstream = rng.normal(size=(5, 7, channels)).astype(np.float32)
    result.grad.copy_from(upstream[..., 0] if channels == 1 else upstream)
    graphics.sample.bwds(image, places, wrap="clamp", _result=result)
    a = torch.from_numpy(texels).double().permute(2, 0, 1)[None].requires_grad_(True)
    b = torch.from_numpy(uv).double().requires_grad_(True)
    wanted = torch.nn.functional.grid_sample(a, 2 * b[None] - 1, padding_mode="border", align_corners=False)
    wanted = wanted[0].permute(1, 2, 0)
    np.testing.assert_allclose(result.numpy().reshape(wanted.shape), wanted.detach().numpy(), atol=3e-6)
    (wanted * torch.from_numpy(upstream)).sum().backward()
    assert a.grad is not None and b.grad is not None
    np.testing.assert_allclose(
        image.grad.numpy().reshape(texels.shape), a.grad[0].permute(1, 2, 0).numpy(), atol=3e-5
    )
    np.testing.assert_allclose(places.grad.numpy(), b.grad.numpy(), atol=1e-4)


@deep
def test_sampling_of_levels(device: spy.Device) -> None:
    rng = np.random.default_rng(8)
    texels = spy.Tensor.from_numpy(device, rng.random((8, 16, 4), np.float32), "float4").with_grads()
    uv = spy.Tensor.from_numpy(device, rng.random((50, 2), np.float32), "float2")
    level = spy.Tensor.from_numpy(device, rng.uniform(0, 4, 50).astype(np.float32))
    image = spy.Image(texels, "clamp", mips=True)
    wanted = graphics.sample(image, uv, level).with_grads()
    result = graphics.sample(texels, uv, level, wrap="clamp").with_grads()
    np.testing.assert_array_equal(result.numpy(), wanted.numpy())
    for array in (wanted, result):
        array.grad.copy_from(rng.normal(size=(50, 4)).astype(np.float32) if array is wanted else wanted.grad.numpy())
    graphics.sample.bwds(image, uv, level, _result=wanted)
    image.backward()
    for _ in range(2):
        graphics.sample.bwds(texels, uv, level, wrap="clamp", _result=result)
    np.testing.assert_allclose(texels.grad.numpy(), 2 * image.texels.grad.numpy(), rtol=1e-4, atol=1e-5)
    # Texels that are not contiguous are copied, and their gradients come back.
    across = texels.T
    turned = graphics.sample(across, uv, wrap="clamp").with_grads()
    turned.grad.copy_from(np.ones((50, 4), np.float32))
    texels.grad.clear()
    graphics.sample.bwds(across, uv, wrap="clamp", _result=turned)
    np.testing.assert_allclose(texels.grad.numpy().sum((0, 1)), np.full(4, 50), rtol=1e-5)


def _by_torch(at: Any, color: Any, texels: Any, faces: Any) -> Any:
    seen = graphics.rasterize(at, faces, SIZE)
    uv = graphics.interpolate(color[:, :2].contiguous(), seen, faces)
    looked = graphics.sample(texels, uv, torch.full(SIZE, 0.6), wrap="mirror")
    mask = (seen[..., 3:] > 0).float()
    return seen, graphics.antialias(looked * mask, seen, at, faces)


@deep
def test_tensors_of_pytorch() -> None:
    at, color, faces = _body(6)
    texels = np.random.default_rng(7).random((16, 16, 3), np.float32)
    assert torch.equal(
        *[graphics.rasterize(torch.from_numpy(at), torch.from_numpy(faces.astype(k)), SIZE) for k in "ib"]
    )
    upstream = torch.from_numpy(np.random.default_rng(9).normal(size=(*SIZE, 3)).astype(np.float32))
    given = [torch.from_numpy(x).requires_grad_(True) for x in (at, color, texels)]
    seen, picture = _by_torch(*given, torch.from_numpy(faces).long())
    assert picture.shape == (*SIZE, 3) and seen.shape == (*SIZE, 4) and seen.requires_grad
    (picture * upstream).sum().backward()
    # The same with Tensors, by hand.
    device = spy.Device("cpu")
    kinds = ("float4", "float2", "float3")
    arrays = [
        spy.Tensor.from_numpy(device, x, k).with_grads()
        for x, k in zip((at, color[:, :2], texels), kinds, strict=True)
    ]
    position, values, image = arrays
    points = graphics.rasterize(position, faces, SIZE).with_grads()
    uv = graphics.interpolate(values, points, faces).with_grads()
    level = spy.Tensor.full(device, SIZE, 0.6)
    looked = graphics.sample(image, uv, level, wrap="mirror").with_grads()
    mask = (points.numpy()[..., 3:] > 0).astype(np.float32)
    masked = spy.Tensor.from_numpy(device, looked.numpy() * mask, "float3").with_grads()
    result = graphics.antialias(masked, points, position, faces).with_grads()
    np.testing.assert_allclose(result.numpy(), picture.detach().numpy(), atol=1e-6)
    result.grad.copy_from(upstream.numpy())
    graphics.antialias.bwds(masked, points, position, faces, _result=result)
    looked.grad.copy_from(masked.grad.numpy() * mask)
    graphics.sample.bwds(image, uv, level, wrap="mirror", _result=looked)
    graphics.interpolate.bwds(values, points, faces, _result=uv)
    graphics.rasterize.bwds(position, faces, SIZE, _result=points)
    for tensor, array in zip(given, arrays, strict=True):
        assert tensor.grad is not None
        wanted = array.grad.numpy()
        found = tensor.grad.numpy()[:, : wanted.shape[-1]] if tensor is given[1] else tensor.grad.numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())
    with pytest.raises(RuntimeError, match="second derivatives"):
        grad = torch.autograd.grad(_by_torch(*given, torch.from_numpy(faces))[1].sum(), given[0], create_graph=True)
        grad[0].sum().backward()


@deep
def test_a_tape_records_steps(device: spy.Device) -> None:
    at, color, faces = _body(2)
    position = spy.Tensor.from_numpy(device, at, "float4").with_grads()
    values = spy.Tensor.from_numpy(device, color[:, 0]).with_grads()
    with spy.grad_tape() as tape:
        seen = graphics.rasterize(position, faces, SIZE)
        shade = graphics.interpolate(values, seen, faces)
        picture = graphics.antialias(shade, seen, position, faces)
        loss = (picture * picture).sum()
    tape.backward(loss)
    tensors = [torch.from_numpy(at).requires_grad_(True), torch.from_numpy(color[:, :1]).requires_grad_(True)]
    seen = graphics.rasterize(tensors[0], torch.from_numpy(faces), SIZE)
    shade = graphics.interpolate(tensors[1], seen, torch.from_numpy(faces))
    (graphics.antialias(shade, seen, tensors[0], torch.from_numpy(faces)) ** 2).sum().backward()
    for array, tensor in zip((position, values), tensors, strict=True):
        assert tensor.grad is not None
        wanted = tensor.grad.numpy()
        found = array.grad.numpy().reshape(wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=0.01, atol=0.01 * np.abs(wanted).max())


@deep
def test_numbers_of_pytorch() -> None:
    at, color, faces = _body(6)
    position = torch.from_numpy(np.stack([at, at])).requires_grad_(True)
    values = torch.from_numpy(color[:, :1]).requires_grad_(True)
    triangles = torch.from_numpy(faces)
    seen = graphics.rasterize(position, triangles, SIZE)
    shade = graphics.interpolate(values, seen, triangles)
    picture = graphics.antialias(shade, seen, position, triangles)
    assert seen.shape == (2, *SIZE, 4) and picture.shape == (2, *SIZE, 1)
    picture.sum().backward()
    assert values.grad is not None and values.grad.shape == (12, 1)
    covered = float((seen[..., 3] > 0).sum())
    # Weights of each pixel have the sum 1; silhouettes take as much as they give, but for parts of pixels.
    assert float(values.grad.sum()) == pytest.approx(covered, rel=0.02)
    with torch.no_grad():
        assert not graphics.rasterize(position, triangles, SIZE).requires_grad


@deep
def test_silhouettes_of_a_triangle(device: spy.Device) -> None:
    position = spy.Tensor.from_numpy(device, _clip(PLACE, 0.5), "float4").with_grads()
    faces = np.array([[0, 1, 2]])
    seen = graphics.rasterize(position, faces, SIZE)
    ones = graphics.interpolate(np.ones((3, 1), np.float32), seen, faces)
    picture = graphics.antialias(ones, seen, position, faces).with_grads()
    assert picture.numpy().sum(dtype=np.float64) == pytest.approx(AREA, rel=2e-3)
    picture.grad.copy_from(WEIGHTS)
    graphics.antialias.bwds(ones, seen, position, faces, _result=picture)
    slope = position.grad.numpy().sum(0)[:2]
    rows, columns = SIZE
    np.testing.assert_allclose(slope, AREA * np.array([0.02 * columns / 2, -0.05 * rows / 2]), rtol=0.03)


def test_what_is_refused(device: spy.Device) -> None:
    at, color, faces = _body()
    position = spy.Tensor.from_numpy(device, at, "float4")
    seen = graphics.rasterize(position, faces, SIZE)
    with pytest.raises(spy.BindError, match=r"rasterize: its arguments are no arrays of a device; give it device="):
        graphics.rasterize(at, faces, SIZE)
    assert graphics.rasterize(at, faces, SIZE, device=device).shape == SIZE
    with pytest.raises(spy.ShapeError, match=r"position has shape \(12, 3\); a last dimension of 4 was expected"):
        graphics.rasterize(color, faces, SIZE, device=device)
    with pytest.raises(spy.BindError, match=r"rasterize: position is None; a Tensor of float4 was expected"):
        graphics.rasterize(None, faces, SIZE, device=device)
    with pytest.raises(spy.BindError, match=r"rasterize: device is 'cpu'; a Device was expected"):
        graphics.rasterize(torch.from_numpy(at), faces, SIZE, device="cpu")
    with pytest.raises(spy.BindError, match=r"faces is a torch.Tensor, and no other argument is one; pass"):
        graphics.rasterize(position, torch.from_numpy(faces), SIZE)
    with pytest.raises(spy.BindError, match=r"faces\[0\] names corner 12; there are 12"):
        graphics.rasterize(position, np.array([[0, 1, 12]]), SIZE)
    with pytest.raises(spy.BindError, match=r"size is 3; rows and columns"):
        graphics.rasterize(position, faces, 3)
    with pytest.raises(spy.ShapeError, match=r"behind has shape \(40, 48\); \(8, 8\) was expected"):
        graphics.rasterize(position, faces, (8, 8), behind=seen)
    with pytest.raises(spy.BindError, match=r"interpolate: seen is .*; a Tensor of float4 was expected"):
        graphics.interpolate(color, spy.Tensor.zeros(device, SIZE), faces)
    with pytest.raises(spy.BindError, match=r"interpolate.bwds: _result is .*; a result with a gradient"):
        graphics.interpolate.bwds(color, seen, faces, _result=seen)
    with pytest.raises(spy.BindError, match=r"no argument has a gradient to add to"):
        graphics.interpolate.bwds(color, seen, faces, _result=seen.with_grads())
    with pytest.raises(spy.ShapeError, match=r"that of color, \(3, 3\), was expected"):
        graphics.antialias(np.zeros((3, 3, 3)), seen, position, faces)
    with pytest.raises(spy.BindError, match=r"uv has elements of float3; of float2 were expected for a Tensor<"):
        graphics.sample(seen, spy.Tensor.zeros(device, 3, "float3"))
    with pytest.raises(spy.BindError, match=r"sample: level is \(1\+0j\); a Tensor of float was expected"):
        graphics.sample(seen, np.zeros((3, 2)), np.complex64(1))
    assert graphics.sample(seen, np.zeros((3, 2)), np.float32(1)).shape == (3,)
    with pytest.raises(spy.BindError, match=r"sample: wrap is .*; one or two of repeat"):
        graphics.sample(color[None], seen.numpy()[..., :2], wrap="round", device=device)
    with pytest.raises(spy.BindError, match=r"an Image has its own, so leave it out"):
        graphics.sample(spy.Image(seen), seen.numpy()[..., :2], wrap="clamp")
    with pytest.raises(
        spy.BindError, match=r"position is a torch tensor of torch.float64 .*numbers of torch.float32"
    ):
        graphics.rasterize(torch.from_numpy(at).double(), faces, SIZE)
    with pytest.raises(
        spy.BindError, match=r"position is a torch tensor of .*, and sparse; a dense one was expected"
    ):
        graphics.rasterize(torch.from_numpy(at).to_sparse(), faces, SIZE)
    with pytest.raises(spy.BindError, match=r"faces is a torch tensor of torch.bool .*; integers were expected"):
        graphics.rasterize(torch.from_numpy(at), torch.from_numpy(faces).bool(), SIZE)
    with pytest.raises(
        spy.ShapeError, match=r"values has shape \(\) of float3; \(corners\) or \(pictures, corners\)"
    ):
        graphics.interpolate(color[0], seen, faces)
    with pytest.raises(spy.BindError, match=r"append_to: position is .*; a Tensor on the list's device"):
        graphics.rasterize.append_to(device.command_list(), at, faces, SIZE)
    with pytest.raises(spy.BindError, match=r"bwds.append_to: commands is 3; a CommandList was expected"):
        graphics.rasterize.bwds.append_to(3, position, faces, SIZE, _result=seen.with_grads())  # type: ignore[arg-type]
    with pytest.raises(spy.ShapeError, match=r"a Tensor<float4> of shape \(40, 48\) was expected"):
        graphics.rasterize(position, faces, SIZE, _result=spy.Tensor.zeros(device, (1, *SIZE), "float4"))


@deep
def test_numbers_of_triangles_that_there_are_not(device: spy.Device) -> None:
    at, color, faces = _body()
    position = spy.Tensor.from_numpy(device, at, "float4")
    seen = np.zeros((2, 3, 4), np.float32)
    seen[..., 3] = [[np.nan, np.inf, -np.inf], [-1, 21, 3e9]]
    seen[..., 2] = 0.5
    points = spy.Tensor.from_numpy(device, seen, "float4")
    assert not graphics.interpolate(color, points, faces).numpy().any()
    assert not graphics.antialias(np.zeros((2, 3, 3)), points, position, faces).numpy().any()
    missing = spy.Tensor.from_numpy(device, np.array([[0, 1, 99], [-1, 2, 3]], np.int32))
    if device.debug:
        with pytest.raises(spy.OutOfBoundsError, match=r"99|-1"):
            graphics.rasterize(position, missing, SIZE).numpy()
    else:
        assert not graphics.rasterize(position, missing, SIZE).numpy().any()
    seen[..., 3] = 1
    points = spy.Tensor.from_numpy(device, seen, "float4")
    assert not graphics.interpolate(color, points, missing).numpy().any()
    none = graphics.rasterize(position, faces[:0], SIZE)
    assert not graphics.antialias(graphics.interpolate(color, none, faces), none, position, faces).numpy().any()
