"""Expressions and statements of one operand: its address, its loads and stores, for one element or several.

The variables in which a thread adds up gradients are declared and added to memory here too; the entry points decide
when.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slangpy_rt_codegen.layout import VALUE_STORAGE
from slangpy_rt_codegen.spec import BFLOAT16, CallSpec, Operand, StructLayout
from slangpy_rt_codegen.variables import is_array

# Types of whole arrays that carry gradients, and how many gradients each takes.
_DIFFERENTIABLE = {"DiffTensor": 1, "WDiffTensor": 2, "RWDiffTensor": 2}
_SIZED = re.compile(r"(.*?[a-z_])([1-4])(?:x([1-4]))?$")
_HALVES = re.compile(r"half(?=(?:\d(?:x\d)?)?$)")


def index_of(spec: CallSpec, element: str = "_spy_i") -> str:
    """Return an element's index in each dimension."""
    return f"_spy_unravel<{spec.rank}>({element}, _spy_call.shape)"


def address_of(spec: CallSpec, o: Operand) -> str:
    """Return the address of an element's value."""
    first = _first_of(spec, o)
    if o.mode == "linear":
        return f"_spy_offset({first}, {_times(o.count, '_spy_i')})"
    if o.mode == "strided":
        return f"_spy_address({first}, _spy_index, _spy_call.stride_{o.name})"
    return first


def _first_of(spec: CallSpec, o: Operand) -> str:
    """Return the address of an array, or of the copy of a gradient that an element adds to."""
    if not o.copied or len(spec.group) > 1:
        return first_of_group(o)
    return copy_of(o, "_spy_i")


def first_of_group(o: Operand) -> str:
    """Return the address of an array, or of the copy of a gradient that a group has chosen."""
    return f"_spy_call.{'copies' if o.copied else 'v'}_{o.name}"


def copy_of(o: Operand, element: str) -> str:
    """Return the address of the copy of a gradient that elements from a number on add to."""
    return f"_spy_copyOf(_spy_call.copies_{o.name}, {element}, _spy_call.shift_{o.name}, _spy_call.apart_{o.name})"


def pointer_to(spec: CallSpec, scalar: str) -> str:
    """Return the text that makes an address out of a number."""
    return f"_spy_Address<{scalar}>" if spec.entry == "handle" else f"({scalar} *)"


def _bits(spec: CallSpec, address: str) -> str:
    """Return an address as a number."""
    return f"({address}).bits" if spec.entry == "handle" else f"uint64_t({address})"


def element_load(spec: CallSpec, o: Operand) -> str:
    """Return the value of one element."""
    if o.mode == "value":
        names = [f"_spy_call.v_{o.name}[{k}]" for k in range(o.count)] if o.count > 1 else [f"_spy_call.v_{o.name}"]
        if o.via:
            return f"{o.type}({names[0]})"
        return _build(o.type, iter(names), VALUE_STORAGE.get(o.scalar, o.scalar))
    if o.mode == "computed":
        return o.code
    if o.mode == "pointer":
        return f"{o.via}(_spy_call.v_{o.name})" if o.via else f"_spy_call.v_{o.name}"
    if o.mode == "handle":
        return f"*{o.via}_spy_call.v_{o.name}"
    if o.mode == "texel":
        texel = f"(*_spy_call.v_{o.name})[{o.code}]"
        return texel if o.type == _texel_type(o) else f"{o.type}({texel})"
    if o.mode == "tensor":
        data = _walked(o, bool(o.step), f"_spy_call.v_{o.name}")
        gradients = "".join(f", {_gradient_of(spec, o, g)}" for g in _tensor_gradients(o))
        return f"{o.type}({_bits(spec, data)}, _spy_call.shape_{o.name}, _spy_call.stride_{o.name}{gradients})"
    struct = _struct_of(spec, o)
    if struct is None:
        return load_from(o.type, o.via, address_of(spec, o))
    name, at = struct_name(spec, struct), _bits(spec, address_of(spec, o))
    if not is_array(o):
        return f"_spy_load_{name}({at})"
    return "{" + ", ".join(f"_spy_load_{name}({at} + {k})" for k in range(0, o.count, struct.size)) + "}"


def _tensor_gradients(o: Operand) -> tuple[Operand | None, ...]:
    """Return the gradients that a whole array takes: one to read, if the array is written, and one to add to."""
    count = _DIFFERENTIABLE.get(o.type.partition("<")[0], 0)
    return (o.grad_in, o.grad_out)[2 - count :]


def _gradient_of(spec: CallSpec, o: Operand, g: Operand | None) -> str:
    if g is None:
        return f"0, _spy_call.stride_{o.name}"
    return f"{_bits(spec, _walked(g, g.step == 'next', _first_of(spec, g)))}, _spy_call.stride_{g.name}"


def _walked(o: Operand, walked: bool, first: str) -> str:
    """Return the address of a whole array; if it is ``walked``, each element of the call gets a part of its own."""
    return f"_spy_address({first}, _spy_index, _spy_call.step_{o.name})" if walked else first


def element_store(spec: CallSpec, o: Operand, value: str) -> str:
    """Return the text that stores one element's value, or adds it to a gradient."""
    if o.summed:
        return addition(f"_spy_s_{o.name}", o.type, value)
    if o.mode == "texel":
        texel = _texel_type(o)
        return f"(*_spy_call.v_{o.name})[{o.code}] = {value if o.type == texel else f'{texel}({value})'};"
    if o.access in ("accumulate", "scatter"):
        return f"{o.type}._spy_{o.access}({address_of(spec, o)}, {value});"
    struct = _struct_of(spec, o)
    if struct is None:
        return store_to(o.type, o.via, address_of(spec, o), value)
    name, at = struct_name(spec, struct), _bits(spec, address_of(spec, o))
    if not is_array(o):
        return f"_spy_store_{name}({at}, {value});"
    ends = enumerate(range(0, o.count, struct.size))
    return " ".join(f"_spy_store_{name}({at} + {k}, {value}[{n}]);" for n, k in ends)


def _texel_type(o: Operand) -> str:
    """Return the type that a texture's texels are read and written as: ``float4`` of ``RWTexture2D<float4>``."""
    return o.via.partition("<")[2].removesuffix(">")


def load_from(type_: str, via: str, at: str) -> str:
    return f"{type_}({via}._spy_load({at}))" if via else f"{type_}._spy_load({at})"


def store_to(type_: str, via: str, at: str, value: str) -> str:
    if via.startswith(BFLOAT16):
        return f"{via}._spy_store({at}, {value});"
    return f"{via}._spy_store({at}, {via}({value}));" if via else f"{type_}._spy_store({at}, {value});"


def _build(type_: str, scalars: Iterator[str], stored: str) -> str:
    """Return the expression that makes an element from its scalars."""
    if type_.startswith("Array<"):
        inner, _, length = type_[len("Array<") : -1].rpartition(", ")
        return "{" + ", ".join(_build(inner, scalars, stored) for _ in range(int(length))) + "}"
    sized = _SIZED.match(type_)
    if sized is None:
        scalar = next(scalars)
        return f"{scalar} != 0" if type_ == "bool" else scalar if type_ == stored else f"{type_}({scalar})"
    count = int(sized[2]) * int(sized[3] or 1)
    items = [next(scalars) for _ in range(count)]
    if sized[1] == "bool":
        items = [f"{s} != 0" for s in items]
    elif sized[1] != stored:
        # Slang warns of numbers that a constructor narrows, half2(a, b) of floats, and slang-rhi prints its warnings.
        items = [f"{sized[1]}({s})" for s in items]
    return f"{type_}({', '.join(items)})"


def as_words(spec: CallSpec, o: Operand) -> bool:
    """Tell whether bytes are handled as words, for a language without a type for them."""
    return spec.entry == "handle" and o.type == "bool"


def load_wide(spec: CallSpec, o: Operand) -> str:
    at = address_of(spec, o)
    if as_words(spec, o):
        return f"_spy_loadBytes<{spec.width}>({_bits(spec, at)})"
    return f"_spy_loadWide<{o.scalar}, {spec.width}>({at})"


def store_wide(spec: CallSpec, o: Operand) -> str:
    at, value = address_of(spec, o), f"_spy_p_{o.name}"
    if as_words(spec, o):
        return f"_spy_storeBytes<{spec.width}>({_bits(spec, at)}, {value});"
    return f"_spy_storeWide<{o.scalar}, {spec.width}>({at}, {value});"


def scalar_of_wide(o: Operand) -> str:
    """Return element ``_spy_k`` of a wide load."""
    value = f"_spy_p_{o.name}[_spy_k]"
    if o.via == BFLOAT16:
        return f"{o.type}({o.via}.of({value}))"
    return f"{o.type}({value})" if o.via else _build(o.type, iter([value]), o.scalar)


def put_in_wide(spec: CallSpec, o: Operand, value: str) -> str:
    """Return the statement that puts a scalar into a wide store, or adds it to a gradient there."""
    if o.access == "scatter" and not is_wide(o):
        return addition(f"_spy_p_{o.name}", o.type, value)
    if o.summed:
        return f"_spy_s_{o.name}[_spy_k] += {value};"
    if o.access in ("accumulate", "scatter"):
        return f"_spy_p_{o.name}[_spy_k] += {value};"
    if o.type == "bool":
        value = f"{'uint' if as_words(spec, o) else 'uint8_t'}({value} ? 1 : 0)"
    if o.via == BFLOAT16:
        value = f"{o.via}.bits({value})"
    elif o.via:
        value = f"{o.via}({value})"
    return f"_spy_p_{o.name}[_spy_k] = {value};"


def addition(name: str, type_: str, value: str) -> str:
    return f"{name} = {type_}._spy_sum({name}, {value});" if type_.startswith("Array<") else f"{name} += {value};"


def sum_variables(spec: CallSpec, *accesses: str) -> str:
    """Return the variables in which a thread adds up the gradients of these accesses."""
    return "".join(
        f"    {summed_type(spec, o)} _spy_s_{o.name} = {summed_type(spec, o)}._spy_zero();\n"
        for o in spec.sums
        if o.access in accesses
    )


def summed_type(spec: CallSpec, o: Operand) -> str:
    """Return the type of the variable in which a thread adds up a gradient."""
    # A half to which others are added one at a time stays at 2048 times as much.
    if spec.entry != "range" and spec.width > 1 and is_wide(o):
        return f"vector<{_HALVES.sub('float', o.scalar)}, {spec.width}>"
    return _HALVES.sub("float", o.type)


def sum_addition(spec: CallSpec, o: Operand, place: str = "") -> str:
    """Return the statement that adds a thread's sum to a gradient in memory; `place` is the sum's in an array."""
    type_, address = sum_target(spec, o)
    return f"{type_}._spy_scatter({address}, _spy_s_{o.name}{place});"


def sum_target(spec: CallSpec, o: Operand, whole: bool = False) -> tuple[str, str]:
    """Return the type in which a thread's sum of a gradient is added to memory, and the address.

    The memory of a half that several threads add to holds a float (``slangpy_rt.arguments.exact``). ``whole`` asks
    for the address of the whole gradient instead of the element's.
    """
    type_ = _HALVES.sub("float", o.type)
    address = first_of_group(o) if whole else address_of(spec, o)
    if type_ != o.type:
        address = f"{pointer_to(spec, 'float')}({_bits(spec, address)})"
    return type_, address


def sum_parameters(spec: CallSpec) -> str:
    return "".join(f", inout {summed_type(spec, o)} _spy_s_{o.name}" for o in spec.sums)


def index_parameter(spec: CallSpec) -> str:
    return f", {spec.index} _spy_index[{spec.rank}]" if spec.indexed else ""


def _struct_of(spec: CallSpec, o: Operand) -> StructLayout | None:
    """Return the struct that an array holds, by itself or in arrays; None for other elements."""
    element = o.type
    while element.startswith("Array<"):
        element = element[len("Array<") : element.rindex(",")]
    return next((r for r in spec.structs if r.type == element), None)


def struct_name(spec: CallSpec, struct: StructLayout) -> str:
    """Return an identifier for a struct; a number keeps ``A<B>`` apart from ``A_B``."""
    words = [re.sub(r"\W+", "_", r.type).strip("_") for r in spec.structs]
    own = spec.structs.index(struct)
    return words[own] if words.count(words[own]) == 1 else f"{own}_{words[own]}"


def struct_pieces(spec: CallSpec, struct: StructLayout) -> tuple[str, str]:
    """Return the statements that read a struct of words in pieces of several, and those that write it."""
    count = struct.piece // 4
    words: list[str] = []
    loads, stores = "", ""
    for f in sorted(struct.fields, key=lambda f: f.offset):
        items = [f"_spy_value{f.path}{place}" for place in _places(f.type)]
        first = f.offset // 4
        given = [f"_spy_w{k // count}[{k % count}]" for k in range(first, first + len(items))]
        value = _build(f.type, iter([f"_spy_ofWord<{f.scalar}>({word})" for word in given]), f.scalar)
        loads += f"    _spy_value{f.path} = {value};\n"
        words += [f"_spy_asWord({item})" for item in items]
    before = ""
    for k in range(struct.size // struct.piece):
        at = f"{pointer_to(spec, 'uint')}(_spy_at + {k * struct.piece})"
        piece = ", ".join(words[k * count : (k + 1) * count])
        before += f"    vector<uint, {count}> _spy_w{k} = _spy_loadWide<uint, {count}>({at});\n"
        stores += f"    _spy_storeWide<uint, {count}>({at}, vector<uint, {count}>({piece}));\n"
    return before + loads, stores


def _places(type_: str) -> list[str]:
    """Return the places of the scalars in a scalar, vector or matrix, in their order in memory."""
    sized = _SIZED.match(type_)
    if sized is None:
        return [""]
    if sized[3] is None:
        return [f"[{k}]" for k in range(int(sized[2]))]
    return [f"[{r}][{c}]" for r in range(int(sized[2])) for c in range(int(sized[3]))]


def is_wide(o: Operand) -> bool:
    return o.mode == "linear" or (o.mode == "strided" and o.step == "next")


def _times(count: int, name: str) -> str:
    return name if count == 1 else f"{count} * {name}"
