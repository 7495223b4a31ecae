"""NVRTC compiles the kernels of products by tensor cores, and what a launch of them needs is in the binary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.backends.cuda.compile import nvrtc_compile, nvrtc_version, parts
from slangpy_rt.backends.extras import TensorMaps
from slangpy_rt.backends.null import NullBackend
from slangpy_rt.core.dtypes import BFLOAT16
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.linalg.program import Kind
from slangpy_rt.linalg.tensor_cores import TensorCores, tensor_cores_of
from slangpy_rt.linalg.view import View
from slangpy_rt.linalg.wave_cores import WaveCores
from tests.depth import sampled

try:
    nvrtc_version()
except UnsupportedError as error:
    pytest.skip(str(error), allow_module_level=True)

KERNEL = b"""#pragma slangpy_rt_kernel __launch_bounds__(64, 2)
#pragma slangpy_rt_nvrtc --gpu-architecture=sm_90a
#pragma slangpy_rt_shared_bytes 98304
extern "C" __global__ void kernel(int *x) { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); *x = 1; }
"""


class MapBackend(NullBackend, TensorMaps):
    """The null backend with tensor maps, of which it notes what is described, and whose kernels are compiled."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.told: list[Any] = []
        self.captured = False
        self.caps = replace(self.caps, features=self.caps.features | {"mma", "wgmma", "group_shared"}, processors=132)
        self.binaries: list[bytes] = []
        self.architecture = "sm_90"

    def captures(self) -> bool:
        return self.captured

    def tensor_map(self, *told: Any) -> Any:
        self.told.append(told)
        return self.alloc(128)

    def compile(self, code: bytes, entry: str) -> bytes:
        self.binaries.append(nvrtc_compile(code, self.architecture))
        return self.binaries[-1]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[spy.Device]:
    monkeypatch.setattr("slangpy_rt.backends.null.NullBackend", MapBackend)
    with spy.Device("null") as opened:
        yield opened


def test_lines_for_the_backend() -> None:
    shared, cubin = parts(nvrtc_compile(KERNEL, "sm_80"))
    assert shared == 98304 and cubin.startswith(b"\x7fELF")
    plain = nvrtc_compile(b'extern "C" __global__ void kernel(int *x) { *x = 1; }', "sm_80")
    assert parts(plain) == (0, plain)


# It keeps 64 numbers at once.
WIDE = b"""
extern "C" __global__ void kernel(volatile int *x) {
    int v[64];
#pragma unroll
    for (int k = 0; k < 64; ++k) v[k] = x[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 64; ++k) x[k] = v[63 - k];
}
"""


def test_of_several_numbers_of_registers_the_largest() -> None:
    def of(*numbers: int) -> bytes:
        return nvrtc_compile(b"".join(b"#pragma slangpy_rt_registers %d\n" % n for n in numbers) + WIDE, "sm_80")

    assert of(32, 128) == of(128, 32) == of(128) != of(32)


STORED = {"bfloat16": "int16_t", "tf32": "float"}


def matrix(device: spy.Device, element: str, rows: int, columns: int, along: int) -> tuple[Any, View, int]:
    """Return an operand of one matrix whose elements follow each other along a dimension."""
    strides = (rows * columns, columns, 1) if along == 2 else (rows * columns, 1, rows)
    view = View(element, (1, rows, columns), strides)
    array = spy.Tensor.zeros(device, (1, rows, columns), STORED.get(element, element))
    return array, view, array.address


def multiply(device: spy.Device, kind_of_cores: Any, element: str, left: int, right: int) -> None:
    """Multiply 512 x 256 by 256 x 1000 elements, which follow each other along these dimensions, and add a bias."""
    result = {"int8_t": "int", "tf32": "float"}.get(element, element)
    cores = kind_of_cores(device, Kind(element, result, "relu", True))
    a, b = matrix(device, element, 512, 256, left), matrix(device, element, 256, 1000, right)
    c = matrix(device, result, 512, 1000, 2)
    cores.run(None, a, b, c[:2], [1, spy.Tensor.zeros(device, 1000, STORED.get(result, result))])


CASES = [(element, left, right) for element in ("half", "bfloat16") for left in (1, 2) for right in (1, 2)]


@sampled(7)
@pytest.mark.parametrize(("element", "left", "right"), [*CASES, ("int8_t", 2, 1), ("float", 2, 1), ("tf32", 2, 1)])
def test_kernels(device: spy.Device, element: str, left: int, right: int) -> None:
    backend: Any = device.backend
    assert isinstance(backend, MapBackend)
    multiply(device, TensorCores, element, left, right)
    shared, cubin = parts(backend.binaries[-1])
    assert shared == 6 * (2 * 128 * 128 + 16) + 16 and cubin.startswith(b"\x7fELF")
    assert shared <= 227 * 1024
    # Dimensions from the one whose elements follow each other, and boxes with lines of 128 bytes.
    shapes = {told[2] for told in backend.told}
    assert shapes == {(256, 512, 1) if left == 2 else (512, 256, 1), (1000, 256, 1) if right == 2 else (256, 1000, 1)}
    boxes = [told[4] for told in backend.told]
    line = {"int8_t": 128, "float": 32, "tf32": 32}.get(element, 64)
    assert boxes == [(line, 128 if left == 2 else 64, 1), (line, 64 if right == 2 else 128, 1)]
    _, groups, _ = backend.launches[-1]
    assert groups == (4 * 8, 1, 1)


@sampled(7)
@pytest.mark.parametrize(("element", "left", "right"), [*CASES, ("int8_t", 2, 1), ("float", 2, 1), ("tf32", 2, 1)])
def test_kernels_of_waves(device: spy.Device, element: str, left: int, right: int) -> None:
    """For the oldest architecture with these instructions, whose groups have at most 163 KiB of memory."""
    backend: Any = device.backend
    backend.architecture = "sm_80"
    multiply(device, WaveCores, element, left, right)
    shared, cubin = parts(backend.binaries[-1])
    lines = [128 * 80 if along == last else 32 * 272 for along, last in ((left, 2), (right, 1))]
    assert shared == 3 * sum(lines) <= 163 * 1024 // 2 and cubin.startswith(b"\x7fELF")
    assert backend.launches[-1][1] == (8, 4, 1) and not backend.told


@sampled(5)
@pytest.mark.parametrize(
    ("element", "transposed", "packed", "matrices"),
    [
        ("half", False, 0, 1),
        ("int8_t", True, 0, 1),
        ("int8_t", False, 1, 1),
        ("float", False, 2, 3),
        ("float", True, 2, 3),
    ],
)
def test_what_is_copied(device: spy.Device, element: str, transposed: bool, packed: int, matrices: int) -> None:
    backend: Any = device.backend
    a = spy.Tensor.zeros(device, (2, 1024, 1024), element)
    for _ in range(2):
        backend.launches.clear()
        spy.matmul(a, a, transpose_b=transposed, out_dtype="int" if element == "int8_t" else element)
        assert len(backend.launches) == packed + 1
        # A thread copies 32 bytes: of a row, or of four rows of bytes whose columns follow each other.
        threads = 2 * 1024 * 1024 // (128 if element == "int8_t" else 8)
        assert [groups[0] * 64 for _, groups, _ in backend.launches[:-1]] == [threads] * packed
    assert {told[2][2] for told in backend.told} == {2 * matrices} | ({2} if packed == 1 else set())


USERS = """
uniform Tensor<float, 2> residual;
uniform float gain;
float plus(float x, int row, int column) { return gain * x + residual[row, column]; }
float squared(float x) { return x * x; }
int third(int x) { return x / 3; }
"""


@sampled(3)
@pytest.mark.parametrize("element", ["half", "bfloat16", "float"])
def test_functions_of_users(device: spy.Device, element: str) -> None:
    """NVRTC compiles kernels that call a user's function, and the block holds what its uniforms are."""
    backend: Any = device.backend
    module = spy.Module.load_from_source(device, "product", USERS)
    stored = "int16_t" if element == "bfloat16" else element
    a, b, c = (_of_type(spy.Tensor.zeros(device, shape, stored), element) for shape in ((64, 32), (32, 48), (64, 48)))
    residual = spy.Tensor.zeros(device, (64, 48))
    for turn in range(2):
        spy.matmul(a, b, out=c, activation=module.plus.set(gain=7.5, residual=residual))
        _, groups, args = backend.launches[-1]
        assert len(backend.binaries) == 1
        shared, _ = parts(backend.binaries[-1])
        assert groups == (1, 1, 1) and (shared > 0) == (element != "float")
        assert np.float32(7.5).tobytes() in args and np.uint64(residual.address).tobytes() in args, turn
    # Of a function without uniforms the launch is known.
    for turn in range(3):
        out = _of_type(spy.Tensor.zeros(device, (64, 48), stored), element)
        spy.matmul(a, b, out=out, activation=module.squared)
        assert len(backend.binaries) == 2, turn
        assert np.uint64(out.address).tobytes() in backend.launches[-1][2]


@pytest.mark.parametrize(("element", "copied"), [("int8_t", 1), ("float", 2)])
def test_functions_of_users_with_copied_operands(device: spy.Device, element: str, copied: int) -> None:
    backend: Any = device.backend
    module = spy.Module.load_from_source(device, "copying", USERS)
    a = spy.Tensor.zeros(device, (1024, 1024), element)
    for turn in range(3):
        backend.launches.clear()
        spy.matmul(a, a, activation=module.third if element == "int8_t" else module.squared)
        assert len(backend.launches) == copied + 1, turn
    assert parts(backend.binaries[-1])[0] > 0


def _of_type(tensor: spy.Tensor, element: str) -> spy.Tensor:
    """Return a Tensor as one of an element type that Tensors are not made of."""
    if element != "bfloat16":
        return tensor
    layout = layout_of(tensor.device, spy.Tensor, BFLOAT16, tensor.shape, None, True)
    return spy.Tensor.of(layout, tensor.buffer, tensor.address)


def test_repeated_products(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later launches have the first one's arguments but for addresses, and descriptions of their own operands."""
    monkeypatch.setattr("slangpy_rt.linalg.tensor_cores._MOST_MAPS", 3)
    backend: Any = device.backend
    arrays = [[spy.Tensor.zeros(device, shape, "half") for shape in ((64, 32), (32, 48), (64, 48))] for _ in range(4)]
    bias = spy.Tensor.zeros(device, 48, "half")
    for _turn in range(3):
        for a, b, c in arrays:
            spy.matmul(a, b, out=c, bias=bias, alpha=2)
            words = np.frombuffer(backend.launches[-1][2][-8 * (len(backend.launches[-1][2]) // 8) :], np.uint64)
            assert {x.address for x in (a, b, c, bias)} <= set(words.tolist())
    assert len(backend.launches) == 12
    blocks = [np.frombuffer(args, np.uint8) for _, _, args in backend.launches]
    # Of each argument block all but addresses is the same.
    assert all(block.shape == blocks[0].shape for block in blocks)
    told = {(kernel, groups) for kernel, groups, _ in backend.launches}
    assert len(told) == 1
    # Each turn describes operands again, because three descriptions are the most that are kept.
    described = [address for address, *_ in backend.told]
    assert set(described) == {x.address for a, b, _ in arrays for x in (a, b)} and len(described) > 8


@pytest.mark.parametrize("known", [False, True])
def test_descriptions_that_captured_launches_read(
    device: spy.Device, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """They stay in memory however many others are made, whether the product was known or not."""
    monkeypatch.setattr("slangpy_rt.linalg.tensor_cores._MOST_MAPS", 3)
    backend: Any = device.backend
    arrays = [[spy.Tensor.zeros(device, shape, "half") for shape in ((64, 32), (32, 48), (64, 48))] for _ in range(9)]

    def multiply(a: Any, b: Any, c: Any) -> None:
        spy.matmul(a, b, out=c)

    for each in arrays[: 3 * known]:
        multiply(*each)
    backend.captured = True
    multiply(*arrays[0])
    backend.captured = False
    cores = tensor_cores_of(device, Kind("half", "half"))
    kept = dict(cores._kept)
    assert len(kept) == 2 and all(address == buffer.address for address, buffer in kept.items())
    block = set(np.frombuffer(backend.launches[-1][2][: len(backend.launches[-1][2]) // 8 * 8], np.uint64).tolist())
    assert set(kept) <= block
    for each in arrays[1:] * 2:
        multiply(*each)
    assert cores._kept == kept
    assert not set(kept) & {buffer.address for each in cores._maps.values() for buffer in each.values()}
