"""Instances: many values of a struct as one Python object with the struct's methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.struct import Struct, methods_of, scope_of
from slangpy_rt.core.checks import table
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.shapes import as_shape
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.slang.declarations import gone


class InstanceList:
    """Values of a struct, each field of which has an array of its own.

    Parameters
    ----------
    struct : Struct
        ``module.Particle``.
    data : mapping
        A value, array or Tensor for each field, by name. Fields are attributes, to read and to set.

    Raises
    ------
    BindError
        If a field is missing or the struct has no such field.
    """

    def __init__(self, struct: Struct, data: Mapping[str, Any] | None = None) -> None:
        _check_struct("InstanceList", struct)
        given, names = dict(table("InstanceList", "data", data)), list(struct.fields)
        if set(given) - set(names):
            extra = ", ".join(sorted(set(given) - set(names)))
            raise BindError(f"InstanceList: '{struct.name}' has no field {extra}; it has {', '.join(names)}.")
        self.__dict__["struct"] = struct
        self.__dict__["_data"] = given

    @property
    def slang_type(self) -> SlangType:
        """Type of one value."""
        type_: SlangType = self.struct.slang_type
        return type_

    def __slang_arg__(self) -> dict[str, Any]:
        missing = [name for name in self.struct.fields if name not in self._data]
        if missing:
            raise BindError(f"an InstanceList of '{self.struct.name}' without a value for {', '.join(missing)}.")
        return {"_type": self.struct.name, **self._data}

    def __getattr__(self, name: str) -> Any:
        data = self.__dict__.get("_data", {})
        return data[name] if name in data else _method(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.struct.fields:
            raise AttributeError(
                f"'{self.struct.name}' has no field '{name}'; it has {', '.join(self.struct.fields)}."
            )
        self._data[name] = value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.struct.fields, *methods_of(self.struct)})

    def __repr__(self) -> str:
        return f"InstanceList({self.struct.name}: {', '.join(self._data) or 'no fields set'})"


class InstanceTensor:
    """Values of a struct in one Tensor.

    Parameters
    ----------
    struct : Struct
        ``module.Particle``.
    shape : int or tuple of int
        The number of values in each dimension.
    data : Tensor, optional
        A Tensor of that struct and shape; a new one of zeros unless given.

    Raises
    ------
    BindError
        If ``data`` holds another type or has another shape.
    """

    def __init__(self, struct: Struct, shape: int | Sequence[int], data: Tensor | None = None) -> None:
        _check_struct("InstanceTensor", struct)
        if data is None:
            data = Tensor.zeros(scope_of(struct).device, as_shape("InstanceTensor", shape), struct)
        wanted = as_shape("InstanceTensor", shape)
        if not isinstance(data, Tensor) or data.dtype.name != struct.name or data.shape != wanted:
            raise BindError(
                f"InstanceTensor: data is {in_words(data)}; a Tensor<{struct.name}> of shape {wanted} was expected."
            )
        self.struct = struct
        self.tensor = data

    @property
    def slang_type(self) -> SlangType:
        """Type of one value."""
        return self.struct.slang_type

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values there are, in each dimension."""
        return self.tensor.shape

    def to_numpy(self) -> Any:
        """Return the values as a structured NumPy array."""
        return self.tensor.to_numpy()

    def construct(self, /, *args: Any, **named: Any) -> None:
        """Fill the tensor with values that the struct's constructor makes from these arguments."""
        self.struct(*args, _result=self.tensor, **named)

    def __slang_arg__(self) -> Tensor:
        return self.tensor

    def __getattr__(self, name: str) -> Any:
        return _method(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *methods_of(self.struct)})

    def __repr__(self) -> str:
        return f"InstanceTensor({self.struct.name}, shape={self.shape})"


def _check_struct(where: str, struct: Any) -> None:
    if not isinstance(struct, Struct):
        raise BindError(
            f"{where}: struct is {in_words(struct)}; a struct of a module was expected, as module.Ray is."
        )


def _method(instances: Any, name: str) -> Any:
    """Return a method of the struct with the instances as its object."""
    struct = instances.__dict__.get("struct")
    if struct is None or name.startswith("_"):
        raise AttributeError(name)
    method = getattr(struct, name)
    if not method.overloads:
        raise gone(method.name, scope_of(struct).source)
    if method.overloads[0].static:
        return method
    from slangpy_rt.calls.bound_method import BoundMethod  # programs without instances do not need it

    return BoundMethod(method, instances)
