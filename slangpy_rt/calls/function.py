"""Function: a Slang function as a Python object. Immutable, but for the prepared calls that it remembers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from slangpy_rt.arguments.adapters import asking_for_autograd
from slangpy_rt.arguments.indices import grid
from slangpy_rt.arguments.options import Options, check_options
from slangpy_rt.arguments.signature import ARRAYS, SIGNERS, aliased, carries_gradients, endless
from slangpy_rt.arguments.stand_ins import Asked, ask, hand_back, note_on, want_back
from slangpy_rt.arrays.operators import RECORDER
from slangpy_rt.calls.callable import SlangCallable, check_scope
from slangpy_rt.calls.command_list import Call, CommandList, add
from slangpy_rt.calls.prepared_calls import MISS
from slangpy_rt.core.checks import group_sizes, short_tracebacks, shortened, text
from slangpy_rt.core.errors import BindError, SlangPyRtError
from slangpy_rt.runtime.pickling import damaged, reads
from slangpy_rt.slang.declarations import find_overloads, gone

if TYPE_CHECKING:
    from slangpy_rt.arguments.scope import Scope
    from slangpy_rt.calls.gradient_report import GradientReport
    from slangpy_rt.calls.prepared import PreparedCall

    # A prepared call, its values, and the stand-ins that were replaced in them.
    Known = tuple[PreparedCall, tuple[Any, ...], tuple[Asked, ...]]


# Above this package: it calls functions.
_RASTER = "slangpy_rt.graphics.raster"


@short_tracebacks("bind", "value_and_grad", "check_grads", "dispatch", "raster", "source", "explain")
class Function(SlangCallable):
    """A Slang function, to be called over arrays. Modules make them: ``module.add``.

    A function does not change: ``map``, ``set``, ``constants`` and the other modifiers return a new one.

    Attributes
    ----------
    name : str
        Its name in Slang.
    overloads : tuple of FunctionSig
        Its declarations.
    """

    def __call__(self, /, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Run the function once for every element that its arguments broadcast to.

        Parameters
        ----------
        *args, **named
            One value for each Slang parameter: numbers, NumPy arrays, nested lists, dicts for structs, Tensors,
            NDBuffers, or generators such as ``call_id()`` and ``grid(shape)``.
        _result : Tensor, NDBuffer, numpy.ndarray, str or type, optional
            The array to write the result to, or the kind of a new one: ``"tensor"``, ``"ndbuffer"``, ``"numpy"``,
            ``"torch"``. ``out`` is another name for this parameter.

        Returns
        -------
        Tensor, NDBuffer, numpy.ndarray or number
            By the arguments: a Tensor if one of them is, else an NDBuffer, else a NumPy array; a number, or a dict
            for a struct, when all are numbers. None for a function without a result.

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
        if named or self._general:
            try:
                return self._call_named(args, _result, named)
            except SlangPyRtError as error:
                raise shortened(error) from error.__cause__
        if _result is None:
            values, calls = args, self._calls
        else:
            values, calls = (*args, _result), self._calls_into
        guarded = calls.guarded
        if guarded is not None:
            out = guarded(values)
            if out is not MISS:
                return out
        try:
            key = tuple([a.layout if type(a) in ARRAYS else SIGNERS[type(a)](a) for a in values])
        except RecursionError as error:
            raise endless(self.name, values, error) from None
        call = calls.get(key)
        if call is None:
            try:
                return self._ran(*self._unknown(values, len(args), (), _result is not None))
            except SlangPyRtError as error:
                raise shortened(error) from error.__cause__
        if call.guards:
            calls.guard(key, call, values)
        return call.run(values)

    call = __call__

    def bind(self, /, *args: Any, _result: Any = None, **named: Any) -> Callable[[], Any]:
        """Prepare a call once, and return a function without arguments that repeats it.

        Arrays are taken by reference: each repetition reads what they hold then. Numbers, the parts of lists and
        dicts, and the gradients that a tensor carries stay those of now.
        """
        call, values, asked = self._known(args, _result, named)
        if asked:
            # The methods of stand-ins are called at each call.
            return partial(self._call_named, args, _result, named)
        return call.freeze(values, self._stream)

    def value_and_grad(self, /, *args: Any, **named: Any) -> tuple[Any, dict[str, Any]]:
        """Return the sum of the results of a call, and the gradient of that sum.

        A function that returns a loss is called with the parameters and the data; every element of the call counts
        once. This is what ``jax.value_and_grad`` returns of ``lambda *args: f(*args).sum()``.

        Parameters
        ----------
        *args, **named
            As for a call. Tensors, arrays and lists on the host, numbers, vectors, and what dicts, lists and objects
            with fields hold of these get a gradient, unless the parameter is ``no_diff`` or holds no floats; other
            arguments are constants. Gradients that a Tensor carries are left alone.

        Returns
        -------
        value : Tensor or float
            The sum: a Tensor without dimensions if an argument is an array on the device, else a number.
        gradients : dict
            A new Tensor, array, number or vector for each argument that has a gradient, by the name of its parameter;
            for a struct a dict of them by field, for a list of parts a list.

        Raises
        ------
        BindError
            As a call does; also if the function is not ``[Differentiable]``, returns no float, writes to a
            parameter or to a whole array, or an argument that has a gradient is another library's array on a GPU.
        """
        # As for a first call: no program needs this before it.
        from slangpy_rt.calls.value_and_grad import value_and_grad

        return value_and_grad(self, args, named)

    def check_grads(self, /, *args: Any, raise_on_error: bool = False, seed: int = 0, **named: Any) -> GradientReport:
        """Compare the derivatives of a call with each other and with central differences, and print the comparison.

        For each argument, and each field of a struct, the call is moved along a random direction: the gradient that
        ``bwds`` adds, times the direction, has to be the tangent that ``fwds`` computes, times the gradient that
        ``bwds`` is given, and both the central difference of the function. The value that ``fwds`` computes has to be
        that of a call.

        Parameters
        ----------
        *args, **named
            As for a call, ``out`` arguments included. Arguments need no gradients, and nothing is written to them or
            to gradients that they carry.
        raise_on_error : bool
            Whether an error is raised if something is wrong.
        seed : int
            The seed of the random directions. A parameter of this name, or of the name before, takes the value in
            place of the option.

        Returns
        -------
        GradientReport
            Rows for arguments and results, which print as a table; ``ok`` tells whether none is wrong.

        Raises
        ------
        GradientError
            If something is wrong, with ``raise_on_error``.
        BindError, ShapeError, CompileError, UnsupportedError
            As calls of the derivatives do.

        Notes
        -----
        Of a call with more than 256 elements so many are compared, evenly spaced.

        ``bwds`` and ``fwds`` may differ by 1e-3 of the largest sum of their terms' sizes, 3e-2 for half, and by 8
        units in the last place of the results. Differences are taken at several steps, from 2 ** -12 to 2 ** -4 of an
        argument's size (2 ** -22 to 2 ** -2 for double), and extrapolated to 0 as Ridders did. They may differ by
        1e-2, 3e-2 for half, plus four times the error that the extrapolation, rounding and a kink at that place
        let expect; where this error is over a tenth of the derivative they decide nothing.
        """
        from slangpy_rt.calls.gradient_check import check_grads  # as for value_and_grad

        params = {p.name for sig in self.overloads for p in sig.params}
        options = {"raise_on_error": raise_on_error, "seed": seed}
        for name, default in (("raise_on_error", False), ("seed", 0)):
            if name in params and options[name] is not default:
                named[name], options[name] = options[name], default
        return check_grads(self, args, named, options["seed"], bool(options["raise_on_error"]))

    def append_to(self, commands: CommandList, /, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Record a call in a command list instead of running it.

        Parameters
        ----------
        commands : CommandList
            A command list of the same device.
        *args, _result, **named
            As for a call, but arrays have to be on the device.

        Returns
        -------
        Tensor, NDBuffer or None
            The array that will hold the result.

        Raises
        ------
        BindError
            As a call does; also if an argument is a NumPy array or a ValueRef, which a list does not copy.
        """
        if type(commands) is not CommandList or commands.device is not self._device or self._stream is not None:
            self._check_list(commands)
        try:
            call = self._recorded(args, _result, named)
        except SlangPyRtError as error:
            raise shortened(error) from error.__cause__
        add(commands, call)
        return call.result

    def _recorded(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> Call:
        """Return a call as a command list keeps it; only lists and ``append_to`` call this."""
        if self._device.closed:
            self._device.check_open()
        prepared, values, _ = self._known(args, result, named)
        if result is None and "out" not in named and prepared.returns_host_data:
            # ``values`` has stand-ins replaced already, and their methods are called once a call.
            args, own = values[: len(args)], values[len(args) :]
            prepared, values, _ = self._known(args, "tensor", dict(zip(named, own, strict=False)))
        copies, dispatch, out = prepared.recorded(values)
        check = prepared.pending(values) if self._device.debug else None
        return Call(
            prepared.spec.title, dispatch, out, self, prepared, prepared.launcher, tuple(copies), check,
            prepared.behind(dispatch),
        )  # fmt: skip

    def dispatch(self, threads: Any = None, /, *args: Any, **named: Any) -> None:
        """Run a function without ``[numthreads]`` once for each thread, whose index is its first parameter.

        Exactly these threads run, unlike those of a kernel. Arguments are broadcast along them as in a call.

        Parameters
        ----------
        threads : int or sequence of int
            Threads in x, y and z; ``thread_count`` is another name for it.
        *args, **named
            Values of the parameters behind the first one, which is an ``int``, a ``uint`` or a vector of these.
            ``vars`` is a dict of values for uniforms, as ``set`` takes it.

        Raises
        ------
        BindError
            If the function has overloads, returns or writes something, or its first parameter is no index.
        """
        self._scope.look()
        if not self.overloads:
            raise gone(self.name, self._scope.source)
        from slangpy_rt.calls.dispatches import taken, threads_as_shape  # few programs need it

        names = [p.name for sig in self.overloads for p in sig.params]
        threads, named, uniforms = taken(f"{self.name}.dispatch", names, threads, named)
        index = grid(threads_as_shape(self.name, self.overloads, threads))
        function = self.set(uniforms) if uniforms else self
        function(index, *args, **named)

    def call_group_shape(self, shape: Any) -> Any:
        """Set the part of the call that a thread group covers, as ``group_size`` does.

        Parameters
        ----------
        shape : int or tuple of int
            The group's size along the call's last dimensions, the last dimension last.

        Raises
        ------
        BindError
            As ``group_size``.
        """
        return self.group_size(group_sizes(shape))

    def thread_group_size(self, size: Any) -> Any:
        """Set the number of threads of a thread group in x, y and z, for ``dispatch``.

        Calls have groups, too, in which x belongs to the last dimension: ``thread_group_size((8, 4, 1))`` is
        ``group_size((4, 8))``.

        Parameters
        ----------
        size : int or sequence of int
            As ``spy.uint3(8, 4, 1)``.

        Raises
        ------
        BindError
            As ``group_size``.
        """
        sizes = group_sizes(size)
        if isinstance(sizes, (tuple, list)) and 1 <= len(sizes) <= 3:
            sizes = tuple(sizes)[::-1]
            while len(sizes) > 1 and sizes[0] == 1:
                sizes = sizes[1:]
        return self.group_size(sizes)

    def raster(
        self,
        project: Any,
        size: tuple[int, int],
        background: Any = 0,
        antialias: bool = True,
        layers: int | None = None,
    ) -> Any:
        """Return a function that draws triangles, each pixel of which calls this one.

        Parameters
        ----------
        project : Function
            Of the same module: it returns where a corner is, and what else it has, as a struct with the field
            ``float4 position``, in clip coordinates. The first parameter of this function is that struct, or a
            ``Fragment`` of it, which ``import fragments;`` brings.
        size : tuple of int
            Rows and columns of the picture, 1 to 16384.
        background : number or sequence of numbers
            The color of pixels without a triangle.
        antialias : bool
            Whether pixels at silhouettes mix the colors on both sides; their gradients come about in no other way.
        layers : int, optional
            How many surfaces behind each other to draw; the picture then has a first dimension for them.

        Returns
        -------
        Raster
            Called with ``_faces`` and the parameters of both functions by name, it returns a Tensor.

        Raises
        ------
        BindError
            If the functions do not fit each other.
        """
        return import_module(_RASTER).Raster(self, project, size, background, antialias, layers)

    def source(self, /, *args: Any, _result: Any = None, **named: Any) -> str:
        """Return the Slang text of the kernel that this call would run."""
        return self._prepared(args, _result, named).text

    def explain(self, /, *args: Any, _result: Any = None, **named: Any) -> str:
        """Return how this call would run: each argument's type, call dimensions and access, then the kernel."""
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

    def _call_named(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> Any:
        if "_append_to" in named:
            commands = named.pop("_append_to")
            if commands is not None:
                return self.append_to(commands, *args, _result=result, **named)
        call, values, asked = self._known(args, result, named)
        if asked:
            return self._ran(call, values, asked)
        return call.run(values) if self._stream is None else call.run_on(self._stream, values)

    def _ran(self, call: PreparedCall, values: tuple[Any, ...], asked: tuple[Asked, ...]) -> Any:
        told = want_back(asked)
        recorder = RECORDER.get() if told else None
        if recorder is not None:
            note_on(recorder, told)
        out = call.run(values) if self._stream is None else call.run_on(self._stream, values)
        if told:
            hand_back(told, call.written(values))
        return out

    def _prepared(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> PreparedCall:
        return self._known(args, result, named)[0]

    def _known(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> Known:
        """Find or prepare a call; return it, its values, and the stand-ins that were replaced in them.

        The values are those by position, those by name, those of uniforms, and then ``_result`` if one was given.
        """
        if self._watched is not None and monotonic() >= self._watched.due:
            self._watched.check()
        if self._hooks:
            return self._asked()._known(args, result, named)
        if "out" in named:
            result, named = self._take_out(result, named)
        if result is None and self._options.derivative == "backward":
            args, result = self._take_seed(args, len(named))
        values = (*args, *named.values(), *self._values)
        if result is not None:
            values = (*values, result)
        try:
            key = (*[a.layout if type(a) in ARRAYS else SIGNERS[type(a)](a) for a in values], *named)
        except RecursionError as error:
            raise endless(self.name, values, error) from None
        if self._options.derivative:
            key = (*key, aliased(values))
        call = (self._calls if result is None else self._calls_into).get(key)
        if call is not None:
            return call, values, ()
        return self._unknown(values, len(args) + len(named), tuple(named), result is not None)

    def _unknown(self, values: tuple[Any, ...], count: int, names: tuple[str, ...], into: bool) -> Known:
        """Do the same as ``_known`` for values with a new signature; the first ``count`` of them are arguments."""
        values, asked = ask(values)
        if into and values[-1] is None:
            raise BindError(
                f"{self.name}: _result stands for None; pass a Tensor, an NDBuffer, a NumPy array, or one of their "
                "types."
            )
        key = self._key(values, names)
        calls = self._calls_into if into else self._calls
        call = calls.get(key)
        if call is None:
            uniforms = values[count : len(values) - into]
            result = values[-1] if into else None
            call = calls.made(self._scope, key, lambda: self._prepare_anew(values[:count], names, result, uniforms))
        return call, values, asked

    def _key(self, values: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        try:
            key = (*[a.layout if type(a) in ARRAYS else SIGNERS[type(a)](a) for a in values], *names)
        except RecursionError as error:
            raise endless(self.name, values, error) from None
        return (*key, aliased(values)) if self._options.derivative else key

    def _take_seed(self, args: tuple[Any, ...], named: int) -> tuple[tuple[Any, ...], Any]:
        """Take the last argument as ``_result`` if there is one more than any overload has parameters."""
        given, one_less = len(args) + named, False
        for sig in self.overloads:
            if len(sig.params) >= given:
                return args, None
            one_less = one_less or (len(sig.params) == given - 1 and sig.returns.kind != "void")
        return (args[:-1], args[-1]) if one_less and args else (args, None)

    def _take_out(self, result: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Take ``out=`` as ``_result=``, unless the function has a parameter of that name."""
        for sig in self.overloads:
            for p in sig.params:
                if p.name == "out":
                    return result, named
        if result is not None:
            raise BindError(f"{self.name}: out and _result are the same thing; give one of them.")
        rest = dict(named)
        return rest.pop("out"), rest

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._scope, self.name, self._options, self._kept_values())

    def _variant_of(self, options: Options) -> Function:
        return Function(self._scope, self.name, self.overloads, options)

    def _prepare_anew(
        self, args: tuple[Any, ...], names: tuple[str, ...], result: Any, values: tuple[Any, ...]
    ) -> PreparedCall:
        # Imported here, because it loads half of the package (13 ms), which no program needs before its first call.
        from slangpy_rt.calls.first_call import prepare_call

        self._device.check_open()
        scope, options = self._scope, self._options
        if self._base is not None:
            self.overloads = self._base.overloads
        if not self.overloads:
            raise gone(self.name, scope.source)
        for interface, struct, _ in options.conformances:
            if not scope.source.conforms(struct, interface):
                raise BindError(f"{self.name}.type_conformances: '{struct}' does not implement '{interface}'.")
        asking = asking_for_autograd(args)
        if asking is not None:
            # Functions with equal options share their prepared calls, whatever their uniforms and streams.
            call: PreparedCall = asking.call_for_autograd(self._base or self, args, names)
            return call
        made = prepare_call(scope, self.name, self.overloads, args, names, result, options, values)
        count = len(args) - len(names)
        if options.derivative and self._device.debug:
            from slangpy_rt.calls.checked_derivative import checked

            return checked(made, scope, self.name, self.overloads, options, count, names)
        if options.derivative or not any(map(carries_gradients, args)):
            return made
        from slangpy_rt.calls.taped_call import TapedCall

        taped: Any = TapedCall(made, self._base or self, count, names)
        return cast("PreparedCall", taped)


@reads("a function")
def _again(scope: Scope, name: str, options: Options, values: tuple[Any, ...]) -> Function:
    """Return a function that was pickled."""
    check_scope("pickle", scope)
    name, options = text("pickle", "a function's name", name), check_options("pickle", options)
    if not isinstance(values, tuple) or len(values) != len(options.uniforms):
        raise damaged(f"function '{name}'", f"it has no values for its uniforms {', '.join(options.uniforms)}")
    found = Function(scope, name, find_overloads(scope.source, name), options)
    return found._with(values) if values else found
