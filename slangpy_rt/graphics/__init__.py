"""Pictures of triangles from two functions of a module, with gradients; the kernels are Slang text in ``shaders``.

This package draws by ordinary calls on whatever device a module is on. It knows no target code and no graphics
hardware. Importing it loads no kernel; ``Function.raster`` is its face.
"""
