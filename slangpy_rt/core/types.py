"""Frozen values that describe Slang code: types, parameters, functions, modules.

Reflection makes them, the disk cache keeps them as JSON, and the rest of the package knows a module by them alone.
Nothing here calls a compiler or a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# Names of an interface and of a type that implements it, and the number that an object of the interface holds for the
# type; -1 lets Slang choose the number.
Conformances = tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class Field:
    """A field of a struct; its documentation comment is known for the structs of a module alone.

    Attributes
    ----------
    no_diff : bool
        Whether it is declared ``no_diff``.
    has_default : bool
        Whether its declaration has an initial value.
    default : int or float, optional
        That value, where it is a number in the text, as of a ``Param``.
    """

    name: str
    type: SlangType
    doc: str = field(default="", compare=False)
    no_diff: bool = False
    has_default: bool = False
    default: int | float | None = None


@dataclass(frozen=True)
class SlangType:
    """A Slang type.

    Attributes
    ----------
    kind : str
        ``"void"``, ``"scalar"``, ``"vector"``, ``"matrix"``, ``"array"``, ``"struct"``, ``"pointer"``,
        ``"enum"``, ``"generic"`` (a type parameter), ``"interface"``, ``"resource"``, ``"storage"`` (known to arrays
        alone: bfloat16), ``"atomic"`` (``Atomic<T>`` where a whole array or a pointer has it) or ``"other"``.
    name : str
        As Slang writes it in source: ``"float3"``, ``"float[4]"``, ``"Tensor<float, 2>"``.
    scalar : str
        Slang scalar of a scalar, vector, matrix or enum: ``"bool"``, ``"int8_t"``, ``"int16_t"``, ``"int"``,
        ``"int64_t"``, ``"uint8_t"``, ``"uint16_t"``, ``"uint"``, ``"uint64_t"``, ``"half"``, ``"float"``,
        ``"double"``.
    shape : tuple of int
        ``(n,)`` of a vector or array (0 when unsized), ``(rows, columns)`` of a matrix.
    element : SlangType or None
        What an array, a pointer or an ``Atomic<T>`` holds.
    fields : tuple of Field
        Of a struct.
    arguments : tuple of (SlangType or int)
        Generic arguments of a struct: ``(float, 2)`` of ``Tensor<float, 2>``.
    cases : tuple of (str, int)
        Of an enum, in source order.
    """

    kind: str
    name: str
    scalar: str = ""
    shape: tuple[int, ...] = ()
    element: SlangType | None = None
    fields: tuple[Field, ...] = ()
    arguments: tuple[SlangType | int, ...] = ()
    cases: tuple[tuple[str, int], ...] = ()

    def __repr__(self) -> str:
        return f"<Slang type {self.name}>"


@dataclass(frozen=True)
class Param:
    """A parameter of a function, or a constant or uniform of a module.

    Attributes
    ----------
    direction : str
        ``"in"``, ``"out"`` or ``"inout"``.
    semantic : str
        Of a kernel's system value: ``"SV_DispatchThreadID"``, ``"SV_GroupID"``, ``"SV_GroupIndex"`` or
        ``"SV_GroupThreadID"``, spelled so whatever the text's case; any other as the text writes it.
    default : int or float, optional
        The value of the default, where it is a number in the text and not an expression, a double or a boolean.
    unchanged : frozenset of str
        Of the object of a ``[mutating]`` method: fields that the method only reads.
    """

    name: str
    type: SlangType
    direction: str = "in"
    no_diff: bool = False
    has_default: bool = False
    semantic: str = ""
    default: int | float | None = None
    unchanged: frozenset[str] = frozenset()

    def __str__(self) -> str:
        direction = "" if self.direction == "in" else f"{self.direction} "
        default = f" = {'...' if self.default is None else self.default}" if self.has_default else ""
        return f"{direction}{self.type.name} {self.name}{default}"


@dataclass(frozen=True)
class FunctionSig:
    """One overload of a function.

    Attributes
    ----------
    name : str
        The name by which Slang text calls it: ``"add"``, ``"ns.add"``, ``"copy<float>"``; a method's name without its
        type; a constructor's is the type's name.
    generics : tuple of str
        Names of generic parameters, empty for a plain function and for one whose arguments are given.
    static, mutating : bool
        Of a method; a free function has neither.
    doc : str
        The documentation comment above the declaration.
    owner : str
        The struct whose method it is, where a call has to say so.
    attributes : tuple of str
        Names of its attributes that a module of ours declares, ``"_spy_CudaKernel"``.
    title : str
        What messages call a function that this package wrote around a user's; empty for the declaration.
    """

    name: str
    params: tuple[Param, ...]
    returns: SlangType
    differentiable: bool = False
    static: bool = False
    mutating: bool = False
    generics: tuple[str, ...] = ()
    doc: str = ""
    owner: str = ""
    attributes: tuple[str, ...] = ()
    title: str = ""

    def __str__(self) -> str:
        return self.title or self.text

    @cached_property
    def text(self) -> str:
        """The declaration, as messages begin with it."""
        generics = f"<{', '.join(self.generics)}>" if self.generics else ""
        params = ", ".join(map(str, self.params))
        name = f"{self.owner}.{self.name}" if self.owner else self.name
        return f"{self.returns.name} {name}{generics}({params})"


@dataclass(frozen=True)
class StructInfo:
    """A struct with its methods and constructors; a struct that was looked up by name has those of extensions too."""

    type: SlangType
    methods: tuple[FunctionSig, ...] = ()
    constructors: tuple[FunctionSig, ...] = ()
    doc: str = ""


@dataclass(frozen=True)
class EntryPoint:
    """A ``[numthreads]`` function, whose numbers are ``group_size``; text may call it like any other function."""

    name: str
    params: tuple[Param, ...]
    group_size: tuple[int, int, int]
    doc: str = ""


@dataclass(frozen=True)
class ModuleInfo:
    """Everything a module declares, and the files it was made of.

    Attributes
    ----------
    functions : tuple of FunctionSig
        Overloads of one function share a name and stand in source order.
    constants : tuple of Param
        Each ``extern static const``; one without a default has to be given.
    uniforms : tuple of Param
        Each global ``uniform`` of ordinary data. To kernels it is a static variable, zero unless they set it, by its
        name, before they call a function of the module.
    dependencies : tuple of (str, str)
        Absolute path and SHA-256 of every file the module's text came from, itself included when it is a
        file.
    prints : bool
        Whether its text, or a file it is made of, calls ``printf``.
    groups : bool
        Whether its functions, or those of a file it is made of, may share memory, wait or exchange values within a
        thread group. False for a target without groups.
    statics : bool
        Whether its functions, or those of a file it is made of, may change static variables. Each element of a call
        begins with their initial values.
    declares : tuple of str
        What its outermost scope, and those of modules that it imports, declare: names that hide Slang's own.
    places : tuple of (str, str)
        Absolute paths at which one of these files may have been looked for, each with the file that is there, links
        followed, or an empty string.
    stages : tuple of (str, str)
        Shaders of graphics and of ray tracing by name, with their stage; no device runs them.
    enums : tuple of SlangType
        Each enum, with its cases.
    """

    name: str
    functions: tuple[FunctionSig, ...] = ()
    structs: tuple[StructInfo, ...] = ()
    entry_points: tuple[EntryPoint, ...] = ()
    constants: tuple[Param, ...] = ()
    uniforms: tuple[Param, ...] = ()
    dependencies: tuple[tuple[str, str], ...] = ()
    prints: bool = False
    groups: bool = False
    statics: bool = False
    declares: tuple[str, ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    stages: tuple[tuple[str, str], ...] = ()
    enums: tuple[SlangType, ...] = ()


@dataclass(frozen=True)
class LayoutField:
    """One member of a reflected block of bytes."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Compiled:
    """A kernel as Slang emitted it, with the reflected layout of its argument block.

    ``strings`` holds the strings whose hashes are in the code, by hash: the formats of its ``printf``. ``groups``
    tells whether the code uses anything of a thread group; it is False where no loaded module may.
    """

    code: bytes
    layout: tuple[LayoutField, ...]
    size: int
    strings: tuple[tuple[int, str], ...] = ()
    groups: bool = False


_CLASSES = {c.__name__: c for c in (Field, SlangType, Param, FunctionSig, StructInfo, EntryPoint, ModuleInfo)}


def to_json(value: Any) -> Any:
    """Turn a value of a class that is in ``_CLASSES`` into what JSON can express; defaults are left out."""
    if type(value).__name__ in _CLASSES:
        out: dict[str, Any] = {"": type(value).__name__}
        for name, declared in type(value).__dataclass_fields__.items():
            item = getattr(value, name)
            if item != declared.default:
                out[name] = to_json(item)
        return out
    return [to_json(item) for item in value] if isinstance(value, tuple) else value


def from_json(data: Any) -> Any:
    """Undo ``to_json``.

    Raises
    ------
    KeyError, TypeError
        If the data was not written by ``to_json`` of this version, or a field has a value of another type than its
        class declares.
    """
    if isinstance(data, dict):
        cls = _CLASSES[data[""]]
        made = cls(**{key: from_json(item) for key, item in data.items() if key})
        _check_fields(made)
        return made
    return tuple(from_json(item) for item in data) if isinstance(data, list) else data


def check_value(value: Any) -> None:
    """Check that a value of one of the classes here, and each value in it, has fields of the declared types.

    Raises
    ------
    TypeError
        If a field has a value of another type.
    """
    _check_fields(value)
    for name in type(value).__dataclass_fields__:
        _check_items(getattr(value, name))


def _check_items(item: Any) -> None:
    if isinstance(item, tuple):
        for inner in item:
            _check_items(inner)
    elif type(item).__name__ in _CLASSES:
        check_value(item)


def _check_fields(value: Any) -> None:
    """Check the fields of a value, and not those of values in it."""
    for name, declared in type(value).__dataclass_fields__.items():
        item = getattr(value, name)
        if item is not declared.default and not _HOLDS[declared.type](item):
            raise TypeError(f"{type(value).__name__}.{name}: expected {declared.type}, got {type(item).__name__}")
    if isinstance(value, SlangType):
        wanted = _DIMENSIONS.get(value.kind)
        if (wanted is not None and len(value.shape) != wanted) or (value.kind == "array" and value.element is None):
            raise TypeError(f"SlangType: a {value.kind} of shape {value.shape} and element {value.element}")


def _is_int(item: Any) -> bool:
    return type(item) is int


def _is_default(item: Any) -> bool:
    return item is None or type(item) in (int, float)


def _is(*classes: type) -> Callable[[Any], bool]:
    """Return a test for instances of classes."""
    return lambda item: isinstance(item, classes)


def _all(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a test for tuples of items that pass a test."""
    return lambda item: isinstance(item, tuple) and all(map(holds, item))


def _each(*holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a test for tuples with one item for each test."""
    return lambda item: (
        isinstance(item, tuple) and len(item) == len(holds) and all(h(v) for h, v in zip(holds, item, strict=True))
    )


# The length of ``shape`` of types that have one.
_DIMENSIONS = {"scalar": 0, "vector": 1, "matrix": 2, "array": 1}
_TEXT, _PAIR = _is(str), _each(_is(str), _is(str))
# Tests of values by the annotations of the fields above.
_HOLDS: dict[Any, Callable[[Any], bool]] = {
    "str": _TEXT,
    "bool": _is(bool),
    "int | float | None": _is_default,
    "SlangType": _is(SlangType),
    "SlangType | None": _is(SlangType, type(None)),
    "frozenset[str]": lambda item: isinstance(item, frozenset) and all(map(_TEXT, item)),
    "tuple[int, ...]": _all(_is_int),
    "tuple[int, int, int]": _each(_is_int, _is_int, _is_int),
    "tuple[str, ...]": _all(_TEXT),
    "tuple[tuple[str, int], ...]": _all(_each(_TEXT, _is_int)),
    "tuple[tuple[str, str], ...]": _all(_PAIR),
    "tuple[SlangType | int, ...]": _all(lambda item: isinstance(item, SlangType) or type(item) is int),
    "tuple[SlangType, ...]": _all(_is(SlangType)),
    "tuple[Field, ...]": _all(_is(Field)),
    "tuple[Param, ...]": _all(_is(Param)),
    "tuple[FunctionSig, ...]": _all(_is(FunctionSig)),
    "tuple[StructInfo, ...]": _all(_is(StructInfo)),
    "tuple[EntryPoint, ...]": _all(_is(EntryPoint)),
}
