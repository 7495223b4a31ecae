"""The backends of slang-rhi's devices: a class for each API."""

from __future__ import annotations

from slangpy_rt.backends.rhi.backend import RhiBackend
from slangpy_rt.backends.rhi.cuda import CudaSubmissions


class RhiVulkan(RhiBackend):
    """A Vulkan device of slang-rhi."""

    name = "rhi-vulkan"
    kind = "vulkan"
    format = "spirv"
    profile = "spirv_1_5"


class RhiCuda(RhiBackend):
    """A CUDA device of slang-rhi."""

    name = "rhi-cuda"
    kind = "cuda"
    format = "cuda"
    submissions = CudaSubmissions


class RhiMetal(RhiBackend):
    """A Metal device of slang-rhi."""

    name = "metal"
    kind = "metal"
    format = "metal"


class RhiD3D12(RhiBackend):
    """A D3D12 device of slang-rhi."""

    name = "rhi-d3d12"
    kind = "d3d12"
    format = "hlsl"
    profile = "sm_6_6"
    entry = "handle"


class RhiVulkanHandles(RhiBackend):
    """A Vulkan device of slang-rhi used like D3D12, for tests on machines without D3D12."""

    name = "rhi-vulkan-handles"
    kind = "vulkan"
    format = "spirv"
    profile = "spirv_1_5"
    entry = "handle"
