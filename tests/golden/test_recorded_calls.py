"""What plain calls ask of a backend, and of Vulkan's driver, next to this file: nothing else may add to it.

``pytest tests/golden --regenerate-golden`` rewrites the file; look at the difference before keeping it. Waits are
left out, since how often a driver is asked depends on time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends import base
from slangpy_rt.backends.null import NullBackend, NullQueue
from slangpy_rt.backends.vulkan import device as vulkan_device
from slangpy_rt.backends.vulkan import instance as vulkan_instance
from slangpy_rt.backends.vulkan.backend import VulkanBackend

FILE = Path(__file__).with_name("recorded_calls.txt")
TEXT = """
[Differentiable] float add(float a, float b) { return a + b; }
struct Corner : IDifferentiable { float4 position; }
[Differentiable] Corner project(float4 at) { Corner c; c.position = at; return c; }
[Differentiable] float shade(Corner c) { return 1; }
float look(Texture2D<float4> t, int2 at) { return t.Load(int3(at, 0)).x; }
"""
# How often a driver is asked whether work has ended, and memory that it hands out in large parts.
_BY_TIME = ("vkWaitSemaphores", "vkGetSemaphoreCounterValue", "vkAllocateMemory", "vkGetDeviceProcAddr")


class Log:
    """Notes the calls of some functions while it is switched on."""

    def __init__(self) -> None:
        self.lines: list[str] | None = None

    def noted(self, name: str, function: Callable[..., Any], detail: Callable[..., str]) -> Callable[..., Any]:
        """A function that notes each call of another one."""

        def call(*args: Any, **named: Any) -> Any:
            if self.lines is not None:
                self.lines.append(f"{name}{detail(*args)}")
            return function(*args, **named)

        return call

    def during(self, call: Callable[[], Any]) -> list[str]:
        """The lines of a call."""
        self.lines = []
        try:
            call()
            return self.lines
        finally:
            self.lines = None


def _null(log: Log, monkeypatch: pytest.MonkeyPatch) -> str:
    def launch(queue: Any, kernel: Any, groups: Any, args: bytes, buffers: Any) -> str:
        return f" {groups}, block of {len(args)} bytes, {len(buffers)} buffers"

    for kind in (NullBackend, NullQueue, base.Backend, base.Queue):
        for name, method in vars(kind).items():
            if callable(method) and not name.startswith("_") and not isinstance(method, (classmethod, staticmethod)):
                detail = launch if name == "launch" else _nothing
                monkeypatch.setattr(kind, name, log.noted(f"{kind.__name__}.{name}", method, detail))
    return "null"


def _vulkan(log: Log, monkeypatch: pytest.MonkeyPatch) -> str:
    reason = VulkanBackend.why_unavailable()
    if reason is not None:
        assert "vulkan" not in os.environ.get("SLANGPY_RT_REQUIRE", ""), reason
        pytest.skip(f"vulkan: {reason}")
    load, fetch = vulkan_instance._load, vulkan_device.VkDevice.function

    class Library:
        def __init__(self, lib: Any) -> None:
            self._lib = lib

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._lib, name)
            return log.noted(name, found, _nothing) if name.startswith("vk") and name not in _BY_TIME else found

    def function(device: Any, name: str) -> Any:
        found = fetch(device, name)
        groups = (lambda command, *groups: f" {groups}") if name == "vkCmdDispatch" else _nothing
        return log.noted(name, found, groups) if name not in _BY_TIME else found

    def loaded() -> Any:
        ffi, lib = load()
        return ffi, Library(lib)

    monkeypatch.setattr(vulkan_instance, "_load", loaded)
    monkeypatch.setattr(vulkan_device.VkDevice, "function", function)
    return "vulkan"


def _nothing(*_: Any) -> str:
    return ""


DEVICES = {"null": _null, "vulkan": _vulkan}


@pytest.fixture(params=DEVICES)
def recorded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[spy.Device, Log]]:
    """A device whose calls are noted."""
    log = Log()
    name = DEVICES[request.param](log, monkeypatch)
    with spy.Device(name) as device:
        yield device, log


def _plain(device: spy.Device, module: Any) -> dict[str, Callable[[], Any]]:
    a, b, c, d = (spy.Tensor.zeros(device, 1000) for _ in range(4))
    x, y = a.with_grads(), b.with_grads()
    z = c.with_grads()
    host = np.zeros(1000, np.float32)
    add = module.add
    commands = device.command_list()
    add.append_to(commands, a, b, _result=c)
    add.append_to(commands, c, b, _result=d)

    def chain() -> None:
        add(a, b, _result=c)
        add(c, b, _result=d)
        add(a, b, _result=c)

    calls = {
        "a call": lambda: add(a, b, _result=c),
        "a call that makes its result": lambda: add(a, b),
        "a call with a number": lambda: add(a, 2.0, _result=c),
        "three calls, each of which has to wait for the one before": chain,
        "a backward call": lambda: add.bwds(x, y, _result=z),
        "a command list of two calls": commands.submit,
    }
    if _is_host(device):
        # Elsewhere arrays are copied, in as many commands as the device's memory asks for.
        calls["a call on NumPy's arrays"] = lambda: add(host, host)
    return calls


def _recorded(device: spy.Device, log: Log, module: Any) -> list[str]:
    lines = []
    for title, call in _plain(device, module).items():
        for _ in range(3):
            call()
        device.synchronize()

        def until_done(call: Callable[[], Any] = call) -> None:
            call()
            device.synchronize()

        lines += [f"{device.name}: {title}", *(f"    {line}" for line in log.during(until_done))]
    return lines


def test_plain_calls_ask_the_same_of_a_backend(
    recorded: tuple[spy.Device, Log], request: pytest.FixtureRequest
) -> None:
    device, log = recorded
    module: Any = spy.Module.load_from_source(device, "test_recorded_calls", TEXT)
    found = _recorded(device, log, module)
    parts = _parts()
    if request.config.getoption("--regenerate-golden"):
        parts[device.name] = found
        FILE.write_text("\n".join(line for name in DEVICES for line in parts.get(name, [])) + "\n", encoding="utf-8")
    assert found == _agreed(device)


@pytest.mark.parametrize("recorded", ["vulkan"], indirect=True)
def test_pictures_add_nothing_and_textures_one_command(recorded: tuple[spy.Device, Log]) -> None:
    device, log = recorded
    module: Any = spy.Module.load_from_source(device, "test_recorded_calls", TEXT)
    draw = module.shade.raster(module.project, (8, 8))
    corners = np.array([[-1, -1, 0.5, 1], [1, -1, 0.5, 1], [0, 1, 0.5, 1]], np.float32)
    assert draw(at=corners, _faces=np.array([[0, 1, 2]])).sum() > 10
    assert _recorded(device, log, module) == _agreed(device)
    # Until all kernels that are launched alone have a recorded list.
    for _ in range(4):
        steady = _recorded(device, log, module)
    texture = spy.Texture.from_numpy(device, np.full((2, 2, 4), 0.5, np.float32))
    assert module.look(texture, np.zeros((1, 2), np.int32)) == 0.5
    found = _recorded(device, log, module)
    # Command buffers that begin after the first texture have its descriptors.
    calls = [line.strip() for line in found]
    after = {then for line, then in pairwise(calls) if line == "vkBeginCommandBuffer"}
    assert after == {"vkCmdBindDescriptorSets"}
    assert [line for line in found if line.strip() != "vkCmdBindDescriptorSets"] == steady


def _is_host(device: spy.Device) -> bool:
    """Whether a device works in host memory."""
    return device.name == "null" or "llvmpipe" in device.info


def _agreed(device: spy.Device) -> list[str]:
    lines = _parts()[device.name]
    if _is_host(device):
        return lines
    return lines[: lines.index(f"{device.name}: a call on NumPy's arrays")]


def _parts() -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines() if FILE.is_file() else []:
        if not line.startswith(" "):
            name = line.partition(":")[0]
        parts.setdefault(name, []).append(line)
    return parts
