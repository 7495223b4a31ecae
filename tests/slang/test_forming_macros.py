"""Macros that form statements are replaced by their text only where the preprocessor replaces them, too."""

from __future__ import annotations

import pytest

from slangpy_rt.slang.forming_macros import forming_macros
from slangpy_rt.slang.macros import expansions
from slangpy_rt.slang.source_map import SourceMap

TWICE = "#define TWICE(x) x = x + x;"
GUARDED = f"#ifndef FILE_H\n#define FILE_H\n{TWICE}\n#endif\n"


def replaced(text: str, *others: str) -> str:
    """A text with its macros replaced."""
    return SourceMap.of(text).edited(expansions(text, forming_macros((text, *others)))).text


def formed(text: str, *others: str) -> str:
    """The last line of a text, with its macros replaced."""
    return " ".join(replaced(text, *others).splitlines()[-1].split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{TWICE}\nTWICE(a)", "a = a + a;"),
        (f"{GUARDED}TWICE(a)", "a = a + a;"),
        (f"/* a file */\n{GUARDED}TWICE(a[f(b, c)])", "a[f(b, c)] = a[f(b, c)] + a[f(b, c)];"),
        (f"{TWICE}\n#define AGAIN(x) TWICE(x) TWICE(x)\nAGAIN(a)", "a = a + a; a = a + a;"),
        ("#define SHIFT(x) x = x >> 2; // a comment, \\\n of two lines\nSHIFT(a)", "a = a >> 2;"),
        ('#define SAY(x) print("x // y"); x = 1;\nSAY(a)', 'print("x // y"); a = 1;'),
        ("#define LOOP for (int i = 0; i < 3; ++i)\nLOOP a += i;", "for (int i = 0; i < 3; ++i) a += i;"),
    ],
)
def test_macros_that_form_statements_are_replaced(text: str, expected: str) -> None:
    assert formed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        f"#ifdef FAST\n{TWICE}\n#endif\nTWICE(a)",
        f"#if 0\n{TWICE}\n#else\nvoid TWICE(inout float x) {{ }}\n#endif\nTWICE(a)",
        f"#ifndef TWICE\n{TWICE}\n#endif\nTWICE(a)",
        f"{TWICE}\n#undef TWICE\nTWICE(a)",
        f"{TWICE}\n#define TWICE(x) x = x;\nTWICE(a)",
        f"{TWICE}\nTWICE(a, b)",
        f"{TWICE}\nTWICE",
        "#define NAME(x) #x;\nNAME(a)",
        "#define ALL(...) f(__VA_ARGS__);\nALL(a)",
    ],
)
def test_other_macros_are_left_to_the_compiler(text: str) -> None:
    assert formed(text) == text.splitlines()[-1]


def test_uses_before_the_definition_are_no_uses() -> None:
    assert replaced(f"TWICE(a)\n{TWICE}").startswith("TWICE(a)")


def test_definitions_of_other_files_count() -> None:
    assert formed("TWICE(a)", GUARDED) == "a = a + a;"
    assert formed("TWICE(a)", f"#if FAST\n{TWICE}\n#endif") == "TWICE(a)"


def test_macros_that_grow_exponentially_are_left_to_the_compiler() -> None:
    text = "".join(f"#define A{k} A{k + 1} A{k + 1} A{k + 1}\n" for k in range(40)) + "#define A40 x = 1;\n"
    assert formed(f"{text}A0") == "A0"
