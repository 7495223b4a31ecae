"""Stubs: a Slang module's declarations as Python ones, for editors and type checkers.

Declarations go in, the text of a ``.pyi`` comes out; nothing is compiled, read or written. Results are ``Any``: the
kind of array that a call returns depends on its arguments, and a union of all kinds would need a cast.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Iterable, Sequence

from slangpy_rt.calls.function import Function
from slangpy_rt.calls.module import Module
from slangpy_rt.core.dtypes import NUMPY_OF, storage
from slangpy_rt.core.types import FunctionSig, ModuleInfo, Param, SlangType, StructInfo

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

class _Struct(spy.Struct):
    def __new__(cls, *args: Any, **named: Any) -> Any: ...

_Writable: TypeAlias = spy.NDBuffer | npt.NDArray[Any] | spy.ValueRef | _DLPack | _SlangArg
_Array: TypeAlias = _Writable | list[Any] | tuple[Any, ...]
_Generator: TypeAlias = spy.call_id | spy.grid | spy.thread_id | spy.wang_hash | spy.rand_float | range
_Reals: TypeAlias = float | np.floating[Any] | np.integer[Any] | np.bool_ | _Generator | _Array
_Integers: TypeAlias = int | np.integer[Any] | np.bool_ | _Generator | _Array
_Bools: TypeAlias = bool | np.bool_ | _Array
"""
# Python types of the arguments, by the kind of the scalar's NumPy dtype; those of vectors and matrices are the same.
_VALUES = {"f": "_Reals", "i": "_Integers", "u": "_Integers", "b": "_Bools"}
_CONTAINERS = {"Tensor": "_Array", "RWTensor": "_Writable", "NDBuffer": "_Writable"}
_OPTIONS = [p.name for p in inspect.signature(Function.__call__).parameters.values() if p.kind is p.KEYWORD_ONLY]
_MODULE_OWN = frozenset({*dir(Module), "device"})


def stub_text(info: ModuleInfo) -> str:
    """Return the text of the stub file of a Slang module.

    Its class, ``ExampleModule`` for a module ``example``, is a ``slangpy_rt.Module`` with an attribute for each
    function, called with the parameters that Slang declares, and a nested class for each struct, with its methods.
    Functions whose names Python cannot write as an attribute of a module (``lambda``, ``noise.perlin`` of a
    namespace, ``name``, which every module has) are available as ``module["lambda"]``. Structs inside others and
    generic ones are left out.

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
    stub = _Stub()
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
        members += [f"    class {title}(_Struct):", *_docstring(_declaration(struct), 8)]
        for method, overloads in _by_name(struct.methods).items():
            made = stub.function(f"{title}.{method}", overloads, method=True)
            if _is_attribute(method):
                members.append(f"        {method}: {made}")
            else:
                subscripts[f"{title}.{method}"] = made
    members += [f"    {entry.name}: spy.Kernel" for entry in info.entry_points if _is_attribute(entry.name)]
    lookup = ["    __getattr__: None  # otherwise any name would be a function"]
    for key, made in subscripts.items():
        lookup += ["    @overload", f'    def __getitem__(self, name: Literal["{key}"]) -> {made}: ...']
    if subscripts:
        lookup += ["    @overload", "    def __getitem__(self, name: str) -> spy.Function: ..."]
    # The members of every module are in a class of their own: functions of this one may be named str or spy, as types
    # in this text are.
    blocks = [
        [f"{alias}: TypeAlias = {meaning}" for alias, meaning in stub.aliases.items()],
        *stub.classes.values(),
        ["class _Module(spy.Module):", *lookup],
        [f"class {name}(_Module):", *(members or ["    ..."])],
    ]
    body = _TYPES + "\n\n".join("\n".join(block) for block in blocks if block) + "\n"
    typing = [word for word in ("Any", "Literal", "Protocol", "TypeAlias", "overload") if word in body]
    top = _USE.format(header=HEADER, module=info.name, name=name)
    imports = "import numpy as np\nimport numpy.typing as npt\nimport slangpy_rt as spy\n"
    return f"{top}\nfrom typing import {', '.join(typing)}\n\n{imports}{body}"


class _Stub:
    """Collects the type aliases and the classes of functions that a module's declarations need."""

    def __init__(self) -> None:
        self.aliases: dict[str, str] = {}
        self.classes: dict[str, list[str]] = {}

    def function(self, name: str, overloads: Sequence[FunctionSig], method: bool = False) -> str:
        """Add the class of a function and return its name."""
        made = f"_{re.sub(r'[^0-9A-Za-z_]', '_', name)}_function"
        while made in self.classes:
            made += "_"
        # Overloads that differ in Slang may have equal signatures in Python; those become one.
        alike: dict[str, list[FunctionSig]] = {}
        for sig in overloads:
            alike.setdefault(self._parameters(sig, method and not sig.static), []).append(sig)
        lines = [f"class {made}(spy.Function):"]
        for parameters, sigs in alike.items():
            returns = "None" if all(sig.returns.kind == "void" for sig in sigs) else "Any"
            lines += ["    @overload"] if len(alike) > 1 else []
            lines.append(f"    def __call__({parameters}) -> {returns}:")
            lines += _docstring("\n\n".join(f"{sig}\n\n{sig.doc}".strip() for sig in sigs), 8)
        self.classes[made] = [*lines, "    call = __call__"]
        return made

    def _parameters(self, sig: FunctionSig, bound: bool) -> str:
        texts = ["self", "this: Any", "/"] if bound else ["self"]
        taken = {"self", "this", *_OPTIONS}
        required = max((k for k, p in enumerate(sig.params) if not p.has_default), default=-1)
        for k, param in enumerate(sig.params):
            name = param.name
            nameless = keyword.iskeyword(name) or not name.isidentifier() or name in taken
            while keyword.iskeyword(name) or not name.isidentifier() or name in taken:
                name += "_"
            taken.add(name)
            texts.append(f"{name}: {self._annotation(param)}{' = ...' if k > required else ''}")
            if nameless:
                # Python cannot pass this parameter by name, so those before it are positional too.
                texts = [*(text for text in texts if text != "/"), "/"]
        options = [*_OPTIONS, *([] if "out" in taken else ["out"])]
        return ", ".join([*texts, "*", *(f"{option}: Any = ..." for option in options)])

    def _annotation(self, param: Param) -> str:
        type_ = param.type
        container = _CONTAINERS.get(type_.name.partition("<")[0])
        if container is not None and type_.arguments:
            return container
        # Enums take names too; structs take whatever has their fields.
        if type_.kind not in ("scalar", "vector", "matrix", "array") or _holds_structs(type_):
            return "Any"
        if param.direction != "in":
            return "_Writable"
        if type_.kind == "array":
            return "_Array"
        values = _VALUES[NUMPY_OF[type_.scalar].kind]
        if not type_.name.isidentifier():  # vector<float, N> of a generic function
            return values
        self.aliases[f"_{type_.name}"] = values
        return f"_{type_.name}"


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
