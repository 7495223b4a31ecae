"""The same ``add`` over two float arrays in every library that is installed: ours, slangpy and the others.

A peer is called through its public API in the way that its own documentation shows. Each is checked against
NumPy once before it is timed; nothing here takes a time.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from _common import OURS, SOURCE, Bench

import slangpy_rt as spy

GIVEN, ALLOCATED, NUMPY, SCALARS, MIXED = (
    "result given", "result allocated", "NumPy in and out", "scalars", "array and scalar",
)  # fmt: skip

Array = npt.NDArray[np.float32]
Call = Callable[[], object]

_TRITON = """
import triton
import triton.language as tl

@triton.jit
def add(a, b, c, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(c + i, tl.load(a + i, mask=inside) + tl.load(b + i, mask=inside), mask=inside)
"""
_WARP = """
import warp as wp

@wp.kernel
def add(a: wp.array(dtype=wp.float32), b: wp.array(dtype=wp.float32), c: wp.array(dtype=wp.float32)):
    i = wp.tid()
    c[i] = a[i] + b[i]
"""


@dataclass(frozen=True)
class Peer:
    """A library set up for ``c = a + b``.

    Attributes
    ----------
    who : str
        Its name in the tables.
    calls : dict
        By case. ``GIVEN`` writes to a result made beforehand.
    sync : callable
        Waits for all queued work.
    result : callable
        What ``GIVEN`` wrote, on the host.
    """

    who: str
    calls: dict[str, Call]
    sync: Call
    result: Callable[[], Array]


def adders(bench: Bench, device: str, a: Array, b: Array, only: tuple[str, ...] = ()) -> list[Peer]:
    """Every peer of a device that is installed and gets the sum right; the others are noted as missing."""
    makers: dict[str, Callable[[Array, Array], Peer]] = {OURS: lambda a, b: _ours(device, a, b)}
    if device == "cpu":
        makers["NumPy"] = _numpy
        makers["slangpy"] = _no_slangpy
    if device not in ("cpu", "null"):
        makers["slangpy"] = lambda a, b: _slangpy(device.removeprefix("rhi-"), a, b)
    if device == "cuda":
        makers |= {"torch": _torch, "CuPy": _cupy, "Warp": _warp, "Warp, recorded launch": _warp_recorded}
        makers["Triton"] = _triton
    peers = []
    for who, make in makers.items():
        if only and who not in only:
            continue
        try:
            peer = make(a, b)
            if device != "null":
                peer.calls[GIVEN]()
                peer.sync()
                if not np.array_equal(peer.result(), a + b):
                    raise ArithmeticError("the sum is wrong")
            peers.append(peer)
        except Exception as error:  # a peer may raise whatever it likes
            bench.miss(device, who, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    return peers


def open_slangpy(device: str, source: str = SOURCE) -> tuple[Any, Any, Any]:
    """slangpy itself, its device with RHI validation off, and its module of the benchmarks' functions or others."""
    sp = importlib.import_module("slangpy")
    opened = sp.Device(
        type=getattr(sp.DeviceType, device),
        enable_rhi_validation=False,
        compiler_options={"include_paths": [sp.SHADER_PATH]},
    )
    return sp, opened, sp.Module.load_from_source(opened, "bench", source)


def _ours(device: str, a: Array, b: Array) -> Peer:
    opened = spy.Device(device)
    module = spy.Module.load_from_source(opened, "bench", SOURCE)
    ta, tb = spy.Tensor.from_numpy(opened, a), spy.Tensor.from_numpy(opened, b)
    tc = spy.Tensor.empty(opened, a.shape)
    calls: dict[str, Call] = {
        GIVEN: lambda: module.add(ta, tb, _result=tc),
        ALLOCATED: lambda: module.add(ta, tb),
        NUMPY: lambda: module.add(a, b),
        SCALARS: lambda: module.add(1.0, 2.5),
        MIXED: lambda: module.add(ta, 2.5, _result=tc),
    }
    # The null device's list of launches would grow with every batch.
    sync = opened.backend.launches.clear if device == "null" else opened.synchronize
    return Peer(OURS, calls, sync, tc.to_numpy)


def _slangpy(device: str, a: Array, b: Array) -> Peer:
    sp, opened, module = open_slangpy(device)
    ta, tb = sp.Tensor.from_numpy(opened, a), sp.Tensor.from_numpy(opened, b)
    tc = sp.Tensor.zeros(opened, a.shape, "float")
    calls: dict[str, Call] = {
        GIVEN: lambda: module.add(ta, tb, _result=tc),
        ALLOCATED: lambda: module.add(ta, tb),
        NUMPY: lambda: module.add(a, b, _result="numpy"),
        SCALARS: lambda: module.add(1.0, 2.5),
        MIXED: lambda: module.add(ta, 2.5, _result=tc),
    }
    return Peer("slangpy", calls, opened.wait, tc.to_numpy)


def _no_slangpy(a: Array, b: Array) -> Peer:
    raise NotImplementedError("its functional calls do not run on its CPU device")


def _numpy(a: Array, b: Array) -> Peer:
    c, scalar = np.empty_like(a), np.float32(2.5)
    calls: dict[str, Call] = {
        GIVEN: lambda: np.add(a, b, out=c),
        ALLOCATED: lambda: np.add(a, b),
        NUMPY: lambda: np.add(a, b),
        MIXED: lambda: np.add(a, scalar, out=c),
    }
    return Peer("NumPy", calls, lambda: None, lambda: c)


def _torch(a: Array, b: Array) -> Peer:
    torch: Any = importlib.import_module("torch")
    ha, hb = torch.from_numpy(a), torch.from_numpy(b)
    ta, tb = ha.cuda(), hb.cuda()
    tc = torch.empty_like(ta)
    calls: dict[str, Call] = {
        GIVEN: lambda: torch.add(ta, tb, out=tc),
        ALLOCATED: lambda: torch.add(ta, tb),
        NUMPY: lambda: torch.add(ha.cuda(), hb.cuda()).cpu().numpy(),
        MIXED: lambda: torch.add(ta, 2.5, out=tc),
    }
    return Peer("torch", calls, torch.cuda.synchronize, lambda: tc.cpu().numpy())


def _cupy(a: Array, b: Array) -> Peer:
    cp: Any = importlib.import_module("cupy")
    kernel = cp.ElementwiseKernel("float32 a, float32 b", "float32 c", "c = a + b", "bench_add")
    ca, cb = cp.asarray(a), cp.asarray(b)
    cc = cp.empty_like(ca)
    calls: dict[str, Call] = {
        GIVEN: lambda: kernel(ca, cb, cc),
        ALLOCATED: lambda: kernel(ca, cb),
        NUMPY: lambda: cp.asnumpy(kernel(cp.asarray(a), cp.asarray(b))),
        MIXED: lambda: kernel(ca, 2.5, cc),
    }
    return Peer("CuPy", calls, cp.cuda.Device().synchronize, lambda: cp.asnumpy(cc))


def _warp(a: Array, b: Array) -> Peer:
    wp, kernel, arrays, n = _warp_arrays(a, b)
    calls: dict[str, Call] = {GIVEN: lambda: wp.launch(kernel, dim=n, inputs=arrays, device="cuda")}
    return Peer("Warp", calls, wp.synchronize, arrays[2].numpy)


def _warp_recorded(a: Array, b: Array) -> Peer:
    wp, kernel, arrays, n = _warp_arrays(a, b)
    command = wp.launch(kernel, dim=n, inputs=arrays, device="cuda", record_cmd=True)
    return Peer("Warp, recorded launch", {GIVEN: command.launch}, wp.synchronize, arrays[2].numpy)


def _warp_arrays(a: Array, b: Array) -> tuple[Any, Any, list[Any], int]:
    wp: Any = importlib.import_module("warp")
    wp.config.quiet = True
    kernel = _from_text("bench_warp", _WARP).add
    arrays = [wp.array(x, dtype=wp.float32, device="cuda") for x in (a, b, np.zeros_like(a))]
    return wp, kernel, arrays, a.size


def _triton(a: Array, b: Array) -> Peer:
    torch: Any = importlib.import_module("torch")
    kernel = _from_text("bench_triton", _TRITON).add
    ta, tb = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    tc = torch.empty_like(ta)
    grid = (-(-a.size // 1024),)
    calls: dict[str, Call] = {GIVEN: lambda: kernel[grid](ta, tb, tc, a.size, BLOCK=1024)}
    return Peer("Triton", calls, torch.cuda.synchronize, lambda: tc.cpu().numpy())


def _from_text(name: str, text: str) -> Any:
    """A module made of text, with a file behind it: Triton and Warp read a kernel's source from there."""
    if name not in sys.modules:
        path = Path(tempfile.mkdtemp(prefix="slangpy_rt_bench_")) / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
