"""Which operands tensor cores read, and which devices have them; no GPU is needed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from slangpy_rt.core.target import Caps
from slangpy_rt.linalg.cores import takes
from slangpy_rt.linalg.lines import fits, lines_of, readable, worth_packing
from slangpy_rt.linalg.program import Kind
from slangpy_rt.linalg.view import View

CAPS = Caps((2**31 - 1, 65535, 65535), frozenset(), frozenset({"wgmma"}), processors=132)


def view(shape: tuple[int, ...], strides: tuple[int, ...], element: str = "half") -> View:
    return View(element, shape, strides)


LINES: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((1, 64, 64), (4096, 64, 1), 2),
    ((1, 64, 64), (4096, 1, 64), 1),
    ((1, 64, 60), (1, 64, 1), 2),  # the stride of a single matrix does not count
    ((2, 64, 60), (3844, 64, 1), 0),  # matrices at no multiple of 16 bytes
    ((1, 64, 63), (0, 63, 1), 0),  # rows at no multiple of 16 bytes
    ((1, 1, 63), (0, 63, 1), 2),
    ((1, 64, 1), (0, 8, 5), 2),  # a column of rows
    ((1, 64, 64), (0, 128, 2), 0),  # elements apart
    ((3, 64, 64), (0, 64, 1), 2),  # one matrix for all
    ((1, 64, 64), (0, -64, 1), 0),
    ((1, 64, 64), (0, 0, 1), 0),  # all rows in one place
    ((1, 64, 64), (0, 2**39, 1), 0),
]


@pytest.mark.parametrize(("shape", "strides", "line"), LINES)
def test_lines(shape: tuple[int, ...], strides: tuple[int, ...], line: int) -> None:
    assert lines_of(view(shape, strides)) == line
    for left in (True, False):
        assert readable(view(shape, strides), 4096, left) == (line > 0)
        assert not readable(view(shape, strides), 4098, left)


def test_what_fits() -> None:
    a, b, c = view((1, 64, 32), (0, 32, 1)), view((1, 32, 48), (0, 48, 1)), view((1, 64, 48), (0, 48, 1))
    assert fits(a, b, c)
    assert not fits(a._replace(shape=(1, 64, 0)), b._replace(shape=(1, 0, 48)), c)
    assert not fits(a, b, c._replace(strides=(0, 1, 64)))
    assert not fits(a._replace(shape=(1, 2**31, 32)), b, c)


@pytest.mark.parametrize(
    ("features", "element", "result", "found"),
    [
        ({"wgmma"}, "half", "half", True),
        ({"wgmma"}, "bfloat16", "float", True),
        ({"wgmma"}, "float", "float", True),
        ({"wgmma"}, "float", "half", True),
        ({"wgmma"}, "int8_t", "int", True),
        ({"wgmma"}, "int", "int", False),
        ({"wgmma"}, "double", "double", False),
        (set(), "half", "half", False),
        ({"mma"}, "half", "half", True),
        ({"mma"}, "float", "bfloat16", True),
        ({"mma"}, "tf32", "float", True),
        ({"mma"}, "double", "float", False),
        ({"tiles_half"}, "half", "float", True),
        ({"tiles_half"}, "bfloat16", "bfloat16", False),
        ({"tiles_int8_t"}, "int8_t", "int", True),
        ({"tiles_half", "cooperative_matrix"}, "float", "float", False),
    ],
)
def test_which_devices_and_types(features: set[str], element: str, result: str, found: bool) -> None:
    device: Any = SimpleNamespace(caps=replace(CAPS, features=frozenset(features)))
    assert takes(device, Kind(element, result)) is found


def test_bytes_and_floats() -> None:
    """Bytes are multiplied along lines alone; floats are always copied, as parts."""
    rows, columns = view((1, 64, 64), (4096, 64, 1), "int8_t"), view((1, 64, 64), (4096, 1, 64), "int8_t")
    assert readable(rows, 16, True) and not readable(rows, 16, False)
    assert readable(columns, 16, False) and not readable(columns, 16, True)
    # Lines of bytes lie at multiples of 16 elements, those of floats at multiples of 4.
    assert not lines_of(view((1, 64, 60), (0, 72, 1), "int8_t"))
    assert lines_of(view((1, 64, 60), (0, 60, 1), "float")) == 2
    assert not readable(view((1, 64, 64), (4096, 64, 1), "float"), 16, True)


def test_which_copies_are_worth_it() -> None:
    def square(n: int, element: str) -> View:
        return view((1, n, n), (n * n, n, 1), element)

    assert worth_packing(square(512, "half"), square(512, "half"))
    assert not worth_packing(square(511, "half"), square(511, "half"))
    assert not worth_packing(square(812, "float"), square(812, "float"))
    assert worth_packing(square(813, "float"), square(813, "float"))
    # More rows of one element than threads are counted with 32 bits.
    long = view((1, 2**31 - 2**10, 1), (0, 1, 1), "half")
    assert not worth_packing(long, view((1, 1, 512), (0, 512, 1), "half"))
