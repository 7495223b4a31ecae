"""Outputs and gradients that share memory with each other: refused, copied back, or added up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from _overlap import SLANG, View, module, numbers, tensor

import slangpy_rt as spy

__all__ = ["module"]  # the fixture


def refused(call: Callable[[], object], *words: str) -> None:
    """A call that is refused before it writes anything."""
    with pytest.raises(spy.ShapeError) as caught:
        call()
    for word in words:
        assert word in str(caught.value), caught.value


def test_outputs_that_share_memory(module: spy.Module) -> None:
    host = numbers(100)
    a = tensor(module, host)
    one = module.device.command_list()
    refused(lambda: module.split(1.0, a[:50], a[1:51]), "split", "'a' and 'b'", "(50,)", "(4,)", "4 bytes before")
    refused(lambda: module.split(1.0, a, a), "'a' and 'b'")
    refused(lambda: module.split.bind(1.0, a, a)(), "'a' and 'b'")
    refused(lambda: module.split.append_to(one, 1.0, a, a), "'a' and 'b'")
    refused(lambda: module.halved(1.0, a, _result=a[::-1]), "'half' and '_result'")
    refused(lambda: module.update(a[:1].broadcast_to(10), 1.0), "'a' is a broadcast view")
    refused(lambda: module.stored(np.arange(100, dtype=np.int32), a, _result=a), "'all' and '_result'")
    np.testing.assert_array_equal(a.to_numpy(), host)
    assert len(one) == 0
    module.split(1.0, a[:50], a[50:])
    module.split(2.0, a[::2], a[1::2])
    np.testing.assert_array_equal(a.to_numpy(), np.tile([2, -2], 50))


def test_host_arrays_that_are_written(module: spy.Module) -> None:
    host = numbers(100)
    windows = np.lib.stride_tricks.sliding_window_view(host, 10, writeable=True)
    refused(lambda: module.line(1.0, _result=windows), "line", "'_result'", "(91, 10)", "overlap each other")
    vectors = np.lib.stride_tricks.sliding_window_view(host, 3, writeable=True)
    refused(lambda: module.turned([1, 2, 3], _result=vectors), "turned", "'_result'")
    refused(lambda: module.split(1.0, host, host), "'a' and 'b'")
    refused(lambda: module.split(1.0, host[:50], host[49:99]), "'a' and 'b'")
    np.testing.assert_array_equal(host, numbers(100))
    module.split(1.0, host[:50], host[50:])
    np.testing.assert_array_equal(host, np.repeat([1, -1], 50))


def test_one_cell_for_two_outputs(module: spy.Module) -> None:
    cell, other = spy.floatRef(7), spy.floatRef(8)
    refused(lambda: module.split(1.0, cell, cell), "'a' and 'b'")
    assert cell.value == 7
    module.split(1.0, cell, other)
    assert (cell.value, other.value) == (1, -1)


def test_nothing_overlaps_without_elements(module: spy.Module) -> None:
    a = tensor(module, numbers(10))
    module.split(1.0, a[3:3], a[3:3])
    module.line(a[2:2], _result=a[2:2])
    module.split(1.0, a[0:1], a[1:2])
    np.testing.assert_array_equal(a.to_numpy(), [1, -1, *range(2, 10)])


def test_gradients_in_the_memory_of_inputs(module: spy.Module) -> None:
    # The gradient of `a` is added to memory from which `b` is read.
    memory = tensor(module, numbers(1001))
    a = tensor(module, np.ones(1000)).with_grads(grad_out=memory[1:])
    seed = tensor(module, np.ones(1000))
    result = spy.Tensor.empty_like(seed).with_grads(grad_in=seed)
    module.multiply.bwds(a, memory[:-1], _result=result)
    np.testing.assert_array_equal(memory.to_numpy()[1:], numbers(1001)[1:] + numbers(1000))


def test_an_output_that_is_copied_back_over_one_in_place(module: spy.Module) -> None:
    host, memory = numbers(), numbers(4)
    # No float3 lies in one piece there, so that a device that works in the host's memory copies it.
    gapped = host[:12].reshape(3, 4).T
    refused(lambda: module.cut(memory, gapped, host[2:6]), "cut", "share memory", "(4, 3)", "8 bytes")
    refused(lambda: module.cut(memory, s=host[2:6], v=gapped), "cut", "share memory")
    raw = np.zeros(64, np.uint8)
    aligned, shifted = raw[:24].view(np.float32), np.ndarray((6,), np.float32, raw.data, 2)
    refused(lambda: module.split(numbers(6), aligned, shifted), "split", "share memory", "2 bytes")
    np.testing.assert_array_equal(host, numbers())
    assert not raw.any()
    # What only comes near is no overlap.
    module.cut(memory, gapped, host[12:16])
    np.testing.assert_array_equal(host[:16], [*range(4), *range(1, 5), *range(2, 6), 0, -1, -2, -3])


def test_gradients_that_share_memory_add_up(module: spy.Module) -> None:
    memory = tensor(module, np.zeros(1001))
    a, b = numbers(1000), numbers(1000)[::-1].copy()
    seed = tensor(module, np.ones(1000))
    result = spy.Tensor.empty_like(seed).with_grads(grad_in=seed)
    x, y = tensor(module, a).with_grads(grad_out=memory[:-1]), tensor(module, b).with_grads(grad_out=memory[1:])
    module.multiply.bwds(x, y, _result=result)
    expected = np.zeros(1001)
    expected[:-1] += b
    expected[1:] += a
    np.testing.assert_array_equal(memory.to_numpy(), expected)
    pair = spy.diff_pair(3.0)
    module.multiply.bwds(pair, pair, _result=spy.diff_pair(None, 1.0))
    assert pair.grad == 6


def test_a_deterministic_device_refuses_windows_of_a_gradient(backend_name: str) -> None:
    with spy.Device(backend_name, deterministic=True) as device:
        module = spy.Module.load_from_source(device, "test_overlap", SLANG)
        memory = tensor(module, np.zeros(102))
        x = tensor(module, np.ones((100, 3))).with_grads(grad_out=View(0, (100, 3), (1, 1)).of_tensor(memory))
        result = tensor(module, np.ones((100, 3))).with_grads(grad_in=tensor(module, np.ones((100, 3))))
        refused(lambda: module.multiply.bwds(x, 2.0, _result=result), "multiply", "'a.grad_out'", "(100, 3)")
        pair = spy.diff_pair(3.0)
        module.multiply.bwds(pair, pair, _result=spy.diff_pair(None, 1.0))
        assert pair.grad == 6


def test_windows_of_a_gradient_add_up(module: spy.Module) -> None:
    memory = tensor(module, np.zeros(102))
    windows = View(0, (100, 3), (1, 1)).of_tensor(memory)
    x = tensor(module, np.ones((100, 3))).with_grads(grad_out=windows)
    seed = tensor(module, np.ones((100, 3)))
    result = spy.Tensor.empty_like(seed).with_grads(grad_in=seed)
    module.multiply.bwds(x, 2.0, _result=result)
    expected = np.zeros(102)
    for k in range(3):
        expected[k : k + 100] += 2
    np.testing.assert_array_equal(memory.to_numpy(), expected)


def test_written_gradients_that_share_memory(module: spy.Module) -> None:
    memory = tensor(module, np.zeros(100))
    shared = memory[:50]
    a = tensor(module, np.ones(50)).with_grads(grad_in=shared, grad_out=shared)
    b = tensor(module, np.ones(50)).with_grads(grad_out=memory[1:51])
    refused(lambda: module.grow.bwds(a, b), "grow", "'a.grad_out' and 'b.grad_out'")
    x = tensor(module, np.ones(50)).with_grads(grad_in=tensor(module, np.ones(50)))
    out = memory[::2].with_grads(grad_out=memory[::2][::-1])
    refused(lambda: module.multiply.fwds(x, 2.0, _result=out), "multiply", "'_result' and '_result.grad_out'")
    one, two = (memory[k : k + 50].with_grads(grad_out=tensor(module, np.ones(50))) for k in (0, 10))
    refused(lambda: module.parts.fwds(x, one, two), "'a' and 'b'")
    np.testing.assert_array_equal(memory.to_numpy(), np.zeros(100))
