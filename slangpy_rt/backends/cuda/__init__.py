"""The CUDA backend: the driver through cffi, kernels by NVRTC, launches as graphs of one node."""
