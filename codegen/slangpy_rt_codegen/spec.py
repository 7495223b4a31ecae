"""CallSpec: the description of a kernel, in which types and broadcasting are decided.

It holds values only. Sizes are not among them: they reach the kernel in its argument block.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Threads of a group. On an H200, 256 threads of one float each reach 3380 GB/s and 64 threads 1272.
GROUP_SIZE = 256
# Accesses to a gradient with which a thread adds up contributions of its elements before it adds the sum to memory.
_SUMMED = ("sum", "column", "row")
# The structs of _spy_library.slang for arrays of bfloat16 have this name, or one that begins with it.
BFLOAT16 = "_spy_bfloat16"


@dataclass(frozen=True)
class Operand:
    """A parameter of the function, or its result, and where its values come from.

    Attributes
    ----------
    name : str
        An identifier that no other operand of the kernel has: the parameter's name, ``"_result"`` for the result.
    type : str
        Slang type of one element, as source writes it: ``"float3"``, ``"Array<float, 4>"``; for a ``"tensor"`` the
        type of the whole array.
    scalar : str
        Slang scalar that its storage is made of: ``"uint8_t"`` for bool and for structs.
    count : int
        Scalars of one element.
    access : str
        ``"in"``, ``"out"`` or ``"inout"``. In a backward derivative ``"seed"`` for a value that the function writes,
        of which the array holds the gradient. For a gradient that is written also ``"accumulate"`` (each place is
        added to by one thread), ``"scatter"`` (by several), ``"sum"`` (all threads add to one place), ``"column"``
        (each row of the call adds to the same places; a thread's elements are whole rows apart) or ``"row"`` (each
        row of the call adds to one place; in a range).
    mode : str
        ``"value"``: in the argument block. ``"linear"``: an array whose elements follow each other in call order.
        ``"constant"``: one element of an array for all elements of the call. ``"strided"``: an array with a stride
        per call dimension. ``"tensor"``: a whole array, passed as a view. ``"gradient"``: the gradient of a tensor.
        ``"pointer"``: an array's address. ``"handle"``: a texture or a sampler. ``"texel"``: the texel of a texture
        at ``code``. ``"computed"``: the expression ``code``, of values that are its ``parts``.
        ``"parts"``: a local variable put together from ``parts``. ``"unused"``: an output whose value is dropped.
    rank : int
        Dimensions of a ``"tensor"`` or ``"gradient"``.
    step : str
        For a ``"strided"`` operand in a kernel of several elements a thread: whether the next element in the last
        dimension is the ``"next"`` in memory, the ``"same"`` one, or ``"each"`` has an address of its own. For a
        ``"tensor"`` ``"next"`` if elements of the call get different parts; for a ``"gradient"`` also ``"own"`` if a
        range first adds to a copy of its own.
    via : str
        Type that loads and stores go through if arrays do not hold ``type`` itself: the scalar of an enum;
        ``"_spy_bfloat16"`` and ``"_spy_bfloat16s<3>"``, which load and store floats. Of a ``"pointer"`` the type that
        it is converted to, ``"Ptr<float, Access.Read>"``; empty for ``float *``. Of a ``"texel"`` the texture's type.
        Of a ``"handle"`` ``"*"`` if the block has its address.
    code : str
        Slang expression of a ``"computed"`` operand, or of a texel's place; ``_spy_i``, ``_spy_index`` and
        ``_spy_call`` are the element's flat index, its index in each dimension and the argument block. Of ``"parts"``
        the initial value that gives fields their defaults, ``"{}"``; empty if each field is assigned.
    parts : tuple of (str, Operand)
        The place of each part in the variable (``".position"``, ``"[2]"``), and the part.
    grad_in, grad_out : Operand or None
        In a derivative, the gradients of this operand, one that is read and one that is written; None where the
        parts have their own.
    copied : bool
        Whether the kernel adds to copies of this gradient, whose sum another kernel adds to it. The block then has
        the address of the first copy, the distance between two, and the number that chooses among them.
    gradients : tuple of Operand
        ``grad_in`` and ``grad_out``, without None.
    summed : bool
        Whether a thread adds up contributions to this gradient before it adds the sum to memory.
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
    copied: bool = False
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
        """The operand itself, or the places of its parts."""
        return (self,) if self.mode != "parts" else tuple([p for _, part in self.parts for p in part.places])

    @property
    def leaves(self) -> tuple[Operand, ...]:
        """The operands with members in the argument block: places, values of computed ones, and gradients."""
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
        Size in bytes, including padding at its end.
    fields : tuple of StructLayoutField
        Every field that is no struct, including the fields of nested structs.
    piece : int
        Bytes that are moved at once, 8 or 16: a divisor of the size, to which all arrays of the struct are aligned.
        All its scalars are then words, and none of its bytes is padding. 0 if the fields are moved one by one.
    """

    type: str
    size: int
    fields: tuple[StructLayoutField, ...]
    piece: int = 0


@dataclass(frozen=True)
class StructLayoutField:
    """A field in memory.

    Attributes
    ----------
    path : str
        Path of the field in the struct: ``".pose.position"``.
    type, scalar, via : str
        As for an Operand.
    offset : int
        Offset in bytes from the struct's beginning.
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
        The function and how it is called, for the text's first line and for messages.
    modules : tuple of str
        Modules that the text imports besides _spy_library.
    function : str
        The function's name in the text: ``"add"``, ``"copy<float>"``, ``"Ray.make"``.
    operands : tuple of Operand
        The arguments, in the order of the parameters.
    result : Operand or None
        The result; None for a function that returns nothing, or whose value is dropped.
    rank : int
        Dimensions of the coalesced call shape, at least 1.
    index : str
        Type of element indices: ``"uint"`` or ``"int64_t"``.
    width : int
        Consecutive elements that one thread runs. More than 1 needs arrays that are linear, constant or strided with
        a ``step``; with strided ones that are ``"next"`` or ``"same"``, the last dimension must be a multiple of it.
        In a tile, the elements are consecutive in the dimension before the last, which must be a multiple of it if an
        array is ``"next"``, and no array is linear.
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
        Whether the function is itself a kernel of ``group`` threads, which every thread calls once with
        ``_spy_thread``, ``_spy_local`` and ``_spy_group``: its index in the dispatch, in its group, and its group's.
    derivative : str
        ``"backward"``, ``"forward"``, or ``""`` for the function itself.
    hidden : tuple of str
        Names of Slang's core module that the modules' declarations hide. If there are any, the user's names in this
        description are marked by ``names.own``.
    lane_threads : bool
        Whether threads are lanes of vectors, which leave a loop over elements together. A group then runs ``step``
        elements that follow each other, and not elements ``step`` apart.
    column_sums : int
        With ``lane_threads``, how many sums of each column gradient a thread has, of columns a group's threads apart.
        A group then runs ``step`` rows. 0 if a thread has one sum.
    all_operands : tuple of Operand
        The globals, the parameters and then the result.
    leaves : tuple of Operand
        The operands with members in the argument block, in order.
    sums : tuple of Operand
        The leaves that are ``summed``.
    walks : bool
        Whether a thread runs several elements, whose gradients it adds up. They are ``step`` apart.
    indexed : bool
        Whether an element's code needs its multi-dimensional index.
    ragged : bool
        Whether the elements of a thread may be of two rows, and those of the last thread fewer than ``width``.
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
    lane_threads: bool = False
    column_sums: int = 0

    all_operands: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    leaves: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    sums: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    walks: bool = field(init=False, repr=False, compare=False)
    indexed: bool = field(init=False, repr=False, compare=False)
    ragged: bool = field(init=False, repr=False, compare=False)

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
        several = self.width > 1 and own["indexed"] and not tiled
        own["ragged"] = several and any(o.mode == "strided" and o.step == "each" for o in leaves)
