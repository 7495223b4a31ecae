"""Products of matrices over arrays of every library, with gradients; the kernels are Slang text in ``shaders``.

This package chooses a kernel by element types and device, and splits a call into launches. It knows no target code,
and other packages do not use it; ``slangpy_rt.matmul`` is its face. Importing it loads no torch and no kernel.
"""
