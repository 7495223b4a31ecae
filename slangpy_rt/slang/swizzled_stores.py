"""Assignments to several components of a vector, ``v.xz = w``, which C++ and CUDA have not.

Slang 2026.12 writes them as they are where an accessor returned the vector: ``t[i].xz = w``.
"""

from __future__ import annotations

import re

from slangpy_rt.slang.emitted import prelude_end

# Fields of structs have a number behind their names, so that these are components alone.
_STORE = re.compile(rb"^( *)(\S[^\n=]*)\.([xyzw]{2,4}) = ([^\n]*);$", re.M)


def with_swizzled_stores(code: bytes, form: str) -> bytes:
    """Return C++ or CUDA code in which each component is assigned by itself."""
    start = prelude_end(code, form)
    return code[:start] + _STORE.sub(_parts, code[start:])


def _parts(match: re.Match[bytes]) -> bytes:
    indent, vector, components, value = match.groups()
    stores = b" ".join(
        b"%b.%c = _spy_parts.%c;" % (vector, to, of) for to, of in zip(components, b"xyzw", strict=False)
    )
    return b"%b{ auto _spy_parts = %b; %b }" % (indent, value, stores)
