"""The interface of a session of the Slang compiler, which ``Session`` and ``RemoteSession`` implement.

A method is declared and documented here, implemented in ``Session``, and forwarded to the compiler's process by
``RemoteSession``.
"""

from __future__ import annotations

from typing import Protocol

from slangpy_rt.core.types import Compiled, Conformances, FunctionSig, ModuleInfo, SlangType, StructInfo


class CompilerSession(Protocol):
    """The methods that load modules and compile kernels for one target.

    A session keeps every module that it loaded, so that a kernel's ``import`` finds it by name. A changed module
    needs a new session.

    Attributes
    ----------
    build_tag : str
        The version that the compiler reports.
    """

    build_tag: str

    def load_module(self, name: str, path: str, source: str) -> ModuleInfo:
        """Load user code under a name that kernels import.

        Parameters
        ----------
        name : str
            The module's name.
        path : str
            The module's file, which diagnostics show. Imports are looked up in its folder first. The file need not
            exist.
        source : str
            The module's Slang text.

        Returns
        -------
        ModuleInfo
            The module's declarations and the files that it depends on.

        Raises
        ------
        CompileError
            If Slang refuses the text, or this session holds another module of that name or path.
        """

    def functions(self, module: str, name: str) -> tuple[FunctionSig, ...]:
        """Return the overloads of a function or method, in source order, with generic arguments filled in.

        Parameters
        ----------
        module : str
            A name given to ``load_module``.
        name : str
            The function's name: ``"add"``, ``"ns.add"``, ``"copy<float>"``, ``"S<float, 3>.load<half>"``. Without
            generic arguments a generic function is returned as declared.

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
        """Return a type as a module sees it.

        Parameters
        ----------
        module : str
            A name given to ``load_module``.
        name : str
            The type's name, such as ``"S<float, 4>"``, ``"float3x4"`` or ``"P[3]"``, or that of an alias or an enum.

        Returns
        -------
        StructInfo, SlangType or None
            A StructInfo, with the methods of extensions, for a struct; a SlangType for any other type; None if there
            is no such type.

        Raises
        ------
        CompileError
            If there is such a type, but the generic arguments do not fit.
        """

    def conforms(self, module: str, name: str, interface: str) -> bool:
        """Return whether the type `name` implements `interface`, both looked up in `module`.

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
            The types that an object of an interface may have, and the number that marks each in such an object; with
            -1 Slang chooses the number.
        link : tuple of str
            Loaded modules whose ``export`` declarations define ``extern`` declarations of other modules.
        exports : str
            Further ``export`` declarations: ``export static const int N = 3;``.

        Returns
        -------
        Compiled
            The target code, the strings that it holds as hashes, and the layout of struct ``_spy_Call``, which is
            empty if the kernel takes none. For a target with ``program`` the code is JSON: ``modules`` (name, path,
            text, files), ``folders``, ``defines``, ``kernel`` (name, text), ``entry``, ``link``, ``exports``,
            ``conformances``, and ``head``, which goes before the text and before ``exports``.

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
