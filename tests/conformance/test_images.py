"""Pictures in Tensors, beside a sampler in double precision and PyTorch's gradients in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import slangpy_rt as spy
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.core.dtypes import element_type
from tests.conformance._textures import sampled as sampled_by_numpy
from tests.depth import every_case, every_device, needs, one_device, sampled

Array = npt.NDArray[Any]
TEXT = """
import sampling;
[Differentiable] float4 look(Image image, float2 at, float level) { return image.sample(at, level); }
[Differentiable] float4 first(Image image, float2 at) { return image.sample(at); }
[Differentiable] float3 three(Image3 image, float2 at) { return image.sample(at); }
[Differentiable] float2 two(Image2 image, float2 at) { return image.sample(at, 0); }
[Differentiable] float one(Image1 image, float2 at) { return image.sample(at, 0.0); }
float4 either<T : ISampled>(T color, float2 at) { return color.sample(at, 0.5); }
"""
RNG = np.random.default_rng(7)


@pytest.fixture
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "test_images", TEXT)


def _places(count: int, rows: int, columns: int) -> Array:
    """Places inside and outside, none near the middle between two texels, where nearest is open."""
    at = RNG.uniform(-1.5, 2.5, (count, 2)).astype(np.float32)
    for k, size in enumerate((columns, rows)):
        place = at[:, k] * size
        at[np.abs(place - np.rint(place)) < 1e-3, k] += np.float32(0.01 / size)
    return at


def _shares(n: int) -> Array:
    """How much each of n texels counts in each of n // 2: the lengths that they have in common, of 1 in sum."""
    m = max(n // 2, 1)
    edges = np.arange(m + 1) * n / m
    low, high = np.maximum(edges[:-1, None], np.arange(n)), np.minimum(edges[1:, None], np.arange(n) + 1)
    return np.maximum(high - low, 0) * m / n


def _levels(texels: Array) -> list[Array]:
    found = [texels.astype(np.float64)]
    while max(found[-1].shape[:2]) > 1:
        rows, columns = found[-1].shape[:2]
        found.append(np.einsum("ij,kl,jlc->ikc", _shares(rows), _shares(columns), found[-1]))
    return found


@every_case
@pytest.mark.parametrize("filter", ["nearest", "linear"])
@pytest.mark.parametrize("wrap", ["repeat", "mirror", "clamp", "border", ("clamp", "repeat")])
def test_sampling(device: spy.Device, module: spy.Module, wrap: Any, filter: str) -> None:
    texels = RNG.random((6, 9, 4), np.float32)
    image = spy.Image(spy.Tensor.from_numpy(device, texels, "float4"), wrap, filter, mips=True)
    assert image.levels == 4 and image.texels.shape == (6, 9)
    at, level = _places(300, 6, 9), RNG.uniform(-1, 5, 300).astype(np.float32)
    # Between levels, nearest texels of both.
    wanted = sampled_by_numpy(_levels(texels), at, level, filter, "linear", wrap)
    close = np.ones(300, bool)
    if filter == "nearest":
        sizes = np.array([(max(6 >> k, 1), max(9 >> k, 1)) for k in range(4)])
        places = at[:, None, ::-1] * sizes
        close = (np.abs(places - np.rint(places)) > 1e-3).all((1, 2))
    np.testing.assert_allclose(module.look(image, at, level)[close], wanted[close], atol=3e-6)
    np.testing.assert_array_equal(module.first(image, at), module.look(image, at, -1.0))


@sampled(6)
@pytest.mark.parametrize("wrap", ["clamp", "border"])
def test_gradients_are_those_of_pytorch(device: spy.Device, module: spy.Module, wrap: str) -> None:
    texels = RNG.random((5, 7, 4), np.float32)
    at, gradient = _places(400, 5, 7), RNG.normal(size=(400, 4)).astype(np.float32)
    image = spy.Image(spy.Tensor.from_numpy(device, texels, "float4").with_grads(), wrap)
    where = spy.Tensor.from_numpy(device, at, "float2").with_grads()
    result = module.first(image, where).with_grads()
    result.grad.copy_from(gradient)
    module.first.bwds(image, where, _result=result)
    a = torch.from_numpy(texels).double().permute(2, 0, 1)[None].requires_grad_(True)
    b = torch.from_numpy(at).double().requires_grad_(True)
    padding = {"clamp": "border", "border": "zeros"}[wrap]
    wanted = torch.nn.functional.grid_sample(a, 2 * b[None, None] - 1, padding_mode=padding, align_corners=False)
    np.testing.assert_allclose(result.to_numpy(), wanted[0, :, 0].T.detach().numpy(), atol=3e-6)
    (wanted[0, :, 0].T * torch.from_numpy(gradient)).sum().backward()
    assert a.grad is not None and b.grad is not None
    found = image.texels.grad.to_numpy()
    np.testing.assert_allclose(found, a.grad[0].permute(1, 2, 0).numpy(), atol=3e-5)
    np.testing.assert_allclose(where.grad.to_numpy(), b.grad.numpy(), atol=1e-4)
    # The same derivatives forward: PyTorch's gradients times the ways.
    ways = RNG.normal(size=(400, 2)).astype(np.float32)
    changes = RNG.normal(size=(5, 7, 4)).astype(np.float32)
    tensor = spy.Tensor.from_numpy(device, texels, "float4")
    moved = spy.Tensor.from_numpy(device, at, "float2").with_grads(spy.Tensor.from_numpy(device, ways, "float2"))
    for image, wanted_sum in (
        (spy.Image(tensor, wrap), (b.grad.numpy() * ways).sum()),
        (
            spy.Image(tensor.with_grads(spy.Tensor.from_numpy(device, changes, "float4")), wrap),
            (b.grad.numpy() * ways).sum() + (a.grad[0].permute(1, 2, 0).numpy() * changes).sum(),
        ),
    ):
        tangent = module.first.fwds(image, moved).grad.to_numpy()
        assert (tangent * gradient).sum(dtype=np.float64) == pytest.approx(wanted_sum, rel=1e-4, abs=1e-3)


@sampled(6)
@pytest.mark.parametrize("size", [(8, 16), (7, 13)])
def test_gradients_of_levels(device: spy.Device, module: spy.Module, size: tuple[int, int]) -> None:
    texels = RNG.random((*size, 4), np.float32)
    at = RNG.uniform(0, 1, (200, 2)).astype(np.float32)
    level = RNG.uniform(0.1, 1.9, 200).astype(np.float32)
    gradient = RNG.normal(size=(200, 4)).astype(np.float32)
    image = spy.Image(spy.Tensor.from_numpy(device, texels, "float4").with_grads(), "clamp", mips=True)
    how = spy.Tensor.from_numpy(device, level).with_grads()
    given = spy.Tensor.from_numpy(device, at, "float2").with_grads()
    result = module.look(image, given, how).with_grads()
    result.grad.copy_from(gradient)
    module.look.bwds(image, given, how, _result=result)
    image.backward()
    base = torch.from_numpy(texels).double().permute(2, 0, 1)[None].requires_grad_(True)
    place = torch.from_numpy(at).double().requires_grad_(True)
    lod = torch.from_numpy(level).double().requires_grad_(True)
    levels = [base]
    for _ in range(2):
        rows_of, columns_of = (torch.from_numpy(_shares(n)) for n in levels[-1].shape[2:])
        levels.append(torch.einsum("ij,kl,bcjl->bcik", rows_of, columns_of, levels[-1]))
    rows = [
        torch.nn.functional.grid_sample(x, 2 * place[None, None] - 1, padding_mode="border", align_corners=False)
        for x in levels
    ]
    each = torch.cat([r[0, :, 0].T[None] for r in rows])
    low = lod.detach().floor().long()
    part = (lod - low)[:, None]
    k = torch.arange(200)
    wanted = each[low, k] * (1 - part) + each[low + 1, k] * part
    np.testing.assert_allclose(result.to_numpy(), wanted.detach().numpy(), atol=3e-6)
    (wanted * torch.from_numpy(gradient)).sum().backward()
    assert base.grad is not None and place.grad is not None and lod.grad is not None
    np.testing.assert_allclose(image.texels.grad.to_numpy(), base.grad[0].permute(1, 2, 0).numpy(), atol=3e-5)
    np.testing.assert_allclose(given.grad.to_numpy(), place.grad.numpy(), atol=2e-4)
    np.testing.assert_allclose(how.grad.to_numpy(), lod.grad.numpy(), atol=3e-5)


def test_other_elements_and_changes(device: spy.Device, module: spy.Module) -> None:
    texels = RNG.random((4, 4, 3), np.float32)
    at = (np.indices((4, 4)).reshape(2, -1).T[:, ::-1] + 0.5).astype(np.float32) / 4
    for function, element, channels in (
        (module.three, "float3", 3),
        (module.two, "float2", 2),
        (module.one, "float", 1),
    ):
        part = texels[..., :channels]
        tensor = spy.Tensor.from_numpy(device, part if channels > 1 else part[..., 0], element)
        image = spy.Image(tensor)
        np.testing.assert_allclose(np.reshape(function(image, at), part.shape), part, atol=1e-6)
        # It is used in place.
        tensor.copy_from(2 * tensor.to_numpy())
        np.testing.assert_allclose(np.reshape(function(image, at), part.shape), 2 * part, atol=1e-6)
    image = spy.Image(spy.Tensor.from_numpy(device, np.ones((4, 4, 4), np.float32), "float4"), mips=True)
    image.texels.copy_from(np.full((4, 4, 4), 3, np.float32))
    np.testing.assert_allclose(module.look(image, [0.3, 0.4], 1.0), [1, 1, 1, 1])
    image.update()
    np.testing.assert_allclose(module.look(image, [0.3, 0.4], 1.0), [3, 3, 3, 3])
    assert repr(image) == "<Image of 4 x 4 texels of float4, 3 levels>"
    strided = spy.Image(spy.Tensor.from_numpy(device, RNG.random((6, 8, 4), np.float32), "float4")[::2, ::2])
    assert module.first(strided, np.full((5, 2), 0.1, np.float32)).shape == (5,)


@one_device
@pytest.mark.parametrize(("name", "channels"), [("first", 4), ("two", 2)])
def test_texels_at_any_address(device: spy.Device, module: spy.Module, name: str, channels: int) -> None:
    # GPUs read aligned texels in one access, and stop a kernel that reads others so.
    texels = RNG.random((4, 5, channels), np.float32)
    memory = spy.Tensor.from_numpy(device, np.append(np.float32(0), texels.ravel()))
    strides = (5 * channels, channels, 1)
    layout = layout_of(device, spy.Tensor, element_type("test", f"float{channels}"), (4, 5), strides, False)
    image = spy.Image(spy.Tensor.of(layout, memory.buffer, memory.address + 4), wrap="border")
    y, x = np.indices((4, 5))
    at = np.stack([(x + 0.5) / 5, (y + 0.5) / 4], -1).astype(np.float32)
    np.testing.assert_allclose(getattr(module, name)(image, at), texels, atol=1e-6)


@needs("textures")
def test_textures_and_images_in_one_function(device: spy.Device, module: spy.Module) -> None:
    texels = RNG.random((4, 4, 4), np.float32)
    at = RNG.uniform(0, 1, (50, 2)).astype(np.float32)
    texture = spy.Texture.from_numpy(device, texels, mips=True)
    image = spy.Image(spy.Tensor.from_numpy(device, texels, "float4"), mips=True)
    theirs = {"_type": "SampledTexture", "texture": texture, "sampler": device.create_sampler()}
    hardware = device.name != "cpu" and "llvmpipe" not in device.info
    bound = 0.02 if hardware else 3e-6
    np.testing.assert_allclose(module.either(image, at), module.either(theirs, at), atol=bound)


@one_device
@pytest.mark.parametrize(("wrap", "beside"), [("clamp", 8.0), ("repeat", 1.0), ("border", 0.0)])
def test_gradients_at_the_centres_of_texels(device: spy.Device, module: spy.Module, wrap: str, beside: float) -> None:
    """There the color has two slopes; the gradient is the one of the greater side, as documented."""
    row = np.array([1, 2, 4, 8], np.float32)
    image = spy.Image(spy.Tensor.from_numpy(device, row[None]), wrap=wrap)
    at = np.stack([np.arange(1, 8, 2) / 8, np.full(4, 0.5)], -1).astype(np.float32)
    given = spy.Tensor.from_numpy(device, at, "float2").with_grads()
    result = module.one(image, given).with_grads()
    result.grad.copy_from(np.ones(4, np.float32))
    module.one.bwds(image, given, _result=result)
    np.testing.assert_array_equal(result.to_numpy(), row)
    np.testing.assert_array_equal(given.grad.to_numpy()[:, 0], 4 * np.diff([*row, beside]))


def test_levels_of_odd_sizes_are_means(device: spy.Device, module: spy.Module) -> None:
    """The smallest level is the mean of all texels, whatever the size; it is one of them with a size of 1."""
    for size in ((5, 7), (1, 7), (3, 1), (1, 1), (6, 5)):
        texels = RNG.random((*size, 4), np.float32)
        image = spy.Image(spy.Tensor.from_numpy(device, texels, "float4"), mips=True)
        found = np.asarray(module.look(image, np.array([0.5, 0.5], np.float32), float(image.levels - 1)))
        np.testing.assert_allclose(found, texels.mean((0, 1)), atol=1e-6)


def test_what_is_refused(device: spy.Device, module: spy.Module) -> None:
    good = spy.Tensor.zeros(device, (2, 3), "float4")
    for match, call in {
        "texels is an array": lambda: spy.Image(np.zeros((2, 2, 4), np.float32)),  # type: ignore[arg-type]
        "texels is a Tensor<int>": lambda: spy.Image(spy.Tensor.zeros(device, (2, 2), "int")),
        r"shape \(2, 3, 4\)": lambda: spy.Image(spy.Tensor.zeros(device, (2, 3, 4))),
        r"shape \(0, 3\)": lambda: spy.Image(spy.Tensor.zeros(device, (0, 3))),
        "wrap is 'wrap'": lambda: spy.Image(good, "wrap"),
        "wrap is 3": lambda: spy.Image(good, 3),
        r"wrap is \[array": lambda: spy.Image(good, [np.zeros(2), "repeat"]),
        r"pass spy\.Image\(tensor\), where the tensor holds": lambda: module.first(good, [0.5, 0.5]),
        "filter is None": lambda: spy.Image(good, filter=None),  # type: ignore[arg-type]
        "have no gradient": lambda: spy.Image(good, mips=True).backward(),
    }.items():
        with pytest.raises(spy.SlangPyRtError, match=match):
            call()
    with pytest.raises(spy.BindError, match="Image3"):
        module.three(spy.Image(good), [0.5, 0.5])


@every_device
@pytest.mark.parametrize("filter", ["nearest", "linear"])
@pytest.mark.parametrize("wrap", ["repeat", "mirror", "clamp", "border"])
def test_places_that_are_no_numbers(device: spy.Device, module: spy.Module, wrap: str, filter: str) -> None:
    """Nothing of a place that is NaN goes to texels, and an infinite one is on a texel."""
    texels = RNG.random((6, 9, 4), np.float32)
    odd: list[tuple[float, float, float]] = [
        (np.nan, 0.5, 0), (0.5, np.nan, 0), (np.nan, np.nan, 1), (np.inf, 0.5, 0), (0.5, -np.inf, 0.5),
        (3e38, 0.5, 0), (-3e38, np.inf, 1), (0.5, 0.5, np.nan), (0.5, 0.5, np.inf), (0.5, 0.5, -np.inf),
    ]  # fmt: skip
    at = np.array([(x, y) for x, y, _ in odd], np.float32)
    level = np.array([z for _, _, z in odd], np.float32)
    image = spy.Image(spy.Tensor.from_numpy(device, texels, "float4").with_grads(), wrap, filter, mips=True)
    where, levels = spy.Tensor.from_numpy(device, at, "float2"), spy.Tensor.from_numpy(device, level)
    result = module.look(image, where, levels).with_grads()
    result.grad.copy_from(np.ones((len(odd), 4), np.float32))
    module.look.bwds(image, where, levels, _result=result)
    found = image.texels.grad.to_numpy()
    assert np.isfinite(found).all()
    finite = ~np.isnan(at).any(1)
    shown = result.to_numpy()
    assert np.isfinite(shown[finite]).all()
    if wrap == "clamp":
        # Four places are on the first level, one is half on it.
        np.testing.assert_allclose(found.sum(), 4 * 4.5, rtol=1e-5)
        right = texels[2:4, 8].mean(0) if filter == "linear" else texels[3, 8]
        np.testing.assert_allclose(shown[3], right, rtol=1e-5)
