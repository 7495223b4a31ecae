"""Memory of a device without pointers: what a descriptor and 32 bits of an offset cannot reach is refused first."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import slangpy_rt as spy
from slangpy_rt.backends.rhi.apis import RhiVulkanHandles
from slangpy_rt.backends.rhi.device import why_missing
from slangpy_rt.backends.rhi.memory import HANDLE_SHIFT

pytestmark = pytest.mark.skipif(why_missing("vulkan") is not None, reason=str(why_missing("vulkan")))
TOO_MANY = r"bytes are more than an array may have here, which is less than 4 GiB\. Use smaller ones\."


@pytest.fixture
def opened() -> Iterator[spy.Device]:
    with spy.Device("rhi-vulkan-handles") as device:
        yield device


@pytest.fixture
def asked(opened: spy.Device, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes that slang-rhi is asked for; it allocates none of them."""
    sizes: list[int] = []

    def make(nbytes: int, kind: str) -> Any:
        sizes.append(nbytes)
        return SimpleNamespace(descriptor_handle_rw=SimpleNamespace(value=2**24 + 7 - len(sizes)))

    monkeypatch.setattr(opened.backend._heap, "make", make)
    return sizes


def test_arrays_of_4_gib_are_refused_before_anything_is_made(opened: spy.Device, asked: list[int]) -> None:
    module = spy.Module.load_from_source(opened, "far", "float half_(int x) { return x / 2; }")
    for shape in ((2**30,), (2**15, 2**15), (2**31,)):
        with pytest.raises(spy.OutOfMemoryError, match=TOO_MANY):
            spy.Tensor.zeros(opened, shape, "float")
    with pytest.raises(spy.OutOfMemoryError, match=TOO_MANY):
        module.half_(spy.grid((2**30,)))
    assert not asked


def test_offsets_have_32_bits(opened: spy.Device, asked: list[int]) -> None:
    backend = opened.backend
    assert isinstance(backend, RhiVulkanHandles)
    # Blocks beyond 1 MiB are multiples of that.
    most = 2**32 - 2**20
    for nbytes in (most + 1, 2**32 - 1, 2**32, 2**40):
        with pytest.raises(spy.OutOfMemoryError, match=TOO_MANY):
            backend.alloc(nbytes)
    assert not asked


def test_descriptors_have_24_bits(opened: spy.Device, asked: list[int]) -> None:
    # Those that the stand-in above gives count down from 2**24 + 6.
    for _ in range(7):
        with pytest.raises(ValueError, match="an address has 24 bits of one and 32 of the other"):
            opened.backend.alloc(2**32 - 2**20)
    last = opened.backend.alloc(2**32 - 2**20)
    assert last.address == (2**24 - 1) << HANDLE_SHIFT
    assert asked == [2**32 - 2**20] * 8


def test_more_memory_than_slang_rhi_has_descriptors_by_default(opened: spy.Device) -> None:
    # Each block beyond 1 MiB is a buffer of its own; none of them is touched.
    blocks = [opened.backend.alloc(2**20 + 4) for _ in range(1100)]
    assert len({block.address >> HANDLE_SHIFT for block in blocks}) == len(blocks)
