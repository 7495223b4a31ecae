"""SlangCallable: the common base of functions and kernels, with modifiers and prepared calls. It runs nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

import numpy as np

from slangpy_rt.arguments.mapping import read_map
from slangpy_rt.arguments.options import NO_OPTIONS, Options, frozen_constant
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.calls.candidates import GROUP_SIZE
from slangpy_rt.calls.command_list import Call, CommandList
from slangpy_rt.calls.prepared_calls import CallableFollower, PreparedCalls
from slangpy_rt.calls.tuned import Tuned, with_choices
from slangpy_rt.calls.uniform_setter import Hook, UniformSetter
from slangpy_rt.core.checks import short_tracebacks, table, text, whole
from slangpy_rt.core.errors import BindError, CompileError
from slangpy_rt.core.types import FunctionSig
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import DeviceCore, but_of
from slangpy_rt.runtime.stream import lane_of
from slangpy_rt.slang.declarations import find_overloads, gone, python_signature
from slangpy_rt.tuning.config import Config, value_of

if TYPE_CHECKING:
    from slangpy_rt.runtime.stream import Stream

C = TypeVar("C", bound="SlangCallable")

# Each has at least one kernel of its own once it is called, and a module remembers as many descriptions of kernels.
_MAX_VARIANTS = 1024


@short_tracebacks("map", "constants", "return_type", "group_size", "tune", "type_conformances", "stream")
class SlangCallable(UniformSetter, ABC):
    """A function or a kernel of a Slang module. It does not change: a modifier returns a new one.

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
        check_scope(type(self).__name__, scope)
        self.name = name
        self.overloads = overloads
        self._scope = scope
        self._device = scope.device
        self._watched = scope if scope.due < inf else None
        self._options = options
        # Prepared calls by the signatures of their arguments, and of their arguments and _result.
        self._calls = PreparedCalls()
        self._calls_into = PreparedCalls()
        # What ``value_and_grad`` found for signatures of arguments.
        self._plans = PreparedCalls()
        # The derivatives, once they were used.
        self._bwds: Any = None
        self._fwds: Any = None
        # Functions that modifiers made from this one, by the modifier and its arguments; at most _MAX_VARIANTS.
        self._variants: dict[Any, Any] = {}
        # The values that ``set`` gave to uniforms, in the order of the options' names.
        self._values: tuple[Any, ...] = ()
        # The stream that its calls run on; None is the device's own queue.
        self._stream: Stream | None = None
        # Whether calls depend on more than their arguments: on uniforms or a stream, or because it is a derivative.
        self._general = bool(options.derivative)
        # Functions that give values to uniforms at each call, in the order of ``set`` and ``write``.
        self._hooks: tuple[Hook, ...] = ()
        # The function that ``_with`` made this one from, which is updated when the module's text changes.
        self._base: Any = None
        self._follower = CallableFollower(ref(self))
        scope.followers.add(self._follower)
        self._describe()

    def map(self: C, /, *args: Any, **named: Any) -> C:
        """Say how arguments run along the call's dimensions.

        Parameters
        ----------
        *args, **named
            For each argument: a tuple with the call dimension of each of its dimensions, ``()`` for an argument
            that is not vectorized, a type or its name to bind the argument as, a dict of these for the fields of a
            struct (``"$type"`` for the struct itself), or None for the default, broadcasting. ``_result`` can be
            named too.

        Returns
        -------
        Function
            The function with this map, which replaces an earlier one.

        Examples
        --------
        ``outer = multiply.map((0,), (1,))`` multiplies every element of its first argument with every element
        of its second; ``transpose = copy.map((1, 0))``; ``trace = copy.map((0, 0))`` reads a diagonal.
        """

        where = f"{self.name}.map"
        maps = tuple([read_map(f"{where}: entry {k}", v) for k, v in enumerate(args)])
        named_maps = tuple([(name, read_map(f"{where}: {name}", v)) for name, v in named.items()])
        return self._variant(
            ("map", maps, named_maps), lambda: replace(self._options, maps=maps, named_maps=named_maps)
        )

    def constants(self, values: Mapping[str, Any]) -> Any:
        """Give values to ``extern static const`` declarations; each set of values is compiled to its own kernel.

        Parameters
        ----------
        values : mapping
            bool, int, float, or a list of these for a vector, by the constant's name. A list for a scalar
            constant, or a list of tuples for a vector, has choices: calls then use the fastest, see ``tune``.

        Returns
        -------
        Function, Kernel or Tuned
            Tuned, if there are choices.

        Raises
        ------
        BindError
            At the call, if the module declares no constant of that name.
        """
        if not isinstance(values, Mapping):
            raise BindError(f"{self.name}.constants: {in_words(values)} is no dict of values by name.")
        where = f"{self.name}.constants"
        given = table(where, "values", values)
        choices = {name: v for name, v in given.items() if self._has_choices(name, v)}
        if choices:
            return self._with_choices(where, choices, {n: v for n, v in given.items() if n not in choices})
        frozen = {name: frozen_constant(f"{where}: '{name}'", v) for name, v in given.items()}

        def options() -> Options:
            return replace(self._options, constants=tuple({**dict(self._options.constants), **frozen}.items()))

        return self._variant(("constants", tuple((k, type(v), v) for k, v in frozen.items())), options)

    def return_type(self: C, kind: Any) -> C:
        """Set the kind of new results: ``Tensor``, ``NDBuffer`` or ``numpy.ndarray``, or its name in lower case.

        The names are ``"tensor"``, ``"ndbuffer"``, ``"numpy"`` and ``"torch"``.
        """
        if kind is not None and not isinstance(kind, (str, type)):
            raise BindError(
                f"{self.name}.return_type: {in_words(kind)} is not one of 'numpy', 'tensor', 'ndbuffer', 'torch'."
            )
        if isinstance(kind, str):
            kind = text(f"{self.name}.return_type", "the type", kind)
        return self._variant(("return_type", kind), lambda: replace(self._options, returns=kind))

    def group_size(self, size: int | tuple[int, ...] | list[Any]) -> Any:
        """Set the number of threads of a thread group on a GPU.

        Parameters
        ----------
        size : int, tuple of int, or list of these
            With several numbers a group covers a tile of the call's last dimensions, the last dimension last,
            as in shapes. On devices without thread groups it changes nothing. A list has choices: calls then use the
            fastest, see ``tune``.

        Returns
        -------
        Function or Tuned
            Tuned, if there are choices.

        Raises
        ------
        BindError
            If it is not made of one to three whole numbers whose product is between 1 and 1024.
        """
        if isinstance(size, list):
            return self._with_choices(f"{self.name}.group_size", {GROUP_SIZE: size}, {})
        sizes = tuple(size) if isinstance(size, tuple) else (size,)
        product = 1
        for n in sizes:
            product *= int(n) if isinstance(n, (int, np.integer)) and n > 0 else 0
        if not 1 <= len(sizes) <= 3 or not 1 <= product <= 1024:
            raise BindError(
                f"{self.name}.group_size: {in_words(size)} is not one to three whole numbers whose product "
                "is 1 to 1024."
            )
        sizes = tuple(int(n) for n in sizes)
        return self._variant(("group_size", sizes), lambda: replace(self._options, group=sizes))

    def tune(
        self,
        configs: Sequence[Mapping[str, Any]],
        *,
        key: Any = None,
        prune: Any = None,
        model: Any = None,
        top_k: int | None = None,
        check: float | None = None,
        budget: float = 2.0,
        bench: Any = "auto",
    ) -> Tuned:
        """Let calls use the fastest of some configurations, which the first call of a kind measures on the device.

        Parameters
        ----------
        configs : list of dict
            Values for ``extern static const`` declarations, and ``"group_size"``, by name.
        key, prune, model, top_k, check, budget, bench
            As of ``Tuned.tune``.

        Returns
        -------
        Tuned
            The function with these configurations.

        Raises
        ------
        BindError
            If a parameter is of a wrong type or out of range.
        """
        if configs is None:
            raise BindError(f"{self.name}.tune: configs is None; give a list of dicts of values by name.")
        plain = Tuned(self.name, lambda config: self, (Config({}),))
        return plain.tune(
            configs, key=key, prune=prune, model=model, top_k=top_k, check=check, budget=budget, bench=bench
        )

    def type_conformances(self: C, *conformances: tuple[str, str] | tuple[str, str, int]) -> C:
        """Name the structs that values of an interface type may have at run time.

        Parameters
        ----------
        *conformances
            ``(interface, struct)`` or ``(interface, struct, number)``; data names the struct by the number.
        """
        if not all(isinstance(c, tuple) and len(c) in (2, 3) for c in conformances):
            raise BindError(
                f"{self.name}.type_conformances: {in_words(conformances)} are not tuples of an interface, a "
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

    def stream(self: C, stream: Stream) -> C:
        """Set the stream that calls run on.

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
        return self._with(self._values, stream)

    @property
    def bwds(self: C) -> C:
        """The backward derivative: adds to the gradients of its arguments, and returns None.

        It takes the function's arguments, and its result as ``_result``; tensors carry gradients by ``with_grads``.
        Arguments that the function writes, and the result, bring the gradient to propagate back as ``grad_in``. For
        arguments that it reads, the contributions of all elements are added to ``grad_out``, which is never zeroed
        here. ``no_diff`` parameters and arguments without gradients are constants.

        Raises
        ------
        BindError
            At the call: if the function is not ``[Differentiable]``, the gradient of a value that it writes is
            missing, or no argument has a gradient to add to.
        """
        found: C | None = self._bwds
        if found is None:
            found = self._bwds = self._derivative("backward")
        return found

    @property
    def fwds(self: C) -> C:
        """The forward derivative: computes the result and its tangent, from tangents of the arguments.

        Tangents of arguments are their ``grad_in``; the result's is written to its ``grad_out``. Calls with numbers
        alone, such as ``diff_pair(2.0, 1.0)``, return a DiffPair. Arguments without a tangent are constants.

        Raises
        ------
        BindError
            At the call, if the function is not ``[Differentiable]``.
        """
        found: C | None = self._fwds
        if found is None:
            found = self._fwds = self._derivative("forward")
        return found

    @property
    def device(self) -> DeviceCore:
        """The device that it runs on."""
        return self._device

    @property
    def return_type_name(self) -> str:
        """The type that it returns, as Slang writes it."""
        declared = (self._base or self).overloads
        if not declared:
            raise gone(self.name, self._scope.source)
        return declared[0].returns.name

    @property
    def signature(self) -> str:
        """Its declarations, one a line."""
        return "\n".join(map(str, self.overloads))

    def __repr__(self) -> str:
        kind = f"{self._options.derivative} derivative of" if self._options.derivative else "Slang function"
        return f"<{kind} {'; '.join(map(str, self.overloads))}>"

    def __deepcopy__(self: C, memo: dict[int, Any]) -> C:
        return self  # it does not change

    def _kept_values(self) -> tuple[Any, ...]:
        """Return the values of uniforms for a pickle; refuse one of a function with a stream."""
        if self._stream is not None:
            raise TypeError(f"{self.name}: a stream is not pickled; pickle the function without it.")
        return self._values

    def _describe(self) -> None:
        overloads = self.overloads
        self.__doc__ = "\n\n".join(f"{sig}\n{sig.doc}".strip() for sig in overloads)
        if len(overloads) == 1:
            self.__signature__ = python_signature(overloads[0])

    def _forget(self) -> None:
        """Drop the prepared calls: the next call checks whether the device is still open."""
        self._calls.clear()
        self._calls_into.clear()
        self._plans.clear()

    def _source_changed(self) -> None:
        """Read the declarations from the module's new text."""
        try:
            source = self._scope.source
            is_kernel = any(e.name == self.name for e in source.info.entry_points)
            self.overloads = () if is_kernel else find_overloads(source, self.name)
        except CompileError:  # generic arguments that no longer fit; the next call says so
            self.overloads = ()
        self._describe()

    def _derivative(self: C, kind: str) -> C:
        if self._options.derivative:
            raise BindError(f"{self.name}: derivatives of derivatives are not supported.")
        return self._variant(("derivative", kind), lambda: replace(self._options, derivative=kind))

    def _variant(self: C, key: Any, options: Callable[[], Options]) -> C:
        """Return the function with other options; the same object for the same key: its calls stay prepared."""
        found: C | None = self._variants.get(key)
        if found is None:
            found = self._remembered(key, self._variant_of(options()))
        if not self._values and self._stream is None and not self._hooks:
            return found
        out = found._with(self._values, self._stream)
        out._hooks = self._hooks
        return out

    def _remembered(self, key: Any, made: Any) -> Any:
        """Remember what a modifier made, and return it; too many are all forgotten.

        A program may change a constant at each step. What it still holds stays as it is.
        """
        if len(self._variants) >= _MAX_VARIANTS:
            self._variants.clear()
        # Another thread may have been first.
        return self._variants.setdefault(key, made)

    @abstractmethod
    def _variant_of(self: C, options: Options) -> C:
        """Make a function or kernel of the same name with other options."""

    def _has_choices(self, name: str, value: Any) -> bool:
        """Whether a value is a list of choices: a vector's constant takes a list of numbers as its value."""
        if not isinstance(value, list):
            return False
        declared = {c.name: c.type for c in self._scope.source.info.constants}.get(name)
        return declared is not None and (
            declared.kind != "vector" or any(isinstance(v, (list, tuple)) for v in value)
        )

    def _with_choices(self, where: str, choices: Mapping[str, list[Any]], values: Mapping[str, Any]) -> Tuned:
        """Return the function with choices, the same object for the same choices, so that its winners stay known."""
        lists = {n: [value_of(f"{where}: a choice of '{n}'", v) for v in given] for n, given in choices.items()}
        base = self.constants(values) if values else self
        key = ("choices", *[(n, tuple((type(v), v) for v in given)) for n, given in lists.items()])
        found: Tuned | None = base._variants.get(key)
        if found is None or base._values or base._stream is not None:
            found = with_choices(base, lists)
            if not base._values and base._stream is None:
                found = base._remembered(key, found)
        return found

    def _with(self: C, values: tuple[Any, ...], stream: Stream | None = None) -> C:
        """Return the same function, sharing its prepared calls, with values for uniforms and a stream of its own."""
        out: C = object.__new__(type(self))
        out.__dict__.update(self.__dict__)
        out._values, out._stream, out._general, out._base = values, stream, True, self._base or self
        # The derivatives made so far have the values and the stream of this function.
        out._bwds = out._fwds = None
        return out

    @abstractmethod
    def _recorded(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> Call:
        """Return a call as a command list keeps it; only lists and ``append_to`` call this."""

    def _check_list(self, commands: Any) -> None:
        """Refuse a value that is no command list of the device, and a function with a stream of its own."""
        if not isinstance(commands, CommandList) or commands.device is not self._device:
            raise BindError(
                f"{self.name}.append_to: {in_words(commands)} is no command list of {self._device!r}"
                f"{but_of(commands, self._device)}."
            )
        if self._stream is not None:
            raise BindError(f"{self.name}.append_to: a list runs on one stream as a whole: commands.submit(stream).")


def check_scope(where: str, scope: Any) -> None:
    """Refuse a value that is no module's scope: only modules make functions, kernels and structs.

    Raises
    ------
    BindError
        If it is no scope.
    """
    if not isinstance(scope, Scope):
        raise BindError(
            f"{where}: {in_words(scope)} is no scope of a module; modules make these, as attributes: module.add."
        )
