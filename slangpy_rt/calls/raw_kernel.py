"""Kernel: a raw compute entry point, ``[numthreads(...)]``, that the user dispatches over threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from slangpy_rt.arguments.options import Options, check_options
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.signature import ARRAYS, SIGNERS, endless
from slangpy_rt.arguments.stand_ins import ask, hand_back, want_back
from slangpy_rt.calls.callable import SlangCallable, check_scope
from slangpy_rt.calls.command_list import Call, CommandList, add
from slangpy_rt.core.checks import group_sizes, short_tracebacks, shortened, text, thread_counts
from slangpy_rt.core.errors import BindError, SlangPyRtError
from slangpy_rt.core.types import EntryPoint, FunctionSig, SlangType
from slangpy_rt.runtime.pickling import damaged, reads
from slangpy_rt.slang.declarations import gone

if TYPE_CHECKING:
    from slangpy_rt.calls.function import Known
    from slangpy_rt.calls.prepared import PreparedCall


@short_tracebacks("append_to", "source", "explain", "bind")
class Kernel(SlangCallable):
    """A compute kernel. Modules make them of ``[numthreads]`` functions; ``dispatch`` runs them.

    Attributes
    ----------
    entry : EntryPoint
        Its parameters, system values included, and its thread group.
    """

    entry: EntryPoint

    @classmethod
    def of(cls, scope: Scope, entry: EntryPoint) -> Kernel:
        """Make the kernel of an entry point."""
        kernel = cls(scope, entry.name, (_signature(entry),))
        kernel.entry = entry
        return kernel

    def _source_changed(self) -> None:
        """Read the entry point from the module's new text."""
        found = [e for e in self._scope.source.info.entry_points if e.name == self.name]
        self.overloads = tuple(_signature(e) for e in found)
        if found:
            self.entry = found[0]
            self._describe()

    def __call__(self, /, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Refuse the call: a kernel is dispatched.

        Raises
        ------
        BindError
            Always: only ``dispatch`` takes the number of threads.
        """
        self._scope.look()
        if not self.overloads:
            raise gone(self.name, self._scope.source)
        raise BindError(f"{self.name}: this is a compute kernel; run it with {self.name}.dispatch(threads, ...).")

    call = __call__

    @property
    def threads_of_group(self) -> tuple[int, int, int]:
        """The threads of a thread group in x, y and z: those of ``group_size``, or else of ``[numthreads]``."""
        x, y, z = (*self._options.group, 1, 1)[:3] if self._options.group else self.entry.group_size
        return x, y, z

    def group_size(self, size: int | tuple[int, ...] | list[Any]) -> Any:
        """Set the number of threads of a thread group, in place of ``[numthreads]``.

        Parameters
        ----------
        size : int, tuple of int, or list of these
            Threads in x, y and z. The kernel's text has to be right for that number. A list has choices: dispatches
            then use the fastest, see ``tune``.

        Returns
        -------
        Kernel or Tuned
            Tuned, if there are choices.

        Raises
        ------
        BindError
            If it is not made of one to three whole numbers whose product is between 1 and 1024.
        """
        return super().group_size(size)

    def thread_group_size(self, size: Any) -> Any:
        """Set the number of threads of a thread group, as ``group_size`` does; it also takes a ``spy.uint3``."""
        return self.group_size(group_sizes(size))

    def _derivative(self, kind: str) -> Kernel:
        raise BindError(f"{self.name}: a kernel has no derivative; differentiate the function that it calls.")

    def dispatch(self, threads: Any = None, /, *args: Any, **named: Any) -> None:
        """Run the kernel, in whole thread groups.

        Parameters
        ----------
        threads : int or sequence of int
            Threads in x, y and z. If these are no multiples of the thread group, all threads of the last groups run
            nevertheless, as with every GPU API: the kernel has to check its thread's index. ``thread_count`` is
            another name for it.
        *args, **named
            Values of its parameters, except those with a semantic. ``vars`` is a dict of values for uniforms, as
            ``set`` takes it.

        Raises
        ------
        BindError
            If an argument does not fit, or has dimensions that the parameter does not take.
        UnsupportedError
            If the kernel shares memory or waits within a group and the device has no groups.
        """
        try:
            if threads is None or "vars" in named or "thread_count" in named:
                from slangpy_rt.calls.dispatches import taken  # few programs need it

                names = [p.name for sig in self.overloads for p in sig.params]
                threads, named, uniforms = taken(f"{self.name}.dispatch", names, threads, named)
                if uniforms:
                    self.set(uniforms).dispatch(threads, *args, **named)
                    return
            if "_append_to" in named:
                commands = named.pop("_append_to")
                if commands is not None:
                    self.append_to(commands, threads, *args, **named)
                    return
            call, values, asked = self._dispatched(threads, args, named)
            if self._stream is None:
                call.run(values)
            else:
                call.run_on(self._stream, values)
            told = want_back(asked)
            if told:
                hand_back(told, call.written(values))
        except SlangPyRtError as error:
            raise shortened(error) from error.__cause__

    def append_to(self, commands: CommandList, threads: Any, /, *args: Any, **named: Any) -> None:
        """Record a dispatch in a command list instead of running it; the arguments are those of ``dispatch``."""
        self._check_list(commands)
        add(commands, self._recorded((threads, *args), None, named))

    def _recorded(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> Call:
        """Return a dispatch as a command list keeps it; only lists and ``append_to`` call this."""
        self._device.check_open()
        prepared, values, _ = self._dispatched(args[0], args[1:], named)
        _, dispatch, _ = prepared.recorded(values)
        return Call(prepared.spec.title, dispatch, None, self, prepared, prepared.launcher)

    def source(self, threads: int | Sequence[int], /, *args: Any, **named: Any) -> str:
        """Return the Slang text of the kernel that this dispatch would run."""
        return self._dispatched(threads, args, named)[0].text

    def explain(self, threads: int | Sequence[int], /, *args: Any, **named: Any) -> str:
        """Return how this dispatch would run: its groups, then the text."""
        call, _, _ = self._dispatched(threads, args, named)
        return f"{call.spec.title} on {self._device.name}\n{call.shape} groups\n\n{call.text}"

    def bind(self, threads: int | Sequence[int], /, *args: Any, **named: Any) -> Callable[[], Any]:
        """Prepare a dispatch once, and return a function without arguments that repeats it."""
        call, values, asked = self._dispatched(threads, args, named)
        return partial(self.dispatch, threads, *args, **named) if asked else call.freeze(values, self._stream)

    def _dispatched(self, threads: int | Sequence[int], args: tuple[Any, ...], named: dict[str, Any]) -> Known:
        size = thread_counts(f"{self.name}.dispatch", threads)
        if self._hooks:
            return self._asked()._dispatched(threads, args, named)
        self._scope.look()
        values = (*args, *named.values(), *self._values)
        call = self._calls.get(self._dispatch_key(size, values, tuple(named)))
        if call is not None:
            return call, values, ()
        values, asked = ask(values)
        key = self._dispatch_key(size, values, tuple(named))
        call = self._calls.get(key)
        if call is None:
            call = self._calls.made(
                self._scope, key, lambda: self._prepare_anew(size, values, len(args) + len(named), tuple(named))
            )
        return call, values, asked

    def _dispatch_key(self, size: tuple[int, ...], values: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        try:
            return (size, *[a.layout if type(a) in ARRAYS else SIGNERS[type(a)](a) for a in values], *names)
        except RecursionError as error:
            raise endless(self.name, values, error) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._scope, self.name, self._options, self._kept_values())

    def _variant_of(self, options: Options) -> Kernel:
        if options.maps or options.named_maps or options.returns is not None:
            raise BindError(
                f"{self.name}: map and return_type say how a function is called over arrays; the threads of a "
                "compute kernel are those of dispatch."
            )
        variant = Kernel(self._scope, self.name, self.overloads, options)
        variant.entry = self.entry
        return variant

    def _prepare_anew(
        self, threads: tuple[int, ...], values: tuple[Any, ...], count: int, names: tuple[str, ...]
    ) -> PreparedCall:
        # As in ``Function._prepare_anew``.
        from slangpy_rt.calls.first_call import prepare_dispatch

        self._device.check_open()
        scope = self._scope
        if self._base is not None:
            self.overloads, self.entry = self._base.overloads, self._base.entry
        if not self.overloads:
            raise gone(self.name, scope.source)
        sig = self.overloads[0]
        return prepare_dispatch(scope, sig, self.entry, threads, values[:count], names, self._options, values[count:])


@reads("a kernel")
def _again(scope: Scope, name: str, options: Options, values: tuple[Any, ...]) -> Kernel:
    """Return a kernel that was pickled."""
    check_scope("pickle", scope)
    name, options = text("pickle", "a kernel's name", name), check_options("pickle", options)
    if not isinstance(values, tuple) or len(values) != len(options.uniforms):
        raise damaged(f"kernel '{name}'", f"it has no values for its uniforms {', '.join(options.uniforms)}")
    entry = next((e for e in scope.source.info.entry_points if e.name == name), None)
    if entry is None:
        raise gone(name, scope.source)
    found = Kernel.of(scope, entry)._variant_of(options)
    return found._with(values) if values else found


def _signature(entry: EntryPoint) -> FunctionSig:
    """Return the signature of a dispatch: the entry point's parameters without a semantic."""
    params = tuple(p for p in entry.params if not p.semantic)
    return FunctionSig(entry.name, params, SlangType("void", "void"), doc=entry.doc)
