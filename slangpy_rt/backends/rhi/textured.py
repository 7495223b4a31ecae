"""TexturedLaunches: launches of kernels that use textures, whose states slang-rhi does not change by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.images import Image
from slangpy_rt.backends.rhi.memory import HANDLE_SHIFT, OFFSET_MASK
from slangpy_rt.backends.rhi.program import RhiKernel
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.interrupts import noted


class TexturedLaunches:
    """The part of ``Submissions`` that encodes launches of kernels that use textures."""

    def launch_textured(
        self: Any, kernel: RhiKernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]
    ) -> None:
        """Encode a launch of a kernel that uses textures.

        Raises
        ------
        UnsupportedError
            If it reads and writes one texture: slang-rhi keeps a state for each.
        """
        images = [(b, writes) for b, writes in zip(buffers, kernel.info.written, strict=True) if isinstance(b, Image)]
        written = {id(b): b for b, writes in images if writes}
        if any(not writes and id(b) in written for b, writes in images):
            raise UnsupportedError(
                f"device {self._name}: {kernel.info.title} reads and writes one texture. Declare an inout parameter, "
                "or copy the texture first."
            )
        state = self._opened.slangpy.ResourceState
        encoder = self.encoder()
        for b in written.values():
            encoder.set_texture_state(b.chunk.texture, state.unordered_access)
        self.batch.kept += [b.chunk for b, _ in images]
        work = noted(self._pass, encoder.begin_compute_pass)
        address = self._place(args)
        self._words[:] = address >> HANDLE_SHIFT, address & OFFSET_MASK
        kernel.cursor.set_data(self._words)
        work.bind_pipeline(kernel.pipeline, kernel.root)
        work.dispatch_compute(groups)
        if written:
            self._end_pass()
            for b in written.values():
                encoder.set_texture_state(b.chunk.texture, state.shader_resource)
        self.queued(groups[0] * groups[1] * groups[2])
