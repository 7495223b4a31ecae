"""Gives C++ textures and samplers over plain memory: ``shaders/_spy_textures.hpp``, in code that uses them.

The prelude of Slang 2026.12 has classes whose methods are virtual functions of the host's. They take four times as
long as code that the compiler sees, and lack methods that Slang writes calls to.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from slangpy_rt.slang.emitted import prelude_end
from slangpy_rt.slang.locate import shader_directory

_USED = re.compile(rb"\b(?:(?:RW)?Texture\w+(?= ?<)|SamplerState\b)")


def with_textures(code: bytes) -> bytes:
    """Return C++ code with the header behind Slang's prelude, if it uses a texture or a sampler."""
    end = prelude_end(code, "cpp")
    if not _USED.search(code, end):
        return code
    return code[:end] + _header() + code[end:]


@cache
def _header() -> bytes:
    return b"\n" + (Path(shader_directory()) / "_spy_textures.hpp").read_bytes()
