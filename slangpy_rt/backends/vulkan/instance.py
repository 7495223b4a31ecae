"""Opens a Vulkan instance through cffi: it loads the library, checks error codes and describes physical devices.

It opens no device and records no commands. The ``vulkan`` package supplies only cffi declarations and the loaded
library: its Python wrappers are never called, and constants that it lacks are written as numbers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import DeviceError, DeviceLostError, OutOfMemoryError, UnsupportedError

ATOMIC_FLOAT = "VK_EXT_shader_atomic_float"
# Without it the remainder of negative integers is undefined, and wrong with NVIDIA's driver (580): -5 % 3 gives 2.
MAINTENANCE_8 = "VK_KHR_maintenance8"
COOPERATIVE_MATRIX = "VK_KHR_cooperative_matrix"
BFLOAT16 = "VK_KHR_shader_bfloat16"
DOT_PRODUCT = "VK_KHR_shader_integer_dot_product"
# With these, other APIs on the same GPU open memory and semaphores by file descriptors.
EXTERNAL = ("VK_KHR_external_memory_fd", "VK_KHR_external_semaphore_fd")
# With it, copies lead to ordinary memory of the host.
HOST_MEMORY = "VK_EXT_external_memory_host"

_API_1_2 = 1 << 22 | 2 << 12  # VK_API_VERSION_1_2
_API_1_3_255 = 1 << 22 | 3 << 12 | 255  # the first specification with VK_KHR_cooperative_matrix
_API_1_4_304 = 1 << 22 | 4 << 12 | 304  # the first specification with VK_KHR_maintenance8
_PERFORMANCE = 4  # VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT
_LAYER = "VK_LAYER_KHRONOS_validation"
_NEEDED = frozenset({"bufferDeviceAddress", "timelineSemaphore", "shaderInt64"})
_NEEDED_TEXT = "Vulkan 1.2 with buffer device addresses, timeline semaphores and 64-bit integers"
# Features that are enabled where a device has them; all others stay off.
_WANTED = {
    "VkPhysicalDeviceFeatures": {
        "shaderFloat64",
        "shaderInt64",
        "shaderInt16",
        "shaderStorageImageReadWithoutFormat",
        "shaderStorageImageWriteWithoutFormat",
        "samplerAnisotropy",
        "imageCubeArray",
        "shaderImageGatherExtended",
    },
    "VkPhysicalDeviceVulkan11Features": {
        "storageBuffer16BitAccess",
        "uniformAndStorageBuffer16BitAccess",
        "variablePointersStorageBuffer",
        "variablePointers",
    },
    "VkPhysicalDeviceVulkan12Features": {
        "storageBuffer8BitAccess",
        "uniformAndStorageBuffer8BitAccess",
        "shaderBufferInt64Atomics",
        "shaderSharedInt64Atomics",
        "shaderFloat16",
        "shaderInt8",
        "scalarBlockLayout",
        "shaderSubgroupExtendedTypes",
        "timelineSemaphore",
        "bufferDeviceAddress",
        "vulkanMemoryModel",
        "vulkanMemoryModelDeviceScope",
        "runtimeDescriptorArray",
        "descriptorBindingPartiallyBound",
        "descriptorBindingUpdateUnusedWhilePending",
        "descriptorBindingSampledImageUpdateAfterBind",
        "descriptorBindingStorageImageUpdateAfterBind",
    },
    "VkPhysicalDeviceShaderAtomicFloatFeaturesEXT": {
        "shaderBufferFloat32Atomics",
        "shaderBufferFloat32AtomicAdd",
        "shaderBufferFloat64Atomics",
        "shaderBufferFloat64AtomicAdd",
        "shaderSharedFloat32Atomics",
        "shaderSharedFloat32AtomicAdd",
    },
    "VkPhysicalDeviceCooperativeMatrixFeaturesKHR": {"cooperativeMatrix"},
    "VkPhysicalDeviceShaderIntegerDotProductFeatures": {"shaderIntegerDotProduct"},
}
# What textures need; cubes in arrays and anisotropy are asked for where a device has them.
TEXTURES = frozenset({
    "shaderStorageImageReadWithoutFormat", "shaderStorageImageWriteWithoutFormat", "runtimeDescriptorArray",
    "descriptorBindingPartiallyBound", "descriptorBindingUpdateUnusedWhilePending",
    "descriptorBindingSampledImageUpdateAfterBind", "descriptorBindingStorageImageUpdateAfterBind",
})  # fmt: skip
_EXTENSION_OF = {
    "VkPhysicalDeviceShaderAtomicFloatFeaturesEXT": ATOMIC_FLOAT,
    "VkPhysicalDeviceCooperativeMatrixFeaturesKHR": COOPERATIVE_MATRIX,
    "VkPhysicalDeviceShaderIntegerDotProductFeatures": DOT_PRODUCT,
}
# Sizes and types of cooperative matrices by element type.
# VkComponentTypeKHR: 0 FLOAT16, 1 FLOAT32, 3 SINT8, 5 SINT32, 1000141000 BFLOAT16.
_TILES = {
    "half": (16, 16, 16, 0, 0, 1, 1),
    "bfloat16": (16, 16, 16, 1000141000, 1000141000, 1, 1),
    "int8_t": (16, 16, 32, 3, 3, 5, 5),
}


class VkInstance:
    """An open instance.

    Attributes
    ----------
    ffi, lib : Any
        The cffi declarations of vulkan.h, and the loaded library with its functions.
    messages : list of str
        The validation layer's messages; empty without ``debug``.
    unheard : bool
        Whether ``debug`` was asked for and there is no validation layer.

    Raises
    ------
    UnsupportedError
        If the ``vulkan`` package or the loader is missing, or the loader is older than Vulkan 1.2.
    DeviceError
        If the loader finds no driver that works.
    """

    def __init__(self, debug: bool) -> None:
        self.ffi, self.lib = _load()
        self.messages: list[str] = []
        self.unheard = False
        self._undo: list[Callable[[], Any]] = []
        self._keep: list[Any] = []
        try:
            self._open(debug)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Call the functions that ``on_close`` registered, the last first. A second call does nothing."""
        while self._undo:
            self._undo.pop()()

    def on_close(self, destroy: Callable[..., Any], *arguments: Any) -> None:
        """Register ``destroy(*arguments)`` to be called by ``close``."""
        self._undo.append(lambda: destroy(*arguments))

    def struct(self, name: str, **fields: Any) -> Any:
        """Make a zeroed struct with its ``sType`` set; the caller keeps what ``fields`` point to alive."""
        # VkPhysicalDeviceVulkan12Features -> PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, as vulkan_core.h names it.
        words = re.sub(r"(?<=[a-z])(?=[A-Z\d])|(?<=\d)(?=[A-Z\d])", "_", name[2:]).upper()
        kind = getattr(self.lib, f"VK_STRUCTURE_TYPE_{words}")
        return self.ffi.new(f"{name}*", {"sType": kind, **fields})

    def strings(self, texts: Sequence[str]) -> Any:
        """Make a ``char**`` that lives as long as the instance."""
        items = [self.ffi.new("char[]", text.encode()) for text in texts]
        array = self.ffi.new("char*[]", items)
        self._keep += [*items, array]
        return array

    def check(self, result: int, what: str) -> None:
        """Raise an error unless ``result`` is VK_SUCCESS; ``what`` names the attempt, as in "creating a device".

        Raises
        ------
        DeviceLostError, OutOfMemoryError, DeviceError
            By the error code.
        """
        if result == 0:
            return
        name = self.ffi.typeof("VkResult").elements.get(result, "unknown VkResult")
        text = f"vulkan: {what} failed: {name} ({result})"
        if name == "VK_ERROR_DEVICE_LOST":
            raise DeviceLostError(f"{text}; a kernel ran too long or out of bounds: open a new device")
        if name in ("VK_ERROR_OUT_OF_HOST_MEMORY", "VK_ERROR_OUT_OF_DEVICE_MEMORY"):
            raise OutOfMemoryError(f"{text}; free arrays or use smaller ones")
        if name == "VK_ERROR_INCOMPATIBLE_DRIVER":
            raise DeviceError(f"{text}: no driver is installed; install one for your GPU, or Mesa's lavapipe")
        raise DeviceError(text)

    def physical(self, index: int) -> Any:
        """Return the suitable device number ``index``: discrete GPUs come first, then integrated, virtual, others.

        Raises
        ------
        UnsupportedError
            If there are not so many suitable devices.
        """
        ffi, lib = self.ffi, self.lib
        rank = {2: 0, 1: 1, 3: 2}  # by VkPhysicalDeviceType: discrete, integrated, virtual; the rest last
        found = []
        for device in self._list("VkPhysicalDevice", lib.vkEnumeratePhysicalDevices, self._handle):
            properties = ffi.new("VkPhysicalDeviceProperties*")
            lib.vkGetPhysicalDeviceProperties(device, properties)
            if properties.apiVersion >= _API_1_2 and self.features(device)[1] >= _NEEDED:
                found.append((rank.get(properties.deviceType, 3), device))
        found.sort(key=lambda entry: entry[0])
        if not 0 <= index < len(found):
            raise UnsupportedError(
                f"vulkan: no device with index {index}; {len(found)} found with {_NEEDED_TEXT}. "
                f"{'Pick a lower index' if found else 'Install or update a Vulkan driver'}"
            )
        return found[index][1]

    def features(self, physical: Any) -> tuple[Any, frozenset[str]]:
        """Return the wanted features that a device has.

        Returns
        -------
        cdata
            ``VkPhysicalDeviceFeatures2`` with a chain of structs, which enable these features in a new device.
        frozenset of str
            The names of these features, and of the extensions ``MAINTENANCE_8``, ``HOST_MEMORY`` and ``EXTERNAL``
            if it has them.
        """
        ffi = self.ffi
        extensions = self._list(
            "VkExtensionProperties", self.lib.vkEnumerateDeviceExtensionProperties, physical, ffi.NULL
        )
        names = {ffi.string(entry.extensionName).decode() for entry in extensions}
        names -= self._unknown
        chain = last = self.struct("VkPhysicalDeviceFeatures2")
        parts = {"VkPhysicalDeviceFeatures": chain.features}
        for name in list(_WANTED)[1:]:
            if not {_EXTENSION_OF.get(name)} <= names | {None}:
                continue
            last.pNext = parts[name] = self.struct(name)
            last = parts[name]
        if MAINTENANCE_8 in names:
            # The package's vulkan.h is older than the extension; this struct has the same three members.
            # 1000574000: VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_8_FEATURES_KHR.
            last.pNext = exact = ffi.new("VkPhysicalDeviceTimelineSemaphoreFeatures*", {"sType": 1000574000})
            self._keep.append(exact)
            last = exact
        if BFLOAT16 in names:
            # Likewise; of this one the third member tells about cooperative matrices.
            # 1000141000: VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR.
            upper = ffi.new("VkPhysicalDeviceVulkanMemoryModelFeatures*", {"sType": 1000141000})
            self._keep.append(upper)
            last.pNext = upper
        self._keep.append(parts)
        self.lib.vkGetPhysicalDeviceFeatures2(physical, chain)
        present = {MAINTENANCE_8, BFLOAT16, HOST_MEMORY, *EXTERNAL} & names
        for name, part in parts.items():
            for field, _ in ffi.typeof(name).fields:
                if field in ("sType", "pNext"):
                    continue
                if field in _WANTED[name] and getattr(part, field):
                    present.add(field)
                else:
                    setattr(part, field, 0)
        return chain, frozenset(present)

    def tiles(self, physical: Any) -> frozenset[str]:
        """Return the element types of which waves multiply matrices of 16 x 32 bytes, and add up 16 x 16 products.

        Sums are floats, or 32-bit integers of 8-bit ones. The device must have the extension ``COOPERATIVE_MATRIX``.
        """
        ffi, get = self.ffi, self.function("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR")
        count = ffi.new("uint32_t*")
        self.check(get(physical, count, ffi.NULL), "counting cooperative matrices")
        found = ffi.new("VkCooperativeMatrixPropertiesKHR[]", count[0])
        for entry in found:
            entry.sType = self.lib.VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR
        self.check(get(physical, count, found), "listing cooperative matrices")
        # 3: SUBGROUP of VkScopeKHR.
        sizes = {(m.MSize, m.NSize, m.KSize, m.AType, m.BType, m.CType, m.ResultType) for m in found if m.scope == 3}
        return frozenset(element for element, size in _TILES.items() if size in sizes)

    def _open(self, debug: bool) -> None:
        ffi, lib = self.ffi, self.lib
        self._unknown: set[str] = set()
        version = ffi.new("uint32_t*")
        lib.vkEnumerateInstanceVersion(version)
        if version[0] < _API_1_2:
            raise UnsupportedError("vulkan: the Vulkan loader is older than version 1.2; update it")
        app = self.struct("VkApplicationInfo", apiVersion=_API_1_2)
        info = self.struct("VkInstanceCreateInfo", pApplicationInfo=app)
        if debug:
            layers = self._list("VkLayerProperties", lib.vkEnumerateInstanceLayerProperties)
            versions = {ffi.string(layer.layerName).decode(): layer.specVersion for layer in layers}
            self.unheard = _LAYER not in versions
        validated = debug and not self.unheard
        if validated:
            # A layer older than an extension reports the struct that enables it as an error.
            since = {MAINTENANCE_8: _API_1_4_304, COOPERATIVE_MATRIX: _API_1_3_255}
            self._unknown = {name for name, first in since.items() if versions[_LAYER] < first}
            checks = ffi.new(
                "VkValidationFeatureEnableEXT[]",
                [lib.VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT],
            )
            extra = self.struct(
                "VkValidationFeaturesEXT",
                enabledValidationFeatureCount=len(checks),
                pEnabledValidationFeatures=checks,
            )
            info.pNext = extra
            info.enabledLayerCount, info.ppEnabledLayerNames = 1, self.strings([_LAYER])
        if validated or CONFIG.labels:
            info.enabledExtensionCount = 1
            info.ppEnabledExtensionNames = self.strings(["VK_EXT_debug_utils"])
        out = ffi.new("VkInstance*")
        self.check(lib.vkCreateInstance(info, ffi.NULL, out), "creating an instance")
        _keep_drivers_loaded()
        self._handle = out[0]
        self.on_close(lib.vkDestroyInstance, self._handle, ffi.NULL)
        if validated:
            self._listen()

    def function(self, name: str) -> Any:
        """Return a function pointer of an extension."""
        return self.ffi.cast(f"PFN_{name}", self.lib.vkGetInstanceProcAddr(self._handle, name.encode()))

    def _listen(self) -> None:
        ffi, messages = self.ffi, self.messages

        def collect(severity: int, kinds: int, data: Any, user: Any) -> int:
            text = ffi.string(data.pMessage).decode(errors="replace")
            # Images are always in the layout GENERAL (images.py), of which the layer says that others may be faster.
            if not (kinds == _PERFORMANCE and "instead of GENERAL" in text):
                messages.append(text)
            return 0

        callback = ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT", collect)
        self._keep.append(callback)
        info = self.struct(
            "VkDebugUtilsMessengerCreateInfoEXT",
            messageSeverity=0x1100,  # WARNING, ERROR of VkDebugUtilsMessageSeverityFlagBitsEXT
            messageType=0x7,  # GENERAL, VALIDATION, PERFORMANCE of VkDebugUtilsMessageTypeFlagBitsEXT
            pfnUserCallback=callback,
        )
        out = ffi.new("VkDebugUtilsMessengerEXT*")
        result = self.function("vkCreateDebugUtilsMessengerEXT")(self._handle, info, ffi.NULL, out)
        self.check(result, "creating a debug messenger")
        self.on_close(self.function("vkDestroyDebugUtilsMessengerEXT"), self._handle, out[0], ffi.NULL)

    def _list(self, kind: str, enumerate_them: Callable[..., int], *head: Any) -> Any:
        """Call a Vulkan enumeration twice, for its count and for its entries; keep the returned array."""
        count = self.ffi.new("uint32_t*")
        self.check(enumerate_them(*head, count, self.ffi.NULL), f"counting {kind}")
        entries = self.ffi.new(f"{kind}[]", count[0])
        self.check(enumerate_them(*head, count, entries), f"listing {kind}")
        return entries


def find_fault() -> str | None:
    """Return the reason why this machine has no suitable Vulkan device, or None if it has one."""
    try:
        instance = VkInstance(debug=False)
        try:
            instance.physical(0)
        finally:
            instance.close()
    except (DeviceError, UnsupportedError) as error:
        return str(error)
    return None


@functools.cache
def _keep_drivers_loaded() -> None:
    """Leave one instance open for the life of the process.

    The loader unloads a driver with its last instance, and NVIDIA's (580) cannot be loaded more than 30 times: it
    runs out of static thread-local storage.
    """
    ffi, lib = _load()
    app = ffi.new("VkApplicationInfo*", {"sType": lib.VK_STRUCTURE_TYPE_APPLICATION_INFO, "apiVersion": _API_1_2})
    kind = lib.VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
    info = ffi.new("VkInstanceCreateInfo*", {"sType": kind, "pApplicationInfo": app})
    lib.vkCreateInstance(info, ffi.NULL, ffi.new("VkInstance*"))


def _load() -> tuple[Any, Any]:
    try:
        from vulkan._vulkan import ffi, lib
    except ImportError as error:
        raise UnsupportedError(
            f"vulkan: the Python package 'vulkan' does not import ({error}); run: pip install vulkan"
        ) from None
    except OSError:
        raise UnsupportedError(
            "vulkan: this machine has no Vulkan loader (libvulkan); install a Vulkan driver"
        ) from None
    return ffi, lib
