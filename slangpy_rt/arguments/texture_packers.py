"""Packers of textures and samplers: the numbers by which kernels find them. They move no data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slangpy_rt.arguments.packer import Packer
from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.images import SamplerDesc
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.runtime.core import DeviceCore
from slangpy_rt.textures.layout import use_of
from slangpy_rt.textures.sampler import SamplerLayout


class TexturePacker(Packer):
    """A texture: the number of all its levels, or of the one that a kernel writes.

    Parameters
    ----------
    device : DeviceCore
        The device that it lies on.
    writes : bool
        Whether the kernel writes to it.
    sampler : SamplerDesc or None
        The sampler that the number names besides.
    """

    buffers = 1

    def __init__(self, device: DeviceCore, writes: bool, sampler: SamplerDesc | None = None) -> None:
        self._device = device
        self.use = use_of(device, writes, sampler)
        self._who = ""
        self._others: Sequence[tuple[int, str]] = ()

    @property
    def refuses(self) -> bool:
        """Whether it refuses images of other arguments."""
        return bool(self._others)

    def pair(self, sampler: SamplerDesc) -> None:
        """Look the texture up with a sampler, where its number names one."""
        self.use = use_of(self._device, self.use.writes, sampler)

    def refuse(self, who: str, others: Sequence[tuple[int, str]]) -> None:
        """Refuse the image of other arguments from now on.

        Parameters
        ----------
        who : str
            The function and the argument, for messages.
        others : sequence of (int, str)
            The place of each of them among the buffers, and its name.
        """
        self._who, self._others = who, others

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        for place, name in self._others:
            if buffers[place] is value.buffer:
                raise ShapeError(
                    f"{self._who} and '{name}' are one texture, and the call writes to it; copy it first, with "
                    "create_texture(...).copy_from(...)."
                )
        block.append(value.used(self.use).address)
        buffers.append(value.buffer)


class SamplerPacker(Packer):
    """A sampler: its number.

    Parameters
    ----------
    layout : SamplerLayout
        What is known of the samplers that the prepared call serves.
    """

    def __init__(self, layout: SamplerLayout) -> None:
        self.desc = layout.desc
        self.blends = layout.blends

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        if self.desc is not None and value.desc != self.desc:
            raise BindError(
                "a dict with other numbers than in the first call is no sampler on this device; make samplers with "
                "device.create_sampler(...)."
            )
        block.append(value.address)
