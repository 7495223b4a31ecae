"""The exceptions of this package: those that slang-torch's users catch, which are ours as well."""

from slangpy_rt.core.errors import SlangPyRtError


class TensorError(SlangPyRtError, RuntimeError):
    """A tensor cannot be used as the kernel would use it: its dtype, its place or its memory."""


class LaunchError(SlangPyRtError, RuntimeError):
    """A launch asks for what the device does not run."""
