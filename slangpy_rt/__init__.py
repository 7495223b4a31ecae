"""Call any Slang function over arrays.

    import slangpy_rt as spy

    device = spy.init_device()
    module = spy.Module.load_from_source(device, "example", "float add(float a, float b) { return a + b; }")
    module.add(numpy_array, 1.0)

The public names are those in ``__all__``; everything else may change. Importing the package opens no device and
loads no compiler, no driver and no torch.
"""

import typing as _typing
from importlib import import_module as _import_module

from slangpy_rt import _former_paths
from slangpy_rt._load_module import loadModule
from slangpy_rt.arguments.indices import call_id, grid, thread_id
from slangpy_rt.arguments.random_numbers import rand_float, wang_hash
from slangpy_rt.arguments.vectors import (
    bool1,
    bool2,
    bool3,
    bool4,
    double1,
    double2,
    double3,
    double4,
    float1,
    float2,
    float2x2,
    float2x3,
    float2x4,
    float3,
    float3x2,
    float3x3,
    float3x4,
    float4,
    float4x2,
    float4x3,
    float4x4,
    half1,
    half2,
    half3,
    half4,
    int1,
    int2,
    int3,
    int4,
    uint1,
    uint2,
    uint3,
    uint4,
)
from slangpy_rt.arrays.differentiable import DiffPair, NDDifferentiableBuffer, diff_pair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.arrays.value_ref import ValueRef, floatRef, intRef
from slangpy_rt.backends.selection import DeviceInfo, DeviceType, devices
from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.calls.function import Function
from slangpy_rt.calls.instances import InstanceList, InstanceTensor, pack
from slangpy_rt.calls.module import Module
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.calls.struct import Struct
from slangpy_rt.calls.tuned import Tuned
from slangpy_rt.core.errors import (
    BindError,
    CompileError,
    DeviceError,
    DeviceLostError,
    GradientError,
    OutOfBoundsError,
    OutOfMemoryError,
    ShapeError,
    SlangPyRtError,
    UnsupportedError,
)
from slangpy_rt.device import Device, create_device, init_device
from slangpy_rt.interop import create_torch_device, empty, kernel, torch_module, torch_operator
from slangpy_rt.linalg.matmul import matmul
from slangpy_rt.runtime.profile import Profile, profile
from slangpy_rt.runtime.stream import Event, Stream, Timer
from slangpy_rt.tuning.config import Config, cdiv

__version__ = "0.1.0"
_former_paths.register()

__all__ = [
    "BindError",
    "CommandList",
    "CompileError",
    "Config",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceType",
    "DiffPair",
    "Event",
    "Function",
    "GradientError",
    "Image",
    "InstanceList",
    "InstanceTensor",
    "Kernel",
    "Mesh",
    "Module",
    "NDBuffer",
    "NDDifferentiableBuffer",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "Profile",
    "Sampler",
    "Scene",
    "ShapeError",
    "SlangPyRtError",
    "Stream",
    "Struct",
    "Tensor",
    "Texture",
    "Timer",
    "Tuned",
    "UnsupportedError",
    "ValueRef",
    "argsort",
    "bool1",
    "bool2",
    "bool3",
    "bool4",
    "call_id",
    "cdiv",
    "compile",
    "create_device",
    "create_torch_device",
    "cumsum",
    "devices",
    "diff_pair",
    "double1",
    "double2",
    "double3",
    "double4",
    "empty",
    "float1",
    "float2",
    "float2x2",
    "float2x3",
    "float2x4",
    "float3",
    "float3x2",
    "float3x3",
    "float3x4",
    "float4",
    "float4x2",
    "float4x3",
    "float4x4",
    "floatRef",
    "grad_tape",
    "graphics",
    "grid",
    "half1",
    "half2",
    "half3",
    "half4",
    "init_device",
    "int1",
    "int2",
    "int3",
    "int4",
    "intRef",
    "kernel",
    "loadModule",
    "load_image",
    "matmul",
    "nonzero",
    "optim",
    "pack",
    "pickle_on",
    "profile",
    "rand_float",
    "save_image",
    "sort",
    "thread_id",
    "torch_module",
    "torch_operator",
    "uint1",
    "uint2",
    "uint3",
    "uint4",
    "wang_hash",
]

# Names that are tried first by those who know other libraries. ``slangpy_rt.device`` goes through ``__getattr__``, so
# that a call of the module is told what was meant.
_FILE = "Module.load_from_file(device, path) loads a Slang file"
_COPY = "Tensor.from_numpy(device, array) copies an array to a device"
_MEANT = {
    "arange": "Tensor.arange(device, count) makes a tensor of 0, 1, 2 and so on",
    "array": _COPY,
    "device": "Device('cpu') opens a device of that kind, and init_device() the best one that is here",
    "from_numpy": _COPY,
    "function": "module.name is the function 'name' of a module",
    "full": "Tensor.full(device, shape, value) makes a tensor of one value",
    "linspace": "Tensor.linspace(device, start, stop, count) makes a tensor of numbers at equal distances",
    "load_module": _FILE,
    "module": f"{_FILE}, and Module.load_from_source(device, name, text) loads Slang text",
    "ones": "Tensor.ones(device, shape) makes a tensor of ones",
    "struct": "module.Name is the struct 'Name' of a module",
    "tensor": _COPY,
    "zeros": "Tensor.zeros(device, shape) makes a tensor of zeros",
}
del globals()["device"]

# Names whose modules are imported when they are first used.
_LATER = {
    "Image": "slangpy_rt.graphics.image",
    "Mesh": "slangpy_rt.graphics.mesh",
    "Scene": "slangpy_rt.graphics.scene",
    "Sampler": "slangpy_rt.textures.sampler",
    "Texture": "slangpy_rt.textures.texture",
    "argsort": "slangpy_rt.arithmetic.functions",
    "compile": "slangpy_rt.calls.compiling",
    "cumsum": "slangpy_rt.arithmetic.functions",
    "graphics": "slangpy_rt.graphics",
    "grad_tape": "slangpy_rt.arithmetic.grad_tape",
    "load_image": "slangpy_rt.arrays.image_files",
    "nonzero": "slangpy_rt.arithmetic.functions",
    "optim": "slangpy_rt.optim",
    "pickle_on": "slangpy_rt.runtime.pickling",
    "save_image": "slangpy_rt.arrays.image_files",
    "sort": "slangpy_rt.arithmetic.functions",
}
if _typing.TYPE_CHECKING:
    from slangpy_rt import graphics, optim
    from slangpy_rt.arithmetic.functions import argsort, cumsum, nonzero, sort
    from slangpy_rt.arithmetic.grad_tape import grad_tape
    from slangpy_rt.arrays.image_files import load_image, save_image
    from slangpy_rt.calls.compiling import compile
    from slangpy_rt.graphics.image import Image
    from slangpy_rt.graphics.mesh import Mesh
    from slangpy_rt.graphics.scene import Scene
    from slangpy_rt.runtime.pickling import pickle_on
    from slangpy_rt.textures.sampler import Sampler
    from slangpy_rt.textures.texture import Texture

if not _typing.TYPE_CHECKING:  # type checkers would take every name for one of the package's

    def __getattr__(name):
        if name == "device" or name in _former_paths.FORMER_PATHS:
            # ``import slangpy_rt.tensor`` and then ``slangpy_rt.tensor.Tensor``.
            return _former_paths.module_of(name, _MEANT.get(name, ""))
        if name in _LATER:
            found = _import_module(_LATER[name])
            found = getattr(found, name, found)
            globals()[name] = found
            return found
        if name in ("load_ipython_extension", "unload_ipython_extension"):
            from slangpy_rt import _notebook

            return getattr(_notebook, name)
        meant = f"; {_MEANT[name]}." if name in _MEANT else ""
        raise AttributeError(f"module 'slangpy_rt' has no attribute '{name}'{meant}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
