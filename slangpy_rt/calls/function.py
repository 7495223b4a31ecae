"""Function: a Slang function as a Python object. Immutable, but for the prepared calls that it remembers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from slangpy_rt.arguments.adapters import asks_for_autograd, is_torch
from slangpy_rt.arguments.bind import bind_whole
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.gradients import aliased, check_differentiable, with_gradients
from slangpy_rt.arguments.mapping import read_map
from slangpy_rt.arguments.options import NO_OPTIONS, Options
from slangpy_rt.arguments.resolve import resolve
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.signature import ARRAYS, endless, signature
from slangpy_rt.arguments.stand_ins import Asked, ask, hand_back, want_back
from slangpy_rt.calls.build import check_result_kind, prepare
from slangpy_rt.calls.command_list import Call, CommandList
from slangpy_rt.calls.prepared import MISS, PreparedCall
from slangpy_rt.core.checks import table, text, whole
from slangpy_rt.core.conversion import describe_name, kind_of
from slangpy_rt.core.dtypes import storage
from slangpy_rt.core.errors import BindError, CompileError, SlangPyRtError
from slangpy_rt.core.types import FunctionSig
from slangpy_rt.core.wording import describe
from slangpy_rt.runtime.core import DeviceCore
from slangpy_rt.runtime.stream import lane_of
from slangpy_rt.slang.declarations import find_overloads, gone, python_signature

if TYPE_CHECKING:
    from slangpy_rt.runtime.stream import Stream

# A prepared call, its values, and the stand-ins that were asked for them.
Known = tuple[PreparedCall, tuple[Any, ...], tuple[Asked, ...]]
# Forgetting all is simpler than forgetting the oldest, and as good for a program with that many layouts.
_MAX_CALLS = 4096


class Function:
    """A Slang function, to be called over arrays. Modules make them: ``module.add``.

    A function does not change: ``map``, ``set``, ``constants`` and the like return another one.

    Attributes
    ----------
    name : str
        Its name in Slang.
    overloads : tuple of FunctionSig
        Its declarations.
    """

    def __init__(
        self, scope: Scope, name: str, overloads: tuple[FunctionSig, ...], options: Options = NO_OPTIONS
    ) -> None:
        self.name = name
        self.overloads = overloads
        self._scope = scope
        self._device = scope.device
        self._watched = scope if scope.due < inf else None
        self._options = options
        # By the signatures of the arguments, and of arguments and _result.
        self._calls: dict[Any, PreparedCall] = {}
        self._calls_into: dict[Any, PreparedCall] = {}
        # What runs the last call again if the values are like its values, without and with _result.
        self._again: Callable[[tuple[Any, ...]], Any] | None = None
        self._again_into: Callable[[tuple[Any, ...]], Any] | None = None
        # Functions that modifiers made of this one, by what they were given.
        self._variants: dict[Any, Function] = {}
        # What ``set`` gave to uniforms, in the order of the options' names.
        self._values: tuple[Any, ...] = ()
        # Where its calls run; None is the device's own queue.
        self._stream: Stream | None = None
        # Of a function with such values, or with a stream, the one that follows the module's text.
        self._base: Function | None = None
        scope.followers.add(self)
        self._describe()

    def _describe(self) -> None:
        overloads = self.overloads
        self.__doc__ = "\n\n".join(f"{sig}\n{sig.doc}".strip() for sig in overloads)
        if len(overloads) == 1:
            self.__signature__ = python_signature(overloads[0])

    def forget(self) -> None:
        """Drop the prepared calls: the next call looks whether the device is still open."""
        self._calls.clear()
        self._calls_into.clear()
        self._again = self._again_into = None

    def source_changed(self) -> None:
        """Follow the module's new text."""
        try:
            self.overloads = find_overloads(self._scope.source, self.name)
        except CompileError:  # generic arguments that no longer fit; the next call says so
            self.overloads = ()
        self._describe()

    def __call__(self, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Run the function once for every element that its arguments broadcast to.

        Parameters
        ----------
        *args, **named
            One value a Slang parameter: numbers, NumPy arrays, nested lists, dicts for structs, Tensors,
            NDBuffers, or generators such as ``call_id()`` and ``grid(shape)``.
        _result : Tensor, NDBuffer, numpy.ndarray, str or type, optional
            Where the result goes, or as what it comes: ``"tensor"``, ``"ndbuffer"``, ``"numpy"``. ``out`` is
            another name for it.

        Returns
        -------
        Tensor, NDBuffer, numpy.ndarray or number
            By the arguments: a Tensor if one of them is, else an NDBuffer, else a NumPy array; a number when
            all are numbers. A struct is a dict then. None for a function without a result.

        Raises
        ------
        BindError
            If an argument does not fit its parameter, or overloads fit equally well.
        ShapeError
            If the arguments' shapes do not broadcast.
        CompileError
            If the kernel does not compile.
        """
        if self._watched is not None and monotonic() >= self._watched.due:
            self._watched.check()
        if named:
            return self._call_named(args, _result, named)
        if _result is None:
            values, calls, again = args, self._calls, self._again
        else:
            values, calls, again = (*args, _result), self._calls_into, self._again_into
        if again is not None:
            out = again(values)
            if out is not MISS:
                return out
        try:
            key = tuple([a.layout if type(a) in ARRAYS else signature(a) for a in values])
        except RecursionError:
            raise endless(self.name, values) from None
        call = calls.get(key)
        if call is None:
            return self._ran(*self._unknown(values, len(args), (), _result is not None))
        if call.pointers:
            self._expect(key, call, values, _result is not None)
        return call.run(values)

    call = __call__

    def map(self, *args: Any, **named: Any) -> Function:
        """Say how arguments run along the call's dimensions.

        Parameters
        ----------
        *args, **named
            For each argument: a tuple with the call dimension of each of its dimensions, ``()`` for an argument
            that is not vectorized, a type or its name that the argument is taken for, a dict of these for the
            fields of a struct (``"$type"`` for the struct itself), or None for what broadcasting would do.
            ``_result`` can be named too.

        Returns
        -------
        Function
            This function, mapped so; an earlier ``map`` is forgotten.

        Examples
        --------
        ``outer = multiply.map((0,), (1,))`` multiplies every element of its first argument with every element
        of its second; ``transpose = copy.map((1, 0))``; ``trace = copy.map((0, 0))`` reads a diagonal.
        """

        where = f"{self.name}.map"
        maps = tuple(read_map(f"{where}: entry {k}", v) for k, v in enumerate(args))
        named_maps = tuple((name, read_map(f"{where}: {name}", v)) for name, v in named.items())
        return self._variant(
            ("map", maps, named_maps), lambda: replace(self._options, maps=maps, named_maps=named_maps)
        )

    def constants(self, values: Mapping[str, Any]) -> Function:
        """Give values to ``extern static const`` declarations; each set of values is a kernel of its own.

        Parameters
        ----------
        values : mapping
            bool, int, float, or a list of these for a vector, by the constant's name.

        Raises
        ------
        BindError
            At the call, if the module declares no constant of that name.
        """
        if not isinstance(values, Mapping):
            raise BindError(f"{self.name}.constants: {describe(values)} is no dict of values by name.")
        where = f"{self.name}.constants"
        frozen = {name: _frozen(f"{where}: '{name}'", v) for name, v in table(where, "values", values).items()}

        def options() -> Options:
            return replace(self._options, constants=tuple({**dict(self._options.constants), **frozen}.items()))

        return self._variant(("constants", tuple((k, type(v), v) for k, v in frozen.items())), options)

    def set(self, values: Mapping[str, Any] | None = None, **named: Any) -> Function:
        """Give values to the module's global ``uniform`` variables.

        Parameters
        ----------
        values, **named
            Numbers, vectors or structs by the variable's name.

        Raises
        ------
        BindError
            At once, if the module has no such variable.
        """
        if values is not None and not isinstance(values, Mapping):
            raise BindError(f"{self.name}.set: {describe(values)} is no dict of values by name.")
        given = dict(zip(self._options.uniforms, self._values, strict=True)) | dict(values or {}) | named
        self._check_uniforms(given)
        found = self._variant(("set", tuple(given)), lambda: replace(self._options, uniforms=tuple(given)))
        out = found._with_values(tuple(given.values()))
        out._stream = self._stream
        return out

    def return_type(self, kind: Any) -> Function:
        """Say as what results come: ``Tensor``, ``NDBuffer``, ``numpy.ndarray`` or their names in lower case."""
        if not isinstance(kind, (str, type)):
            check_result_kind(f"{self.name}.return_type", kind)
        return self._variant(("return_type", kind), lambda: replace(self._options, returns=kind))

    def group_size(self, size: int | tuple[int, ...]) -> Function:
        """Set the threads of a thread group on a GPU.

        Parameters
        ----------
        size : int or tuple of int
            With several numbers a group covers a tile of the call's last dimensions, the last dimension last,
            as in shapes. Devices without thread groups compute the same without them.

        Raises
        ------
        BindError
            If it is not made of one to three whole numbers whose product is between 1 and 1024.
        """
        sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,)
        product = 1
        for n in sizes:
            product *= int(n) if isinstance(n, (int, np.integer)) and n > 0 else 0
        if not 1 <= len(sizes) <= 3 or not 1 <= product <= 1024:
            raise BindError(
                f"{self.name}.group_size: {describe(size)} is not one to three whole numbers whose product "
                "is 1 to 1024."
            )
        sizes = tuple(int(n) for n in sizes)
        return self._variant(("group_size", sizes), lambda: replace(self._options, group=sizes))

    def type_conformances(self, *conformances: tuple[str, str] | tuple[str, str, int]) -> Function:
        """Name the structs that values of an interface type may have at run time.

        Parameters
        ----------
        *conformances
            ``(interface, struct)`` or ``(interface, struct, number)``, the number being what data says.
        """
        if not all(isinstance(c, tuple) and len(c) in (2, 3) for c in conformances):
            raise BindError(
                f"{self.name}.type_conformances: {describe(conformances)} are not tuples of an interface, a "
                "struct and, "
                "if need be, a number."
            )
        where = f"{self.name}.type_conformances"
        items = tuple(
            (
                text(where, "an interface", getattr(c[0], "name", c[0])),
                text(where, "a struct", getattr(c[1], "name", c[1])),
                whole(where, "the number", c[2], 0, 2**32 - 1) if len(c) > 2 else k,
            )
            for k, c in enumerate(conformances)
        )
        return self._variant(("conformances", items), lambda: replace(self._options, conformances=items))

    def stream(self, stream: Stream) -> Function:
        """Say on which stream calls run.

        Raises
        ------
        BindError
            If it is no stream of the function's device.
        """
        lane_of(self._device, f"{self.name}.stream", stream)
        if stream is None:
            raise BindError(
                f"{self.name}.stream: None is no stream; without one calls run on the device's own queue."
            )
        out = self._with_values(self._values)
        out._stream = stream
        return out

    @property
    def bwds(self) -> Function:
        """The backward derivative: adds to the gradients of its arguments, and returns None.

        It takes the function's arguments, tensors among them ``with_grads``. What the function writes, its result
        as ``_result`` among that, brings the gradient that is propagated back (``grad_in``); what it reads gets the
        sum of what every element of the call contributes (added to ``grad_out``, which is never zeroed here).
        ``no_diff`` parameters and arguments without gradients are constants.

        Raises
        ------
        BindError
            At the call: if the function is not ``[Differentiable]``, a gradient of what it writes is missing, or
            no argument has one to add to.
        """
        return self._derivative("backward")

    @property
    def fwds(self) -> Function:
        """The forward derivative: computes the result and its tangent, from tangents of the arguments.

        Tangents of arguments are their ``grad_in``; the result's goes to its ``grad_out``, and calls with numbers
        alone, ``diff_pair(2.0, 1.0)`` among them, return a DiffPair. Arguments without are constants.

        Raises
        ------
        BindError
            At the call, if the function is not ``[Differentiable]``.
        """
        return self._derivative("forward")

    def _derivative(self, kind: str) -> Function:
        if self._options.derivative:
            raise BindError(f"{self.name}: derivatives of derivatives are not supported.")
        return self._variant(("derivative", kind), lambda: replace(self._options, derivative=kind))

    def bind(self, *args: Any, _result: Any = None, **named: Any) -> Callable[[], Any]:
        """Prepare a call once, to be replayed by calling what this returns, without arguments.

        Arrays are taken by reference: replaying sees what they hold then. Numbers stay as they are now.
        """
        call, values, asked = self._known(args, _result, named)
        if asked:
            # What these stand for is asked at each call.
            return partial(self._call_named, args, _result, named)
        return call.bound_to(values, self._stream)

    def append_to(self, commands: CommandList, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Record a call in a command list instead of running it.

        Parameters
        ----------
        commands : CommandList
            Of the same device.
        *args, _result, **named
            As of a call, but arrays are on the device.

        Returns
        -------
        Tensor, NDBuffer or None
            Where the result will be.

        Raises
        ------
        BindError
            As a call; also if an argument is a NumPy array or a ValueRef, which nothing would bring back.
        """
        if not isinstance(commands, CommandList) or commands.device is not self._device:
            raise BindError(f"{self.name}.append_to: {describe(commands)} is no command list of {self._device!r}.")
        if self._stream is not None:
            raise BindError(f"{self.name}.append_to: a list runs on one stream as a whole: commands.submit(stream).")
        call = self.recorded(args, _result, named)
        commands._add(call)
        return call.result

    def recorded(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> Call:
        """A call as a command list keeps it; for its use."""
        self._device.check_open()
        given, _ = ask((*args, *named.values()))
        args, named = given[: len(args)], dict(zip(named, given[len(args) :], strict=True))
        prepared, values, _ = self._known(args, result, named)
        if result is None and "out" not in named and prepared.returns_host_data:
            prepared, values, _ = self._known(args, "tensor", named)
        copies, dispatch, out = prepared.recorded(values)
        return Call(prepared.spec.title, dispatch, out, self, prepared, prepared.launcher, tuple(copies))

    def result_of(self, args: tuple[Any, ...]) -> tuple[tuple[int, ...], Any]:
        """Shape and NumPy dtype of what a call would return, without running it; for the rest of the package."""
        call = self._prepared(args, None, {})
        stored = storage(call.bound[-1].type)
        assert stored is not None
        return call.shape + stored.dims, stored.dtype

    def dispatch(self, threads: Any, *args: Any, **named: Any) -> None:
        """Of kernels alone; see ``Kernel.dispatch``.

        Raises
        ------
        BindError
            Always: a function has no thread group.
        """
        raise BindError(f"{self.name}: only a [numthreads] kernel is dispatched; call this: {self.name}(...).")

    def source(self, *args: Any, _result: Any = None, **named: Any) -> str:
        """The Slang text of the kernel that this call would run."""
        return self._prepared(args, _result, named).text

    def explain(self, *args: Any, _result: Any = None, **named: Any) -> str:
        """How this call would run: each argument's type, call dimensions and access, then the kernel."""
        call = self._prepared(args, _result, named)
        rows = [("argument", "Slang type", "call dimensions", "mode", "access")]
        leaves = [b for bound in call.bound for b in bound.places]
        places = [o for tree in call.spec.all_operands for o in tree.places]
        for b, o in zip(leaves, places, strict=True):
            whole = f"{b.shape} of whole {b.view[0]}" if b.mode == "tensor" else str(b.shape)
            rows.append((b.name, b.type.name, whole, o.mode, b.access))
            for g, gradient in zip(b.gradients, o.gradients, strict=True):
                rows.append((g.name, g.type.name, whole, gradient.mode, gradient.access))
        widths = [max(len(row[k]) for row in rows) for k in range(5)]
        table = "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
        return (
            f"{call.spec.title} on {self._device.name}\n"
            f"call shape {call.shape}, {call.spec.rank} dimension(s) once merged, "
            f"{call.spec.width} element(s) a thread, {call.spec.index} indices\n\n{table}\n\n{call.text}"
        )

    @property
    def device(self) -> DeviceCore:
        """Where it runs."""
        return self._device

    @property
    def return_type_name(self) -> str:
        """What it returns, as Slang writes it."""
        return self.overloads[0].returns.name

    @property
    def signature(self) -> str:
        """Its declarations, one a line."""
        return "\n".join(map(str, self.overloads))

    def __repr__(self) -> str:
        kind = f"{self._options.derivative} derivative of" if self._options.derivative else "Slang function"
        return f"<{kind} {'; '.join(map(str, self.overloads))}>"

    def _variant(self, key: Any, options: Callable[[], Options]) -> Function:
        """The function with other options; the same object for the same modifier, so that its calls stay prepared."""
        found = self._variants.get(key)
        if found is None:
            found = self._variants[key] = self._variant_of(options())
        if not self._values and self._stream is None:
            return found
        found = found._with_values(self._values)
        found._stream = self._stream
        return found

    def _call_named(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> Any:
        if "_append_to" in named:
            return self.append_to(named.pop("_append_to"), *args, _result=result, **named)
        return self._ran(*self._known(args, result, named))

    def _ran(self, call: PreparedCall, values: tuple[Any, ...], asked: tuple[Asked, ...] = ()) -> Any:
        out = call.run(values) if self._stream is None else call.run_on(self._stream, values)
        told = want_back(asked) if asked else ()
        if told:
            hand_back(told, call.written(values))
        return out

    def _all_values(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> tuple[Any, ...]:
        """Positional values, keyword values, those of uniforms, and then ``_result`` if one was given."""
        if not named and not self._values:
            return args if result is None else (*args, result)
        result, named = self._take_out(result, named)
        values = (*args, *named.values(), *self._values)
        return values if result is None else (*values, result)

    def _prepared(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> PreparedCall:
        return self._known(args, result, named)[0]

    def _known(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> Known:
        """A call, its values, and the stand-ins that were asked for them."""
        if self._watched is not None and monotonic() >= self._watched.due:
            self._watched.check()
        values = self._all_values(args, result, named)
        result, named = self._take_out(result, named)
        calls = self._calls if result is None else self._calls_into
        call = calls.get(self._key(values, tuple(named)))
        if call is not None:
            return call, values, ()
        return self._unknown(values, len(args) + len(named), tuple(named), result is not None)

    def _unknown(self, values: tuple[Any, ...], count: int, names: tuple[str, ...], into: bool) -> Known:
        """As ``_known``, of values whose signature no prepared call has; the first ``count`` are arguments."""
        values, asked = ask(values)
        key = self._key(values, names)
        calls = self._calls_into if into else self._calls
        call = calls.get(key)
        if call is None:
            uniforms = values[count : len(values) - into]
            result = values[-1] if into else None
            call = self._remembered(calls, key, lambda: self._prepare_anew(values[:count], names, result, uniforms))
        return call, values, asked

    def _key(self, values: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        try:
            key = (*[a.layout if type(a) in ARRAYS else signature(a) for a in values], *names)
        except RecursionError:
            raise endless(self.name, values) from None
        return (*key, aliased(values)) if self._options.derivative else key

    def _take_out(self, result: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """``out=`` is ``_result=``, unless the function has a parameter of that name."""
        if "out" not in named or any(p.name == "out" for sig in self.overloads for p in sig.params):
            return result, named
        if result is not None:
            raise BindError(f"{self.name}: out and _result are the same thing; give one of them.")
        rest = {key: value for key, value in named.items() if key != "out"}
        return named["out"], rest

    def _expect(self, key: Any, call: PreparedCall, values: tuple[Any, ...], into: bool) -> None:
        """Expect further calls like this one."""
        if into:
            self._again_into = call.again(values, self._again_into)
        else:
            self._again = call.again(values, self._again)
        # Another thread may have forgotten all calls in between.
        if (self._calls_into if into else self._calls).get(key) is not call:
            self._again = self._again_into = None

    def _variant_of(self, options: Options) -> Function:
        kind = _GeneralFunction if options.derivative else Function
        return kind(self._scope, self.name, self.overloads, options)

    def _with_values(self, values: tuple[Any, ...]) -> Function:
        """The same function with the same prepared calls, and values of its own for uniforms."""
        out = object.__new__(_GeneralFunction)
        out.__dict__.update(self.__dict__)
        out._values, out._base = values, self._base or self
        return out

    def _check_uniforms(self, names: Iterable[str]) -> None:
        known = [p.name for p in self._scope.source.info.uniforms]
        for name in names:
            if name not in known:
                raise BindError(
                    f"{self.name}.set: there is no uniform '{describe_name(name)}'; the module has "
                    f"{', '.join(known) or 'none'}."
                )

    def _uniforms(self, values: tuple[Any, ...]) -> tuple[tuple[str, Bound], ...]:
        """What ``set`` gave, bound."""
        self._check_uniforms(self._options.uniforms)
        known = {p.name: p for p in self._scope.source.info.uniforms}
        return tuple(
            (name, bind_whole(f"{self.name}.set: uniform '{name}'", self._scope, known[name], value))
            for name, value in zip(self._options.uniforms, values, strict=True)
        )

    def _remembered(self, calls: dict[Any, PreparedCall], key: Any, make: Callable[[], PreparedCall]) -> PreparedCall:
        """Prepare a call of the module as it is now, and remember it."""
        scope = self._scope
        while True:
            age = scope.age
            try:
                call = make()
            except SlangPyRtError:
                if scope.age is age:
                    raise
                continue
            if len(calls) >= _MAX_CALLS:
                calls.clear()
            # Another thread may have been first; a list knows calls of one layout by their being one.
            call = calls.setdefault(key, call)
            # After an edit, or when the device closes, all calls are forgotten: one in the making then must not stay.
            if scope.age is age:
                return call
            calls.pop(key, None)

    def _prepare_anew(
        self, args: tuple[Any, ...], names: tuple[str, ...], result: Any, values: tuple[Any, ...]
    ) -> PreparedCall:
        self._device.check_open()
        scope, options = self._scope, self._options
        if self._base is not None:
            self.overloads = self._base.overloads
        if not self.overloads:
            raise gone(self.name, scope.source)
        for interface, struct, _ in options.conformances:
            if not scope.source.conforms(struct, interface):
                raise BindError(f"{self.name}.type_conformances: '{struct}' does not implement '{interface}'.")
        if any(asks_for_autograd(a) for a in args):
            call: PreparedCall = self._autograd_call(args, names)
            return call
        chosen = resolve(scope, self.name, self.overloads, args, names, options)
        uniforms = self._uniforms(values)
        order = (*range(len(args), len(args) + len(uniforms)), *chosen.order)
        bound, shared = chosen.bound, False
        if options.derivative:
            modifier = "bwds" if options.derivative == "backward" else "fwds"
            check_differentiable(scope, chosen.sig, modifier)
            bound = tuple(
                with_gradients(
                    f"{chosen.sig}: .{modifier}: argument '{p.name}'", scope, p, b, args[k],
                    options.map_of(p.name, k, len(args) - len(names)), options.derivative,
                )
                for p, b, k in zip(chosen.sig.params, bound, chosen.order, strict=False)
            )  # fmt: skip
            shared = aliased(args)
        return prepare(scope, chosen.sig, bound, order, result, options, uniforms, shared)

    def _autograd_call(self, args: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        """A call in PyTorch's graph, checked as far as it can be before it runs."""
        if self._options.derivative:
            raise BindError(
                f"{self.name}: derivatives take Tensors with_grads, not torch tensors that require a gradient; torch "
                "calls them itself, in tensor.backward()."
            )
        from slangpy_rt.interop.autograd import AutogradCall, as_tensors

        plain = tuple([a.detach() if is_torch(type(a)) else a for a in args])
        resolve(self._scope, self.name, self.overloads, plain, names, self._options)
        seen = as_tensors(self.name, self._device, plain)
        chosen = resolve(self._scope, self.name, self.overloads, seen, names, self._options)
        check_differentiable(self._scope, chosen.sig, "an argument that requires a gradient")
        params = chosen.sig.params
        if any(p.direction == "inout" for p in params):
            raise BindError(
                f"{chosen.sig}: of an 'inout' parameter, autograd would need what was there before; return the "
                "result, write it to an 'out' parameter, or call within torch.no_grad()."
            )
        outs = tuple(k for p, k in zip(params, chosen.order, strict=False) if p.direction == "out")
        if chosen.sig.returns.kind == "void" and not outs:
            raise BindError(f"{chosen.sig}: a function without a result has no place in autograd.")
        # Calls are remembered for all that share the options, whatever their uniforms and streams.
        plainly, uniforms = self._base or self, len(self._options.uniforms)
        return AutogradCall(plainly, len(args) - len(names), names, uniforms, chosen.sig, outs)


def _frozen(where: str, value: Any) -> Any:
    """A constant's value as one that is compared by what it is."""
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.ndim == 1 else value[()] if value.ndim == 0 else value
    items = value if isinstance(value, (list, tuple)) else (value,)
    if len(items) > 4 or not all(kind_of(v) in "biuf" for v in items):
        raise BindError(
            f"{where} is {describe(value)}; a number, or a list of up to four for a vector, was expected."
        )
    return tuple(items) if isinstance(value, (list, tuple)) else value


class _GeneralFunction(Function):
    """A function whose calls are more than its arguments: with values for uniforms, a stream, or a derivative."""

    def __call__(self, *args: Any, _result: Any = None, **named: Any) -> Any:
        """As ``Function``'s."""
        return self._call_named(args, _result, named)

    call = __call__
