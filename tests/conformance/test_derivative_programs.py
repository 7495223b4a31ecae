"""Random differentiable functions: ``bwds``, ``fwds`` and the value of ``fwds``, beside differences in float64.

``--deep`` has 600 functions on each device, ``--long`` 10,000. Functions that the library refuses by name, or that
end the compiler, are counted, and fail the test beyond a limit. A wrong number always does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy
from tests.conformance._derivative_checks import Outcome, check, load
from tests.conformance._derivative_programs import (
    Generator,
    Measurement,
    Program,
    measure,
    nodes_of,
    points,
    program_text,
)
from tests.depth import is_deep, random_cases, sampled

# Functions in one module: loading is a small part of the time, and a text that is refused costs few others.
BATCH = 15
# Share of functions without a derivative: those that Slang cannot compile.
REFUSED = 0.05


def _drawn(first: int, count: int) -> Iterator[tuple[int, Program, list[Measurement]]]:
    """Functions from a seed on that have points away from their decisions."""
    seed = first
    while count:
        program = Generator(seed).program()
        found = points(program, seed)
        if found:
            yield seed, program, (found * 3)[:3]
            count -= 1
        seed += 1


def _check_all(
    device: spy.Device, cases: list[tuple[int, Program, list[Measurement]]], folder: Path
) -> dict[int, list[Outcome]]:
    """Outcomes of each function; of a module that does not load, those of its halves."""
    name = f"derivatives_{cases[0][0]}_{len(cases)}"
    try:
        module = load(device, name, [(str(seed), program) for seed, program, _ in cases], folder)
        _ = getattr(module, cases[0][1].main.name)
    except spy.CompileError as error:
        if len(cases) == 1:
            return {cases[0][0]: [Outcome("module refused", str(error))]}
        half = len(cases) // 2
        return _check_all(device, cases[:half], folder) | _check_all(device, cases[half:], folder)
    return {seed: check(device, module, str(seed), program, found, seed) for seed, program, found in cases}


@random_cases
@sampled(2)
@pytest.mark.parametrize("part", range(2))
def test_random_functions(device: spy.Device, part: int, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    count = 5000 if pytestconfig.getoption("--long") else 300 if is_deep(pytestconfig) else BATCH
    cases = list(_drawn(1_000_000 * part, count))
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    refused: set[int] = set()
    for start in range(0, count, BATCH):
        batch = cases[start : start + BATCH]
        texts = {seed: program_text(program).own for seed, program, _ in batch}
        for seed, outcomes in _check_all(device, batch, tmp_path).items():
            for outcome in outcomes:
                counts[outcome.verdict] += 1
                if outcome.verdict != "right":
                    refused.add(seed)
                if "wrong" in outcome.verdict:
                    wrong.append(f"seed {seed}: {outcome.verdict}\n{texts[seed]}\n{outcome.detail}")
    assert not wrong, f"{counts}\n" + "\n\n".join(wrong[:3])
    assert len(refused) <= 1 + REFUSED * count, counts


def test_a_seed_is_a_function() -> None:
    for seed in range(20):
        assert Generator(seed).program() == Generator(seed).program()
    assert len({program_text(Generator(seed).program()).own for seed in range(50)}) == 50


def test_functions_have_what_users_write() -> None:
    texts, kinds = [], set()
    for seed in range(400):
        program = Generator(seed).program()
        text = program_text(program)
        texts.append(text.own + text.imported + text.included)
        kinds |= {node.kind for f in (program.main, *program.helpers) for node in nodes_of(f.body)}
    whole = "\n".join(texts)
    for words in (
        "[MaxIters", "[ForceUnroll]", "while (", "do\n", "switch (", "break;", "continue;", "else if", " inout ",
        "out ", "no_diff ", "detach(", "let ", "var ", " *= ", " /= ", ".yz", "mul(", "sincos(", "select(",
        "#define DEFINE",
        "<let N : int>", "T : __BuiltinFloatingPointType", "<T : IPair>", "[mutating]", "this.", "[ForceInline]",
        "[PreferRecompute]", "[PreferCheckpoint]", "PRODUCT(", "float[3] ", "Real ", "bent(",
    ):  # fmt: skip
        assert words in whole, words
    assert {"ternary", "by hand", "method", "splat", "index", "swizzle"} <= kinds


def test_the_mirror_knows_derivatives(tmp_path: Path) -> None:
    """The differences of the evaluator beside formulas."""
    seen = 0
    for seed in range(300):
        program = Generator(seed).program()
        if program.main.parameters[0].type == "float" and program.helpers == ():
            for found in points(program, seed, 1):
                shifted = [np.copy(v) if isinstance(v, np.ndarray) else v for v in found.inputs]
                again = measure(program, shifted)
                np.testing.assert_array_equal(found.jacobian, again.jacobian)
                seen += 1
    assert seen > 3
