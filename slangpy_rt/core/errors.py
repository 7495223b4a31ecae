"""The exceptions that the package raises for its users; ``slangtorch`` derives two more, under slang-torch's names.

    SlangPyRtError
    ├── BindError(TypeError, ValueError) an argument does not fit the Slang parameter, or a method's own parameter
    ├── ShapeError(ValueError)          shapes do not broadcast, or one is no shape
    ├── CompileError(RuntimeError)      Slang, C++ or CUDA source was refused by a compiler
    │   └── CompileLimitError           a compiler took longer than it may; users see it as a CompileError
    ├── OutOfBoundsError(IndexError)    a kernel reached outside of an array, on a debug device
    ├── GradientError(ArithmeticError)  derivatives of a function contradict each other
    ├── UnsupportedError                the device lacks a capability, which the message names
    └── DeviceError                     the driver refused an action, or the device is closed
        ├── DeviceLostError             the device is gone; open a new one
        └── OutOfMemoryError(MemoryError)

A message says what the user wrote, what was expected and what to do; a compiler's or driver's own text comes last.
Nothing here formats: callers do, because only they know the function and the argument.
"""


class SlangPyRtError(Exception):
    """Base of every error raised by slangpy_rt."""


class BindError(SlangPyRtError, TypeError, ValueError):
    """An argument does not fit: of a call, its Slang parameter; of a method, what the method expects."""


class ShapeError(SlangPyRtError, ValueError):
    """The shapes of arguments do not fit together, or a value is no shape."""


class CompileError(SlangPyRtError, RuntimeError):
    """A compiler refused source text; the message holds its diagnostics."""


class CompileLimitError(CompileError):
    """A compiler took longer than it may, or was left. Whoever knows the kernel's name adds it, in a CompileError."""


class OutOfBoundsError(SlangPyRtError, IndexError):
    """A kernel read or wrote outside of an array; only a device with ``debug=True`` looks."""


class GradientError(SlangPyRtError, ArithmeticError):
    """The derivatives of a function contradict each other; ``check_grads`` and devices with ``debug=True`` look."""


class UnsupportedError(SlangPyRtError):
    """The device, driver or platform lacks a capability, named in the message."""


class DeviceError(SlangPyRtError):
    """The driver refused an action, or the device is closed."""


class DeviceLostError(DeviceError):
    """The device stopped answering; open a new one."""


class OutOfMemoryError(DeviceError, MemoryError):
    """The device or host has no memory left for an allocation."""
