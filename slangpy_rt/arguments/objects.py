"""Structs of this package's Slang modules that an object of Python stands for: which object a parameter needs.

The objects themselves are structs' values as others are, and are bound as those; nothing here makes a ``Bound``.
"""

from __future__ import annotations

from typing import Any

from slangpy_rt.core.errors import BindError
from slangpy_rt.core.structs import fields_of
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words

# The first fields of these structs, by which a user's struct of the same name is told apart, and what to pass.
_SCENE = (["_spy_nodes", "_spy_blocks"], "spy.Scene(device, [mesh])")
_IMAGE = (
    ["texels", "size", "levels", "wrap", "filter"],
    "spy.Image(tensor), where the tensor holds elements of {element}",
)
_OBJECTS = {
    "Scene": (_SCENE, ""),
    **{
        f"{name}{suffix}": (_IMAGE, element)
        for name in ("Image", "ImageCube")
        for suffix, element in (("", "float4"), ("3", "float3"), ("2", "float2"), ("1", "float"))
    },
}


def check_object(where: str, type_: SlangType, value: Any) -> None:
    """Refuse a value for a struct such as ``Scene`` that has none of its fields, and say which object to pass.

    Raises
    ------
    BindError
        If the value is another one.
    """
    found = _OBJECTS.get(type_.name)
    if found is None:
        return
    (names, instead), element = found
    if [f.name for f in type_.fields[: len(names)]] != names:
        return
    fields = fields_of(value)
    if fields is None or (names[0] not in fields and "_type" not in fields):
        raise BindError(f"{where} is {in_words(value)}; pass {instead.format(element=element)}.")
