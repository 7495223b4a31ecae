"""Calls with textures and samplers take as few steps as calls on arrays alone, and find each texture's own number."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.calls.prepared import PreparedCall
from slangpy_rt.calls.texture_call import TextureCall

_TEXT = """
float4 look(Texture2D<float4> image, SamplerState how, float2 at) { return image.SampleLevel(how, at, 0); }
float4 read(Texture2D<float4> image, uint2 at) { return image[at]; }
float4 moved(Texture2D<float4> image, float4 at) { return image[uint2(uint(at.x), 0)] + at; }
float4 plain(float2 at) { return float4(at, 0, 1); }
float4 changed(RWTexture2D<float4> to, Texture2D<float4> image, uint2 at) { to[at] = image[at]; return image[at]; }
"""


@pytest.fixture(scope="module")
def device() -> Iterator[spy.Device]:
    """A device with textures."""
    with spy.Device("cpu") as opened:
        yield opened


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """Functions of textures."""
    return spy.Module.load_from_source(device, "texture_calls", _TEXT)


def frames(call: Callable[[], Any]) -> list[str]:
    """Return the Python functions that a repeated call enters, below the lambda that makes it."""
    seen: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<listcomp>":
            seen.append(frame.f_code.co_name)

    call()
    call()
    sys.setprofile(watch)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    del result
    return seen[1:]


def kinds(function: Any) -> set[type[PreparedCall]]:
    return {type(call) for calls in (function._calls, function._calls_into) for call in calls.values()}


def of(device: spy.Device, *values: float) -> spy.Texture:
    return spy.Texture.from_numpy(device, np.array([[[v, v, v, v] for v in values]], np.float32))


def test_a_texture_costs_no_frame(device: spy.Device, module: spy.Module) -> None:
    image, how = of(device, 1, 2), device.create_sampler()
    at = spy.Tensor.from_numpy(device, np.full((3, 2), 0.25, np.float32))
    out = spy.Tensor.zeros(device, (3,), "float4")
    assert frames(lambda: module.look(image, how, at, _result=out)) == frames(lambda: module.plain(at, _result=out))
    assert kinds(module.look) == {TextureCall}


def test_each_texture_and_sampler_is_its_own(device: spy.Device, module: spy.Module) -> None:
    at = spy.Tensor.from_numpy(device, np.array([[1.25, 0.5]], np.float32))
    low, high = of(device, 1, 2), of(device, 3, 4)
    wrapped, clamped = device.create_sampler(filter="nearest"), device.create_sampler(filter="nearest", wrap="clamp")
    found = [
        float(module.look(image, how, at).to_numpy()[0, 0])
        for _ in range(2) for image in (low, high) for how in (wrapped, clamped)
    ]  # fmt: skip
    assert found == [1, 2, 3, 4, 1, 2, 3, 4]
    assert len(module.look._calls) == 1, "one prepared call serves them all"


def test_views_of_levels(device: spy.Device, module: spy.Module) -> None:
    image = spy.Texture.from_numpy(device, np.full((2, 2, 4), 8, np.float32), mips=True)
    image.copy_from(np.full((1, 1, 4), 5, np.float32), mip=1)
    corner = spy.Tensor.zeros(device, (1,), "uint2")
    assert [float(module.read(t, corner).to_numpy()[0, 0]) for t in (image, image.mip(1), image)] == [8, 5, 8]


def test_arrays_that_overlap_are_copied(device: spy.Device, module: spy.Module) -> None:
    image = of(device, 1, 10, 100, 1000)
    memory = spy.Tensor.from_numpy(device, np.arange(20, dtype=np.float32).reshape(5, 4) // 4, "float4")
    before = memory.to_numpy()
    for _ in range(2):
        memory.copy_from(before)
        # Each result lies where the next element's place is.
        module.moved(image, memory[:4], _result=memory[1:])
        assert memory.to_numpy()[1:, 0].tolist() == [1, 11, 102, 1003]
    assert kinds(module.moved) == {TextureCall}


def test_a_texture_that_is_written_and_read_is_refused_each_time(device: spy.Device, module: spy.Module) -> None:
    image, other = (device.create_texture("rgba32_float", 2, 1) for _ in range(2))
    corner = spy.Tensor.zeros(device, (1,), "uint2")
    module.changed(other, image, corner)
    for _ in range(2):
        with pytest.raises(spy.ShapeError, match="are one texture"):
            module.changed(image, image, corner)
    assert TextureCall not in kinds(module.changed)


def test_a_bound_call_and_a_list(device: spy.Device, module: spy.Module) -> None:
    image, how = of(device, 1, 2), device.create_sampler(filter="nearest")
    at = spy.Tensor.from_numpy(device, np.array([[0.75, 0.5]], np.float32))
    out = spy.Tensor.zeros(device, (1,), "float4")
    again = module.look.bind(image, how, at, _result=out)
    image.copy_from(np.full((1, 2, 4), 7, np.float32))
    again()
    assert out.to_numpy().tolist() == [[7, 7, 7, 7]]
    commands = device.command_list()
    module.look.append_to(commands, image, how, at, _result=out)
    image.copy_from(np.full((1, 2, 4), 9, np.float32))
    commands.submit()
    assert out.to_numpy().tolist() == [[9, 9, 9, 9]]


def test_a_closed_device_says_so() -> None:
    with spy.Device("cpu") as opened:
        module = spy.Module.load_from_source(opened, "texture_calls", _TEXT)
        image, corner = of(opened, 1, 2), spy.Tensor.zeros(opened, (1,), "uint2")
        module.read(image, corner)
        module.read(image, corner)
    with pytest.raises(spy.DeviceError, match="closed"):
        module.read(image, corner)
