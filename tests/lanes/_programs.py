"""Random structured programs in Slang: branches, loops, switches, leaves of all kinds, calls, arrays, barriers.

All loops end, indices are in range, and barriers stand where the threads that have not returned come together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

_VARYING = ("v0", "v1", "v2", "v3")
_UNIFORM = ("u0", "u1", "n")
_OPERATORS = ("+", "-", "*", "^", "&", "|")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a statement stands.

    Attributes
    ----------
    together : bool
        Whether all threads that have not returned run it together.
    jumps : tuple of str
        Which statements that leave may stand here.
    parted : bool
        Whether a jump of some threads may skip the rest of the loop around it.
    """

    together: bool = True
    jumps: tuple[str, ...] = ("return",)
    depth: int = 0
    parted: bool = False


class Program:
    """A program of one kernel ``main_kernel(data, n)``, in groups of `threads`.

    Parameters
    ----------
    seed : int
        Programs of equal seeds are equal.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0
        self.threads = self.random.choice((64, 64, 40, 16))
        self.barriers = self.random.random() < 0.5
        # The loops around that some threads may leave or cut short: no barrier may follow in them.
        self.parted: list[bool] = [False]
        self.function = False
        helper = ""
        self.calls = False
        if self.random.random() < 0.5:
            self.function = True
            body = self._block(Place(together=False, jumps=("return v0;",)), 3)
            head = f"uint helper(uint v0, uint v1, uint n)\n{{\nuint v2 = v0, v3 = 1, u0 = n, u1 = 3;\n{_ARRAY}"
            helper = f"{head}\n{body}\nreturn v2 ^ v3;\n}}\n"
            self.function, self.calls = False, True
        self.parted = [False]
        body = self._block(Place(), 7)
        self.text = f"""
groupshared uint shared_memory[{self.threads}];
{helper}
[shader("compute")] [numthreads({self.threads}, 1, 1)]
void main_kernel(uint3 thread : SV_DispatchThreadID, uint at : SV_GroupIndex, uniform uint *data, uniform uint *sums,
                 uniform uint n)
{{
uint v0 = data[thread.x], v1 = thread.x, v2 = 7, v3 = at, u0 = n * 3, u1 = 5;
{_ARRAY}
shared_memory[at] = v0;
GroupMemoryBarrierWithGroupSync();
{body}
data[thread.x] = v0 ^ v1 * 3 ^ v2 * 5 ^ v3 * 7 ^ u0 * 11 ^ u1 ^ array[0] ^ array[v0 & 3];
}}
"""

    def _name(self) -> str:
        self.names += 1
        return f"k{self.names}"

    def _value(self, uniform: bool = False) -> str:
        pick = self.random.random()
        if pick < 0.3:
            return f"{self.random.choice((0, 1, 2, 3, 5, 31, 4294967295))}u"
        name = self.random.choice(_UNIFORM if uniform or pick < 0.4 else _VARYING)
        if not uniform and pick > 0.9:
            return f"array[{self._value()} & 3]"
        return name

    def _expression(self, uniform: bool = False) -> str:
        a, b = self._value(uniform), self._value(uniform)
        pick = self.random.random()
        if pick < 0.6:
            return f"{a} {self.random.choice(_OPERATORS)} {b}"
        if pick < 0.7:
            return f"({a} >> {self.random.randrange(32)}) + {b}"
        if pick < 0.78:
            return f"{a} / ({b} | 1)"
        if pick < 0.86:
            return f"{a} % {self.random.choice((2, 3, 7))}"
        if pick < 0.93 or uniform or not self.calls or self.function:
            return f"({self._condition(uniform)} ? {a} : {b})"
        return f"helper({a}, {b}, n)"

    def _condition(self, uniform: bool = False) -> str:
        a, b = self._value(uniform), self._value(uniform)
        if self.random.random() < 0.5:
            return f"({a} & {self.random.choice((1, 2, 3, 4))}) {self.random.choice(('==', '!='))} 0"
        return f"{a} {self.random.choice(('<', '>', '==', '<='))} {b}"

    def _block(self, place: Place, count: int) -> str:
        return "\n".join(self._statement(place) for _ in range(self.random.randint(1, count)))

    def _statement(self, place: Place) -> str:
        pick, r = self.random.random(), self.random
        if place.depth > 3:
            pick *= 0.35
        if pick < 0.2:
            return f"{r.choice(_VARYING)} = {self._expression()};"
        if pick < 0.26:
            return f"array[{self._value()} & 3] = {self._expression()};"
        if pick < 0.3 and place.together and not any(self.parted):
            return f"{r.choice(_UNIFORM[:2])} = {self._expression(True)};"
        if pick < 0.33 and not self.function:
            return f"InterlockedAdd(sums[{self._value()} & 3], {self._value()});"
        if pick < 0.35 and not place.together:
            return self._jump(place, "")
        if pick < 0.42 and self.barriers and place.together and not any(self.parted) and not self.function:
            return (
                f"GroupMemoryBarrierWithGroupSync();\nshared_memory[at] = {self._expression()};\n"
                "GroupMemoryBarrierWithGroupSync();\n"
                f"{r.choice(_VARYING)} ^= shared_memory[({self._value()}) % {self.threads}];\n"
                "GroupMemoryBarrierWithGroupSync();"
            )
        if pick < 0.52:
            uniform = r.random() < 0.3
            return self._jump(place, f"if ({self._condition(uniform)}) ", uniform)
        if pick < 0.72:
            return self._selection(place)
        return self._loop(place) if pick < 0.9 else self._switch(place)

    def _jump(self, place: Place, condition: str, uniform: bool = False) -> str:
        jump = self.random.choice(place.jumps)
        if not jump.startswith("return") and not (uniform and place.together):
            self.parted[-1] = True
        return f"{condition}{jump.rstrip(';')};"

    def _selection(self, place: Place) -> str:
        uniform = self.random.random() < 0.3
        inside = replace(place, together=place.together and uniform, depth=place.depth + 1)
        text = f"if ({self._condition(uniform)})\n{{\n{self._block(inside, 3)}\n}}"
        if self.random.random() < 0.5:
            text += f"\nelse\n{{\n{self._block(inside, 3)}\n}}"
        return text

    def _loop(self, place: Place) -> str:
        name, uniform = self._name(), self.random.random() < 0.5
        limit = str(self.random.randint(1, 5)) if uniform else f"({self._value()} & 3) + 1"
        jumps = tuple({*(j for j in place.jumps if j.startswith("return")), "break", "continue"})
        inside = replace(
            place, together=place.together and uniform, depth=place.depth + 1, jumps=tuple(sorted(jumps))
        )  # fmt: skip
        # A first walk finds whether threads part in the loop: then its beginning is no place for barriers either.
        self.parted.append(True)
        body = self._block(inside, 4)
        self.parted.pop()
        if inside.together and self.random.random() < 0.5:
            self.parted.append(False)
            quiet = replace(inside, jumps=tuple(j for j in jumps if j.startswith("return")))
            body = self._block(quiet, 4)
            self.parted.pop()
        kind = self.random.random()
        bound = f"uint {name}_end = {limit};"
        if kind < 0.5:
            return f"{bound}\nfor (uint {name} = 0; {name} < {name}_end; ++{name})\n{{\n{body}\n}}"
        if kind < 0.75:
            return f"{bound}\nuint {name} = 0;\nwhile ({name}++ < {name}_end)\n{{\n{body}\n}}"
        return f"{bound}\nuint {name} = 0;\ndo\n{{\n{body}\n}} while (++{name} < {name}_end);"

    def _switch(self, place: Place) -> str:
        uniform = self.random.random() < 0.3
        jumps = tuple({*place.jumps, "break"})
        inside = replace(place, together=False, depth=place.depth + 1, jumps=tuple(sorted(jumps)))
        text = f"switch (({self._expression(uniform)}) & 7)\n{{\n"
        numbers = self.random.sample(range(8), 4)
        while numbers:
            some = [numbers.pop() for _ in range(min(len(numbers), self.random.randint(1, 2)))]
            text += "".join(f"case {k}:\n" for k in some) + self._block(inside, 2)
            text += "\n" if self.random.random() < 0.3 else "\nbreak;\n"
        if self.random.random() < 0.5:
            text += f"default:\n{self._block(inside, 2)}\n"
        return text + "break;\n}"


_ARRAY = "uint array[4] = { 1, 2, 3, 4 };"
