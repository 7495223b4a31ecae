"""A session of the Slang compiler in the compiler's process, which remains usable after that process has ended.

The object keeps its options and modules: if the process ended, the next request opens the session again with all its
modules.
"""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from slangpy_rt.core.child_process import Ended
from slangpy_rt.core.errors import CompileError, CompileLimitError
from slangpy_rt.core.interrupts import finalizer
from slangpy_rt.core.paths import resolved
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import ModuleInfo
from slangpy_rt.slang.auto_import import AutoImport
from slangpy_rt.slang.compiler_process import CompilerProcess
from slangpy_rt.slang.compiler_session import CompilerSession
from slangpy_rt.slang.files import reachable

P = ParamSpec("P")
R = TypeVar("R")


def _forwarded(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[RemoteSession, P], R]:
    """Return a method that calls the method of the same name in the compiler's process and returns its result."""
    signature = inspect.signature(method)

    def forward(self: RemoteSession, /, *args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(self, *args, **kwargs)
        given.apply_defaults()
        return cast(R, self._ask(method.__name__, *given.args[1:]))

    update_wrapper(forward, method)
    return forward


class RemoteSession(CompilerSession):
    """A ``Session`` in the compiler's process.

    Parameters
    ----------
    compiler : CompilerProcess
        The compiler's process.
    target, search_paths, defines, auto_import
        See ``Session``.

    Raises
    ------
    UnsupportedError
        If the process does not start, or for a reason listed in ``Session``.
    """

    def __init__(
        self,
        compiler: CompilerProcess,
        target: Target,
        search_paths: tuple[str, ...] = (),
        defines: tuple[tuple[str, str], ...] = (),
        auto_import: AutoImport | None = None,
    ) -> None:
        self._compiler = compiler
        self._how = (target, search_paths, defines, auto_import)
        # The name, path, text and declarations of each loaded module, in the order of loading.
        self._modules: list[tuple[str, str, str, ModuleInfo]] = []
        self._number = 0  # the session's number in the process; 0 while no session is open
        self._process = 0  # ``CompilerProcess.started`` when the session was opened
        self.build_tag = ""
        self._ask("open", *self._how)

    def load_module(self, name: str, path: str, source: str) -> ModuleInfo:
        info: ModuleInfo = self._ask("load_module", name, path, source)
        self._modules.append((name, path, source, info))
        return info

    functions = _forwarded(CompilerSession.functions)
    type = _forwarded(CompilerSession.type)
    conforms = _forwarded(CompilerSession.conforms)
    compile = _forwarded(CompilerSession.compile)

    def close(self) -> None:
        """Release the session; the next use opens another. Calling it again does nothing."""
        number, self._number = self._number, 0
        if number:
            self._compiler.forget(number)
            self._give()
            del self._give

    __del__ = finalizer("_give")

    def _ask(self, method: str, *args: Any) -> Any:
        compiler = self._compiler
        try:
            with compiler.lock:
                try:
                    return self._attempt(method, *args)
                finally:
                    compiler.end_if_large()
        except Exception:
            if compiler.is_gone:
                # The program has ended, and an error in this daemon thread would be printed, so the thread waits.
                threading.Event().wait()
            raise

    def _attempt(self, method: str, *args: Any) -> Any:
        compiler = self._compiler
        refused = compiler.refused.get(self._digest(method, args)) if compiler.refused else None
        if refused is not None:
            raise _refusal(method, refused)
        for last in (False, True):
            before = compiler.started
            try:
                self._open()
                return None if method == "open" else compiler.ask(self._number, method, *args)
            except Ended as end:
                self._number = 0
                # Earlier requests may have damaged an old process, so the request is sent again to a new one. If the
                # new one ends too, this request is the cause.
                if last or compiler.started != before or end.final:
                    message = f"Slang could not {_phrase(method, args)}:\n{end}"
                    if not end.final:
                        raise CompileError(message) from None
                    compiler.refused[self._digest(method, args)] = message
                    raise _refusal(method, message) from None
            except CompileError:
                # Slang 2026.12 may crash on a text that is loaded after one that it refused, so the session ends.
                self.close()
                raise
        raise AssertionError("the last attempt returns or raises")

    def _digest(self, method: str, args: tuple[Any, ...]) -> str:
        """Return a SHA-256 digest of a request, the session's options, its texts, and the files that these name."""
        texts = [(path, text) for _, path, text, _ in self._modules]
        texts += [(args[1], args[2])] if method == "load_module" else []
        files = [file for path, text in texts for file in reachable(path, text, self._how[1])]
        return hashlib.sha256(
            repr((self._how, texts, files, method, args)).encode("utf-8", "surrogatepass")
        ).hexdigest()

    def _open(self) -> None:
        """Open the session and load all its modules, unless it is open in the running process.

        Raises
        ------
        CompileError
            If a file of a module changed since the module was loaded first.
        """
        compiler = self._compiler
        if compiler.start() == self._process and self._number:
            compiler.use(self._number, self)
            return
        number = compiler.number()
        self.build_tag = compiler.ask(number, "open", *self._how)
        self._number, self._process = number, compiler.started
        self._give = partial(compiler.closed.append, (self._process, number))
        compiler.use(number, self)
        for name, path, text, before in self._modules:
            info = compiler.ask(number, "load_module", name, path, text)
            files = {file for file, _ in set(info.dependencies) ^ set(before.dependencies)}
            changed = sorted(files - {resolved(path)})  # its own text is in memory
            if changed:
                raise CompileError(
                    f"module '{name}': '{changed[0]}' changed since it was loaded; load the module again."
                )


def _refusal(method: str, message: str) -> CompileError:
    """Return the error for a request that takes too long; whoever compiles a kernel adds its name."""
    return CompileLimitError(message) if method == "compile" else CompileError(message)


def _phrase(method: str, args: tuple[Any, ...]) -> str:
    """Return a phrase for a request, as in the error messages of ``Session``: ``"compile k"``."""
    if method == "load_module":
        return f"load module {args[0]!r} from {args[1]}"
    if method == "compile":
        return f"compile {args[1]}"
    if method == "open":
        return "open a session"
    return f"look up {' '.join(repr(arg) for arg in args[1:])} in module {args[0]!r}"
