"""Opens an NVIDIA GPU with its primary context, describes what it can do, and releases it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slangpy_rt.backends.cuda.context import current
from slangpy_rt.backends.cuda.driver import FFI_CUDA, NO_DEVICE, check, driver, query
from slangpy_rt.backends.cuda.events import Events
from slangpy_rt.backends.cuda.graph import Graphs
from slangpy_rt.backends.cuda.images import Chunk, destroy
from slangpy_rt.backends.cuda.staging import Staging
from slangpy_rt.core.errors import DeviceError, UnsupportedError
from slangpy_rt.core.target import Caps

_SCALARS = frozenset(
    {"bool", "int8_t", "int16_t", "int", "int64_t", "uint8_t", "uint16_t", "uint", "uint64_t"}
    | {"half", "float", "double"}
)
_FEATURES = frozenset({"wave", "group_shared", "atomic_float", "pointers", "free_group_size", "textures"})
_MAX_GROUPS = (2**31 - 1, 65535, 65535)
_PROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR


class Opened(NamedTuple):
    """A GPU whose primary context is retained.

    Attributes
    ----------
    device, context : int
        The ``CUdevice`` and the ``CUcontext``.
    arch : str
        The architecture to compile for, such as ``"sm_90"``.
    caps : Caps
        The GPU's capabilities.
    description : str
        The GPU in words.
    several : bool
        Whether the machine has other GPUs.
    """

    device: int
    context: int
    arch: str
    caps: Caps
    description: str
    several: bool


def open_gpu(index: int) -> Opened:
    """Retain the primary context of the GPU with this number in the driver's order.

    Raises
    ------
    UnsupportedError
        If there is no driver or no such device.
    DeviceError
        If the driver fails.
    """
    if reason := why_missing():
        raise UnsupportedError(f"device cuda: {reason}.")
    cu = driver()
    count = query(cu.cuDeviceGetCount, "int *", what="counting devices")
    if not 0 <= index < count:
        raise UnsupportedError(f"device cuda: there is no device {index}; this machine has 0 to {count - 1}.")
    device = query(cu.cuDeviceGet, "int *", index, what="opening the device")
    major, minor = (
        query(cu.cuDeviceGetAttribute, "int *", attribute, device, what="asking for its capability")
        for attribute in (_MAJOR, _MINOR)
    )
    name = FFI_CUDA.new("char[256]")
    check(cu.cuDeviceGetName(name, 256, device), "asking for its name")
    memory = query(cu.cuDeviceTotalMem_v2, "size_t *", device, what="asking for its memory")
    # From compute capability 8.0 on, tensor cores multiply TF32 and bfloat16.
    features = _FEATURES | {"cooperative_matrix", "mma"} if major >= 8 else _FEATURES
    # PTX has wgmma for this capability alone (sm_90a).
    features |= {"wgmma"} if (major, minor) == (9, 0) else frozenset()
    processors = query(cu.cuDeviceGetAttribute, "int *", _PROCESSORS, device, what="counting its multiprocessors")
    caps = Caps(_MAX_GROUPS, _SCALARS, features, 32, dlpack_device=2, processors=processors)
    description = f"{FFI_CUDA.string(name).decode()}, compute capability {major}.{minor}, {memory / 2**30:.0f} GiB"
    context = query(cu.cuDevicePrimaryCtxRetain, "uintptr_t *", device, what="creating a context")
    return Opened(device, context, f"sm_{major}{minor}", caps, description, count > 1)


def why_missing() -> str | None:
    """Return the reason why this machine has no CUDA device, or None if it has one."""
    try:
        cu = driver()
    except OSError:
        return "no NVIDIA driver: the CUDA driver library (libcuda.so.1, nvcuda.dll) was not found"
    count = FFI_CUDA.new("int *")
    status = cu.cuInit(0) or cu.cuDeviceGetCount(count)
    if status == NO_DEVICE or (not status and not count[0]):
        return "the NVIDIA driver sees no device; CUDA_VISIBLE_DEVICES may hide it"
    try:
        check(status, "starting the driver")
    except DeviceError as error:
        return str(error).removeprefix("device cuda: ")
    return None


def give_back(
    device: int,
    context: int,
    graphs: Graphs,
    events: Events,
    modules: Iterable[int],
    allocations: Iterable[int],
    slabs: Iterable[int],
    streams: Iterable[int],
    images: Iterable[Chunk],
    staging: Staging | None = None,
) -> None:
    """Release a backend's driver objects; the thread's current context stays as it was."""
    # Statuses are ignored: on a lost device all of these calls fail, and nothing more can be done.
    cu = driver()
    before = current()
    cu.cuCtxSetCurrent(context)
    cu.cuCtxSynchronize()
    if staging is not None:
        staging.close()
    graphs.close()
    for image in images:
        destroy(image)
    for module in modules:
        cu.cuModuleUnload(module)
    for address in allocations:
        cu.cuMemFree_v2(address)
    for address in slabs:
        cu.cuMemFreeHost(address)
    events.close()
    for stream in streams:
        cu.cuStreamDestroy_v2(stream)
    cu.cuCtxSetCurrent(before)
    cu.cuDevicePrimaryCtxRelease_v2(device)
