"""Long runs: memory of host and device over 100,000 calls of each kind, 1,000 submissions and 200 command lists,
and 10,000 forward and backward passes of PyTorch's autograd, where that is installed.

Each kind of call runs in five parts. After all but the first the device is waited for, garbage is collected, and
memory is looked at: the process's resident set, and its share of the device. For CUDA that is what nvidia-smi says,
or else all that is in use on the card, so that nobody else may use it. For Vulkan it is the use of the heaps, less
what no array has had yet of the blocks that the backend holds; in software only what arrays have had of those. For
D3D12, which does not tell, it is what the backend has allocated, likewise. On the CPU the host's memory is the
device's.

Over the last two parts either may grow by 2 MiB, the step in which drivers hand out memory: 52 bytes a call on the
host, and one array of 16 KiB in 312 calls. If one grows more, the exit status is 1.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from _common import OURS, Bench, Row

import slangpy_rt as spy

MIB = 1 << 20
ALLOWED = 2 * MIB
PARTS = 5
CALLS, LISTS, DROPPED = 100_000, 1_000, 200
QUICK_CALLS, QUICK_LISTS, QUICK_DROPPED = 2_000, 200, 100
_SHAPE = 4096
_LARGE = 1 << 20

SOURCE = """
import slangpy_rt;

uniform float bias;
struct Ray { float3 from; float3 way; }

float add(float a, float b) { return a + b; }
float biased(float a) { return a + bias; }
void grow(inout float a, float by) { a += by; }
float3 at(Ray ray, float t) { return ray.from + t * ray.way; }
[Differentiable] float mul(float a, float b) { return a * b; }
[numthreads(64, 1, 1)]
void fill(uint3 i : SV_DispatchThreadID, RWTensor<float, 1> x, float value)
{
    if (i.x < x.shape[0])
        x[i.x] = value;
}
"""


@dataclass(frozen=True)
class Kind:
    """A kind of call.

    Attributes
    ----------
    name : str
        For the tables.
    call : callable
        Makes one.
    calls : int
        How many a run makes, a multiple of ``PARTS``.
    """

    name: str
    call: Callable[[], object]
    calls: int


@dataclass(frozen=True)
class Memory:
    """Bytes in use after each part of a run but the first.

    Attributes
    ----------
    host, device : tuple of int
        The process's resident set, and what its device holds; empty where the host's memory is the device's.
    """

    host: tuple[int, ...]
    device: tuple[int, ...]

    @property
    def growth(self) -> dict[str, int]:
        """Bytes from the third part's end to the last's, by whose they are."""
        both = {"host": self.host, "device": self.device}
        return {name: taken[-1] - taken[-3] for name, taken in both.items() if taken}


def main() -> int:
    """Run all kinds on all devices; the exit status is 1 if one of them grew."""
    bench = Bench("soak", __doc__ or "", ("cuda", "vulkan", "cpu", "rhi-vulkan", "rhi-cuda", "rhi-vulkan-handles"))
    bench.facts = {"allowed_bytes": ALLOWED, "parts": PARTS, "calls": {}, "bytes": {}, "growth_bytes": {}}
    grown = []
    for name in bench.devices:
        with spy.Device(name) as device:
            for kind in kinds(device, bench.quick):
                memory = soak(device, kind)
                case = f"{kind.name}, {kind.calls}"
                for whose, taken in (("host", memory.host), ("device", memory.device)):
                    if taken:
                        late = [n / MIB for n in taken]
                        values = (median(late), min(late), max(late), len(late))
                        bench.rows.append(Row(name, case, f"{OURS}, {whose}", "MiB", *values))
                        bench.facts["bytes"].setdefault(name, {}).setdefault(kind.name, {})[whose] = taken
                bench.facts["calls"][kind.name] = kind.calls
                bench.facts["growth_bytes"].setdefault(name, {})[kind.name] = memory.growth
                says = ", ".join(f"{whose} {n / 1024:+.0f} KiB" for whose, n in memory.growth.items())
                print(f"{name:8}{case:34}{says}", file=sys.stderr, flush=True)
                grown += [
                    f"{name}: {case}: {whose} memory grew by {n / 1024:.0f} KiB"
                    for whose, n in memory.growth.items()
                    if n > ALLOWED
                ]
        bench.save()
    status = bench.finish()
    print("\n".join(grown) or f"no memory grew by more than {ALLOWED / MIB:g} MiB over the last two parts of its run")
    return status or int(bool(grown))


def soak(device: spy.Device, kind: Kind) -> Memory:
    """Make all calls of a kind, and look at memory after each part but the first."""
    look = device_memory(device)
    host, on_device = [], []
    for part in range(PARTS):
        for _ in range(kind.calls // PARTS):
            kind.call()
        device.synchronize()
        gc.collect()
        if part:
            host.append(host_memory())
            on_device += [look()] if look is not None else []
    return Memory(tuple(host), tuple(on_device))


def kinds(device: spy.Device, quick: bool) -> list[Kind]:
    """Every kind of call there is."""
    calls, lists, dropped = (QUICK_CALLS, QUICK_LISTS, QUICK_DROPPED) if quick else (CALLS, LISTS, DROPPED)
    module = spy.Module.load_from_source(device, "soak", SOURCE)
    host, large = np.ones(_SHAPE, np.float32), np.ones(_LARGE, np.float32)
    a, b, out = (spy.Tensor.from_numpy(device, host) for _ in range(3))
    big = spy.Tensor.zeros(device, _LARGE)
    rays = spy.Tensor.zeros(device, 100, dtype=module.Ray)
    x, one = a.with_grads(), spy.Tensor.ones(device, 1).with_grads()
    y = a.with_grads(grad_in=spy.Tensor.ones(device, _SHAPE))
    result = out.with_grads(grad_in=spy.Tensor.ones(device, _SHAPE))
    cell, numbers = spy.ValueRef(1.0), count()
    tensors, seed = _tensors(device)
    for _ in range(3000):
        # 48 MiB: rings of page-locked memory have all of their 32 MiB once they have gone round.
        out.copy_from(host)

    def list_of(turns: int) -> spy.CommandList:
        commands = device.command_list()
        for _ in range(turns):
            module.add.append_to(commands, a, b, _result=out)
            module.grow.append_to(commands, a, 0.0)
        commands.clear(big)
        return commands

    def made_and_dropped() -> None:
        commands = list_of(10)
        made = module.add.append_to(commands, a, b)
        commands.submit()
        module.add(made, 1.0, _result=out)

    def copies() -> None:
        out.copy_from(host)
        out.clear()
        out.to_numpy()

    kept, changed = list_of(50), list_of(50)
    if device.name.startswith("rhi-"):
        # slang-rhi's own memory grows by 20 MiB over 40,000 launches of lists, and then no more (H200).
        for _ in range(400):
            kept.submit()

    def updated() -> None:
        changed.update(next(numbers) % 50 * 2 + 1, b, 0.0)
        changed.submit()

    def large_copies() -> None:
        big.copy_from(large)
        big.to_numpy()

    def structs_and_uniforms() -> None:
        way = module.biased.set(bias=next(numbers) * 0.1)(a)
        module.at(rays, way[:100])

    def autograd() -> None:
        tensors[0].grad = tensors[1].grad = None
        module.mul(*tensors).backward(seed)

    def gradients() -> None:
        module.mul.bwds(x, one, _result=result)

    few = calls // 100
    return [
        Kind("result given", lambda: module.add(a, b, _result=out), calls),
        Kind("result made", lambda: module.add(a, b), calls),
        Kind("overlap", lambda: module.add(a, a[::-1], _result=a), calls),
        Kind("views", lambda: module.add(a[::2], b[1::2]), calls),
        Kind("NumPy", lambda: module.add(host, 1.0), calls),
        Kind("NumPy, result given", lambda: module.add(a, host, _result=out), calls),
        Kind("numbers", lambda: module.add(1.0, 2.0), calls),
        Kind("structs and uniforms", structs_and_uniforms, calls // 2),
        Kind("ValueRef", lambda: module.grow(cell, 1.0), calls // 2),
        Kind("bwds", gradients, calls),
        Kind("fwds", lambda: module.mul.fwds(y, y), calls),
        Kind("raw kernel", lambda: module.fill.dispatch(_SHAPE, out, 1.0), calls),
        Kind("copies and clears", copies, calls),
        Kind("large copies", large_copies, few),
        Kind("large NumPy", lambda: module.add(large, 1.0), few),
        Kind("list submitted", kept.submit, lists),
        Kind("list updated", updated, lists),
        Kind("list made and dropped", made_and_dropped, dropped),
        *([Kind("autograd", autograd, calls // 10)] if tensors else []),
    ]  # fmt: skip


def _tensors(device: spy.Device) -> tuple[list[Any], Any]:
    """PyTorch's, where it is installed, on the device's GPU if it has that; two that get gradients, and another."""
    if importlib.util.find_spec("torch") is None:
        return [], None
    torch: Any = importlib.import_module("torch")
    where = "cuda" if device.name in ("cuda", "vulkan") and torch.cuda.is_available() else "cpu"
    return [torch.ones(_SHAPE, device=where, requires_grad=True) for _ in range(2)], torch.ones(_SHAPE, device=where)


def host_memory() -> int:
    """Bytes of the process's resident set."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def device_memory(device: spy.Device) -> Callable[[], int] | None:
    """What looks at the bytes that a device has in use; None where they are the host's."""
    if device.name == "cuda" or (device.name.startswith("rhi-") and "NVIDIA" in device.info):
        return _cuda_memory
    if device.name == "vulkan":
        return _vulkan_memory(device)
    if device.name == "d3d12":
        backend: Any = device.backend
        return lambda: sum(m.size for m in list(backend._memory._allocated)) - _untouched(device)
    return None


def _untouched(device: spy.Device) -> int:
    """The bytes of slabs that no block has been cut from."""
    backend: Any = device.backend
    return sum(slab.end - slab.top for slab in backend._memory.blocks._slabs)


def _cuda_memory() -> int:
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
        lines = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
        for pid, _, mib in (line.partition(", ") for line in lines):
            if pid == str(os.getpid()) and mib.isdigit():
                return int(mib) * MIB
    from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver

    free, total = FFI_CUDA.new("size_t *"), FFI_CUDA.new("size_t *")
    check(driver().cuMemGetInfo_v2(free, total), "asking for free memory")
    return int(total[0] - free[0])


def _vulkan_memory(device: spy.Device) -> Callable[[], int]:
    backend: Any = device.backend
    vk, blocks = backend._device, backend._memory.blocks
    if vk.is_software:
        # VK_EXT_memory_budget tells of all of the machine's memory there.
        return lambda: sum(slab.top for slab in blocks._slabs)
    physical = vk._instance.physical(0)
    usage = vk.struct("VkPhysicalDeviceMemoryBudgetPropertiesEXT")
    properties = vk.struct("VkPhysicalDeviceMemoryProperties2", pNext=usage)

    def look() -> int:
        vk.lib.vkGetPhysicalDeviceMemoryProperties2(physical, properties)
        memory = properties.memoryProperties
        # 1: VK_MEMORY_HEAP_DEVICE_LOCAL_BIT.
        heaps = [i for i in range(memory.memoryHeapCount) if memory.memoryHeaps[i].flags & 1]
        return sum(int(usage.heapUsage[i]) for i in heaps) - _untouched(device)

    return look


if __name__ == "__main__":
    sys.exit(main())
