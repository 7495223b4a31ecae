"""Textures: bilinear samples, uploads, and what a call costs the host, beside PyTorch and slangpy.

- "samples": millions of samples a second of a 64 x 64 texture at random places, repeated, until they are done;
  PyTorch's is ``grid_sample`` of the same picture, on the GPU or on one core for one picture, into new memory each
  time, and slangpy's is ``SampleLevel``.
- "Image": millions of samples a second of the same picture in a Tensor with zeros around it, into memory that is
  there, and of gradients of texels and places. PyTorch's are those of ``grid_sample`` of the same picture, places and
  padding; it keeps no sums, so that its gradients are new memory each time. "forward, levels" blends two of seven
  levels, which PyTorch has not. The floor reads places and writes colors, or gradients of places, and nothing else.
- "upload": GB/s of a picture of 2048 x 2048 bytes x 4 into a new texture, until it is there; beside an upload of the
  same bytes into an array.
- "call": host microseconds of a call with a texture, a sampler and two arrays, beside one with arrays alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import OURS, Bench, per_call, whole
from _peers import open_slangpy

import slangpy_rt as spy

PEER = "torch grid_sample"
_SIDE, _LARGE, _DRAIN = 64, 2048, 256
_IMAGES = """
import sampling;
[Differentiable] float4 seen(Image image, float2 at) { return image.sample(at); }
float4 blended(Image image, float2 at) { return image.sample(at, 6 * at.x); }
float4 moved(float2 at) { return at.xyxy; }
float2 gathered(float4 gradient, float2 sum) { return gradient.xy + sum; }
"""
_TEXT = """
float4 look(Texture2D<float4> image, SamplerState how, float2 at) { return image.SampleLevel(how, at, 0); }
float4 plain(float2 at) { return float4(at, 0, 1); }
"""
Sampler = Callable[[], float]


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("textures", __doc__ or "")
    for name in bench.devices:
        with spy.Device(name) as device:
            if "textures" in device.caps.features:
                _measure(bench, name, device)
        bench.save()
    return bench.finish()


def _measure(bench: Bench, name: str, device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "benchmark_textures", _TEXT)
    rng = np.random.default_rng(0)
    count = 1 << (18 if bench.quick else 24 if name == "cuda" else 22)
    places = rng.random((count, 2), np.float32)
    at = spy.Tensor.from_numpy(device, places)
    out = spy.Tensor.empty(device, (count,), "float4")
    how = device.create_sampler()
    pictures = {
        "rgba32_float": rng.random((_SIDE, _SIDE, 4), np.float32),
        "rgba8_unorm": rng.integers(0, 256, (_SIDE, _SIDE, 4), np.uint8),
    }
    for format, picture in pictures.items():
        image = spy.Texture.from_numpy(device, picture)
        samplers = {
            OURS: _rate(count, whole(lambda t=image: module.look(t, how, at, _result=out), device.synchronize))
        }
        samplers |= _torch(bench, name, picture, places)
        samplers |= _slangpy(bench, name, format, picture, places)
        bench.compare(name, f"samples of {format}", "M/s", samplers)
    _images(bench, name, device, pictures["rgba32_float"], places[: count // 4])
    large = rng.integers(0, 256, (_LARGE, _LARGE, 4), np.uint8)
    texture, array = (
        device.create_texture("rgba8_unorm", _LARGE, _LARGE),
        spy.NDBuffer(device, "uint", large.shape[:2]),
    )
    words = large.view(np.uint32)[..., 0]
    bench.compare(
        name, "upload of rgba8_unorm", "GB/s",
        {
            OURS: _rate(large.nbytes, whole(lambda: texture.copy_from(large), device.synchronize), 1e9),
            "array": _rate(large.nbytes, whole(lambda: array.copy_from(words), device.synchronize), 1e9),
        },
    )  # fmt: skip
    seconds = 0.005 if bench.quick else 0.05
    few, short = at[:16], spy.Tensor.empty(device, (16,), "float4")
    calls = {
        OURS: lambda: module.look(image, how, few, _result=short),
        "without a texture": lambda: module.plain(few, _result=short),
    }
    timed = {who: per_call(call, device.synchronize, seconds, _DRAIN) for who, call in calls.items()}
    bench.compare(name, "call, 16 places", "us", timed)


def _images(bench: Bench, name: str, device: spy.Device, picture: Any, places: Any) -> None:
    """Samples of a picture in a Tensor, and their gradients."""
    module = spy.Module.load_from_source(device, "benchmark_images", _IMAGES)
    count = len(places)
    texels = spy.Tensor.from_numpy(device, picture, "float4").with_grads()
    at = spy.Tensor.from_numpy(device, places, "float2").with_grads()
    image, smaller = spy.Image(texels, wrap="border"), spy.Image(texels.detach(), wrap="border", mips=True)
    out = spy.Tensor.zeros(device, (count,), "float4").with_grads()
    out.grad.copy_from(np.ones((count, 4), np.float32))
    # Several, as threads of a CPU wake up within the first one.
    calls = 4 if name == "cpu" else 8
    plain, given = at.detach(), out.detach()
    runs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "forward": (
            lambda: module.seen(image, plain, _result=given), lambda: module.moved(plain, _result=given)
        ),
        "backward": (
            lambda: module.seen.bwds(image, at, _result=out),
            lambda: module.gathered(out.grad, at.grad, _result=at.grad),
        ),
        "forward, levels": (
            lambda: module.blended(smaller, plain, _result=given), lambda: module.moved(plain, _result=given)
        ),
    }  # fmt: skip
    theirs = _torch_images(bench, name, picture, places)
    for what, (run, least) in runs.items():
        sync = device.synchronize
        samplers = {OURS: whole(run, sync, calls), "floor": whole(least, sync, calls)}
        samplers |= {PEER: whole(theirs[0][what], theirs[1], calls)} if theirs and what in theirs[0] else {}
        bench.compare(name, f"Image, {what}", "M/s", {who: _rate(count, _rested(s)) for who, s in samplers.items()})


def _torch_images(
    bench: Bench, name: str, picture: Any, places: Any
) -> tuple[dict[str, Callable[[], None]], Callable[[], Any]] | None:
    """Return PyTorch's function and its gradient, and what waits for them; None without PyTorch."""
    found = _torch_arguments(bench, name, picture, places)
    if found is None:
        return None
    import torch

    image, grid, sync = found
    image.requires_grad_()
    grid.requires_grad_()
    sample = torch.nn.functional.grid_sample
    out = sample(image, grid, align_corners=False)
    ones = torch.ones_like(out)

    def forward() -> None:
        with torch.no_grad():
            sample(image, grid, align_corners=False)

    def backward() -> None:
        torch.autograd.grad(out, (image, grid), ones, retain_graph=True)

    return {"forward": forward, "backward": backward}, sync


def _rested(seconds: Sampler) -> Sampler:
    """Wait before each sample until threads of PyTorch's, which look for work for some milliseconds, are asleep."""

    def sample() -> float:
        time.sleep(0.02)
        return seconds()

    return sample


def _rate(amount: int, seconds: Sampler, unit: float = 1e6) -> Sampler:
    return lambda: amount / seconds() / unit


def _torch(bench: Bench, name: str, picture: Any, places: Any) -> dict[str, Sampler]:
    """A sampler of PyTorch's function, which has no wrapped texture: the places are inside, and the edges differ."""
    found = _torch_arguments(bench, name, picture, places)
    if found is None:
        return {}
    import torch

    image, grid, sync = found
    sample = torch.nn.functional.grid_sample
    return {PEER: _rate(len(places), whole(lambda: sample(image, grid, align_corners=False), sync))}


def _torch_arguments(bench: Bench, name: str, picture: Any, places: Any) -> tuple[Any, Any, Callable[[], Any]] | None:
    """Return a picture and places as PyTorch's function takes them, and what waits for it; None without PyTorch."""
    try:
        import torch
    except ImportError as error:
        bench.miss(name, "torch", str(error))
        return None
    where = "cuda" if name == "cuda" else "cpu"
    if name not in ("cpu", "cuda") or (where == "cuda" and not torch.cuda.is_available()):
        return None
    values = picture.astype(np.float32) / (255 if picture.dtype == np.uint8 else 1)
    image = torch.from_numpy(values.transpose(2, 0, 1).copy())[None].to(where)
    grid = torch.from_numpy(2 * places - 1)[None, None].to(where)
    return image, grid, torch.cuda.synchronize if where == "cuda" else lambda: None


def _slangpy(bench: Bench, name: str, format: str, picture: Any, places: Any) -> dict[str, Sampler]:
    """A sampler of slangpy on Vulkan."""
    if name != "vulkan":
        return {}
    try:
        sp, opened, module = open_slangpy(name, _TEXT)
    except ImportError as error:
        bench.miss(name, "slangpy", str(error))
        return {}
    image = opened.create_texture(
        format=getattr(sp.Format, format), width=_SIDE, height=_SIDE,
        usage=sp.TextureUsage.shader_resource, data=picture,
    )  # fmt: skip
    how = opened.create_sampler()
    at, out = sp.Tensor.from_numpy(opened, places), sp.Tensor.zeros(opened, (len(places),), "float4")
    return {"slangpy": _rate(len(places), whole(lambda: module.look(image, how, at, _result=out), opened.wait))}


if __name__ == "__main__":
    sys.exit(main())
