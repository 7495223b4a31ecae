"""The Vulkan backend's end and its failures: closing, what a driver reports, what is missing, the validation layer.

Each test runs three times where it matters, as in test_vulkan_backend.py.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from _vulkan_backend import Launch, backend, get, launch, load, needs_vulkan, put, spirv

import slangpy_rt as spy
from slangpy_rt.backends.vulkan.backend import VulkanBackend
from slangpy_rt.core.errors import DeviceError, DeviceLostError, OutOfMemoryError, UnsupportedError
from slangpy_rt.core.target import KernelInfo
from tests.nowhere import NOWHERE

__all__ = ["backend", "launch", "spirv"]  # the fixtures


def test_closing_twice_and_using_it_afterwards(backend: VulkanBackend, spirv: bytes, launch: Launch) -> None:
    a = put(backend, np.ones(64, np.float32))
    kernel = load(backend, spirv)
    launch(a, a, a, 1.0)  # still queued at close
    backend.close()
    backend.close()
    assert not backend._release.alive
    attempts: list[Callable[[], object]] = [
        lambda: backend.alloc(4),
        lambda: backend.upload(a, 0, memoryview(b"1234")),
        lambda: backend.download(a, 0, memoryview(bytearray(4))),
        lambda: backend.queue.launch(kernel, (1, 1, 1), bytes(32), (a, a, a)),
        lambda: load(backend, spirv),
        backend.sync_all,
    ]
    for attempt in attempts:
        with pytest.raises(DeviceError, match="vulkan: the device is closed; open a new one"):
            attempt()


@needs_vulkan
def test_a_dropped_backend_releases_its_device() -> None:
    backend = VulkanBackend()
    put(backend, np.ones(64, np.float32))
    release = backend._release
    del backend
    gc.collect()
    # By another thread.
    release.wait()
    assert not release.alive


@needs_vulkan
def test_an_exit_without_close_is_clean() -> None:
    code = (
        "from slangpy_rt.backends.vulkan.backend import VulkanBackend\n"
        "b = VulkanBackend(); x = b.alloc(100000); b.upload(x, 0, memoryview(bytes(100000)))\n"
        "b.upload(x, 0, memoryview(bytes(100)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@needs_vulkan
def test_importing_it_loads_no_driver() -> None:
    code = (
        "import sys, slangpy_rt.backends.vulkan.backend\n"
        "assert not any(name.split('.')[0] == 'vulkan' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@needs_vulkan
def test_an_index_too_high_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"vulkan: no device with index 99; \d+ found .* Pick a lower index"):
        VulkanBackend(99)


def test_too_many_arguments_are_refused(backend: VulkanBackend, spirv: bytes) -> None:
    info = KernelInfo("kernel", (64, 1, 1), (1 << 20) + 1, (False, False, True))
    with pytest.raises(UnsupportedError, match="1048577 bytes of arguments, at most 1048576"):
        backend.load(spirv, info)


@needs_vulkan
@pytest.mark.parametrize(
    ("driver_says", "error", "text"),
    [
        (
            -4,
            DeviceLostError,
            r"vulkan: submitting work failed: VK_ERROR_DEVICE_LOST \(-4\); .* open a new device",
        ),
        (-2, OutOfMemoryError, r"vulkan: submitting work failed: VK_ERROR_OUT_OF_DEVICE_MEMORY \(-2\); free"),
        (-3, DeviceError, r"vulkan: submitting work failed: VK_ERROR_INITIALIZATION_FAILED \(-3\)"),
    ],
)
def test_a_failed_submission_raises_and_leaves_a_usable_recorder(
    monkeypatch: pytest.MonkeyPatch, driver_says: int, error: type[Exception], text: str
) -> None:
    backend = VulkanBackend()
    buffer = put(backend, np.zeros(4, np.float32))
    with monkeypatch.context() as patch:
        patch.setattr(backend.queue, "_vk_submit", lambda *args: driver_says)
        with pytest.raises(error, match=text):
            backend.sync_all()
    backend.upload(buffer, 0, memoryview(np.ones(4, np.float32)))
    assert (get(backend, buffer) == 1).all()
    backend.close()


def test_no_driver_is_one_sentence_and_an_error() -> None:
    # VK_DRIVER_FILES is the Vulkan loader's own setting: with it the loader finds no driver.
    code = (
        "from slangpy_rt.backends.vulkan.backend import VulkanBackend\n"
        "from slangpy_rt.core.errors import SlangPyRtError\n"
        "print(VulkanBackend.why_unavailable())\n"
        "try: VulkanBackend()\n"
        "except SlangPyRtError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"VK_DRIVER_FILES": NOWHERE, "VK_ICD_FILENAMES": NOWHERE, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    why, raised = done.stdout.splitlines()
    assert why == raised
    assert why.startswith("vulkan: ")
    assert "driver" in why


def test_a_missing_package_or_loader_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vulkan._vulkan", None)
    why = VulkanBackend.why_unavailable()
    assert why is not None
    assert "pip install vulkan" in why
    with pytest.raises(UnsupportedError, match="pip install vulkan"):
        VulkanBackend()

    class NoLoader:
        def find_spec(self, name: str, *rest: object) -> None:
            if name == "vulkan._vulkan":
                raise OSError("Cannot find Vulkan SDK version")

    monkeypatch.delitem(sys.modules, "vulkan._vulkan")
    monkeypatch.setattr(sys, "meta_path", [NoLoader(), *sys.meta_path])
    assert VulkanBackend.why_unavailable() == (
        "vulkan: this machine has no Vulkan loader (libvulkan); install a Vulkan driver"
    )


@needs_vulkan
def test_debug_without_the_layer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slangpy_rt.backends.vulkan.instance._LAYER", "VK_LAYER_NOT_THERE")
    backend = VulkanBackend(debug=True)
    assert backend.description.endswith(", without the Vulkan validation layers, which are not installed")
    backend.close()


@needs_vulkan
def test_the_layer_speaks_up_when_it_should() -> None:
    backend = VulkanBackend(debug=True)
    if "without the Vulkan validation layers" in backend.description:
        backend.close()
        pytest.skip(backend.description)
    backend.queue.locked_copy(backend.queue.ring, 0, backend.queue.ring, 8, 16)  # the regions overlap
    backend.close()
    assert any("vkCmdCopyBuffer" in text for text in backend.messages)


@needs_vulkan
def test_a_driver_that_refuses_the_kernel() -> None:
    """Slang 2026.12 decorates the index without declaring the capability, which Mesa refuses."""
    device = spy.Device("vulkan")
    text = "float f(float x) { float t[4] = { 1, 2, 3, 4 }; return t[NonUniformResourceIndex(int(x))]; }"
    module = spy.Module.load_from_source(device, "refused_by_the_driver", text)
    try:
        found = module.f(np.array([0, 3], np.float32))
    except spy.CompileError as error:
        assert "refused the SPIR-V of float f(float x)" in str(error)
    else:
        np.testing.assert_array_equal(found, [1, 4])
    after = spy.Module.load_from_source(device, "after_the_refusal", "float g(float x) { return x + 1; }")
    assert after.g(1.0) == 2
