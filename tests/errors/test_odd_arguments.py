"""Arguments that Python or NumPy would refuse with errors of their own: each is refused in words."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import one_device
from tests.errors import _wrong_arguments as wrong

# What these test does not depend on the device.
pytestmark = one_device


@pytest.fixture
def world(device: spy.Device, tmp_path: Path) -> Iterator[wrong.World]:
    """An object of each public class."""
    with spy.Device("null") as other:
        yield wrong.World(device, other, tmp_path)


def told(kind: type[Exception], call: Callable[[], Any]) -> str:
    """The message of an exception of exactly that class."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    return str(caught.value)


def with_class_attribute(**names: object) -> Any:
    return type("Odd", (), names)()


def test_bytes_of_numpy(world: wrong.World) -> None:
    value = np.void(b"1234")
    said = told(spy.BindError, lambda: world.module.add(value, 1))
    assert said.startswith("float add(float a, float b): argument 'a' is ")
    assert said.endswith(" of type void, which does not convert to 'float'.")
    assert "argument 'p' is " in told(spy.BindError, lambda: world.module.of_struct(value))


@pytest.mark.parametrize("name", ["__slang_arg__", "get_this"])
@pytest.mark.parametrize("meant", [None, 3, "x"])
def test_a_stand_in_without_a_method(world: wrong.World, name: str, meant: object) -> None:
    value = with_class_attribute(**{name: meant})
    assert told(spy.BindError, lambda: world.module.add(value, 1)) == (
        f"float add(float a, float b): argument 'a' is a {__name__}.Odd, whose {name} is {meant!r}; "
        "a method was expected."
    )


GOOD = {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3, "stream": 1}


@pytest.mark.parametrize(
    "interface",
    [3, [], "x", {}, {**GOOD, "data": 5}, {**GOOD, "shape": [3]}, {**GOOD, "shape": ("a",)},
     {**GOOD, "typestr": 3}, {**GOOD, "typestr": "zz"},
     {**GOOD, "strides": 4}],
)  # fmt: skip
def test_an_array_on_a_gpu_that_describes_itself_in_wrong_words(world: wrong.World, interface: object) -> None:
    value = with_class_attribute(__cuda_array_interface__=interface)
    said = told(spy.BindError, lambda: world.module.add(value, 1))
    assert said.startswith(
        f"float add(float a, float b): argument 'a' is a {__name__}.Odd, whose __cuda_array_interface__ is "
    )
    assert said.endswith("; a dict with shape, typestr and data was expected, as the CUDA array interface has them.")
    assert "is a " in told(spy.BindError, lambda: world.module.write(value))


def test_an_array_on_no_gpu_of_a_number(world: wrong.World) -> None:
    value = with_class_attribute(__cuda_array_interface__=None)
    said = told(spy.BindError, lambda: world.module.add(value, 1))
    assert said == (
        f"float add(float a, float b): argument 'a' is a {__name__}.Odd, which has no __dlpack__ to share its "
        "memory by."
    )


class Refuses:
    """An array on a GPU whose interface raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @property
    def __cuda_array_interface__(self) -> object:
        raise self._error


def test_an_array_on_a_gpu_that_raises_in_a_generic_call(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "same", "T same<T>(T x) { return x; }")
    mine = AttributeError("its own")
    with pytest.raises(AttributeError) as caught:
        module.same(Refuses(mine))
    assert caught.value is mine
    with pytest.raises(spy.BindError, match=r"T same<T>\(T x\): argument 'x' is its own"):
        module.same(Refuses(spy.BindError("its own")))
    with pytest.raises(spy.BindError, match=r"argument 'x' is a .*Odd, which has no __dlpack__"):
        module.same(with_class_attribute(__cuda_array_interface__=None))


@pytest.mark.parametrize("change", [{"shape": (2**70,)}, {"data": (2**70, False)}, {"strides": (2**70,)}])
def test_numbers_beyond_an_interface(world: wrong.World, change: dict[str, object]) -> None:
    here = np.zeros(3, np.float32)
    described = {"version": 3, "shape": (3,), "typestr": "<f4", "data": (here.ctypes.data, False)}
    value = with_class_attribute(__array_interface__={**described, **change})
    where = f"is a {__name__}.Odd, and NumPy cannot read it ("
    assert f"argument 'a' {where}" in told(spy.BindError, lambda: world.module.add(value, 1))
    assert f"data {where}" in told(spy.BindError, lambda: spy.Tensor.from_numpy(world.device, value))


def test_ranges_that_are_too_long(device: spy.Device) -> None:
    for values in (range(10**30), range(2**40)):
        assert told(spy.ShapeError, lambda v=values: spy.NDBuffer(device, "float", v)) == (
            f"NDBuffer: {values} has more than 32 dimensions or 9007199254740992 elements."
        )
        assert told(spy.BindError, lambda v=values: spy.grid(v)) == f"grid: {values} has more than 32 dimensions."
        assert "grid: offset " in told(spy.BindError, lambda v=values: spy.grid(3, v))
    assert told(spy.BindError, lambda: spy.Tensor.from_numpy(device, range(10**30))) == (
        f"Tensor.from_numpy: data holds whole numbers of more than 64 bits: {range(10**30)}."
    )
    said = told(spy.OutOfMemoryError, lambda: spy.Tensor.from_numpy(device, range(2**50)))
    assert said.startswith("Tensor.from_numpy: data: the host has no memory for this array (")
    for few in (range(3), range(0), range(7, -8, -5), range(2**63, 2**63 + 2)):
        np.testing.assert_array_equal(
            spy.Tensor.from_numpy(device, few, dtype="uint64_t" if few.start > 7 else "int").to_numpy(), list(few)
        )
    assert spy.NDBuffer(device, "float", range(2, 4)).shape == (2, 3)


def test_buffers_and_dtypes_that_numpy_does_not_know(world: wrong.World, device: spy.Device) -> None:
    expected = "a NumPy array, a number, nested lists of numbers or another library's array was expected."
    assert told(spy.BindError, lambda: spy.Tensor.from_numpy(device, ctypes.c_void_p(3))) == (
        f"Tensor.from_numpy: data is c_void_p(3) of type c_void_p; {expected}"
    )
    assert "c_void_p(3)" in told(spy.BindError, lambda: world.module.whole(ctypes.c_void_p(3)))
    if not hasattr(np.dtypes, "StringDType"):
        pytest.skip("this NumPy has no texts of any length")
    texts = np.array(["a"], np.dtypes.StringDType())
    module = spy.Module.load_from_source(device, "same", "T same<T>(T x) { return x; }")
    assert told(spy.BindError, lambda: spy.Tensor.from_numpy(device, texts)) == (
        "Tensor.from_numpy: dtype StringDType() has no Slang type; convert the array first."
    )
    assert "which has no Slang type of its own" in told(spy.BindError, lambda: module.same(texts))
    assert "is not an element type" in told(spy.BindError, lambda: spy.Tensor.zeros(device, 3, texts.dtype))


def test_arrays_that_the_host_has_no_memory_for(device: spy.Device) -> None:
    wide = spy.Tensor.zeros(device, 1).broadcast_to(2**45)
    for call in (wide.to_numpy, lambda: str(wide)):
        said = told(spy.OutOfMemoryError, call)
        assert said.startswith("Tensor.to_numpy: the host has no memory for this array (")
    said = told(spy.OutOfMemoryError, lambda: spy.Tensor.arange(device, 2.0**50))
    assert said.startswith("Tensor.arange: the host has no memory for this array (")
    many = np.broadcast_to(np.float64(1), (10**6, 10**6))
    assert told(spy.BindError, lambda: spy.float3(many)) == (
        "float3: an array of dtype float64 and shape (1000000, 1000000) does not make a float3 "
        "(cannot reshape array of size 1000000000000 into shape (3,))."
    )


class Text(str):
    __hash__ = None  # type: ignore[assignment]


class Whole(int):
    __hash__ = None  # type: ignore[assignment]


class Fraction(float):
    __hash__ = None  # type: ignore[assignment]


def test_texts_and_numbers_without_a_hash(world: wrong.World) -> None:
    m, device = world.module, world.device
    plain = m.square.constants({"count": Whole(4)})
    assert plain is m.square.constants({"count": 4}) and plain is not m.square.constants({"count": Fraction(4)})
    assert m.square.constants({"count": [Whole(4)]}) is m.square.constants({"count": [4]})
    assert spy.Tensor.zeros(device, 2, Text("int")).dtype.name == "int"
    assert isinstance(m.add([1.0], 2.0, _result=Text("tensor")), spy.Tensor)
    assert m.of_kind(Text("B")) == 5
    assert "not 'nonsense'." in told(spy.BindError, lambda: m.add(1.0, 2.0, _result=Text("nonsense")))
    with spy.Device(Text("null")) as other:
        assert other.name == "null"
    assert m.of_struct({"_type": Text("P"), "x": 1.0, "n": 2}) == 3


def test_an_enum_that_would_be_written_to(device: spy.Device) -> None:
    text = "enum Mode { a, b = 5 }\nvoid change(inout Mode m) { m = Mode.b; }"
    module = spy.Module.load_from_source(device, "modes", text)
    for value in ("a", module.Mode.a, 0, Text("a")):
        said = told(spy.BindError, lambda v=value: module.change(v))
        assert said.startswith("void change(inout Mode m): argument 'm' is 'inout' and would be written to; pass an ")
    cell = spy.ValueRef("a")
    module.change(cell)
    assert cell.value == 5


@pytest.mark.parametrize("key", [slice("a", None), slice(None, None, 0), slice(0, 2, 1.5), (slice(None), slice("a"))])
def test_slices_that_are_none(world: wrong.World, key: Any) -> None:
    said = told(IndexError, lambda: world.tensor[key])
    assert said.startswith("Tensor: ") and " is no index: slice " in said


def test_objects_that_modules_and_devices_make(world: wrong.World) -> None:
    device, made = world.device, "no scope of a module; modules make these, as attributes: module.add."
    any_: Any = spy
    cases: dict[str, Callable[[], Any]] = {
        f"Function: 1 is {made}": lambda: any_.Function(1, 2, 3),
        f"Kernel: 1 is {made}": lambda: any_.Kernel(1, 2, 3),
        f"Struct: 1 is {made}": lambda: any_.Struct(1, 2),
        "Module: source is 3; make modules with Module.load_from_file or load_from_source.": (
            lambda: any_.Module(device, 3)
        ),
        "Module: device is 3; a Device was expected, as spy.Device('cpu') is.": lambda: any_.Module(3, 3),
        "Event: device is 3; a Device was expected, as spy.Device('cpu') is.": lambda: any_.Event(3),
        "Timer: device is 3; a Device was expected, as spy.Device('cpu') is.": lambda: any_.Timer(3, None),
        "CommandList: device is 3; a Device was expected, as spy.Device('cpu') is.": lambda: any_.CommandList(3),
        "Stream: device is 3; a Device was expected, as spy.Device('cpu') is.": lambda: any_.Stream(3, 3),
        "Stream: 3 is no queue of a device; make streams with device.stream().": (lambda: any_.Stream(device, 3)),
    }
    for message, call in cases.items():
        assert told(spy.BindError, call) == message


def test_memory_of_other_libraries_that_is_refused(device: spy.Device) -> None:
    fixed = np.ones(3, np.float32)
    fixed.flags.writeable = False
    assert told(spy.BindError, lambda: spy.Tensor.from_dlpack(device, 3)) == (
        "Tensor.from_dlpack: 3 is no array of another library: it has no __dlpack__."
    )
    kinds: tuple[type[spy.NDBuffer], ...] = (spy.Tensor, spy.NDBuffer)
    for kind in kinds:
        for value in (fixed, np.ones(3, complex), with_class_attribute(__cuda_array_interface__=GOOD)):
            said = told(spy.BindError, lambda k=kind, v=value: k.from_dlpack(device, v))
            assert said.startswith(f"{kind.__name__}.from_dlpack: a ") and said.count("from_dlpack") == 1


def test_an_array_of_a_struct_that_was_edited(device: spy.Device, tmp_path: Path) -> None:
    file = tmp_path / "edited.slang"
    function = "float first(S s) { return s.v; }"
    file.write_text(f"struct S {{ float v; }}\n{function}", encoding="utf-8")
    module = spy.Module.load_from_file(device, file)
    array = spy.Tensor.zeros(device, 2, module.S)
    assert list(module.first(array).to_numpy()) == [0, 0]
    file.write_text(f"struct S {{ float v; int n; }}\n{function}", encoding="utf-8")
    device.reload()
    assert told(spy.BindError, lambda: module.first(array)) == (
        "float first(S s): argument 's' is a Tensor<S> of shape (2,) of another 'S': of before an edit, or of "
        "another module. Make it anew with dtype=module.S."
    )


def test_the_text_of_an_array_of_a_closed_device(world: wrong.World) -> None:
    assert repr(world.gone) == "<Tensor<float> of shape (3,) of a closed device>"


def test_the_text_of_cells_that_hold_themselves() -> None:
    cell, pair = spy.ValueRef(), spy.diff_pair()
    cell.value, pair.grad, pair.value = [cell], pair, cell
    assert repr(cell) == "ValueRef([...])"
    assert repr(pair) == "DiffPair(ValueRef([...]), grad=...)"
