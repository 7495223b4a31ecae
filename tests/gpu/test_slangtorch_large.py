"""slang-torch's kernels on tensors of 5 GiB: every access beyond 4 GiB reaches the element that it names.

An offset of 32 bits would wrap around there, and reach an element near the start. The tests need 28 GiB of a GPU's
memory. A small size shows that they hold together, on any machine::

    python tests/gpu/test_slangtorch_large.py --device cpu --bytes 5000000
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import slangpy_rt as spy
import slangpy_rt.slangtorch as slangtorch

BYTES = 5 << 30
NEEDED = 28 << 30
# Elements that are compared at a time: of int64, 512 MiB.
CHUNK = 1 << 26
GROUP = (256, 1, 1)

TEXT = """
uint3 here() { return cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim(); }

[AutoPyBindCUDA] [CudaKernel] void next(TensorView<int> x, TensorView<int> y)
{
    uint i = here().x;
    if (i < x.size(0))
        y.store(i, x[i] + 1);
}

[AutoPyBindCUDA] [CudaKernel] void rows(TensorView<uint8_t> x, TensorView<int> y)
{
    uint3 at = here();
    if (at.x >= x.size(1))
        return;
    for (uint row = 0; row < x.size(0); ++row)
    {
        y[row, at.x] = int(x[row, at.x]);
        x[uint2(row, at.x)] = uint8_t(row + 1);
    }
}

[AutoPyBindCUDA] [CudaKernel]
void add(TensorView<float> f, TensorView<double> d, TensorView<int> i, TensorView<int64_t> l, uint a, uint b)
{
    float oldF;
    f.InterlockedAdd(a, 1.0, oldF);
    d.InterlockedAdd(uint1(a / 2 + 1), 1.0);
    i.InterlockedAdd(b, 1);
    l.InterlockedMax(b / 2 + 1, int64_t(here().x) + 1);
}

[AutoPyBindCUDA] [CudaKernel] [Differentiable]
void neighbours(DiffTensorView x, DiffTensorView y, no_diff uint shift)
{
    uint i = here().x;
    uint n = x.size(0);
    if (i >= n)
        return;
    uint other = i < n - shift ? i + shift : i - (n - shift);
    y[i] = x[i] * x[other];
}

[TorchEntryPoint] TorchTensor<float> ones(int64_t rows, int columns)
{
    var made = TorchTensor<float>.alloc(uint(rows), uint(columns));
    made.fillValue(1);
    return made;
}
"""


class Large:
    """The module on one device, and how large its tensors are.

    Parameters
    ----------
    device : Device
        Where kernels run.
    folder : Path
        Where the module's file is written.
    size : int
        Bytes of a tensor.
    """

    def __init__(self, device: spy.Device, folder: Path, size: int) -> None:
        self.place = torch.device("cuda", device.index) if device.name == "cuda" else torch.device("cpu")
        self.size = size
        path = folder / "large.slang"
        path.write_text(TEXT)
        self.module: Any = slangtorch.loadModule(path, device=device)

    def numbers(self, first: int, last: int) -> torch.Tensor:
        return torch.arange(first, last, device=self.place)

    def fill(self, out: torch.Tensor, of: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Write what ``of`` makes of the numbers of its elements into a tensor."""
        for first in range(0, len(out), CHUNK):
            last = min(first + CHUNK, len(out))
            out[first:last] = of(self.numbers(first, last))

    def check(self, got: torch.Tensor, of: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Compare every element with what ``of`` makes of its number."""
        for first in range(0, len(got), CHUNK):
            last = min(first + CHUNK, len(got))
            expected = of(self.numbers(first, last)).to(got.dtype)
            assert torch.equal(got[first:last], expected), f"between {first} and {last}"


def check_every_element(large: Large) -> None:
    x = torch.empty(large.size // 4, dtype=torch.int32, device=large.place)
    large.fill(x, lambda i: i)
    y = torch.zeros_like(x)
    large.module.next(x=x, y=y).launchTotal(GROUP, (len(x), 1, 1))
    large.check(y, lambda i: i + 1)
    large.check(x, lambda i: i)


def check_strides(large: Large) -> None:
    """Rows of 1 GiB, of which the kernel sees a few bytes each; the last row begins at 4 GiB."""
    step = 4097
    memory = torch.zeros(5, large.size // 5, dtype=torch.uint8, device=large.place)
    view = memory[:, 5::step]
    view.copy_((large.numbers(0, view.shape[1]) % 101)[None] + large.numbers(0, 5)[:, None] * 31)
    before, found = view.int(), torch.zeros(*view.shape, dtype=torch.int32, device=large.place)
    large.module.rows(x=view, y=found).launchTotal(GROUP, (view.shape[1], 1, 1))
    assert torch.equal(found, before)
    assert torch.equal(view, (large.numbers(1, 6)[:, None]).expand(view.shape).to(torch.uint8))
    # Nothing else was written.
    assert sum(int(torch.count_nonzero(row)) for row in memory) == view.numel()


def check_atomics(large: Large) -> None:
    n, threads = large.size // 4, 1000
    words = torch.zeros(n, dtype=torch.int32, device=large.place)
    # One beyond 4 GiB, the other the last; wrapped around both would lie near the start.
    a, b = n * 4 // 5 + 6, n - 4
    views = {"f": words.view(torch.float32), "d": words.view(torch.float64), "i": words, "l": words.view(torch.int64)}
    large.module.add(**views, a=a, b=b).launchTotal((8, 1, 1), (threads, 1, 1))
    assert float(views["f"][a]) == threads and float(views["d"][a // 2 + 1]) == threads
    assert int(words[b]) == threads and int(views["l"][b // 2 + 1]) == threads
    # A double's zeros are its low word's.
    assert int(torch.count_nonzero(words)) == 4


def check_backward(large: Large) -> None:
    """Gradients of values that two threads read, one of them half of the tensor away."""
    n = large.size // 4
    shift = n // 2 + 1
    x, y = (torch.zeros(n, device=large.place) for _ in range(2))
    large.fill(x, lambda i: i % 8 + 1)

    def value(i: torch.Tensor) -> torch.Tensor:
        return i % n % 8 + 1

    def weight(i: torch.Tensor) -> torch.Tensor:
        return i % n % 5

    large.module.neighbours(x=x, y=y, shift=shift).launchTotal(GROUP, (n, 1, 1))
    large.check(y, lambda i: value(i) * value(i + shift))
    x_grad, y_grad = torch.ones_like(x), torch.empty_like(y)
    large.fill(y_grad, weight)
    bound = large.module.neighbours.bwd(x=(x, x_grad), y=(y, y_grad), shift=shift)
    bound.launchTotal(GROUP, (n, 1, 1))
    large.check(x_grad, lambda i: 1 + weight(i) * value(i + shift) + weight(i + n - shift) * value(i + n - shift))
    large.check(y_grad, torch.zeros_like)


def check_host_function(large: Large) -> None:
    rows = large.size // 4 // 1024
    made = large.module.ones(rows, 1024)
    assert made.shape == (rows, 1024) and made.device == large.place
    large.check(made.view(-1), torch.ones_like)


def check_refusals(large: Large) -> None:
    """A size and a stride that a view has no room for."""
    found = torch.zeros(2, 1, dtype=torch.int32, device=large.place)
    memory = torch.zeros(large.size, dtype=torch.uint8, device=large.place)
    for view in (memory[None], memory.as_strided((2, 1), (2**32, 1))):
        with pytest.raises(RuntimeError, match="4 Gi"):
            large.module.rows(x=view, y=found)


CHECKS = [check_every_element, check_strides, check_atomics, check_backward, check_host_function]
# Of the true size alone.
TRUE = [check_refusals]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    if not torch.cuda.is_available() or not any(d.type == "cuda" and d.available for d in spy.devices()):
        pytest.skip("needs CUDA, and a PyTorch that has it")
    free, whole = torch.cuda.mem_get_info()
    if free < NEEDED:
        pytest.skip(f"needs {NEEDED >> 30} GiB of a GPU's memory; {free >> 30} of {whole >> 30} GiB are free")
    with spy.create_torch_device() as device:
        yield Large(device, tmp_path_factory.mktemp("large"), BYTES)


@pytest.mark.parametrize("check", CHECKS + TRUE, ids=lambda check: check.__name__.removeprefix("check_"))
def test_beyond_4_gib(large: Large, check: Callable[[Large], None]) -> None:
    torch.cuda.empty_cache()
    check(large)


def main() -> None:
    """Run what the tests run, on another device or with another size."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--bytes", type=int, default=BYTES, help="of a tensor; those of the tests: %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, spy.create_torch_device(options.device) as device:
        large = Large(device, Path(folder), options.bytes // 40960 * 40960)
        for check in CHECKS + (TRUE if large.size > 1 << 32 else []):
            check(large)
            print(f"{check.__name__}: passed")


if __name__ == "__main__":
    main()
