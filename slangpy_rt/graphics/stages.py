"""Stages: the two functions of a module that draw triangles, one for corners and one for pixels."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from slangpy_rt.arguments.differentials import differentiates
from slangpy_rt.arguments.kept import copied
from slangpy_rt.arguments.mapping import NO_MAP
from slangpy_rt.arguments.resolve import specialised
from slangpy_rt.arguments.scope import ScopeOfUniforms
from slangpy_rt.calls.callee import Callee
from slangpy_rt.calls.function import Function
from slangpy_rt.calls.spelling import Spelling
from slangpy_rt.core.errors import BindError, CompileError
from slangpy_rt.core.types import FunctionSig, Param
from slangpy_rt.core.wording import in_words
from slangpy_rt.graphics.pixel_text import COLORS, Leaf, is_fragment, leaves_of, pixel_text
from slangpy_rt.slang.declarations import find_overloads, gone
from slangpy_rt.slang.locate import shader_directory

# Modifiers that say how one call runs; a picture has several.
_REFUSED = {"maps": "map", "named_maps": "map", "returns": "return_type", "conformances": "type_conformances",
            "derivative": "bwds or .fwds"}  # fmt: skip


class Declarations(NamedTuple):
    """The declarations of both functions, and the leaves of the struct that corners have."""

    shade: FunctionSig
    project: FunctionSig
    leaves: tuple[Leaf, ...]

    @property
    def color(self) -> str:
        """The element type of pictures."""
        return self.shade.returns.name


class Stages:
    """Two functions of a module that draw triangles together.

    Parameters
    ----------
    shade : Function
        The color of a point: its first parameter is the struct that `project` returns.
    project : Function
        Where a corner is, and what else it has.

    Raises
    ------
    BindError
        If the functions do not fit each other, or are called with a modifier that says how one call runs.

    Attributes
    ----------
    where : str
        The name for messages.
    """

    def __init__(self, shade: Function, project: Any) -> None:
        self.where = where = f"{shade.name}.raster"
        if not isinstance(project, Function):
            raise BindError(f"{where}: project is {in_words(project)}; a function of the module was expected.")
        self._shade, self._project = Callee(shade), Callee(project)
        for callee in (self._shade, self._project):
            said = [name for option, name in _REFUSED.items() if getattr(callee.options, option)]
            if callee.stream is not None:
                said.append("stream")
            if said:
                raise BindError(
                    f"{where}: '{callee.function.name}' has .{said[0]}; the function itself was expected, with "
                    ".set(...), .constants(...) and .group_size(...) at most."
                )
        # Lists and arrays of the host in values of ``set`` may be changed between a picture and its gradient.
        self._shade, self._project = [
            callee.with_values(tuple(map(copied, callee.values))) for callee in (self._shade, self._project)
        ]
        if self._project.scope is not self._shade.scope:
            raise BindError(
                f"{where}: '{project.name}' and '{shade.name}' are of different modules; they share a struct, so "
                "that both have to be of one."
            )
        self.declarations()

    @property
    def device(self) -> Any:
        """The device of their module."""
        return self._shade.scope.device

    @property
    def age(self) -> object:
        """What is another object after their module was read anew, or its prepared calls were dropped."""
        self._shade.scope.look()
        return self._shade.scope.age

    @property
    def uniforms(self) -> tuple[tuple[str, Any], ...]:
        """The names and values of uniforms of both functions."""
        return tuple([
            pair for c in (self._shade, self._project) for pair in zip(c.options.uniforms, c.values, strict=True)
        ])  # fmt: skip

    @property
    def project(self) -> Function:
        """The function for corners."""
        found: Function = self._project.function
        return found

    @property
    def names(self) -> tuple[str, str]:
        """The names of both functions, that for corners first."""
        return self._project.function.name, self._shade.function.name

    def declarations(self) -> Declarations:
        """Return the declarations of both functions, as they are in the text now.

        Raises
        ------
        BindError
            If they do not fit each other.
        """
        where = self.where
        self._shade.scope.look()
        shade, project = (_only(where, callee) for callee in (self._shade, self._project))
        source = self._shade.scope.source
        if source.statics:
            raise BindError(
                f"{where}: its module may change static variables, which would keep their values from one pixel to "
                "the next; use parameters and local variables instead."
            )
        for sig in (shade, project):
            for p in sig.params:
                if p.direction != "in":
                    raise BindError(f"{where}: {sig} writes its parameter '{p.name}'; a picture is its result alone.")
        leaves = leaves_of(f"{where}: {project}", self._shade.scope.struct(project.returns))
        first = shade.params[0].type if shade.params else None
        if first is None or not (first.name == project.returns.name or is_fragment(first, project.returns)):
            raise BindError(
                f"{where}: the first parameter of {shade} was expected to be {project.returns.name}, which "
                f"'{project.name}' returns, or a Fragment<{project.returns.name}>."
            )
        if shade.returns.name not in COLORS:
            raise BindError(f"{where}: {shade} was expected to return one of {', '.join(COLORS)}.")
        found = Declarations(shade, project, leaves)
        if not (shade.generics or project.generics):
            _check_names(where, found)
        return found

    def specialised(self, declared: Declarations, named: dict[str, Any]) -> Declarations:
        """Return the Declarations with generic parameters inferred from arguments; others as they are.

        Parameters
        ----------
        declared : Declarations
            The declarations.
        named : dict
            The arguments of both functions by name.

        Raises
        ------
        BindError
            If the arguments do not say what a generic parameter stands for, or both functions take one differently.
        """
        shade, project, leaves = declared
        if not (shade.generics or project.generics):
            return declared
        scope = self._shade.scope
        made = [
            specialised(scope, sig, [(p, named[p.name], NO_MAP) for p in params if p.name in named])
            if sig.generics
            else sig
            for sig, params in ((shade, shade.params[1:]), (project, project.params))
        ]
        found = Declarations(made[0], made[1], leaves)
        _check_names(self.where, found)
        return found

    def check_differentiable(self, declared: Declarations, modifier: str, moves: bool) -> None:
        """Refuse derivatives of functions that have none.

        Parameters
        ----------
        declared : Declarations
            Their declarations.
        modifier : str
            The modifier that asks for them.
        moves : bool
            Whether corners have gradients, too.

        Raises
        ------
        BindError
            If a function is not ``[Differentiable]``.
        """
        shade, project, _ = declared
        self._shade.check_differentiable(shade, modifier)
        if moves:
            self._project.check_differentiable(project, modifier)

    def pixel(self, declared: Declarations, given: Container[str]) -> Any:
        """Return the function that pixels call, made once for the module's text and the parameters that are given.

        Parameters
        ----------
        declared : Declarations
            The declarations.
        given : container of str
            The names of the arguments. Those at the end that are missing have their defaults.
        """
        whole, project, leaves = declared
        count = len(whole.params)
        while count > 1 and whole.params[count - 1].has_default and whole.params[count - 1].name not in given:
            count -= 1
        shade = replace(whole, params=whole.params[:count])
        scope, options = self._shade.scope, self._shade.options
        source = scope.source
        key = ("raster", source.digest, shade, project.returns, leaves, repr(options.constants), options.group)
        found = scope.ready.get(key)
        if found is None:
            folder = Path(shader_directory())
            modules = (source.name, *source.imports)
            active = {
                p.name for p in shade.params[1:] if not p.no_diff and differentiates(scope, scope.struct(p.type))
            }
            texts = {
                "_spy_raster": (folder / "_spy_raster.slang").read_text("utf-8"),
                "_spy_pixel": pixel_text(
                    Spelling(str(shade), source), modules, shade, project.returns, leaves, active
                ),
            }
            try:
                made = source.on(scope.device.backend.target).followed_by(texts, dict(options.constants))
            except CompileError as error:
                internal = "is not accessible from the current context" in str(error)
                hint = " It is internal to its module; write 'public' in front of it." * internal
                raise CompileError(f"{self.where}: pixels cannot call {shade}.{hint}\n{error}") from error
            inner = ScopeOfUniforms(scope.device, made, source)
            # The user knows none of its other parameters.
            sigs = tuple(
                replace(sig, title=f"{self.where}: {whole}", params=_named(sig.params, shade.params[1:]))
                for sig in find_overloads(made, "_spy_pixel")
            )
            found = Function(inner, "_spy_pixel", sigs)
            if options.group:
                found = found.group_size(options.group)
            found = scope.ready.setdefault(key, found)
        values = dict(zip(options.uniforms, self._shade.values, strict=True))
        return found.set(values) if values else found


def _only(where: str, callee: Callee) -> FunctionSig:
    overloads = callee.overloads
    if not overloads:
        raise gone(callee.function.name, callee.scope.source)
    if len(overloads) > 1:
        raise BindError(f"{where}: '{overloads[0].name}' has {len(overloads)} declarations; give one another name.")
    return overloads[0]


def _named(params: Sequence[Param], last: Sequence[Param]) -> tuple[Param, ...]:
    """Return parameters of which the last have the names of others, and defaults where those have some."""
    first = len(params) - len(last)
    pairs = zip(params[first:], last, strict=True)
    return (*params[:first], *(replace(p, name=q.name, has_default=q.has_default) for p, q in pairs))


def _check_names(where: str, declared: Declarations) -> None:
    """Refuse an argument of both functions that has two types."""
    shade, project, _ = declared
    types = {p.name: p.type.name for p in project.params}
    for p in shade.params[1:]:
        if types.get(p.name, p.type.name) != p.type.name:
            raise BindError(
                f"{where}: '{p.name}' is {types[p.name]} in {project} and {p.type.name} in {shade}; give one of "
                "them another name."
            )
