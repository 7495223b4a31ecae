"""The corrections of what Slang writes: each is needed with the installed build of the compiler."""

from __future__ import annotations

import pytest

from slangpy_rt.backends.cpu.compile import find_compiler
from slangpy_rt.core.config import CONFIG
from slangpy_rt.slang import _abi
from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.table import CORRECTIONS
from slangpy_rt.slang.corrections.verdicts import Verdict, verdicts
from slangpy_rt.slang.library import Library
from slangpy_rt.tools.canaries import compiler_verdicts, is_expected, run_canary


@pytest.fixture(scope="module")
def library() -> Library:
    return Library(CONFIG.slang_lib)


@pytest.fixture(scope="module")
def found(library: Library) -> dict[tuple[str, str], Verdict]:
    return {(each.correction.name, each.target): each for each in compiler_verdicts(library)}


CASES = [(each.name, target) for each in CORRECTIONS for target in each.targets]


@pytest.mark.parametrize(("name", "target"), CASES)
def test_each_correction_is_needed(
    found: dict[tuple[str, str], Verdict], library: Library, name: str, target: str
) -> None:
    """One that is obsolete with all builds is removed; one that does not match any more has to learn the new text."""
    verdict = found[name, target]
    if verdict.state == "not tried":
        pytest.skip("there is no C++ compiler")
    assert is_expected(verdict, library.build_tag), verdict.state


def test_names_are_unique_and_facts_are_given() -> None:
    assert len({each.name for each in CORRECTIONS}) == len(CORRECTIONS)
    build = ".".join(map(str, _abi.VERSION))
    for each in CORRECTIONS:
        assert each.why.endswith("."), each.name
        assert build in each.affects, f"{each.name} was not seen in Slang {build}"
        assert each.upstream == "not reported" or each.upstream.startswith(("#", "https://")), each.name


def _verdict(library: Library, canary: Canary, repaired: bytes | None, target: str = "cpp") -> str:
    correction = Correction(
        "sample", "A sample.", "not reported", (), (target,), lambda code, _: code if repaired is None else repaired,
        canary,
    )  # fmt: skip
    (verdict,) = verdicts((correction,), library, run_canary)
    assert verdict == Verdict(correction, target, verdict.state)
    return verdict.state


def test_states(library: Library) -> None:
    text = "void canary(uniform float *values) { values[0] = 3; }"
    here, absent = lambda code: b"canary" in code, lambda code: b"no such text" in code
    assert _verdict(library, Canary(text, here, absent), b"") == "needed"
    assert _verdict(library, Canary(text, here, absent), None) == "does not match any more"
    assert _verdict(library, Canary(text, absent, here), None) == "obsolete"
    assert _verdict(library, Canary(text, absent, absent), None) == "does not match any more"


@pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler")
def test_states_by_numbers(library: Library) -> None:
    text = "void canary(uniform float *values) { values[0] = 3; }"
    better = text.replace("3", "4").encode()
    assert _verdict(library, Canary(text, (3.0,), (4.0,)), better, "slang") == "needed"
    assert _verdict(library, Canary(text, (3.0,), (4.0,)), None, "slang") == "does not match any more"
    assert _verdict(library, Canary(text, (4.0,), (3.0,)), None, "slang") == "obsolete"
    assert _verdict(library, Canary(text, (1.0,), (2.0,)), None, "slang") == "does not match any more"


def test_a_refused_canary_is_known_by_its_message(library: Library) -> None:
    text = "void canary(uniform float *values) { nothing(); }"
    refused = Canary(text, lambda message: b"nothing" in message, lambda _: False)
    assert _verdict(library, refused, None) == "does not match any more"
    assert _verdict(library, refused, b"") == "needed"
