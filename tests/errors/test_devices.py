"""Errors of devices, modules and the cache, with their whole messages."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _refusals import refused

import slangpy_rt as spy
from slangpy_rt.backends import REGISTRY, names, selection
from slangpy_rt.backends.cpu import backend as cpu
from slangpy_rt.backends.cpu import compile as compiling
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.runtime import kernel_store
from tests.depth import deep
from tests.lanes_off import without_lanes
from tests.nowhere import NOWHERE

ADD = "float add(float a, float b)"


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """One function."""
    return spy.Module.load_from_source(device, "test_devices", f"{ADD} {{ return a + b; }}")


def test_array_of_another_device(backend_name: str, device: spy.Device, module: spy.Module) -> None:
    with spy.Device(backend_name) as other:
        there = spy.Tensor.full(other, 3, 7)
        expected = f"{ADD}: argument 'a' is on another {other!r}; the module runs on {device!r}."
        assert refused(spy.BindError, lambda: module.add(there, 1)) == expected
        here = spy.Tensor.full(device, 3, 7)
        expected = f"{ADD}: _result is on another {other!r}; the module runs on {device!r}."
        assert refused(spy.BindError, lambda: module.add(here, 1, _result=there)) == expected
        np.testing.assert_array_equal(there.to_numpy(), np.full(3, 7))


def test_streams_lists_and_events_of_another_device(
    backend_name: str, device: spy.Device, module: spy.Module
) -> None:
    with spy.Device(backend_name) as other:
        none, but = f"of {device!r}, but of another {other!r}", "make one with its stream()."
        stream, commands = other.stream(), other.command_list()
        there, here = spy.Tensor.full(other, 3, 7), spy.Tensor.full(device, 3, 7)
        event = other.event().record()
        event.synchronize()  # its text says whether it is done
        cases: dict[str, Callable[[], Any]] = {
            f"add.stream: {stream!r} is no stream {none}; {but}": lambda: module.add.stream(stream),
            f"Event.elapsed: {event!r} is no event {none}.": lambda: device.event().record().elapsed(event),
            f"CommandList.append: {commands!r} is no command list {none}.": (
                lambda: device.command_list().append(commands)
            ),
            f"add.append_to: {commands!r} is no command list {none}.": lambda: module.add.append_to(
                commands, here, 1
            ),
            f"CommandList.copy: {there.summary} is on another {other!r}; this list is of {device!r}.": (
                lambda: device.command_list().copy(here, there)
            ),
        }
        for message, call in cases.items():
            assert refused(spy.BindError, call) == message
        said = refused(spy.BindError, lambda: device.stream().wait(stream))
        assert said.startswith(f"Stream.wait: {stream!r} is no event, ") and said.endswith(
            f", but of another {other!r}."
        )
        with spy.Device("null" if backend_name != "null" else "cpu") as third:
            tensor = spy.Tensor.zeros(third, 3)
            expected = f"{ADD}: argument 'a' is on {third!r}; the module runs on {device!r}."
            assert refused(spy.BindError, lambda: module.add(tensor, 1)) == expected


def test_a_timer_without_a_block(device: spy.Device) -> None:
    timer = device.timer()
    said = "Timer.seconds: no block was measured; ask after the end of 'with timer:'."
    assert refused(spy.BindError, lambda: timer.seconds) == said
    with timer:
        pass
    assert timer.seconds >= 0
    with timer:
        assert refused(spy.BindError, lambda: timer.seconds) == said
    assert timer.seconds >= 0


def test_a_syntax_error_shows_its_line(device: spy.Device, tmp_path: Path) -> None:
    path = tmp_path / "broken.slang"
    path.write_text("float add(float a)\n{\n    return a + c;\n}\n")
    expected = (
        f"Slang could not load module 'broken' from {path}:\n"
        "error[E30015]: undefined identifier\n"
        f" --> {path}:3:16\n"
        "  |\n"
        "3 |     return a + c;\n"
        "  |                ^ undefined identifier 'c'.\n"
        "--'"
    )
    assert refused(spy.CompileError, lambda: spy.Module.load_from_file(device, path)) == expected
    path.write_text("float add(float a)\n{\n    return a;\n}\n")
    assert spy.Module.load_from_file(device, path).add(3) == 3


def test_a_file_that_is_not_text(device: spy.Device, tmp_path: Path) -> None:
    path = tmp_path / "image.slang"
    path.write_bytes(b"\xff\xfe\x00")
    expected = f"Module.load_from_file: '{path}' is not UTF-8 text (invalid start byte at byte 0)."
    assert refused(spy.CompileError, lambda: spy.Module.load_from_file(device, path)) == expected


def test_a_missing_file_with_include_paths(backend_name: str, tmp_path: Path) -> None:
    with spy.Device(backend_name, include_paths=[tmp_path]) as own:
        expected = (
            f"Module.load_from_file: there is no file 'x.slang' in '{Path.cwd()}', '{tmp_path}'. "
            "Give a full path, or add its folder to include_paths."
        )
        assert refused(spy.CompileError, lambda: own.load_module("x.slang")) == expected
        (tmp_path / "x.slang").write_text("int one() { return 1; }")
        assert own.load_module("x.slang").one() == 1


def test_a_closed_device(backend_name: str) -> None:
    own = spy.Device(backend_name)
    own.close()
    expected = f"this {backend_name} device was closed; open another with create_device('{backend_name}')."
    assert refused(spy.DeviceError, own.synchronize) == expected
    assert refused(spy.DeviceError, lambda: spy.NDBuffer(own)) == expected


def test_an_unknown_device_type() -> None:
    # Those of other packages, where some are installed.
    others = "".join(f"{name}, " for name in names() if name not in REGISTRY)
    for type_ in ("gpu", "gpu:0", "cpu:", "cpu:x", ":1"):
        expected = (
            f"Device: type {type_!r} is not one of cuda, d3d12, metal, vulkan, cpu, rhi-vulkan, rhi-cuda, "
            f"rhi-d3d12, rhi-vulkan-handles, null, {others}automatic, or one with a number, such as 'cuda:1'."
        )
        assert refused(spy.BindError, lambda t=type_: spy.Device(t)) == expected
    with spy.Device("cpu:0") as device:
        assert device.name == "cpu" and device.index == 0


def test_no_compiler_when_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "find_compiler", lambda: None)
    monkeypatch.setattr(cpu, "llvmlite_identity", str)
    expected = (
        "Device: no cpu device can be opened here: no compiler: neither the llvmlite package nor g++, clang++ or the "
        "ziglang package was found; run: pip install llvmlite."
    )
    assert refused(spy.UnsupportedError, lambda: spy.Device("cpu")) == expected


@deep
def test_no_cpp_compiler_when_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    if not next(d for d in spy.devices() if d.type == "cpu").available:
        pytest.skip("there is no C++ compiler to take away")
    with spy.Device("cpu") as own:
        monkeypatch.setattr(compiling, "find_compiler", lambda: None)
        module = spy.Module.load_from_source(own, "no_compiler", "float f(float x) { return x - 17; }")
        expected = (
            "device cpu: no C++ compiler was found. Install g++ or clang++, or run `pip install 'slangpy_rt[cpu]'`, "
            "or name one in SLANGPY_RT_CXX."
        )
        assert refused(spy.UnsupportedError, lambda: module.f(1)) == expected
        monkeypatch.undo()
        assert module.f(1) == -16


def test_a_cpp_compiler_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = dataclasses.replace(CONFIG, cxx=f"{NOWHERE}/c++")
    monkeypatch.setattr(compiling, "CONFIG", asked)
    monkeypatch.setattr(cpu, "CONFIG", asked)
    assert refused(spy.UnsupportedError, lambda: spy.Device("cpu")) == (
        f"Device: no cpu device can be opened here: environment variable SLANGPY_RT_CXX={asked.cxx!r}: no such "
        "C++ compiler was found."
    )


def test_a_cpp_compiler_that_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    idle = tmp_path / "c++"
    idle.write_text("#!/bin/sh\n")
    idle.chmod(0o755)
    monkeypatch.setattr(compiling, "find_compiler", lambda: [str(idle)])
    monkeypatch.setattr(cpu, "find_compiler", lambda: [str(idle)])
    with spy.Device("cpu") as own:
        without_lanes(own, monkeypatch)
        module = spy.Module.load_from_source(own, "idle", "float f(float x) { return x - 23; }")
        assert refused(spy.CompileError, lambda: module.f(1)) == (
            f"{idle} ended without an error and wrote no library; name a C++ compiler in SLANGPY_RT_CXX."
        )


def test_a_device_type_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "CONFIG", dataclasses.replace(CONFIG, device="nope"))
    said = refused(spy.BindError, spy.Device)
    assert said.startswith("Device: environment variable SLANGPY_RT_DEVICE='nope' is not one of cuda, d3d12, ")


def test_a_folder_of_edited_kernels_that_is_none(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_store, "CONFIG", dataclasses.replace(CONFIG, override=NOWHERE))
    module = spy.Module.load_from_source(device, "edited", "float f(float x) { return x - 29; }")
    assert refused(spy.BindError, lambda: module.f(1)) == (
        f"environment variable SLANGPY_RT_OVERRIDE={NOWHERE!r}: there is no such folder."
    )


def test_a_number_of_a_device_that_is_none(backend_name: str) -> None:
    assert refused(spy.BindError, lambda: spy.Device(f"{backend_name}:1", index=2)) == (
        f"Device: type '{backend_name}:1' and index 2 name two devices; leave one of them out."
    )
    if backend_name != "null":
        for options in ({"type": f"{backend_name}:99"}, {"type": backend_name, "index": 99}):
            said = refused(spy.UnsupportedError, lambda o=options: spy.Device(**o))
            assert "99" in said
    assert refused(spy.UnsupportedError, lambda: spy.Device("cpu", index=7)) == (
        "device cpu: there is one, number 0, and none of number 7."
    )


@pytest.mark.skipif(sys.platform == "win32", reason="the loader reads other variables there")
def test_no_vulkan_driver() -> None:
    program = "import slangpy_rt as spy\ntry: spy.Device('vulkan')\nexcept spy.UnsupportedError as e: print(e)"
    environment = os.environ | {"VK_DRIVER_FILES": NOWHERE, "VK_ICD_FILENAMES": NOWHERE}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert found.stderr == ""
    start = "Device: no vulkan device can be opened here: vulkan: "
    # The second is what there is to say where not even the Vulkan loader is installed.
    assert found.stdout.strip() in (
        start + "creating an instance failed: VK_ERROR_INCOMPATIBLE_DRIVER (-9): no driver is installed; "
        "install one for your GPU, or Mesa's lavapipe.",
        start + "this machine has no Vulkan loader (libvulkan); install a Vulkan driver.",
    )


def test_a_cache_that_cannot_be_written_is_no_error(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cache", DiskCache.open(None, 0))
    module = spy.Module.load_from_source(device, "no_cache", "float uncached(float x) { return x + 3; }")
    assert module.uncached(1) == 4
