"""Stubs: a Slang module's declarations as Python ones, for editors and type checkers.

Declarations go in, the text of a ``.pyi`` comes out; nothing is compiled, read or written. The kind of result that a
call returns depends on its arguments, so a function of numbers, vectors, matrices, enums, structs and generic
parameters has an overload for each kind. Results are ``Any`` where the kind does not follow from the types of the
arguments: of structs that are no arrays, since their fields may be arrays, of whole arrays, of calls with
``_result``, and of arrays of other libraries.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

from slangpy_rt.calls.function import Function
from slangpy_rt.calls.module import Module
from slangpy_rt.calls.struct import Struct
from slangpy_rt.core.dtypes import NUMPY_OF, element_type, storage
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import FunctionSig, ModuleInfo, Param, SlangType, StructInfo
from slangpy_rt.slang.reflect_types import split_arguments

# How every stub begins.
HEADER = "# Written by `slangpy_rt stubs`"

_USE = """{header} for the Slang module {module}; the next run replaces it.
#
#     if TYPE_CHECKING:
#         from {module} import {name}
#     module = cast("{name}", spy.Module.load_from_file(device, "{module}.slang"))
#
# Calls are narrower here than in the classes they come from, which serve every Slang function:
# mypy: disable-error-code="assignment,misc,override,overload-cannot-match,overload-overlap"
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
# pyright: reportOverlappingOverload=false
"""
_TYPES = """
class _DLPack(Protocol):
    @property
    def __dlpack__(self) -> Any: ...

class _SlangArg(Protocol):
    @property
    def __slang_arg__(self) -> Any: ...

_Writable: TypeAlias = spy.NDBuffer | npt.NDArray[Any] | spy.ValueRef | _DLPack | _SlangArg
_Array: TypeAlias = _Writable | list[Any] | tuple[Any, ...]
_Real: TypeAlias = float | np.floating[Any] | np.integer[Any] | np.bool_
_Integer: TypeAlias = int | np.integer[Any] | np.bool_
_Bool: TypeAlias = bool | np.bool_
_Generator: TypeAlias = spy.call_id | spy.grid | spy.thread_id | spy.wang_hash | spy.rand_float | range
_Host: TypeAlias = _Generator | npt.NDArray[Any] | list[Any] | tuple[Any, ...]
_Reals: TypeAlias = _Real | _Generator | _Array
_Integers: TypeAlias = _Integer | _Generator | _Array
_Bools: TypeAlias = _Bool | _Array
_Structs_array: TypeAlias = npt.NDArray[Any]
_Structs_tensor: TypeAlias = npt.NDArray[Any] | spy.Tensor
_Structs_ndbuffer: TypeAlias = npt.NDArray[Any] | spy.NDBuffer
"""
# The types of results, by their kind: arrays with an element type of NumPy's, and one value.
_ARRAYS = {"_array": "npt.NDArray[np.{}]", "_tensor": "spy.Tensor", "_ndbuffer": "spy.NDBuffer", "one": ""}
# What a call over arrays returns of a function whose results are Optionals.
_OPTIONALS = """_Value = TypeVar("_Value")
_Has = TypeVar("_Has")

class _Optionals(NamedTuple, Generic[_Value, _Has]):
    value: _Value
    has_value: _Has
"""
# What a call takes that returns a NumPy array, a Tensor, an NDBuffer, after the type of a number.
_KINDS = {"_array": "_Host", "_tensor": "_Host | spy.Tensor", "_ndbuffer": "_Host | spy.NDBuffer"}
# Python types of the arguments, by the kind of the scalar's NumPy dtype; those of vectors and matrices are the same.
_VALUES = {"f": "_Reals", "i": "_Integers", "u": "_Integers", "b": "_Bools"}
_NUMBERS = {"_Reals": "_Real", "_Integers": "_Integer", "_Bools": "_Bool"}
# One struct may be of many types, whose fields may hold arrays; an array of structs has these types, and a kind.
_STRUCTS = "_Structs"
_PYTHON = {"f": "float", "i": "int", "u": "int", "b": "bool"}
_CONTAINERS = {"Tensor": "_Array", "RWTensor": "_Writable", "NDBuffer": "_Writable"}
_TYPING = ("Any", "Generic", "Literal", "NamedTuple", "Protocol", "TypeAlias", "TypeVar", "overload")
_OPTIONS = [p.name for p in inspect.signature(Function.__call__).parameters.values() if p.kind is p.KEYWORD_ONLY]
_MODULE_OWN = frozenset({*dir(Module), "device"})
_STRUCT_OWN = frozenset({*dir(Struct), "slang_type"})
_ENUM_OWN = frozenset({*dir(IntEnum), "mro", "name", "value"})
_THIS = Param("this", SlangType("struct", "this"))  # the object of a method


def stub_text(info: ModuleInfo) -> str:
    """Return the text of the stub file of a Slang module.

    Its class, ``ExampleModule`` for a module ``example``, is a ``slangpy_rt.Module`` with an attribute for each
    function and each struct, called with the parameters that Slang declares, and for each enum. What Python cannot
    write as an attribute of a module (``lambda``, ``noise.perlin`` of a namespace, ``name``, which every module has)
    is available as ``module["lambda"]``. Structs inside others and generic ones are left out.

    Parameters
    ----------
    info : ModuleInfo
        The module's declarations: ``module.info``.

    Returns
    -------
    str
        Text for a file ``example.pyi``, which passes ``mypy --strict``. Its first line begins with ``HEADER``.
    """
    name = "".join(part[:1].upper() + part[1:] for part in info.name.split("_")) + "Module"
    stub = _Stub({struct.type.name.partition("<")[0] for struct in info.structs})
    members, subscripts = [], {}
    functions = _by_name(info.functions)
    for function, overloads in functions.items():
        made = stub.function(function, overloads)
        if _is_attribute(function) and function not in _MODULE_OWN:
            members.append(f"    {function}: {made}")
        else:
            subscripts[function] = made
    for struct in info.structs:
        title = struct.type.name
        # If a function and a struct have one name, the module's attribute is the function.
        if not _is_attribute(title) or title in _MODULE_OWN or title in functions:
            continue
        made, methods = stub.struct(struct)
        members.append(f"    {title}: {made}")
        subscripts |= methods
    for enum in info.enums:
        made = stub.enum(enum)
        if enum.name not in functions and _is_attribute(enum.name) and enum.name not in _MODULE_OWN:
            members.append(f"    {enum.name}: {made}")
        elif enum.name not in functions:
            subscripts[enum.name] = made
    members += [f"    {entry.name}: spy.Kernel" for entry in info.entry_points if _is_attribute(entry.name)]
    lookup = ["    __getattr__: None  # otherwise any name would be a function"]
    for key, made in subscripts.items():
        lookup += ["    @overload", f'    def __getitem__(self, name: Literal["{key}"]) -> {made}: ...']
    if subscripts:
        # A function, a struct or an enum: ``"twice<float>"``, ``"Box<float>"``.
        lookup += ["    @overload", "    def __getitem__(self, name: str) -> Any: ..."]
    # The members of every module are in a class of their own: functions of this one may be named str or spy, as types
    # in this text are.
    blocks = [
        [f"{alias}: TypeAlias = {meaning}" for alias, meaning in stub.aliases.items()],
        *stub.classes.values(),
        ["class _Module(spy.Module):", *lookup],
        [f"class {name}(_Module):", *(members or ["    ..."])],
    ]
    text = "\n\n".join("\n".join(block) for block in blocks if block) + "\n"
    body = _TYPES + (_OPTIONALS if "_Optionals[" in text else "") + text
    typing = [word for word in _TYPING if re.search(rf"\b{word}\b", body)]
    top = _USE.format(header=HEADER, module=info.name, name=name)
    imports = [
        *(["import enum"] if "enum." in body else []),
        f"from typing import {', '.join(typing)}",
        "\nimport numpy as np\nimport numpy.typing as npt\nimport slangpy_rt as spy\n",
    ]
    return f"{top}\n" + "\n".join(imports) + body


class _Stub:
    """Collects the type aliases and the classes that a module's declarations need."""

    def __init__(self, declared: set[str]) -> None:
        # Names of the module's own structs, which an Optional or a Tuple may be.
        self.declared = declared
        self.aliases: dict[str, str] = {}
        self.classes: dict[str, list[str]] = {}

    def function(self, name: str, overloads: Sequence[FunctionSig], method: bool = False) -> str:
        """Add the class of a function and return its name."""
        made = self._unused(name, "function")
        lines = self._call_lines(overloads, method)
        self.classes[made] = [f"class {made}(spy.Function):", *lines, "    call = __call__"]
        return made

    def struct(self, struct: StructInfo) -> tuple[str, dict[str, str]]:
        """Add the class of a struct; return its name, and the classes of methods that are no attributes of it."""
        title = struct.type.name
        made = self._unused(title, "struct")
        # Constructors are in a class of their own: methods of this one may be named dict or Any, as types in those.
        maker = self._unused(title, "maker")
        fields = tuple(
            Param(f.name, f.type, has_default=f.has_default, default=f.default) for f in struct.type.fields
        )
        makers = struct.constructors or (FunctionSig(title, fields, struct.type),)
        calls = self._call_lines([replace(sig, name=title) for sig in makers], options=("_result",))
        self.classes[maker] = [f"class {maker}(spy.Struct):", *calls]
        lines, subscripts = _docstring(_declaration(struct), 4), {}
        lines.append('    __getattr__: None  # a method that an extension adds is module.Struct["method"]')
        for method, overloads in _by_name(struct.methods).items():
            function = self.function(f"{title}.{method}", overloads, method=True)
            if _is_attribute(method) and method not in _STRUCT_OWN:
                lines.append(f"    {method}: {function}")
            else:
                subscripts[f"{title}.{method}"] = function
        self.classes[made] = [f"class {made}({maker}):", *lines]
        return made, subscripts

    def enum(self, type_: SlangType) -> str:
        """Add the class of an enum; return the name of its type. Cases that Python has no name for are left out."""
        made = self._unused(type_.name, "enum")
        cases = [f"    {name} = {n}" for name, n in type_.cases if _is_attribute(name) and name not in _ENUM_OWN]
        self.classes[made] = [f"class {made}(enum.IntEnum):", *(cases or ["    ..."])]
        # A function of the module may be named type.
        self.aliases[f"{made}_type"] = f"type[{made}]"
        return f"{made}_type"

    def _unused(self, name: str, kind: str) -> str:
        made = f"_{_identifier(name)}_{kind}"
        while made in self.classes:
            made += "_"
        return made

    def _call_lines(
        self, overloads: Sequence[FunctionSig], method: bool = False, options: Sequence[str] = _OPTIONS
    ) -> list[str]:
        """Return the method ``__call__`` of a class, with its overloads."""
        # Overloads that differ in Slang may have equal signatures in Python; those become one.
        alike: dict[str, list[tuple[FunctionSig, str]]] = {}
        # The dtypes of arrays, which no type checker knows, choose among overloads with as many parameters.
        apart = len({len(sig.params) for sig in overloads}) == len(overloads)
        apart = apart and not (len(overloads) > 1 and any(p.has_default for sig in overloads for p in sig.params))
        for sig in overloads:
            for parameters, returns in self._calls(sig, method and not sig.static, apart, options):
                alike.setdefault(parameters, []).append((sig, returns))
        lines = []
        for parameters, calls in alike.items():
            sigs, results = [sig for sig, _ in calls], {returns for _, returns in calls}
            lines += ["    @overload"] if len(alike) > 1 else []
            lines.append(f"    def __call__({parameters}) -> {results.pop() if len(results) == 1 else 'Any'}:")
            lines += _docstring("\n\n".join(f"{sig}\n\n{sig.doc}".strip() for sig in sigs), 8)
        return lines

    def _calls(self, sig: FunctionSig, bound: bool, apart: bool, options: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield parameters and result of each Python signature of a declaration, the narrowest first.

        Parameters
        ----------
        sig : FunctionSig
            The declaration.
        bound : bool
            Whether it is a method that takes its object.
        apart : bool
            Whether the number of arguments tells it from other overloads.
        options : sequence of str
            The keyword arguments that any call takes.
        """
        given = [*([_THIS] if bound else []), *sig.params]
        values = [self._value(p.type, sig) for p in given]
        # A method that changes its object cannot take every array.
        inputs = all(p.direction == "in" for p in sig.params) and not (bound and sig.mutating)
        if given and apart and inputs and all(values):
            kinds = {self._held(p.type).kind for p in given}
            # A list may be one vector or many, which makes no difference if one result is an array as well. An array
            # of structs is always many.
            scalars = kinds <= {"scalar", "enum", "generic"}
            one = self._result(sig.returns, "one")
            if scalars and sig.returns.kind == "generic" and sig.returns in [p.type for p in given]:
                for number, result in (("_Integer", "int"), ("_Real", "float")):
                    texts = [number if p.type == sig.returns else v for p, v in zip(given, values, strict=True)]
                    yield self._parameters(sig, texts), result
            elif scalars and one:
                yield self._parameters(sig, values), one
            for kind in _KINDS:
                result = self._result(sig.returns, kind)
                if result and (scalars or not one or "struct" in kinds):
                    yield self._parameters(sig, [self._of_kind(v, kind) for v in values], bound), result
        texts = [*(["Any"] if bound else []), *map(self._annotation, sig.params)]
        yield self._parameters(sig, texts, bound, options), "None" if sig.returns.kind == "void" else "Any"

    def _value(self, type_: SlangType, sig: FunctionSig) -> str:
        """Return the type of one value that a parameter takes; empty if results do not depend on it in this way."""
        held = self._held(type_)
        if held is not type_:
            value = self._value(held, sig)
            return value and f"{value} | None"
        if held.kind == "generic":
            return "_Real" if held.name in sig.generics else ""
        if held.kind == "enum":
            return self._case(held)
        if held.kind == "struct":
            return "" if held.arguments else _STRUCTS
        if held.kind in ("vector", "matrix") and not held.scalar:  # vector<T, 3> of a generic function
            return "_Real"
        return _NUMBERS[_values(held)] if held.kind in ("scalar", "vector", "matrix") else ""

    def _case(self, type_: SlangType) -> str:
        """Return the type of a case of an enum; empty if its cases are not known."""
        names = ", ".join(f'"{name}"' for name, _ in type_.cases)
        alias = f"_{_identifier(type_.name)}_case"
        if names:
            self.aliases[alias] = f"Literal[{names}] | enum.Enum | _Integer"
        return alias if names else ""

    def _of_kind(self, value: str, kind: str) -> str:
        """Return the type of arrays of a value, and of the value, where calls with them give results of a kind."""
        name, bar, none = value.partition(" | ")
        if name != _STRUCTS:
            self.aliases[f"{name}{kind}"] = f"{name} | {_KINDS[kind]}"
        return f"{name}{kind}{bar}{none}"

    def _parameters(
        self, sig: FunctionSig, annotations: Sequence[str], bound: bool = False, options: Sequence[str] = ()
    ) -> str:
        texts, annotations = ["self"], list(annotations)
        if bound:
            texts += [f"this: {annotations.pop(0)}", "/"]
        taken = {"self", "this", *_OPTIONS}
        required = max((k for k, p in enumerate(sig.params) if not p.has_default), default=-1)
        for k, (param, annotation) in enumerate(zip(sig.params, annotations, strict=True)):
            name = param.name
            nameless = keyword.iskeyword(name) or not name.isidentifier() or name in taken
            while keyword.iskeyword(name) or not name.isidentifier() or name in taken:
                name += "_"
            taken.add(name)
            default = "..." if param.default is None else repr(param.default)
            texts.append(f"{name}: {annotation}{f' = {default}' if k > required else ''}")
            if nameless:
                # Python cannot pass this parameter by name, so those before it are positional too.
                texts = [*(text for text in texts if text != "/"), "/"]
        if not options:
            return ", ".join(texts)
        names = [*options, *([] if "out" in taken or options != _OPTIONS else ["out"])]
        return ", ".join([*texts, "*", *(f"{name}: Any = ..." for name in names)])

    def _annotation(self, param: Param) -> str:
        type_ = param.type
        container = _CONTAINERS.get(type_.name.partition("<")[0])
        if container is not None and type_.arguments:
            return container
        item = self._held(type_)
        if item is not type_ and param.direction == "in":
            return f"{self._annotation(Param(param.name, item))} | None"
        if type_.kind == "enum" and type_.cases:
            return f"{self._case(type_)} | _Generator | _Array" if param.direction == "in" else "_Writable"
        # Structs take whatever has their fields.
        if type_.kind not in ("scalar", "vector", "matrix", "array") or _holds_structs(type_):
            return "Any"
        if param.direction != "in":
            return "_Writable"
        if type_.kind == "array":
            return "_Array"
        values = _values(type_)
        if not type_.name.isidentifier():  # vector<float, N> of a generic function
            return values
        self.aliases[f"_{type_.name}"] = values
        return f"_{type_.name}"

    def _result(self, type_: SlangType, kind: str) -> str:
        """Return the type of a call's results as `kind`, a key of _ARRAYS; empty if the kind does not give one.

        One vector is an array, as many are: of a result that is none of Slang's own, one has no type then.
        """
        if self._is_of_slang(type_, "Tuple"):
            items = [self._item(item, kind) for item in type_.arguments]
            return f"tuple[{', '.join(items)}]" if all(items) else ""
        if self._is_of_slang(type_, "Optional"):
            item = self._item(type_.arguments[0], kind)
            mask = _ARRAYS[kind].format("bool_")
            return item and (f"{item} | None" if kind == "one" else f"_Optionals[{item}, {mask}]")
        return _plain_result(type_, kind)

    def _item(self, type_: SlangType | int, kind: str) -> str:
        """Return the type of a value that a Tuple or an Optional holds."""
        if not isinstance(type_, SlangType):
            return ""
        type_ = _known(type_)
        return self._result(type_, kind) or (self._result(type_, "_array") if kind == "one" else "")

    def _held(self, type_: SlangType) -> SlangType:
        """Return the T of Slang's ``Optional<T>``; any other type as it is."""
        item = type_.arguments[0] if self._is_of_slang(type_, "Optional") else type_
        return _known(item) if isinstance(item, SlangType) else type_

    def _is_of_slang(self, type_: SlangType, name: str) -> bool:
        return type_.name.partition("<")[0] == name and name not in self.declared and bool(type_.arguments)


def _values(type_: SlangType) -> str:
    return _VALUES[NUMPY_OF[type_.scalar].kind]


def _known(type_: SlangType) -> SlangType:
    """Return the type that a name means: inside of a Tuple reflection tells of names alone."""
    if type_.kind != "generic":
        return type_
    head, inside = split_arguments(type_.name)
    if inside and head not in ("vector", "matrix"):
        return SlangType("struct", type_.name, arguments=tuple(SlangType("generic", part) for part in inside))
    name = inside[0] + "x".join(inside[1:]) if inside else type_.name
    try:
        return element_type("stub_text", name)
    except BindError:
        return type_


def _plain_result(type_: SlangType, kind: str) -> str:
    """Return the type of results that are no Tuple and no Optional; one of a generic type has none here."""
    any_ = _ARRAYS[kind].replace("np.{}", "Any")
    if type_.kind == "struct" and not type_.arguments:
        return any_ or "dict[str, Any]"
    if type_.kind == "generic" or (type_.kind in ("vector", "matrix") and not type_.scalar):
        return any_
    if type_.kind not in ("scalar", "vector", "matrix", "enum") or type_.scalar not in NUMPY_OF:
        return ""
    dtype = NUMPY_OF[type_.scalar]
    if kind == "one":
        return _PYTHON[dtype.kind] if type_.kind in ("scalar", "enum") else ""
    # NumPy 1 has no other name for its bool.
    return _ARRAYS[kind].format("bool_" if dtype.kind == "b" else dtype.type.__name__)


def _identifier(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z_]", "_", name)


def _holds_structs(type_: SlangType) -> bool:
    stored = storage(type_)
    return stored is None or stored.struct is not None


def _by_name(sigs: Iterable[FunctionSig]) -> dict[str, list[FunctionSig]]:
    found: dict[str, list[FunctionSig]] = {}
    for sig in sigs:
        found.setdefault(sig.name, []).append(sig)
    return found


def _is_attribute(name: str) -> bool:
    # Names that begin with an underscore are private in a module object.
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


def _declaration(struct: StructInfo) -> str:
    lines = []
    for field in struct.type.fields:
        lines += [f"    /// {line}".rstrip() for line in field.doc.splitlines()]
        lines.append(f"    {field.type.name} {field.name};")
    return "\n".join([f"struct {struct.type.name}", "{", *lines, "}", *(["", struct.doc] if struct.doc else [])])


def _docstring(text: str, indent: int) -> list[str]:
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return [" " * indent + line if line else "" for line in f'"""{escaped}"""'.splitlines()]
