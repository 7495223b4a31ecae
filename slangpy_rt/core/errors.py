"""Every exception that the package raises for its users.

    SlangPyRtError
    ├── BindError(TypeError)            an argument does not fit the Slang parameter
    ├── ShapeError(ValueError)          shapes do not broadcast
    ├── CompileError(RuntimeError)      Slang, C++ or CUDA source was refused by a compiler
    ├── OutOfBoundsError(IndexError)    a kernel reached outside of an array, on a debug device
    ├── UnsupportedError                the device lacks a capability, which the message names
    └── DeviceError                     the driver refused an action
        ├── DeviceLostError             the device is gone; open a new one
        └── OutOfMemoryError(MemoryError)

A message says what the user wrote, what was expected and what to do; a compiler's or driver's own text comes last.
Nothing here formats: callers do, because only they know the function and the argument.
"""


class SlangPyRtError(Exception):
    """Base of every error raised by slangpy_rt."""


class BindError(SlangPyRtError, TypeError):
    """An argument does not fit the Slang parameter it was given for."""


class ShapeError(SlangPyRtError, ValueError):
    """The shapes of the arguments do not broadcast together."""


class CompileError(SlangPyRtError, RuntimeError):
    """A compiler refused source text; the message holds its diagnostics."""


class OutOfBoundsError(SlangPyRtError, IndexError):
    """A kernel read or wrote outside of an array; only a device with ``debug=True`` looks."""


class UnsupportedError(SlangPyRtError):
    """The device, driver or platform lacks a capability, named in the message."""


class DeviceError(SlangPyRtError):
    """The driver refused an action."""


class DeviceLostError(DeviceError):
    """The device stopped answering; open a new one."""


class OutOfMemoryError(DeviceError, MemoryError):
    """The device or host has no memory left for an allocation."""
