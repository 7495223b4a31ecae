"""The Vulkan backend: kernels are SPIR-V, reach buffers by device address, and are submitted in batches."""
