"""What kernels say, without a device: C's formats, the buffer's records, and code that has nothing of it."""

from __future__ import annotations

import re
import shutil
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.cuda.compile import nvrtc_compile, nvrtc_version
from slangpy_rt.backends.null import NullBackend, NullBuffer
from slangpy_rt.core.errors import OutOfBoundsError, UnsupportedError
from slangpy_rt.core.target import Target
from slangpy_rt.runtime.diagnostics import WORDS, Diagnostics, format_line
from slangpy_rt.slang.emitted import calls_printf
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.session import Session
from tests.depth import sampled

SHADERS = Path(__file__).resolve().parents[2] / "shaders"
TARGETS = [Target("cpp", "", "range"), Target("cuda", "", "value"), Target("spirv", "spirv_1_5", "pointer")]

USER = """
import slangpy_rt;
float pick(Tensor<float, 2> t, RWTensor<float3, 1> r, int i)
{
    r[i] = r[i + 1];
    return t[i, i];
}
"""
KERNEL = """
import slangpy_rt;
import user;
EXPORTS
struct Call
{
    INDEX count;
    int t_shape[2];
    int64_t t_stride[2];
    int r_shape[1];
    int64_t r_stride[1];
    uint *_diagnostics;
    float *t;
    float *r;
    float *_result;
}
void element(Call call, INDEX i)
{
    ASSIGN
    float._spy_store(call._result + i, pick(Tensor<float, 2>(uint64_t(call.t), call.t_shape, call.t_stride),
                                       RWTensor<float3, 1>(uint64_t(call.r), call.r_shape, call.r_stride), int(i)));
}
"""
ENTRIES = {
    "range": "export __extern_cpp void run(int64_t begin, int64_t end, Call *block)\n"
    "{ let call = *block; for (int64_t i = begin; i < end; ++i) element(call, i); }\n",
    "value": '[shader("compute")] [numthreads(256, 1, 1)] void kernel(uint3 thread : SV_DispatchThreadID, '
    "uniform Call call) { if (thread.x < call.count) element(call, thread.x); }\n",
    "pointer": '[shader("compute")] [numthreads(256, 1, 1)] void kernel(uint3 thread : SV_DispatchThreadID, '
    "uniform Call *block) { let call = *block; if (thread.x < call.count) element(call, thread.x); }\n",
}


def emitted(target: Target, shaders: Path, checks: bool) -> bytes:
    """Target code of a kernel over two arrays."""
    try:
        session = Session(Library(), target, (str(shaders),))
    except UnsupportedError as error:
        pytest.skip(str(error))
    session.load_module("user", "user.slang", USER)
    text = KERNEL.replace("EXPORTS", "export static const bool _spy_checks = true;" if checks else "")
    text = text.replace("ASSIGN", "_spy_diagnosticsBuffer = call._diagnostics;" if checks else "")
    text = text.replace("INDEX", "int64_t" if target.entry == "range" else "uint") + ENTRIES[target.entry]
    code = session.compile(text, "picked", "run" if target.entry == "range" else "kernel").code
    session.close()
    return code


@sampled(3)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.format)
def test_without_debug_not_a_letter_of_the_checks_is_left(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "shaders"
    shutil.copytree(SHADERS, plain)
    library = (plain / "slangpy_rt.slang").read_text()
    # The checks as they stand in Tensor, RWTensor and its atomic operations: a condition and the line behind it.
    stripped, count = re.subn(r"^ +if \(_spy_checks && .*\n.*\n", "", library, flags=re.M)
    assert count == 5
    (plain / "slangpy_rt.slang").write_text(stripped)
    unchecked = emitted(target, SHADERS, False)
    with monkeypatch.context() as patch:
        patch.setattr("slangpy_rt.slang.shader_modules.shader_directory", lambda: str(plain))
        assert unchecked == emitted(target, plain, False)
    checked = emitted(target, SHADERS, True)
    if target.format != "spirv":
        assert b"_spy_diagnosticsBuffer" in checked and b"_spy_diagnosticsBuffer" not in unchecked
    assert len(checked) > len(unchecked)


def test_a_debug_kernel_compiles_for_cuda() -> None:
    try:
        nvrtc_version()
    except UnsupportedError as error:
        pytest.skip(str(error))
    assert nvrtc_compile(emitted(TARGETS[1], SHADERS, True), "sm_90").startswith(b"\x7fELF")


def test_a_printing_kernel_compiles_for_cuda() -> None:
    try:
        nvrtc_version()
    except UnsupportedError as error:
        pytest.skip(str(error))
    text = """
float f(float x, int i)
{
    printf("%d %lld %f %f %s\\n", i, int64_t(i), x, double(x), "a string");
    printf("%d %d %d %u %u\\n", int8_t(i), int16_t(i), x > 0, uint8_t(i), int3(i));
    return x;
}
"""
    with spy.Device("null") as device:
        source = spy.Module.load_from_source(device, "test_diagnostics_cuda", text)._scope.source
        kernel = spy.Module(device, source).f.source(1.0, 2)
        code = source.compile(kernel, "prints", "_spy_kernel")
    assert nvrtc_compile(code.code, "sm_90").startswith(b"\x7fELF")
    assert {text for _, text in code.strings} >= {"%d %lld %f %f %s\n", "%d %d %d %u %u\n", "a string"}


def test_slangs_own_printf_is_recognized() -> None:
    assert calls_printf(b'void f()\n{\n    printf("x");\n', "cuda")
    assert not calls_printf(b"void f()\n{\n    printf_0(3U);\n    snprintf(x);\n", "cpp")
    assert calls_printf(b"\0NonSemantic.DebugPrintf\0", "spirv")


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("plain", [], "plain"),
        ("100%% %d", [(5, 32)], "100% 5"),
        ("%d %i %u", [(-1, 32), (-1, 32), (-1, 32)], "-1 -1 4294967295"),
        ("%x %X %o %x", [(-1, 32), (255, 32), (-8, 64), (-1, 64)], f"ffffffff FF 1{'7' * 20}0 ffffffffffffffff"),
        ("%ld %lld %hhd %zu %lu", [(n, 64) for n in (1, 2, 3, 4, 5)], "1 2 3 4 5"),
        ("%5d|%-5d|%05d|%+d|% d", [(42, 32)] * 5, "   42|42   |00042|+42| 42"),
        ("%8.3f|%e|%G|%.0f|%f", [(1.5, 32), (1.5, 32), (1e-9, 32), (2.5, 32), (3, 32)],
         "   1.500|1.500000e+00|1E-09|2|3.000000"),
        ("%f %g %d", [(float("inf"), 32), (float("nan"), 32), (float("-inf"), 32)], "inf nan -inf"),
        ("%c%c %s", [(72, 32), (256 + 105, 32), ("there", 0)], "Hi there"),
        ("%s %d %f", [(3, 32), ("three", 0), ("3.0", 0)], "3 three 3.0"),
        ("%d %x", [(2.75, 32), (2.75, 32)], "2.75 2.75"),
        ("%d %d %s", [(1, 32)], "1 %d %s"),
        ("%d", [(1, 32), (2, 32)], "1"),
        ("%k %", [(1, 32)], "%k %"),
        ("%99999999999999999999d|%4097d|%4000d", [(1, 32)] * 3, "|".join("1".rjust(n) for n in (4095, 4095, 4000))),
    ],
)  # fmt: skip
def test_formats(text: str, values: list[tuple[int | float | str, int]], expected: str) -> None:
    assert format_line(text, values) == expected


STRINGS = ((11, "int %d\n"), (12, "%lld %llu %f %s\n"), (13, "text"))


def written(diagnostics: Diagnostics, *records: list[int | float], lost: int = 0) -> None:
    """Put words where a kernel would."""
    buffer = diagnostics.buffer
    assert isinstance(buffer, NullBuffer)
    words = [word for record in records for word in record]
    buffer.view[1024 : 1024 + 4 * len(words)] = struct.pack(f"<{len(words)}I", *words)
    buffer.view[:8] = struct.pack("<II", 256 + len(words), lost)
    diagnostics.pending = True


@pytest.fixture
def diagnostics() -> Diagnostics:
    """Those of a device that runs nothing."""
    made = Diagnostics(NullBackend())
    made.learn(STRINGS)
    return made


def test_records(diagnostics: Diagnostics, capsys: pytest.CaptureFixture[str]) -> None:
    wide = [*struct.unpack("<II", struct.pack("<q", -(2**40)))], [*struct.unpack("<II", struct.pack("<Q", 2**63))]
    real = struct.unpack("<II", struct.pack("<d", 0.25))
    written(diagnostics, [4, 11, 1, 2**32 - 5], [13, 12, 4, *wide[0], 3, *wide[1], 5, *real, 6, 13])
    assert diagnostics.flush() is None
    assert capsys.readouterr().out == "int -5\n-1099511627776 9223372036854775808 0.250000 text\n"
    # Read once, and begun anew.
    diagnostics.pending = True
    assert diagnostics.flush() is None
    assert capsys.readouterr().out == ""


def test_a_full_buffer(diagnostics: Diagnostics, capsys: pytest.CaptureFixture[str]) -> None:
    written(diagnostics, *([[4, 11, 0, 7]] * ((WORDS - 256) // 4 - 1)), [0, 11, 0, 8], lost=3)
    diagnostics.buffer.view[:4] = struct.pack("<I", WORDS + 2)  # type: ignore[attr-defined]
    diagnostics.flush()
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == ["int 7"] * ((WORDS - 256) // 4 - 1)
    assert last == "... 3 more lines lost: a device keeps 1 MiB of them until it waits"


def test_nothing_is_read_before_a_kernel_may_say_something(capsys: pytest.CaptureFixture[str]) -> None:
    backend = NullBackend()
    diagnostics = Diagnostics(backend)
    assert diagnostics.flush() is None
    assert backend.live == 0
    written(diagnostics, [4, 11, 1, 1])
    diagnostics.pending = False
    assert diagnostics.flush() is None
    assert capsys.readouterr().out == ""


def test_two_strings_of_one_number_are_refused(diagnostics: Diagnostics) -> None:
    diagnostics.learn(STRINGS)
    with pytest.raises(UnsupportedError) as caught:
        diagnostics.learn([(11, "other")])
    assert str(caught.value) == (
        "printf: Slang gives the strings 'int %d\\n' and 'other' the same number; change one of them."
    )


def test_an_access_outside(capsys: pytest.CaptureFixture[str]) -> None:
    with spy.Device("null", debug=True) as device:
        module = spy.Module.load_from_source(device, "test_diagnostics", USER)
        t, r = spy.Tensor.zeros(device, (3, 4)), spy.Tensor.zeros(device, 5, "float3")
        module.pick(t, r, 1)
        buffer = device.diagnostics.buffer
        assert isinstance(buffer, NullBuffer) and isinstance(device.backend, NullBackend)
        assert buffer.address.to_bytes(8, "little") in device.backend.launches[-1][2]
        assert device.backend.launches[-1][0].info.written[-1]
        for array, shape, index, writes, who in [
            (t, (3, 4), (3, -1), 0, "argument 't' of shape (3, 4) was read at (3, -1)"),
            (r, (5,), (5,), 1, "argument 'r' of shape (5,) was written at (5,)"),
            (r, (2,), (5,), 0, "an array made in the function, of shape (2,) was read at (5,)"),
        ]:
            n = len(shape)
            head = [256, 0, 2, writes, array.address % 2**32, array.address >> 32, n, 0]
            buffer.view[:32] = np.array(head, np.uint32).tobytes()
            buffer.view[32 : 32 + 8 * n] = np.array([*index, *shape], np.int32).tobytes()
            with pytest.raises(OutOfBoundsError) as caught:
                module.pick(t, r, 1)
            assert str(caught.value) == (
                f"float pick(Tensor<float, 2> t, RWTensor<float3, 1> r, int i): {who}, which is outside, one of 2 "
                "such accesses. Let the function compare its indices with the array's shape."
            )
            module.pick(t, r, 1)


def test_printing_into_itself(diagnostics: Diagnostics, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standard output that waits for the device, from any thread, does not wait forever."""

    class Stream:
        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> None:
            diagnostics.flush()
            self.text += text

    stream = Stream()
    monkeypatch.setattr("sys.stdout", stream)
    written(diagnostics, [4, 11, 1, 1])
    thread = threading.Thread(target=diagnostics.flush)
    thread.start()
    thread.join(10)
    assert not thread.is_alive() and stream.text == "int 1\n"
