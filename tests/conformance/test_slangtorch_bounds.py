"""Accesses outside of tensors by slang-torch's kernels, which a debug device reports and does not make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from _slangtorch import Files

import slangpy_rt as spy
from tests.depth import one_device

pytestmark = one_device

SLANG = """
struct Two { TensorView<float> a; TensorView<float> b; }
[AutoPyBindCUDA] [CUDAKernel] void load(TensorView<float> x, TensorView<float> out_, int i, int j)
{
    out_[0] = x[uint2(i, j)] + x.load(i, j) + x[i, j];
}
[AutoPyBindCUDA] [CUDAKernel] void store(TensorView<float> x, int i) { x[i] = 3; x.store(i, 4); }
[AutoPyBindCUDA] [CUDAKernel] void row(TensorView<float> x, TensorView<float> out_, int i) { out_[0] = x[i]; }
[AutoPyBindCUDA] [CUDAKernel] void five(TensorView<float> x, int m) { x[0, 1, 0, 1, m] = x.load(0, 1, 0, 1, m) + 1; }
[AutoPyBindCUDA] [CUDAKernel] void vectors(TensorView<float3> x, int i) { x[i] = 2 * x.load(i + 1); }
[AutoPyBindCUDA] [CUDAKernel] void atomics(TensorView<int> x, int i)
{
    int old;
    x.InterlockedAdd(i, 1, old);
    x.InterlockedMax(uint1(i), 1);
    x.InterlockedExchange(uint1(i), 1, old);
    x.InterlockedCompareExchange(i, 0, 1);
}
[AutoPyBindCUDA] [CUDAKernel] void members(Two two, int i) { two.b[i] = two.a[0]; }
[AutoPyBindCUDA] [CUDAKernel] [Differentiable]
void shifted(DiffTensorView x, DiffTensorView y, no_diff int by)
{
    uint i = cudaThreadIdx().x;
    if (i < y.size(0))
        y.storeOnce(i, x[i + by] * x[i + by]);
}
[TorchEntryPoint] void host(TorchTensor<float> x, int i)
{
    __dispatch_kernel(store, uint3(1), uint3(1))(x, i);
}
"""
ONE = {"blockSize": (1, 1, 1), "gridSize": (1, 1, 1)}


@pytest.fixture(scope="module")
def checked(backend_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    """Files for a debug device."""
    with spy.Device(backend_name, debug=True) as device:
        yield Files(device, tmp_path_factory.mktemp("bounds"))


@pytest.fixture(scope="module")
def module(checked: Files) -> Any:
    if "pointers" not in checked.device.caps.features:
        pytest.skip("slang-torch's tests need pointers")
    return checked.load(SLANG)


def told(run: Callable[[], object]) -> str:
    with pytest.raises(spy.OutOfBoundsError) as caught:
        run()
    return str(caught.value)


def outside(who: str, shape: str, how: str, index: str, more: int = 0) -> str:
    count = f", one of {more} such accesses" if more else ""
    return (
        f"{who} of shape {shape} was {how} at {index}, which is outside{count}. Let the function compare its indices "
        "with the array's shape."
    )


def test_each_access_is_checked(checked: Files, module: Any) -> None:
    on = checked.on

    def launch(name: str, **arguments: Any) -> Callable[[], object]:
        return lambda: getattr(module, name)(**arguments).launchRaw(**ONE)

    x, out = on(torch.arange(12.0).reshape(3, 4)), on(torch.zeros(1))
    assert told(launch("load", x=x, out_=out, i=2, j=4)) == (
        f"load of module: {outside('argument ' + repr('x'), '(3, 4)', 'read', '(2, 4)', 3)}"
    )
    assert out.tolist() == [0]
    assert "'x' of shape (3, 4) was read at (-1, 0)" in told(launch("load", x=x, out_=out, i=-1, j=0))
    launch("load", x=x, out_=out, i=2, j=3)()
    assert out.tolist() == [33]
    line = on(torch.zeros(5))
    assert "'x' of shape (5,) was written at (5,), which is outside, one of 2" in told(launch("store", x=line, i=5))
    # A view of fewer dimensions is that of the first elements of rows, and one of more has zeros there.
    launch("row", x=x, out_=out, i=2)()
    assert out.tolist() == [8]
    assert "argument 'x' of shape (3,) was read at (3,)" in told(launch("row", x=x, out_=out, i=3))
    launch("load", x=line, out_=out, i=4, j=0)()
    assert "argument 'x' of shape (5,) was read at (4,)" in told(launch("load", x=line, out_=out, i=4, j=1))
    assert "was read at (0,)" in told(launch("row", x=on(torch.zeros(3, 0)), out_=out, i=0))
    block = on(torch.zeros(1, 2, 1, 2, 3))
    launch("five", x=block, m=2)()
    assert block.sum() == 1
    assert "of shape (1, 2, 1, 2, 3) was read at (0, 1, 0, 1, 3)" in told(launch("five", x=block, m=3))
    rows = on(torch.ones(4, 3))
    launch("vectors", x=rows, i=2)()
    assert rows.tolist() == [[1] * 3, [1] * 3, [2] * 3, [1] * 3]
    assert "argument 'x' of shape (4,) was read at (4,)" in told(launch("vectors", x=rows, i=3))
    assert rows[3].tolist() == [0] * 3
    whole = on(torch.zeros(2, dtype=torch.int32))
    assert "'x' of shape (2,) was written at (9,), which is outside, one of 4" in told(
        launch("atomics", x=whole, i=9)
    )
    assert whole.tolist() == [0, 0]


def test_members_of_structs_and_kernels_of_host_functions(checked: Files, module: Any) -> None:
    a, b = checked.on(torch.ones(1)), checked.on(torch.zeros(7))
    assert told(lambda: module.members(two={"a": a, "b": b}, i=8).launchRaw(**ONE)) == (
        f"members of module: {outside('argument ' + repr('two'), '(7,)', 'written', '(8,)')}"
    )
    assert told(lambda: module.host(b, 7)) == (
        f"store of module: {outside('argument ' + repr('x'), '(7,)', 'written', '(7,)', 2)}"
    )
    module.host(b, 6)
    assert b.tolist() == [0] * 6 + [4]


def test_gradients_are_checked(checked: Files, module: Any) -> None:
    x, y = checked.on(torch.tensor([1.0, 2, 3])), checked.on(torch.zeros(2))
    dx, dy = torch.zeros_like(x), torch.ones_like(y)
    run = {"blockSize": (8, 1, 1), "gridSize": (1, 1, 1)}
    module.shifted.bwd(x=(x, dx), y=(y, dy), by=1).launchRaw(**run)
    assert dx.tolist() == [0, 4, 6]
    dx.zero_()
    said = told(lambda: module.shifted.bwd(x=(x, dx), y=(y, dy), by=2).launchRaw(**run))
    assert said.startswith("shifted.bwd of module: argument 'x' of shape (3,) was read at (3,), which is outside")
    assert dx.tolist() == [0, 0, 6]


def test_launches_of_lists_are_checked(checked: Files, module: Any) -> None:
    device, x = checked.device, checked.on(torch.zeros(3))
    commands = device.command_list()
    try:
        module.store(x=x, i=3).append_to(commands, **ONE)
    except spy.SlangPyRtError as error:
        assert "does not work in its tensors' memory" in str(error)
        return
    assert "store of module: argument 'x' of shape (3,) was written at (3,)" in told(commands.submit)


def test_without_debug_nothing_of_it_is_in_a_kernel(backend_name: str, tmp_path: Path) -> None:
    with spy.Device(backend_name) as device:
        if "pointers" not in device.caps.features:
            pytest.skip("slang-torch's tests need pointers")
        module = Files(device, tmp_path).load(SLANG)
        code = module.store.code.text(device, (1, 1, 1)).text
    assert "_spy_reportTo" not in code and "_spy_checks" not in code
