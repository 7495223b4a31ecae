"""Edits SPIR-V as lists of 32-bit words: adds types and constants to a module, copies functions from another module.

The tables describe only the operands of instructions that ``shaders/double_math.slang`` and ``cpu_textures.slang``
compile to; copying another instruction raises KeyError. Modules are not validated.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Iterator

Words = list[int]

CAPABILITY, EXT_INST_IMPORT, EXT_INST, NAME, DECORATE = 17, 11, 12, 5, 71
TYPE_VOID, TYPE_BOOL, TYPE_INT, TYPE_FLOAT, TYPE_VECTOR = 19, 20, 21, 22, 23
CONSTANT, CONSTANT_COMPOSITE, CONSTANT_NULL = 43, 44, 46
FUNCTION, FUNCTION_END, FUNCTION_CALL = 54, 56, 57
COMPOSITE_CONSTRUCT, COMPOSITE_EXTRACT, F_CONVERT = 80, 81, 115
FLOAT64, INT64 = 10, 11
_NO_CONTRACTION = 42
_ARITHMETIC = frozenset({127, 129, 131, 133, 136, 140, 141, 142})
# Opcodes of types, constants and variables, which stand between annotations and functions.
_GLOBALS = frozenset({1, *range(19, 40), *range(41, 53), 59})
_ANNOTATIONS = frozenset({71, 72, 73, 74, 75, 332, 5632, 5633})
# The operands after the result, by opcode: i is an id, l a word of another kind, I and L any number of these. The
# instructions in _TYPED have a type and a result, those in _TYPES a result, those in _PLAIN neither. 81: "iL", for
# example, is OpCompositeExtract: an id and any number of indices. OpSwitch (251) may have up to 16 cases.
_TYPED = {
    1: "", 12: "ilI", 41: "", 42: "", 43: "L", 44: "I", 46: "", 54: "li", 55: "", 57: "I", 59: "lI", 61: "iL",
    65: "I", 67: "I", 79: "iiL", 80: "I", 81: "iL", 82: "iiL", 83: "i", **dict.fromkeys(range(109, 149), "I"),
    **dict.fromkeys(range(154, 201), "I"), 245: "I",
}  # fmt: skip
_TYPES = {19: "", 20: "", 21: "ll", 22: "l", 23: "il", 28: "ii", 30: "I", 32: "li", 33: "I", 248: ""}
_PLAIN = {
    56: "",
    62: "iiL",
    246: "iiL",
    247: "il",
    249: "i",
    250: "iiiL",
    251: "ii" + 16 * "li",
    253: "",
    254: "i",
    255: "",
}


class Assembly:
    """A SPIR-V module that can be edited.

    Parameters
    ----------
    code : bytes
        SPIR-V in this machine's byte order, as Slang writes it.

    Attributes
    ----------
    head, body : list of list of int
        The instructions before the first function, and those of the functions, each as its words.
    """

    def __init__(self, code: bytes) -> None:
        words = array.array("I", code).tolist()
        self._header = words[:5]
        every = list(instructions(words))
        first = next((k for k, words in enumerate(every) if words[0] & 0xFFFF == FUNCTION), len(every))
        self.head, self.body = every[:first], every[first:]
        self._known: dict[tuple[int, ...], int] = {}
        for words in self.head:
            self._learn(words)

    def bytes(self) -> bytes:
        """Return the SPIR-V code of the module in its present state."""
        flat = [word for words in (self._header, *self.head, *self.body) for word in words]
        return array.array("I", flat).tobytes()

    def new_id(self) -> int:
        """Return an id that is not used yet."""
        self._header[3] += 1
        return self._header[3] - 1

    def glsl(self) -> int:
        """Return the id under which the module imports GLSL.std.450, which it does if it did not."""
        for words in self.head:
            if words[0] & 0xFFFF == EXT_INST_IMPORT and string(words[2:]) == "GLSL.std.450":
                return words[1]
        found = self.new_id()
        self.head.insert(0, instruction(EXT_INST_IMPORT, found, *_words("GLSL.std.450")))
        return found

    def capability(self, number: int) -> None:
        """Add the declaration of a capability, unless the module has it."""
        words = [instruction(CAPABILITY, number)]
        if words[0] not in self.head:
            self.head[:0] = words

    def find(self, op: int, *operands: int) -> int:
        """Return the id of a type or a constant, which is declared if the module lacks it.

        Parameters
        ----------
        op : int
            The opcode.
        *operands : int
            The operands after the result. For a constant the id of its type comes first:
            ``find(CONSTANT, type, word)``.
        """
        key = (op, *operands)
        if key not in self._known:
            place = 1 if op in _TYPED else 0
            found = self.new_id()
            self.head.append(instruction(op, *operands[:place], found, *operands[place:]))
            self._known[key] = found
        return self._known[key]

    def annotate(self, names: Iterable[Words], decorations: Iterable[Words]) -> None:
        """Add names (OpName) and decorations (OpDecorate), each to the section where SPIR-V wants it."""
        self.declare_first(decorations)
        end = len(self.head)
        place = next((k for k, words in enumerate(self.head) if words[0] & 0xFFFF in _ANNOTATIONS | _GLOBALS), end)
        self.head[place:place] = names

    def declare_first(self, found: Iterable[Words]) -> None:
        """Insert instructions before the first type, constant or variable."""
        place = next((k for k, words in enumerate(self.head) if words[0] & 0xFFFF in _GLOBALS), len(self.head))
        self.head[place:place] = found

    def _learn(self, words: Words) -> None:
        op = words[0] & 0xFFFF
        if op in (CONSTANT, CONSTANT_COMPOSITE, 41, 42, CONSTANT_NULL):
            self._known.setdefault((op, words[1], *words[3:]), words[2])
        elif op in _TYPES and op not in (28, 30):  # equal arrays and structs may differ in their decorations
            self._known.setdefault((op, *words[2:]), words[1])


class Functions:
    """The functions of a compiled module, which can be copied into other modules.

    Parameters
    ----------
    code : bytes
        The module's SPIR-V code. Its instructions have to be in the tables of this file.
    """

    def __init__(self, code: bytes) -> None:
        whole = Assembly(code)
        self._globals: dict[int, Words] = {}
        self._bodies: dict[int, list[Words]] = {}
        self._names: dict[str, int] = {}
        self._set = 0
        for words in whole.head:
            op = words[0] & 0xFFFF
            if op == EXT_INST_IMPORT:
                self._set = words[1]
            elif op == NAME:
                self._names[string(words[2:])] = words[1]
            elif op in _GLOBALS and op != 39:
                self._globals[words[2 if op in _TYPED or op == 59 else 1]] = words
        body: list[Words] = []
        for words in whole.body:
            if words[0] & 0xFFFF == FUNCTION:
                body = self._bodies.setdefault(words[2], [])
            body.append(words)

    def copy(self, names: Iterable[str], into: Assembly, set_: int, exact: bool = True) -> dict[str, int]:
        """Copy functions, and those that they call, into another module, with the capabilities Int64 and Float64.

        Parameters
        ----------
        names : iterable of str
            The names of the functions.
        into : Assembly
            The other module.
        set_ : int
            The id under which the other module imports GLSL.std.450.
        exact : bool
            Whether arithmetic in the copies gets the decoration NoContraction, so that drivers do not fuse it.

        Returns
        -------
        dict of str to int
            The functions' ids in the other module, by name.

        Raises
        ------
        KeyError
            If there is no function of a name, or an instruction is not in the tables of this file.
        """
        ids = {self._set: set_}
        wanted = [self._names[name] for name in names]
        copied: dict[int, list[Words]] = {}
        while wanted:
            function = wanted.pop()
            if function not in copied:
                copied[function] = self._bodies[function]
                wanted += [words[3] for words in self._bodies[function] if words[0] & 0xFFFF == FUNCTION_CALL]

        def renamed(old: int) -> int:
            if old not in ids:
                ids[old] = self._declared(old, into, renamed) if old in self._globals else into.new_id()
            return ids[old]

        titles = {old: name for name, old in self._names.items() if old in copied}
        decorations = []
        for body in copied.values():
            for words in body:
                made = _renamed(words, renamed)
                into.body.append(made)
                if exact and words[0] & 0xFFFF in _ARITHMETIC:
                    decorations.append(instruction(DECORATE, made[2], _NO_CONTRACTION))
        into.annotate(
            [instruction(NAME, ids[old], *_words(name)) for old, name in titles.items()],
            decorations,
        )
        into.capability(INT64)
        into.capability(FLOAT64)
        return {name: ids[self._names[name]] for name in names}

    def _declared(self, old: int, into: Assembly, renamed: Callable[[int], int]) -> int:
        words = self._globals[old]
        op = words[0] & 0xFFFF
        made = _renamed(words, lambda other: 0 if other == old else renamed(other))
        operands = made[2:] if op in _TYPES else [made[1], *made[3:]]
        return into.find(op, *operands)


def instructions(words: Words) -> Iterator[Words]:
    """Yield the instructions of a module, given by its words with the header of 5 words, each as its words."""
    at, end = 5, len(words)
    while at < end:
        size = words[at] >> 16
        yield words[at : at + size]
        at += size


def instruction(op: int, *operands: int) -> Words:
    """Return the words of an instruction: the number of words and the opcode in the first, then the operands."""
    return [(len(operands) + 1) << 16 | op, *operands]


def string(words: Words) -> str:
    """Return the text of a literal string, which SPIR-V encodes as UTF-8 bytes in words, ended by a NUL."""
    return array.array("I", words).tobytes().partition(b"\0")[0].decode("utf-8", "replace")


def _words(text: str) -> Words:
    data = text.encode() + b"\0"
    return array.array("I", data.ljust(-(-len(data) // 4) * 4, b"\0")).tolist()


def _renamed(words: Words, ids: Callable[[int], int]) -> Words:
    op = words[0] & 0xFFFF
    if op in _TYPED:
        result, kinds, first = [ids(words[1]), ids(words[2])], _TYPED[op], 3
    elif op in _TYPES:
        result, kinds, first = [ids(words[1])], _TYPES[op], 2
    else:
        result, kinds, first = [], _PLAIN[op], 1
    rest = []
    for k, word in enumerate(words[first:]):
        kind = kinds[min(k, len(kinds) - 1)]
        rest.append(ids(word) if kind in "iI" else word)
    return [words[0], *result, *rest]
