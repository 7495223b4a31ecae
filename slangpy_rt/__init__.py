"""Call any Slang function over arrays.

    import slangpy_rt as spy

    device = spy.init_device()
    module = spy.Module.load_from_source(device, "example", "float add(float a, float b) { return a + b; }")
    module.add(numpy_array, 1.0)

The public names are those below; everything else may change. Importing this opens no device and loads no
compiler, no driver and no torch.
"""

from slangpy_rt.args import call_id, grid
from slangpy_rt.device import Device, DeviceInfo, DeviceType, create_device, devices, init_device
from slangpy_rt.errors import (
    BindError,
    CompileError,
    DeviceError,
    DeviceLostError,
    OutOfMemoryError,
    ShapeError,
    SlangPyRtError,
    UnsupportedError,
)
from slangpy_rt.function import Function
from slangpy_rt.module import Module
from slangpy_rt.ndbuffer import NDBuffer
from slangpy_rt.tensor import Tensor

__version__ = "0.1.0"

__all__ = [
    "BindError",
    "CompileError",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceType",
    "Function",
    "Module",
    "NDBuffer",
    "OutOfMemoryError",
    "ShapeError",
    "SlangPyRtError",
    "Tensor",
    "UnsupportedError",
    "call_id",
    "create_device",
    "devices",
    "grid",
    "init_device",
]
