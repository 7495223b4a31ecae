"""Positions in a user's text of those in a text that was edited several times."""

from __future__ import annotations

import random

import pytest

from slangpy_rt.slang.messages import with_users_lines
from slangpy_rt.slang.source_map import SourceMap, line_number


def test_characters_keep_their_positions() -> None:
    """Random edits of edited texts; each character that stays is followed by itself."""
    rng = random.Random(0)
    for _ in range(3000):
        written = "".join(rng.choice("abc\n") for _ in range(rng.randrange(12)))
        source = SourceMap.of(written)
        origins: list[int | None] = list(range(len(written)))
        for _ in range(rng.randrange(1, 4)):
            ends = sorted(rng.sample(range(len(origins) + 1), min(len(origins) + 1, 2 * rng.randrange(4)) // 2 * 2))
            edits = [
                (start, end if rng.random() < 0.5 else start, "+" * rng.randrange(4))
                for start, end in zip(ends[::2], ends[1::2], strict=True)
            ]
            source = source.edited(edits)
            for start, end, new in reversed(edits):
                origins[start:end] = [None] * len(new)
        assert len(source.text) == len(origins)
        for at, origin in enumerate(origins):
            if origin is not None:
                assert source.text[at] == written[origin]
                assert source.offset(at) == origin
                assert source.offset(at + 1, last=True) == origin + 1
        offsets = [source.offset(at) for at in range(len(origins) + 1)]
        assert offsets == sorted(offsets)


@pytest.mark.parametrize(
    ("text", "number"),
    [("a\nb", 2), ("a\r\nb", 2), ("a\rb", 2), ("a\n#line 7\nb", 7), ('#line 7 "x"\n\nb', 8), ("a\x0c\u2028b", 1)],
)
def test_line_numbers(text: str, number: int) -> None:
    assert line_number(text, len(text)) == number


def test_messages_of_other_files_stay() -> None:
    source = SourceMap.of("int a = x;\n").edited([(0, 0, "int b; ")])
    message = "error: no\n --> {}:1:16\n  |\n1 | {}\n  |                ^ here\n"
    assert with_users_lines(message.format("m.slang", "int b; int a = x;"), [("m.slang", source)]) == (
        "error: no\n --> m.slang:1:9\n  |\n1 | int a = x;\n  |         ^ here\n"
    )
    for path, line in (("n.slang", "int b; int a = x;"), ("m.slang", "int b; int a = y;")):
        assert with_users_lines(message.format(path, line), [("m.slang", source)]) == message.format(path, line)


def test_several_marks_below_a_line() -> None:
    source = SourceMap.of("\tf(x, y);\n").edited([(3, 3, "__(1)")])
    message = " --> m.slang:1:9\n  |\n1 | f(__(1)x, y);\n  |        ^  - second\n  |        |\n  |        first\n"
    message = message.replace("1:9", "1:9").replace("f(__(1)x", "f(__(1)x")
    assert with_users_lines(message, [("m.slang", source)]) == (
        " --> m.slang:1:4\n  |\n1 |     f(x, y);\n  |       ^  - second\n  |       |\n  |       first\n"
    )
