"""The text of the function that a picture's pixels call: it finds the point that a pixel shows, and shades it.

What functions cannot draw is refused here. Nothing here compiles or runs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from slangpy_rt.calls.spelling import Spelling
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import FunctionSig, SlangType

COLORS = ("float", "float2", "float3", "float4")
_FLOATS = ("half", "float", "double")
# The user's functions are called by one with no names but ours, which their parameters could hide.
_TEXT = """import _spy_raster;
{imports}
{differentiable}
{color} _spy_shaded({declared})
{{
    return {shade}(_spy_v{names});
}}
{differentiable}
{color} _spy_pointOf(no_diff int3 _spy_pixels, Tensor<uint64_t, 3> _spy_words, Tensor<int, 2> _spy_faces,
    {arrays}{parameters})
{{
    let _spy_f = _spy_face(_spy_faces, _spy_words[_spy_pixels]);
    let _spy_p = _spy_pixels.z;
    let _spy_w = _spy_barycentrics(_spy_0[_spy_p, _spy_f.x], _spy_0[_spy_p, _spy_f.y], _spy_0[_spy_p, _spy_f.z],
        _spy_pixels.xy, int2(_spy_words.shape[2], _spy_words.shape[1]));
{slopes}    {vary} _spy_v;
{mixed}
    return _spy_shaded(_spy_v{names});
}}
{derivative}{color} _spy_pixel(no_diff int3 _spy_pixels, Tensor<uint64_t, 3> _spy_words, Tensor<int, 2> _spy_faces,
    no_diff {color} _spy_background, {arrays}{parameters})
{{
    if (_spy_words[_spy_pixels] == _spy_EMPTY)
        return _spy_background;
    return _spy_pointOf(_spy_pixels, _spy_words, _spy_faces, {passed_arrays}{names});
}}
"""
# Slang's own derivative of a branch keeps the arguments of what is called in it, which textures cannot be on Vulkan.
_BACKWARD = """void _spy_addGradients(int3 _spy_pixels, Tensor<uint64_t, 3> _spy_words, Tensor<int, 2> _spy_faces,
    {color} _spy_background, {arrays}{pairs}, {color} _spy_gradient)
{{
    if (_spy_words[_spy_pixels] != _spy_EMPTY)
    {{
        bwd_diff(_spy_pointOf)(_spy_pixels, _spy_words, _spy_faces, {passed_arrays}{names}, _spy_gradient);
        return;
    }}
{nothing}}}
"""
_SLOPES = """    let _spy_s = _spy_slopes(_spy_0[_spy_p, _spy_f.x], _spy_0[_spy_p, _spy_f.y],
        _spy_0[_spy_p, _spy_f.z], _spy_pixels.xy, int2(_spy_words.shape[2], _spy_words.shape[1]));
"""


class Leaf(NamedTuple):
    """A number, vector or matrix of the struct that corners have, and where in the struct it is."""

    path: tuple[str, ...]
    type: SlangType

    @property
    def is_mixed(self) -> bool:
        """Whether its values between corners are mixed; others are those of a triangle's first corner."""
        return self.type.scalar in _FLOATS


def leaves_of(where: str, vary: SlangType) -> tuple[Leaf, ...]:
    """Return the leaves of the struct that corners have, the position first.

    Raises
    ------
    BindError
        If it is no struct, has no ``float4 position``, or a field that has no value between corners.
    """
    if vary.kind != "struct":
        raise BindError(
            f"{where}: it returns {vary.name}; a struct with the field 'float4 position', in clip coordinates, was "
            "expected."
        )
    found = list(_leaves(where, vary, ()))
    position = [leaf for leaf in found if leaf.path == ("position",) and leaf.type.name == "float4"]
    if not position:
        raise BindError(
            f"{where}: '{vary.name}' has no field 'float4 position'; it says where a corner is, in clip coordinates."
        )
    return (*position, *(leaf for leaf in found if leaf is not position[0]))


def is_fragment(given: SlangType, vary: SlangType) -> bool:
    """Return whether a type is that of points with slopes: ``Fragment<V>`` of a struct that corners have."""
    return given.name == f"Fragment<{vary.name}>"


def _leaves(where: str, type_: SlangType, path: tuple[str, ...]) -> Iterator[Leaf]:
    for field in type_.fields:
        inner = (*path, field.name)
        if field.type.kind == "struct":
            yield from _leaves(where, field.type, inner)
        elif field.type.kind in ("scalar", "vector", "matrix"):
            yield Leaf(inner, field.type)
        else:
            raise BindError(
                f"{where}: the field '{'.'.join(inner)}' is {field.type.name}, of which points between corners have "
                "no values; numbers, vectors, matrices and structs of these have them."
            )


def pixel_text(
    spelling: Spelling,
    modules: Iterable[str],
    shade: FunctionSig,
    corner: SlangType,
    leaves: tuple[Leaf, ...],
    active: Container[str],
) -> str:
    """Return the text for a function that shades points of triangles.

    Parameters
    ----------
    spelling : Spelling
        Of the user's module.
    modules : iterable of str
        Its name, and those of the modules that it imports, which declare types of parameters.
    shade : FunctionSig
        The function, whose first parameter is the struct that corners have, or a Fragment of it.
    corner : SlangType
        The struct.
    leaves : tuple of Leaf
        Of the struct.
    active : container of str
        The names of the parameters that derivatives have as pairs.
    """
    vary, *others = shade.params
    own = f"{shade.owner}.{shade.name}" if shade.owner else shade.name
    kinds = [("no_diff " if p.no_diff else "") + spelling.type(p.type) for p in others]
    arrays = []
    for k, leaf in enumerate(leaves):
        array = "DiffTensor" if shade.differentiable and leaf.is_mixed else "Tensor"
        arrays.append(f"{array}<{spelling.type(leaf.type)}, 2> _spy_{k}")
    # The user's names could be those of types that the text needs.
    names = [f"_spy_a{k}" for k in range(len(others))]
    struct = spelling.type(vary.type)
    slopes = is_fragment(vary.type, corner)
    parts = {
        "imports": "\n".join(f"import {name};" for name in modules),
        "differentiable": "[Differentiable]" if shade.differentiable else "",
        "color": shade.returns.name,
        "declared": ", ".join([f"{struct} _spy_v", *map(" ".join, zip(kinds, names, strict=True))]),
        "shade": spelling.function(str(shade), own, shade.returns.name),
        "arrays": ", ".join(arrays),
        "passed_arrays": ", ".join(f"_spy_{k}" for k in range(len(leaves))),
        "parameters": "".join(f", {kind} {name}" for kind, name in zip(kinds, names, strict=True)),
        "pairs": "".join(
            f", inout DifferentialPair<{kind}> {name}"
            if p.name in active
            else f", {kind.removeprefix('no_diff ')} {name}"
            for kind, name, p in zip(kinds, names, others, strict=True)
        ),
        # Nobody else sets the gradients of a pixel without a triangle.
        "nothing": "".join(
            f"    {name} = diffPair({name}.p);\n" for name, p in zip(names, others, strict=True) if p.name in active
        ),
        "slopes": _SLOPES if slopes else "",
        "vary": struct,
        "mixed": "\n".join(line for k, leaf in enumerate(leaves) for line in _mixed(k, leaf, slopes)),
        "names": "".join(f", {name}" for name in names),
    }
    derivative = (
        _BACKWARD.format(**parts) + "[BackwardDerivative(_spy_addGradients)]\n[Differentiable]\n"
        if shade.differentiable
        else ""
    )
    return spelling.respelled(_TEXT.format(derivative=derivative, **parts))


def _mixed(k: int, leaf: Leaf, slopes: bool) -> Iterator[str]:
    """Yield the lines that set a field, and with slopes also how it changes to the right and down."""
    for part, weights in (
        (("at", "_spy_w"), ("dx", "_spy_s.dx"), ("dy", "_spy_s.dy")) if slopes else (("", "_spy_w"),)
    ):
        target = ".".join(("_spy_v", *([part] if part else []), *leaf.path))
        if leaf.is_mixed:
            terms = (f"_spy_{k}[_spy_p, _spy_f.{c}] * {leaf.type.scalar}({weights}.{c})" for c in "xyz")
            yield f"    {target} = {' + '.join(terms)};"
        elif part in ("", "at"):
            yield f"    {target} = _spy_{k}[_spy_p, _spy_f.x];"
        else:
            yield f"    {target} = {leaf.type.name}(0);"
