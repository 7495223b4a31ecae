"""The exceptions of this package: RuntimeErrors, as in slang-torch, that are SlangPyRtErrors too."""

from slangpy_rt.core.errors import SlangPyRtError


class TensorError(SlangPyRtError, RuntimeError):
    """A tensor cannot be used as the kernel would use it: its dtype, its place or its memory."""


class LaunchError(SlangPyRtError, RuntimeError):
    """A launch has sizes that the device does not run, or tensors that were resized."""


class CopyNeeded(TensorError):
    """A kernel needs a copy of a tensor, because of its dtype or because it is a broadcast view."""
