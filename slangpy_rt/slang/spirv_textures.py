"""Replaces instructions on textures and samplers in SPIR-V by calls of functions of ``shaders/cpu_textures.slang``.

This is for the CPU, where threads are lanes and a texture is the address of a record in memory. The types of textures
and samplers become integers of 64 bits, and that of a texture with its sampler a vector of two. So what comes after
this pass, ``lanes``, knows no textures.

    %s = OpSampledImage %pair %image %sampler         %s = OpCompositeConstruct %v2ulong %image %sampler
    %r = OpImageFetch %v4float %image %at Lod %k      %r = OpFunctionCall %v4float %_spy_Fetch %image %at3 %k %volume

Samples whose level follows from neighbouring pixels are not here: ``target_code.checked`` refuses them before.
Comparisons, several samples a texel, and typed buffers are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.slang import spirv
from slangpy_rt.slang.spirv import Assembly, Functions, Words, instruction

_TYPE_IMAGE, _TYPE_SAMPLER, _TYPE_SAMPLED_IMAGE, _TYPE_POINTER = 25, 26, 27, 32
# Storage classes of texels, and of memory behind addresses.
_TEXELS, _PHYSICAL = 11, 5349
_TEXEL_POINTER, _LOAD, _STORE, _ACCESS_CHAIN, _TO_POINTER, _ATOMIC_STORE = 60, 61, 62, 65, 120, 228
_ATOMICS = frozenset({*range(227, 243), 6035})
# Declarations of types, and of values.
_TYPES, _VALUES = frozenset(range(19, 34)), frozenset({1, *range(41, 53), 59})
_EXTRACT_DYNAMIC, _COPY, _U_CONVERT, _S_CONVERT, _BITCAST, _I_ADD = 77, 83, 113, 114, 124, 128
_CONSTRUCT, _EXTRACT, _CALL = spirv.COMPOSITE_CONSTRUCT, spirv.COMPOSITE_EXTRACT, spirv.FUNCTION_CALL
_SAMPLED_IMAGE, _SAMPLE, _FETCH, _GATHER, _READ, _WRITE, _IMAGE = 86, 88, 95, 96, 98, 99, 100
_SIZE_OF_LEVEL, _SIZE, _LEVELS = 103, 104, 106
# Bits of image operands, in the order in which their ids come.
_BIAS, _LOD, _GRAD, _CONST_OFFSET, _OFFSET, _CONST_OFFSETS, _, _LEAST_LEVEL = (1 << k for k in range(8))
_LINE, _PLANE, _VOLUME, _CUBE = range(4)
# What is refused, by opcode.
_REFUSED = {
    90: "a comparison by a sampler", 97: "a comparison by a sampler", 105: "CalculateLevelOfDetail",
    107: "a multisampled texture", **dict.fromkeys(range(305, 321), "a sparse texture"),
}  # fmt: skip
_LACKS = "the function uses {used}, which this device does not have. Run it on a device of type vulkan."


class Image(NamedTuple):
    """What the type of a texture says: the scalar of its texels as SPIR-V has it, its axes, whether it has layers."""

    scalar: int
    shape: int
    layers: bool

    @property
    def axes(self) -> int:
        """Coordinates besides the layer."""
        return {_LINE: 1, _PLANE: 2}.get(self.shape, 3)

    @property
    def places(self) -> int:
        """Numbers of a texel's place besides the layer."""
        return {_LINE: 1, _VOLUME: 3}.get(self.shape, 2)


def with_texture_calls(code: bytes, library: Callable[[], Functions]) -> bytes:
    """Return a module without textures and samplers.

    Parameters
    ----------
    code : bytes
        SPIR-V that Slang wrote.
    library : callable
        A function without parameters that returns the functions of ``shaders/cpu_textures.slang``. It is called only
        if the module has a texture.

    Raises
    ------
    UnsupportedError
        If the module uses something of textures that has no function there.
    """
    module = Assembly(code)
    if any(words[0] & 0xFFFF in (_TYPE_IMAGE, _TYPE_SAMPLER) for words in module.head):
        return _Replacement(module, library()).bytes()
    return code


class _Replacement:
    """The module while it changes: new instructions go to ``out``. Declarations may come behind their first use."""

    def __init__(self, module: Assembly, functions: Functions) -> None:
        self.module, self.functions = module, functions
        find = module.find
        self.address, self.bool = find(spirv.TYPE_INT, 64, 0), find(spirv.TYPE_BOOL)
        self.float, self.int = find(spirv.TYPE_FLOAT, 32), find(spirv.TYPE_INT, 32, 1)
        self.uint, self.pair = find(spirv.TYPE_INT, 32, 0), find(spirv.TYPE_VECTOR, self.address, 2)
        self.images: dict[int, Image] = {}
        # Types of numbers, with opcode, bits and sign; of vectors, with the type of their parts and the count.
        self.numbers: dict[int, Words] = {}
        self.vectors: dict[int, tuple[int, int]] = {}
        self.type_of: dict[int, int] = {}
        self.out: list[Words] = []
        # The instructions that made pointers to texels and to their components.
        self.texels: dict[int, Words] = {}
        # Ids that stand for functions of the library until these are copied.
        self.called: dict[str, int] = {}

    def bytes(self) -> bytes:
        """Return the code of the changed module."""
        module = self.module
        module.head[:] = [self._declared(words) for words in module.head]
        types = {words[1] for words in module.head if words[0] & 0xFFFF in _TYPES}
        constants = [words for words in module.head if words[0] & 0xFFFF in _VALUES]
        for words in (*constants, *module.body):
            # The first operand is a type only where there is a result of it.
            if len(words) > 2 and words[1] in types:
                self.type_of[words[2]] = words[1]
        for words in module.body:
            if not self._replaced(words):
                self.out.append(words)
        module.body = []
        ids = self.functions.copy(list(self.called), module, module.glsl(), exact=False)
        names = {self.called[name]: id_ for name, id_ in ids.items()}
        for words in self.out:
            if words[0] & 0xFFFF == _CALL:
                words[3] = names.get(words[3], words[3])
        module.body[:0] = self.out
        return module.bytes()

    def _declared(self, words: Words) -> Words:
        """Take a declaration; return what it becomes."""
        op = words[0] & 0xFFFF
        if op in (spirv.TYPE_INT, spirv.TYPE_FLOAT):
            self.numbers[words[1]] = [op, *words[2:]]
        elif op == spirv.TYPE_VECTOR:
            self.vectors[words[1]] = words[2], words[3]
        elif op == _TYPE_IMAGE:
            if words[3] > _CUBE or words[6]:
                used = "a multisampled texture" if words[6] else "a typed buffer"
                raise UnsupportedError(_LACKS.format(used=used))
            self.images[words[1]] = Image(words[2], words[3], bool(words[5]))
            return instruction(spirv.TYPE_INT, words[1], 64, 0)
        elif op == _TYPE_SAMPLER:
            return instruction(spirv.TYPE_INT, words[1], 64, 0)
        elif op == _TYPE_SAMPLED_IMAGE:
            self.images[words[1]] = self.images[words[2]]
            self.vectors[words[1]] = self.address, 2
            return instruction(spirv.TYPE_VECTOR, words[1], self.address, 2)
        elif op == _TYPE_POINTER and words[2] == _TEXELS:
            return instruction(_TYPE_POINTER, words[1], _PHYSICAL, words[3])
        return words

    def _replaced(self, words: Words) -> bool:
        """Write what an instruction becomes; return whether it is one on textures."""
        op = words[0] & 0xFFFF
        if op in _REFUSED:
            raise UnsupportedError(_LACKS.format(used=_REFUSED[op]))
        if op == _SAMPLED_IMAGE:
            self.out.append(instruction(_CONSTRUCT, *words[1:5]))
        elif op == _IMAGE:
            self.out.append(instruction(_EXTRACT, *words[1:4], 0))
        elif op == _BITCAST and words[1] in self.vectors and words[1] in self.images:
            address = self._emit(_BITCAST, self.address, words[3])
            self.out.append(instruction(_CALL, words[1], words[2], self._function("Pair"), address))
        elif op in (_SAMPLE, _GATHER):
            self._sample(words) if op == _SAMPLE else self._gather(words)
        elif op in (_FETCH, _READ):
            self._fetch(words)
        elif op == _WRITE:
            self._write(words)
        elif op in (_SIZE, _SIZE_OF_LEVEL, _LEVELS):
            self._measure(words)
        elif op == _TEXEL_POINTER or (op == _ACCESS_CHAIN and words[3] in self.texels):
            self.texels[words[2]] = words
        elif op == _LOAD and words[3] in self.texels:
            self._load(words)
        elif op == _STORE and words[1] in self.texels:
            raise UnsupportedError(_LACKS.format(used="an assignment to a component of a texel"))
        elif op in _ATOMICS and (pointer := words[1 if op == _ATOMIC_STORE else 3]) in self.texels:
            self.out.append([self._pointer(pointer) if word == pointer else word for word in words])
        else:
            return False
        return True

    # Instructions

    def _sample(self, words: Words) -> None:
        image = self._image(words[3])
        options = self._options(words, 5)
        at, layer = self._coordinates(words[4], image)
        where = *self._parts(words[3]), at, layer
        offset = self._offset(options)
        if _GRAD in options:
            slopes = (self._coordinates(id_, image, of_slope=True)[0] for id_ in options[_GRAD])
            if image.shape == _CUBE:
                lod = self._call("LevelOfCube", self.float, where[0], at, *slopes)
            else:
                lod = self._call("LevelOf", self.float, where[0], *slopes)
        else:
            lod = options[_LOD][0]
        volume = self._flag(image.shape == _VOLUME)
        if self._is_whole(image):
            cube, signed = self._flag(image.shape == _CUBE), self._flag(self._is_signed(image))
            self._found(words, image, "SampleWhole", *where, lod, offset, volume, cube, signed)
        elif image.shape == _CUBE:
            self._found(words, image, "SampleCube", *where, lod)
        else:
            self._found(words, image, "Sample", *where, lod, offset, volume)

    def _gather(self, words: Words) -> None:
        image = self._image(words[3])
        options = self._options(words, 6)
        where = *self._parts(words[3]), *self._coordinates(words[4], image), self._integer(words[5])
        whole = self._is_whole(image)
        name, end = ("GatherWhole", (self._flag(self._is_signed(image)),)) if whole else ("Gather", ())
        if image.shape == _CUBE:
            if whole:
                raise UnsupportedError(_LACKS.format(used="Gather of whole numbers in a cube"))
            self._found(words, image, "GatherCube", *where)
        elif _CONST_OFFSETS in options:
            # One texel for each offset: the one that comes last without offsets.
            type_ = self.uint if whole else self.float
            pair, four = self._vector_type(self.int, 2), self._vector_type(type_, 4)
            offsets = [self._emit(_EXTRACT, pair, options[_CONST_OFFSETS][0], k) for k in range(4)]
            each = [self._call(name, four, *where, self._three([id_]), *end) for id_ in offsets]
            self._finish(words, [self._emit(_EXTRACT, type_, id_, 3) for id_ in each])
        else:
            self._found(words, image, name, *where, self._offset(options), *end)

    def _fetch(self, words: Words) -> None:
        image, options = self._image(words[3]), self._options(words, 5)
        level = self._integer(options[_LOD][0]) if _LOD in options else self._constant(self.int, 0)
        where = words[3], self._place(words[4], image, options), level, self._flag(image.shape == _VOLUME)
        if self._is_whole(image):
            self._found(words, image, "FetchWhole", *where, self._flag(self._is_signed(image)))
        else:
            self._found(words, image, "Fetch", *where)

    def _write(self, words: Words) -> None:
        image = self._image(words[1])
        whole = self._is_whole(image)
        to = self.uint if whole else self.float
        parts = [self._converted(part, to) for part in self._scalars(words[3])]
        parts += [self._constant(to, k // 3 if whole else 0x3F800000 * (k // 3)) for k in range(len(parts), 4)]
        texel = self._vector(to, parts)
        where = words[1], self._place(words[2], image, {}), self._flag(image.shape == _VOLUME)
        self._call("WriteWhole" if whole else "Write", self.module.find(spirv.TYPE_VOID), *where, texel)

    def _load(self, words: Words) -> None:
        """Read a texel, or a component of one, through a pointer."""
        chain, pointer = [], self.texels[words[3]]
        if pointer[0] & 0xFFFF == _ACCESS_CHAIN:
            chain, pointer = pointer[4:], self.texels[pointer[3]]
        wanted = self._texel_type(pointer) if chain else words[1]
        texel = self.module.new_id() if chain else words[2]
        self._fetch(instruction(_READ, wanted, texel, pointer[3], pointer[4]))
        if chain:
            self.type_of[texel] = wanted
            self.out.append(instruction(_EXTRACT_DYNAMIC, words[1], words[2], texel, chain[0]))

    def _pointer(self, id_: int) -> int:
        """Return the address of a texel as a pointer; where there is no such texel, to memory of no use."""
        words = self.texels[id_]
        if words[0] & 0xFFFF == _ACCESS_CHAIN:
            raise UnsupportedError(_LACKS.format(used="an atomic operation on a component of a texel"))
        image = self._image(words[3])
        where = words[3], self._place(words[4], image, {}), self._flag(image.shape == _VOLUME)
        return self._emit(_TO_POINTER, words[1], self._call("Texel", self.address, *where))

    def _texel_type(self, words: Words) -> int:
        """Return the type that a pointer to a texel points to."""
        pointers = (each for each in self.module.head if each[0] & 0xFFFF == _TYPE_POINTER)
        return next(each[3] for each in pointers if each[1] == words[1])

    def _measure(self, words: Words) -> None:
        image, op = self._image(words[3]), words[0] & 0xFFFF
        if op == _LEVELS:
            found = [self._call("Levels", self.int, words[3])]
        else:
            level = self._integer(words[4]) if op == _SIZE_OF_LEVEL else self._constant(self.int, 0)
            of = words[3], level, self._flag(image.shape == _CUBE)
            four = self._call("Sizes", self._vector_type(self.int, 4), *of)
            wanted = [*range(image.places), *([3] if image.layers else [])]
            found = [self._emit(_EXTRACT, self.int, four, k) for k in wanted]
        self._finish(words, found)

    # Operands

    def _image(self, id_: int) -> Image:
        return self.images[self.type_of[id_]]

    def _parts(self, pair: int) -> tuple[int, int]:
        """Return the texture and the sampler of a pair."""
        return self._emit(_EXTRACT, self.address, pair, 0), self._emit(_EXTRACT, self.address, pair, 1)

    def _is_whole(self, image: Image) -> bool:
        return self.numbers[image.scalar][0] == spirv.TYPE_INT

    def _is_signed(self, image: Image) -> bool:
        return self.numbers[image.scalar][2] == 1

    def _options(self, words: Words, start: int) -> dict[int, Words]:
        """Return the image operands that begin at a word: their ids by bit."""
        found: dict[int, Words] = {}
        ids, mask = list(words[start + 1 :]), words[start] if len(words) > start else 0
        for bit in (_BIAS, _LOD, _GRAD, _CONST_OFFSET, _OFFSET, _CONST_OFFSETS):
            if mask & bit:
                count = 2 if bit == _GRAD else 1
                found[bit], ids = ids[:count], ids[count:]
        if mask & _LEAST_LEVEL:
            raise UnsupportedError(_LACKS.format(used="a level clamped by a call"))
        return found

    def _coordinates(self, id_: int, image: Image, of_slope: bool = False) -> tuple[int, int]:
        """Return three coordinates as a vector, and the layer. A line is the middle of a plane one texel high."""
        parts = [self._converted(part, self.float) for part in self._scalars(id_)]
        zero, half = self._constant(self.float, 0), self._constant(self.float, 0x3F000000)
        fill = (zero, zero if of_slope or image.shape != _LINE else half, zero)
        at = self._vector(self.float, [*parts[: image.axes], *fill[image.axes :]])
        return at, parts[image.axes] if image.layers and not of_slope else zero

    def _place(self, id_: int, image: Image, options: dict[int, Words]) -> int:
        """Return the place of a texel as a vector of three: of a volume z is the depth, of others the layer."""
        parts, zero = [self._integer(part) for part in self._scalars(id_)], self._constant(self.int, 0)
        at, layer = parts[: image.places], parts[image.places] if image.layers else zero
        for bit in (_CONST_OFFSET, _OFFSET):
            for k, part in enumerate(self._scalars(options[bit][0]) if bit in options else ()):
                at[k] = self._emit(_I_ADD, self.int, at[k], self._integer(part))
        at = [*at, zero][:2] if image.shape == _LINE else at
        return self._vector(self.int, at if image.shape == _VOLUME else [*at, layer])

    def _offset(self, options: dict[int, Words]) -> int:
        """Return an offset in texels as a vector of three."""
        return self._three(options.get(_CONST_OFFSET) or options.get(_OFFSET))

    def _three(self, ids: Words | None) -> int:
        parts = [self._integer(part) for part in self._scalars(ids[0])] if ids else []
        return self._vector(self.int, [*parts, *[self._constant(self.int, 0)] * 3][:3])

    def _integer(self, id_: int) -> int:
        return self._converted(id_, self.int)

    def _scalars(self, id_: int) -> list[int]:
        """Return the components of a vector, or a scalar alone."""
        type_, count = self.vectors.get(self.type_of[id_], (0, 0))
        return [self._emit(_EXTRACT, type_, id_, k) for k in range(count)] if count else [id_]

    # Results

    def _found(self, words: Words, image: Image, name: str, *arguments: int) -> None:
        """Call a function that returns a texel, and write the result that an instruction has."""
        type_ = self._vector_type(self.uint if self._is_whole(image) else self.float, 4)
        if words[1] == type_:
            self.out.append(instruction(_CALL, type_, words[2], self._function(name), *arguments))
        else:
            self._finish(words, self._scalars(self._call(name, type_, *arguments)))

    def _finish(self, words: Words, parts: list[int]) -> None:
        """Write the result that an instruction has from its components."""
        type_, count = self.vectors.get(words[1], (words[1], 1))
        found = [self._converted(part, type_) for part in parts[:count]]
        made = [_COPY, words[1], words[2], *found] if count == 1 else [_CONSTRUCT, words[1], words[2], *found]
        self.out.append(instruction(*made))

    def _converted(self, id_: int, to: int) -> int:
        """Return a scalar as one of another type of the same kind."""
        type_ = self.type_of[id_]
        if type_ == to:
            return id_
        kind, bits, *sign = self.numbers[type_]
        if kind == spirv.TYPE_FLOAT:
            return self._emit(spirv.F_CONVERT, to, id_)
        if bits == self.numbers[to][1]:
            return self._emit(_BITCAST, to, id_)
        return self._emit(_S_CONVERT if sign == [1] else _U_CONVERT, to, id_)

    def _vector(self, type_: int, parts: list[int]) -> int:
        return self._emit(_CONSTRUCT, self._vector_type(type_, len(parts)), *parts)

    def _vector_type(self, type_: int, count: int) -> int:
        found = self.module.find(spirv.TYPE_VECTOR, type_, count)
        self.vectors[found] = type_, count
        return found

    def _constant(self, type_: int, bits: int) -> int:
        found = self.module.find(spirv.CONSTANT, type_, bits)
        self.type_of[found] = type_
        return found

    def _flag(self, value: bool) -> int:
        return self.module.find(41 if value else 42, self.bool)

    def _function(self, name: str) -> int:
        return self.called.setdefault(f"_spy_{name}", self.module.new_id())

    def _call(self, name: str, type_: int, *arguments: int) -> int:
        return self._emit(_CALL, type_, self._function(name), *arguments)

    def _emit(self, op: int, type_: int, *operands: int) -> int:
        """Write an instruction, and return the id of its result."""
        result = self.module.new_id()
        self.type_of[result] = type_
        self.out.append(instruction(op, type_, result, *operands))
        return result
