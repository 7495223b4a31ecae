"""Pictures of triangles from two functions of a module, and the single steps of such pictures, with gradients.

``spy.graphics`` is this package. It draws by ordinary calls on whatever device the arrays are on, of kernels that are
Slang text in ``shaders``. It knows no target code and no graphics hardware. ``Function.raster`` makes whole pictures
of functions; ``rasterize``, ``interpolate``, ``sample`` and ``antialias`` are the steps for arrays.
"""

from slangpy_rt.graphics.step_antialias import Antialias as _Antialias
from slangpy_rt.graphics.step_interpolate import Interpolate as _Interpolate
from slangpy_rt.graphics.step_rasterize import Rasterize as _Rasterize
from slangpy_rt.graphics.step_sample import Sample as _Sample

rasterize = _Rasterize()
interpolate = _Interpolate()
sample = _Sample()
antialias = _Antialias()

__all__ = ["antialias", "interpolate", "rasterize", "sample"]


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
