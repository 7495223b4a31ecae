"""Texture calls: prepared calls on device arrays, textures and samplers alone, in the order of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.arguments.packer import Packer
from slangpy_rt.arguments.texture_packers import SamplerPacker, TexturePacker
from slangpy_rt.calls.prepared import PreparedCall
from slangpy_rt.textures.layout import use_of


class TextureCall(PreparedCall):
    """A prepared call whose values are arrays, textures, or samplers, which have no memory."""

    __slots__ = ("_memory", "_uses")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # How textures are used that are not read alone, by the address that they have as arrays do.
        read = use_of(self.device, False)
        textures = [(k, packer.use) for k, packer in enumerate(self.packers) if isinstance(packer, TexturePacker)]
        self._uses = tuple([(k, use) for k, use in textures if use is not read])
        self._memory = tuple([k for k, packer in enumerate(self.packers) if packer.buffers])

    def run(self, values: tuple[Any, ...], launch: Callable[..., None] | None = None) -> Any:
        """Run the call as ``PreparedCall.run`` does."""
        out = None
        if self.make is not None:
            out = self.make()
            values = (*values, out)
        elif self.into:
            out = values[-1]
        found: Any = values
        if self._uses:
            found = list(values)
            for k, use in self._uses:
                try:
                    found[k] = found[k]._uses[use]
                except KeyError:
                    found[k] = found[k].used(use)
        packed, conflicts = self.pack(*[a.address for a in found]), self.conflicts
        buffers, launch = [values[k].buffer for k in self._memory], launch or self.device.launch
        if conflicts is not None and packed not in conflicts.apart:
            places = [a.address for a in found]
            copied = conflicts.found_in(packed, places)
            if copied:
                for dispatch in conflicts.copies(copied, places, buffers):
                    launch(*dispatch)
                packed = self.pack(*places)
        launch(self.kernel, self.groups, self.prefix + packed, buffers)
        return out


def fits_textures(packers: Sequence[Packer]) -> bool:
    """Tell whether all arguments of a call are textures, samplers or device arrays that a TextureCall finds."""
    return all(_fits(packer) for packer in packers)


def _fits(packer: Packer) -> bool:
    if isinstance(packer, TexturePacker):
        return not packer.refuses
    # A sampler that is made of a dict at each call has another packer.
    return isinstance(packer, SamplerPacker) or packer.finds == (None,)
