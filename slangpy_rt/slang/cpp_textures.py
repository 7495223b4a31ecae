"""Gives C++ textures and samplers over plain memory: ``shaders/_spy_textures.hpp``, in code that uses them.

The prelude of Slang 2026.12 has classes whose methods are virtual functions of the host's. They take four times as
long as code that the compiler sees, and lack methods that Slang writes calls to.
"""

from __future__ import annotations

import re

from slangpy_rt.slang.emitted import prelude_end
from slangpy_rt.slang.locate import shader_header

_USED = re.compile(rb"\b(?:(?:RW)?Texture\w+(?= ?<)|SamplerState\b)")


def with_textures(code: bytes) -> bytes:
    """Return C++ code with the header behind Slang's prelude, if it uses a texture or a sampler."""
    end = prelude_end(code, "cpp")
    if not _USED.search(code, end):
        return code
    headers = map(shader_header, ("_spy_half.hpp", "_spy_textures.hpp"))
    return b"".join((code[:end], b"\n", *headers, code[end:]))
