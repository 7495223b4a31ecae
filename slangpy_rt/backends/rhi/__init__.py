"""The backend on slang-rhi, which slangpy's wheel contains: D3D12, Metal, Vulkan and CUDA by another library."""
