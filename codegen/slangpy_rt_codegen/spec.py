"""What a kernel is to do: a call with every question of types and broadcasting already answered.

Holds values only. Sizes are not among them: they reach the kernel in its argument block.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Threads of a group. On an H200, 256 threads of one float each reach 3380 GB/s and 64 threads 1272.
GROUP_SIZE = 256
# Ways of adding to a gradient in which a thread adds up what it has before it adds that to memory.
_SUMMED = ("sum", "column", "row")


@dataclass(frozen=True)
class Operand:
    """A parameter of the function, or its result, and where its values come from.

    Attributes
    ----------
    name : str
        An identifier that no other operand of the kernel has: the parameter's name, ``"_result"`` for the result.
    type : str
        Slang type of one element, as source writes it: ``"float3"``, ``"Array<float, 4>"``. Of a ``"tensor"`` the
        whole type.
    scalar : str
        Slang scalar that its storage is made of: ``"uint8_t"`` for bool and for structs.
    count : int
        Scalars of one element.
    access : str
        ``"in"``, ``"out"`` or ``"inout"``. In a backward derivative ``"seed"``: it is what the function writes, and
        the array holds its gradient. Of a gradient that is written also ``"accumulate"`` (added to by one thread
        alone), ``"scatter"`` (by several), ``"sum"`` (by all of them), ``"column"`` (each row of the call adds to
        the same ones; threads walk whole rows) or ``"row"`` (each row of the call adds to one; in a range).
    mode : str
        ``"value"``: in the argument block. ``"linear"``: an array whose elements follow each other in call
        order. ``"constant"``: one element of an array for all calls. ``"strided"``: an array with a stride per
        call dimension. ``"tensor"``: a whole array, passed as a view. ``"gradient"``: of such. ``"pointer"``:
        an array's address. ``"computed"``: what ``code`` says, of values that are its ``parts``. ``"parts"``: a local
        variable put together from ``parts``. ``"unused"``: nothing is kept of what the function writes there.
    rank : int
        Dimensions of a ``"tensor"`` or ``"gradient"``.
    step : str
        Of a ``"strided"`` operand in a kernel of several elements a thread: whether neighbours in the last
        dimension are the ``"next"`` in memory or the ``"same"`` element. Of a ``"tensor"`` ``"next"`` if elements
        of the call see different ones; of a ``"gradient"`` also ``"own"`` where a range adds to a copy of its own
        first.
    via : str
        Type that loads and stores go through where arrays do not hold ``type`` itself: the scalar of an enum;
        ``"_spy_bfloat16"`` and ``"_spy_bfloat16s<3>"``, whose loads are floats.
    code : str
        Of a ``"computed"`` operand, its Slang expression; ``_spy_i``, ``_spy_index`` and ``_spy_call`` stand for the
        element's flat index, its index in each dimension and the argument block.
    parts : tuple of (str, Operand)
        Where in the variable each part goes (``".position"``, ``"[2]"``), and the part.
    grad_in, grad_out : Operand or None
        In a derivative, the gradients of this operand, one that is read and one that is written; None where the
        parts have their own.
    gradients : tuple of Operand
        Those of ``grad_in`` and ``grad_out`` that there are.
    summed : bool
        Whether a thread adds up what it has for this gradient before it adds that to memory.
    moves : bool
        Whether its address or value depends on the element's index in each dimension.
    """

    name: str
    type: str
    scalar: str
    count: int
    access: str
    mode: str
    rank: int = 0
    step: str = ""
    via: str = ""
    code: str = ""
    parts: tuple[tuple[str, Operand], ...] = ()
    grad_in: Operand | None = None
    grad_out: Operand | None = None
    gradients: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    summed: bool = field(init=False, repr=False, compare=False)
    moves: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Attributes of a frozen value cannot be assigned.
        own = self.__dict__
        own["gradients"] = tuple([g for g in (self.grad_in, self.grad_out) if g is not None])
        own["summed"] = self.access in _SUMMED
        walked = self.mode in ("tensor", "gradient") and self.step == "next"
        own["moves"] = self.mode == "strided" or walked or "index[" in self.code

    @property
    def places(self) -> tuple[Operand, ...]:
        """Itself, or what it is put together from."""
        return (self,) if self.mode != "parts" else tuple([p for _, part in self.parts for p in part.places])

    @property
    def leaves(self) -> tuple[Operand, ...]:
        """What it takes from the argument block: its places, the values of those that are computed, gradients."""
        out: list[Operand] = []
        for place in self.places:
            out.append(place)
            if place.parts:
                out += [value for _, value in place.parts]
            out += place.gradients
        return tuple(out)


@dataclass(frozen=True)
class StructLayout:
    """A struct in memory, its scalars packed at their natural alignment.

    Attributes
    ----------
    type : str
        The struct, as source writes it.
    size : int
        In bytes, padding at its end included.
    fields : tuple of StructLayoutField
        Every field that is no struct, those of structs inside included.
    """

    type: str
    size: int
    fields: tuple[StructLayoutField, ...]


@dataclass(frozen=True)
class StructLayoutField:
    """A field in memory.

    Attributes
    ----------
    path : str
        Where in the struct it is: ``".pose.position"``.
    type, scalar, via : str
        As of an Operand.
    offset : int
        In bytes from the struct's beginning.
    """

    path: str
    type: str
    scalar: str
    via: str
    offset: int


@dataclass(frozen=True)
class CallSpec:
    """A call of a Slang function over arrays.

    Attributes
    ----------
    title : str
        Who asked for the kernel; stands in its first line.
    modules : tuple of str
        Modules that the text imports besides _spy_library.
    function : str
        As the text calls it: ``"add"``, ``"copy<float>"``, ``"Ray.make"``.
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
        How the kernel is entered: ``"range"``, ``"value"``, ``"pointer"`` or ``"handle"`` (see
        ``core.target.Target``).
    rows : bool
        Whether the groups also run in y, as counts beyond the x limit of a device need.
    method : bool
        Whether the first operand is the object whose method it is.
    group : tuple of int
        Threads of a group in x, y and z. With more than one dimension, they count the call's last dimensions.
    structs : tuple of StructLayout
        Structs that arrays hold.
    constants : tuple of str
        Lines that give the modules' ``extern`` constants their values.
    assigned : tuple of (str, Operand)
        Global variables of the modules and what they hold for this call.
    raw : bool
        Whether the function is itself a kernel of ``group`` threads, to be called once by every thread with
        ``_spy_thread``, ``_spy_local`` and ``_spy_group``, its place in the dispatch, in its group, and its group's.
    derivative : str
        ``"backward"``, ``"forward"``, or ``""`` for the function itself.
    hidden : tuple of str
        Names of Slang's core module that mean something else in the modules. Then what is the user's in this
        description is marked as ``names.own`` does it.
    all_operands : tuple of Operand
        The globals, the parameters and then the result.
    leaves : tuple of Operand
        What the argument block holds, in order.
    sums : tuple of Operand
        The leaves that are ``summed``.
    walks : bool
        Whether a thread takes elements that are ``step`` apart, so that it has something to add up.
    indexed : bool
        Whether an element's code needs its multi-dimensional index.
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
    method: bool = False
    group: tuple[int, ...] = (GROUP_SIZE,)
    structs: tuple[StructLayout, ...] = ()
    constants: tuple[str, ...] = ()
    assigned: tuple[tuple[str, Operand], ...] = ()
    raw: bool = False
    derivative: str = ""
    hidden: tuple[str, ...] = ()

    all_operands: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    leaves: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    sums: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    walks: bool = field(init=False, repr=False, compare=False)
    indexed: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Attributes of a frozen value cannot be assigned.
        own = self.__dict__
        last = (self.result,) if self.result else ()
        every = own["all_operands"] = (*[o for _, o in self.assigned], *self.operands, *last)
        found: list[Operand] = []
        for o in every:
            if o.mode == "parts" or o.parts or o.gradients:
                found += o.leaves
            else:
                found.append(o)
        leaves = own["leaves"] = tuple(found)
        sums = own["sums"] = tuple([o for o in leaves if o.summed])
        tiled = len(self.group) > 1
        own["walks"] = bool(sums) and self.entry != "range" and not tiled
        own["indexed"] = self.raw or tiled or any(o.moves for o in leaves)
