"""Calls on arrays that another library works on, on streams of its own: with a stand-in for CUDA on the CPU.

The device says that it is CUDA's, so that all but the driver runs as it does there; tests/gpu has the real thing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.arrays.dlpack import CUDA, Import
from slangpy_rt.backends import REGISTRY
from slangpy_rt.backends.base import Queue
from slangpy_rt.backends.cpu.backend import CpuBackend
from slangpy_rt.backends.extras import ForeignStreams

SOURCE = """
float add(float a, float b) { return a + b; }
void grow(inout float a, float b) { a += b; }
struct Line { float slope; float offset; }
float along(Line line, float x) { return line.slope * x + line.offset; }
"""


class Array:
    """Numbers that lie on a GPU, for all that it says."""

    def __init__(self, data: Any, stream: int | None = 1, read_only: bool = False) -> None:
        self.data = np.asarray(data, np.float32)
        self.told = dict(self.data.__array_interface__, stream=stream)
        self.told["data"] = (self.told["data"][0], read_only)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.told


class Capsule:
    """The same by DLPack alone; counts how often it was asked and let go of."""

    def __init__(self, device: spy.Device, data: Any) -> None:
        self.tensor = spy.Tensor.from_numpy(device, np.asarray(data, np.float32))
        self.dtype, self.shape = np.dtype(np.float32), self.tensor.shape
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **options: Any) -> Any:
        self.streams.append(options.pop("stream"))
        return self.tensor.__dlpack__(stream=-1, **options)


class Recorded(Queue):
    """A queue that notes what it is given."""

    def __init__(self, backend: Any, handle: int, log: list[tuple[int, str]]) -> None:
        super().__init__(backend)
        self.handle = handle
        self.log = log

    def launch(self, *args: Any) -> None:
        self.log.append((self.handle, "launch"))
        self.backend.queue.launch(*args)

    def wait(self, mark: Any) -> None:
        self.log.append((self.handle, "wait"))


class Hosting(CpuBackend, ForeignStreams):
    """The CPU, with streams of other libraries."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.log: list[tuple[int, str]] = []
        self.known: dict[int, Queue] = {}

    def open_stream(self, handle: int, owner: Any = None) -> Queue:
        return self.foreign_queue(handle)

    def foreign_queue(self, handle: int) -> Queue:
        return self.known.setdefault(handle, Recorded(self, handle, self.log))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[spy.Module, list[tuple[int, str]]]]:
    monkeypatch.setitem(REGISTRY, "cpu", f"{__name__}:Hosting")
    with spy.Device("cpu") as device:
        assert isinstance(device.backend, Hosting)
        device.name, device.caps = "cuda", replace(device.caps, dlpack_device=CUDA)
        yield spy.Module.load_from_source(device, "foreign_streams", SOURCE), device.backend.log


def test_a_call_runs_on_the_stream_that_its_array_names(opened: tuple[spy.Module, list[Any]]) -> None:
    module, log = opened
    a, out = Array([1, 2, 3], 77), Array([0, 0, 0], 77)
    got = module.add(a, 1.0)
    assert isinstance(got, spy.Tensor) and got.numpy().tolist() == [2, 3, 4]
    assert log == [(77, "launch")]
    module.grow(out, a)
    assert out.data.tolist() == [1, 2, 3]
    module.along({"slope": a, "offset": 1.0}, 2.0)
    assert log == [(77, "launch")] * 3
    # None and 1 are the default stream, which the driver calls 0.
    for stream in (None, 1):
        log.clear()
        module.grow(Array([1], stream), 1.0)
        assert log == [(0, "launch")]


def test_the_result_says_it_too(opened: tuple[spy.Module, list[Any]]) -> None:
    module, log = opened
    x = spy.Tensor.ones(module.device, 3)
    out = Array([0, 0, 0], 88)
    module.grow(out, x)
    assert log == [(88, "launch")] and out.data.tolist() == [1, 1, 1]


def test_streams_wait_for_each_other(opened: tuple[spy.Module, list[Any]]) -> None:
    module, log = opened
    a, b = Array([1, 2], 5), Array([3, 4], 6)
    for _ in range(2):
        log.clear()
        np.testing.assert_array_equal(module.add(a, b).numpy(), [4, 6])
        assert log == [(5, "wait"), (5, "launch"), (6, "wait")]
    log.clear()
    s = module.device.stream()
    module.add.stream(s)(a, b)
    # Its own queue is the stand-in's only one; the others wait for it behind the call.
    assert log == [(5, "wait"), (6, "wait")]


def test_memory_by_dlpack(opened: tuple[spy.Module, list[Any]]) -> None:
    module, log = opened
    device = module.device
    x = Capsule(device, [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(module.add(x, 1.0).numpy(), [[2, 3, 4], [5, 6, 7]])
    assert not log and set(x.streams) == {1}
    y = spy.Tensor.from_dlpack(device, x)
    assert y.address == x.tensor.address and y.shape == (2, 3)
    module.grow(y, 1.0)
    assert x.tensor.numpy()[1, 2] == 7
    z = spy.NDBuffer.from_dlpack(device, x)
    assert type(z) is spy.NDBuffer and z.address == x.tensor.address and z.numpy()[1, 2] == 7
    with pytest.raises(spy.BindError, match="names no stream that would wait"):
        module.grow(x, 1.0)
    x.tensor = x.tensor[:, ::2]
    x.shape = x.tensor.shape
    np.testing.assert_array_equal(module.add(x, 0.0).numpy(), [[2, 4], [5, 7]])


def test_memory_is_kept_and_let_go_of(opened: tuple[spy.Module, list[Any]]) -> None:
    module, _ = opened
    device = module.device

    def buffers() -> int:
        gc.collect()
        return sum(isinstance(o, spy.backends.base.Buffer) for o in gc.get_objects())  # type: ignore[attr-defined]

    before = buffers()
    x = Capsule(device, np.ones(1000))
    seen = spy.Tensor.from_dlpack(device, x)
    del x
    assert buffers() > before
    module.add(seen, 1.0)
    # What a call was given is done with it; a Tensor's memory is looked after when somebody waits.
    module.add(Capsule(device, np.ones(1000)), 1.0)
    assert not device.order.left_over
    del seen
    assert len(device.order.left_over) == 1
    device.synchronize()
    assert buffers() == before


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_capsules(opened: tuple[spy.Module, list[Any]], max_version: Any) -> None:
    module, _ = opened
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = spy.Tensor.from_numpy(module.device, data)
    view = x[1:, ::2]
    found = Import(view.__dlpack__(stream=-1, max_version=max_version))
    assert (found.device, found.shape, found.strides, found.typestr) == (0, (2, 2), (4, 2), "f4")
    assert found.address == view.address

    def refuse(capsule: Any, value: Any) -> None:
        """Never called."""

    # One that nobody takes goes while an error is on its way, and the error stays what it was.
    with pytest.raises(ZeroDivisionError):
        refuse(x.__dlpack__(stream=-1, max_version=max_version), 1 / 0)
    with pytest.raises(ZeroDivisionError):
        refuse(Import(x.__dlpack__(stream=-1, max_version=max_version)), 1 / 0)
    with pytest.raises(spy.BindError, match="no DLPack capsule"):
        taken = x.__dlpack__(stream=-1, max_version=max_version)
        Import(taken)
        Import(taken)
    with pytest.raises(BufferError, match="shared where it lies"):
        x.__dlpack__(dl_device=(1, 0))


def test_what_is_refused(opened: tuple[spy.Module, list[Any]]) -> None:
    module, _ = opened
    with pytest.raises(spy.BindError, match="must not be changed"):
        module.grow(Array([1], read_only=True), 1.0)
    wrong = Array([1])
    wrong.told["typestr"] = "<c8"
    with pytest.raises(spy.BindError, match="of dtype complex64"):
        module.add(wrong, 1.0)
    with pytest.raises(spy.BindError, match="must not be changed, as a Tensor may be"):
        spy.Tensor.from_dlpack(module.device, Array([1], read_only=True))
    module.device.name, module.device.caps = "cpu", module.device.backend.caps
    with pytest.raises(spy.BindError, match="does not work there"):
        module.add(Array([1]), 1.0)
