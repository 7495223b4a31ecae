"""UserFunction: a function of a user's module as the last step of products. It writes the text of their kernels.

What a function cannot do in a product is refused here. It runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from slangpy_rt.arguments.options import Options
from slangpy_rt.arguments.scope import Scope, ScopeOfUniforms
from slangpy_rt.calls.callee import Callee
from slangpy_rt.calls.function import Function
from slangpy_rt.calls.macros import macro_text
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.calls.spelling import Spelling
from slangpy_rt.core.errors import BindError, CompileError
from slangpy_rt.core.types import FunctionSig, SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import DeviceCore, another
from slangpy_rt.slang.constants import export_constants
from slangpy_rt.slang.declarations import gone
from slangpy_rt.slang.locate import shader_directory

if TYPE_CHECKING:
    from slangpy_rt.slang.source import Source

T = TypeVar("T")

NO_VALUES: Mapping[str, Any] = MappingProxyType({})
# Functions of the kernels' text, by the names that users give.
ACTIVATIONS = {
    "relu": "_spy_relu",
    "gelu": "_spy_gelu",
    "silu": "_spy_silu",
    "sigmoid": "_spy_sigmoid",
    "tanh": "_spy_tanh",
}
# Modifiers that a product does not take into account, by the option that each sets.
_REFUSED = {
    "maps": "map",
    "named_maps": "map",
    "returns": "return_type",
    "group": "group_size",
    "conformances": "type_conformances",
}
# Types of ``slangpy_rt`` with which the kernels are written.
_NEEDED = ("Tensor", "RWTensor")
# How the types of arrays begin that a function only reads.
_READ_ONLY = ("Tensor<", "NDBuffer<", "StructuredBuffer<", "ByteAddressBuffer", "DiffTensor<")
# The macros of the kernels come after the user's names, none of which can be one of these.
_TEXT = """import {parts};
import {module};
struct _spy_Last : _spy_ILast
{{
    static _spy_Sum _spy_last(_spy_Sum _spy_x, _spy_Int _spy_row, _spy_Int _spy_column)
    {{
        return {call};
    }}
}};
"""


class Key(NamedTuple):
    """What a product's kernel depends on, of a user's function.

    Attributes
    ----------
    digest : str
        The digest of the module.
    name : str
        The function's name.
    constants : str
        What ``constants`` set: 1, 1.0 and True are equal, and have different texts.
    turned : bool
        Whether the kernel's rows are the result's columns.
    """

    digest: str
    name: str
    constants: str
    turned: bool


class UserFunction:
    """A function as the last step of a product, with values for its uniforms.

    Parameters
    ----------
    function : Function
        A Function, as a user passes it.
    turned : bool
        Whether the kernel's rows are the result's columns.

    Raises
    ------
    BindError
        If it is no function, or one that no product applies.
    CompileError
        If its file was edited, and Slang refuses the new text, or it no longer declares the function.
    """

    def __init__(self, function: Any, turned: bool = False) -> None:
        if not isinstance(function, Function):
            raise BindError(
                f"matmul: activation is {in_words(function)}; {', '.join(ACTIVATIONS)}, or a function of a module, "
                "was expected."
            )
        callee = Callee(function)
        self.function = function
        self.name = function.name
        self._scope = callee.scope
        self._scope.look()
        self._source = self._scope.source
        self._overloads = callee.overloads
        if not self._overloads:
            raise gone(self.name, self._source)
        self._options: Options = callee.options
        said = [name for option, name in _REFUSED.items() if getattr(self._options, option)]
        if self._options.derivative:
            said.append("bwds" if self._options.derivative == "backward" else "fwds")
        if callee.stream is not None:
            said.append("stream")
        if said:
            raise BindError(
                f"matmul: activation is '{self.name}' with .{said[0]}; the function itself was expected, with "
                ".set(...) and .constants(...) at most."
            )
        if self._source.statics:
            raise BindError(
                f"matmul: activation '{self.name}': its module may change static variables, which would keep their "
                "values from one element to the next; use parameters and local variables instead."
            )
        self.values = dict(zip(self._options.uniforms, callee.values, strict=True))
        self._turned = turned

    @property
    def device(self) -> DeviceCore:
        """The device that it runs on."""
        return self._scope.device

    @property
    def key(self) -> Key:
        """What a product with it depends on, but for the values of its uniforms."""
        return Key(self._source.digest, self.name, repr(self._options.constants), self._turned)

    def exchanged(self) -> UserFunction:
        """Return the function for a product that is computed with rows and columns exchanged."""
        return UserFunction(self.function, not self._turned)

    def writes(self, uniform: str) -> bool:
        """Return whether the function may write to the memory of a uniform's value."""
        return self._may_write(self._scope.uniforms(f"{self.name}.set", self.values)[uniform].type)

    def _may_write(self, type_: SlangType) -> bool:
        if type_.kind in ("scalar", "vector", "matrix", "enum") or type_.name.startswith(_READ_ONLY):
            return False
        if type_.kind == "array" and type_.element is not None:
            return self._may_write(type_.element)
        fields = self._scope.struct(type_).fields
        if type_.kind != "struct" or not fields or fields[0].name.startswith("_spy_"):
            return True  # RWTensor, whose field is a Tensor, and others of this package
        return any(self._may_write(field.type) for field in fields)

    def check_device(self, device: DeviceCore) -> None:
        """Refuse a product on another device.

        Raises
        ------
        BindError
            If it is another.
        """
        if device is not self.device:
            raise BindError(
                f"matmul: activation '{self.name}' is of a module on {self.device!r}, and the product runs on "
                f"{another(self.device, device)}; load the module there."
            )

    def places(self, sums: str) -> tuple[str, ...]:
        """Return which dimension of the kernel's matrix each of its parameters behind the first is a place in."""
        return _places(self.declaration(sums), self._turned)

    def declaration(self, sums: str) -> FunctionSig:
        """Return its declaration for sums of a type.

        Raises
        ------
        BindError
            If there is none, or more than one.
        """
        found = [sig for sig in self._overloads if _fits(sig, sums)]
        if len(found) == 1:
            return found[0]
        listed = "; ".join(map(str, self._overloads))
        if found:
            raise BindError(f"matmul: activation is {listed}, of which several fit; give one of them another name.")
        generic = any(sig.generics for sig in self._overloads)
        hint = f' Name its generic arguments, as in module["{self.name}<{sums}>"].' if generic else ""
        raise BindError(
            f"matmul: activation is {listed}; {sums} {self.name}({sums} x) or "
            f"{sums} {self.name}({sums} x, int row, int column) was expected, since sums are {sums} here.{hint}"
        )

    def inlined(self, sums: str) -> Inlined:
        """Return the function as kernels of sums of a type call it."""
        return Inlined(self._scope, self._source, self.declaration(sums), self._options.constants, self.key)

    def once(self, what: Any, make: Callable[[], T]) -> T:
        """Return an object that is made once for the text of the function's module."""
        return _once(self._scope, self.key, what, make)


class Inlined:
    """A function as the kernels of one kind of products call it, without values.

    Parameters
    ----------
    scope : Scope
        The function's module.
    source : Source
        The module's text.
    sig : FunctionSig
        Its declaration.
    constants : tuple of (str, number or tuple)
        What ``constants`` set.
    key : Key
        What kernels depend on.
    """

    def __init__(
        self, scope: Scope, source: Source, sig: FunctionSig, constants: tuple[tuple[str, Any], ...], key: Key
    ) -> None:
        self._scope = scope
        self._source = source
        self._sig = sig
        self._constants = constants
        self._key = key

    def once(self, what: Any, make: Callable[[], T]) -> T:
        """Return an object that is made once for the text of the function's module."""
        return _once(self._scope, self._key, what, make)

    def kernel(self, macros: Mapping[str, Any]) -> Kernel:
        """Return the kernel of a product, by the macros of ``_spy_matmul.slang``; ``set`` gives values to uniforms.

        Raises
        ------
        BindError
            If the module has names without which the kernel cannot be written, or no such constants.
        CompileError
            If the text cannot call the function.
        """
        source, sig, constants = self._source, self._sig, dict(self._constants)
        title = str(sig)
        for struct in source.info.structs:
            if (name := struct.type.name.partition("<")[0]) in _NEEDED:
                raise BindError(
                    f"matmul: activation {title}: its module declares '{name}', which is a name that products need; "
                    "rename it."
                )
        own = f"{sig.owner}.{sig.name}" if sig.owner else sig.name
        Spelling(title, source).function(title, own, sig.returns.name)
        export_constants(title, source.info.constants, constants)
        places = [f"_spy_{name}" for name in _places(sig, self._key.turned)]
        call = f"{own}({', '.join(['_spy_x', *places])})"
        folder = Path(shader_directory())
        lines = [f"#define {name} {macro_text('matmul', name, value)}\n" for name, value in macros.items()]
        head = "".join([*lines, "#define SPY_USERS 1\n"])
        texts = {
            "_spy_parts": head + '#include "matmul_parts.slang"\n',
            "_spy_product": _TEXT.format(parts="_spy_parts", module=source.name, call=call)
            + head
            + (folder / "_spy_matmul.slang").read_text("utf-8"),
        }
        try:
            made = source.on(self._scope.device.backend.target).followed_by(texts, constants)
        except CompileError as error:
            internal = "is not accessible from the current context" in str(error)
            hint = " It is internal to its module; write 'public' in front of it." * internal
            raise CompileError(f"matmul: a kernel cannot call the activation {title}.{hint}\n{error}") from error
        scope = ScopeOfUniforms(self._scope.device, made, source)
        entry = next(e for e in made.info.entry_points if e.name == "_spy_matmul")
        # Messages about values of uniforms begin with the user's name.
        dispatched = replace(Kernel.of(scope, entry).overloads[0], name=sig.name)
        kernel = Kernel(scope, sig.name, (dispatched,))
        kernel.entry = entry
        return kernel


def _places(sig: FunctionSig, turned: bool) -> tuple[str, ...]:
    if len(sig.params) == 1:
        return ()
    return ("column", "row") if turned else ("row", "column")


def _once(scope: Scope, key: Key, what: Any, make: Callable[[], T]) -> T:
    # An edited file empties this.
    ready, place = scope.ready, ("matmul", key, what)
    if place not in ready:
        ready.setdefault(place, make())
    found: T = ready[place]
    return found


def _fits(sig: FunctionSig, sums: str) -> bool:
    """Return whether a declaration takes a sum of a type, or a sum, row and column, and returns such a number."""
    types = [p.type.name for p in sig.params if p.direction == "in" and p.type.kind == "scalar"]
    right = types in ([sums], [sums, "int", "int"]) and len(types) == len(sig.params)
    return right and sig.returns.name == sums and not sig.generics and (not sig.owner or sig.static)
