"""The backends that use slang-rhi, a library in slangpy's wheel, to reach D3D12, Metal, Vulkan and CUDA."""
