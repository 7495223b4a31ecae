"""Which operands the tensor memory accelerator reads, and how products are divided; no GPU is needed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from slangpy_rt.core.target import Caps
from slangpy_rt.linalg.program import Kind
from slangpy_rt.linalg.tensor_cores import Config, TensorCores, fits, lines_of, readable, takes
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
    assert readable(view(shape, strides), 4096) == (line > 0)
    assert not readable(view(shape, strides), 4098)


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
        ({"wgmma"}, "float", "float", False),
        ({"wgmma"}, "int8_t", "int", False),
        (set(), "half", "half", False),
    ],
)
def test_which_devices_and_types(features: set[str], element: str, result: str, found: bool) -> None:
    device: Any = SimpleNamespace(caps=replace(CAPS, features=frozenset(features)))
    assert takes(device, Kind(element, result)) is found


@pytest.mark.parametrize(
    ("shape", "wide", "cluster"),
    [
        ((1, 4096, 4096), 256, 2),
        ((1, 128, 256), 128, 1),  # two tiles are done sooner than one that is twice as wide
        ((1, 64, 4096), 128, 1),
        ((1, 1024, 1024), 128, 1),
        ((1, 2048, 2048), 128, 1),
        ((1, 8192, 8192), 256, 2),
        ((64, 512, 512), 256, 1),
    ],
)
def test_how_products_are_divided(shape: tuple[int, int, int], wide: int, cluster: int) -> None:
    cores = object.__new__(TensorCores)
    cores._device = SimpleNamespace(caps=CAPS)  # type: ignore[assignment]
    cores._configs = {}
    found = cores.config(view(shape, (0, shape[2], 1)))
    assert cores.config(view(shape, (0, shape[2], 1))) is found
    assert isinstance(found, Config) and (found.wide, found.cluster) == (wide, cluster)
