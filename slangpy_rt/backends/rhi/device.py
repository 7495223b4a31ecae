"""Finds and opens devices of slang-rhi by the slangpy package, and describes what they can do."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from slangpy_rt.backends.rhi.images import SAMPLERS, TEXTURES
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.disk_cache import DiskCache, cache_directory
from slangpy_rt.core.errors import DeviceError, OutOfMemoryError, UnsupportedError
from slangpy_rt.core.target import LAVAPIPE_NESTING, Caps

# The scalars that every device of slang-rhi has. The device's list of features decides about others.
_ALWAYS = frozenset({"bool", "int", "uint", "float"})
# The scalars that a device with a feature of slang-rhi has. One with 16-bit integers is taken to have 8-bit ones.
_SCALARS = {
    "int16": {"int16_t", "uint16_t", "int8_t", "uint8_t"},
    "int64": {"int64_t", "uint64_t"},
    "half": {"half"},
    "double": {"double"},
}
# slang-rhi's list of Metal's features contains none of these, but MSL has all of them. It has no double.
_METAL = frozenset({"int8_t", "uint8_t", "int16_t", "uint16_t", "int64_t", "uint64_t", "half"})
_BYTES = frozenset({"int8_t", "uint8_t"})
# The number of descriptors to ask for where arrays are reached by descriptors: each array above 1 MiB takes one, so
# that these are enough for 128 GiB. D3D12 has a million, and slang-rhi's default is 1,024.
DESCRIPTORS = 1 << 17
_PLATFORMS = {"d3d12": ("win32", "Windows"), "metal": ("darwin", "macOS")}


@dataclass(frozen=True)
class Opened:
    """An open device.

    Attributes
    ----------
    name : str
        The backend's name.
    slangpy, device
        The imported package ``slangpy``, and its ``Device``.
    caps, description
        As in ``Backend``.
    timestamps : bool
        Whether the device's clock can be recorded.
    modules : str or None
        The folder where compiler sessions keep compiled modules; None without one.
    """

    name: str
    slangpy: Any
    device: Any
    caps: Caps
    description: str
    timestamps: bool
    modules: str | None

    def memory(self, nbytes: int, kind: str) -> Any:
        """Make one of slang-rhi's buffers, ``"device_local"``, ``"upload"`` or ``"read_back"``.

        Raises
        ------
        OutOfMemoryError
            If the device does not have so much memory left.
        """
        use, type_ = self.slangpy.BufferUsage, self.slangpy.MemoryType
        told: dict[str, Any]
        if kind == "upload":
            told = {"usage": use.shader_resource | use.copy_source}
        elif kind == "read_back":
            told = {"usage": use.copy_destination}
        else:
            everything = use.unordered_access | use.shader_resource | use.copy_source | use.copy_destination
            told = {"usage": everything, "default_state": self.slangpy.ResourceState.unordered_access}
        try:
            # Rounded up to words of 4 bytes, which slang-rhi's views of buffers count.
            return self.device.create_buffer(size=nbytes + 3 & -4, memory_type=getattr(type_, kind), **told)
        except (RuntimeError, MemoryError) as error:
            raise OutOfMemoryError(
                f"device {self.name}: {nbytes:,} bytes could not be allocated ({error}). Free some arrays or use "
                "smaller ones."
            ) from None


def why_missing(kind: str) -> str | None:
    """Return the reason why this machine has no device of slang-rhi for an API, or None if it may have one."""
    platform, system = _PLATFORMS.get(kind, (sys.platform, ""))
    if sys.platform != platform:
        return f"{kind} is there on {system} only"
    if find_spec("slangpy") is None:
        return "the slangpy package is not installed; pip install slangpy"
    if kind == "vulkan":
        from slangpy_rt.backends.vulkan.instance import find_fault

        return find_fault()
    if kind == "cuda":
        from slangpy_rt.backends.cuda.backend import CudaBackend

        return CudaBackend.why_unavailable()
    return None


def why_unfit(kind: str, entry: str, features: Set[str]) -> str:
    """Return a predicate, such as "has no ...", of what an open device lacks; empty if it has all kernels need."""
    if entry == "handle" and "bindless" not in features:
        return "has no bindless descriptors, by which kernels reach arrays: they need shader model 6.6"
    if entry == "handle" and "int64" not in features:
        return "has no 64-bit integers, which addresses are here"
    if kind == "metal" and "residency_set" not in features:
        # Without them slang-rhi makes only memory resident that a kernel's own parameters point to. That is the
        # argument block, but not the arrays to which it points.
        return "has no residency sets, by which kernels reach arrays: they need macOS 15 and an Apple GPU"
    return ""


def open_device(name: str, kind: str, index: int, debug: bool, entry: str) -> Opened:
    """Open the adapter with number ``index`` of an API.

    Raises
    ------
    UnsupportedError
        If the machine has no such API or adapter, or the adapter lacks something that kernels need.
    DeviceError
        If it does not open.
    """
    if reason := why_missing(kind):
        raise UnsupportedError(f"device {name}: {reason}.")
    spy = importlib.import_module("slangpy")
    type_ = getattr(spy.DeviceType, kind)
    adapters = spy.Device.enumerate_adapters(type_)
    if not 0 <= index < len(adapters):
        raise UnsupportedError(f"device {name}: there is no device {index}; this machine has {len(adapters)}.")
    told = {
        "type": type_,
        "enable_debug_layers": debug,
        "enable_rhi_validation": debug,
        "enable_hot_reload": False,
        "enable_ray_tracing": False,
        "adapter_luid": adapters[index].luid,
        "shader_cache_path": _kept("kernels"),
    }
    if entry == "handle":
        told["bindless_options"] = spy.BindlessDesc(
            buffer_count=DESCRIPTORS, texture_count=TEXTURES, sampler_count=SAMPLERS
        )
    try:
        # Opened in a thread that ends at once. Each device has a compiler of its own, which Slang (2026.12) makes the
        # thread's default and does not reset when the device is closed: later reflection in that thread crashed.
        with ThreadPoolExecutor(1, "slangpy_rt-open") as pool:
            device = pool.submit(_quietly, spy, lambda: spy.Device(**told)).result()
    except RuntimeError as error:
        raise DeviceError(f"device {name}: it does not open: {error}") from None
    features = {feature.name for feature in device.features}
    if reason := why_unfit(kind, entry, features):
        adapter = device.info.adapter_name
        device.close()
        raise UnsupportedError(f"device {name}: {adapter} {reason}.")
    scalars = _ALWAYS | (_METAL if kind == "metal" else frozenset())
    for feature, found in _SCALARS.items():
        if feature in features:
            scalars |= found
    if entry == "handle":
        # HLSL has no 8-bit types. Bools are stored as bytes, but read and written as parts of words.
        scalars -= _BYTES
    limits = device.info.limits
    more = (
        {"group_shared"}
        | ({"pointers"} if entry == "pointer" else set())
        | ({"wave"} if "wave_ops" in features else set())
        | ({"textures"} if entry == "handle" else set())
    )
    if "atomic_float" in features or kind == "metal" or entry == "handle":
        more.add("atomic_float")
    lanes = limits.min_wave_size if limits.min_wave_size == limits.max_wave_size else 0
    most = limits.max_compute_dispatch_thread_groups
    adapter = device.info.adapter_name
    nesting = LAVAPIPE_NESTING if adapter.startswith("llvmpipe") else Caps.nesting
    caps = Caps((int(most.x), int(most.y), int(most.z)), scalars, frozenset(more), lanes, nesting=nesting)
    description = f"{adapter}, {device.info.api_name} by slang-rhi"
    timestamps = "timestamp_query" in features and kind != "metal"
    return Opened(name, spy, device, caps, description, timestamps, _kept("modules"))


def _quietly(spy: Any, work: Callable[[], Any]) -> Any:
    """Call a function without slangpy's warnings on standard output, such as that CUDA has no shader model."""
    logger = spy.Logger.get()
    before, logger.level = logger.level, spy.LogLevel.error
    try:
        return work()
    finally:
        logger.level = before


def _kept(name: str) -> str | None:
    """Return a folder of the disk cache for what slang-rhi compiles; None, which is slower, if it cannot be made."""
    folder = DiskCache.open(cache_directory(), CONFIG.cache_size).folder(f"slangpy-{package_version()}")
    if folder is None:
        return None
    try:
        (folder / name).mkdir(exist_ok=True)
    except OSError:
        return None
    return str(folder / name)


@functools.cache
def package_version() -> str:
    """Return the version of slangpy, without importing it."""
    found = find_spec("slangpy")
    folder = Path(found.origin).parents[1] if found is not None and found.origin else Path()
    return next((p.stem.removeprefix("slangpy-") for p in sorted(folder.glob("slangpy-*.dist-info"))), "unknown")
