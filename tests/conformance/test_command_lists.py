"""Command lists: what they compute is what the calls compute one by one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import every_device, one_device

pytestmark = every_device

SOURCE = """
float add(float a, float b) { return a + b; }
[Differentiable] float mul(float a, float b) { return a * b; }
void grow(inout float a, float by) { a += by; }
float one() { return 1; }
extern static const int N = 2;
uniform float bias;
float scaled(float x) { return x * N + bias; }
[numthreads(32, 1, 1)]
void twice(uint3 i : SV_DispatchThreadID, NDBuffer<float, 1> x)
{
    if (i.x < x.shape[0])
        x[int(i.x)] = 2 * x[int(i.x)];
}
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "command_lists", SOURCE)


def tensor(module: spy.Module, array: Any) -> spy.Tensor:
    return spy.Tensor.from_numpy(module.device, np.asarray(array, np.float32))


def test_a_chain_replayed(module: spy.Module) -> None:
    a, b, c = (tensor(module, x) for x in ([1, 2, 3], [10, 20, 30], [0, 0, 0]))
    commands = module.device.command_list()
    assert module.add.append_to(commands, a, b, _result=c) is c
    module.grow.append_to(commands, c, 1.0)
    total = module.mul.append_to(commands, c, c)
    assert len(commands) == 3 and c.numpy().tolist() == [0, 0, 0]
    commands.submit()
    assert c.numpy().tolist() == [12, 23, 34] and total.numpy().tolist() == [144, 529, 1156]
    a.copy_from([0, 0, 0])
    commands.submit()
    commands.submit()
    assert c.numpy().tolist() == [11, 21, 31] and total.numpy().tolist() == [121, 441, 961]


def test_every_way_to_call(module: spy.Module) -> None:
    x, out = tensor(module, [1, 2, 3, 4]), tensor(module, [0] * 4)
    with module.device.command_list() as commands:
        module.twice.append_to(commands, 4, x)
        module.twice.dispatch(4, x, _append_to=commands)
        module.scaled.constants({"N": 3}).set(bias=0.5).append_to(commands, x, _result=out)
        outer = module.add.map((0,), (1,)).append_to(commands, x, out)
        single = module.add(1.0, 2.0, _append_to=commands)
        filled = module.one.return_type(spy.NDBuffer).append_to(commands)
    np.testing.assert_array_equal(x.numpy(), [4, 8, 12, 16])
    np.testing.assert_array_equal(out.numpy(), [12.5, 24.5, 36.5, 48.5])
    np.testing.assert_array_equal(outer.numpy(), x.numpy()[:, None] + out.numpy())
    assert isinstance(single, spy.Tensor) and single.numpy() == 3
    assert isinstance(filled, spy.NDBuffer) and filled.to_numpy() == 1


def test_gradients(module: spy.Module) -> None:
    a, g = tensor(module, [1, 2, 3]).with_grads(), tensor(module, [1, 10, 100])
    b, r = tensor(module, [2.0]).with_grads(), tensor(module, [0] * 3).with_grads(grad_in=g)
    commands = module.device.command_list()
    assert a.grad is not None and b.grad is not None
    commands.clear(a.grad)
    module.mul.bwds.append_to(commands, a, b, _result=r)
    for _ in range(2):
        commands.submit()
    assert a.grad.numpy().tolist() == [2, 20, 200] and b.grad.numpy().tolist() == [2 * 321]


def test_copies_and_lists_in_lists(module: spy.Module) -> None:
    device = module.device
    a, b = tensor(module, [1, 2, 3]), tensor(module, [7, 8, 9])
    odd = [spy.Tensor.from_numpy(device, np.array(x, np.uint8)) for x in ([1, 2, 3], [0, 0, 0])]
    inner = device.command_list()
    inner.copy(b, a)
    inner.copy(odd[1], odd[0])
    outer = device.command_list()
    module.grow.append_to(outer, a, 1.0)
    outer.append(inner)
    outer.append(inner)
    outer.clear(odd[0])
    outer.submit()
    assert b.numpy().tolist() == [2, 3, 4] and odd[1].numpy().tolist() == [1, 2, 3] and not odd[0].numpy().any()
    with pytest.raises(spy.ShapeError, match="sizes differ"):
        inner.copy(b, odd[0])
    with pytest.raises(spy.BindError, match="contiguous"):
        inner.clear(b[::2])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 4099])
def test_any_bytes_and_no_others(device: spy.Device, size: int) -> None:
    # Devices without 8-bit integers reach them by words, of which others' bytes are a part.
    source, before = (np.random.default_rng(size + k).integers(1, 256, size + 9).astype(np.uint8) for k in (0, 1))
    read = spy.Tensor.from_numpy(device, source)
    for to in (0, 1, 2, 3, 5):
        cleared = spy.Tensor.from_numpy(device, before)
        commands = device.command_list()
        commands.clear(cleared[to : to + size])
        commands.submit()
        expected = before.copy()
        expected[to : to + size] = 0
        np.testing.assert_array_equal(cleared.numpy(), expected)
        for at in (0, 1, 2, 3, 6):
            written = spy.Tensor.from_numpy(device, before)
            with device.command_list() as commands:
                commands.copy(written[to : to + size], read[at : at + size])
            expected[to : to + size] = source[at : at + size]
            np.testing.assert_array_equal(written.numpy(), expected)
    np.testing.assert_array_equal(read.numpy(), source)


@pytest.mark.parametrize("size", [1, 3, 4099])
def test_bytes_within_one_array(device: spy.Device, size: int) -> None:
    # Neighbours, so that a word is read and written by one copy; then what was copied last is copied on.
    host = np.random.default_rng(size).integers(1, 256, 3 * size + 5).astype(np.uint8)
    array = spy.Tensor.from_numpy(device, host)
    with device.command_list() as commands:
        commands.copy(array[2 + size : 2 + 2 * size], array[2 : 2 + size])
        commands.clear(array[1:2])
        commands.copy(array[3 + 2 * size : 3 + 3 * size], array[2 + size : 2 + 2 * size])
    host[2 + size : 2 + 2 * size] = host[2 : 2 + size]
    host[1] = 0
    host[3 + 2 * size : 3 + 3 * size] = host[2 : 2 + size]
    np.testing.assert_array_equal(array.numpy(), host)


def test_other_arguments(module: spy.Module) -> None:
    a, b, c, d = (tensor(module, x) for x in ([1, 2], [3, 4], [0, 0], [0, 0]))
    commands = module.device.command_list()
    module.add.append_to(commands, a, 1.0, _result=c)
    module.add.append_to(commands, c, c, _result=d)
    commands.submit()
    assert d.numpy().tolist() == [4, 6]
    commands.update(0, b, 2.0, _result=c)
    commands.submit()
    assert d.numpy().tolist() == [10, 12]
    commands.update(-1, a, b, _result=d)
    commands.submit()
    assert d.numpy().tolist() == [4, 6] and commands.waits[1] == ()
    with pytest.raises(spy.BindError, match=r"other layouts"):
        commands.update(0, tensor(module, [1, 2, 3]), 1.0)
    with pytest.raises(spy.BindError, match=r"there is no call 2; the list has 2"):
        commands.update(2, a, b)


def test_touched_arrays_after_an_update(module: spy.Module) -> None:
    """Other queues, and backward passes that read an array, are told which arrays a list writes and reads now."""
    arrays = [tensor(module, [1, 2]) for _ in range(6)]
    a, b, c, d, e, f = arrays

    def touched(commands: Any) -> dict[int, bool]:
        buffers, written = commands._touches()
        names = {id(x.buffer): k for k, x in enumerate(arrays)}
        return {names[id(x)]: w for x, w in zip(buffers, written, strict=True)}

    commands = module.device.command_list()
    module.add.append_to(commands, a, b, _result=c)
    assert touched(commands) == {0: False, 1: False, 2: True}
    commands.submit()
    assert touched(commands) == {0: False, 1: False, 2: True}
    commands.update(0, a, d, _result=e)
    assert touched(commands) == {0: False, 3: False, 4: True}
    commands.submit()
    assert touched(commands) == {0: False, 3: False, 4: True}
    commands.update(0, d, a, _result=b)
    assert touched(commands) == {0: False, 1: True, 3: False}
    commands.update(0, a, d, _result=e)
    # What one call writes and another one reads counts as written, in either order.
    module.add.append_to(commands, e, f, _result=a)
    commands.submit()
    assert touched(commands) == {0: True, 3: False, 4: True, 5: False}
    commands.copy(b, f)
    commands.submit()
    assert touched(commands) == {0: True, 1: True, 3: False, 4: True, 5: False}
    commands.clear(f)
    commands.submit()
    assert touched(commands) == {0: True, 1: True, 3: False, 4: True, 5: True}


def test_what_waits_for_what(module: spy.Module, tmp_path: Path) -> None:
    a, b, c, d = (tensor(module, [k]) for k in range(4))
    commands = module.device.command_list()
    module.add.append_to(commands, a, a, _result=b)  # 0
    module.add.append_to(commands, a, a, _result=c)  # 1: with 0
    module.add.append_to(commands, b, c, _result=d)  # 2: after both
    module.grow.append_to(commands, a, 1.0)  # 3: after the readers of a
    module.add.append_to(commands, 1.0, 2.0, _result=b)  # 4: b was read by 2 and written by 0
    assert commands.waits == ((), (), (0, 1), (0, 1), (0, 2))
    text = commands.explain(tmp_path / "list.svg")
    assert text.splitlines()[0] == f"5 calls on {module.device.name}"
    assert re.search(r"\n2 +float add\(float a, float b\) +0, 1\n", text)
    drawing = (tmp_path / "list.svg").read_text()
    assert drawing.count("<rect") == 5 and drawing.count("<line") == 6


def test_what_is_refused(module: spy.Module) -> None:
    commands = module.device.command_list()
    host, x = np.ones(3, np.float32), tensor(module, [1, 2, 3])
    for call in (
        lambda: module.add.append_to(commands, host, x),
        lambda: module.add.append_to(commands, x, x, _result=host),
        lambda: module.grow.append_to(commands, spy.ValueRef(1.0), 2.0),
        lambda: module.mul.bwds.append_to(commands, spy.diff_pair(2.0), 3.0, _result=spy.diff_pair(None, 1.0)),
    ):
        with pytest.raises(spy.BindError, match="a command list does not take"):
            call()
    with pytest.raises(spy.BindError, match=r"add.append_to: 3 is no command list"):
        module.add.append_to(3, x, x)  # type: ignore[arg-type]
    with spy.Device("null") as other, pytest.raises(spy.BindError, match="no command list"):
        commands.append(other.command_list())
    assert len(commands) == 0
    commands.submit()


def test_a_block_that_raised_is_not_submitted(module: spy.Module) -> None:
    x = tensor(module, [1.0])
    with pytest.raises(KeyError), module.device.command_list() as commands:
        module.grow.append_to(commands, x, 1.0)
        raise KeyError
    assert x.numpy() == 1


def test_calls_without_elements(module: spy.Module) -> None:
    empty, x = spy.Tensor.empty(module.device, 0), tensor(module, [1.0])
    with module.device.command_list() as commands:
        result = module.add.append_to(commands, empty, 1.0)
        module.grow.append_to(commands, x, 1.0)
    assert result.shape == (0,) and x.numpy() == 2
    commands.update(1, x, 5.0)
    commands.submit()
    assert x.numpy() == 7


def test_everything_recorded_is_kept(module: spy.Module) -> None:
    commands = module.device.command_list()
    last = module.add.append_to(commands, tensor(module, np.arange(1000)), tensor(module, np.ones(1000)))
    for _ in range(20):
        last = module.add.append_to(commands, last, tensor(module, np.ones(1000)))
    for _ in range(50):
        tensor(module, np.full(1000, 99.0))
    commands.submit()
    np.testing.assert_array_equal(last.numpy(), np.arange(1000) + 21)
    assert repr(commands) == f"<CommandList of 21 calls on {module.device.name}>"


@one_device
def test_prints_and_checks(device: spy.Device, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'import slangpy_rt;\nvoid say(int x) { printf("x is %d\\n", x); }\n'
    module = spy.Module.load_from_source(device, "talks", text)
    with device.command_list() as commands:
        module.say.append_to(commands, spy.Tensor.from_numpy(device, np.array([7], np.int32)))
    device.synchronize()
    assert capsys.readouterr().out == "x is 7\n"
    with spy.Device(device.name, debug=True) as careful:
        reader = spy.Module.load_from_source(
            careful, "reader", "float at(Tensor<float, 1> t, int i) { return t[i]; }"
        )
        t = spy.Tensor.ones(careful, 4)
        commands = careful.command_list()
        reader.at.append_to(commands, t, spy.Tensor.from_numpy(careful, np.array([1, 9], np.int32)))
        with pytest.raises(spy.OutOfBoundsError, match=r"argument 't' of shape \(4,\) was read at \(9,\)"):
            commands.submit()


def test_a_closed_device() -> None:
    with spy.Device("null") as device:
        commands = device.command_list()
    with pytest.raises(spy.DeviceError, match="closed"):
        commands.submit()
