"""Files, lines and columns in the compiler's messages are those of the user's text, whatever was added to it."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest

import slangpy_rt as spy
from tests.depth import one_device

# Statements are added at the beginning of each function, after calls with ``out`` parameters, in and after loops, and
# around assignments of components; ``while``, ``fmod`` and elements are replaced.
FUNCTION = """\
[Differentiable] void io(inout float x) { x = sin(x) + AT0; }
[Differentiable] float3 f(float3 v, float k, no_diff float c)
{
    AT1; float x = k; AT2; io(x); AT3; io(x); x += AT4;
\tfloat3 u = v;\tAT5;  float w = 1; // é漢😀
/* é漢😀 */ [MaxIters(4)] for (int i = 0; i < 3; ++i) w = w * k + AT6; AT7; w += 1;
    int n = 0; [MaxIters(4)]
    while (n < 3 + AT8) { n++; if (n == 2) continue; x = AT9 * x; } float m = fmod(x, AT10) + fmod(AT11, k); AT12;
    if (k > AT13) { u = v * v; u.x = AT14; AT15; }
    float a[3] = { k, x, w }; int j = n % 3; float s = a[0] * a[j] + AT16 * a[n - 3]; AT17;
    return u * w + m * s + AT18;
}
"""
PLACES = [f"AT{k}" for k in range(19)]


def placed(text: str, name: str) -> tuple[str, int, int, str]:
    """Return a text with an error at one place, its line and column, and the line."""
    text = re.sub(r"\bAT\d+\b", lambda m: "missing" if m[0] == name else "1.0f", text)
    before = text[: text.index("missing")]
    number = before.count("\n") + 1
    return text, number, len(before) - before.rfind("\n"), text.splitlines()[number - 1]


def check(error: Exception, path: str, number: int, column: int, line: str) -> None:
    """Compare the place that a message has with the one in the user's text."""
    said = str(error)
    assert "_spy_" not in said
    quoted, before = line.expandtabs(4), line[: column - 1].expandtabs(4)
    marks = len(before) + sum(unicodedata.east_asian_width(letter) == "W" for letter in before)
    width = len(str(number))
    assert (
        f"error[E30015]: undefined identifier\n{' ' * width}--> {path}:{number}:{column}\n{' ' * width} |\n"
        f"{number} | {quoted}\n{' ' * width} | {' ' * marks}^^^^^^^ undefined identifier 'missing'."
    ) in said


@one_device
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_main_files(device: spy.Device, tmp_path: Path, name: str, end: str) -> None:
    text, number, column, line = placed(FUNCTION, name)
    path = tmp_path / "main.slang"
    path.write_bytes(text.replace("\n", end).encode())
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_file(device, path)
    check(caught.value, str(path), number, column, line)


@one_device
@pytest.mark.parametrize("name", PLACES[::3])
@pytest.mark.parametrize("how", ["import near;", '#include "near.slang"', "import far;", "__include part;"])
def test_other_files(device: spy.Device, tmp_path: Path, name: str, how: str) -> None:
    text, number, column, line = placed(FUNCTION, name)
    names = {"import far;": "deep/near.slang", "__include part;": "part.slang"}
    path = tmp_path / names.get(how, "near.slang")
    path.parent.mkdir(exist_ok=True)
    (tmp_path / "far.slang").write_text("import deep.near;\n")
    if "part" in how:
        text, number = f"implementing main;\n{text}", number + 1
    path.write_text(text, encoding="utf-8")
    (tmp_path / "main.slang").write_text(("module main;\n" if "part" in how else "") + f"{how}\n")
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_file(device, tmp_path / "main.slang")
    check(caught.value, str(path), number, column, line)


@one_device
@pytest.mark.parametrize("name", PLACES[::3])
@pytest.mark.parametrize("file", ["", ' "other.slang"'])
def test_line_directives(device: spy.Device, name: str, file: str) -> None:
    text, number, column, line = placed(FUNCTION, name)
    text = "uniform float gain;\nfloat lit(float x, float y) { return x; }\n#line 100" + file + "\n" + text
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_source(device, "numbered", text)
    check(caught.value, "other.slang" if file else "numbered.slang", number + 99, column, line)


@one_device
def test_uniforms_kernels_and_functions_of_core_names(device: spy.Device) -> None:
    text = (
        "uniform   float3 q; float w = AT0; uniform int p; int r = AT1;\n"
        "[numthreads(32)] void kernel(uint3 i : SV_DispatchThreadID) { AT2; }\n"
        "  float lit(float x, float y) { return AT3; } float v = AT4;\n"
        "struct S { float a; }; ParameterBlock<S> u; float t = AT5;\n"
    )
    for name in (f"AT{k}" for k in range(6)):
        changed, number, column, line = placed(text, name)
        with pytest.raises(spy.CompileError) as caught:
            spy.Module.load_from_source(device, "edited", changed)
        check(caught.value, "edited.slang", number, column, line)


@one_device
def test_warnings_and_notes(device: spy.Device) -> None:
    text = (
        "[Differentiable] float f(float3 v, float k)\n{\n"
        "    float x = 1; for (int i = 0; i < 3; i++) x = x * k; int q = k; float z = nothing1;\n"
        "    return x + v.x;\n}\n"
        "[Differentiable] float3 f(float3 v, float k) { return k * v; }\n"
    )
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_source(device, "warned", text)
    said = str(caught.value)
    assert "_spy_" not in said
    lines = text.splitlines()
    found = re.findall(r"-> warned\.slang:(\d+):(\d+)\n.*\n(\d+) \| (.*)\n *\| ( *)([\^-]+)", said)
    assert len(found) == said.count("-> warned.slang") >= 4
    for number, column, again, quoted, spaces, marks in found:
        assert number == again and quoted == lines[int(number) - 1]
        assert len(spaces) == int(column) - 1 or "-" in marks
        if int(number) == 3:
            assert quoted[len(spaces) :][: len(marks)] in ("k", "nothing1")


@one_device
def test_derivatives_and_treated_functions(device: spy.Device) -> None:
    """Names that edits form are those of the user in messages, also in messages about a kernel."""
    text = (
        "[TreatAsDifferentiable] float g(float x) { return missing + fmod(x, 2); }\n"
        "[Differentiable] float f(float x) { return fmod(x, int3(1)) * g(x); }\n"
    )
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_source(device, "treated", text)
    said = str(caught.value)
    assert "_spy_" not in said
    assert f"treated.slang:1:{text.index('missing') + 1}\n" in said
    line = text.splitlines()[1]
    assert re.search(rf"treated\.slang:2:{line.index('* g(x)') + 1}\n  \|\n2 \| {re.escape(line)}\n", said)
