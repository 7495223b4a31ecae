"""WaveCores: products by instructions of a wave, of CUDA from compute capability 8.0 on and of Vulkan.

The kernel is ``shaders/matmul_waves.slang``, which takes what the plain kernel takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.lines import FORMATS, TILE, lines_of
from slangpy_rt.linalg.program import Kind, kernel_of, macros_of
from slangpy_rt.linalg.user_functions import NO_VALUES, Inlined
from slangpy_rt.linalg.view import View
from slangpy_rt.runtime.core import DeviceCore

_THREADS = 128
# Of matmul_mma.slang: stages, whose lines are along what is multiplied or across it, of pieces of 16 bytes.
_STAGES, _ALONG, _ACROSS, _PIECE = 3, TILE * 5, 32 * 17, 16
# By element type: shape and types of CUDA's instruction, and the elements of Vulkan's matrices.
_INSTRUCTIONS = {
    "half": "m16n8k16.row.col.f32.f16.f16.f32",
    "bfloat16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "int8_t": "m16n8k32.row.col.s32.s8.s8.s32",
    "float": "m16n8k8.row.col.f32.tf32.tf32.f32",
    "tf32": "m16n8k8.row.col.f32.tf32.tf32.f32",
}
_FACTORS = {"half": "half", "bfloat16": "BFloat16", "int8_t": "int8_t"}


class WaveCores:
    """The kernels of one kind of products on one device.

    Parameters
    ----------
    device : DeviceCore
        A device with the feature ``"mma"``, or with ``"tiles_"`` and the element type.
    kind : Kind
        What is multiplied.
    """

    def __init__(self, device: DeviceCore, kind: Kind) -> None:
        self._device = device
        self._kind = kind
        self._kernels: dict[tuple[bool, bool], Kernel] = {}

    def division(self, a: View, b: View, c: View) -> tuple[Kernel, tuple[int, int, int]]:
        """Return the kernel, which takes a, b, c, the factor and the bias, and the threads of its launch.

        Operands of three dimensions are ``readable``.
        """
        rows, columns = lines_of(a) == 2, lines_of(b) == 1
        kernel = self._kernels.get((rows, columns))
        if kernel is None:
            macros = self._macros(rows, columns)
            kernel = self._kernels[rows, columns] = kernel_of(self._device, self._kind, macros)
        count, height, width = c.shape
        return kernel, (-(-width // TILE) * _THREADS, -(-height // TILE), count)

    def run(
        self,
        commands: CommandList | None,
        a: tuple[Any, View, int],
        b: tuple[Any, View, int],
        c: tuple[Any, View],
        rest: list[Any],
        kept: bool = False,
        uniforms: Mapping[str, Any] = NO_VALUES,
    ) -> None:
        """Launch a kernel, or record the launch in a command list; see ``TensorCores.run``."""
        kernel, threads = self.division(a[1], b[1], c[1])
        kernel = kernel.set(uniforms) if uniforms else kernel
        if commands is None:
            kernel.dispatch(threads, a[0], b[0], c[0], *rest)
        else:
            kernel.append_to(commands, threads, a[0], b[0], c[0], *rest)

    def captures(self, arrays: Arrays) -> bool:
        """Return False: nothing that launches read has to be kept."""
        return False

    def _macros(self, rows: bool, columns: bool) -> dict[str, Any]:
        element, form = self._kind.element, FORMATS[self._kind.element]
        ptx = "mma" in self._device.caps.features
        whole = element == "int8_t"
        shared = _STAGES * _PIECE * ((_ALONG if rows else _ACROSS) + (_ALONG if columns else _ACROSS))
        lines = [
            f"#define _SPY_ACC {'int' if whole else 'float'}",
            f'#define _SPY_SUM \\"{"+r" if whole else "+f"}\\"',
            f'#define _SPY_SHAPE \\"{_INSTRUCTIONS[element]}\\"',
            f"#pragma slangpy_rt_shared_bytes {shared}",
            f"#pragma slangpy_rt_kernel __launch_bounds__({_THREADS}, 2)",
            "",
        ]
        return {
            **macros_of(self._device, self._kind),
            "SPY_WAVES": 1,
            "SPY_PTX": ptx,
            "SPY_MATRICES": '"matmul_mma.slang"' if ptx else '"matmul_cooperative.slang"',
            "SPY_PRELUDE": '"' + "\\n".join(lines) + '"',
            "SPY_FACTOR": _FACTORS.get(element, ""),
            "SPY_A_ROWS": int(rows),
            "SPY_B_COLUMNS": int(columns),
            "SPY_PASSES": form.parts,
            "SPY_ROUNDED": element == "tf32",
        }


def wave_cores_of(device: DeviceCore, kind: Kind) -> WaveCores:
    """Return the kernels of a kind of products, made once for the device, or for the text of a user's function."""
    if isinstance(kind.activation, Inlined):
        return kind.activation.once(("tensor cores of waves", *kind.types), lambda: WaveCores(device, kind))
    return device.once(f"matmul by tensor cores of waves {kind}", lambda: WaveCores(device, kind))


def multiplies(device: DeviceCore, element: str) -> bool:
    """Return whether waves of a device multiply matrices of an element type."""
    features = device.caps.features
    return element in FORMATS and ("mma" in features or f"tiles_{element}" in features)
