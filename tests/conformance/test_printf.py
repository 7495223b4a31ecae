"""``printf`` in Slang shows on Python's standard output, on every device."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import one_device, sampled

SLANG = r"""
float half_of(float x, int i)
{
    if (i == 2)
        printf("element %d holds %.3f\n", i, x);
    return x / 2;
}
void hello(int i) { printf("hello\n"); }
void number(int i) { printf("%d\n", i); }
void steps(int i)
{
    for (int k = 0; k < 5; ++k)
        printf("%d %d\n", i, k);
}
void integers(int i)
{
    printf("%d %i %u %x %X %o|", i, -i, uint(i), -1, 255u, 8);
    printf("%5d|%-5d|%05d|%+d|%ld %lu\n", i, i, i, i, int64_t(i) << 40, uint64_t(-1));
}
void floats(double x, float y) { printf("%f %.2e %g %10.3f|%g\n", x, x, x, y, y * 3); }
void vectors(float3 v, int2 w) { printf("(%g, %g, %g) [%d %d] %d%%\n", v, w, v.x > 0); }
void text(int i) { printf("%s is %c\n", "answer", i); printf("\ttwo words\n"); }
void no_end(int i) { printf("%d,", i); }
[Differentiable] float square(float x) { printf("square of %g\n", x); return x * x; }
float slope(float x)
{
    var p = diffPair(x);
    bwd_diff(square)(p, 1);
    return p.d;
}
uniform int threshold;
int count(int i, inout int n)
{
    if (i >= threshold)
        printf("%d reached %d\n", i, threshold);
    n += 1;
    return n;
}
[numthreads(4, 1, 1)]
void kernel(uint3 thread : SV_DispatchThreadID, uniform int limit)
{
    if (thread.x < limit)
        printf("thread %u\n", thread.x);
}
"""
# What is left out of the buffer's 1 MiB by its head; a record here is two words and two for the number.
ROOM = ((1 << 18) - 256) // 4


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_printf", SLANG)


def said(device: spy.Device, capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed until the device was done."""
    device.synchronize()
    return capsys.readouterr().out


def ids(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int32)


def test_a_line_with_its_values(device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.float32([1, 2, 2.5, 4])
    np.testing.assert_array_equal(module.half_of(x, ids(4)), x / 2)
    assert said(device, capsys) == "element 2 holds 2.500\n"
    assert said(device, capsys) == ""


def test_once_for_every_element(device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]) -> None:
    module.hello(ids(1000))
    assert said(device, capsys) == "hello\n" * 1000
    module.number(ids(1000))
    assert sorted(map(int, said(device, capsys).split())) == list(range(1000))
    module.hello(ids(0))
    assert said(device, capsys) == ""


def test_the_lines_of_one_thread_stay_in_order(
    device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]
) -> None:
    module.steps(ids(300))
    lines = [tuple(map(int, line.split())) for line in said(device, capsys).splitlines()]
    assert sorted(lines) == [(i, k) for i in range(300) for k in range(5)]
    for i in range(300):
        assert [k for element, k in lines if element == i] == [0, 1, 2, 3, 4]


def test_calls_print_in_their_order(
    device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(20):
        module.no_end(i)
    assert said(device, capsys) == ",".join(map(str, range(20))) + ","


def test_conversions(device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]) -> None:
    module.integers(42)
    assert said(device, capsys) == (
        "42 -42 42 ffffffff FF 10|   42|42   |00042|+42|46179488366592 18446744073709551615\n"
    )
    module.floats(1234.5678, 0.5)
    assert said(device, capsys) == "1234.567800 1.23e+03 1234.57      0.500|1.5\n"
    module.floats(float("inf"), float("nan"))
    assert said(device, capsys).split() == ["inf", "inf", "inf", "nan|nan"]
    module.vectors([1, 2.5, -3], [4, -5])
    assert said(device, capsys) == "(1, 2.5, -3) [4 -5] 1%\n"
    module.text(65)
    assert said(device, capsys) == "answer is A\n\ttwo words\n"


VALUES = {"bool": True, "int8_t": -128, "int16_t": -32768, "int": -(2**31), "int64_t": -(2**63)}
VALUES |= {"uint8_t": 255, "uint16_t": 65535, "uint": 2**32 - 1, "uint64_t": 2**64 - 1}
VALUES |= {"half": 0.5, "float": -1.25, "double": 2.0**-40}


@sampled(4)
@pytest.mark.parametrize("scalar", VALUES)
def test_every_scalar(device: spy.Device, capsys: pytest.CaptureFixture[str], scalar: str) -> None:
    if scalar not in device.caps.scalars:
        pytest.skip(f"{device.name} has no {scalar}")
    value = VALUES[scalar]
    conversion = "%g" if isinstance(value, float) else "%d"
    text = f'void say({scalar} x) {{ printf("{conversion} {conversion}\\n", x, vector<{scalar}, 2>(x, x).y); }}'
    spy.Module.load_from_source(device, f"test_printf_{scalar}", text).say(value)
    assert said(device, capsys) == f"{conversion % value} {conversion % value}\n"


def test_when_it_shows(device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]) -> None:
    tensor = spy.Tensor.from_numpy(device, np.float32([1, 2, 3]))
    result = module.half_of(tensor, spy.Tensor.from_numpy(device, ids(3)))
    result.to_numpy()
    assert capsys.readouterr().out == "element 2 holds 3.000\n"
    # A call that brings its result to the host has waited for it.
    module.half_of(np.float32([1, 2, 3]), ids(3))
    assert capsys.readouterr().out == "element 2 holds 3.000\n"
    module.half_of(4.0, 2)
    assert capsys.readouterr().out == "element 2 holds 4.000\n"


def test_closing_a_device_shows_what_is_left(backend_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with spy.Device(backend_name) as device:
        module = spy.Module.load_from_source(device, "test_printf", SLANG)
        module.hello(spy.Tensor.from_numpy(device, ids(3)))
    assert capsys.readouterr().out == "hello\n" * 3


def test_what_finds_no_room_is_counted(
    device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]
) -> None:
    n = ROOM + 12345
    for _ in range(2):
        module.number(ids(n))
        *lines, last = said(device, capsys).splitlines()
        assert last == "... 12345 more lines lost: a device keeps 1 MiB of them until it waits"
        numbers = list(map(int, lines))
        assert len(set(numbers)) == len(numbers) == ROOM
        assert set(numbers) <= set(range(n))
    # Records of several sizes: none of them is printed in part, and none from the round before.
    module.steps(ids(n))
    *lines, last = said(device, capsys).splitlines()
    found = {tuple(map(int, line.split())) for line in lines}
    assert len(found) == len(lines) == ((1 << 18) - 256) // 6
    assert last.startswith(f"... {5 * n - len(lines)} more")
    module.number(7)
    assert said(device, capsys) == "7\n"


def test_several_threads_print(device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]) -> None:
    module.number(0)
    said(device, capsys)

    def work(first: int) -> None:
        for k in range(first, first + 50):
            module.number(k)
            if k % 7 == 0:
                device.synchronize()

    threads = [threading.Thread(target=work, args=(1000 * t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = list(map(int, said(device, capsys).split()))
    assert sorted(found) == [1000 * t + k for t in range(4) for k in range(50)]
    assert [k for k in found if k < 1000] == list(range(50))


def test_globals_and_values_beside_it(
    device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]
) -> None:
    n = np.int32([10, 20, 30])
    assert module.count.set(threshold=2)(ids(3), n).tolist() == [11, 21, 31]
    assert n.tolist() == [11, 21, 31]
    assert said(device, capsys) == "2 reached 2\n"


def test_replayed_and_dispatched(device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]) -> None:
    replay = module.number.bind(5)
    replay()
    replay()
    assert said(device, capsys) == "5\n5\n"
    module.kernel.dispatch(12, 6)
    assert sorted(said(device, capsys).splitlines()) == [f"thread {k}" for k in range(6)]


def test_a_differentiable_function_may_print(
    device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]
) -> None:
    assert module.square(3.0) == 9
    assert said(device, capsys) == "square of 3\n"
    assert module.slope(3.0) == 6


def test_a_kernel_that_does_not_print_is_as_ever(device: spy.Device, module: spy.Module) -> None:
    quiet = spy.Module.load_from_source(device, "test_quiet", 'float f(float x) { return x; } // printf("")')
    assert not quiet.info.prints and module.info.prints
    assert "iagnostics" not in quiet.f.source(1.0)
    assert "_spy_diagnosticsBuffer = _spy_call.v_0_diagnostics;" in module.half_of.source(1.0, 2)


@one_device
def test_imported_files(device: spy.Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "printing.slang").write_text('import slangpy_rt;\npublic void say(int i) { printf("say %d\\n", i); }')
    (tmp_path / "silent.slang").write_text('public void say(int i) { printf("say %d\\n", i); }')
    path = tmp_path / "main.slang"
    path.write_text("import printing;\nvoid f(int i) { say(i); }")
    module = spy.Module.load_from_file(device, path)
    module.f(3)
    assert said(device, capsys) == "say 3\n"
    path.write_text("import silent;\nvoid f(int i) { say(i); }")
    with pytest.raises(spy.CompileError, match="put 'import slangpy_rt;' into a file that is imported and calls it"):
        spy.Module.load_from_file(device, path).f(3)


def test_linked_modules(device: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]) -> None:
    text = "import test_printf;\nvoid g(int i) { number(i); }"
    spy.Module.load_from_source(device, "test_printf_user", text, link=[module]).g(4)
    assert said(device, capsys) == "4\n"


def test_what_cannot_be_printed_is_refused(device: spy.Device) -> None:
    text = 'struct S { int a; }; void f(int i) { S s = { i }; printf("%d\\n", s); }'
    module = spy.Module.load_from_source(device, "test_printf_struct", text)
    with pytest.raises(spy.CompileError, match="takes numbers, bools, vectors of these and strings"):
        module.f(1)


def test_messages_keep_lines_and_columns(device: spy.Device) -> None:
    text = 'void f(int i) { printf("%d", i); }\nvoid g(int i) { undefined_thing(i); }\n'
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_source(device, "test_printf_error", text)
    assert "test_printf_error.slang:2:17" in str(caught.value)


@one_device
def test_a_warm_process_prints_without_the_compiler(device: spy.Device, tmp_path: Path) -> None:
    program = f"""
import sys
import slangpy_rt as spy
with spy.Device({device.name!r}) as device:
    spy.Module.load_from_source(device, "warm", 'void f(int i) {{ printf("warm %d\\\\n", i); }}').f([1, 2])
print("slangpy_rt.slang.compiler_process" in sys.modules)
"""
    for compiles in (True, False):
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                               env={**os.environ, "SLANGPY_RT_CACHE_DIR": str(tmp_path)})  # fmt: skip
        assert found.stdout == f"warm 1\nwarm 2\n{compiles}\n"
