"""Images and samplers of Vulkan. Images are always in the layout GENERAL, so that no work has to change it.

A freed image keeps its memory and its descriptors until the device is done with it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from slangpy_rt.backends.images import Image, ImageDesc, SamplerDesc
from slangpy_rt.backends.vulkan.commands import VkCommands
from slangpy_rt.backends.vulkan.device import VkDevice
from slangpy_rt.backends.vulkan.heap import COMBINED, GENERAL, SAMPLED, SAMPLER, STORED
from slangpy_rt.backends.vulkan.submission import VkSubmissions
from slangpy_rt.core.errors import OutOfMemoryError, UnsupportedError

# VkFormat.
_FORMATS = {
    "r8_unorm": 9, "rg8_unorm": 16, "rgba8_unorm": 37, "rgba8_unorm_srgb": 43,
    "r16_float": 76, "rg16_float": 83, "rgba16_float": 97, "r32_float": 100, "rg32_float": 103, "rgba32_float": 109,
    "r32_uint": 98, "rg32_uint": 101, "rgba32_uint": 107, "r32_sint": 99, "rg32_sint": 102, "rgba32_sint": 108,
    "r16_uint": 74, "rg16_uint": 81, "rgba16_uint": 95, "r16_sint": 75, "rg16_sint": 82, "rgba16_sint": 96,
    "r8_uint": 13, "rg8_uint": 20, "rgba8_uint": 41, "r8_sint": 14, "rg8_sint": 21, "rgba8_sint": 42,
}  # fmt: skip
# VkImageType, and VkImageViewType without and with layers.
_TYPES = {"1d": (0, 0, 4), "2d": (1, 1, 5), "3d": (2, 2, 2), "cube": (1, 3, 6)}
# VkFormatFeatureFlagBits: SAMPLED_IMAGE, STORAGE_IMAGE, SAMPLED_IMAGE_FILTER_LINEAR.
_SAMPLES, _STORES, _FILTERS = 1, 2, 0x1000
# VkImageUsageFlagBits: TRANSFER_SRC, TRANSFER_DST and SAMPLED; STORAGE.
_USAGE, _STORAGE = 7, 8
_WRAPS = {"repeat": 0, "mirror": 1, "clamp": 2, "border": 3}
# VkBorderColor: FLOAT_TRANSPARENT_BLACK, FLOAT_OPAQUE_BLACK, FLOAT_OPAQUE_WHITE.
_BORDERS = {"transparent": 0, "black": 2, "white": 4}
# So many freed images, or bytes of them, are looked through at once: each look submits what is recorded.
_FEW, _MUCH = 32, 64 << 20
# No buffer has such an address: kernels' addresses have at most 57 bits.
_FIRST = 1 << 62


class VulkanImage(Image):
    """An image with memory of its own; ``chunk.give`` adds it to those to be destroyed."""

    __slots__ = ()


class Chunk:
    """The driver's objects of an image.

    Attributes
    ----------
    image, memory : Any
        ``VkImage`` and ``VkDeviceMemory``.
    nbytes : int
        Bytes of the memory.
    views : list
        Its ``VkImageView`` objects.
    numbers : dict of (int, int)
        The binding and the number of each descriptor, by level, access and sampler.
    give : callable
        Adds it to those to be destroyed.
    """

    __slots__ = ("give", "image", "memory", "nbytes", "numbers", "views")

    def __init__(self, image: Any, memory: Any, nbytes: int, retired: deque[Chunk]) -> None:
        self.image = image
        self.memory = memory
        self.nbytes = nbytes
        self.views: list[Any] = []
        self.numbers: dict[tuple[int | None, bool, SamplerDesc | None], tuple[int, int]] = {}
        self.give = partial(retired.append, self)


class VkImages:
    """The images and samplers of one device.

    Methods are called with the backend's lock, and no interrupt may stop them.
    """

    def __init__(self, device: VkDevice, commands: VkCommands) -> None:
        self._device = device
        self._commands = commands
        self._all: set[Chunk] = set()
        self._retired: deque[Chunk] = deque()
        self._dying: deque[tuple[list[Chunk], list[tuple[VkSubmissions, int]]]] = deque()
        self._samplers: dict[SamplerDesc, tuple[Any, int]] = {}
        self._addresses = itertools.count(_FIRST)
        device.on_close(self._close)
        self._to_image = device.function("vkCmdCopyBufferToImage")
        self._from_image = device.function("vkCmdCopyImageToBuffer")

    def create(self, backend: Any, desc: ImageDesc, queues: Sequence[Any]) -> VulkanImage:
        """Create an image in the layout GENERAL."""
        self.sweep(queues)
        self._commands.heap_of(queues)
        device, ffi, lib = self._device, self._device.ffi, self._device.lib
        info = self._image_info(desc)
        image = ffi.new("VkImage*")
        device.check(lib.vkCreateImage(device.handle, info, ffi.NULL, image), "creating an image")
        try:
            needs = ffi.new("VkMemoryRequirements*")
            lib.vkGetImageMemoryRequirements(device.handle, image[0], needs)
            memory = device.memory_for(needs, f"allocating an image of {needs.size} bytes")
        except BaseException:
            lib.vkDestroyImage(device.handle, image[0], ffi.NULL)
            raise
        chunk = Chunk(image[0], memory, int(needs.size), self._retired)
        self._all.add(chunk)
        made = VulkanImage(backend, next(self._addresses), chunk.nbytes, desc)
        made.chunk = chunk
        device.check(lib.vkBindImageMemory(device.handle, image[0], memory, 0), "binding memory of an image")
        self._to_general(queues[0], desc, image[0])
        return made

    def number(self, image: Image, level: int | None, writes: bool, sampler: SamplerDesc | None) -> int:
        """Return the number of a descriptor of an image."""
        chunk: Chunk = image.chunk
        key = level, writes, sampler
        if key not in chunk.numbers:
            view = self._view(image, level, writes)
            chunk.views.append(view)
            binding = STORED if writes else SAMPLED if sampler is None else COMBINED
            found = None if sampler is None else self.sampler(sampler)[0]
            chunk.numbers[key] = binding, self._commands.heap_of(()).put(binding, view, found)
        return chunk.numbers[key][1]

    def sampler(self, desc: SamplerDesc) -> tuple[Any, int]:
        """Return the sampler of a description, and its number."""
        if desc not in self._samplers:
            device, ffi = self._device, self._device.ffi
            linear, x = int(desc.filter == "linear"), [_WRAPS[w] for w in desc.wrap]
            several = desc.anisotropy > 1 and device.textures.anisotropy
            info = device.struct(
                "VkSamplerCreateInfo", magFilter=linear, minFilter=linear, mipmapMode=int(desc.mip == "linear"),
                addressModeU=x[0], addressModeV=x[1], addressModeW=x[2], mipLodBias=desc.bias,
                anisotropyEnable=int(several), maxAnisotropy=float(desc.anisotropy if several else 1),
                minLod=0.0 if desc.mip == "none" else desc.least, maxLod=0.0 if desc.mip == "none" else desc.most,
                borderColor=_BORDERS[desc.border],
            )  # fmt: skip
            out = ffi.new("VkSampler*")
            number = self._commands.heap_of(()).put  # made before the sampler, which it may refuse
            device.check(device.lib.vkCreateSampler(device.handle, info, ffi.NULL, out), "creating a sampler")
            try:
                self._samplers[desc] = out[0], number(SAMPLER, None, out[0])
            except OutOfMemoryError:
                device.lib.vkDestroySampler(device.handle, out[0], ffi.NULL)
                raise
        return self._samplers[desc]

    def copy(
        self, queue: VkSubmissions, image: Image, level: int, layer: int, block: Any, at: int, into: bool
    ) -> None:
        """Record a copy between one layer of a level and a block of memory, from byte ``at`` on."""
        x, y, z = image.desc.size(level)
        region = self._device.ffi.new("VkBufferImageCopy*")
        region.bufferOffset = at
        region.imageSubresource.aspectMask = 1  # VK_IMAGE_ASPECT_COLOR_BIT
        region.imageSubresource.mipLevel = level
        region.imageSubresource.baseArrayLayer, region.imageSubresource.layerCount = layer, 1
        region.imageExtent.width, region.imageExtent.height, region.imageExtent.depth = x, y, z
        command = queue.locked_command()
        if into:
            self._to_image(command, block.handle, image.chunk.image, GENERAL, 1, region)
            # The validation layer of Debian 12 takes every image for read by the next kernel.
            queue.locked_barrier()
        else:
            self._from_image(command, image.chunk.image, GENERAL, block.handle, 1, region)
        queue.locked_filled()

    def sweep(self, queues: Sequence[Any], all: bool = False) -> None:
        """Destroy freed images that the device is done with; it does not wait for others.

        Parameters
        ----------
        all : bool
            Whether few freed images are looked through too.
        """
        count = len(self._retired)
        if count and (all or count >= _FEW or sum(c.nbytes for c in list(self._retired)) >= _MUCH):
            retired = [self._retired.popleft() for _ in range(count)]
            self._dying.append((retired, [(queue, queue.locked_submit()) for queue in queues]))
        while self._dying and _passed(self._dying[0][1], wait=len(self._dying) > _FEW):
            gone, _ = self._dying.popleft()
            for chunk in gone:
                self._destroy(chunk)

    def _destroy(self, chunk: Chunk) -> None:
        device, none = self._device, self._device.ffi.NULL
        self._all.discard(chunk)
        for binding, number in chunk.numbers.values():
            self._commands.heap_of(()).give(binding, number)
        for view in chunk.views:
            device.lib.vkDestroyImageView(device.handle, view, none)
        device.lib.vkDestroyImage(device.handle, chunk.image, none)
        device.lib.vkFreeMemory(device.handle, chunk.memory, none)

    def _close(self) -> None:
        for chunk in list(self._all):
            self._destroy(chunk)
        for sampler, _ in self._samplers.values():
            self._device.lib.vkDestroySampler(self._device.handle, sampler, self._device.ffi.NULL)

    def _image_info(self, desc: ImageDesc) -> Any:
        """Return the struct that an image is created by, after a check that the device has such images.

        Raises
        ------
        UnsupportedError
            If it does not.
        """
        device, ffi, lib = self._device, self._device.ffi, self._device.lib
        kind, format = _TYPES[desc.dims][0], _FORMATS[desc.format.name]
        who = f"vulkan: {device.description} has no"
        has = ffi.new("VkFormatProperties*")
        lib.vkGetPhysicalDeviceFormatProperties(device.physical, format, has)
        features = has.optimalTilingFeatures
        if not features & _SAMPLES or (desc.format.filters and not features & _FILTERS):
            raise UnsupportedError(
                f"{who} textures of {desc.format.name} that are blended; use rgba8_unorm or r16_float"
            )
        if desc.writable and not features & _STORES:
            raise UnsupportedError(f"{who} {desc.format.name} that kernels write; pass usage='shader_resource'")
        if desc.dims == "cube" and desc.array and not device.textures.cube_arrays:
            raise UnsupportedError(f"{who} arrays of cubes; use several textures")
        usage = _USAGE | (_STORAGE if desc.writable else 0)
        flags = 0x10 if desc.dims == "cube" else 0  # VK_IMAGE_CREATE_CUBE_COMPATIBLE_BIT
        most = ffi.new("VkImageFormatProperties*")
        result = lib.vkGetPhysicalDeviceImageFormatProperties(device.physical, format, kind, 0, usage, flags, most)
        extent = most.maxExtent
        if result or desc.levels > most.maxMipLevels or desc.layers > most.maxArrayLayers or (
            desc.width > extent.width or desc.height > extent.height or desc.depth > extent.depth
        ):  # fmt: skip
            raise UnsupportedError(f"{who} images of {desc.format.name} and that size; use a smaller one")
        info = device.struct(
            "VkImageCreateInfo", flags=flags, imageType=kind, format=format, mipLevels=desc.levels,
            arrayLayers=desc.layers, samples=1, usage=usage,
        )  # fmt: skip
        info.extent.width, info.extent.height, info.extent.depth = desc.width, desc.height, desc.depth
        return info

    def _view(self, image: Image, level: int | None, writes: bool) -> Any:
        device, ffi, desc = self._device, self._device.ffi, image.desc
        info = device.struct(
            "VkImageViewCreateInfo", image=image.chunk.image, viewType=_TYPES[desc.dims][1 + desc.array],
            format=_FORMATS[desc.format.name],
        )  # fmt: skip
        part = info.subresourceRange
        part.aspectMask, part.layerCount = 1, desc.layers
        part.baseMipLevel, part.levelCount = (0, desc.levels) if level is None else (level, 1)
        out = ffi.new("VkImageView*")
        device.check(device.lib.vkCreateImageView(device.handle, info, ffi.NULL, out), "creating a view of an image")
        return out[0]

    def _to_general(self, queue: VkSubmissions, desc: ImageDesc, image: Any) -> None:
        device, ffi = self._device, self._device.ffi
        # VkAccessFlagBits: SHADER_READ, SHADER_WRITE, TRANSFER_READ, TRANSFER_WRITE.
        change = device.struct(
            "VkImageMemoryBarrier", dstAccessMask=0x1860, newLayout=GENERAL, image=image,
            srcQueueFamilyIndex=0xFFFFFFFF, dstQueueFamilyIndex=0xFFFFFFFF,
        )  # fmt: skip
        part = change.subresourceRange
        part.aspectMask, part.levelCount, part.layerCount = 1, desc.levels, desc.layers
        # From TOP_OF_PIPE to COMPUTE_SHADER and TRANSFER.
        self._commands.barrier(queue.locked_command(), 1, 0x1800, 0, 0, ffi.NULL, 0, ffi.NULL, 1, change)
        queue.locked_filled()


def _passed(values: Sequence[tuple[VkSubmissions, int]], wait: bool) -> bool:
    if wait:
        for queue, value in values:
            queue.timeline.wait(value)
    return all(queue.timeline.passed(value) for queue, value in values)
