"""Compiles the canaries of corrections, and tells which corrections a build of the compiler still needs.

Programs whose answers are numbers are run by a function of the caller, since nothing here compiles C++.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.target import Target
from slangpy_rt.slang.com import ComPtr, Out
from slangpy_rt.slang.corrections.canary import Answer
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.emission import Emission
from slangpy_rt.slang.corrections.spirv_math import has_doubles
from slangpy_rt.slang.emitted import exported
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.native_session import NativeSession
from slangpy_rt.slang.session import Session

State = Literal["needed", "obsolete", "does not match any more", "not tried"]
# Returns the numbers that the function ``canary`` of C++ code writes.
Run = Callable[[bytes, int], tuple[float, ...]]

_ENTRY = "canary"
_HEADS = {"cpp": "export __extern_cpp ", "slang": "export __extern_cpp "}
_HEAD = '[shader("compute")] [numthreads(1, 1, 1)] '


class Verdict(NamedTuple):
    """What a canary shows of a correction with the present build of the compiler.

    Attributes
    ----------
    correction : Correction
        The correction.
    target : str
        One of its targets.
    state : str
        ``"needed"``: the fault is there, and the correction repairs it. ``"obsolete"``: the compiler is right.
        ``"does not match any more"``: the fault is there and stays, or the code is neither the wrong nor the right
        one. ``"not tried"``: there is no C++ compiler to run the canary.
    """

    correction: Correction
    target: str
    state: State


def verdicts(corrections: Iterable[Correction], library: Library, run: Run | None) -> Iterator[Verdict]:
    """Yield a verdict for each correction and each of its targets.

    Parameters
    ----------
    corrections : iterable of Correction
        The corrections.
    library : Library
        The compiler.
    run : callable or None
        Returns the numbers that the function ``canary`` of C++ code writes, whose count is the second argument; None
        if there is no C++ compiler.
    """
    double_math = cache(lambda: _double_math(library))
    for correction in corrections:
        for target in correction.targets:
            yield Verdict(correction, target, _state(correction, Emission(target, double_math), library, run))


def _state(correction: Correction, emission: Emission, library: Library, run: Run | None) -> State:
    canary, target = correction.canary, emission.form
    if canary.runs and run is None:
        return "not tried"
    code = emitted(library, canary.text, target)
    if not _is(canary.wrong, code, run):
        return "obsolete" if _is(canary.right, code, run) else "does not match any more"
    try:
        if target == "slang":
            corrected = emitted(library, correction.applies(canary.text.encode(), emission).decode(), target)
        else:
            corrected = correction.applies(code, emission)
    except UnsupportedError:
        return "needed"
    return "does not match any more" if _is(canary.wrong, corrected, run) else "needed"


def emitted(library: Library, text: str, target: str) -> bytes:
    """Return the code that Slang writes for a canary's text, without corrections; its message if it refuses the text.

    Parameters
    ----------
    library : Library
        The compiler.
    text : str
        The canary's Slang text.
    target : str
        A format, or ``"slang"``, for which C++ is written.
    """
    form = "cpp" if target == "slang" else target
    with library.lock:
        session = NativeSession(library, Target(form, "", "range" if form == "cpp" else "pointer"), (), ())
        try:
            head = _HEADS.get(target, _HEAD)
            module = session.load(_ENTRY, f"{_ENTRY}.slang", text.replace(f"void {_ENTRY}(", f"{head}void {_ENTRY}("))
            code = _code(library, session, module, form, optimized=True)
            if form == "spirv" and has_doubles(code):  # as Session.compile does
                code = _code(library, session, module, form, optimized=False)
            return exported(code, _ENTRY) if form == "cpp" else code
        except CompileError as error:
            return str(error).encode()
        finally:
            session.close()


def _code(library: Library, session: NativeSession, module: ComPtr, form: str, optimized: bool) -> bytes:
    out, note, parts = Out(), Out(), [module]
    if form != "cpp":
        status = module.call("IModule.findEntryPointByName", _ENTRY.encode(), out.ref)
        parts.append(library.taken(status, out, note, f"find entry point {_ENTRY!r}"))
    with session.linked(parts, _ENTRY, optimized) as linked:
        if form == "cpp":
            status = linked.call("IComponentType.getTargetCode", 0, out.ref, note.ref)
        else:
            status = linked.call("IComponentType.getEntryPointCode", 0, 0, out.ref, note.ref)
        code = out.bytes()
    if status < 0 or not code:
        raise library.failure(note, f"compile {_ENTRY} for {form}")
    note.bytes()
    return code


def _double_math(library: Library) -> bytes:
    folder = shader_directory()
    text = (Path(folder) / "double_math.slang").read_text("utf-8")
    with closing(Session(library, Target("spirv", "", "pointer"), (folder,))) as session:
        return session.compile(text, "_spy_double_math", "_spy_everything").code


def _is(answer: Answer, code: bytes, run: Run | None) -> bool:
    if isinstance(answer, bytes):
        return re.search(answer, code) is not None
    if not isinstance(answer, tuple):
        return bool(answer(code))
    if run is None or not code.strip() or b"canary" not in code:
        return False
    try:
        found = run(code, len(answer))
    except CompileError:  # C++ that is no C++ is neither answer
        return False
    return all(a == b or (a != a and b != b) for a, b in zip(found, answer, strict=True))
