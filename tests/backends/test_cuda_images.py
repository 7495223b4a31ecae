"""Textures of CUDA without a GPU: a stand-in for the driver keeps texels, and NVRTC compiles the kernels."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.arguments.bind import bind
from slangpy_rt.arguments.bind_texture import bind_resource
from slangpy_rt.arguments.texture_packers import TexturePacker
from slangpy_rt.arguments.texture_samplers import pair_samplers
from slangpy_rt.backends.cpu.backend import CpuBackend
from slangpy_rt.backends.cpu.compile import find_compiler
from slangpy_rt.backends.cuda.backend import CudaBackend
from slangpy_rt.backends.cuda.compile import nvrtc_compile, nvrtc_version
from slangpy_rt.backends.images import ImageDesc, SamplerDesc
from slangpy_rt.calls.callee import Callee
from slangpy_rt.core.errors import BindError, CompileError, DeviceError, UnsupportedError
from slangpy_rt.core.formats import FORMATS
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import Param, SlangType
from slangpy_rt.slang.corrections.cuda_textures import with_cuda_textures
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.session import Session
from tests.conformance import test_texels, test_textures
from tests.cuda_driver import Driver, stand_in
from tests.depth import one_in

SHADERS = str(Path(__file__).resolve().parents[2] / "shaders")
ENTRY = "_spy_kernel"
LINEAR = SamplerDesc("linear", "linear", ("repeat", "repeat", "repeat"), "transparent", 1, 0.0, 0.0, 1000.0)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    with stand_in(monkeypatch) as fake:
        yield fake


def described(
    dims: str, size: tuple[int, int, int], layers: int = 1, array: bool = False, levels: int = 1
) -> ImageDesc:
    return ImageDesc(FORMATS["rg32_float"], dims, *size, layers, array, levels, True)


@pytest.mark.parametrize(
    "desc",
    [
        described("1d", (9, 1, 1)), described("2d", (6, 5, 1), levels=3), described("3d", (4, 5, 6), levels=2),
        described("cube", (4, 4, 1), 6), described("2d", (4, 3, 1), 5, True), described("cube", (4, 4, 1), 12, True),
    ],
)  # fmt: skip
def test_copies(driver: Driver, desc: ImageDesc) -> None:
    backend = CudaBackend()
    image = backend.create_image(desc)
    buffer, back = backend.alloc(1 << 16), backend.alloc(1 << 16)
    for level in range(desc.levels):
        for layer in range(desc.layers):
            texels = np.random.default_rng(level * 100 + layer).integers(0, 255, desc.nbytes(level), np.uint8)
            backend.upload(buffer, 32, texels.data)
            backend.copy_image(image, level, layer, buffer, 32, True)
            backend.copy_image(image, level, layer, back, 64, False)
            found = np.zeros_like(texels)
            backend.download(back, 64, found.data)
            np.testing.assert_array_equal(found, texels)
    assert len(driver.texels) == desc.levels * desc.layers
    backend.close()
    assert driver.wrong == []


def test_objects_are_kept_and_given_back(driver: Driver) -> None:
    backend = CudaBackend()
    image = backend.create_image(described("2d", (6, 5, 1), levels=3))
    handles = {
        backend.image_handle(image, *key)
        for key in ((None, False, None), (None, False, LINEAR), (1, False, LINEAR), (1, True, None), (0, True, None))
    }
    assert len(handles) == 5
    assert backend.image_handle(image, None, False, LINEAR) in handles
    assert driver.calls.count("cuTexObjectCreate") == 3 and driver.calls.count("cuSurfObjectCreate") == 2
    del image
    for _ in range(200):
        backend.create_image(described("2d", (6, 5, 1)))
    assert driver.calls.count("cuMipmappedArrayDestroy") >= 100
    assert driver.calls.count("cuTexObjectDestroy") == 3 and driver.calls.count("cuSurfObjectDestroy") == 2
    kept = backend.create_image(described("2d", (6, 5, 1)))
    backend.image_handle(kept, None, False, None)
    backend.close()
    with pytest.raises(DeviceError, match="closed"):
        backend.create_image(described("2d", (6, 5, 1)))
    with pytest.raises(DeviceError, match="closed"):
        backend.image_handle(kept, 0, True, None)
    assert driver.wrong == []


@pytest.mark.parametrize(
    ("format", "dims", "layers", "array", "facts"),
    [
        ("r8_unorm", "2d", 1, False, (1, 1)), ("rg32_float", "2d", 5, True, (2, 5)),
        ("rgba16_float", "1d", 2048, True, (4, 2048)), ("r32_sint", "cube", 6, False, (1, 1)),
        ("rgba32_uint", "cube", 18, True, (4, 3)),
    ],
)  # fmt: skip
def test_numbers_tell_channels_and_layers(
    driver: Driver, tmp_path: Path, format: str, dims: str, layers: int, array: bool, facts: tuple[int, int]
) -> None:
    """The kernels' text reads what the backend writes; here that text runs on the host, without a driver."""
    backend = CudaBackend()
    image = backend.create_image(
        ImageDesc(FORMATS[format], dims, 4, 1 if dims == "1d" else 4, 1, layers, array, 1, False)
    )
    first, second = (backend.image_handle(image, None, False, s) for s in (None, LINEAR))
    channels = facts[0]
    found = run_on_host(tmp_path, first, second)
    assert [line[:2] for line in found[:2]] == [[float(channels), float(facts[1])]] * 2
    assert found[0][2] != found[1][2]
    assert found[2] == [7.0, *[8.0, 9.0, 10.0][: channels - 1], *[0.0, 0.0, 1.0][channels - 1 :]]
    assert found[3] == [7.0, 8.0 if channels > 1 else 0.0]
    assert found[4] == [7.0]
    # The layers of -3, -0.4, 0.4, 0.6, 1.5, 2.5 and not a number, as Vulkan takes them.
    assert found[5] == [0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 0.0]
    backend.close()


HOST = r"""
#include <cmath>
#include <cstdio>
#include <algorithm>
using std::max;
#define __device__
#define __forceinline__ inline
typedef unsigned long long CUtexObject;
typedef unsigned int uint;
#define VECTORS(scalar) struct scalar##2 { scalar x, y; }; struct scalar##4 { scalar x, y, z, w; };
VECTORS(float) VECTORS(int) VECTORS(uint)
int __float2int_rn(float x) { return x == x ? (int)std::nearbyint(x) : 0; }
template<typename T> T texel(CUtexObject t);
template<> float texel(CUtexObject) { return 7; }
template<> float2 texel(CUtexObject) { return {7, 8}; }
template<> float4 texel(CUtexObject) { return {7, 8, 9, 10}; }
#define READ(name) template<typename T, typename... A> T name(CUtexObject t, A...) { return texel<T>(t); }
READ(tex1DLod) READ(tex2DLod) READ(tex3DLod) READ(texCubemapLod) READ(tex1DLayeredLod) READ(tex2DLayeredLod)
READ(texCubemapLayeredLod) READ(tex2Dfetch_int) READ(tex3Dfetch_int) READ(tex1DArrayfetch_int)
READ(tex2DArrayfetch_int)
#include "_spy_cuda_textures.hpp"
int main()
{
    _spy_Texture t = {FIRSTull}, u = {SECONDull};
    for (auto x : {t, u})
        printf("%u %u %llu\n", _spy_channels(x), _spy_layers(x), _spy_object(x));
    float4 a = tex2DLod<float4>(t, 0.5f, 0.5f, 0.0f);
    printf("%g %g %g %g\n", a.x, a.y, a.z, a.w);
    float2 b = tex2DLod<float2>(t, 0.5f, 0.5f, 0.0f);
    printf("%g %g\n%g\n", b.x, b.y, tex2DLod<float>(t, 0.5f, 0.5f, 0.0f));
    for (float x : {-3.0f, -0.4f, 0.4f, 0.6f, 1.5f, 2.5f, NAN})
        printf("%d ", _spy_layer(x));
}
"""


def run_on_host(folder: Path, first: int, second: int) -> list[list[float]]:
    command = find_compiler()
    if command is None:
        pytest.skip("no C++ compiler for the host")
    (folder / "host.cpp").write_text(HOST.replace("FIRST", str(first)).replace("SECOND", str(second)))
    subprocess.run([*command, "-std=c++17", f"-I{SHADERS}", "host.cpp", "-o", "host"], cwd=folder, check=True)
    text = subprocess.run([folder / "host"], check=True, capture_output=True, text=True).stdout
    return [[float(x) for x in line.split()] for line in text.splitlines()]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_compiled_code_uses_32_bits_of_a_texture_object(session: Session, arch: str) -> None:
    """So it does not matter what the driver has in the others, where the backend writes channels and layers."""

    def code(mask: str) -> bytes:
        read = f"tex2DLod<float4>(t & {mask}, x, x, 0)"
        text = f'extern "C" __global__ void kernel(unsigned long long t, float4 *r, float x) {{ *r = {read}; }}'
        return nvrtc_compile(text.encode(), arch)

    assert code("0xffffffffull") == code("0xffffffffffffffull")
    assert code("0xffffffffull") != code("0xffffull")


def test_layers_are_rounded_in_calls_of_any_form() -> None:
    end = b"#endif\n"
    text = b"int(a) tex2DLayeredLod<float4 >((t_0), (f(int(b), int(c))).x, ((at_0)).y, int(((at_0)).z), ((int(d))))"
    found = with_cuda_textures(end + b"CUtexObject t_0;\n" + text)
    assert found.endswith(text.replace(b"int(((at_0)).z)", b"_spy_layer(((at_0)).z)"))
    assert (
        with_cuda_textures(end + b"surf2Dread<float4 >((s_0), int(x));")
        == end + b"surf2Dread<float4 >((s_0), int(x));"
    )


def bound(device: spy.Device, type_: str, value: object) -> object:
    param = Param("p", SlangType("resource", type_))
    return bind_resource("f: argument 'p'", device, param, value)


def test_samplers_belong_to_textures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuBackend, "paired", True)
    with spy.Device("cpu") as device:
        texture = spy.Texture.from_numpy(device, np.zeros((2, 2, 4), np.float32))
        one, two = device.create_sampler("linear"), device.create_sampler("nearest")
        assert one.address == two.address == 0 and one.layout is not two.layout

        def paired(*values: object) -> list[SamplerDesc | None]:
            every = [
                bound(device, "SamplerState" if isinstance(v, (spy.Sampler, dict)) else "Texture2D<float4>", v)
                for v in values
            ]
            pair_samplers("f", device.backend, every)  # type: ignore[arg-type]
            packers = [b.packer for b in every]  # type: ignore[attr-defined]
            return [f.use.sampler for f in packers if isinstance(f, TexturePacker)]

        assert paired(texture) == [None]
        assert paired(texture, one) == [one.desc]
        assert paired(texture, texture, two, two) == [two.desc, two.desc]
        assert paired(texture, {"filter": "nearest"}) == [two.desc]
        assert paired(texture.with_sampler(one), one, texture.with_sampler(two), two) == [one.desc, two.desc]
        assert paired(texture.with_sampler(one), texture, two) == [one.desc, two.desc]
        for refused in (
            (texture, one, two), (texture.with_sampler(one), two), (one,),
            (texture.with_sampler(one), texture, one, two),
        ):  # fmt: skip
            with pytest.raises(UnsupportedError, match=r"holds its own sampler.*with_sampler\(p\)"):
                paired(*refused)


def test_halves_are_not_written_where_channels_have_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slang's CUDA would write 8 bytes of each texel of 16, at half of its place."""
    monkeypatch.setattr(CpuBackend, "stores", lambda self, format: format.dtype.itemsize == 4)
    with spy.Device("cpu") as device:
        texture = device.create_texture("rgba32_float", 2, 2)
        assert bound(device, "RWTexture2D<float4>", texture)
        with pytest.raises(
            BindError, match=r"'RWTexture2D<half4>' writes channels of 16 bits.*declare it with float"
        ):
            bound(device, "RWTexture2D<half4>", texture)


def test_sampled_textures_hold_their_samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuBackend, "paired", True)
    with spy.Device("cpu") as device:
        text = "import sampling; float4 f(SampledTexture a, SampledTexture b) { return a.sample(0, 0); }"
        function = spy.Module.load_from_source(device, "test_cuda_images_sampled", text).f
        scope = Callee(function).scope
        texture = spy.Texture.from_numpy(device, np.zeros((2, 2, 4), np.float32))
        one, plain = device.create_sampler("nearest"), device.create_sampler()
        type_ = function.overloads[0].params[0].type
        for values, wanted in (
            ((texture, texture.with_sampler(one)), [plain.desc, one.desc]),
            ((texture.with_sampler(one), texture), [one.desc, plain.desc]),
        ):
            every = [bind(f"f: argument '{n}'", scope, Param(n, type_), v) for n, v in zip("ab", values, strict=True)]
            pair_samplers("f", device.backend, every)
            packers = [leaf.packer for b in every for leaf in b.leaves]
            assert [f.use.sampler for f in packers if isinstance(f, TexturePacker)] == wanted


FUNCTIONS = {
    "look": ("Texture2D<float4> t, SamplerState s", "look(*_spy_call.v_t, *_spy_call.v_s, float2(x), x)"),
    "line": ("Texture1D<float4> t, SamplerState s", "line(*_spy_call.v_t, *_spy_call.v_s, x, x)"),
    "volume": ("Texture3D<float4> t, SamplerState s", "volume(*_spy_call.v_t, *_spy_call.v_s, float3(x), x)"),
    "layer": ("Texture2DArray<float4> t, SamplerState s", "layer(*_spy_call.v_t, *_spy_call.v_s, float3(x), x)"),
    "lines": ("Texture1DArray<float4> t, SamplerState s", "lines(*_spy_call.v_t, *_spy_call.v_s, float2(x), x)"),
    "pages": ("Texture2DArray<float4> t", "pages(*_spy_call.v_t)"),
    "held": ("Texture2DArray<float4> t, SamplerState s", "held(*_spy_call.v_t, *_spy_call.v_s, float3(x))"),
    "load": ("Texture2D<float4> t", "load(*_spy_call.v_t, int3(x))"),
    "plain": ("Texture2D<float4> t", "plain(*_spy_call.v_t, uint2(x))"),
    "whole": ("Texture2D<uint4> t", "whole(*_spy_call.v_t, int2(x))"),
    "voxel": ("Texture3D<float4> t", "voxel(*_spy_call.v_t, int4(x))"),
    "page": ("Texture2DArray<float4> t", "page(*_spy_call.v_t, int4(x))"),
    "size": ("Texture2D<float4> t", "size(*_spy_call.v_t)"),
    "put": ("RWTexture2D<float4> t", "put(*_spy_call.v_t, uint2(x), float4(x))"),
    "put_page": ("RWTexture2DArray<float4> t", "put_page(*_spy_call.v_t, uint3(x), float4(x))"),
    "put_voxel": ("RWTexture3D<float4> t", "put_voxel(*_spy_call.v_t, uint3(x), float4(x))"),
    "put_dot": ("RWTexture1D<float4> t", "put_dot(*_spy_call.v_t, uint(x), float4(x))"),
    "add": ("RWTexture2D<float4> t", "add(*_spy_call.v_t, uint2(x), float4(x))"),
    "own": ("Sampler2D<float4> t", "own(*_spy_call.v_t, float2(x))"),
    "cube": ("TextureCube<float4> t, SamplerState s", "cube(*_spy_call.v_t, *_spy_call.v_s, float3(x))"),
    "cubes": ("TextureCubeArray<float4> t, SamplerState s", "cubes(*_spy_call.v_t, *_spy_call.v_s, float4(x))"),
}


def kernel(fields: str, call: str) -> str:
    members = "".join(f"    {f.strip().rpartition(' ')[0]}.Handle v_{f[-1]};\n" for f in fields.split(","))
    return (
        f"import _spy_library;\nimport textures;\nstruct _spy_Call\n{{\n    float *a;\n{members}}}\n"
        '[shader("compute")]\n[numthreads(64, 1, 1)]\n'
        "void _spy_kernel(uint3 _spy_thread : SV_DispatchThreadID, uniform _spy_Call _spy_call)\n{\n"
        f"    float x = _spy_call.a[_spy_thread.x];\n    {call};\n}}\n"
    )


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    try:
        nvrtc_version()
    except UnsupportedError as error:
        pytest.skip(str(error))
    found = Session(Library(), Target("cuda", "", "value"), (SHADERS,))
    more = "float4 none(Texture2D<float4> t, SamplerState s, float2 at) { return t.Sample(s, at); }\n"
    more += (
        "struct Held { Texture2DArray<float4> t; SamplerState s; float4 at(float3 p)\n"
        "{ return t.SampleLevel(s, p * float(int(p.z)), 0); } };\n"
        "float4 held(Texture2DArray<float4> t, SamplerState s, float3 p)\n{ Held h; h.t = t; h.s = s; uint x, y, n;\n"
        "h.t.GetDimensions(x, y, n); return h.at(p) + n; }\n"
        "float4 branch(Texture2D<float4> t, SamplerState s, float2 at)\n"
        "{ float4 r = 2; if (at.x > 0) r = t.SampleLevel(s, at, 0, int2(1)); return r; }\n"
        "float4 gather(Texture2D<float4> t, SamplerState s, float2 at) { return t.GatherRed(s, at, int2(1)); }\n"
        "float4 slope(Texture2D<float4> t, SamplerState s, float2 at) { return t.SampleGrad(s, at, at, at); }\n"
        "float branch(float x) { float r = 1; if (x > 0) r = ddx(x); return r; }\n"
        "float3 three(Texture2D<float3> t, uint2 at) { return t[at]; }\n"
        "half2 halves(Texture2D<half2> t, uint2 at) { return t[at]; }\n"
        "uint2 written(RWTexture2D<float4> t) { uint w, h; t.GetDimensions(w, h); return uint2(w, h); }\n"
    )
    more += "float4 unset(Texture2D<float4> t) { Texture2D<float4> u; return u[uint2(0)] + t[uint2(0)]; }\n"
    shared = "float4 invert(float4 x)"
    texels = shared + test_texels.SLANG.partition(shared)[2]
    for name in ("look", "whole"):
        lines = [line for line in texels.splitlines() if not line.split("(")[0].endswith(f"4 {name}")]
        texels = "\n".join(lines)
    found.load_module("textures", "textures.slang", test_textures.SLANG + texels + "\n" + more)
    yield found
    found.close()


@pytest.mark.parametrize("name", one_in(6, FUNCTIONS))
def test_kernels_compile(session: Session, name: str) -> None:
    fields, call = FUNCTIONS[name]
    store = call if name.startswith(("put", "add")) else f"_spy_call.a[_spy_thread.x] = float(({call}).x)"
    compiled = session.compile(kernel(fields, store), f"cuda_{name}", "_spy_kernel")
    assert nvrtc_compile(compiled.code, "sm_90")
    assert [(f.offset, f.size) for f in compiled.layout[1:]] == [(8 * k, 8) for k in range(1, len(compiled.layout))]


@pytest.mark.parametrize(
    ("fields", "call", "words"),
    [
        ("Texture2D<float4> t, SamplerState s", "none(*_spy_call.v_t, *_spy_call.v_s, float2(x))", "Use SampleLevel"),
        ("Texture1D<float4> t", "dot(*_spy_call.v_t, int2(x))", "Texture2D of height 1"),
        ("Texture2D<float4> t", "unset(*_spy_call.v_t)", "a texture that nothing has set"),
        (
            "Texture2D<float4> t, SamplerState s", "moved(*_spy_call.v_t, *_spy_call.v_s, float2(x))",
            "SampleLevel in a form",
        ),
        (
            "Texture2D<float4> t, SamplerState s", "branch(*_spy_call.v_t, *_spy_call.v_s, float2(x))",
            "SampleLevel in a form",
        ),
        (
            "Texture2D<float4> t, SamplerState s", "gather(*_spy_call.v_t, *_spy_call.v_s, float2(x))",
            "Gather in a form",
        ),
        (
            "Texture2D<float4> t, SamplerState s", "slope(*_spy_call.v_t, *_spy_call.v_s, float2(x))",
            "SampleGrad in a form",
        ),
        ("Texture2D<float3> t", "three(*_spy_call.v_t, uint2(x))", "texels of type 'float3' in a form"),
        ("Texture2D<half2> t", "halves(*_spy_call.v_t, uint2(x))", "texels of type 'half2' in a form"),
        ("Texture2D<float4> t", "shifted(*_spy_call.v_t, int3(x))", "Load in a form"),
        ("Texture2D<float4> t", "sizes(*_spy_call.v_t, uint(x))", "GetDimensions with a level"),
        ("RWTexture2D<float4> t", "written(*_spy_call.v_t)", "GetDimensions of a texture that it writes"),
    ],
)  # fmt: skip
def test_what_cuda_lacks(session: Session, fields: str, call: str, words: str) -> None:
    # Of kernels behind the first one with textures, Slang says nothing.
    session.compile(kernel("Texture2D<float4> t", "_spy_call.a[0] = load(*_spy_call.v_t, int3(0)).x"), "first", ENTRY)
    with pytest.raises(UnsupportedError, match=words):
        session.compile(kernel(fields, f"_spy_call.a[0] = ({call}).x"), "cuda_lacks", ENTRY)


def test_textures_leave_other_kernels_refused(session: Session) -> None:
    """Slang writes an empty branch for ddx in a session that has written a kernel with textures."""
    session.compile(kernel("Texture2D<float4> t", "_spy_call.a[0] = load(*_spy_call.v_t, int3(0)).x"), "first", ENTRY)
    text = kernel("Texture2D<float4> t", "_spy_call.a[0] = branch(x)").replace(
        "Texture2D<float4>.Handle v_t", "int v"
    )
    with pytest.raises(CompileError, match="ddx"):
        session.compile(text, "behind", ENTRY)
