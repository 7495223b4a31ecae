"""Call any Slang function over arrays.

    import slangpy_rt as spy

    device = spy.init_device()
    module = spy.Module.load_from_source(device, "example", "float add(float a, float b) { return a + b; }")
    module.add(numpy_array, 1.0)

The public names are those below; everything else may change. Importing this opens no device and loads no
compiler, no driver and no torch.
"""

from slangpy_rt.command_list import CommandList
from slangpy_rt.device import Device, create_device, init_device
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
from slangpy_rt.generators import call_id, grid, thread_id
from slangpy_rt.instances import InstanceList, InstanceTensor
from slangpy_rt.interop import create_torch_device, torch_module, torch_operator
from slangpy_rt.kernel import Kernel
from slangpy_rt.module import Module
from slangpy_rt.ndbuffer import NDBuffer
from slangpy_rt.pairs import DiffPair, NDDifferentiableBuffer, diff_pair
from slangpy_rt.profile import Profile, profile
from slangpy_rt.random_numbers import rand_float, wang_hash
from slangpy_rt.refs import ValueRef, floatRef, intRef
from slangpy_rt.selection import DeviceInfo, DeviceType, devices
from slangpy_rt.stream import Event, Stream, Timer
from slangpy_rt.struct import Struct
from slangpy_rt.tensor import Tensor
from slangpy_rt.vectors import (
    bool2,
    bool3,
    bool4,
    double2,
    double3,
    double4,
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
    half2,
    half3,
    half4,
    int2,
    int3,
    int4,
    uint2,
    uint3,
    uint4,
)

__version__ = "0.1.0"

__all__ = [
    "BindError",
    "CommandList",
    "CompileError",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceType",
    "DiffPair",
    "Event",
    "Function",
    "InstanceList",
    "InstanceTensor",
    "Kernel",
    "Module",
    "NDBuffer",
    "NDDifferentiableBuffer",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "Profile",
    "ShapeError",
    "SlangPyRtError",
    "Stream",
    "Struct",
    "Tensor",
    "Timer",
    "UnsupportedError",
    "ValueRef",
    "bool2",
    "bool3",
    "bool4",
    "call_id",
    "create_device",
    "create_torch_device",
    "devices",
    "diff_pair",
    "double2",
    "double3",
    "double4",
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
    "grid",
    "half2",
    "half3",
    "half4",
    "init_device",
    "int2",
    "int3",
    "int4",
    "intRef",
    "profile",
    "rand_float",
    "thread_id",
    "torch_module",
    "torch_operator",
    "uint2",
    "uint3",
    "uint4",
    "wang_hash",
]
