"""Vectors and matrices by their Slang names, for arguments: ``float3(1, 2, 3)``, ``float4x4(...)``.

They are NumPy arrays of fixed shape and dtype, so arithmetic, printing and conversion are NumPy's.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.core.conversion import as_array
from slangpy_rt.core.dtypes import NUMPY_OF, cast, element_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words


class Vector(np.ndarray):
    """A small array that knows its Slang type. ``float3(1)`` repeats a number, ``float3(x, y, z)`` takes three.

    Raises
    ------
    BindError
        If the numbers are neither one nor as many as the type has, or do not fit its scalar.
    """

    slang_type: SlangType

    def __new__(cls, *values: Any) -> Vector:
        type_ = cls.slang_type
        given: Any = values[0] if len(values) == 1 else values
        try:
            numbers = _numbers(type_, given if values else 0)
        except BindError as error:
            raise BindError(f"{type_.name}: {in_words(given)} does not make a {type_.name} ({error}).") from None
        return numbers.view(cls)

    def __array_finalize__(self, obj: Any) -> None:
        """Set nothing: the type is the class's. ``__array_wrap__`` keeps it while shape and dtype stay the same."""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return _typed(type(self), array)

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]

    def __repr__(self) -> str:
        name = self.slang_type.name
        return f"{name}({np.array2string(np.asarray(self), separator=', ', prefix=f'{name}(')})"

    @property
    def x(self) -> Any:
        """The first component."""
        return self[0]

    @property
    def y(self) -> Any:
        """The second component."""
        return self._component(1)

    @property
    def z(self) -> Any:
        """The third component."""
        return self._component(2)

    @property
    def w(self) -> Any:
        """The fourth component."""
        return self._component(3)

    def _component(self, place: int) -> Any:
        if place >= len(self):
            raise AttributeError(f"'{self.slang_type.name}' has no component '{'xyzw'[place]}'.")
        return self[place]


class Matrix(Vector):
    """A vector's like of two dimensions: ``float2x2(1, 2, 3, 4)`` takes its rows one after the other."""

    @classmethod
    def identity(cls) -> Matrix:
        """Return the matrix with ones on its diagonal and zeros elsewhere."""
        rows, columns = cls.slang_type.shape
        made = cls(np.eye(rows, columns))
        assert isinstance(made, Matrix)
        return made


def _numbers(type_: SlangType, given: Any) -> npt.NDArray[Any]:
    """Return the given numbers as an array of a type's shape and dtype."""
    what, target = f"{type_.name}: what was given", NUMPY_OF[type_.scalar]
    numbers = as_array(what, given)
    if numbers.size not in (1, prod(type_.shape)):
        raise BindError(f"cannot reshape array of size {numbers.size} into shape {type_.shape}")
    # Slang would cut off fractions and wrap around; here such numbers are refused.
    if numbers.dtype.kind not in "iub" + "f" * (target.kind == "f") or (
        target.kind != "f" and not np.all(numbers.astype(target) == numbers)
    ):
        raise BindError(f"{type_.scalar} does not hold them")
    if target.kind == "f":
        numbers = cast(what, type_.scalar, numbers, target)
    out = np.empty(type_.shape, target)
    out[...] = numbers.reshape(() if numbers.size == 1 else type_.shape)
    return out


def _typed(cls: type[Vector], array: npt.NDArray[Any]) -> Any:
    type_ = cls.slang_type
    plain = np.asarray(array)
    same = plain.shape == type_.shape and plain.dtype == NUMPY_OF[type_.scalar]
    return plain.view(cls) if same else plain[()]


def _vector(name: str) -> type[Vector]:
    return type(name, (Vector,), {"slang_type": element_type(name, name), "__module__": "slangpy_rt"})


def _matrix(name: str) -> type[Matrix]:
    return type(name, (Matrix,), {"slang_type": element_type(name, name), "__module__": "slangpy_rt"})


bool1, int1, uint1, half1, float1, double1 = (
    _vector(f"{scalar}1") for scalar in ("bool", "int", "uint", "half", "float", "double")
)
bool2, bool3, bool4 = (_vector(f"bool{n}") for n in (2, 3, 4))
int2, int3, int4 = (_vector(f"int{n}") for n in (2, 3, 4))
uint2, uint3, uint4 = (_vector(f"uint{n}") for n in (2, 3, 4))
half2, half3, half4 = (_vector(f"half{n}") for n in (2, 3, 4))
float2, float3, float4 = (_vector(f"float{n}") for n in (2, 3, 4))
double2, double3, double4 = (_vector(f"double{n}") for n in (2, 3, 4))
float2x2, float2x3, float2x4 = (_matrix(f"float2x{n}") for n in (2, 3, 4))
float3x2, float3x3, float3x4 = (_matrix(f"float3x{n}") for n in (2, 3, 4))
float4x2, float4x3, float4x4 = (_matrix(f"float4x{n}") for n in (2, 3, 4))
