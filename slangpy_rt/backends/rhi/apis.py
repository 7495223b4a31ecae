"""The devices that slang-rhi opens, by the API that they are of."""

from __future__ import annotations

from slangpy_rt.backends.rhi.backend import RhiBackend
from slangpy_rt.backends.rhi.cuda import CudaSubmissions


class RhiVulkan(RhiBackend):
    """Vulkan, by slang-rhi."""

    name = "rhi-vulkan"
    kind = "vulkan"
    format = "spirv"
    profile = "spirv_1_5"


class RhiCuda(RhiBackend):
    """CUDA, by slang-rhi."""

    name = "rhi-cuda"
    kind = "cuda"
    format = "cuda"
    submissions = CudaSubmissions


class RhiMetal(RhiBackend):
    """Metal, by slang-rhi."""

    name = "metal"
    kind = "metal"
    format = "metal"


class RhiD3D12(RhiBackend):
    """D3D12, by slang-rhi."""

    name = "d3d12"
    kind = "d3d12"
    format = "hlsl"
    profile = "sm_6_6"
    entry = "handle"


class RhiVulkanHandles(RhiBackend):
    """Vulkan, by slang-rhi, used like D3D12: for tests of what that needs where there is none."""

    name = "rhi-vulkan-handles"
    kind = "vulkan"
    format = "spirv"
    profile = "spirv_1_5"
    entry = "handle"
