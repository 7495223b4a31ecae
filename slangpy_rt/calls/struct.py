"""Struct: a Slang struct as a Python object: its constructors, its methods, and itself as an element type."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arguments.scope import Scope
from slangpy_rt.calls.callable import check_scope
from slangpy_rt.calls.function import Function
from slangpy_rt.core.checks import short_tracebacks, text
from slangpy_rt.core.conversion import describe_name
from slangpy_rt.core.errors import BindError, CompileError
from slangpy_rt.core.types import FunctionSig, SlangType, StructInfo
from slangpy_rt.runtime.pickling import reads
from slangpy_rt.slang.declarations import with_this


@short_tracebacks("__call__", "__getitem__")
class Struct:
    """A Slang struct. Modules make them: ``module.Ray``.

    Calling it makes a value; ``module.Ray.advance`` is a method, whose first argument is the object unless it is
    static. It serves as ``dtype`` of arrays and as ``"_type"`` of dicts.

    Attributes
    ----------
    slang_type : SlangType
        The type, with its fields.
    """

    def __init__(self, scope: Scope, info: StructInfo) -> None:
        check_scope("Struct", scope)
        self.slang_type: SlangType = info.type
        self._scope = scope
        self._constructor: Function | None = None
        self._read(info)
        scope.followers.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._scope, self.name)

    def forget(self) -> None:
        """Do nothing: a struct remembers no calls, its functions do."""

    def source_changed(self) -> None:
        """Read the struct from the module's new text; one that is gone stays as it was until it is used."""
        try:
            found = self._scope.source.type(self.name)
        except CompileError:  # generic arguments that no longer fit
            return
        if isinstance(found, StructInfo):
            self.slang_type = found.type
            # Methods are looked up anew.
            for name in [n for n, v in list(self.__dict__.items()) if isinstance(v, Function) and n[0] != "_"]:
                self.__dict__.pop(name, None)
            self._read(found)

    def _read(self, info: StructInfo) -> None:
        self._info = info
        self._overloads: dict[str, list[FunctionSig]] = {}
        for sig in info.methods:
            self._overloads.setdefault(sig.name, []).append(with_this(info.type, sig))
        self.__doc__ = info.doc or None

    def __call__(self, /, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Make a value: by the struct's constructor, else a dict from its fields in order or by name.

        Arguments that are arrays make many: an array of structs from a constructor, a dict of arrays from fields;
        both are arguments for functions that take the struct.

        Raises
        ------
        BindError
            If there is no constructor and the fields are not those of the struct.
        """
        if self._info.constructors:
            if self._constructor is None:
                self._constructor = Function(self._scope, self.name, self._info.constructors)
            value = self._constructor(*args, _result=_result, **named)
            return {"_type": self.name, **value} if isinstance(value, dict) else value
        names = [f.name for f in self.slang_type.fields]
        given = dict(zip(names, args, strict=False)) | named
        needed = {f.name for f in self.slang_type.fields if not f.has_default}
        fit = needed <= set(given) <= set(names)
        if len(args) > len(names) or not fit or len(given) != len(args) + len(named):
            raise BindError(f"{self.name}: it takes each of its fields once: {', '.join(names) or 'none'}.")
        return {"_type": self.name, **{name: given[name] for name in names if name in given}}

    @property
    def name(self) -> str:
        """The struct's name, as Slang writes it."""
        return self.slang_type.name

    @property
    def fields(self) -> dict[str, str]:
        """The fields' names, and the names of their types."""
        return {f.name: f.type.name for f in self.slang_type.fields}

    def __getattr__(self, name: str) -> Function:
        overloads = self.__dict__.get("_overloads", {})
        if name not in overloads:
            if name.startswith("_") or not name.isidentifier():
                raise AttributeError(describe_name(name))
            try:
                # Methods of extensions are found by their names alone.
                function = self[name]
            except BindError as error:
                raise AttributeError(str(error)) from None
        else:
            function = Function(self._scope, f"{self.name}.{name}", tuple(overloads[name]))
        # The next look-up finds it without coming here. Another thread may have been first.
        found: Function = self.__dict__.setdefault(name, function)
        return found

    def __getitem__(self, name: str) -> Function:
        name = text(f"struct '{self.name}'", "the name in []", name)
        if name in self._overloads:
            found: Function = getattr(self, name)
            return found
        sigs = self._scope.source.functions(f"{self.name}.{name}")
        if not sigs:
            raise BindError(
                f"struct '{self.name}' has no method '{describe_name(name)}'; it has "
                f"{', '.join(self._overloads) or 'none'}."
            )
        own = tuple(with_this(self.slang_type, sig) for sig in sigs)
        return Function(self._scope, f"{self.name}.{name}", own)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._overloads})

    def __repr__(self) -> str:
        fields = " ".join(f"{f.type.name} {f.name};" for f in self.slang_type.fields)
        return f"<Slang struct {self.name} {{ {fields} }}>"


@reads("a struct")
def _again(scope: Scope, name: str) -> Struct:
    """Return a struct that was pickled."""
    check_scope("pickle", scope)
    name = text("pickle", "a struct's name", name)
    found = scope.source.type(name)
    if not isinstance(found, StructInfo):
        raise BindError(f"pickle: module '{scope.source.name}' has no struct '{name}' any more.")
    return Struct(scope, found)


def methods_of(struct: Struct) -> dict[str, list[FunctionSig]]:
    """Return the declarations of a struct's own methods by name; those of extensions are found when they are used."""
    return struct._overloads


def scope_of(struct: Struct) -> Scope:
    """Return the scope of a struct's module."""
    return struct._scope
