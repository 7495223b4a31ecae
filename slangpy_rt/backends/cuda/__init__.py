"""The CUDA backend: the driver through cffi, kernels by NVRTC, launches as CUDA graphs of one node."""
