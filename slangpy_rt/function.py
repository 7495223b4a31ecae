"""Function: a Slang function as a Python object. Immutable, but for the prepared calls that it remembers."""

from __future__ import annotations

import inspect
import keyword
from typing import TYPE_CHECKING, Any

from slangpy_rt.args import ARRAYS, signature
from slangpy_rt.errors import BindError, ShapeError
from slangpy_rt.plan import PreparedCall, prepare
from slangpy_rt.types import FunctionSig

if TYPE_CHECKING:
    from slangpy_rt.device import Device
    from slangpy_rt.source import Source

# Forgetting all is simpler than forgetting the oldest, and as good for a program with that many layouts.
_MAX_CALLS = 4096


class Function:
    """A Slang function, to be called over arrays. Modules make them: ``module.add``.

    Attributes
    ----------
    name : str
        Its name in Slang.
    overloads : tuple of FunctionSig
        Its declarations.
    """

    def __init__(self, device: Device, source: Source, overloads: tuple[FunctionSig, ...]) -> None:
        self.name = overloads[0].name
        self.overloads = overloads
        self._device = device
        self._source = source
        # By the signatures of the arguments, and of arguments and _result.
        self._calls: dict[Any, PreparedCall] = {}
        self._calls_into: dict[Any, PreparedCall] = {}
        self.__doc__ = "\n\n".join(f"{sig}\n{sig.doc}".strip() for sig in overloads)
        if len(overloads) == 1:
            self.__signature__ = _python_signature(overloads[0])

    def __call__(self, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Run the function once for every element that its arguments broadcast to.

        Parameters
        ----------
        *args, **named
            One value a Slang parameter: numbers, NumPy arrays, nested lists, Tensors, NDBuffers, ``call_id()``
            or ``grid(shape)``.
        _result : Tensor, NDBuffer, numpy.ndarray, str or type, optional
            Where the result goes, or as what it comes: ``"tensor"``, ``"ndbuffer"``, ``"numpy"``. ``out`` is
            another name for it.

        Returns
        -------
        Tensor, NDBuffer, numpy.ndarray or number
            By the arguments: a Tensor if one of them is, else an NDBuffer, else a NumPy array; a number when
            all are numbers. None for a function without a result.

        Raises
        ------
        BindError
            If an argument does not fit its parameter.
        ShapeError
            If the arguments' shapes do not broadcast.
        CompileError
            If the kernel does not compile.
        """
        if named:
            return self._call_named(args, _result, named)
        if _result is None:
            values, calls = args, self._calls
        else:
            values, calls = (*args, _result), self._calls_into
        key = tuple([a.layout if type(a) in ARRAYS else signature(a) for a in values])
        call = calls.get(key)
        if call is None:
            call = self._prepare(key, args, (), _result)
        return call.run(values)

    call = __call__

    def source(self, *args: Any, _result: Any = None, **named: Any) -> str:
        """The Slang text of the kernel that this call would run."""
        return self._prepared(args, _result, named).text

    def explain(self, *args: Any, _result: Any = None, **named: Any) -> str:
        """How this call would run: each argument's type, call dimensions and access, then the kernel."""
        call = self._prepared(args, _result, named)
        rows = [("argument", "Slang type", "call dimensions", "mode", "access")]
        for b, o in zip(call.bound, call.spec.all_operands, strict=True):
            rows.append((b.name, b.type.name, str(b.shape), o.mode, b.access))
        widths = [max(len(row[k]) for row in rows) for k in range(5)]
        table = "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
        return (
            f"{call.spec.title} on {self._device.name}\n"
            f"call shape {call.shape}, {call.spec.rank} dimension(s) once merged, "
            f"{call.spec.width} element(s) a thread, {call.spec.index} indices\n\n{table}\n\n{call.text}"
        )

    def __repr__(self) -> str:
        return f"<Slang function {'; '.join(map(str, self.overloads))}>"

    def _call_named(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> Any:
        call = self._prepared(args, result, named)
        result, named = self._take_out(result, named)
        values = (*args, *named.values())
        return call.run(values if result is None else (*values, result))

    def _prepared(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> PreparedCall:
        result, named = self._take_out(result, named)
        args = (*args, *named.values())
        values = args if result is None else (*args, result)
        key = (*[a.layout if type(a) in ARRAYS else signature(a) for a in values], *named)
        calls = self._calls if result is None else self._calls_into
        return calls.get(key) or self._prepare(key, args, tuple(named), result)

    def _take_out(self, result: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """``out=`` is ``_result=``, unless the function has a parameter of that name."""
        if "out" not in named or any(p.name == "out" for sig in self.overloads for p in sig.params):
            return result, named
        if result is not None:
            raise BindError(f"{self.name}: out and _result are the same thing; give one of them.")
        rest = {key: value for key, value in named.items() if key != "out"}
        return named["out"], rest

    def _prepare(self, key: Any, args: tuple[Any, ...], names: tuple[str, ...], result: Any) -> PreparedCall:
        self._device.check_open()
        calls, refusals = [], []
        for sig in self.overloads:
            try:
                if sig.generics:
                    raise BindError(f"{sig}: generic functions cannot be called yet; wrap it in a plain one.")
                calls.append((sig, prepare(self._device, self._source, sig, args, names, result)))
            except (BindError, ShapeError) as error:
                refusals.append(error)
        if len(calls) > 1:
            fitting = "\n".join(f"  {sig}" for sig, _ in calls)
            raise BindError(f"{self.name}: more than one overload takes these arguments:\n{fitting}")
        if not calls:
            if len(refusals) == 1:
                raise refusals[0]
            raise BindError(
                f"{self.name}: no overload takes these arguments:\n" + "\n".join(f"  {e}" for e in refusals)
            )
        remembered = self._calls if result is None else self._calls_into
        if len(remembered) >= _MAX_CALLS:
            remembered.clear()
        remembered[key] = calls[0][1]
        return calls[0][1]


def _python_signature(sig: FunctionSig) -> inspect.Signature:
    parameters = []
    for p in sig.params:
        # `in` is a fine name in Slang; inspect refuses it, and help() is better with `in_` than without.
        name = f"{p.name}_" if keyword.iskeyword(p.name) else p.name
        parameters.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=p.type.name))
    return inspect.Signature(parameters, return_annotation=sig.returns.name)
