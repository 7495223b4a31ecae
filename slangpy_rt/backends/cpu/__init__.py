"""The CPU backend: kernels as C++ of Slang, compiled by g++ or zig, run by a pool of threads."""
