"""Lists the kinds of device that a machine has, says why it lacks the others, and opens one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from slangpy_rt.backends import AUTOMATIC, REGISTRY, backend_class, known, names
from slangpy_rt.backends.base import Backend
from slangpy_rt.backends.extras import ForeignStreams
from slangpy_rt.backends.others import require_whole
from slangpy_rt.core.checks import whole
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import BindError, SlangPyRtError, UnsupportedError
from slangpy_rt.core.wording import in_words, meant


class DeviceType(str, Enum):
    """The kinds of device. Functions that take one take its name as a string too."""

    automatic = "automatic"
    cuda = "cuda"
    d3d12 = "d3d12"
    metal = "metal"
    vulkan = "vulkan"
    cpu = "cpu"
    rhi_vulkan = "rhi-vulkan"
    rhi_cuda = "rhi-cuda"
    rhi_d3d12 = "rhi-d3d12"
    rhi_vulkan_handles = "rhi-vulkan-handles"
    null = "null"


@dataclass(frozen=True)
class DeviceInfo:
    """A kind of device in the list of ``devices()``.

    Attributes
    ----------
    type : str
        The name of the kind, such as ``"cuda"``.
    available : bool
        Whether this machine has such a device.
    reason : str or None
        Why it has none; None if it has one.
    """

    type: str
    available: bool
    reason: str | None


def devices() -> list[DeviceInfo]:
    """List the kinds of device, and for those that this machine does not have the reason. ``"null"`` is left out."""
    found = []
    for name in names():
        if name != "null":
            reason = _why_not(name)
            found.append(DeviceInfo(name, reason is None, reason))
    return found


def named(type: DeviceType | str, index: int) -> tuple[str, int]:
    """Split a device type into its name and the number of the device: ``"cuda:1"`` is ``("cuda", 1)``.

    ``"automatic"`` is replaced by the environment variable SLANGPY_RT_DEVICE where that is set.

    Raises
    ------
    BindError
        If there is no such type, or ``type`` and ``index`` name two devices.
    """
    if not isinstance(type, str):
        raise BindError(f"Device: type is {in_words(type)}; a DeviceType or its name was expected, such as 'cuda'.")
    index = whole("Device", "index", index, 0, 255)
    name, colon, number = (type.value if isinstance(type, DeviceType) else str.__str__(type)).partition(":")
    what = f"type {in_words(type)}"
    if colon and index and number != str(index):
        raise BindError(f"Device: {what} and index {index} name two devices; leave one of them out.")
    if name == "automatic" and CONFIG.device:
        what = f"environment variable SLANGPY_RT_DEVICE={in_words(CONFIG.device)}"
        name, colon, number = CONFIG.device.partition(":")
    if not (name == "automatic" or known(name)) or (colon and not (number.isdecimal() and len(number) < 4)):
        raise BindError(
            f"Device: {what} is not one of {', '.join(names())}, automatic, or one with a number, such as 'cuda:1'."
            f"{'' if known(name) else meant(name, names())}"
        )
    return name, int(number) if colon else index


def open_backend(
    name: str, index: int, debug: bool, deterministic: bool = False, stream: int | None = None, owner: Any = None
) -> Backend:
    """Open the backend of a device type, or for ``automatic`` the first that works here.

    Parameters
    ----------
    deterministic : bool
        Whether a launch has to divide its work in the same way each time.
    stream : int, optional
        A stream of another library, which becomes the backend's own queue.
    owner : object, optional
        The object that keeps that stream alive.

    Raises
    ------
    UnsupportedError
        If this machine cannot open such a device; the message says why.
    SlangPyRtError
        If a device that the machine has does not open; the error is the backend's.
    """
    if stream is not None and (name == "automatic" or not issubclass(backend_class(name), ForeignStreams)):
        raise UnsupportedError(f"Device: stream= is for cuda; a {name} device has no streams of other libraries.")
    more = {} if stream is None else {"stream": stream, "owner": owner}
    # Not asked before opening, because ``why_unavailable`` starts the driver too.
    reasons = []
    for candidate in AUTOMATIC if name == "automatic" else [name]:
        try:
            opened = backend_class(candidate)(index, debug=debug, deterministic=deterministic, **more)
            if candidate not in REGISTRY:
                require_whole(candidate, opened)
            return opened
        except (ImportError, SlangPyRtError) as error:
            reason = _why_not(candidate)
            if reason is None and name != "automatic":
                raise
            reasons.append((candidate, reason or str(error)))
    if name != "automatic":
        raise UnsupportedError(f"Device: no {name} device can be opened here: {reasons[0][1]}.")
    listed = "\n".join(f"{candidate}: {reason}" for candidate, reason in reasons)
    raise UnsupportedError(
        f"Device: none can be opened on this machine; `python -m slangpy_rt doctor` says what to install.\n{listed}"
    )


def _why_not(name: str) -> str | None:
    try:
        reason = backend_class(name).why_unavailable()
    except (ImportError, SlangPyRtError) as error:
        reason = str(error)
    return reason.rstrip(".") if reason else reason
