"""Functions of anything sampled, a picture in a Tensor or a texture: beside functions of one kind, and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import slangpy_rt as spy
from tests.conformance._textures import blended
from tests.conformance._textures import sampled as sampled_by_numpy
from tests.depth import deep, needs, one_device

Array = npt.NDArray[Any]
TEXT = """
import fragments;
import sampling;
[Differentiable] float4 generic<T : ISampled>(T image, float2 uv, float level) { return image.sample(uv, level); }
[Differentiable] float4 limited<T>(T image, float2 uv, float level) where T : ISampled
{
    return image.sample(uv, level);
}
[Differentiable] float4 object(ISampled image, float2 uv, float level) { return image.sample(uv, level); }
[Differentiable] float4 plain(Image image, float2 uv, float level) { return image.sample(uv, level); }
float4 combined(SampledTexture image, float2 uv, float level) { return image.sample(uv, level); }
float4 mixed<A : ISampled>(A a, ISampled b, float2 uv) { return a.sample(uv, 0) - b.sample(uv, 0); }
T same<T>(T value) { return value; }

struct Corner : IDifferentiable { float4 position; float2 uv; }
[Differentiable] Corner project(float2 at) { return { float4(at, 0.5, 1), at * 0.5 + 0.5 }; }
[Differentiable] float4 shown<T : ISampled>(Corner c, T image, float light = 1)
{
    return light * image.sample(c.uv, 0.0);
}
[Differentiable] float4 near<T : ISampled>(Fragment<Corner> p, T image)
{
    return image.sample(p.at.uv, p.dx.uv, p.dy.uv);
}
[Differentiable] float4 shownObject(Corner c, ISampled image, float light = 1)
{
    return light * image.sample(c.uv, 0.0);
}
[Differentiable] float4 shownPlain(Corner c, Image image, float light = 1) { return light * image.sample(c.uv, 0.0); }
float shownSum<T : ISampled, S>(Corner c, T image) { return 0; }
"""
RNG = np.random.default_rng(3)
TEXELS = RNG.random((4, 8, 4), np.float32)
AT = RNG.uniform(-0.5, 1.5, (60, 2)).astype(np.float32)
SIZE = (12, 16)
TRIANGLE: dict[str, Any] = {"at": np.array([[-1, -1], [2, -1], [-1, 2.5]], np.float32), "_faces": [[0, 1, 2]]}


@pytest.fixture
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "test_sampled", TEXT)


def _image(device: spy.Device, gradient: bool = False, **how: Any) -> spy.Image:
    texels = spy.Tensor.from_numpy(device, TEXELS, "float4")
    return spy.Image(texels.with_grads() if gradient else texels, **how)


def _numbers(result: Any) -> Array:
    found: Array = result.to_numpy() if isinstance(result, spy.Tensor) else result
    return found


@deep
@pytest.mark.parametrize("name", ["generic", "limited", "object"])
def test_images(device: spy.Device, module: spy.Module, name: str) -> None:
    function = getattr(module, name)
    wanted = None
    for each in (module.plain, function, function.map(uv=(0,))):
        image = _image(device, True, wrap="mirror", mips=True)
        at = spy.Tensor.from_numpy(device, AT, "float2").with_grads()
        result = each(image, at, 0.3).with_grads()
        result.grad.copy_from(np.arange(240, dtype=np.float32).reshape(60, 4))
        each.bwds(image, at, 0.3, _result=result)
        image.backward()
        found = (result.to_numpy(), at.grad.to_numpy(), image.texels.grad.to_numpy())
        if wanted is None:
            wanted = found
            assert all(np.abs(part).max() > 0.1 for part in wanted)
        for have, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)


@needs("textures")
@deep
@pytest.mark.parametrize("name", ["generic", "object"])
def test_textures(device: spy.Device, module: spy.Module, name: str) -> None:
    function = getattr(module, name)
    texture = spy.Texture.from_numpy(device, TEXELS)
    bound, level = blended(device, np.ptp(TEXELS)), np.zeros(60, np.float32)
    # Without a sampler, as an Image is sampled. Samplers take turns, so that no call has another's.
    for how in ({}, {"wrap": "clamp"}, {}, {"wrap": "clamp"}, {"wrap": ("mirror", "clamp", "clamp")}):
        given = texture.with_sampler(how) if how else texture
        wrap = how.get("wrap", "repeat")
        wrap = wrap if isinstance(wrap, str) else wrap[:2]
        wanted = sampled_by_numpy([TEXELS], AT, level, "linear", "linear", wrap)
        np.testing.assert_allclose(_numbers(function(given, AT, 0.0)), wanted, atol=bound)
        np.testing.assert_allclose(_numbers(module.combined(given, AT, 0.0)), wanted, atol=bound)
        if not how:
            np.testing.assert_allclose(function(_image(device), AT, 0.0).to_numpy(), wanted, atol=3e-6)
    # A texture of one channel is (x, 0, 0, 1) to functions.
    single = spy.Texture.from_numpy(device, TEXELS[..., 0])
    found = _numbers(function(single, [0.5, 0.5], 0.0))
    np.testing.assert_allclose(found, [TEXELS[1:3, 3:5, 0].mean(), 0, 0, 1], atol=bound)


@needs("textures")
def test_one_of_each(device: spy.Device, module: spy.Module) -> None:
    texture, image = spy.Texture.from_numpy(device, TEXELS), _image(device, wrap="clamp")
    clamped = texture.with_sampler({"wrap": "clamp"})
    bound = blended(device, np.ptp(TEXELS))
    for a, b in ((texture, image), (image, texture)):
        assert np.abs(_numbers(module.mixed(a, b, AT))).max() > 0.1
    for a, b in ((clamped, image), (image, clamped)):
        np.testing.assert_allclose(_numbers(module.mixed(a, b, AT)), 0, atol=bound)
    # Where a function takes texels, a texture is one value for each of them.
    np.testing.assert_array_equal(_numbers(module.same(texture)), TEXELS)


@needs("uint64_t")
@one_device
def test_drawn(device: spy.Device, module: spy.Module) -> None:
    draw = module.shown.raster(module.project, SIZE, antialias=False)
    found = draw(image=_image(device), light=2.0, **TRIANGLE).to_numpy()
    y, x = np.mgrid[: SIZE[0], : SIZE[1]] + 0.5
    uv = np.stack([x / SIZE[1], 1 - y / SIZE[0]], -1).reshape(-1, 2).astype(np.float32)
    wanted = 2 * sampled_by_numpy([TEXELS], uv, np.zeros(len(uv), np.float32)).reshape(*SIZE, 4)
    # Pixels without the triangle are 0.
    covered = found.any(-1)
    assert 0.8 < covered.mean() < 0.95
    np.testing.assert_allclose(found[covered], wanted[covered], atol=1e-5)


@needs("uint64_t")
@deep
def test_gradients_of_drawn(device: spy.Device, module: spy.Module) -> None:
    wanted = None
    for function in (module.shownPlain, module.shown):
        draw = function.raster(module.project, SIZE, background=0.5)
        image = _image(device, True)
        at = spy.Tensor.from_numpy(device, TRIANGLE["at"], "float2").with_grads()
        given = {"at": at, "_faces": TRIANGLE["_faces"], "image": image, "light": 2.0}
        picture = draw(**given).with_grads()
        picture.grad.copy_from(np.arange(768, dtype=np.float32).reshape(*SIZE, 4) * 0.01)
        draw.bwds(**given, _result=picture)
        found = (picture.to_numpy(), at.grad.to_numpy(), image.texels.grad.to_numpy())
        if wanted is None:
            wanted = found
            assert all(np.abs(part).max() > 0.1 for part in wanted)
        for have, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)
    # Another type in the next call, and the default of an argument that is left out.
    draw = module.shown.raster(module.project, SIZE, antialias=False)
    near = module.near.raster(module.project, SIZE, antialias=False)
    plain = module.shownPlain.raster(module.project, SIZE, antialias=False)(image=_image(device), **TRIANGLE)
    np.testing.assert_array_equal(_numbers(draw(image=_image(device), **TRIANGLE)), plain.to_numpy())
    np.testing.assert_allclose(_numbers(near(image=_image(device), **TRIANGLE)), plain.to_numpy(), atol=1e-6)
    if "textures" in device.caps.features:
        texture = spy.Texture.from_numpy(device, TEXELS)
        bound = blended(device, np.ptp(TEXELS))
        np.testing.assert_allclose(_numbers(draw(image=texture, **TRIANGLE)), plain.to_numpy(), atol=bound)
        np.testing.assert_allclose(_numbers(near(image=texture, **TRIANGLE)), plain.to_numpy(), atol=bound)
    commands = spy.CommandList(device)
    at = spy.Tensor.from_numpy(device, TRIANGLE["at"], "float2")
    faces = spy.Tensor.from_numpy(device, np.array(TRIANGLE["_faces"], np.int32))
    recorded = draw.append_to(commands, at=at, image=_image(device), _faces=faces)
    commands.submit()
    np.testing.assert_array_equal(recorded.to_numpy(), plain.to_numpy())


@needs("uint64_t", "textures")
@deep
@pytest.mark.parametrize("name", ["shown", "shownObject"])
def test_gradients_beside_textures(device: spy.Device, module: spy.Module, name: str) -> None:
    """A texture has no gradients, but what is drawn with it has: of a number, and of silhouettes."""
    found = []
    draw = getattr(module, name).raster(module.project, SIZE, background=3.0)
    texels = np.full((2, 2, 4), 0.75, np.float32)
    image = spy.Image(spy.Tensor.from_numpy(device, texels, "float4"))
    for picture in (image, spy.Texture.from_numpy(device, texels)):
        at = spy.Tensor.from_numpy(device, TRIANGLE["at"], "float2").with_grads()
        light = spy.Tensor.full(device, (1, 1), 2.0).with_grads()
        given = {"at": at, "_faces": TRIANGLE["_faces"], "image": picture, "light": light}
        result = draw(**given, _result="tensor").with_grads()
        result.grad.copy_from(np.ones((*SIZE, 4), np.float32))
        draw.bwds(**given, _result=result)
        found.append((at.grad.to_numpy(), light.grad.to_numpy()))
    for have, want in zip(found[1], found[0], strict=True):
        assert np.abs(want).max() > 1
        np.testing.assert_allclose(have, want, rtol=1e-3)


@needs("uint64_t")
@deep
def test_drawn_for_pytorch(device: spy.Device, module: spy.Module) -> None:
    image, found = _image(device, wrap="clamp"), []
    for function in (module.shownPlain, module.shown):
        light = torch.tensor(2.0, requires_grad=True)
        at = torch.tensor(TRIANGLE["at"])
        picture = function.raster(module.project, SIZE)(at=at, _faces=TRIANGLE["_faces"], image=image, light=light)
        picture.sum().backward()
        assert light.grad is not None
        found.append(float(light.grad))
        # The picture is light times texels.
        assert found[-1] == pytest.approx(float(picture.detach().sum()) / 2, rel=1e-4)
    assert found[0] == pytest.approx(found[1], rel=1e-5)


@needs("textures")
@one_device
def test_what_is_refused(device: spy.Device, module: spy.Module) -> None:
    draw = module.shown.raster(module.project, SIZE)
    for match, call in {
        r"generic<float>.* 'float' does not conform": lambda: module.generic(1.0, AT, 0.0),
        r"'light' is an array .* which has no Slang type|no parameter 'lihgt'": lambda: draw(
            image=_image(device), lihgt=1.0, **TRIANGLE
        ),
        r"do not say what T stands for": lambda: draw(**TRIANGLE),
        r"do not say what S stands for": lambda: module.shownSum.raster(module.project, SIZE)(
            image=_image(device), **TRIANGLE
        ),
        r"shown<float>.* 'float' does not conform": lambda: draw(image=1.0, **TRIANGLE),
    }.items():
        with pytest.raises(spy.BindError, match=f"(?s){match}"):
            call()
    whole = spy.Texture.from_numpy(device, np.zeros((2, 2, 4), np.uint32))
    volume = spy.Texture.from_numpy(device, np.zeros((2, 2, 2, 4), np.float32), type="3d")
    for value, match in ((whole, "read as uint"), (volume, "Texture3D")):
        for function in (module.generic, module.object):
            with pytest.raises(spy.BindError, match=match):
                function(value, AT, 0.0)
    # Without the struct of textures, and with one of the user's that has its name, a texture is texels alone.
    texture = spy.Texture.from_numpy(device, TEXELS)
    text = "interface ISampled {{ float4 at(); }}\n{}\nfloat4 f<T : ISampled>(T x) {{ return x.at(); }}\n"
    text += "float4 g(ISampled x) {{ return x.at(); }}\n"
    own = "struct SampledTexture : ISampled { int texture; float4 at() { return texture; } };"
    for k, more in enumerate(("", own)):
        other = spy.Module.load_from_source(device, f"test_sampled_{k}", text.format(more))
        with pytest.raises(spy.BindError, match="does not conform"):
            other.f(texture)
        with pytest.raises(spy.BindError, match="is an interface: name the struct"):
            other.g(texture)
    np.testing.assert_array_equal(other.f({"_type": "SampledTexture", "texture": 3}), [3, 3, 3, 3])
