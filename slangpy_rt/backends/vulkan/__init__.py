"""The Vulkan backend: buffers by address, kernels as SPIR-V, submissions in batches."""
