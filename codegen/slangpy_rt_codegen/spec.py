"""What a kernel is to do: a call with every question of types and broadcasting already answered.

Holds values only. Sizes are not among them: they reach the kernel in its argument block.
"""

from __future__ import annotations

from dataclasses import dataclass

# Part of every cache key: raise it when the same spec begins to emit another text or block.
VERSION = 1

# Threads of a group. On an H200, 256 threads of one float each reach 3380 GB/s and 64 threads 1272.
GROUP_SIZE = 256


@dataclass(frozen=True)
class Operand:
    """A parameter of the function, or its result, and where its values come from.

    Attributes
    ----------
    name : str
        The parameter's name; ``"_result"`` for the result.
    type : str
        Slang type of one element, as source writes it: ``"float3"``. Of a ``"tensor"`` the whole type.
    scalar : str
        Slang scalar that its storage is made of (``"uint8_t"`` for bool).
    count : int
        Scalars of one element.
    access : str
        ``"in"``, ``"out"`` or ``"inout"``.
    mode : str
        ``"value"``: in the argument block. ``"linear"``: an array whose elements follow each other in call
        order. ``"constant"``: one element of an array for all calls. ``"strided"``: an array with a stride per
        call dimension. ``"tensor"``: a whole array, passed as a view. ``"index"``: the call's own index.
    rank : int
        Dimensions of a ``"tensor"``; components of an ``"index"``.
    step : str
        Of a ``"strided"`` operand in a kernel of several elements a thread: whether neighbours in the last
        dimension are the ``"next"`` in memory or the ``"same"`` element.
    """

    name: str
    type: str
    scalar: str
    count: int
    access: str
    mode: str
    rank: int = 0
    step: str = ""


@dataclass(frozen=True)
class CallSpec:
    """A call of a Slang function over arrays.

    Attributes
    ----------
    title : str
        Who asked for the kernel; stands in its first line.
    modules : tuple of str
        Modules that the text imports besides slangpy_rt.
    function : str
        As the text calls it.
    operands : tuple of Operand
        In the order of the parameters.
    result : Operand or None
        None for a function that returns nothing, or whose value is dropped.
    rank : int
        Dimensions of the coalesced call shape, at least 1.
    index : str
        Type of element indices: ``"uint"`` or ``"int64_t"``.
    width : int
        Neighbouring elements of one thread. More than 1 needs arrays that are linear, constant or strided with
        a ``step``; with strided ones, the last dimension must be a multiple of it.
    entry : str
        How the kernel is entered: ``"range"``, ``"value"`` or ``"pointer"`` (see ``backends.base.Target``).
    rows : bool
        Whether the groups also run in y, as counts beyond the x limit of a device need.
    """

    title: str
    modules: tuple[str, ...]
    function: str
    operands: tuple[Operand, ...]
    result: Operand | None
    rank: int
    index: str
    width: int
    entry: str
    rows: bool = False

    @property
    def all_operands(self) -> tuple[Operand, ...]:
        """The parameters and then the result."""
        return self.operands + ((self.result,) if self.result else ())

    @property
    def indexed(self) -> bool:
        """Whether an element's code needs its multi-dimensional index."""
        return any(o.mode in ("strided", "index") for o in self.all_operands)
