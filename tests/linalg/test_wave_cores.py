"""The text for Vulkan's cooperative matrices is SPIR-V with instructions that multiply them; no GPU is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.null import NullBackend
from slangpy_rt.backends.targets import target_of
from slangpy_rt.linalg.program import Kind
from slangpy_rt.linalg.view import View
from slangpy_rt.linalg.wave_cores import WaveCores
from tests.depth import sampled

MULTIPLY_ADD, LOAD, STORE = 4459, 4457, 4458  # OpCooperativeMatrix...KHR


class SpirvBackend(NullBackend):
    """The null backend with code for Vulkan, which it keeps."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.codes: list[bytes] = []
        self.caps = replace(self.caps, features=self.caps.features | {"group_shared", "wave", "tiles_half"}, lanes=32)
        self.target = target_of("spirv", "spirv_1_5", "pointer", self.caps)

    def compile(self, code: bytes, entry: str) -> bytes:
        self.codes.append(code)
        return code


def operations(code: bytes) -> dict[int, int]:
    """Return how often each operation is in a module, whose instructions begin with their length and number."""
    words, at, found = np.frombuffer(code, np.uint32), 5, dict[int, int]()
    while at < len(words):
        found[int(words[at]) & 0xFFFF] = found.get(int(words[at]) & 0xFFFF, 0) + 1
        at += int(words[at]) >> 16
    return found


@sampled(3)
@pytest.mark.parametrize(
    ("element", "left", "right"),
    [("half", 2, 2), ("half", 2, 1), ("half", 1, 2), ("half", 1, 1), ("int8_t", 2, 1), ("bfloat16", 2, 2)],
)
def test_spirv(element: str, left: int, right: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slangpy_rt.backends.null.NullBackend", SpirvBackend)
    with spy.Device("null") as device:
        backend: Any = device.backend
        result = "int" if element == "int8_t" else element
        stored = {"bfloat16": "int16_t"}
        cores = WaveCores(device, Kind(element, result, "relu", True))
        views = [View(element, (1, 64, 64), (0, 64, 1) if x == 2 else (0, 1, 64)) for x in (left, right, 2)]
        kernel, threads = cores.division(*views)
        arrays = [spy.Tensor.zeros(device, (1, 64, 64), stored.get(x, x)) for x in (element, element, result)]
        kernel.dispatch(threads, *arrays, 1, spy.Tensor.zeros(device, 64, stored.get(result, result)))
        assert backend.launches[-1][1] == (1, 1, 1)
        found = operations(backend.codes[-1])
        # Two parts of 32 bytes of what is multiplied, and 4 x 4 matrices of a wave.
        assert found[MULTIPLY_ADD] == 2 * 16 and found[LOAD] == 2 * 8 and found[STORE] == 16
