"""Names of users that are also names of our own: parameters, uniforms, fields, texts of classes of their own."""

from __future__ import annotations

import copy
import enum
import pickle
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import one_device

SLANG = """
import slangpy_rt;
struct Own { float self; float place; float sum() { return self + place; } }
float own(Own o) { return o.sum(); }
float f(float self, float values, float commands, float place) { return self + 10 * values + 100 * commands + place; }
uniform float values;
uniform Own whole;
float scaled(float x) { return x * values; }
[numthreads(4, 1, 1)] void k(RWTensor<float, 1> self, uint i : SV_DispatchThreadID, float threads, float commands)
{
    if (i < self.shape[0])
        self[i] = threads + 10 * commands;
}
enum Mode { Off, On = 3 }
int mode(Mode m) { return int(m); }
"""


class Text(str):
    """A text of a class of a user's own."""


class Name(str, enum.Enum):
    """Names as an enum."""

    own = "own"
    Own = "Own"


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_names", SLANG)


def test_parameters_are_named_as_users_like(module: spy.Module) -> None:
    device = module.device
    named: dict[str, Any] = {"self": 1.0, "values": 2.0, "commands": 3.0, "place": 4.0}
    assert module.f(**named) == 325
    assert module.f.bind(**named)() == 325
    assert "float f(" in module.f.explain(**named) and "f(" in module.f.source(**named)
    assert module.f.map(self=(0,), values=())(**{**named, "self": np.ones(2, np.float32)}).shape == (2,)
    commands = device.command_list()
    tensor = spy.Tensor.ones(device, 2)
    result = module.f.append_to(commands, **{**named, "self": tensor})
    commands.update(0, **{**named, "self": spy.Tensor.zeros(device, 2)})
    commands.submit()
    np.testing.assert_array_equal(result.to_numpy(), [324, 324])
    assert module.scaled.set(values=5.0)(2.0) == 10 and module.scaled.set({"values": 6.0})(2.0) == 12


def test_fields_are_named_as_users_like(module: spy.Module) -> None:
    made = module.Own(self=1.0, place=2.0)
    assert made == {"_type": "Own", "self": 1, "place": 2} and module.own(made) == 3
    many = spy.InstanceTensor(module.Own, 2)
    np.testing.assert_array_equal(many.sum().shape, (2,))


def test_parameters_of_kernels(module: spy.Module) -> None:
    device = module.device
    out = spy.Tensor.zeros(device, 4)
    named: dict[str, Any] = {"self": out, "threads": 1.0, "commands": 2.0}
    module.k.dispatch(4, **named)
    assert (out.to_numpy() == 21).all()
    commands = device.command_list()
    module.k.append_to(commands, 4, **{**named, "threads": 3.0})
    commands.submit()
    assert (out.to_numpy() == 23).all()
    module.k.bind(4, **named)()
    assert (out.to_numpy() == 21).all()


@one_device
def test_texts_of_other_classes(device: spy.Device, module: spy.Module) -> None:
    assert module[Text("own")] is module["own"] and module[Name.own] is module["own"]
    assert module.own({"_type": Text("Own"), "self": 1.0, "place": 2.0}) == 3
    assert module.own.map(Name.Own)({"self": 1.0, "place": 2.0}) == 3
    defined = spy.Module.load_from_source(
        device, Text("defined"), Text("float g() { return N; }"), defines={Text("N"): Text("4")}
    )
    assert defined.g() == 4


def test_no_name_of_ours_is_listed(module: spy.Module) -> None:
    assert "_spy_" not in repr(module)
    assert not [name for name in dir(module) if name.startswith("_spy_")]
    assert not [f.name for f in module.info.functions if f.name.startswith("_spy_")]


def test_words_of_slang_are_no_attributes(module: spy.Module) -> None:
    for word in ("new", "delete", "this", "for", "struct", "operator"):
        assert getattr(module, word, None) is None
        with pytest.raises(spy.SlangPyRtError):
            module[word]
    assert module.own({"self": 1.0, "place": 2.0}) == 3


def test_what_holds_device_memory_is_not_copied(device: spy.Device, module: spy.Module) -> None:
    tensor = spy.Tensor.ones(device, 4)
    commands = device.command_list()
    module.scaled.set(values=2.0).append_to(commands, tensor, _result=tensor)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a list is not copied or pickled; append it to a new one"):
            copied(commands)
        with pytest.raises(TypeError, match="device memory is not copied or pickled"):
            copied(tensor.buffer)
    # A shallow copy of an array is another name for its memory.
    other = copy.copy(tensor)
    commands.submit()
    np.testing.assert_array_equal(other.to_numpy(), np.full(4, 2))
    del tensor, commands
    np.testing.assert_array_equal(other.to_numpy(), np.full(4, 2))


def test_lists_have_no_width(device: spy.Device) -> None:
    for kind, most in (("uint", 2**32 - 1), ("int", 2**31 - 1), ("uint64_t", 2**63 - 1)):
        tensor = spy.Tensor.from_numpy(device, [1, most], dtype=kind)
        assert tensor.to_numpy().tolist() == [1, most]
        with pytest.raises(spy.BindError, match="does not fit"):
            spy.Tensor.from_numpy(device, [-(2**40)], dtype="uint")
    assert spy.Tensor.arange(device, 3, dtype="uint").to_numpy().tolist() == [0, 1, 2]
    assert spy.Tensor.arange(device, 3, dtype="float").to_numpy().tolist() == [0, 1, 2]
    with pytest.raises(spy.BindError, match="does not convert"):
        spy.Tensor.from_numpy(device, np.array([1, 2]), dtype="uint")
