"""Loads kernels of slang-rhi, which are Slang programs that it compiles for its device."""

from __future__ import annotations

import json
from typing import Any

from slangpy_rt.backends.base import Kernel
from slangpy_rt.backends.rhi.device import Opened
from slangpy_rt.core.errors import CompileError
from slangpy_rt.core.target import KernelInfo

# The most compiler sessions that are kept: each takes 20 MB, and making one takes 0.3 s.
_SESSIONS = 8


class RhiKernel(Kernel):
    """A kernel of slang-rhi.

    Attributes
    ----------
    pipeline, root
        The compute pipeline, and the shader object with its parameters.
    cursor
        The parameter that takes the address of the argument block; None for a kernel without arguments.
    """

    __slots__ = ("cursor", "pipeline", "root")

    def __init__(self, info: KernelInfo, pipeline: Any, root: Any, cursor: Any) -> None:
        super().__init__(info)
        self.pipeline = pipeline
        self.root = root
        self.cursor = cursor


class Programs:
    """The compiler sessions of one device; methods are called with the backend's lock.

    Parameters
    ----------
    handles : bool
        Whether addresses are descriptors' indices and offsets.
    """

    def __init__(self, opened: Opened, handles: bool) -> None:
        self._opened = opened
        self._device = opened.device
        self._handles = handles
        self._sessions: dict[str, Any] = {}

    def load(self, program: dict[str, Any], info: KernelInfo) -> RhiKernel:
        """Compile a program that ``Session.compile`` described, and load it.

        Raises
        ------
        CompileError
            If slang-rhi's Slang refuses the program.
        """
        try:
            return self._compiled(program, info)
        except self._opened.slangpy.SlangCompileError as error:
            raise CompileError(f"slang-rhi could not compile {info.title}:\n{error}") from None

    def close(self) -> None:
        """Drop all sessions."""
        self._sessions.clear()

    def _compiled(self, program: dict[str, Any], info: KernelInfo) -> RhiKernel:
        session = self._session(program)
        name, text = program["kernel"]
        kernel = session.load_module_from_source(name, program["head"] + text, f"{name}.slang")
        modules = [kernel]
        for other, path, source, _ in program["modules"]:
            if other in program["link"]:
                modules.append(session.load_module_from_source(other, source, path))
        if program["exports"]:
            unique = f"{name}_exports"
            modules.append(
                session.load_module_from_source(unique, program["head"] + program["exports"], f"{unique}.slang")
            )
        conformances = [self._opened.slangpy.TypeConformance(*item) for item in program["conformances"]]
        entry = kernel.entry_point(program["entry"], conformances)
        linked = session.link_program(modules, [entry])
        pipeline = self._device.create_compute_pipeline(linked)
        root = self._device.create_root_shader_object(linked)
        cursor = self._opened.slangpy.ShaderCursor(root).find_entry_point(0)
        block = cursor["_spy_block"] if info.args_size else None
        return RhiKernel(info, pipeline, root, block.dereference() if block is not None and self._handles else block)

    def _session(self, program: dict[str, Any]) -> Any:
        """Return a compiler session that has loaded the program's modules.

        Programs with the same modules, folders and defines share a session.
        """
        key = json.dumps([program["modules"], program["folders"], program["defines"]])
        # Popped and added again, so that the dict is in the order of last use.
        found = self._sessions.pop(key, None)
        if found is None:
            spy = self._opened.slangpy
            found = self._device.create_slang_session(
                compiler_options={
                    "include_paths": program["folders"],
                    "defines": dict(program["defines"]),
                    "matrix_layout": spy.SlangMatrixLayout.row_major,
                },
                cache_path=self._opened.modules,
            )
            for name, path, text, _ in program["modules"]:
                found.load_module_from_source(name, text, path)
        self._sessions[key] = found
        if len(self._sessions) > _SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return found
