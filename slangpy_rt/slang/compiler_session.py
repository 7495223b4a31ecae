"""What a session of the Slang compiler can be asked: the interface of ``Session`` and ``RemoteSession``.

A method is declared and documented here, implemented in ``Session``, and forwarded by ``RemoteSession`` in one line.
It implements nothing itself.
"""

from __future__ import annotations

from typing import Protocol

from slangpy_rt.core.types import Compiled, Conformances, FunctionSig, ModuleInfo, SlangType, StructInfo


class CompilerSession(Protocol):
    """Modules and kernels for one target.

    A session keeps every module that it loaded, so that a kernel's ``import`` finds it by name. A changed module
    needs a new session.
    """

    def load_module(self, name: str, path: str, source: str) -> ModuleInfo:
        """Load user code under a name that kernels import.

        Parameters
        ----------
        name : str
            The module's name.
        path : str
            Its file, which diagnostics show and beside which its imports are looked up. It need not exist.
        source : str
            The text.

        Raises
        ------
        CompileError
            If Slang refuses the text, or this session holds another module of that name.
        """

    def functions(self, module: str, name: str) -> tuple[FunctionSig, ...]:
        """Return the overloads of a function or method, in source order, with generic arguments filled in.

        Parameters
        ----------
        module : str
            A name given to ``load_module``.
        name : str
            Such as ``"add"``, ``"ns.add"``, ``"copy<float>"``, ``"S<float, 3>.load<half>"``. Without arguments a
            generic function is returned as declared.

        Returns
        -------
        tuple of FunctionSig
            Empty if there is no such function.

        Raises
        ------
        CompileError
            If there is such a function, but the generic arguments do not fit.
        """

    def type(self, module: str, name: str) -> StructInfo | SlangType | None:
        """Return a type as a module sees it: ``"S<float, 4>"``, ``"float3x4"``, ``"P[3]"``, an alias, an enum.

        Returns
        -------
        StructInfo, SlangType or None
            StructInfo of a struct, with the methods of extensions; None if there is no such type.

        Raises
        ------
        CompileError
            If there is such a type, but the generic arguments do not fit.
        """

    def conforms(self, module: str, name: str, interface: str) -> bool:
        """Tell whether a type implements an interface, as a module sees both.

        Raises
        ------
        CompileError
            If there is no such type or interface.
        """

    def compile(
        self,
        text: str,
        name: str,
        entry: str,
        conformances: Conformances = (),
        link: tuple[str, ...] = (),
        exports: str = "",
    ) -> Compiled:
        """Compile a kernel to target code.

        Parameters
        ----------
        text : str
            Slang text; its ``import`` finds the modules loaded in this session.
        name : str
            The text's name in diagnostics.
        entry : str
            The entry point, or the exported function of a ``"range"`` target.
        conformances : tuple of (interface, type, id)
            Types that an object of an interface may hold, and the number that the object holds for each; -1 lets
            Slang choose the number.
        link : tuple of str
            Loaded modules whose ``export`` declarations define the ``extern`` ones of others.
        exports : str
            Further ``export`` declarations: ``export static const int N = 3;``.

        Returns
        -------
        Compiled
            The layout is that of struct ``_spy_Call``, empty if the kernel takes none. The code of a target with
            ``program`` is JSON: ``modules`` (name, path, text, files), ``folders``, ``defines``, ``kernel`` (name,
            text), ``entry``, ``link``, ``exports``, ``conformances``, and ``head``, which goes before the text and
            before ``exports``.

        Raises
        ------
        CompileError
            If Slang refuses the text or cannot express it on the target.
        UnsupportedError
            If the kernel needs thread groups and the target is ``"range"``, which has none, or needs pointers and the
            target is ``"handle"``, or reads a global that only a resource binding could fill.
        """

    def close(self) -> None:
        """Release the session with all its modules. Calling it again does nothing."""
