"""The CUDA backend: it calls the driver by cffi, compiles with NVRTC, and launches kernels as graphs of one node."""
