"""Kernels for other processors: those without AVX-512 and without AVX run here; code of 64-bit Arm is compiled."""

from __future__ import annotations

import ctypes
import platform

import numpy as np
import pytest

from slangpy_rt.backends.cpu.llvm import LlvmCompiler
from slangpy_rt.lanes.translate import translate
from tests.lanes._kernels import Kernels, packed

llvm = pytest.importorskip("llvmlite.binding")

KERNELS = Kernels("""
groupshared float parts[64];

[shader("compute")] [numthreads(64, 1, 1)]
void mixed(uint3 thread : SV_DispatchThreadID, uint at : SV_GroupIndex, uniform float *a, uniform int *counts,
           uniform uint n)
{
    float x = a[thread.x], s = 0;
    for (int i = 0; i < int(thread.x % 7); ++i)
        s += sin(x * i) + exp(-x) * pow(abs(x) + 0.5f, 1.5f);
    parts[at] = s;
    GroupMemoryBarrierWithGroupSync();
    if (at % 3 == 0)
        s += parts[63 - at] + float(half(x)) + float(double(x) * 2.0);
    GroupMemoryBarrierWithGroupSync();
    InterlockedAdd(counts[uint(at) & 3], int(thread.x / 5));
    if (thread.x < n)
        a[thread.x] = s + WaveActiveMax(x);
}
""")
PROCESSORS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


def ran(compiler: LlvmCompiler) -> tuple[np.ndarray, np.ndarray]:
    a, counts = np.linspace(-3, 3, 128, dtype=np.float32), np.zeros(4, np.int32)
    loaded = compiler.load(compiler.compile(translate(KERNELS.code("mixed"), 32).text))
    push = ctypes.create_string_buffer(packed((a, counts, 120)), 256)
    loaded.run(ctypes.addressof(push), 0, 2, 2, 1, 1, 0, 0)
    return a, counts


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the names are those of x86-64")
@pytest.mark.parametrize("processor", PROCESSORS)
def test_older_processors(processor: str) -> None:
    """The numbers differ by the rounding of products and sums at most, where there is no instruction for both."""
    if processor == "x86-64-v4" and "+avx512f" not in LlvmCompiler().features:
        pytest.skip("this processor has no AVX-512")
    (a, counts), (wanted, same) = ran(LlvmCompiler(processor, "")), ran(LlvmCompiler())
    np.testing.assert_allclose(a, wanted, rtol=2e-6, atol=1e-5)
    np.testing.assert_array_equal(counts, same)
    assert (a[120:] == np.linspace(-3, 3, 128, dtype=np.float32)[120:]).all()


@pytest.mark.parametrize("width", [4, 32])
def test_code_of_arm(width: int) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(cpu="generic", opt=2)
    module = llvm.parse_assembly(translate(KERNELS.code("mixed"), width).text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    assert b"run" in machine.emit_object(module)


LOOP = """
define void @NAME(ptr %from, ptr %to, i64 %n) {
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %next ]
  %at = getelementptr FROM, ptr %from, i64 %k
  %out = getelementptr TO, ptr %to, i64 %k
  %x = load FROM, ptr %at
  %y = OP FROM %x to TO
  store TO %y, ptr %out
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %n
  br i1 %more, label %next, label %end
end:
  ret void
}
"""
CONVERSIONS = {"widen": ("fpext", "half", "float"), "narrow": ("fptrunc", "float", "half"),
               "narrow2": ("fptrunc", "double", "half")}  # fmt: skip


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other processors convert by themselves")
def test_halves_without_instructions() -> None:
    """Every half, and floats and doubles near every half and near the middle of two."""
    text = ""
    for name, (op, before, after) in CONVERSIONS.items():
        text += LOOP.replace("NAME", name).replace("FROM", before).replace("TO", after).replace("OP", op)
    compiler = LlvmCompiler("x86-64", "")
    loaded = compiler.load(compiler.compile(text))

    def converted(name: str, values: np.ndarray, dtype: type) -> np.ndarray:
        out = np.empty(len(values), dtype)
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_int64)(loaded.address(name))
        function(values.ctypes.data, out.ctypes.data, len(values))
        return out

    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(converted("widen", halves, np.float32), halves.astype(np.float32))
    finite = halves[np.isfinite(halves)].astype(np.float64)
    middles = (np.unique(finite)[1:] + np.unique(finite)[:-1]) / 2
    near = [np.nextafter(middles, side) for side in (-np.inf, np.inf)]
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, np.uint32).view(np.float32)
    edges = np.array([65519.99, 65520, 1e30, -1e30, np.inf, -np.inf, np.nan, 1e-45, -0.0, 2.0**-25, 2.0**-24])
    doubles = np.concatenate([finite, middles, *near, edges])
    with np.errstate(all="ignore"):
        floats = np.concatenate(
            [doubles.astype(np.float32), bits, np.nextafter(middles.astype(np.float32), np.float32(9))]
        )
        np.testing.assert_array_equal(converted("narrow", floats, np.float16), floats.astype(np.float16))
        np.testing.assert_array_equal(converted("narrow2", doubles, np.float16), doubles.astype(np.float16))
    for name, values in (("narrow", floats), ("narrow2", doubles)):
        found = converted(name, values, np.float16)
        zero = found == 0
        assert (np.signbit(found[zero]) == np.signbit(values[zero])).all()
