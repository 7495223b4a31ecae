"""Arrays that do not follow the call: rows of odd lengths, transposed arrays, every other element, structs in place.

GB/s of what has to move, once for each array of the call; a row that all rows share is not counted. Several calls are
queued to one wait, which is counted. Results are given, for all libraries alike. torch computes ``a + 2 * b`` by
``torch.add`` with ``alpha=2``, its only form that is one kernel. The floor is an addition of arrays in order.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from _common import OURS, Bench, on_host, whole

import slangpy_rt as spy

_TEXT = """
float axpy(float a, float b) { return a + 2 * b; }
struct Body { float3 position; float3 velocity; };
void drift(inout Body body) { body.position += 0.5f * body.velocity; }
"""
_FLOOR = "floor: arrays in order"


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("layouts", __doc__ or "")
    for name, info in bench.devices.items():
        host = on_host(name, info)
        _measure(bench, name, 1024 if bench.quick or (host and name != "cpu") else 2048 if host else 8192, host)
        bench.save()
    return bench.finish()


def _measure(bench: Bench, name: str, side: int, host: bool) -> None:
    calls = 2 if host else 10
    with spy.Device(name) as device:
        module = device.load_module_from_source("layouts", _TEXT)
        torch = _torch(bench, name)
        whole_square = np.random.default_rng(0).random((side, side), np.float32)
        odd = np.ascontiguousarray(whole_square[1:, 1:])
        for title, make in {
            f"rows: ({side - 1}, {side - 1}) + ({side - 1},)": lambda a, b: (a["odd"], b["odd"][0], 8),
            f"columns: ({side - 1}, {side - 1}) + ({side - 1}, 1)": lambda a, b: (a["odd"], b["odd"][:, :1], 8),
            f"transposed + straight, {side} x {side}": lambda a, b: (_turned(a["square"]), b["square"], 12),
            f"straight + transposed, {side - 1} x {side - 1}": lambda a, b: (a["odd"], _turned(b["odd"]), 12),
            f"every other column, {side} x {side // 2}": lambda a, b: (a["square"][:, ::2], b["half"], 16),
            f"columns from the second on, {side} x {side - 1}": lambda a, b: (
                a["square"][:, 1:],
                b["square"][:, 1:],
                12,
            ),
        }.items():
            samplers = {}
            for who in (OURS, *(["torch"] if torch is not None else [])):
                kinds = {"odd": odd, "square": whole_square, "half": np.ascontiguousarray(whole_square[:, ::2])}
                arrays = {
                    k: spy.Tensor.from_numpy(device, v) if who == OURS else _on(torch, name, v)
                    for k, v in kinds.items()
                }
                a, b, each = make(arrays, arrays)
                count = max(int(np.prod(a.shape)), int(np.prod(b.shape)))
                shape = tuple(np.broadcast_shapes(tuple(a.shape), tuple(b.shape)))
                if who == OURS:
                    out = spy.Tensor.empty(device, shape)
                    timer = whole(lambda a=a, b=b, out=out: module.axpy(a, b, _result=out), device.synchronize, calls)
                else:
                    out = torch.empty(shape, device="cpu" if name == "cpu" else "cuda")
                    sync = (lambda: None) if name == "cpu" else torch.cuda.synchronize
                    timer = whole(lambda a=a, b=b, out=out: torch.add(a, b, alpha=2, out=out), sync, calls)
                samplers[who] = lambda timer=timer, moved=each * count / 1e9: moved / timer()
            flat = [spy.Tensor.from_numpy(device, whole_square) for _ in range(3)]
            floor = whole(lambda f=flat: module.axpy(f[0], f[1], _result=f[2]), device.synchronize, calls)
            samplers[_FLOOR] = lambda floor=floor: 12 * side * side / 1e9 / floor()
            bench.compare(name, title, "GB/s", samplers)
        # Zeros would move faster: some drivers compress memory.
        bodies = spy.Tensor.zeros(device, side * side // 6, dtype=module.Body)
        filled = np.random.default_rng(1).random(6 * bodies.size, np.float32)
        bodies.copy_from_numpy(filled.view(bodies.to_numpy().dtype))
        moves = whole(lambda: module.drift(bodies), device.synchronize, calls)
        bench.compare(name, "structs of 24 bytes in place", "GB/s", {OURS: lambda: 48 * bodies.size / 1e9 / moves()})


def _turned(array: Any) -> Any:
    return array.T


def _on(torch: Any, name: str, values: Any) -> Any:
    tensor = torch.from_numpy(values)
    return tensor if name == "cpu" else tensor.cuda()


def _torch(bench: Bench, name: str) -> Any:
    """torch where it computes on the same hardware, or None."""
    try:
        import torch
    except ImportError as error:
        bench.miss(name, "torch", str(error))
        return None
    if name == "cpu" or torch.cuda.is_available():
        return torch
    bench.miss(name, "torch", "it has no GPU here")
    return None


if __name__ == "__main__":
    sys.exit(main())
