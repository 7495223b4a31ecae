"""Expansion of macros in Slang text."""

from __future__ import annotations

import pytest

from slangpy_rt.slang.macros import expanded, macros_of
from slangpy_rt.slang.tokens import tokens


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("#define A 1\nA + A", "1 + 1"),
        ("#define A B\n#define B A + 1\nA", "A + 1"),
        ("#define A A\nA", "A"),
        ("#define F(x, y) x * (y)\nF(a, G(b, c))", "a * (G(b, c))"),
        ("#define F(x) x\nF + F (1)", "F + 1"),
        ("#define F(x) x##_y\nF(a)", "a_y"),
        ("#define F(x, ...) g(x, __VA_ARGS__)\nF(1, 2, 3)", "g(1, 2, 3)"),
        ("#define F(x) x * F(x)\nF(F(2))", "F(2) * F(F(2))"),
        ("#define F(x, \\\n          y) x \\\n    - y\nF(1,\n  2)", "1 - 2"),
        ("#if X\n#define A short\n#else\n#define A much longer\n#endif\nA", "much longer"),
        ("#define F(x) x\nF(1", "F(1"),
        ("// A\n#define A 1\nconst char *s = \"A\";", "const char *s = \"A\";"),
        ("DEFINED", "1 + 2"),
    ],
)  # fmt: skip
def test_tokens(text: str, wanted: str) -> None:
    whole = expanded(text, macros_of([text], [("DEFINED", "1 + 2")]))
    assert [item.text for item in tokens(whole)] == [item.text for item in tokens(wanted)]


def test_lines_stay() -> None:
    text = "#define F(x) x \\\n + 1\nF(\n  2\n)\nlast\n"
    whole = expanded(text, macros_of([text]))
    assert whole.splitlines().index("last") == text.splitlines().index("last")


def test_macros_that_grow_exponentially() -> None:
    text = "".join(f"#define A{k} A{k + 1} A{k + 1} A{k + 1}\n" for k in range(40)) + "A0\n"
    assert len(expanded(text, macros_of([text]))) < 1_000_000
