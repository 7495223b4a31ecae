"""The D3D12 backend: kernels are DXIL, reach buffers through one heap of descriptors, and are submitted in batches."""
