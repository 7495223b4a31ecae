"""The argument block: scalars, raw pointers and arrays of scalars, in natural alignment.

Such a block has the same offsets on every target (the caller compares them with reflection all the same).
Values that follow from shapes come first, so that a repeated call packs only the pointers and values after them.
"""

from __future__ import annotations

from dataclasses import dataclass

from slangpy_rt_codegen.spec import CallSpec, Operand

# Slang scalar -> (struct module code, bytes)
SCALARS = {
    "int": ("i", 4),
    "uint": ("I", 4),
    "int64_t": ("q", 8),
    "uint64_t": ("Q", 8),
    "float": ("f", 4),
    "double": ("d", 8),
    "pointer": ("Q", 8),
}

# Narrow values are passed as words: by value, their size and alignment differ between targets.
VALUE_STORAGE = {
    "bool": "uint",
    "int8_t": "int",
    "int16_t": "int",
    "uint8_t": "uint",
    "uint16_t": "uint",
    "half": "float",
}

# What follows the type of a texture or sampler in the block.
HANDLE = ".Handle"


@dataclass(frozen=True)
class BlockField:
    """A member of the argument block.

    Attributes
    ----------
    declaration : str
        Its line of Slang, without the semicolon.
    code : str
        Its ``struct`` code, repeat count included.
    offset, size : int
        In bytes.
    fixed : bool
        Whether it follows from shapes alone.
    """

    name: str
    declaration: str
    code: str
    offset: int
    size: int
    fixed: bool


def block_fields(spec: CallSpec) -> tuple[BlockField, ...]:
    """Return the members of a kernel's ``_spy_Call`` struct, in order."""
    members: list[tuple[str, str, int, bool]] = [("count", spec.index, 0, True)]
    stride = "int64_t" if spec.index == "int64_t" else "int"
    if spec.rows:
        members.append(("row", spec.index, 0, True))
    if spec.walks:
        members.append(("step", spec.index, 0, True))
    if spec.indexed:
        members.append(("shape", spec.index, spec.rank, True))
    for o in spec.leaves:
        if o.mode == "strided":
            members.append((f"stride_{o.name}", stride, spec.rank, True))
        elif o.mode in ("tensor", "gradient"):
            if o.mode == "tensor":
                members.append((f"shape_{o.name}", "int", o.rank, True))
            members.append((f"stride_{o.name}", "int64_t", o.rank, True))
            if o.step == "next":
                members.append((f"step_{o.name}", stride, spec.rank, True))
        if o.copied:
            members += [(f"apart_{o.name}", "int64_t", 0, True), (f"shift_{o.name}", "uint", 0, True)]
    # Before all others that move: the calls know these addresses, the arguments the rest.
    members += [(f"copies_{o.name}", _pointer_to(spec, o), 0, False) for o in spec.leaves if o.copied]
    for o in spec.leaves:
        if o.mode == "value":
            scalar = VALUE_STORAGE.get(o.scalar, o.scalar)
            members.append((f"v_{o.name}", scalar, o.count if o.count > 1 else 0, False))
        elif o.mode in ("handle", "texel"):
            pointed = o.mode == "handle" and o.via
            texture = f"{o.via if o.mode == 'texel' else o.type}{HANDLE}"
            members.append((f"v_{o.name}", f"{texture} *" if pointed else texture, 0, False))
        elif o.mode not in ("computed", "unused"):
            members.append((f"v_{o.name}", _pointer_to(spec, o), 0, False))
    fields: list[BlockField] = []
    at = 0
    for name, scalar, repeat, fixed in members:
        handle = scalar.endswith(HANDLE)
        pointer = scalar.endswith(("*", "> "))
        code, size = SCALARS["pointer" if pointer or handle else scalar]
        if handle and at % size:
            # SPIR-V and HLSL have two words for a handle, which would follow here, C++ and CUDA 8 bytes.
            fields.append(BlockField(f"gap_{name}", f"uint gap_{name}", "4x", at, 4, False))
        at = -(-at // size) * size
        total = size * max(1, repeat)
        space = "" if pointer else " "
        declaration = f"{scalar}{space}{name}" + (f"[{repeat}]" if repeat else "")
        fields.append(BlockField(name, declaration, f"{max(1, repeat)}{code}", at, total, fixed))
        at += total
    return tuple(fields)


def _pointer_to(spec: CallSpec, o: Operand) -> str:
    """Return the type of the address of an operand's scalars, as a declaration begins with it."""
    return f"_spy_Address<{o.scalar}> " if spec.entry == "handle" else f"{o.scalar} *"
