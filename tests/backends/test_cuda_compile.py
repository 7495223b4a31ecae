"""NVRTC turns CUDA text into binaries without a device; skipped where NVRTC is not installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools import gen_cuda_ffi

from slangpy_rt.backends.cuda.backend import CudaBackend
from slangpy_rt.backends.cuda.compile import nvrtc_compile, nvrtc_version
from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.target import Target
from slangpy_rt.slang.emitted import prelude_end
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.session import Session
from tests.conformance import _intrinsics, _matrix_operators, _narrow_integers, _statics
from tests.depth import sampled

try:
    VERSION = nvrtc_version()
except UnsupportedError as error:
    pytest.skip(str(error), allow_module_level=True)

KERNEL = """
struct Call {{ unsigned n; {0}* a; {0}* b; {0}* r; }};
extern "C" __global__ void kernel(Call call) {{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < call.n) call.r[i] = call.a[i] + call.b[i];
}}
"""
# As Slang's prelude does: half is there only for those who ask.
PRELUDE = """
#ifdef SLANG_CUDA_ENABLE_HALF
#include <cuda_fp16.h>
#endif
"""

SHADERS = str(Path(__file__).resolve().parents[2] / "shaders")
GRADIENTS = """
import slangpy_rt;
struct Call { uint n; float* a; double* d; half* h; };
[Differentiable]
float2 go(DiffTensor<float2, 1> t, RWDiffTensor<double, 1> u, WDiffTensor<float, 1> w, int i)
{
    int index[1] = { i };
    float2 x = t[i] * t.loadOnce(index) + t.loadUniform(index);
    u[i] = u[i + 1] * double(x.x);
    w[i] = x.y;
    return x;
}
void tensors(Call call, int i)
{
    int shape[1] = { 8 };
    int64_t stride[1] = { 8 };
    let t = DiffTensor<float2, 1>(uint64_t(call.a), shape, stride, uint64_t(call.a), stride);
    let u = RWDiffTensor<double, 1>(
        uint64_t(call.d), shape, stride, uint64_t(call.d), stride, uint64_t(call.d), stride);
    let w = WDiffTensor<float, 1>(uint64_t(call.a), shape, stride, uint64_t(call.a), stride, 0, stride);
    bwd_diff(go)(t, u, w, i, float2(1));
}
[shader("compute")] [numthreads(100, 1, 1)]
void kernel(uint3 t: SV_DispatchThreadID, uint thread : SV_GroupIndex, uniform Call call) { BODY }
"""
BODIES = {
    "float": "if (t.x < call.n) float._spy_scatter(call.a + t.x / 8, call.a[t.x]);",
    "half": "vector<half, 2>._spy_scatter(call.h + t.x, vector<half, 2>._spy_load(call.h)); "
    "half._spy_accumulate(call.h, 1);",
    "double": "double._spy_scatterUniform(call.d, call.d[t.x] + double._spy_waveSum(2));",
    "matrix": "float2x2._spy_scatter(call.a, float2x2._spy_load(call.a + t.x)); "
    "float2x2._spy_accumulate(call.a, float2x2._spy_zero());",
    "vectors": "float4._spy_scatter(call.a + 4 * t.x, float4(1)); float2._spy_scatter(call.a + t.x, float2(2));",
    "array": "Array<double3, 2>._spy_scatter(call.d + t.x, Array<double3, 2>._spy_load(call.d));",
    "groups of float": "_spy_scatterGroup<float>(call.a, call.a[t.x], thread);",
    "groups of half": "_spy_scatterGroup<vector<half, 4>>(call.h, vector<half, 4>._spy_load(call.h + t.x), thread);",
    "groups of double": "_spy_scatterGroup<double>(call.d, call.d[t.x], thread);",
    "groups of arrays": "_spy_scatterGroup<Array<float, 17>>("
    "call.a, Array<float, 17>._spy_load(call.a + t.x), thread);",
    "tensors": "if (t.x < call.n) tensors(call, int(t.x));",
}


def needs_headers() -> None:
    if pytest.importorskip("cuda.pathfinder").find_nvidia_header_directory("cudart") is None:
        pytest.skip("cuda_fp16.h is not installed")


def test_a_kernel_becomes_a_cubin_with_its_entry() -> None:
    cubin = nvrtc_compile(KERNEL.format("float").encode(), "sm_90")
    assert cubin.startswith(b"\x7fELF")
    assert b"\0kernel\0" in cubin


def test_the_same_text_makes_the_same_binary() -> None:
    code = KERNEL.format("float").encode()
    assert nvrtc_compile(code, "sm_90") == nvrtc_compile(code, "sm_90")


def test_the_architecture_changes_the_binary() -> None:
    code = KERNEL.format("float").encode()
    assert nvrtc_compile(code, "sm_80") != nvrtc_compile(code, "sm_90")


def test_half_is_enabled_when_a_kernel_uses_it() -> None:
    needs_headers()
    assert nvrtc_compile((PRELUDE + KERNEL.format("__half")).encode(), "sm_90").startswith(b"\x7fELF")


@sampled(2)
@pytest.mark.parametrize("scalar", ["float", "half", "double", "int64_t"])
def test_what_slang_emits_compiles(scalar: str) -> None:
    if scalar == "half":
        needs_headers()
    try:
        session = Session(Library(), Target("cuda", "", "value"))
    except UnsupportedError as error:
        pytest.skip(str(error))
    text = f"""
struct Call {{ uint n; {scalar}* a; {scalar}* r; }};
[shader("compute")] [numthreads(256, 1, 1)]
void kernel(uint3 t: SV_DispatchThreadID, uniform Call call) {{
    if (t.x < call.n) call.r[t.x] = call.a[t.x] * {scalar}(2);
}}
"""
    cubin = nvrtc_compile(session.compile(text, "doubled", "kernel").code, "sm_90")
    session.close()
    assert b"\0kernel\0" in cubin


def test_bfloat16_compiles() -> None:
    try:
        session = Session(Library(), Target("cuda", "", "value"), (SHADERS,))
    except UnsupportedError as error:
        pytest.skip(str(error))
    text = """
import slangpy_rt;
struct Call { uint16_t *a; uint16_t *r; RWTensor<bfloat16, 1> whole; };
[shader("compute")] [numthreads(256, 1, 1)]
void kernel(uint3 t: SV_DispatchThreadID, uniform Call call)
{
    let i = int(t.x);
    _spy_bfloat16._spy_store(call.r + i, _spy_bfloat16._spy_load(call.a + i) * 2);
    _spy_bfloat16s<3>._spy_store(call.r + 3 * i, _spy_bfloat16s<3>._spy_load(call.a + 3 * i) * 2);
    call.whole[i] = call.whole[i] + 1;
}
"""
    cubin = nvrtc_compile(session.compile(text, "narrows", "kernel").code, "sm_90")
    session.close()
    assert b"\0kernel\0" in cubin


@sampled(3)
@pytest.mark.parametrize("scalar", ["int", "uint", "int64_t", "uint64_t", "float", "double", "half"])
def test_references_to_elements_compile(scalar: str) -> None:
    bits = "InterlockedAnd(t[i], x); InterlockedOr(t[i], x); InterlockedXor(t[i], x);" if "int" in scalar else ""
    words = """
    InterlockedMin(t[i], x);
    InterlockedMax(t[i], x);
    InterlockedMin(shared, x);
    InterlockedExchange(t[i], x, call.a[i]);
    InterlockedCompareExchange(t[i], x, x, call.a[i]);
    InterlockedCompareStore(t[i], x, x);
"""
    text = f"""
import slangpy_rt;
struct Call {{ {scalar} *a; {scalar} x; RWTensor<{scalar}, 1> whole; RWTensor<vector<{scalar}, 3>, 1> vectors; }};
groupshared {scalar} shared;
[shader("compute")] [numthreads(256, 1, 1)]
void kernel(uint3 at : SV_DispatchThreadID, uniform Call call)
{{
    let t = call.whole;
    let i = int(at.x);
    let x = call.x;
    InterlockedAdd(t[i], x);
    InterlockedAdd(shared, x, call.a[i]);
    InterlockedAdd(call.vectors[i], vector<{scalar}, 3>(x));
    InterlockedAdd(call.vectors[i].z, x);
    call.vectors[i].y = x;
    call.vectors[i].zx += call.vectors[i].yz;
    {"" if scalar == "half" else words}
    {bits}
}}
"""
    session = Session(Library(), Target("cuda", "", "value"), (SHADERS,))
    code = session.compile(text, "references", "kernel").code
    session.close()
    assert b"\0kernel\0" in nvrtc_compile(code, "sm_90")


@sampled(3)
@pytest.mark.parametrize("scalar", ["int", "uint", "int64_t", "uint64_t", "float", "double"])
def test_elements_of_atomics_compile(scalar: str) -> None:
    bits = "t[i].and(x); t[i].or(x); t[i] ^= x; t[i]++;" if "int" in scalar else ""
    text = f"""
import slangpy_rt;
struct Call {{ {scalar} *a; {scalar} x; RWTensor<Atomic<{scalar}>, 1> whole; }};
[shader("compute")] [numthreads(256, 1, 1)]
void kernel(uint3 at : SV_DispatchThreadID, uniform Call call)
{{
    let t = call.whole;
    let i = int(at.x);
    let x = call.x;
    t[i].add(x, MemoryOrder.SeqCst);
    t[i] -= x;
    t[i].min(x);
    t[i].max(x);
    call.a[i] = t[i].exchange(x) + t[i].compareExchange(x, {scalar}(0)) + t[i].load(MemoryOrder.Acquire);
    t[i] = 3;
    {bits}
    InterlockedAdd(call.a[i], x);
}}
"""
    session = Session(Library(), Target("cuda", "", "value"), (SHADERS,))
    code = session.compile(text, "atomics", "kernel").code
    session.close()
    assert b"__threadfence" in code
    assert b"\0kernel\0" in nvrtc_compile(code, "sm_90")


@sampled(4)
@pytest.mark.parametrize("name", BODIES)
def test_gradients_compile(name: str) -> None:
    if "half" in name:
        needs_headers()
    try:
        session = Session(Library(), Target("cuda", "", "value"), (SHADERS,))
    except UnsupportedError as error:
        pytest.skip(str(error))
    code = session.compile(GRADIENTS.replace("BODY", BODIES[name]), "gradients", "kernel").code
    session.close()
    for architecture in ("sm_80", "sm_90"):
        assert b"\0kernel\0" in nvrtc_compile(code, architecture)
    kernel = code[prelude_end(code, "cuda") :]
    # Arrays and halves have the function as well, and never call it.
    assert b"red.relaxed.gpu.global.add.v4.f32" in kernel or name not in ("vectors", "array", "groups of half")
    assert b"atomicAdd(" in kernel
    # Slang's own wave intrinsics would bring a vote at each branch, in the whole kernel.
    assert b"__ballot_sync" not in kernel


@sampled(2)
@pytest.mark.parametrize("types", ["", "#define SPY_KEY uint64_t\n#define SPY_ITEMS 8\n"])
def test_sorts_compile(types: str) -> None:
    for name in ("_spy_digits", "_spy_put"):
        session = Session(Library(), Target("cuda", "", "value"), (SHADERS,))
        code = session.compile(types + (Path(SHADERS) / "_spy_sort.slang").read_text(), "sorting", name).code
        session.close()
        assert name.encode() in nvrtc_compile(code, "sm_90")


@sampled(5)
@pytest.mark.parametrize("name", _intrinsics.TYPES)
def test_every_intrinsic_compiles(name: str) -> None:
    if name == "half":
        needs_headers()
    every, arguments = _intrinsics.of(name), _intrinsics.arguments(name)
    given = ", ".join(f"call.a[{k}]" for k in range(len(arguments)))
    kernel = f"""
struct Call {{ T* a; T* r; }};
[shader("compute")] [numthreads(32, 1, 1)]
void kernel(uint3 t: SV_DispatchThreadID, uniform Call call)
{{
    let found = all_of_them({given});
    for (int k = 0; k < {len(every)}; ++k)
        call.r[k] = found[k];
}}
"""
    session = Session(Library(), Target("cuda", "", "value"))
    code = session.compile(_intrinsics.source(name, every) + kernel, "intrinsics", "kernel").code
    session.close()
    assert b"\0kernel\0" in nvrtc_compile(code, "sm_90")


@sampled(3)
@pytest.mark.parametrize(
    ("scalar", "code", "used"),
    [
        ("double", "log10(x)", "log10"),
        ("double", "asinh(x)", "asinh"),
        ("int16_t", "max(x, int16_t(3))", "max"),
        ("uint", "firstbithigh(x)", "firstbithigh"),
        ("uint64_t", "max(x, x + 1) >> 1", "max"),
        ("uint64_t", "min(x, x + 1) >> 1", "min"),
    ],
)
def test_what_the_prelude_computes_of_another_type(scalar: str, code: str, used: str) -> None:
    text = f"""
[shader("compute")] [numthreads(32, 1, 1)]
void kernel(uint3 t: SV_DispatchThreadID, uniform {scalar}* r)
{{
    {scalar} x = r[t.x];
    r[t.x] = {code};
}}
"""
    session = Session(Library(), Target("cuda", "", "value"))
    emitted = session.compile(text, "another", "kernel").code
    session.close()
    assert f"_spy_{used}<".encode() in emitted
    assert b"\0kernel\0" in nvrtc_compile(emitted, "sm_90")
    session = Session(Library(), Target("cuda", "", "value", program=True))
    with pytest.raises(UnsupportedError, match=rf"uses {used} of a type.*Use a device of type cuda"):
        session.compile(text, "another", "kernel")
    session.close()


def test_half_without_its_header_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")
    monkeypatch.setattr(pathfinder, "find_nvidia_header_directory", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"cuda_fp16\.h.*pip install nvidia-cuda-runtime"):
        nvrtc_compile((PRELUDE + KERNEL.format("__half")).encode(), "sm_90")


def test_a_prelude_that_only_mentions_half_needs_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")
    monkeypatch.setattr(pathfinder, "find_nvidia_header_directory", lambda name: None)
    prelude = PRELUDE.replace("#endif", "__half unused;\n#endif")
    assert nvrtc_compile((prelude + KERNEL.format("float")).encode(), "sm_90").startswith(b"\x7fELF")


def test_an_error_carries_the_log_with_its_line() -> None:
    with pytest.raises(CompileError) as caught:
        nvrtc_compile(b'extern "C" __global__ void kernel() {\n  nonsense();\n}\n', "sm_90")
    message = str(caught.value)
    assert message.startswith(f"NVRTC {VERSION} refused the CUDA text that Slang emitted for sm_90")
    assert 'kernel.cu(2): error: identifier "nonsense" is undefined' in message
    assert "\0" not in message


def test_an_unknown_architecture_is_a_compile_error() -> None:
    with pytest.raises(CompileError, match="sm_1"):
        nvrtc_compile(KERNEL.format("float").encode(), "sm_1")


def test_importing_the_backend_loads_neither_nvrtc_nor_the_cuda_package() -> None:
    code = (
        "import sys, slangpy_rt.backends.cuda.backend as c; c.CudaBackend.why_unavailable(); "
        "sys.exit(any(m == 'cuda' or m.startswith('cuda.') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_why_unavailable_is_one_sentence_or_none() -> None:
    reason = CudaBackend.why_unavailable()
    assert reason is None or (reason and "\n" not in reason and not reason.endswith("."))


def test_regenerating_the_driver_tables_changes_nothing() -> None:
    assert gen_cuda_ffi.TARGET.read_text(encoding="utf-8") == gen_cuda_ffi.generate()


@sampled(12)
@pytest.mark.parametrize(
    ("text", "called"),
    [
        (_statics.COUNTERS, "float(counted(1) + within(2))"),
        (_statics.STRUCTS, "lit(1)"),
        (_statics.ARRAYS.replace("GAIN", "= 3"), "lit(2)"),
        *((text, "f(1)") for text in (_statics.DECLARED | _statics.BY_CODE).values()),
    ],
    ids=["counters", "structs", "arrays", *_statics.DECLARED, *_statics.BY_CODE],
)
def test_variables_begin_as_zeros(text: str, called: str) -> None:
    session = Session(Library(), Target("cuda", "", "value"), (SHADERS,))
    session.load_module("variables", "variables.slang", text)
    kernel = f"""import variables;
[shader("compute")] [numthreads(32, 1, 1)]
void kernel(uint3 at : SV_DispatchThreadID, uniform float *p) {{ p[at.x] = {called}; }}
"""
    code = session.compile(kernel, "zeros", "kernel").code
    assert b"void{}" not in code
    assert not re.search(rb" kernelContext_\d+;", code)
    assert nvrtc_compile(code, "sm_90").startswith(b"\x7fELF")


@sampled(4)
@pytest.mark.parametrize("name", _matrix_operators.TYPES)
def test_matrix_operators_compile(name: str) -> None:
    integer = "int" in name
    count = len(_matrix_operators.operators(name, integer))
    text = _matrix_operators.function(name, integer) + _matrix_operators.comparisons(name)
    text += f"""
struct Call {{ matrix<{name}, 2, 3>* a; {name}2x3* b; {name}2x3* r; bool2x3* t; }};
[shader("compute")][numthreads(1, 1, 1)] void kernel(uniform Call c)
{{
    {name}2x3 r[{count}];
    all(*c.a, *c.b, r);
    for (int i = 0; i < {count}; ++i) c.r[i] = r[i];
    bool2x3 t[{len(_matrix_operators.COMPARISONS)}];
    compare(*c.a, *c.b, t);
    c.t[0] = t[0];
    c.t[1] = t[3];
}}
"""
    code = Session(Library(), Target("cuda", "", "value")).compile(text, f"matrices_{name}", "kernel").code
    assert b"\0kernel\0" in nvrtc_compile(code, "sm_90")


def test_a_missing_return_is_refused() -> None:
    text = """
struct Call { float* a; };
float g(float x) { if (x > 5) return 1; }
[shader("compute")][numthreads(1, 1, 1)] void kernel(uniform Call c) { *c.a = g(*c.a); }
"""
    code = Session(Library(), Target("cuda", "", "value")).compile(text, "no_return", "kernel").code
    with pytest.raises(CompileError, match="the function g ends without a return statement"):
        nvrtc_compile(code, "sm_90")


@pytest.mark.parametrize("size", [2, 3, 4])
def test_vectors_of_short_compile(size: int) -> None:
    """A text without a narrow scalar has ``short3`` alone."""
    text = f"""
struct Call {{ vector<int16_t, {size}>* a; int{size}* b; }};
[shader("compute")][numthreads(1, 1, 1)] void kernel(uniform Call c)
{{
    let a = *c.a;
    *c.b = int{size}(-a * a - (~a / a));
}}
"""
    code = Session(Library(), Target("cuda", "", "value")).compile(text, f"short{size}", "kernel").code
    assert b"_spy_negative(" in code
    assert b"\0kernel\0" in nvrtc_compile(code, "sm_90")


@sampled(2)
@pytest.mark.parametrize("name", _narrow_integers.TYPES)
def test_narrow_integers_compile(name: str) -> None:
    kernel = """
struct Call { NAME* a; NAME* b; float* x; vector<NAME, 3>* v; bool* t; };
[shader("compute")][numthreads(1, 1, 1)] void kernel(uniform Call c)
{
    let a = *c.a;
    let b = *c.b;
    let k = uint8_t(a);
    *c.a = half_of_sum(a, b) + members(a, b) + by_pointer(a, b) + loop(a, b) + NAME(wide(a, b));
    *c.x = real(a, b) + other(a, c.x[0], constructed(float3(c.x[1]), k)) + converted(c.x[2], int(a), k).x;
    c.x[1] = called(float2(c.x[0]), k) + float(elements(a, k)) + nested(c.x[1], k) + float(widest(int64_t(a), k));
    *c.v = rows(c.v[0], c.v[1]) + vector<NAME, 3>(narrow(uint8_t3(k), k)) + vector<NAME, 3>(bits(int3(a), k));
    *c.t = flags(less(a, b), k);
}
"""
    text = _narrow_integers.STRUCTS + _narrow_integers.FUNCTIONS + _narrow_integers.OPERANDS + kernel
    session = Session(Library(), Target("cuda", "", "value"))
    code = session.compile(text.replace("NAME", name), f"narrow_{name}", "kernel").code
    assert b"_spy_negative(" in code and b"_spy_product()" in code
    assert b"\0kernel\0" in nvrtc_compile(code, "sm_90")
