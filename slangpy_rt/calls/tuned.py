"""Tuned: a function or kernel with choices. Its first call of a kind finds the fastest configuration of them.

``search`` measures; this class remembers, and calls the function that was made with the winning values. It imports no
class of functions: modifiers of these return it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from slangpy_rt.arguments.signature import ARRAYS, SIGNERS, endless
from slangpy_rt.arguments.stand_ins import ask, hand_back, want_back
from slangpy_rt.calls.callee import Callee
from slangpy_rt.calls.candidates import applied, part_of
from slangpy_rt.calls.tuned_call import TunedCall
from slangpy_rt.calls.winners import Ready, Winners
from slangpy_rt.core.errors import BindError, CompileError, SlangPyRtError, UnsupportedError
from slangpy_rt.core.wording import in_words
from slangpy_rt.tuning.config import Config, check_count, configs_from, product_of

if TYPE_CHECKING:
    from slangpy_rt.calls.command_list import CommandList
    from slangpy_rt.calls.gradient_report import GradientReport
    from slangpy_rt.runtime.stream import Stream
    from slangpy_rt.tuning.policy import Policy
    from slangpy_rt.tuning.timing import Timing

# Kinds of calls that one tuned function remembers.
_MOST_KINDS = 4096


class Tuned:
    """A function or kernel whose configuration is searched on the device, at the first call of each kind.

    ``constants``, ``group_size`` and ``defines`` make one when a value is a list of choices; ``tune`` makes one of a
    list of configurations. It is called as the function is. Which arguments are of one kind is what ``tune(key=...)``
    says: by default those with equal shapes, strides and types, and equal whole numbers.

    Attributes
    ----------
    name : str
        The function's name in Slang.
    configs : tuple of Config
        The configurations; the first that compiles is used where nothing is measured.
    """

    def __init__(
        self, name: str, make: Callable[[Config], Any], configs: tuple[Config, ...], policy: Policy | None = None
    ) -> None:
        self.name = name
        self.configs = configs
        self._make = make
        self._policy = policy
        self._functions: dict[Config, Any] = {}
        # Errors of configurations whose text the compiler refuses, each with the age of the text.
        self._refused: dict[Config, tuple[object, SlangPyRtError]] = {}
        self._winners = Winners()
        self._ready, self._ready_into = self._winners.ready, self._winners.ready_into
        self._derivatives: dict[str, Tuned] = {}
        self._lock = threading.RLock()
        self._searching = False

    def __call__(self, /, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Call the function with the fastest configuration, as ``Function`` is called.

        The first call of a kind measures the configurations, unless their times are on disk. What it would write is
        written once, by the winner.

        Raises
        ------
        BindError, ShapeError, CompileError
            As of the function; CompileError if no configuration compiles.
        """
        if not named:
            values = args if _result is None else (*args, _result)
            try:
                key = tuple([
                    a.layout if type(a) in ARRAYS else a if type(a) is int else SIGNERS[type(a)](a) for a in values
                ])  # fmt: skip
            except RecursionError as error:
                raise endless(self.name, values, error) from None
            found = (self._ready if _result is None else self._ready_into).get(key)
            if found is not None:
                return found[0](*args) if _result is None else found[0](*args, _result=_result)
        if "_append_to" in named and (commands := named.pop("_append_to")) is not None:
            return self.append_to(commands, *args, _result=_result, **named)
        return self._run(TunedCall(args, named, _result))

    call = __call__

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self.name}: a function with choices is not pickled; pickle the one without them.")

    def dispatch(self, threads: Any, /, *args: Any, **named: Any) -> None:
        """Dispatch the kernel with the fastest configuration.

        Parameters
        ----------
        threads : int, sequence of int or callable
            The threads in x, y and z, or a function of the configuration that returns them.
        *args, **named
            As for ``Kernel.dispatch``.
        """
        if "_append_to" in named and (commands := named.pop("_append_to")) is not None:
            self.append_to(commands, threads, *args, **named)
            return
        self._run(TunedCall(args, named, threads=_threads(self.name, threads)))

    def append_to(self, commands: CommandList, /, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Record a call in a command list, with the configuration that is the fastest now.

        A kernel takes its threads before the other arguments, as ``dispatch`` does.
        """
        call = self._call(args, named, _result)
        function, config = self._function_for(call)
        args = (call.threads_of(config), *call.args) if call.threads is not None else args
        extra = {} if _result is None else {"_result": _result}
        return function.append_to(commands, *args, **extra, **named)

    def bind(self, /, *args: Any, _result: Any = None, **named: Any) -> Callable[[], Any]:
        """Choose a configuration, prepare the call, and return a function without arguments that repeats it."""
        return self._with("bind", args, named, _result)  # type: ignore[no-any-return]

    def source(self, /, *args: Any, _result: Any = None, **named: Any) -> str:
        """Return the Slang text of the kernel that this call would run."""
        return self._with("source", args, named, _result)  # type: ignore[no-any-return]

    def explain(self, /, *args: Any, _result: Any = None, **named: Any) -> str:
        """Return the timings of the configurations, and how the call would run with the fastest."""
        rows = self.timings(*args, _result=_result, **named)
        lines = [f"{row.config.text}: {row.dropped or f'{row.us:.2f} us'}" for row in rows if row.us or row.dropped]
        return "\n".join([*lines, "", self._with("explain", args, named, _result)])

    def check_grads(self, /, *args: Any, **named: Any) -> GradientReport:
        """Compare the derivatives of the call, with the first configuration; see ``Function.check_grads``."""
        first = self._any()
        if not hasattr(first, "check_grads"):
            raise BindError(f"check_grads: {self!r} is a kernel, and kernels have no derivatives; check a function.")
        found: GradientReport = first.check_grads(*args, **named)
        return found

    def best(self, /, *args: Any, _result: Any = None, **named: Any) -> Config:
        """Return the fastest configuration for these arguments, measured now if it is not known.

        The arguments hold afterwards what they held before. A kernel takes its threads first, as in ``dispatch``.
        """
        return self.timings(*args, _result=_result, **named)[0].config

    def timings(self, /, *args: Any, _result: Any = None, **named: Any) -> list[Timing]:
        """Return a row for each configuration, the fastest first, as ``best`` finds it.

        Returns
        -------
        list of Timing
            Configuration, median microseconds, spread, number of runs, and why it was dropped.
        """
        return list(self._searched(self._call(args, named, _result))[0])

    def tune(
        self,
        configs: Sequence[Mapping[str, Any]] | None = None,
        *,
        key: Any = None,
        prune: Any = None,
        model: Any = None,
        top_k: int | None = None,
        check: float | None = None,
        budget: float = 2.0,
        bench: Any = "auto",
    ) -> Tuned:
        """Return the function with other configurations, or another way to search them.

        Parameters
        ----------
        configs : list of dict, optional
            The configurations, instead of all combinations of the choices. Names are those of choices, of
            ``extern static const`` declarations, and ``"group_size"``.
        key : sequence of str, "pow2" or callable, optional
            Which calls share a configuration: those with equal arguments of these names (shape, type and, of whole
            numbers, value); those whose sizes are equal when rounded up to powers of two; or those for which the
            function of a CallInfo returns equal values.
        prune : callable, optional
            Takes the configurations and a CallInfo, and returns those that are worth a measurement.
        model : callable, optional
            Takes a configuration and a CallInfo, and returns an estimate of the time. The ``top_k`` lowest are
            measured.
        top_k : int, optional
            See ``model``.
        check : float, optional
            The largest difference of results from those of the first configuration, relative to the largest number;
            a configuration with a larger one is dropped.
        budget : float
            Seconds of measurements after which no further round begins.
        bench : "auto", "hot" or callable
            ``"hot"`` does not clear the GPU's cache before a run. A function takes a function that runs the kernel,
            and returns seconds.

        Raises
        ------
        BindError
            If a parameter is of a wrong type or out of range.
        """
        # As in ``_searched``.
        from slangpy_rt.tuning.policy import policy_of

        where = f"{self.name}.tune"
        policy = policy_of(
            where, key=key, prune=prune, model=model, top_k=top_k, check=check, budget=budget, bench=bench
        )
        if configs is None:
            return Tuned(self.name, self._make, self.configs, policy)
        found = configs_from(where, configs)
        known = set(self.configs[0])
        missing = known - set(found[0])
        if missing:
            raise BindError(
                f"{where}: configs lack '{min(missing)}', of which the function has choices; give a value."
            )
        more = tuple(name for name in found[0] if name not in known)

        def make(config: Config) -> Any:
            return applied(self._make(part_of(config, known)), config, more)

        return Tuned(self.name, make, found, policy)

    def map(self, /, *args: Any, **named: Any) -> Tuned:
        """Say how arguments run along the call's dimensions, as ``Function.map``."""
        return self._changed(lambda f: f.map(*args, **named))

    def constants(self, values: Mapping[str, Any]) -> Tuned:
        """Give values, or lists of choices, to ``extern static const`` declarations, as ``Function.constants``."""
        return self._more(lambda f: f.constants(values))

    def group_size(self, size: int | tuple[int, ...] | list[Any]) -> Tuned:
        """Set the number of threads of a thread group, or a list of choices, as ``Function.group_size``."""
        return self._more(lambda f: f.group_size(size))

    def set(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Tuned:
        """Give values to the module's global ``uniform`` variables, as ``Function.set``."""
        return self._changed(lambda f: f.set(values, **named), self._winners.rows)

    def return_type(self, kind: Any) -> Tuned:
        """Set the kind of new results, as ``Function.return_type``."""
        return self._changed(lambda f: f.return_type(kind))

    def type_conformances(self, *conformances: Any) -> Tuned:
        """Name the structs that values of an interface type may have, as ``Function.type_conformances``."""
        return self._changed(lambda f: f.type_conformances(*conformances))

    def stream(self, stream: Stream) -> Tuned:
        """Set the stream that calls run on, as ``Function.stream``."""
        return self._changed(lambda f: f.stream(stream), self._winners.rows)

    @property
    def bwds(self) -> Tuned:
        """The backward derivative, with choices of its own."""
        return self._derivative("bwds")

    @property
    def fwds(self) -> Tuned:
        """The forward derivative, with choices of its own."""
        return self._derivative("fwds")

    @property
    def device(self) -> Any:
        """The device that it runs on."""
        return self._any().device

    @property
    def overloads(self) -> tuple[Any, ...]:
        """The function's declarations."""
        found: tuple[Any, ...] = self._any().overloads
        return found

    @property
    def signature(self) -> str:
        """The function's declarations, one a line."""
        text: str = self._any().signature
        return text

    @property
    def return_type_name(self) -> str:
        """The type that it returns, as Slang writes it."""
        text: str = self._any().return_type_name
        return text

    def __repr__(self) -> str:
        count = len(self.configs)
        return f"<{self.name} with {count} configuration{'s' if count > 1 else ''}: {', '.join(self.configs[0])}>"

    def _call(self, args: tuple[Any, ...], named: dict[str, Any], result: Any) -> TunedCall:
        """Return a call by its arguments; the first argument of a kernel are its threads."""
        if not hasattr(self._any(), "entry"):
            return TunedCall(args, named, result)
        if not args:
            raise BindError(f"{self.name}: the threads are missing; give them before the arguments, as to dispatch.")
        return TunedCall(args[1:], named, threads=_threads(self.name, args[0]))

    def _with(self, method: str, args: tuple[Any, ...], named: dict[str, Any], result: Any) -> Any:
        """Call a method of the fastest configuration's function."""
        call = self._call(args, named, result)
        function, config = self._function_for(call)
        if call.threads is not None:
            return getattr(function, method)(call.threads_of(config), *call.args, **named)
        return getattr(function, method)(*args, _result=result, **named)

    def _run(self, call: TunedCall) -> Any:
        # Stand-ins are never found here: what is remembered are calls with the values that they returned.
        ready, key = self._signature(call)
        found = ready.get(key)
        if found is not None:
            return _called(*found, call)
        values, asked = ask((*call.args, *call.named.values(), call.result))
        if asked:
            # The methods of stand-ins are called once: the function gets the values that they returned.
            count = len(call.args)
            call = TunedCall(
                values[:count], dict(zip(call.named, values[count:-1], strict=True)), values[-1], call.threads
            )
        function, config = self._function_for(call)
        if not asked:
            return _called(function, config, call)
        prepared, given = call.prepared(function, config)
        stream = Callee(function).stream
        out = prepared.run(given) if stream is None else prepared.run_on(stream, given)
        told = want_back(asked)
        if told:
            hand_back(told, prepared.written(given))
        return out

    def _function_for(self, call: TunedCall) -> tuple[Any, Config]:
        """Return the function to call, and its configuration."""
        ready, key = self._signature(call)
        found = ready.get(key)
        if found is None:
            rows, age = self._searched(call)
            found = self._function(rows[0].config), rows[0].config
            if len(ready) >= _MOST_KINDS:
                ready.clear()
            if age is self._winners.age:
                ready[key] = found
        return found

    def _signature(self, call: TunedCall) -> tuple[Ready, Any]:
        """Return the table of functions that a call is in, and its key there; equal to those of ``__call__``."""
        values = (*call.args, *call.named.values())
        if call.result is not None:
            values = (*values, call.result)
        try:
            key = tuple([
                a.layout if type(a) in ARRAYS else a if type(a) is int else SIGNERS[type(a)](a) for a in values
            ])  # fmt: skip
        except RecursionError as error:
            raise endless(self.name, values, error) from None
        if call.threads is not None:
            # The threads of one configuration stand for those of all: they follow from the same sizes.
            return self._winners.ready_named, (call.threads_text(self.configs[0]), key, *call.named)
        if call.named:
            return self._winners.ready_named, (call.result is None, key, *call.named)
        return (self._ready if call.result is None else self._ready_into), key

    def _searched(self, call: TunedCall) -> tuple[list[Timing], object]:
        """Return the timings for a call, measured if they are not known, and the age of the module's text."""
        # Imported here, because few programs search, and it loads half of the package.
        from slangpy_rt.calls.search import Search

        with self._lock:
            if self._searching:
                raise BindError(
                    f"{self.name}: a function that tune was given calls {self.name}, whose configuration is being "
                    "searched; let bench call what it is passed."
                )
            self.device.check_open()
            first = self._any()
            if hasattr(first, "entry") != (call.threads is not None):
                # A call of a kernel, or a dispatch of a function: the function refuses it in its words.
                first.dispatch(()) if call.threads is not None else first()
            Callee(first).scope.look()
            age = self._winners.age
            candidates = {config: made for config in self.configs if (made := self._made(config)) is not None}
            refused = {config: self._refused[config][1] for config in self.configs if config not in candidates}
            try:
                self._searching = True
                found = Search(self.name, self.device, call, candidates, self._policy, refused)
                rows = self._winners.rows.get(found.key)
                if rows is None:
                    rows = found.run()
                    if len(self._winners.rows) >= _MOST_KINDS:
                        self._winners.rows.clear()
                    if age is self._winners.age:
                        self._winners.rows[found.key] = rows
            finally:
                self._searching = False
            return rows, age

    def _function(self, config: Config) -> Any:
        found = self._functions.get(config)
        if found is None:
            found = self._functions.setdefault(config, self._make(config))
            Callee(found).scope.followers.add(self._winners)
        return found

    def _made(self, config: Config) -> Any:
        """Return the function of a configuration, or None if the compiler refuses its module's text."""
        known = self._refused.get(config)
        if known is not None and known[0] is self._winners.age:
            return None
        try:
            return self._function(config)
        except (CompileError, UnsupportedError) as error:
            self._refused[config] = self._winners.age, error
            return None

    def _any(self) -> Any:
        """Return the function of the first configuration that the compiler does not refuse.

        Raises
        ------
        CompileError
            If it refuses all of them: the first error.
        """
        for config in self.configs:
            found = self._made(config)
            if found is not None:
                return found
        raise self._refused[self.configs[0]][1]

    def _derivative(self, kind: str) -> Tuned:
        found = self._derivatives.get(kind)
        if found is None:
            found = self._derivatives[kind] = self._changed(lambda f: getattr(f, kind))
        return found

    def _changed(self, change: Callable[[Any], Any], rows: dict[str, list[Timing]] | None = None) -> Tuned:
        """Return a function whose candidates are changed; ``rows`` are timings that stay right for it."""
        change(self._any())
        out = Tuned(self.name, lambda config: change(self._function(config)), self.configs, self._policy)
        if rows is not None:
            out._winners.rows = rows
        return out

    def _more(self, change: Callable[[Any], Any]) -> Tuned:
        """Return a function whose candidates are changed, maybe into tuned ones: then all choices are combined."""
        first = change(self._any())
        if not isinstance(first, Tuned):
            return self._changed(change)
        known = set(self.configs[0])
        twice = known & set(first.configs[0])
        if twice:
            raise BindError(f"{self.name}: '{min(twice)}' has a list of choices already.")
        configs = tuple(Config({**a, **b}) for a in self.configs for b in first.configs)
        check_count(self.name, len(configs))

        def make(config: Config) -> Any:
            tuned = change(self._function(part_of(config, known)))
            return tuned._function(part_of(config, set(first.configs[0])))

        return Tuned(self.name, make, configs, self._policy)


def with_choices(function: Any, choices: Mapping[str, Sequence[Any]]) -> Tuned:
    """Return a function with lists of choices for its thread group and its constants.

    Each choice is checked now, and not at the first call.
    """
    configs = product_of(function.name, choices)
    names = tuple(choices)
    found = Tuned(function.name, lambda config: applied(function, config, names), configs)
    for config in configs:
        found._function(config)
    return found


def _called(function: Any, config: Config, call: TunedCall) -> Any:
    if call.threads is None:
        return function(*call.args, _result=call.result, **call.named)
    return function.dispatch(call.threads_of(config), *call.args, **call.named)


def _threads(name: str, threads: Any) -> Any:
    if threads is None:
        raise BindError(f"{name}.dispatch: threads is {in_words(threads)}; give one to three whole numbers.")
    return threads
