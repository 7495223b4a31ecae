"""Each kernel that tests compile for a device of slang-rhi, once more as the text D3D12 or Metal would get.

A plugin of pytest, on with ``--texts``, or ``--texts=K/N`` for a part of the kernels: those of ``rhi-vulkan`` and
``rhi-vulkan-handles`` become HLSL and, by DXC, valid DXIL; those of ``rhi-vulkan`` also MSL, for which there is no
compiler here. A text that will not do fails the test that made the kernel. What a language cannot have is listed in
``GAPS`` or taken by ``refused_before``, and counted; nothing else is let through. No text runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from slangpy_rt_codegen import CallSpec, emit

from slangpy_rt.backends.rhi.backend import RhiBackend
from slangpy_rt.calls import build as plan
from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.target import Target
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.session import Session
from slangpy_rt.slang.shader_modules import is_ours
from tests.depth import part_of, read_part
from tests.dxc import Dxc, DxcError
from tests.slang.test_hlsl import HLSL, METAL, check_hlsl, check_metal

# By device, what its kernels become.
LANGUAGES = {"rhi-vulkan-handles": ("HLSL",), "rhi-vulkan": ("HLSL", "MSL")}
TARGETS = {"HLSL": HLSL, "MSL": METAL}
_NO_POINTERS, _NO_BYTES = "D3D12 has no pointers", "HLSL has no 8-bit integers"
# What DXC says of a remainder that Slang writes.
_NO_REMAINDER = "modulo cannot be used with doubles"
# What a language cannot have: by a pattern of what Slang says, the reason.
GAPS: dict[str, dict[str, str]] = {
    "HLSL": {
        r"^the function uses .*; this device has no pointers": _NO_POINTERS,
        # References to elements, of scalars and of vectors.
        r"\nerror\[E40008\]: the form of this l-value argument": _NO_POINTERS,
        r"\nerror\[E39999\]: no overload for 'InterlockedAdd' applicable to arguments of type \(vector": _NO_POINTERS,
        r"^the function uses u?int8_t": _NO_BYTES,
        r"^the function uses \w+ of double, which HLSL has for floats": "HLSL has the function for floats alone",
        r"HLSL supports only float and half type textures": "HLSL samples no whole numbers",
    },
    "MSL": {
        r"unexpected: 'double' type emitted": "MSL has no double",
        r"uses features that are not available in 'compute' stage for 'metal'": "Slang has no such function there",
        r"^the function uses _spy_addToPartOfWord, for which Slang writes nothing": "Slang adds no halves atomically",
        r"^the function uses _spy_replaceWord, for which Slang writes nothing": "exchanges may fail there",
    },
}
# Zeros that ``prepare`` writes behind variables, but not for HLSL.
_ZEROS = re.compile(r" = (?:\{\}|_spy_zero\w*<[^;]*?>\(\))(?=[,;])")
# Sessions kept, of 31 MB and more each; tests of one file come one after another. A kernel stays in its session with
# 1 MB and more, so that one is closed after so many. A new one costs 0.35 s.
_SESSIONS = 4
_KERNELS = 64


class Texts:
    """What became of the kernels so far.

    Parameters
    ----------
    dxc : Dxc or None
        None where kernels stay HLSL.
    wanted : set of str
        Languages of which there must be some.
    part : tuple of two ints
        K and N: of N parts of the kernels, divided by their texts, the K-th is looked at.
    """

    def __init__(self, dxc: Dxc | None, wanted: set[str], part: tuple[int, int] = (1, 1)) -> None:
        self._dxc, self._wanted, self._part = dxc, wanted, part
        self._library = Library()
        self._patch, self._lock = pytest.MonkeyPatch(), threading.Lock()
        # (language, what) -> how many, or how many seconds. Sent from process to process.
        self.counts: Counter[str] = Counter()
        self._seen: dict[str, str] = {}
        # What kernels were written from, by their text.
        self._specs: dict[str, CallSpec] = {}
        self._failures: list[str] = []
        self._kept: deque[_Kept] = deque()

    def pytest_sessionstart(self) -> None:
        """See what devices compile from now on."""
        compile_ = RhiBackend.compile

        def compile_also(backend: RhiBackend, code: bytes, entry: str) -> bytes:
            for language in LANGUAGES.get(backend.name, ()):
                self._look(language, code)
            return compile_(backend, code, entry)

        def emit_also(spec: CallSpec) -> str:
            text = emit(spec)
            self._specs[text] = spec
            return text

        self._patch.setattr(RhiBackend, "compile", compile_also)
        self._patch.setattr(plan, "emit", emit_also)

    def pytest_unconfigure(self) -> None:
        self._patch.undo()
        while self._kept:
            self._kept.pop().session.close()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        # Not where the kernel is compiled: a test that expects an error, or is in a thread, would not fail.
        try:
            return (yield)
        finally:
            failures, self._failures = self._failures, []
            if failures:
                raise AssertionError("\n\n".join(failures))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what this process counted, or decide on what all did."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["texts"] = dict(self.counts)
        elif any(not self.counts[f"{name} compiled"] or self.counts[f"{name} failed"] for name in self._wanted):
            # Also of kernels that were made when no test ran any more.
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a process of xdist counted."""
        self.counts.update(getattr(node, "workeroutput", {}).get("texts", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("texts")
        for language in sorted(self._wanted):
            terminalreporter.line(self._line(language))

    def _line(self, language: str) -> str:
        counts = {k.removeprefix(f"{language} "): n for k, n in self.counts.items() if k.startswith(f"{language} ")}
        line = f"{language}: {counts.get('compiled', 0)} kernels in {counts.get('seconds', 0):.1f} s"
        if language == "HLSL":
            valid, seconds = counts.get("valid", 0), counts.get("DXC seconds", 0)
            line += (
                f"; DXIL: {valid} valid in {seconds:.1f} s" if self._dxc else "; no DXIL: SLANGPY_RT_DXC is not set"
            )
        refused = [f"{n} {k.removeprefix('refused: ')}" for k, n in sorted(counts.items()) if k.startswith("refused")]
        line += f"; refused: {', '.join(refused)}" if refused else ""
        failed = counts.get("failed", 0)
        line += f"; FAILED: {failed}" if failed else ""
        return line + ("" if counts.get("compiled") else "; there must be some")

    def _look(self, language: str, code: bytes) -> None:
        """Emit one kernel and check it; once, however many tests have it."""
        if part_of(hashlib.sha256(code).hexdigest(), self._part[1]) != self._part[0]:
            return
        digest = hashlib.sha256(code).hexdigest() + language
        # Devices of several threads compile side by side.
        with self._lock:
            if digest not in self._seen:
                self._seen[digest] = self._check(language, json.loads(code))
            if self._seen[digest]:
                self._failures.append(self._seen[digest])

    def _check(self, language: str, program: dict[str, Any]) -> str:
        """What is wrong with a kernel in a language; empty if nothing is."""
        spec = self._specs.get(program["kernel"][1])
        reason = refused_before(spec) if spec else "slang-torch's kernels are not tried there"
        # A kernel of slang-torch's is written without a CallSpec.
        if (language == "HLSL" or spec is None) and reason:
            self.counts[f"{language} refused: {reason}"] += 1
            return ""
        started = time.perf_counter()
        text = ""
        try:
            text = self._emit(TARGETS[language], program)
            self.counts[f"{language} seconds"] += time.perf_counter() - started
            (check_hlsl if language == "HLSL" else check_metal)(text)
            self.counts[f"{language} compiled"] += 1
            if language == "HLSL" and self._dxc is not None:
                started = time.perf_counter()
                self._dxc.validate(self._dxc.compile(text))
                self.counts["HLSL DXC seconds"] += time.perf_counter() - started
                self.counts["HLSL valid"] += 1
        except (CompileError, UnsupportedError) as error:
            self.counts[f"{language} seconds"] += time.perf_counter() - started
            reason = next((why for said, why in GAPS[language].items() if re.search(said, str(error))), "")
            # Bytes that the function has not would be ours.
            sources = [*(source for _, _, source, _ in program["modules"]), str(program["defines"])]
            if not reason or (reason == _NO_BYTES and not any("int8_t" in source for source in sources)):
                return self._failed(language, program, str(error), text)
            self.counts[f"{language} refused: {reason}"] += 1
        except (AssertionError, DxcError) as error:
            if not re.search(_NO_REMAINDER, str(error)):
                return self._failed(language, program, str(error), text)
            self.counts[f"{language} refused: HLSL has no remainder of doubles"] += 1
        return ""

    def _emit(self, target: Target, program: dict[str, Any]) -> str:
        session = self._session(target, program)
        name, text = program["kernel"]
        if target.entry == "handle":
            text = emit(replace(self._specs[text], entry=target.entry))
        conformances = tuple(tuple(item) for item in program["conformances"])
        return session.compile(
            text, name, program["entry"], conformances, tuple(program["link"]), program["exports"]
        ).code.decode()

    def _session(self, target: Target, program: dict[str, Any]) -> Session:
        """A session with a program's modules. It may have others, which no kernel sees that does not import them.

        Reading slangpy_rt, once a session, takes as long as five kernels.
        """
        # A session with handles defines this itself.
        defines = tuple((name, value) for name, value in program["defines"] if name != "_spy_by_handle")
        key = (target, tuple(program["folders"]), defines)
        texts = {}
        for name, path, source, files in program["modules"]:
            texts |= {("name", name): source, ("path", path): source}
            texts |= {("file", file): digest for file, digest in files}
        # A library that is loaded as a module is known by another name where it was imported; Slang fails on that.
        loaded = {path for name, path, _, _ in program["modules"] if is_ours(Path(path)) and Path(path).stem != name}
        fits = (
            k
            for k in self._kept
            if k.key == key
            and all(k.texts.get(w, t) == t for w, t in texts.items())
            and all(("path", path) in k.texts or ("file", path) not in k.texts for path in loaded)
        )
        found = next(fits, None)
        if found is not None and len(found.kernels) == _KERNELS:
            self._kept.remove(found)
            found.session.close()
            found = None
        if found is None:
            found = _Kept(key, Session(self._library, target, *key[1:]), {}, [])
            self._kept.append(found)
            if len(self._kept) > _SESSIONS:
                self._kept.popleft().session.close()
        with pytest.MonkeyPatch.context() as patch:
            # The texts are as a session made them of the user's, with names of its own.
            patch.setattr("slangpy_rt.slang.session.check_names", lambda *_: None)
            # Nobody reads what is reflected here. After some hundred sessions in one process the reflection crashed,
            # twice at the same test; slangpy_rt's own compilers are processes that are started anew.
            patch.setattr("slangpy_rt.slang.session.module_info", lambda *_: None)
            patch.setattr("slangpy_rt.slang.session.replace", lambda of, **new: of and replace(of, **new))
            for name, path, source, _ in program["modules"]:
                # The session loads our own files by itself.
                own = is_ours(Path(path)) and Path(path).stem == name and Path(path).is_file()
                if ("name", name) not in found.texts and not own:
                    text = _ZEROS.sub("", source) if target.format == "hlsl" else source
                    found.session.load_module(name, path, text)
        found.texts.update(texts)
        found.kernels.append(program["kernel"][0])
        return found.session

    def _failed(self, language: str, program: dict[str, Any], said: str, text: str) -> str:
        self.counts[f"{language} failed"] += 1
        name, kernel = program["kernel"]
        return f"{name} in {language}:\n{said}\n\nof the kernel\n{kernel}\n\nwritten as\n{text or 'nothing'}"


@dataclass(frozen=True)
class _Kept:
    """A session, what it was opened with, the texts it has read, by what they are known as, and its kernels."""

    key: tuple[Any, ...]
    session: Session
    texts: dict[tuple[str, str], str]
    kernels: list[str]


def refused_before(spec: CallSpec) -> str:
    """Why a device of D3D12 refuses a call before there is a kernel; empty if it does not."""
    fields = [field for struct in spec.structs for field in struct.fields]
    types = [(leaf.type, leaf.via) for leaf in spec.leaves] + [(field.type, field.via) for field in fields]
    if any("*" in type_ or "Ptr<" in type_ for type_, _ in types):
        return _NO_POINTERS
    # Of a bool only the storage is a byte, which is reached as a part of a word.
    return _NO_BYTES if any("int8_t" in type_ + via for type_, via in types) else ""


def from_options(config: pytest.Config, required: list[str]) -> Texts:
    """The plugin for a run.

    Raises
    ------
    pytest.UsageError
        If no kernel of this run would be looked at, no part is named, or DXC is required and absent.
    """
    wanted = {language for name in config.getoption("--backend") for language in LANGUAGES.get(name, ())}
    if not wanted:
        raise pytest.UsageError(f"--texts looks at kernels of {' and '.join(LANGUAGES)}: name one by --backend.")
    path = os.environ.get("SLANGPY_RT_DXC")
    if not path and "dxc" in required and "HLSL" in wanted:
        raise pytest.UsageError("dxc is required, and SLANGPY_RT_DXC names no library of it.")
    return Texts(Dxc(path) if path else None, wanted, read_part(config.getoption("--texts"), "--texts"))
