"""Compiles kernels that use thread groups: ``lanes`` translates their SPIR-V to LLVM IR, which llvmlite compiles."""

from __future__ import annotations

from slangpy_rt.backends.cpu.group_format import HEAD, packed
from slangpy_rt.backends.cpu.group_functions import GroupFunctions
from slangpy_rt.backends.cpu.llvm import LlvmCompiler
from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.lanes.debug_text import DebugSettings
from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.translate import translate

# A range of groups, with the same parameters as a range of elements in a kernel from C++.
_ENTRY = f"""
define void @run_groups(i64 %first, i64 %last, ptr %block) #1 {{
  %push = alloca ptr
  %y = getelementptr i64, ptr %block, i64 1
  %z = getelementptr i64, ptr %block, i64 2
  %args = getelementptr i8, ptr %block, i64 {HEAD.size}
  store ptr %args, ptr %push
  %nx = load i64, ptr %block
  %ny = load i64, ptr %y
  %nz = load i64, ptr %z
  %past.at = getelementptr i64, ptr %block, i64 3
  %past = load i64, ptr %past.at
  %bytes.at = getelementptr i64, ptr %block, i64 4
  %bytes = load i64, ptr %bytes.at
  call void @run(ptr %push, i64 %first, i64 %last, i64 %nx, i64 %ny, i64 %nz, i64 %past, i64 %bytes)
  ret void
}}
"""


def compile_groups(
    compiler: LlvmCompiler, functions: GroupFunctions, code: bytes, debug: DebugSettings | None = None
) -> bytes:  # fmt: skip
    """Compile a kernel's SPIR-V to what ``load_groups`` loads, for a debugger if settings of one are given.

    Raises
    ------
    UnsupportedError
        If the kernel has something that ``lanes`` does not translate.
    CompileError
        If LLVM refuses the text, which is a defect of slangpy_rt.
    """
    try:
        kernel = translate(code, widest=compiler.widest, debug=debug)
        own = compiler.compile(kernel.text + _ENTRY, debug is not None)
        return packed([own, *functions.compiled(compiler, kernel.functions)])
    except UnsupportedKernel as error:
        raise UnsupportedError(
            f"the function uses thread groups, and this device does not translate {error} in such functions. "
            "Run it on a GPU (device type cuda or vulkan)."
        ) from None
    except RuntimeError as error:
        raise CompileError(f"LLVM refused the kernel's text, which is a defect of slangpy_rt:\n{error}") from None
