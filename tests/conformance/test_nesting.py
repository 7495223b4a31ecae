"""Selections and loops inside of one another: right as deep as a device can go, refused beyond."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import sampled


def ifs(count: int) -> tuple[str, Callable[[int], int]]:
    text = "".join(f"if (a > {k}) {{ s += {k}; " for k in range(count)) + "s *= 2; " + "}" * count
    return text, lambda a: sum(range(min(a, count))) * (2 if a >= count else 1)


def else_ifs(count: int) -> tuple[str, Callable[[int], int]]:
    text = " else ".join(f"if (a == {k}) {{ s = {3 * k}; }}" for k in range(count))
    return text, lambda a: 3 * a if a < count else 0


def switches(count: int) -> tuple[str, Callable[[int], int]]:
    text = "".join(f"switch (a > {k} ? 1 : 0) {{ case 1: s += {k}; " for k in range(count)) + "break; }" * count
    return text, lambda a: sum(range(min(a, count)))


def loops(count: int) -> tuple[str, Callable[[int], int]]:
    text = ""
    for k in range(count):
        # The innermost runs three times.
        times = 1 if k < count - 1 else 3
        text += f"for (int i{k} = 0; i{k} < (a > {k} ? {times} : 0); i{k}++) {{ s += {k}; "
    return text + "}" * count, lambda a: sum(range(min(a, count))) + (2 * (count - 1) if a >= count else 0)


@sampled(6)
@pytest.mark.parametrize("count", [70, 90])
@pytest.mark.parametrize("kind", [ifs, else_ifs, switches, loops])
def test_depth(device: spy.Device, kind: Callable[[int], tuple[str, Callable[[int], int]]], count: int) -> None:
    body, expected = kind(count)
    text = f"int f(int a) {{ int s = 0; {body} return s; }}"
    a = np.arange(count + 20, dtype=np.int32)
    try:
        module = spy.Module.load_from_source(device, f"nesting_{kind.__name__}_{count}", text)
        found = module.f(a)
    except spy.CompileError as error:
        assert "levels deep; at most" in str(error)
        # In HLSL, Slang writes each selection of a switch inside a loop.
        levels = 2 if device.backend.target.format == "hlsl" and kind is switches else 1
        assert levels * count > device.caps.nesting - 5
    else:
        np.testing.assert_array_equal(found, [expected(int(k)) for k in a])
    after = spy.Module.load_from_source(device, "nesting_after", "int g(int a) { return a + 1; }")
    np.testing.assert_array_equal(after.g(a), a + 1)
