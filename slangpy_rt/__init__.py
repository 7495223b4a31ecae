"""Call any Slang function over arrays.

    import slangpy_rt as spy

    device = spy.init_device()
    module = spy.Module.load_from_source(device, "example", "float add(float a, float b) { return a + b; }")
    module.add(numpy_array, 1.0)

The public names are those below; everything else may change. Importing this opens no device and loads no
compiler, no driver and no torch.
"""

from slangpy_rt.device import Device, DeviceInfo, DeviceType, create_device, devices, init_device
from slangpy_rt.errors import (
    BindError,
    CompileError,
    DeviceError,
    DeviceLostError,
    OutOfBoundsError,
    OutOfMemoryError,
    ShapeError,
    SlangPyRtError,
    UnsupportedError,
)
from slangpy_rt.function import Function
from slangpy_rt.generators import call_id, grid, rand_float, thread_id, wang_hash
from slangpy_rt.instances import InstanceList, InstanceTensor
from slangpy_rt.kernel import Kernel
from slangpy_rt.module import Module
from slangpy_rt.ndbuffer import NDBuffer
from slangpy_rt.refs import ValueRef, floatRef, intRef
from slangpy_rt.struct import Struct
from slangpy_rt.tensor import Tensor
from slangpy_rt.vectors import VECTORS

__version__ = "0.1.0"

globals().update(VECTORS)

__all__ = [
    "BindError",
    "CompileError",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceType",
    "Function",
    "InstanceList",
    "InstanceTensor",
    "Kernel",
    "Module",
    "NDBuffer",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "ShapeError",
    "SlangPyRtError",
    "Struct",
    "Tensor",
    "UnsupportedError",
    "ValueRef",
    "call_id",
    "create_device",
    "devices",
    "floatRef",
    "grid",
    "init_device",
    "intRef",
    "rand_float",
    "thread_id",
    "wang_hash",
]
