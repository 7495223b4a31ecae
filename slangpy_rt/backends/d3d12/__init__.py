"""The D3D12 backend: kernels are DXIL, reach buffers by a heap of descriptors, and are submitted in batches."""
