"""Instances: many values of a struct as one Python object with the struct's methods, and packed copies of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.stand_ins import ask
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.struct import Struct, methods_of, scope_of
from slangpy_rt.core.checks import short_tracebacks, table
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.shapes import as_shape
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.pickling import check_state, damaged, reads
from slangpy_rt.slang.declarations import gone

if TYPE_CHECKING:
    from slangpy_rt.calls.module import Module

# Values nested more deeply than this are taken to hold themselves.
_DEEPEST = 32


@short_tracebacks("__init__", "construct")
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

    @reads("an instance of a struct")
    def __setstate__(self, state: Any) -> None:
        state = check_state("an InstanceList", state, ("struct", "_data"))
        InstanceList.__init__(self, state["struct"], state["_data"])
        # A subclass may have attributes of its own.
        self.__dict__.update({name: value for name, value in state.items() if name not in ("struct", "_data")})

    @property
    def slang_type(self) -> SlangType:
        """Type of one value."""
        type_: SlangType = self.struct.slang_type
        return type_

    def __slang_arg__(self) -> dict[str, Any]:
        needed = [f.name for f in self.slang_type.fields if not f.has_default]
        missing = [name for name in needed if name not in self._data]
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

    def construct(self, /, *args: Any, **named: Any) -> None:
        """Set the fields to values that the struct's constructor makes of these arguments.

        Fields that are Tensors are written in place, all of one shape; the others become what the constructor made.

        Raises
        ------
        BindError
            If a Tensor does not hold elements of its field's type.
        ShapeError
            If the shapes of the Tensors differ, or the arguments do not broadcast to theirs.
        """
        written = {name: value for name, value in self._data.items() if isinstance(value, Tensor)}
        for name, value in written.items():
            kind = self.struct.fields[name]
            if value.dtype.name != kind:
                raise BindError(
                    f"InstanceList.construct: '{name}' is {in_words(value)}; a Tensor of '{kind}' was expected."
                )
        shapes = {value.shape for value in written.values()}
        if len(shapes) > 1:
            listed = " and ".join(map(str, sorted(shapes)))
            raise ShapeError(f"InstanceList.construct: the Tensors have shapes {listed}; one shape was expected.")
        if written:
            device = scope_of(self.struct).device
            made: Any = Tensor.empty(device, shapes.pop(), self.struct)
            if isinstance(self.struct(*args, _result=made, **named), dict):
                raise BindError(f"InstanceList.construct: '{self.struct.name}' has no constructor; set its fields.")
        else:
            made = self.struct(*args, **named)
        for name in self.struct.fields:
            if isinstance(made, dict) and name not in made:  # it has its default
                self._data.pop(name, None)
            elif name in written:
                written[name].copy_from(made[name])
            else:
                self._data[name] = made[name]

    def pack(self) -> PackedArg:
        """Return the values as they are now, as ``slangpy_rt.pack`` does."""
        return PackedArg(_snapshot(scope_of(self.struct), self.__slang_arg__(), 0))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.struct.fields, *methods_of(self.struct)})

    def __repr__(self) -> str:
        return f"InstanceList({self.struct.name}: {', '.join(self._data) or 'no fields set'})"


@short_tracebacks("__init__", "construct")
class InstanceTensor:
    """Values of a struct, or of another type, in one Tensor.

    Parameters
    ----------
    struct : Struct or element type
        ``module.Particle``; ``module.find_struct("float3")`` also has the methods that extensions give to ``float3``.
        Another element type (``"float"``, ``module.Color``) has none, and needs ``data``.
    shape : int or tuple of int
        The number of values in each dimension.
    data : Tensor, optional
        A Tensor of that type and shape; a new one of zeros unless given.

    Raises
    ------
    BindError
        If ``data`` holds another type or has another shape, or ``struct`` is no type.
    """

    def __init__(self, struct: Any, shape: int | Sequence[int], data: Tensor | None = None) -> None:
        where = "InstanceTensor"
        wanted = as_shape(where, shape)
        element = _element(where, struct)
        if data is None:
            if not isinstance(struct, Struct):
                raise BindError(
                    f"{where}: '{element.name}' names no device; give data=Tensor.zeros(device, {wanted}, "
                    f"'{element.name}'), or module.find_struct('{element.name}') as the struct."
                )
            data = Tensor.zeros(scope_of(struct).device, wanted, struct)
        if not isinstance(data, Tensor) or data.dtype.name != element.name or data.shape != wanted:
            raise BindError(
                f"{where}: data is {in_words(data)}; a Tensor<{element.name}> of shape {wanted} was expected."
            )
        self.struct = struct
        self.tensor = data

    @reads("an instance of a struct")
    def __setstate__(self, state: Any) -> None:
        state = check_state("an InstanceTensor", state, ("struct", "tensor"))
        tensor = state["tensor"]
        if not isinstance(tensor, Tensor):
            raise damaged("an InstanceTensor", f"it holds {in_words(tensor)}; a Tensor was expected")
        InstanceTensor.__init__(self, state["struct"], tensor.shape, tensor)
        self.__dict__.update(state)

    @property
    def slang_type(self) -> SlangType:
        """Type of one value."""
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values there are, in each dimension."""
        return self.tensor.shape

    def to_numpy(self) -> Any:
        """Return the values as a structured NumPy array."""
        return self.tensor.to_numpy()

    def copy_from_numpy(self, data: Any) -> None:
        """Copy host data to the tensor, as ``Tensor.copy_from`` does."""
        self.tensor.copy_from(data)

    def construct(self, /, *args: Any, **named: Any) -> None:
        """Fill the tensor with values that the struct's constructor makes from these arguments.

        Raises
        ------
        BindError
            If the values are of no struct.
        """
        if not isinstance(self.struct, Struct) or self.slang_type.kind != "struct":
            raise BindError(f"InstanceTensor.construct: '{self.slang_type.name}' is no struct; use copy_from_numpy.")
        self.struct(*args, _result=self.tensor, **named)

    def __slang_arg__(self) -> Tensor:
        return self.tensor

    def __getattr__(self, name: str) -> Any:
        return _method(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(methods_of(self.struct) if isinstance(self.struct, Struct) else ())})

    def __repr__(self) -> str:
        return f"InstanceTensor({self.slang_type.name}, shape={self.shape})"


class PackedArg:
    """A value as it was when ``pack`` copied it, to be passed to any number of calls."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @reads("an instance of a struct")
    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(check_state("a PackedArg", state, ("_value",)))

    def __slang_arg__(self) -> Any:
        return self._value

    def __repr__(self) -> str:
        return f"PackedArg({self._value!r})"


def pack(module: Module, value: Any) -> PackedArg:
    """Copy a value of host memory for later calls, which do not see changes that come after.

    Parameters
    ----------
    module : Module
        The module whose functions it is for.
    value : object
        What a function takes: lists, dicts and NumPy arrays are copied, read-only; arrays on a device are not.

    Returns
    -------
    PackedArg
        An argument for functions of the module.

    Raises
    ------
    BindError
        If ``module`` is no module, or a struct that the value names is not known to it.
    """
    scope = getattr(module, "_scope", None)
    if not isinstance(scope, Scope):
        raise BindError(f"pack: module is {in_words(module)}; a module was expected.")
    if isinstance(value, PackedArg):
        return value
    meant = ask((value,))[0][0]
    return PackedArg(_snapshot(scope, meant, 0))


def _snapshot(scope: Scope, value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise BindError("pack: the value holds itself, or lists in lists without an end.")
    if isinstance(value, np.ndarray):
        own = value.copy()
        own.flags.writeable = False
        return own
    if isinstance(value, Mapping):
        named = value.get("_type")
        if isinstance(named, str):
            scope.named("pack", named)
        return {name: _snapshot(scope, item, depth + 1) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_snapshot(scope, item, depth + 1) for item in value])
    return value


def _element(where: str, struct: Any) -> SlangType:
    """Return the type of instances; refuse what is none."""
    try:
        return element_type(where, struct)
    except BindError:
        raise BindError(
            f"{where}: struct is {in_words(struct)}; a struct of a module or an element type was expected, as "
            "module.Ray and 'float3' are."
        ) from None


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
    if not isinstance(struct, Struct):
        kind = instances.slang_type.name
        raise AttributeError(f"'{kind}' has no method '{name}' here; module.find_struct('{kind}') has those it has.")
    method = getattr(struct, name)
    if not method.overloads:
        raise gone(method.name, scope_of(struct).source)
    if method.overloads[0].static:
        return method
    from slangpy_rt.calls.bound_method import BoundMethod  # programs without instances do not need it

    return BoundMethod(method, instances)
