"""Calls of slang-torch's kernels and host functions on tensors like, and unlike, those of the call before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _slangtorch import ONE, Files, files

import slangpy_rt as spy
from slangpy_rt.slangtorch.binder import Binder
from slangpy_rt.slangtorch.errors import LaunchError, TensorError
from tests.depth import needs, one_device

__all__ = ["files"]  # the fixture

pytestmark = one_device

TEXT = """
[AutoPyBindCUDA] [CudaKernel]
void twice(TensorView<float> input, TensorView<float> output)
{
    for (uint i = 0; i < input.size(0); ++i)
        output[i] = 2 * input[i];
}

[AutoPyBindCUDA] [CudaKernel]
void shorts(TensorView<uint16_t> input, TensorView<float> output)
{
    for (uint i = 0; i < input.size(0); ++i)
        output[i] = float(input[i]);
}

[AutoPyBindCUDA] [CudaKernel] [Differentiable]
void square(DiffTensorView input, DiffTensorView output)
{
    [MaxIters(8)]
    for (uint i = 0; i < input.size(0); ++i)
        output[i] = input[i] * input[i];
}

[TorchEntryPoint]
TorchTensor<float> made(TorchTensor<float> input)
{
    var output = TorchTensor<float>.alloc(input.size(0));
    __dispatch_kernel(twice, uint3(1, 1, 1), uint3(1, 1, 1))(input, output);
    return output;
}
"""
SIZE = {"blockSize": ONE, "gridSize": ONE}


@pytest.fixture
def m(files: Files) -> Any:
    return files.load(TEXT)


def filled(files: Files, *shape: int) -> torch.Tensor:
    return files.on(torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape))


def check(files: Files, m: Any, given: torch.Tensor) -> None:
    """Both ways to the kernel are right for a tensor."""
    out = files.on(torch.zeros(given.shape))
    m.twice(output=out, input=given).launchRaw(**SIZE)
    assert torch.equal(out, 2 * given.detach())
    assert torch.equal(m.made(given), 2 * given.detach())


def test_layouts_that_take_turns(files: Files, m: Any) -> None:
    plain, long, gapped = filled(files, 4), filled(files, 7), filled(files, 8)[::2]
    leaf = filled(files, 4).requires_grad_()
    for _ in range(3):
        for given in (plain, long, gapped, leaf, plain.clone(), leaf.detach()):
            check(files, m, given)
    with torch.no_grad():
        check(files, m, leaf)
        check(files, m, plain)
    with torch.inference_mode():
        check(files, m, filled(files, 4))


def test_one_tensor_in_two_places(files: Files, m: Any) -> None:
    for _ in range(3):
        both = filled(files, 4)
        m.twice(input=both, output=both).launchRaw(**SIZE)
        assert both.tolist() == [2, 4, 6, 8]
        check(files, m, both)


def test_what_does_not_fit_is_refused_behind_what_does(files: Files, m: Any) -> None:
    good, out = filled(files, 4), files.on(torch.zeros(4))
    negated = torch.view_as_complex(filled(files, 4, 2)).conj().imag
    assert negated.is_neg()
    wrong: dict[Any, type[Exception]] = {
        good.double(): TensorError, good.expand(3, 4): TensorError,
        negated: TensorError, good.to_sparse(): TensorError,
    }  # fmt: skip
    for bad, kind in wrong.items():
        m.twice(input=good, output=out).launchRaw(**SIZE)
        with pytest.raises(kind, match="input"):
            m.twice(input=bad, output=out)
        # Host functions convert what is double, and read copies of broadcast views.
        if bad.dtype is torch.float32 and bad.shape != (3, 4):
            m.made(good)
            with pytest.raises(kind, match="input"):
                m.made(bad)
    for bad in (None, 3, [1.0, 2.0]):
        m.twice(input=good, output=out).launchRaw(**SIZE)
        with pytest.raises(TypeError, match=r"input: .*takes a torch\.Tensor"):
            m.twice(input=bad, output=out)
    with pytest.raises(ValueError, match="missing input; unknown inputs"):
        m.twice(inputs=good, output=out)
    with pytest.raises(ValueError, match="missing output"):
        m.twice(input=good)
    m.twice(input=good, output=out).launchRaw(**SIZE)
    with pytest.raises(ValueError, match="twice: unknown more; its arguments are input, output"):
        m.twice(input=good, output=out, more=good)
    with pytest.raises(ValueError, match="arguments come by name"):
        m.twice(good, output=out)
    check(files, m, good)


def test_dtypes_of_one_size_are_told_apart(files: Files, m: Any) -> None:
    out = files.on(torch.zeros(2))
    for _ in range(2):
        for values, kind in (([1, 2], torch.int16), ([3, 4], torch.uint16)):
            given = files.on(torch.tensor(values, dtype=kind))
            m.shorts(input=given, output=out).launchRaw(**SIZE)
            assert out.tolist() == values
            with pytest.raises(TensorError, match="input is float16"):
                m.shorts(input=given.view(torch.float16), output=out)


def test_a_tensor_that_changes_before_the_launch(files: Files, m: Any) -> None:
    for _ in range(2):
        given, out = filled(files, 4), files.on(torch.zeros(4))
        bound = m.twice(input=given, output=out)
        # What does not matter to a kernel may change.
        given.requires_grad_()
        bound.launchRaw(**SIZE)
        assert out.tolist() == [2, 4, 6, 8]
        given = given.detach()
        bound = m.twice(input=given, output=out)
        given.resize_(2)
        with pytest.raises(LaunchError, match="a tensor was resized since the kernel was called"):
            bound.launchRaw(**SIZE)


def test_other_memory_at_each_launch(files: Files, m: Any) -> None:
    given, out = filled(files, 4), files.on(torch.zeros(4))
    bound = m.twice(input=given, output=out)
    bound.launchRaw(**SIZE)
    given.set_(filled(files, 8)[4:].clone())
    bound.launchRaw(**SIZE)
    assert out.tolist() == [10, 12, 14, 16]


@needs("pointers")
def test_a_device_that_was_closed(backend_name: str, tmp_path: Path) -> None:
    with spy.Device(backend_name) as device:
        files = Files(device, tmp_path)
        m = files.load(TEXT)
        given, out = filled(files, 4), files.on(torch.zeros(4))
        bound = m.twice(input=given, output=out)
        bound.launchRaw(**SIZE)
        assert m.made(given).tolist() == [2, 4, 6, 8]
    for call in (
        lambda: bound.launchRaw(**SIZE), lambda: m.twice(input=given, output=out).launchRaw(**SIZE),
        lambda: m.made(given),
    ):  # fmt: skip
        with pytest.raises(spy.DeviceError):
            call()


@needs("no pointers")
def test_a_device_without_pointers_is_refused(device: spy.Device, tmp_path: Path) -> None:
    with pytest.raises(spy.UnsupportedError) as error:
        Files(device, tmp_path).load(TEXT)
    assert str(error.value) == (
        f"slangtorch.loadModule: device is {device!r}, which has no pointers, and kernels of slang-torch take their "
        "tensors as pointers; give a device of type cuda, vulkan or cpu, or None."
    )


NUMBERS = """
[AutoPyBindCUDA] [CudaKernel]
void numbers(int a, float b, bool c, float2 d, TensorView<float> output)
{
    output[0] = a + 10 * b + (c ? 100 : 0) + 1000 * d.y;
}
"""


def test_numbers_of_numpy_and_what_looks_like_one(files: Files) -> None:
    m, out = files.load(NUMBERS), files.on(torch.zeros(1))
    good = {"a": np.int64(1), "b": np.float64(2), "c": np.bool_(True), "d": (0.0, np.float32(4))}
    m.numbers(output=out, **good).launchRaw(**SIZE)
    m.numbers(output=out, **good | {"a": np.array(1), "b": np.array(2.0), "c": np.array(True)}).launchRaw(**SIZE)
    assert out.item() == 4121
    several, lacking = np.ones(2), torch.ones(2, device="meta")
    for wrong, error, message in [
        ({"a": several}, TypeError, "a: an array of dtype float64 and shape .2,.; 'int' takes whole numbers."),
        ({"b": several}, TypeError, "b: an array of dtype float64 and shape .2,.; 'float' takes numbers."),
        (
            {"d": (1.0, several)},
            TypeError,
            r"d\[1\]: an array of dtype float64 and shape .2,.; 'float2' takes numbers.",
        ),
        ({"b": 10**400}, ValueError, "b: a whole number of 1329 bits is not in the range of 'float'."),
        ({"a": 10**400}, ValueError, "a: a whole number of 1329 bits is not in the range of 'int', -2147483648 to "),
        ({"d": lacking}, TypeError, "d: tensor.*; 'float2' takes numbers, or a tensor that holds them."),
    ]:
        with pytest.raises(error, match=message):
            m.numbers(output=out, **good | wrong).launchRaw(**SIZE)


def test_pairs_like_those_of_the_call_before_are_bound_once(
    files: Files, m: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = []
    bind = Binder.bind

    def counted(self: Binder, named: Any) -> Any:
        bound.append(named)
        return bind(self, named)

    monkeypatch.setattr(Binder, "bind", counted)
    for k in range(1, 5):
        x, x_grad, y, y_grad = (files.on(torch.full((3,), v)) for v in (float(k), 0.0, 0.0, 1.0))
        m.square(input=x, output=y).launchRaw(**SIZE)
        m.square.bwd(input=(x, x_grad), output=m.DiffTensorView(y, y_grad)).launchRaw(**SIZE)
        assert y.tolist() == [k * k] * 3
        assert x_grad.tolist() == [2 * k] * 3
        assert y_grad.tolist() == [0] * 3
    assert len(bound) == 2


def test_pairs_unlike_those_of_the_call_before(files: Files, m: Any) -> None:
    x, ones, y = filled(files, 3), files.on(torch.ones(3)), files.on(torch.zeros(3))

    def good() -> None:
        x_grad = files.on(torch.zeros(3))
        m.square.bwd(input=(x, x_grad), output=(y, ones.clone())).launchRaw(**SIZE)
        assert x_grad.tolist() == [2, 4, 6]

    memory = files.on(torch.zeros(4))
    long, wide = files.on(torch.zeros(4)), files.on(torch.zeros(3, dtype=torch.float64))
    for pair, error, part in (
        ((memory[:3], memory[1:]), TensorError, "input.grad lies in the memory of input"),
        ((x, x), TensorError, "input.grad lies in the memory of input"),
        ((x, long), TensorError, "input.grad has shape"),
        ((x, wide), TensorError, "input.grad is float64"),
        ((x, 1.0), TypeError, "input.grad: "),
        ((None, ones), TypeError, "input: "),
        ((), ValueError, "input: a tuple of 0"),
        ((x, ones, y), ValueError, "input: a tuple of 3"),
        ([x, ones], ValueError, "input: "),
    ):
        good()
        with pytest.raises(error) as caught:
            m.square.bwd(input=pair, output=(y, ones.clone()))
        assert str(caught.value).startswith(f"square.bwd: {part}") or str(caught.value).startswith(part)
    # The same number of tensors, of which another one is a gradient.
    both, only = files.on(torch.ones(3)), files.on(torch.zeros(3))
    m.square.bwd(input=(x, only), output=m.DiffTensorView(y)).launchRaw(**SIZE)
    m.square.bwd(input=m.DiffTensorView(x, None), output=(y, both)).launchRaw(**SIZE)
    assert only.tolist() == [0, 0, 0]
    assert both.tolist() == [0, 0, 0]
    good()
