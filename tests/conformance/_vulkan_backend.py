"""The Vulkan backend in three ways, a kernel for it, and copies to and from its buffers. No test is here."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from slangpy_rt.backends.device_memory import DeviceBuffer
from slangpy_rt.backends.pipelines import PipelineKernel
from slangpy_rt.backends.vulkan.backend import VulkanBackend
from slangpy_rt.backends.vulkan.device import STAGED
from slangpy_rt.core.target import KernelInfo, Target
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.session import Session

_FAULT = VulkanBackend.why_unavailable()
needs_vulkan = pytest.mark.skipif(_FAULT is not None, reason=str(_FAULT))

# r = a * factor + b over n floats: order matters, so a lost barrier shows.
_TEXT = """
struct Call { uint n; float factor; float* a; float* b; float* r; }
[shader("compute")] [numthreads(64, 1, 1)]
void kernel(uint3 t : SV_DispatchThreadID, uniform Call* call)
{
    if (t.x < call.n)
        call.r[t.x] = call.a[t.x] * call.factor + call.b[t.x];
}
"""

# The layer of Debian 12 is older than Slang's entry in SPIR-V's list of source languages.
_OLD_LAYER = "Invalid source language operand: 11"

Launch = Callable[[DeviceBuffer, DeviceBuffer, DeviceBuffer, float], None]


class StagedBackend(VulkanBackend):
    """Never maps device memory, so all transfers are staged."""

    memory = STAGED


@pytest.fixture(scope="module")
def spirv() -> bytes:
    """The kernel as Slang emits it."""
    session = Session(Library(), Target("spirv", "spirv_1_5", "pointer"))
    return session.compile(_TEXT, "vulkan_backend_test", "kernel").code


@pytest.fixture(params=["plain", "debug", "staged"])
def backend(request: pytest.FixtureRequest) -> Iterator[VulkanBackend]:
    """An open backend; at the end the validation layer must have been content."""
    if _FAULT is not None:
        pytest.skip(_FAULT)
    kind = StagedBackend if request.param == "staged" else VulkanBackend
    opened = kind(debug=request.param != "plain")
    yield opened
    opened.close()
    assert [text for text in opened.messages if _OLD_LAYER not in text] == []


@pytest.fixture
def launch(backend: VulkanBackend, spirv: bytes) -> Launch:
    """``launch(a, b, r, factor)`` over all of ``r``."""
    kernel = load(backend, spirv)

    def run(a: DeviceBuffer, b: DeviceBuffer, r: DeviceBuffer, factor: float) -> None:
        n = r.nbytes // 4
        args = struct.pack("<IfQQQ", n, factor, a.address, b.address, r.address)
        backend.queue.launch(kernel, (-(-n // 64), 1, 1), args, (a, b, r))

    return run


def load(backend: VulkanBackend, code: bytes) -> PipelineKernel:
    return backend.load(backend.compile(code, "kernel"), KernelInfo("kernel", (64, 1, 1), 32, (False, False, True)))


def put(backend: VulkanBackend, data: np.ndarray) -> DeviceBuffer:
    buffer = backend.alloc(data.nbytes)
    backend.upload(buffer, 0, memoryview(data))
    return buffer


def get(backend: VulkanBackend, buffer: DeviceBuffer) -> np.ndarray:
    data = np.full(buffer.nbytes // 4, np.nan, np.float32)
    backend.download(buffer, 0, memoryview(data))
    return data


def count_barriers(backend: VulkanBackend, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one with each barrier from now on."""
    seen: list[int] = []
    real = backend.queue._cmd_barrier
    monkeypatch.setattr(backend.queue, "_cmd_barrier", lambda *args: (seen.append(1), real(*args)))
    return seen
