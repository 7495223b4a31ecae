"""Global ``ParameterBlock<S>`` and ``ConstantBuffer<S>`` of plain data, written as ``uniform S``.

Blocks with resources, with attributes or registers, inside of structs and in namespaces stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLOCK = re.compile(
    r"(?:(?:public|internal)\s+)?(?P<kind>(?:ParameterBlock|ConstantBuffer)\s*<\s*(?P<type>\w+)\s*>)\s*\w+\s*;"
)
_PLAIN = re.compile(r"(?:bool|u?int(?:8_t|16_t|64_t)?|half|float|double)[1-4]?(?:x[1-4])?")
_RESOURCE = re.compile(r"Buffer|Texture|Sampler|ParameterBlock|Image|AccelerationStructure|DescriptorHandle|Tensor")


def uniform_edits(text: str, code: str) -> Iterator[tuple[int, int, str]]:
    """Yield edits that make uniforms of blocks of plain data; every line keeps its number.

    Parameters
    ----------
    text : str
        The module's text.
    code : str
        The same without comments, strings and preprocessor lines, at equal offsets.

    Yields
    ------
    tuple of (int, int, str)
        The first and the last offset of a replaced part, and the new text.
    """
    for match in _BLOCK.finditer(code) if "ParameterBlock" in code or "ConstantBuffer" in code else ():
        before = code[: match.start()].rstrip()
        outermost = before.count("{") == before.count("}")
        if outermost and (not before or before[-1] in ";}") and not _holds_resource(code, match["type"]):
            start, end = match.span("kind")
            lines = "\n" * text.count("\n", start, end)
            yield start, end, f"uniform {match['type']}{lines} "


def _holds_resource(code: str, name: str, outer: tuple[str, ...] = ()) -> bool:
    """Return whether a type may hold a resource: one that the text does not declare may, unless it is Slang's own."""
    found = re.search(rf"\bstruct\s+{name}\b[^{{;]*{{([^{{}}]*(?:{{[^{{}}]*}}[^{{}}]*)*)}}", code)
    if found is None:
        return _PLAIN.fullmatch(name) is None
    if _RESOURCE.search(found[1]):
        return True
    declared = set(re.findall(r"\bstruct\s+(\w+)", code)) & set(re.findall(r"\w+", found[1]))
    return any(_holds_resource(code, each, (*outer, name)) for each in declared - {name, *outer})
