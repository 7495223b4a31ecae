"""Broadcasting and merging of dimensions, as pure functions, against NumPy."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slangpy_rt.arrays.layout import same_walk
from slangpy_rt.core.errors import ShapeError
from slangpy_rt.core.shapes import align, broadcast, coalesce, contiguous

SIZES = st.sampled_from([0, 1, 1, 2, 3, 5])
SHAPES = st.lists(SIZES, max_size=4).map(tuple)


@settings(max_examples=400, deadline=None, database=None)
@given(st.lists(SHAPES, max_size=4))
def test_broadcast_as_numpy(shapes: list[tuple[int, ...]]) -> None:
    named = [(f"p{k}", shape) for k, shape in enumerate(shapes)]
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ShapeError):
            broadcast("f", named)
    else:
        assert broadcast("f", named) == expected


def test_the_message_names_the_argument_that_set_the_dimension() -> None:
    with pytest.raises(ShapeError) as caught:
        broadcast("f(a, b, c)", [("a", (1, 4)), ("b", (3, 1)), ("c", (2, 4))])
    assert str(caught.value) == (
        "f(a, b, c): argument 'c' of shape (2, 4) does not broadcast with argument 'b' of shape (3, 1).\n"
        "Shapes are matched from the right; two dimensions must be equal, or one of them 1."
    )


@settings(max_examples=300, deadline=None, database=None)
@given(SHAPES, st.data())
def test_align_walks_like_broadcast_to(call: tuple[int, ...], data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, len(call)))
    own = tuple(1 if data.draw(st.booleans()) else n for n in call[len(call) - rank :])
    model = np.broadcast_to(np.zeros(own, np.int8), call)
    aligned = align(own, contiguous(own), call)
    assert len(aligned) == len(call)
    # NumPy's strides of dimensions with one element, or of empty arrays, mean nothing.
    if 0 not in call:
        assert all(n == 1 or a == b for n, a, b in zip(call, aligned, model.strides, strict=True))


def walk(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Where each element lies, in row-major order."""
    offsets = np.zeros(shape, np.int64)
    for d, (n, stride) in enumerate(zip(shape, strides, strict=True)):
        offsets += (np.arange(n) * stride).reshape((n,) + (1,) * (len(shape) - d - 1))
    return [int(x) for x in offsets.ravel()]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """A call shape and strides of arguments: dense, permuted, stretched, sliced, reversed."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=4)))
    strides = []
    for _ in range(draw(st.integers(1, 3))):
        steps = draw(st.lists(st.sampled_from([1, 1, 1, 0, 2, -1]), min_size=len(shape), max_size=len(shape)))
        dense = contiguous(shape)
        strides.append(tuple(a * b for a, b in zip(dense, steps, strict=True)))
    return shape, strides


@settings(max_examples=400, deadline=None, database=None)
@given(layouts())
def test_merging_changes_no_walk_and_leaves_nothing_to_merge(
    case: tuple[tuple[int, ...], list[tuple[int, ...]]],
) -> None:
    shape, strides = case
    merged = coalesce(shape, strides)
    assert prod(merged.shape) == prod(shape) and len(merged.strides) == len(strides)
    for before, after in zip(strides, merged.strides, strict=True):
        assert walk(merged.shape, after) == walk(shape, before)
    assert merged.shape == (1,) or 1 not in merged.shape
    for (d, e), n in zip(pairwise(range(len(merged.shape))), merged.shape[1:], strict=True):
        assert any(s[d] != s[e] * n for s in merged.strides), "two dimensions could still merge"


def test_merging_by_example() -> None:
    dense = contiguous((2, 3, 4))
    assert coalesce((2, 3, 4), [dense, dense]).shape == (24,)
    assert coalesce((2, 3, 4), [dense, (0, 4, 1)]).shape == (2, 12)
    assert coalesce((2, 3, 4), [(0, 0, 0)]).shape == (24,)
    assert coalesce((2, 1, 4), [(4, 99, 1)]).shape == (8,)
    assert coalesce((), [()]) == coalesce((1, 1), [(5, 7)])
    assert coalesce((4, 3), [(1, 4)]).shape == (4, 3)


@settings(max_examples=200, deadline=None, database=None)
@given(SHAPES, st.data())
def test_contiguity_as_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = np.zeros(shape, np.int8)
    if 0 not in shape:
        assert walk(shape, contiguous(shape)) == list(range(array.size))
    order = data.draw(st.permutations(range(len(shape))))
    turned = array.transpose(order)
    assert same_walk(turned.shape, turned.strides) == turned.flags.c_contiguous
