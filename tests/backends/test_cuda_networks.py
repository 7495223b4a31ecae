"""Networks of half and bfloat16 as CUDA text, which NVRTC compiles without a device; nothing runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.cuda.compile import nvrtc_compile, nvrtc_version, parts
from slangpy_rt.backends.null import NullBackend
from slangpy_rt.backends.targets import target_of
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.slang.corrections.cuda_calls import with_calls
from tests.depth import deep

try:
    nvrtc_version()
except UnsupportedError as error:
    pytest.skip(str(error), allow_module_level=True)

TEXT = """
import mlp;
typealias Net = Network<IN, OUT, WIDTH, HIDDEN, ReLU, Identity, TYPE>;
[Differentiable] float[OUT] run(Net net, float x[IN]) { return net.run(x); }
int count() { return Net.count; }
"""


class CoresBackend(NullBackend):
    """The null backend with tensor cores, whose kernels are compiled."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.caps = replace(self.caps, features=self.caps.features | {"cooperative_matrix", "mma"})
        self.target = target_of("cuda", "", "value", self.caps)
        self.texts: list[bytes] = []
        self.architecture = "sm_90"
        self.compiles = True

    def compile(self, code: bytes, entry: str) -> bytes:
        self.texts.append(code)
        if not self.compiles:
            return b""
        binary = nvrtc_compile(code, self.architecture)
        assert parts(binary)[1].startswith(b"\x7fELF")
        return binary


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[spy.Device]:
    monkeypatch.setattr("slangpy_rt.backends.null.NullBackend", CoresBackend)
    with spy.Device("null") as opened:
        yield opened


# First and last layers that are a part of a tile; widths of whole tiles, and of a part.
CASES = [("half", "sm_80", 3, 2, 16, 1)]
LARGE = [
    ("bfloat16", "sm_80", 5, 6, 20, 2),
    ("half", "sm_90", 64, 64, 64, 3),
    ("bfloat16", "sm_90", 33, 2, 128, 2),
    ("half", "sm_90", 128, 128, 128, 1),
]


@deep
@pytest.mark.parametrize(
    ("name", "architecture", "first", "last", "width", "hidden"),
    CASES + [pytest.param(*c, marks=deep) for c in LARGE],
)
def test_kernels(
    device: spy.Device, name: str, architecture: str, first: int, last: int, width: int, hidden: int
) -> None:
    backend: Any = device.backend
    backend.architecture = architecture
    text = TEXT
    for word, value in {"IN": first, "OUT": last, "WIDTH": width, "HIDDEN": hidden, "TYPE": name}.items():
        text = text.replace(word, str(value))
    module: Any = spy.Module.load_from_source(device, "cores", text)
    count = (first + 1) * width + (hidden - 1) * (width + 1) * width + (width + 1) * last
    net = spy.Tensor.zeros(device, count).with_grads()
    x = spy.Tensor.from_numpy(device, np.zeros((64, first), np.float32), f"float[{first}]").with_grads()
    given = spy.Tensor.zeros(device, 64, f"float[{last}]")
    module.run(net, x)
    module.run.bwds(net, x, _result=spy.Tensor.empty(device, 64, f"float[{last}]").with_grads(grad_in=given))
    of = {"half": b".f32.f16.f16.f32", "bfloat16": b".f32.bf16.bf16.f32"}[name]
    for kernel in backend.texts[-2:]:
        assert b"mma.sync.aligned.m16n8k16.row.col" + of in kernel
        # Loops beside it are calls.
        assert kernel.count(b"__noinline__ ") >= 2


JOINS = """
import mlp;
float[2] run(Network<3, 2, 16, 1, ReLU, Identity, half> net, float x[3]) { return net.run(x); }
[Differentiable]
float scaled(Network<3, 2, 16, 1, ReLU, Identity, half> net, float x[3], float factor)
{
    return net.run(x)[0] * factor;
}
[numthreads(256, 1, 1)]
void raw(uint3 thread : SV_DispatchThreadID, Network<3, 2, 16, 1, ReLU, Identity, half> net, float* y)
{
    float x[3] = { thread.x, 0, 1 };
    y[thread.x] = net.run(x)[0];
}
"""
# What a group does together needs barriers, for which its waves must not wait at other ones.
WAITS = "groupshared float sums[256]; void wait() { GroupMemoryBarrierWithGroupSync(); }"


@pytest.mark.parametrize(
    ("way", "joins"),
    [
        ("", True),
        *[pytest.param(way, way == "small", marks=deep) for way in ("raw", "waits", "sums", "large", "small")],
    ],
)
def test_which_groups_join(device: spy.Device, way: str, joins: bool) -> None:
    backend: Any = device.backend
    backend.compiles = False
    module: Any = spy.Module.load_from_source(device, "joins", JOINS + (WAITS if way == "waits" else ""))
    net = spy.Tensor.zeros(device, 4 * 16 + 17 * 2)
    if way == "raw":
        module.raw.dispatch((256, 1, 1), net=net, y=spy.Tensor.zeros(device, 256))
    elif way == "sums":
        # All elements add to the gradient of one number, for which groups wait at their end.
        factor = spy.Tensor.zeros(device, 1).with_grads()
        result = spy.Tensor.empty(device, 64).with_grads(grad_in=spy.Tensor.zeros(device, 64))
        module.scaled.bwds(
            net.with_grads(), spy.Tensor.zeros(device, 64, "float[3]"), factor.broadcast_to(64), _result=result
        )
    else:
        run = module.run.group_size({"large": 512, "small": 64}.get(way, 256))
        run(net, spy.Tensor.zeros(device, 64, "float[3]"))
    assert (b"_spy_meets(" in backend.texts[-1]) == joins
    assert b"mma.sync.aligned.m16n8k16.row.col" in backend.texts[-1]


FLOATS = """
import mlp;
typealias Net = Network<5, 6, 32, 1, Sine>;
[Differentiable] float[6] run(Net net, float x[5], no_diff int16_t k)
{
    var y = net.run(x);
    y[0] *= float(int(-k));
    return y;
}
"""


@deep
def test_networks_of_floats(device: spy.Device) -> None:
    """Beside text of this package's own, which is inlined already."""
    module: Any = spy.Module.load_from_source(device, "floats", FLOATS)
    net = spy.Tensor.zeros(device, 6 * 32 + 33 * 6).with_grads()
    x = spy.Tensor.from_numpy(device, np.zeros((64, 5), np.float32), "float[5]").with_grads()
    given = spy.Tensor.empty(device, 64, "float[6]").with_grads(grad_in=spy.Tensor.zeros(device, 64, "float[6]"))
    module.run.bwds(net, x, 3, _result=given)
    backend: Any = device.backend
    assert b"__noinline__ " in backend.texts[-1] and b"_spy_negative(" in backend.texts[-1]


def test_functions_apart() -> None:
    prelude = b"__device__ void _spy_oneApart_0(int x)\n#endif\n"
    text = (
        b"__device__ void _spy_oneApart_0(int x)\n{\n}\n__device__ FixedArray<float, 4>  Net_spy_twoApart_12(int x)\n"
        b"__device__ float apart_0(int x)\n__device__ float ownApart_0(int x)\n    _spy_oneApart_0(1);\n"
    )
    found = with_calls(prelude + text)
    assert found.count(b"__device__ __noinline__ ") == 2
    # The others become parts of what calls them.
    assert found.count(b"__device__ __forceinline__ ") == 2
    assert found.startswith(prelude)
    assert found.replace(b"__noinline__ ", b"").replace(b"__forceinline__ ", b"") == prelude + text
    assert with_calls(b"__device__ float f_0(int x)\n") == b"__device__ float f_0(int x)\n"
