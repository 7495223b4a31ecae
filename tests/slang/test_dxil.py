"""Kernels for D3D12 through Microsoft's compiler and its validator: no device, and no Windows, is needed.

``SLANGPY_RT_DXC`` names the library. The driver's part is left out: it takes DXIL and what the root signature binds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from slangpy_rt_codegen import emit

from slangpy_rt.core.target import Target
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.session import Session
from slangpy_rt.slang.sessions import new_session
from tests.depth import sampled
from tests.dxc import FEATURES, OPTIONS, Dxc, DxcError, features, parts
from tests.golden.test_golden import SLANG, SPECS
from tests.slang.test_hlsl import CALLED, Written, advance, fill, floats, reduce, scatter, written  # noqa: F401

# What slang-rhi (August 2026) binds for a kernel that has one constant buffer: its root signature, of version 1.1.
FLAGS = "ALLOW_INPUT_ASSEMBLER_INPUT_LAYOUT | CBV_SRV_UAV_HEAP_DIRECTLY_INDEXED | SAMPLER_HEAP_DIRECTLY_INDEXED"
ROOT = f"RootFlags({FLAGS}), DescriptorTable(CBV(b0))"
WITH_ROOT = (*OPTIONS, "-rootsig-define", "ROOT", "-force-rootsig-ver", "rootsig_1_1")
# A thread of a range walks a row alone; threads of groups never do.
RANGES_ONLY = {
    "mul_backward_columns_and_rows_range",
    "mul_backward_columns_range",
    "mul_backward_rows_range",
    "tint_backward_columns_and_rows_range",
}
GOLDEN = [name for name, spec in SPECS.items() if spec.entry != "handle" and name not in RANGES_ONLY]
WORK: dict[str, Callable[[Written], object]] = {
    **{f"{name}{k}": lambda w, n=name, a=args: w.module[n](*a) for k, (name, args, _) in enumerate(CALLED)},
    "advance": advance,
    "fill": fill,
    "scatter": scatter,
    "reduce float": lambda w: reduce(w, "mul", "float"),
    "reduce half": lambda w: reduce(w, "mul3", "half"),
    "reduce double": lambda w: reduce(w, "mul2", "double"),
}
# What shader model 6.6 leaves to the device, and these kernels use.
MORE = {
    "halve4": {"double"},
    "advance": {"double"},
    "scatter": {"waves"},
    "reduce double": {"double", "waves", "64-bit atomics behind the heap"},
    "reduce float": {"waves"},
    "reduce half": {"waves"},
}
PLAIN = """
cbuffer block : register(b0) { uint2 at; }
groupshared float shared_[SIZE];
[shader("compute")] [numthreads(64, 1, 1)]
void _spy_kernel(uint3 t : SV_DispatchThreadID)
{
    RWByteAddressBuffer to = ResourceDescriptorHeap[NonUniformResourceIndex(at.x)];
    shared_[t.x * 7 % SIZE] = to.Load<float>(4 * t.x);
    GroupMemoryBarrierWithGroupSync();
    to.Store<float>(4 * t.x, shared_[t.x * 5 % SIZE]);
}
"""
FITS, TOO_LARGE = PLAIN.replace("SIZE", "8192"), PLAIN.replace("SIZE", "8193")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """A compiler with the functions of the golden kernels at hand."""
    opened = new_session(Target("hlsl", "sm_6_6", "handle"), (shader_directory(),), ())
    opened.load_module("golden", "golden.slang", SLANG)
    yield opened
    opened.close()


def golden_hlsl(session: Session, name: str) -> str:
    """The text of a golden kernel for D3D12."""
    return session.compile(emit(replace(SPECS[name], entry="handle")), name, "_spy_kernel").code.decode()


def with_root(text: str, root: str = ROOT) -> str:
    """A text that says what is bound."""
    return f'#define ROOT "{root}"\n{text}'


@sampled(3)
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_kernels_are_valid(dxc: Dxc, session: Session, name: str) -> None:
    container = dxc.compile(with_root(golden_hlsl(session, name)), WITH_ROOT)
    dxc.validate(container)
    assert {"DXIL", "RTS0"} <= set(parts(container))
    # An address is an integer of 64 bits, with an index into the heap.
    assert {"indexing of the heap", "64-bit integers"} <= features(container) <= set(FEATURES.values())


@sampled(2)
@pytest.mark.parametrize("name", WORK)
def test_calls_are_valid(dxc: Dxc, written: Written, name: str) -> None:  # noqa: F811
    WORK[name](written)
    assert written.codes
    # Sums of half gradients are rounded by a kernel of their own, which takes the common features alone.
    common, used = {"indexing of the heap", "64-bit integers"}, set()
    for code in written.codes:
        container = dxc.compile(with_root(code), WITH_ROOT)
        dxc.validate(container)
        assert common <= features(container)
        used |= features(container)
    assert used - {"16-bit types"} == common | MORE.get(name, set())


def test_a_debug_device_is_valid(dxc: Dxc, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Written(monkeypatch, debug=True)
    made.module.blur(floats(4, 4), np.arange(4, dtype=np.int32))
    dxc.validate(dxc.compile(with_root(made.codes[-1]), WITH_ROOT))
    made.device.close()


def test_newer_shader_models_take_the_same(dxc: Dxc, session: Session) -> None:
    # slang-rhi compiles for the newest that the device has; this DXC knows 6.8.
    text = golden_hlsl(session, "mul_backward_sum_wide")
    for model in ("cs_6_7", "cs_6_8"):
        dxc.validate(dxc.compile(with_root(text), tuple(model if o == "cs_6_6" else o for o in WITH_ROOT)))
    with pytest.raises(DxcError, match="undeclared identifier 'ResourceDescriptorHeap'"):
        dxc.compile(text, tuple("cs_6_5" if o == "cs_6_6" else o for o in OPTIONS))


def test_a_kernel_that_binds_more_is_refused(dxc: Dxc, session: Session) -> None:
    text = golden_hlsl(session, "add_strided")
    more = text.replace("[shader(", "RWByteAddressBuffer more : register(u0);\n[shader(")
    more = more.replace("void _spy_kernel(", "void work(", 1)
    head = text[text.index("[shader(") : text.index("{", text.index("void _spy_kernel("))]
    parameter = head.split(":")[0].split()[-1]
    more += f"\n{head}{{ more.Store(0, 1u); work({parameter}); }}\n"
    dxc.validate(dxc.compile(more))
    with pytest.raises(DxcError, match=r"(?s)not compatible with shader.*UAV.*not fully bound in root signature"):
        dxc.compile(with_root(more), WITH_ROOT)
    with pytest.raises(DxcError, match=r"(?s)not compatible with shader.*CBV.*not fully bound in root signature"):
        dxc.compile(with_root(text, "RootFlags(CBV_SRV_UAV_HEAP_DIRECTLY_INDEXED)"), WITH_ROOT)


def test_slang_calls_dxc_as_we_do(dxc: Dxc, session: Session, tmp_path: Path) -> None:
    """What Slang makes with DXC as its own downstream compiler is, byte for byte, what we look at."""
    library = Path(os.environ["SLANGPY_RT_DXC"]).resolve()
    name = "dxcompiler.dll" if sys.platform == "win32" else "libdxcompiler.so"
    (tmp_path / name).symlink_to(library)
    # The dynamic linker reads its path when a process starts.
    code = f"""
import sys
from slangpy_rt.core.target import Target
from slangpy_rt.slang import library, native_session, session
from slangpy_rt.slang.locate import shader_directory
native_session.FORMATS["dxil"] = 10  # SLANG_DXIL of slang.h
opened = session.Session(library.Library(), Target("dxil", "sm_6_6", "handle"), (shader_directory(),), ())
opened.load_module("golden", "golden.slang", {SLANG!r})
for text in {[emit(replace(SPECS[name], entry="handle")) for name in ("apply_matrix", "choose_values")]!r}:
    sys.stdout.buffer.write(opened.compile(text, "made", "_spy_kernel").code)
"""
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=False)
    assert not done.returncode, done.stderr.decode()
    ours = b"".join(dxc.compile(golden_hlsl(session, name)) for name in ("apply_matrix", "choose_values"))
    assert done.stdout == ours


def test_dxc_refuses_what_is_no_hlsl(dxc: Dxc) -> None:
    with pytest.raises(DxcError, match=r"^hlsl\.hlsl:10:8: error: no template named 'Stor' in"):
        dxc.compile(FITS.replace("Store", "Stor"))


def test_the_validator_refuses_what_the_compiler_takes(dxc: Dxc) -> None:
    dxc.validate(dxc.compile(FITS))
    with pytest.raises(DxcError, match="Group Shared Memory storage is 32772, exceeded 32768"):
        dxc.compile(TOO_LARGE)
    unchecked = dxc.compile(TOO_LARGE, (*OPTIONS, "-Vd"))
    with pytest.raises(DxcError, match="Group Shared Memory storage is 32772, exceeded 32768"):
        dxc.validate(unchecked)


@pytest.mark.parametrize("part", ["SFI0", "PSV0"])
def test_the_validator_refuses_a_container_that_was_changed(dxc: Dxc, part: str) -> None:
    container = dxc.compile(FITS)
    begin, end = parts(container)[part]
    for at in range(begin, end):
        changed = bytearray(container)
        changed[at] ^= 1
        with pytest.raises(DxcError, match="does not match expected for module"):
            dxc.validate(bytes(changed))


def test_a_file_that_is_no_dxc_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.so", Path(__file__)):
        with pytest.raises(DxcError, match="is no library of DXC"):
            Dxc(path)
