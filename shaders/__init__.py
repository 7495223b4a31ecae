"""The Slang library that kernels and user code import; see slangpy_rt.slang beside this file."""
