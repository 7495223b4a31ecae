"""Gives CUDA text what Slang 2026.12 leaves out of textures: alpha, layers and refusals. Nothing is compiled here.

``shaders/_spy_cuda_textures.hpp`` has functions for a texture that knows its channels and layers. Slang's text calls
CUDA's own, which read 0 for an alpha that is not there, and takes the layer below a number between two.
"""

from __future__ import annotations

import re

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.emission import Emission
from slangpy_rt.slang.emitted import prelude_end
from slangpy_rt.slang.locate import shader_header

_TEXTURE = re.compile(rb"\bCUtexObject\b")
# A read whose last argument but the level is the number of a layer: ``tex2DLayeredLod<float4 >(``.
_LAYERED = re.compile(rb"\btex\w+Layered\w+<[^<>()]*>(?=\()")
# ``{uint32_t w, h; asm("txq...;" : ... : "l"((t_0))); *((&w_0)) = w; ...;}``, on one line.
_QUERY = re.compile(rb'^(.*\basm\("txq\..*"l"\()\((.+)\)\)\); (\*.*)$', re.M)
_LAYERS = re.compile(rb"/\* txq\.array_size not available in CUDA \*/ (\*\(\(.+?\)\)) = 0;")
# A read of other texels than those of the header: ``tex2DLod<__half4 >(``.
_OTHER_TEXELS = re.compile(rb"\btex\d?[A-Z]\w+<(?!(?:float|int|uint)[24]? *>)(?:__)?(\w+)")
_LEVELS = b"/* txq.num_mipmap_levels not available in CUDA */"

NO_METHOD = (
    "the function uses {used} in a form that Slang's CUDA lacks. Of textures it has SampleLevel and Load without "
    "offsets, and GetDimensions without levels where they are read, of texels that are float, int or uint or vectors "
    "of 2 or 4 of these; texture.mip(k) is one level by itself."
)


def with_cuda_textures(code: bytes) -> bytes:
    """Return CUDA text in which textures have all channels, and layers are those that Vulkan takes.

    Text without textures is returned as it is.
    """
    end = prelude_end(code, "cuda")
    if not _TEXTURE.search(code, end):
        return code
    body = _QUERY.sub(_query, _with_layers(code[end:]))
    return b"".join((code[:end], b"\n", shader_header("_spy_cuda_textures.hpp"), _TEXTURE.sub(b"_spy_Texture", body)))


def lacking_method(code: bytes) -> str:
    """Return what a kernel calls of a texture that Slang's CUDA text does not do; empty if there is nothing.

    Methods without any text are found by ``cuda_methods``.
    """
    body = code[prelude_end(code, "cuda") :]
    if b"tex2Dgather<" in body:
        return "Gather"  # Slang leaves its offset out without a trace
    if texels := _OTHER_TEXELS.search(body):
        return f"texels of type '{texels[1].decode()}'"
    if _LEVELS in body:
        return "GetDimensions with a level or the number of levels"
    for query in _QUERY.finditer(body):
        # The last name in ``t_0`` or ``(*this_0).t_0``.
        name = re.findall(rb"\w+", query[2])[-1]
        if re.search(rb"\bCUsurfObject (?:\* )?%b\b" % name, body):
            return "GetDimensions of a texture that it writes"
    return ""


def _query(match: re.Match[bytes]) -> bytes:
    """Return a statement that asks for a texture's size, with its layers: neither is a texture object's business."""
    head, texture, rest = match.groups()
    return b"%b_spy_object(%b))); %b" % (head, texture, _LAYERS.sub(rb"\1 = _spy_layers(%b);" % texture, rest))


def _with_layers(body: bytes) -> bytes:
    """Return text in which ``int(`` around the number of a layer is ``_spy_layer(``."""
    found, done = [], 0
    for match in _LAYERED.finditer(body):
        depth = 0
        for at in range(match.end(), len(body)):
            depth += {40: 1, 41: -1}.get(body[at], 0)  # ( and )
            if depth == 0:
                break
            if depth == 1 and body.startswith(b", int(", at):
                found += [body[done : at + 2], b"_spy_layer"]
                done = at + 5
    return b"".join([*found, body[done:]])


def _repaired(code: bytes, emission: Emission) -> bytes:
    return with_cuda_textures(code)


def refuse_methods(code: bytes, emission: Emission) -> bytes:
    """Return CUDA code as it is; raise UnsupportedError if it calls what ``lacking_method`` finds."""
    if used := lacking_method(code):
        raise UnsupportedError(NO_METHOD.format(used=used))
    return code


CUDA_LAYERS = Correction(
    name="layers of textures in CUDA",
    why="Slang takes the layer below a number between two, where other targets take the nearest.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cuda",),
    applies=_repaired,
    canary=Canary(
        text="""
void canary(uniform Texture2DArray<float4> t, uniform SamplerState s, uniform float *p)
{
    p[0] = t.SampleLevel(s, float3(p[1], p[2], p[3]), 0).w;
}
""",
        wrong=rb"tex2DLayeredLod<float4 *>\([^;\n]*, int\(",
        right=rb"tex2DLayeredLod<float4 *>\([^;\n]*, int\((?:rint|round)",
    ),
)
CUDA_SIZES = Correction(
    name="sizes of layered textures in CUDA",
    why="GetDimensions gives 0 layers.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cuda",),
    applies=_repaired,
    canary=Canary(
        text="""
void canary(uniform Texture2DArray<float4> t, uniform uint *p)
{
    uint width, height, layers;
    t.GetDimensions(width, height, layers);
    p[0] = layers;
}
""",
        wrong=rb"array_size not available in CUDA",
        right=rb"error\[E\d+\]|txq\.array_size\.",
    ),
)
CUDA_OFFSETS = Correction(
    name="offsets of Gather in CUDA",
    why="Slang leaves the offset of Gather out without a message; refused.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cuda",),
    applies=refuse_methods,
    canary=Canary(
        text="""
void canary(uniform Texture2D<float4> t, uniform SamplerState s, uniform float4 *p)
{
    p[0] = t.Gather(s, p[1].xy, int2(1, 1));
}
""",
        wrong=rb"tex2Dgather<float4 *>\(\(t_0\), \(\(\w+\)\)\.x, \(\(\w+\)\)\.y, 0\)",
        right=rb"error\[E\d+\]",
    ),
)
CUDA_LEVELS = Correction(
    name="numbers of levels in CUDA",
    why="GetDimensions gives 0 levels; refused.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cuda",),
    applies=refuse_methods,
    canary=Canary(
        text="""
void canary(uniform Texture2D<float4> t, uniform uint *p)
{
    uint width, height, levels;
    t.GetDimensions(1, width, height, levels);
    p[0] = levels;
}
""",
        wrong=rb"num_mipmap_levels not available in CUDA",
        right=rb"error\[E\d+\]|txq\.num_mipmap_levels\.",
    ),
)
