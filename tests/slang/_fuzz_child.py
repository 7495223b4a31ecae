"""Loads mutated modules and compiles a call of each of their functions: FIRST LAST. Says what it met, one line each.

Run as a program of its own, whose death the test sees.
"""

from __future__ import annotations

import random
import sys
import time

from slangpy_rt.core.errors import SlangPyRtError
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import FunctionSig
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.sessions import new_session
from tests.mutations import mutated, seeds

TARGETS = (Target("cpp", "", "range"), Target("spirv", "spirv_1_5", "pointer"))
HEADS = {
    "range": "export __extern_cpp void run(int64_t begin, int64_t end, Call *call)",
    "pointer": '[shader("compute")] [numthreads(1, 1, 1)] void kernel(uniform Call *call)',
}


def main() -> None:
    texts = seeds()
    first, last = int(sys.argv[1]), int(sys.argv[2])
    for number in range(first, last):
        pick = random.Random(number)
        text = pick.choice(texts)
        # One of eight loads, which shows that it is the mutations that are refused: about 22 % of the others load.
        text = mutated(text, pick) if number % 8 else "float add(float a, float b) { return a + b; }"
        started = time.monotonic()
        said = attempt(text, TARGETS[number % len(TARGETS)])
        print(number, f"{time.monotonic() - started:.1f}", said, flush=True)


def attempt(text: str, target: Target) -> str:
    """What became of a text."""
    session = new_session(target, (shader_directory(),), ())
    try:
        try:
            info = session.load_module("fuzzed", "fuzzed.slang", text)
        except SlangPyRtError as error:
            return "crash" if "crashed" in str(error) else "refused"
        worst = "loaded"
        for sig in info.functions[:4]:
            try:
                session.type("fuzzed", sig.returns.name)
                session.compile(kernel(sig, target), "called", HEADS[target.entry].split("(")[-2].split()[-1])
            except SlangPyRtError as error:
                if "crashed" in str(error):
                    worst = "crash"
        return worst
    finally:
        session.close()


def kernel(sig: FunctionSig, target: Target) -> str:
    """A kernel that calls a function, by its derivative if it has one."""
    lines = [f"    {p.type.name} a{at} = {{}};" for at, p in enumerate(sig.params)]
    names = ", ".join(f"a{at}" for at in range(len(sig.params)))
    if sig.differentiable and len(sig.params) == 1:
        lines.append(f"    bwd_diff({sig.name})(diffPair(a0), 1);")
    lines.append(f"    {sig.name}({names});")
    body = "\n".join(lines)
    return f"import fuzzed;\nstruct Call {{ int n; }}\n{HEADS[target.entry]}\n{{\n{body}\n}}\n"


if __name__ == "__main__":
    main()
