"""Kernels for D3D12 and Metal as text: what they declare, and what is refused. No device is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slangpy_rt_codegen import block_fields, emit

import slangpy_rt as spy
from slangpy_rt.backends.base import Kernel
from slangpy_rt.backends.null import NullBackend
from slangpy_rt.backends.rhi.memory import HANDLE_SHIFT, OFFSET_MASK, pack_address
from slangpy_rt.backends.rhi.queue import Submissions
from slangpy_rt.core.dtypes import NUMPY_OF
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.target import Caps, KernelInfo, Target
from slangpy_rt.core.types import LayoutField
from slangpy_rt.slang.emitted import has_no_body, reads_bindings, uses_pointers
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.session import Session
from slangpy_rt.slang.sessions import new_session
from tests.depth import sampled
from tests.golden.test_golden import SLANG, SPECS

HLSL, METAL = Target("hlsl", "sm_6_6", "handle"), Target("metal", "", "pointer")
CALLS = {name: spec for name, spec in SPECS.items() if spec.entry in ("value", "pointer")}
SIZES = {"int": 4, "uint": 4, "float": 4, "double": 8, "int64_t": 8, "uint64_t": 8}

MODULE = """
import slangpy_rt;
float add(float a, float b) { return a + b; }
half3 turn(half3 v) { return v.zxy; }
uint16_t count(uint16_t n) { return uint16_t(n + 1); }
float minus(int16_t n, int16_t3 s, float3 v, float3x3 m, uint u)
{
    return int(-n) + float3(-s).x + (-v).y + (-m)[1].z + (-u) - (-v[n] - 1.0) + (-(n + n) < s.y ? -2 : 3);
}
double halve(double x) { return x / 2; }
int64_t far(int64_t n) { return n - 1; }
bool both(bool a, bool b) { return a && b; }
bool3 none(bool3 mask) { return !mask; }
struct Ray { float3 origin; bool hit; half weight; double far; };
Ray advance(Ray ray, float by) { ray.origin += by; ray.hit = !ray.hit; return ray; }
float blur(Tensor<float, 2> image, int i) { return image[i, 0] + image[int2(0, i)]; }
void fill(RWTensor<float3, 1> to, int i, float3 value) { to[i] = value; }
uint words(ByteAddressBuffer bytes, RWStructuredBuffer<float> to, int i) { to[i] = 1; return bytes.Load(4 * i); }
void say(float x) { printf("%f\\n", x); }
[Differentiable] float mul(float a, float b) { return a * b; }
[Differentiable] double mul2(double a, double b) { return a * b; }
[Differentiable] half mul3(half a, half b) { return a * b; }
[Differentiable] float pick(DiffTensor<float, 1> t, int i) { return t[i] * t[i]; }
float at(float *p, int i) { return p[i]; }
struct Holder { float *p; int n; };
float held(Holder holder, int i) { return holder.p[i]; }
uint8_t byte(uint8_t x) { return x; }
struct Tagged { float x; uint8_t tag; };
float untag(Tagged t) { return t.x; }
float sneaky(uint64_t address, int i) { return ((float *)address)[i]; }
float through(float *p, int i) { return p[i]; }
float inner(float x) { uint8_t n = uint8_t(x); n += uint8_t(200); return n; }
float sneakier(uint64_t address, int i) { return through((float *)address, i); }
"""


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    """A compiler for each language, with the functions of the golden kernels at hand."""
    opened = {target.format: new_session(target, (shader_directory(),), ()) for target in (HLSL, METAL)}
    for session in opened.values():
        session.load_module("golden", "golden.slang", SLANG)
    yield opened
    for session in opened.values():
        session.close()


def check_hlsl(code: str) -> None:
    """What every kernel for D3D12 has, and what none may have."""
    assert "Ptr<" not in code
    assert not re.search(r"\bu?int8_t\b", code), "HLSL has no 8-bit types"
    # One constant buffer is bound, which says where the argument block is; all else goes by the heap of descriptors.
    assert re.findall(r"register\((\w+)\)", code) == ["b0"]
    assert re.search(r"cbuffer entryPointParams_spy_block_0 : register\(b0\)", code)
    assert re.search(r"\bByteAddressBuffer\(ResourceDescriptorHeap\[", code)
    assert re.search(r'\[shader\("compute"\)\]\[numthreads\(\d+, \d+, \d+\)\]\nvoid _spy_kernel\(', code)
    assert not has_no_body(code.encode(), "hlsl")


def check_metal(code: str) -> None:
    """The same of kernels for Metal."""
    assert "Ptr<" not in code
    assert len(re.findall(r"^\[\[kernel\]\] void _spy_kernel\(", code, re.M)) == 1
    assert re.search(r"_spy_Call_\w+ device\* _spy_block_\w+;", code)
    assert "[[buffer(0)]]" in code and "[[buffer(1)]]" not in code
    assert not has_no_body(code.encode(), "hlsl")


@sampled(3)
@pytest.mark.parametrize("name", CALLS)
def test_golden_kernels_in_hlsl(sessions: dict[str, Session], name: str) -> None:
    spec = replace(CALLS[name], entry="handle")
    compiled = sessions["hlsl"].compile(emit(spec), name, "_spy_kernel")
    assert compiled.layout == tuple(LayoutField(f.name, f.offset, f.size) for f in block_fields(spec))
    code = compiled.code.decode()
    check_hlsl(code)
    # Where buffers are read or written, lanes may have different ones.
    assert "RWByteAddressBuffer(ResourceDescriptorHeap[NonUniformResourceIndex(" in code or name == "choose_values"


@sampled(3)
@pytest.mark.parametrize("name", CALLS)
def test_blocks_are_read_where_fields_lie(sessions: dict[str, Session], name: str) -> None:
    spec = replace(CALLS[name], entry="handle")
    code = sessions["hlsl"].compile(emit(spec), name, "_spy_kernel").code.decode()
    body = re.search(r"^_spy_Call_0 _spy_fetch_0\(\)\n\{(.*?)^\}", code, re.M | re.S)
    assert body is not None
    (at,) = re.findall(r"uint (\w+) = entryPointParams_spy_block_0\.at_0\.y;", body[1])
    # Slang reads a struct scalar by scalar; without a type a word is meant.
    reads = re.findall(rf"\.Load(?:<(\w+) >)?\({at}(?: \+ (\d+)U)?\)", body[1])
    assert len(reads) == body[1].count("Load")
    found = [(SIZES[type_ or "uint"], int(offset or 0)) for type_, offset in reads]
    wanted = []
    for field in block_fields(spec):
        size = field.size // int(field.code[:-1])
        wanted += [(size, offset) for offset in range(field.offset, field.offset + field.size, size)]
    assert found == wanted
    # D3D12 has loads of a type at multiples of its size alone.
    assert all(offset % size == 0 for size, offset in found)


@sampled(3)
@pytest.mark.parametrize("name", CALLS)
def test_golden_kernels_in_metal(sessions: dict[str, Session], name: str) -> None:
    spec = replace(CALLS[name], entry="pointer")
    if any(o.scalar == "double" for o in spec.leaves):
        pytest.skip("MSL has no double")
    compiled = sessions["metal"].compile(emit(spec), name, "_spy_kernel")
    assert compiled.layout == tuple(LayoutField(f.name, f.offset, f.size) for f in block_fields(spec))
    check_metal(compiled.code.decode())


def test_metal_adds_floats_atomically_and_refuses_halves(sessions: dict[str, Session]) -> None:
    text = """
import slangpy_rt;
struct _spy_Call { S *a; };
[shader("compute")] [numthreads(64, 1, 1)]
void _spy_kernel(uint3 t : SV_DispatchThreadID, uniform _spy_Call *_spy_block)
{ S._spy_scatter(_spy_block.a, S(t.x)); }
"""
    code = sessions["metal"].compile(text.replace("S", "float").replace("floatV_", "SV_"), "adds", "_spy_kernel").code
    assert re.search(rb"atomic_fetch_add_explicit\(+atomic_float device\*\)", code)
    with pytest.raises(UnsupportedError, match="uses _spy_addToPartOfWord, for which Slang writes nothing"):
        sessions["metal"].compile(text.replace("S", "half").replace("halfV_", "SV_"), "adds", "_spy_kernel")


class Written:
    """A device without pointers that keeps the text of its kernels and runs nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, debug: bool = False) -> None:
        self.codes: list[str] = []
        self.device = spy.Device("null", debug=debug)
        backend = self.device.backend
        assert isinstance(backend, NullBackend)
        scalars = frozenset(NUMPY_OF) - {"int8_t", "uint8_t"}
        monkeypatch.setattr(backend, "target", HLSL)
        monkeypatch.setattr(self.device, "caps", Caps(backend.caps.max_groups, scalars, frozenset({"group_shared"})))
        monkeypatch.setattr(backend, "load", self.load)
        self.module = spy.Module.load_from_source(self.device, "test_hlsl", MODULE)

    def load(self, binary: bytes, info: KernelInfo) -> Kernel:
        self.codes.append(binary.decode())
        return Kernel(info)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    made = Written(monkeypatch)
    yield made
    made.device.close()


def floats(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def seed(written: Written, shape: tuple[int, ...], dtype: str) -> spy.Tensor:
    """A result that has a gradient."""
    gradient = spy.Tensor.zeros(written.device, shape, dtype)
    return spy.Tensor.zeros(written.device, shape, dtype).with_grads(grad_in=gradient)


# Function, arguments, and what the text has to have.
CALLED: list[tuple[str, tuple[Any, ...], list[str]]] = [
    ("add", (floats(64), floats(64)), [r"Load<float4 >", r"\.Store\("]),
    ("add", (floats(3, 5)[:, ::-1], floats(5)), [r"Load<float >"]),
    ("turn", (np.ones((7, 3), np.float16),), [r"InterlockedAnd", r"InterlockedOr", r"\.Load\("]),
    ("count", (np.ones(64, np.uint16),), [r"uint16_t"]),
    ("halve", (np.ones(7),), [r"Load<double >"]),
    ("far", (np.ones(7, np.int64),), [r"Load<int64_t >"]),
    ("both", (np.ones(64, bool), np.ones(64, bool)), [r"loadBytes_0", r"storeBytes_0"]),
    ("both", (np.ones((3, 5), bool)[:, ::-1], True), [r"loadByte_0", r"InterlockedAnd", r"InterlockedOr"]),
    ("none", (np.ones((7, 3), bool),), [r"loadByte_0", r"storeByte_0"]),
    ("blur", (floats(4, 4), np.arange(4, dtype=np.int32)), [r"Load<float >"]),
    ("words", (floats(8), floats(8), np.arange(8, dtype=np.int32)), [r"\.Load\(", r"\.Store\("]),
    ("say", (floats(4),), [r"InterlockedAdd"]),
    (
        "minus",
        (np.ones(64, np.int16), np.ones((64, 3), np.int16), floats(64, 3), floats(64, 3, 3), np.ones(64, np.uint32)),
        [r"_spy_negative\(n_0\)", r"_spy_negative\(s_0\)", r"_spy_negative\(v_0\)"],
    ),
]


@sampled(4)
@pytest.mark.parametrize(("name", "args", "wanted"), CALLED)
def test_calls_in_hlsl(written: Written, name: str, args: tuple[Any, ...], wanted: list[str]) -> None:
    written.module[name](*args)
    check_hlsl(written.codes[-1])
    for pattern in wanted:
        assert re.search(pattern, written.codes[-1]), pattern


def advance(written: Written) -> None:
    """Structs of all there is in them."""
    rays = np.zeros(5, np.dtype([("origin", "f4", 3), ("hit", "?"), ("weight", "f2"), ("far", "f8")], align=True))
    written.module.advance(rays, 1.0)


def fill(written: Written) -> None:
    """A whole array that is written."""
    to = spy.Tensor.zeros(written.device, (5,), "float3")
    written.module.fill(to, np.arange(5, dtype=np.int32), floats(5, 3))


def reduce(written: Written, name: str, dtype: str) -> None:
    """A gradient that all threads add to."""
    a = spy.Tensor.zeros(written.device, (4, 64), dtype).with_grads()
    b = spy.Tensor.zeros(written.device, (), dtype).with_grads()
    written.module[name].bwds(a, b, _result=seed(written, (4, 64), dtype))


def scatter(written: Written) -> None:
    """A gradient that threads add to where an index says."""
    t = spy.Tensor.zeros(written.device, (9,), "float").with_grads()
    written.module.pick.bwds(t, np.arange(5, dtype=np.int32), _result=seed(written, (5,), "float"))


def check_waves(code: str) -> None:
    """The lane that adds a sum is told by a reduction, as the sum is, and no && parts the lanes before it."""
    assert "WaveIsFirstLane" not in code
    assert "WaveActiveMax(" in code
    assert not re.search(r"&&.*WaveActive|WaveActive.*&&", code)


def test_structs_and_whole_arrays_in_hlsl(written: Written) -> None:
    advance(written)
    check_hlsl(written.codes[-1])
    assert {"_spy_loadByte_0", "_spy_storeByte_0"} <= set(
        re.findall(r"\b_spy_(?:load|store)Byte_0\b", written.codes[-1])
    )
    fill(written)
    check_hlsl(written.codes[-1])


def test_wide_accesses_in_hlsl(written: Written) -> None:
    written.module.add(floats(64), floats(64))
    code = written.codes[-1]
    # Four floats in one access each, with an alignment that DXC keeps: one load for two arguments, and one store.
    assert code.count("Load<float4 >(") == 1 and len(re.findall(r"= _spy_aligned_0\(", code)) == 2
    # The upper half of an address, which says the buffer, is no part of a sum.
    assert re.search(r"bits_\d+ & 18446744069414584320ULL\) \| uint64_t\(uint\(bits_\d+\) \+ uint\(", code)


@sampled(3)
@pytest.mark.parametrize(
    ("name", "dtype", "exchange"),
    [
        ("mul", "float", "InterlockedCompareExchange("),
        ("mul3", "half", "InterlockedCompareExchange("),
        ("mul2", "double", "InterlockedCompareExchange64("),
    ],
)
def test_gradients_that_many_add_to_in_hlsl(written: Written, name: str, dtype: str, exchange: str) -> None:
    reduce(written, name, dtype)
    # Halves have a second kernel, which adds their sums to the gradient; either may be loaded first.
    for code in written.codes:
        check_hlsl(code)
    (code,) = [code for code in written.codes if exchange in code]
    # No wave tells which it is in its group: each adds to memory what its lanes have.
    assert "WaveActiveSum" in code
    check_waves(written.codes[-1])


def test_scattered_gradients_in_hlsl(written: Written) -> None:
    scatter(written)
    check_hlsl(written.codes[-1])
    assert "InterlockedCompareExchange(" in written.codes[-1]
    check_waves(written.codes[-1])


def test_a_debug_device_checks_bounds_in_hlsl(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(monkeypatch, debug=True)
    written.module.blur(floats(4, 4), np.arange(4, dtype=np.int32))
    check_hlsl(written.codes[-1])
    assert "InterlockedAdd" in written.codes[-1]
    written.device.close()


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("held", ({"p": 4096, "n": 1}, 0), "argument 'holder.p' is a pointer, which null"),
        ("at", (4096, 0), "argument 'p' is a pointer, which null"),
        ("byte", (np.ones(4, np.uint8),), "argument 'x': null.* has no 'uint8_t' in memory"),
        ("untag", (np.zeros(4, np.dtype([("x", "f4"), ("tag", "u1")], align=True)),), "no 'uint8_t' in memory"),
        ("sneaky", (np.ones(4, np.uint64), 0), r"the function uses float\*; this device has no pointers"),
        ("inner", (floats(4),), "the function uses uint8_t; HLSL has no 8-bit integers"),
        ("sneakier", (np.ones(4, np.uint64), 0), r"the function uses float\* in 'through'; this device has no"),
    ],
)
def test_what_there_is_not_is_refused(written: Written, name: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        written.module[name](*args)
    assert not written.codes


def test_global_resources_are_refused(written: Written) -> None:
    text = "StructuredBuffer<float> unbound;\nfloat reads(int i) { return unbound[i]; }\n"
    module = spy.Module.load_from_source(written.device, "test_hlsl_global", text.replace("Struc", "RWStruc"))
    with pytest.raises(UnsupportedError, match="the function reads a global resource"):
        module.reads(np.arange(4, dtype=np.int32))


def test_uses_pointers_reads_emitted_text() -> None:
    code = b"float bad_0(Ptr<float, 0ULL, DefaultLayout > a_0, float b_0)\n{\n    return b_0;\n}\n"
    assert uses_pointers(code, "hlsl") == "float* in 'bad'"
    assert uses_pointers(b"    Ptr<uint, 0ULL> p_0 = q_0;\n", "hlsl") == "uint*"
    assert uses_pointers(b"float Ptr_0(float a_0)\n{\n    return a_0;\n}\n", "hlsl") == ""


def test_reads_bindings_knows_our_own() -> None:
    ours = b"cbuffer entryPointParams_spy_block_0 : register(b0)\n{\n"
    assert not reads_bindings(ours, "hlsl")
    assert reads_bindings(ours + b"Texture2D<float > picture_0 : register(t0);\n", "hlsl")


def test_addresses_are_a_descriptor_and_bytes() -> None:
    assert pack_address(0, 5) == 5
    assert pack_address(3, 256) == 3 * 2**40 + 256
    assert pack_address(2**24 - 1, 2**32 - 1) == 0xFFFFFF00FFFFFFFF
    for handle, offset in ((1, 0), (2**24 - 1, 2**32 - 1), (77, 12345)):
        address = pack_address(handle, offset)
        assert (address >> HANDLE_SHIFT, address & OFFSET_MASK) == (handle, offset)
        # They are packed as unsigned numbers of 64 bits, and added to without touching the descriptor.
        assert np.uint64(address) == address and (address - offset) >> HANDLE_SHIFT == handle
    for handle, offset in ((2**24, 0), (0, 2**32), (-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="24 bits"):
            pack_address(handle, offset)


@settings(max_examples=100, deadline=None, database=None)
@given(st.lists(st.integers(1, 100_000), max_size=30))
def test_argument_blocks_begin_at_multiples_of_64(sizes: list[int]) -> None:
    # For numbers of 8 bytes in a block; blocks of one submission lie in buffers of 64 KiB, longer ones alone.
    made: list[int] = []

    def memory(size: int, kind: str) -> Any:
        assert kind == "upload"
        made.append(size)
        return SimpleNamespace(descriptor_handle_ro=SimpleNamespace(value=len(made)))

    opened = SimpleNamespace(device=MagicMock(), memory=memory, slangpy=MagicMock())
    submissions = Submissions(opened, "test", True)  # type: ignore[arg-type]
    submissions.encoder()
    taken: dict[int, int] = {}
    for size in sizes:
        address = submissions._place(bytes(size))
        handle, offset = address >> HANDLE_SHIFT, address & OFFSET_MASK
        assert offset % 64 == 0
        assert taken.get(handle, 0) <= offset and offset + size <= made[handle - 1], "beside the others, inside"
        taken[handle] = offset + size
