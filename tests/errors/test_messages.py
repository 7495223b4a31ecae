"""Errors of arguments and arrays, with their whole messages: what was wrong, what was expected, what to do.

After each refusal the device must still compute, and no array may have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from _messages import module
from _refusals import refused

import slangpy_rt as spy
from tests.depth import needs

__all__ = ["module"]  # the fixture


FUNCTIONS = "add, add_int, small, negate, scale, total, fill, bump, index, first, over, sample"
ADD = "float add(float a, float b)"
ADD_INT = "int add_int(int a, int b)"
SMALL = "uint8_t small(uint8_t a)"
FILL = "void fill(float x, out float y)"
RIGHT = "\nShapes are matched from the right; two dimensions must be equal, or one of them 1."
SUPPORTED = (
    "are not supported; scalars, vectors, matrices, arrays, enums, structs of these, pointers, Tensor, RWTensor, "
    "NDBuffer, (RW)StructuredBuffer and (RW)ByteAddressBuffer are."
)
ELEMENT = (
    "Give a Slang name such as 'float' or 'float3', a struct of a module (module.Pixel), a NumPy dtype, "
    "or float, int or bool."
)


class Arrays:
    """Arguments for calls that fail; ``check`` sees whether any was written to."""

    def __init__(self, device: spy.Device) -> None:
        self.h = np.full(3, 7, np.float32)
        self.grid = np.full((3, 2), 7, np.float32)
        self.other = np.full((4, 2), 7, np.float32)
        self.one = np.full(1, 7, np.float32)
        self.f8 = np.full(3, 7.0)
        self.frozen = np.full(3, 7, np.float32)
        self.frozen.setflags(write=False)
        self.t = spy.Tensor.full(device, 3, 7)
        self.ti = spy.Tensor.full(device, 3, 7, "int")
        self.t3 = spy.Tensor.full(device, (4, 6), 7)

    def check(self) -> None:
        """Everything still holds 7."""
        for name, array in vars(self).items():
            values: npt.NDArray[Any] = np.asarray(array)
            assert (values == 7).all(), name


Call = Callable[[spy.Module, Arrays], Any]
_BIND, _SHAPE, _NOT = spy.BindError, spy.ShapeError, spy.UnsupportedError
REFUSED: dict[str, tuple[Call, type[Exception], str]] = {
    "float64 array into int": (
        lambda m, a: m.add_int(a.f8, 1),
        _BIND,
        f"{ADD_INT}: argument 'a' is an array of dtype float64 and shape (3,), which does not convert to 'int'; "
        "pass array.astype(numpy.int32).",
    ),
    "float into int": (
        lambda m, a: m.add_int(1, 1.5),
        _BIND,
        f"{ADD_INT}: argument 'b' is 1.5 of type float, which does not convert to 'int'.",
    ),
    "NumPy float into int": (
        lambda m, a: m.add_int(np.float32(2), 1),
        _BIND,
        f"{ADD_INT}: argument 'a' is 2.0 of type float32, which does not convert to 'int'.",
    ),
    "complex array": (
        lambda m, a: m.add(np.ones(3, complex), 1),
        _BIND,
        f"{ADD}: argument 'a' is an array of dtype complex128 and shape (3,), which does not convert to 'float'; "
        "a complex number is two numbers: pass array.real and array.imag.",
    ),
    "device array of another dtype": (
        lambda m, a: m.add_int(a.t, 1),
        _BIND,
        f"{ADD_INT}: argument 'a' is a Tensor<float> of shape (3,); 'int' was expected, and device data is not "
        "converted. Convert it, array.astype('int'), or make it with dtype='int'.",
    ),
    "device result of another dtype": (
        lambda m, a: m.add(a.t, 1, _result=a.ti),
        _BIND,
        f"{ADD}: _result is a Tensor<int> of shape (3,); 'float' was expected, and device data is not "
        "converted. Make it with dtype='float', or convert it on the host with from_numpy(...).",
    ),
    "host result of another dtype": (
        lambda m, a: m.add(a.h, 1, _result=a.f8),
        _BIND,
        f"{ADD}: _result is an array of dtype float64 and shape (3,), which does not convert to 'float'; "
        "it must be an array of dtype float32.",
    ),
    "out array of another dtype": (
        lambda m, a: m.fill(a.h, a.f8),
        _BIND,
        f"{FILL}: argument 'y' is an array of dtype float64 and shape (3,), which does not convert to 'float'; "
        "it must be an array of dtype float32.",
    ),
    "shapes": (
        lambda m, a: m.add(a.grid, a.other),
        _SHAPE,
        f"{ADD}: argument 'b' of shape (4, 2) does not broadcast with argument 'a' of shape (3, 2).{RIGHT}",
    ),
    "shape of the result": (
        lambda m, a: m.add(a.other, 1, _result=a.grid),
        _SHAPE,
        f"{ADD}: argument '_result' of shape (3, 2) does not broadcast with argument 'a' of shape (4, 2).{RIGHT}",
    ),
    "too many arguments": (
        lambda m, a: m.add(1, 2, 3),
        _BIND,
        f"{ADD}: 3 positional arguments were given; it takes 2.",
    ),
    "missing argument": (lambda m, a: m.add(1), _BIND, f"{ADD}: argument b missing."),
    "missing arguments": (lambda m, a: m.add(), _BIND, f"{ADD}: arguments a, b missing."),
    "missing first argument": (lambda m, a: m.add(b=1), _BIND, f"{ADD}: argument a missing."),
    "unknown keyword": (
        lambda m, a: m.add(1, c=2),
        _BIND,
        f"{ADD}: there is no parameter 'c'; it has a, b.",
    ),
    "given twice": (
        lambda m, a: m.add(1, 2, a=3),
        _BIND,
        f"{ADD}: argument 'a' was given twice, by position and by name.",
    ),
    "out and _result": (
        lambda m, a: m.add(1, 2, out=a.h, _result=a.h),
        _BIND,
        "add: out and _result are the same thing; give one of them.",
    ),
    "result that would race": (
        lambda m, a: m.add(a.h, a.h, _result=a.one),
        _SHAPE,
        f"{ADD}: '_result' of shape (1,) is written by a call of shape (3,); elements would overwrite each other. "
        "Give it the call's shape.",
    ),
    "out that would race": (
        lambda m, a: m.fill(np.ones((2, 3), np.float32), a.t),
        _SHAPE,
        f"{FILL}: 'y' of shape (3,) is written by a call of shape (2, 3); elements would overwrite each other. "
        "Give it the call's shape.",
    ),
    "broadcast view written": (
        lambda m, a: m.add(a.h, a.h, _result=a.t[0].broadcast_to(3)),
        _SHAPE,
        f"{ADD}: '_result' is a broadcast view and would be written to; copy it first.",
    ),
    "read-only array for out": (
        lambda m, a: m.fill(a.h, a.frozen),
        _BIND,
        f"{FILL}: argument 'y' is an array of dtype float32 and shape (3,) and would be written to; "
        "pass a writable array.",
    ),
    "read-only array for the result": (
        lambda m, a: m.add(a.h, a.h, _result=a.frozen),
        _BIND,
        f"{ADD}: _result is an array of dtype float32 and shape (3,) and would be written to; pass a writable array.",
    ),
    "number for out": (
        lambda m, a: m.fill(1, 2),
        _BIND,
        f"{FILL}: argument 'y' is 'out' and would be written to; pass an array or a ValueRef instead of 2.",
    ),
    "list for out": (
        lambda m, a: m.fill(1, [2.5]),
        _BIND,
        f"{FILL}: argument 'y' is [2.5], which does not convert to 'float'; it must be an array of dtype float32.",
    ),
    "number for the result": (
        lambda m, a: m.add(1, 2, _result=3),
        _BIND,
        f"{ADD}: _result: pass a Tensor, an NDBuffer, a NumPy array, a Texture, one of their types, or one of "
        "'numpy', 'tensor', 'ndbuffer', 'texture', 'torch', not 3.",
    ),
    "unknown kind of result": (
        lambda m, a: m.add(1, 2, _result="jax"),
        _BIND,
        f"{ADD}: _result: pass a Tensor, an NDBuffer, a NumPy array, a Texture, one of their types, or one of "
        "'numpy', 'tensor', 'ndbuffer', 'texture', 'torch', not 'jax'.",
    ),
    "result of a void function": (
        lambda m, a: m.fill(1, a.h, _result=a.h),
        _BIND,
        f"{FILL} returns nothing; leave _result out.",
    ),
    "texture parameter": (
        lambda m, a: m.sample(a.grid),
        _NOT,
        f"float sample(Texture2DMS<float4> t): argument 't': parameters of type 'Texture2DMS<float4>' {SUPPORTED}",
    ),
    "integer too large": (
        lambda m, a: m.small(256),
        _BIND,
        f"{SMALL}: argument 'a' is 256, which does not fit 'uint8_t' (0 to 255).",
    ),
    "integer too small": (
        lambda m, a: m.small(-1),
        _BIND,
        f"{SMALL}: argument 'a' is -1, which does not fit 'uint8_t' (0 to 255).",
    ),
    "integer in a list too large": (
        lambda m, a: m.small([1, 256]),
        _BIND,
        f"{SMALL}: argument 'a' holds 256, which does not fit 'uint8_t' (0 to 255).",
    ),
    "number into bool": (
        lambda m, a: m.negate(1),
        _BIND,
        "bool negate(bool b): argument 'b' is 1 of type int, which does not convert to 'bool'.",
    ),
    "ragged list": (
        lambda m, a: m.add([[1, 2], [3]], 1),
        _BIND,
        f"{ADD}: argument 'a' is a list with rows of different lengths: [[1, 2], [3]].",
    ),
    "list of strings": (
        lambda m, a: m.add(["x"], 1),
        _BIND,
        f"{ADD}: argument 'a' holds 'x' of type str at [0]; numbers were expected.",
    ),
    "masked array": (
        lambda m, a: m.add(np.ma.masked_array(a.h, a.h > 3), 1),
        _BIND,
        f"{ADD}: argument 'a' is a masked array, and Slang knows no masks; pass array.filled(value).",
    ),
    "an array instead of the device": (
        lambda m, a: spy.NDBuffer(a.h),
        _BIND,
        "NDBuffer: a ndarray was given where the device is expected. Write NDBuffer(device, dtype, shape), or "
        "NDBuffer.from_dlpack(device, array) for the memory of another library's array.",
    ),
    "None": (
        lambda m, a: m.add(1, None),
        _BIND,
        f"{ADD}: argument 'b' is None of type NoneType, which does not convert to 'float'.",
    ),
    "dict": (
        lambda m, a: m.add({}, 1),
        _BIND,
        f"{ADD}: argument 'a' is {{}}, a struct's value; 'float' was expected.",
    ),
    "vector of another width": (
        lambda m, a: m.scale(a.other, 1),
        _BIND,
        "float3 scale(float3 v, float s): argument 'v' is an array of dtype float32 and shape (4, 2); "
        "'float3' needs the last dimension to be 3.",
    ),
    "vectors with gaps": (
        lambda m, a: m.scale(a.t3[:, ::2], 1),
        _BIND,
        "float3 scale(float3 v, float s): argument 'v' is a view whose 'float3' elements have gaps; copy it first.",
    ),
    "number into an array parameter": (
        lambda m, a: m.total(1.0),
        _BIND,
        "float total(float[4] x): argument 'x' is 1.0; 'float[4]' takes 4 values in a list or an array.",
    ),
    "call_id of another rank": (
        lambda m, a: m.index(spy.call_id(), _result=np.zeros((3, 1, 1), np.int32)),
        _BIND,
        "int index(int2 p): argument 'p' is call_id() for 'int2', which counts 2 dimensions; the call has 3.",
    ),
    "grid of another rank": (
        lambda m, a: m.index(spy.grid((2, 3, 4))),
        _BIND,
        "int index(int2 p): argument 'p' is grid(shape=(2, 3, 4)) of 3 dimensions; 'int2' counts 2.",
    ),
    "index into a float": (
        lambda m, a: m.add(a.h, spy.grid(3)),
        _BIND,
        f"{ADD}: argument 'b' is grid(shape=(3,)), which makes whole numbers; it takes an 'int', 'int3' or 'int[4]' "
        "parameter, not 'float'.",
    ),
    "whole array of another rank": (
        lambda m, a: m.first(a.h),
        _BIND,
        "float first(Tensor<float, 2> t): argument 't' has 1 dimensions of 'float'; 'Tensor<float, 2>' takes 2.",
    ),
    "no overload": (
        lambda m, a: m.over(1, 2, 3),
        _BIND,
        "over: no overload takes these arguments:\n"
        "  float over(float a): 3 positional arguments were given; it takes 1.\n"
        "  float over(float a, float b): 3 positional arguments were given; it takes 2.",
    ),
    "unknown function": (
        lambda m, a: m.ad(1, 2),
        AttributeError,
        f"module 'test_messages' has no function or type 'ad'; it has {FUNCTIONS}. Did you mean 'add'?",
    ),
    "unknown item": (
        lambda m, a: m["ad"],
        _BIND,
        f"module 'test_messages' has no function or type 'ad'; it has {FUNCTIONS}. Did you mean 'add'?",
    ),
    "dtype name": (
        lambda m, a: spy.NDBuffer(m.device, "flaot", 3),
        _BIND,
        f"NDBuffer: dtype 'flaot' is not an element type. {ELEMENT} Did you mean 'float'?",
    ),
    "vector dtype of 5": (
        lambda m, a: spy.Tensor.zeros(m.device, 3, "float5"),
        _BIND,
        f"Tensor.zeros: dtype 'float5' is not an element type. {ELEMENT}",
    ),
    "complex dtype": (
        lambda m, a: spy.Tensor.from_numpy(m.device, np.ones(3, complex)),
        _BIND,
        "Tensor.from_numpy: dtype complex128 has no Slang type; convert the array first.",
    ),
    "negative shape": (
        lambda m, a: spy.NDBuffer(m.device, "float", (2, -1)),
        _SHAPE,
        "NDBuffer: a shape is made of whole numbers of at least 0, not (2, -1).",
    ),
    "grid of a fraction": (
        lambda m, a: spy.grid((2, 1.5)),  # type: ignore[arg-type]
        _BIND,
        "grid: a shape is made of whole numbers of at least 0, or -1, not (2, 1.5).",
    ),
    "fill of another size": (
        lambda m, a: a.t.copy_from(np.ones(5, np.float32)),
        _SHAPE,
        "Tensor.copy_from: data of shape (5,) does not fill Tensor<float> of shape (3,): shape (3,) was expected. "
        "Reshape or broadcast it yourself.",
    ),
    "fill of another kind": (
        lambda m, a: a.ti.copy_from(a.f8),
        _BIND,
        "Tensor.copy_from: data of dtype float64 does not convert to 'int'. "
        "Cast it yourself: array.astype(numpy.int32).",
    ),
    "fill of a view": (
        lambda m, a: a.t3[:, ::2].copy_from(np.ones((4, 3), np.float32)),
        _BIND,
        "Tensor.copy_from: this is a non-contiguous view; write view[...] = data, or fill the array it was made "
        "from.",
    ),
    "trailing dimensions of a vector dtype": (
        lambda m, a: spy.Tensor.from_numpy(m.device, a.other, "float3"),
        _SHAPE,
        "Tensor.from_numpy: data of shape (4, 2) does not end in the dimensions (3,) of 'float3'.",
    ),
    "view of another size": (
        lambda m, a: a.t.view(5),
        _SHAPE,
        "Tensor.view: Tensor<float> of shape (3,) cannot be seen as shape (5,); the numbers of elements must agree.",
    ),
    "stretch to another shape": (
        lambda m, a: a.t.broadcast_to((2, 4)),
        _SHAPE,
        "Tensor.broadcast_to: Tensor<float> of shape (3,) does not broadcast to shape (2, 4).",
    ),
    "index that is a mask": (
        lambda m, a: a.t[True],
        IndexError,
        "Tensor: only integers, slices, None and ... index a device array, not True.",
    ),
    "index of another kind": (
        lambda m, a: a.t[[0, 1]],
        IndexError,
        "Tensor: only integers, slices, None and ... index a device array, not [0, 1].",
    ),
    "missing file": (
        lambda m, a: spy.Module.load_from_file(m.device, "no/such.slang"),
        spy.CompileError,
        f"Module.load_from_file: there is no file 'no/such.slang' in '{Path.cwd()}'. "
        "Give a full path, or add its folder to include_paths.",
    ),
}


@needs(lambda case: ["uint8_t"] if REFUSED[case["name"]][2].startswith(SMALL) else [])
@pytest.mark.parametrize("name", REFUSED)
def test_refusals(device: spy.Device, module: spy.Module, name: str) -> None:
    action, error, message = REFUSED[name]
    arrays = Arrays(device)
    # Twice: a refusal must not be remembered as a call that works.
    for _ in range(2):
        assert refused(error, lambda: action(module, arrays)) == message
    arrays.check()
    np.testing.assert_array_equal(module.add(arrays.t, arrays.h).to_numpy(), np.full(3, 14))


def test_a_text_is_not_taken_for_a_keyword(module: spy.Module) -> None:
    assert module.add(1, b=2) == 3
    message = refused(spy.BindError, lambda: module.add(1, 2, "b"))
    assert message == f"{ADD}: 3 positional arguments were given; it takes 2."


@needs("uint8_t")
def test_a_late_argument_out_of_range_leaves_outputs_alone(module: spy.Module) -> None:
    target = np.full(3, 7, np.uint8)
    module.small(5, _result=np.zeros(3, np.uint8))
    message = f"{SMALL}: argument 'a' is 300, which does not fit 'uint8_t' (0 to 255)."
    # The kernel is there already: the value is refused at the call itself.
    assert refused(spy.BindError, lambda: module.small(300, _result=target)) == message
    np.testing.assert_array_equal(target, 7)


def test_a_scalar_type_that_the_device_lacks(device: spy.Device) -> None:
    lacking = sorted({"half", "double", "int64_t", "uint8_t"} - device.caps.scalars)
    for scalar in lacking:
        module = spy.Module.load_from_source(device, f"lacks_{scalar}", f"int f({scalar} x) {{ return 1; }}")
        expected = f"int f({scalar} x): argument 'x': {device.info} has no '{scalar}' in memory."
        assert refused(spy.UnsupportedError, lambda m=module: m.f(np.ones(3, np.uint8))) == expected  # type: ignore[misc]
