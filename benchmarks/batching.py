"""Many small calls at once: recorded, replayed, and made one by one; ``add`` on 1000 floats, 1000 of them.

- "append_to": host microseconds of recording one call.
- "chain": microseconds a call when each waits for the one before, waits for the device included; "independent" when
  none waits for another. ``slangpy_rt`` replays a list; its "recorded anew" makes and submits one each time, "calls"
  are plain. slangpy's encoders are submitted once, so that it records anew each time; torch and Warp replay CUDA
  graphs.
- "one submit": host microseconds of submitting the chain, the wait after it not counted.

Every chain is checked before it is timed: it adds 1 a thousand times.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from _common import OURS, SOURCE, Bench, per_call, whole
from _peers import _warp_arrays, open_slangpy

import slangpy_rt as spy

_ELEMENTS = 1000
_CALLS = 1000

Array = npt.NDArray[np.float32]
Call = Callable[[], object]


@dataclass(frozen=True)
class Peer:
    """A way to make many calls.

    Attributes
    ----------
    who : str
        Its name in the tables.
    chain, independent : callable
        Queue all calls.
    sync : callable
        Waits for all queued work.
    result : callable
        What the chain wrote, on the host.
    record : callable, optional
        Records the chain, and returns what finishes it.
    replays : bool
        Whether ``chain`` submits something recorded earlier.
    """

    who: str
    chain: Call
    independent: Call
    sync: Call
    result: Callable[[], Array]
    record: Callable[[], Call] | None = field(default=None)
    replays: bool = False


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("batching", __doc__ or "")
    bench.facts = {"elements": _ELEMENTS, "calls": _CALLS}
    for device in bench.devices:
        _measure(bench, device)
        bench.save()
    return bench.finish()


def _measure(bench: Bench, device: str) -> None:
    peers = _peers(bench, device)
    recording = {p.who: _append(p) for p in peers if p.record is not None}
    bench.compare(device, "append_to", "us", recording)
    times = 2 if bench.quick else 10
    scale = 1e6 / _CALLS
    bench.compare(device, "chain", "us", {p.who: whole(p.chain, p.sync, times, scale) for p in peers})
    bench.compare(device, "independent", "us", {p.who: whole(p.independent, p.sync, times, scale) for p in peers})
    if device != "cpu":
        # There a submission is the work itself. Elsewhere a wait after every 4 keeps queues from filling.
        seconds = 0.0005 if bench.quick else 0.002
        submits = {p.who: per_call(p.chain, p.sync, seconds, 4) for p in peers if p.replays}
        bench.compare(device, "one submit", "us", submits)


def _append(peer: Peer) -> Callable[[], float]:
    record = peer.record
    assert record is not None

    def sample() -> float:
        peer.sync()
        start = time.perf_counter()
        finish = record()
        spent = time.perf_counter() - start
        finish()
        peer.sync()
        return spent / _CALLS * 1e6

    return sample


def _peers(bench: Bench, device: str) -> list[Peer]:
    """Every peer of a device that is installed and gets the chain right; the others are noted as missing."""
    makers: dict[str, Callable[[], list[Peer]]] = {OURS: lambda: _ours(device)}
    if device == "cpu":
        makers["NumPy"] = _numpy
    else:
        makers["slangpy"] = lambda: _slangpy(device)
    if device == "cuda":
        makers |= {"torch": _torch, "Warp": _warp}
    peers = []
    for library, make in makers.items():
        who = library
        try:
            for peer in make():
                who = peer.who
                peer.sync()
                before = peer.result().copy()
                peer.chain()
                peer.sync()
                if not np.array_equal(peer.result(), before + _CALLS):
                    raise ArithmeticError("the sum is wrong")
                peers.append(peer)
        except Exception as error:  # a peer may raise whatever it likes
            bench.miss(device, who, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    return peers


def _ours(device: str) -> list[Peer]:
    opened = spy.Device(device)
    add = spy.Module.load_from_source(opened, "bench", SOURCE).add
    ones, x = spy.Tensor.ones(opened, _ELEMENTS), spy.Tensor.zeros(opened, _ELEMENTS)
    outs = [spy.Tensor.empty(opened, _ELEMENTS) for _ in range(_CALLS)]

    def recorded(into: Sequence[spy.Tensor], from_: spy.Tensor) -> spy.CommandList:
        commands = opened.command_list()
        for out in into:
            add.append_to(commands, from_, ones, _result=out)
        return commands

    def calls(into: Sequence[spy.Tensor], from_: spy.Tensor) -> None:
        for out in into:
            add(from_, ones, _result=out)

    same = [x] * _CALLS
    chain, independent = recorded(same, x), recorded(outs, ones)
    sync, result = opened.synchronize, x.to_numpy
    return [
        Peer(OURS, chain.submit, independent.submit, sync, result, lambda: recorded(same, x).submit, True),
        Peer(
            f"{OURS}, recorded anew",
            lambda: recorded(same, x).submit(),
            lambda: recorded(outs, ones).submit(),
            sync,
            result,
        ),
        Peer(f"{OURS}, calls", lambda: calls(same, x), lambda: calls(outs, ones), sync, result),
    ]


def _numpy() -> list[Peer]:
    ones, x = np.ones(_ELEMENTS, np.float32), np.zeros(_ELEMENTS, np.float32)
    outs = [np.empty_like(x) for _ in range(_CALLS)]

    def calls(into: Sequence[Array], from_: Array) -> None:
        for out in into:
            np.add(from_, ones, out=out)

    return [Peer("NumPy", lambda: calls([x] * _CALLS, x), lambda: calls(outs, ones), lambda: None, lambda: x)]


def _slangpy(device: str) -> list[Peer]:
    sp, opened, module = open_slangpy(device)
    add = module.add
    ones = sp.Tensor.from_numpy(opened, np.ones(_ELEMENTS, np.float32))
    x = sp.Tensor.zeros(opened, (_ELEMENTS,), "float")
    outs = [sp.Tensor.zeros(opened, (_ELEMENTS,), "float") for _ in range(_CALLS)]

    def recorded(into: Sequence[Any], from_: Any) -> Call:
        encoder = opened.create_command_encoder()
        for out in into:
            add.append_to(encoder, from_, ones, _result=out)
        return lambda: opened.submit_command_buffer(encoder.finish())

    def calls(into: Sequence[Any], from_: Any) -> None:
        for out in into:
            add(from_, ones, _result=out)

    same = [x] * _CALLS
    sync, result = opened.wait, x.to_numpy
    return [
        Peer(
            "slangpy",
            lambda: recorded(same, x)(),
            lambda: recorded(outs, ones)(),
            sync,
            result,
            lambda: recorded(same, x),
        ),
        Peer("slangpy, calls", lambda: calls(same, x), lambda: calls(outs, ones), sync, result),
    ]


def _torch() -> list[Peer]:
    torch: Any = importlib.import_module("torch")
    ones, x = torch.ones(_ELEMENTS, device="cuda"), torch.zeros(_ELEMENTS, device="cuda")
    outs = [torch.empty_like(x) for _ in range(_CALLS)]

    def calls(into: Sequence[Any], from_: Any) -> None:
        for out in into:
            torch.add(from_, ones, out=out)

    def captured(into: Sequence[Any], from_: Any) -> Call:
        # A capture wants the kernels loaded, and no work but its own.
        calls(into[:1], from_)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            calls(into, from_)
        replay: Call = graph.replay
        return replay

    same = [x] * _CALLS
    sync = torch.cuda.synchronize
    graphs = Peer("torch, graph", captured(same, x), captured(outs, ones), sync, lambda: x.cpu().numpy(), None, True)
    plain = Peer("torch, calls", lambda: calls(same, x), lambda: calls(outs, ones), sync, lambda: x.cpu().numpy())
    return [graphs, plain]


def _warp() -> list[Peer]:
    one = np.ones(_ELEMENTS, np.float32)
    wp, kernel, _, _ = _warp_arrays(one, one)

    def array(value: float) -> Any:
        return wp.full(_ELEMENTS, value, dtype=wp.float32, device="cuda")

    ones, x = array(1.0), array(0.0)
    outs = [array(0.0) for _ in range(_CALLS)]

    def calls(into: Sequence[Any], from_: Any) -> None:
        for out in into:
            wp.launch(kernel, dim=_ELEMENTS, inputs=[from_, ones, out], device="cuda")

    def captured(into: Sequence[Any], from_: Any) -> Call:
        calls(into[:1], from_)
        wp.synchronize()
        with wp.ScopedCapture(device="cuda") as capture:
            calls(into, from_)
        return lambda: wp.capture_launch(capture.graph)

    same = [x] * _CALLS
    graphs = Peer("Warp, graph", captured(same, x), captured(outs, ones), wp.synchronize, x.numpy, None, True)
    plain = Peer("Warp, calls", lambda: calls(same, x), lambda: calls(outs, ones), wp.synchronize, x.numpy)
    return [graphs, plain]


if __name__ == "__main__":
    sys.exit(main())
