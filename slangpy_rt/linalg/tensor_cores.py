"""TensorCores: products on CUDA devices that have wgmma, by ``shaders/matmul_wgmma.slang``.

It reads operands where they lie, by the tensor memory accelerator.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.backends.extras import TensorMaps
from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.core.dtypes import scalar_type
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.lines import ALIGNED, FORMATS, TILE, lines_of
from slangpy_rt.linalg.program import Kind, kernel_of, macros_of
from slangpy_rt.linalg.user_functions import NO_VALUES, Inlined
from slangpy_rt.linalg.view import View
from slangpy_rt.runtime.core import DeviceCore

# Bytes of a line of a stage, stages, and threads of a group.
_LINE, _STAGES, _THREADS = 128, 6, 384
# A stage has lines of both operands and two barriers of 8 bytes; the warp groups' turns have two more.
_SHARED = _STAGES * (2 * TILE * _LINE + 16) + 16
# Descriptions of operands that are kept on the device, 512 bytes each.
_MOST_MAPS = 4096
# How the instruction multiplies elements of a type: its shape and types, and factors of 1 behind its predicate.
_INSTRUCTIONS = {
    "half": ("m64n128k16.f32.f16.f16", ", 1, 1"),
    "bfloat16": ("m64n128k16.f32.bf16.bf16", ", 1, 1"),
    "int8_t": ("m64n128k32.s32.s8.s8", ""),
    "float": ("m64n128k8.f32.tf32.tf32", ", 1, 1"),
    "tf32": ("m64n128k8.f32.tf32.tf32", ", 1, 1"),
}


class Described(NamedTuple):
    """How an operand is described to the accelerator.

    Attributes
    ----------
    view : View
        The operand, such that elements of its rows follow each other.
    height : int
        Rows that are copied at once.
    """

    view: View
    height: int


class Division(NamedTuple):
    """A launch for views of certain shapes and strides.

    Attributes
    ----------
    kernel : Kernel
        It takes ``a``, ``b``, ``c``, the factor, ``groups``, the addresses of the descriptions of ``a`` and ``b``,
        ``repeated``, and the bias if there is one.
    threads, groups : int
        Threads and thread groups of the launch.
    repeated : int
        1 if ``a`` is one matrix for all results, plus 2 if ``b`` is.
    a, b : Described
        The operands.
    """

    kernel: Kernel
    threads: int
    groups: int
    repeated: int
    a: Described
    b: Described


class TensorCores:
    """The kernels of one kind of products on one device.

    Parameters
    ----------
    device : DeviceCore
        A device with the feature ``"wgmma"``.
    kind : Kind
        What is multiplied.
    """

    # Those of products without the user's function, whose module may end before queued kernels read descriptions.
    _lasting: TensorCores | None = None

    def __init__(self, device: DeviceCore, kind: Kind) -> None:
        assert isinstance(device.backend, TensorMaps)
        self._device = device
        self._kind = kind
        self._format = FORMATS[kind.element]
        self._maker: TensorMaps = device.backend
        self._described = layout_of(device, NDBuffer, scalar_type("uint64_t"), (16,))
        if isinstance(kind.activation, Inlined):
            self._lasting = tensor_cores_of(device, kind._replace(activation=""))
        self._kernels: dict[tuple[bool, bool], Kernel] = {}
        # The copies of descriptions on the device, by operand and address.
        self._maps: dict[Described, dict[int, NDBuffer]] = {}
        self._number = 0
        # A thread may be about to launch a kernel that reads one of them.
        self._retired: list[NDBuffer] = []
        # Those that captured launches read.
        self._kept: dict[int, NDBuffer] = {}

    def division(self, a: View, b: View, c: View) -> Division:
        """Return the launch for operands of three dimensions that are ``readable``, and their result."""
        rows, columns = lines_of(a) == 2, lines_of(b) == 1
        kernel = self._kernels.get((rows, columns))
        if kernel is None:
            kernel = self._kernels[rows, columns] = self._kernel(rows, columns)
        count, height, width = c.shape
        units = -(-height // TILE) * -(-width // TILE) * count
        # Each group computes tiles until there are none: as many groups as run at once.
        groups = min(units, max(1, self._device.caps.processors))
        part = _LINE // self._format.size
        left = Described(a if rows else a.transposed(), TILE if rows else part)
        right = Described(b.transposed() if columns else b, TILE if columns else part)
        repeated = (a.strides[0] == 0 and count > 1) + 2 * (b.strides[0] == 0 and count > 1)
        return Division(kernel, groups * _THREADS, groups, repeated, left, right)

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
        """Launch a kernel, or record the launch in a command list.

        Parameters
        ----------
        a, b : tuple of array, View and int
            Operands of three dimensions that are ``readable``, with the address of the first element.
        c : tuple of array and View
            The result.
        rest : list
            The factor, and the bias if there is one.
        kept : bool
            Whether the launch may be repeated at any later time.
        uniforms : mapping
            Values of a user's function.
        """
        kernel, threads, groups, repeated, left, right = self.division(a[1], b[1], c[1])
        kernel = kernel.set(uniforms) if uniforms else kernel
        map_a, map_b = self.description(left, a[2], kept), self.description(right, b[2], kept)
        first, last = (a[0], b[0], c[0], rest[0], groups), (repeated, *rest[1:])
        if commands is None:
            # By address: streams need not be ordered by what nobody writes.
            kernel.dispatch(threads, *first, map_a.address, map_b.address, *last)
        else:
            kernel.append_to(commands, threads, *first, map_a, map_b, *last)

    def _kernel(self, rows: bool, columns: bool) -> Kernel:
        return kernel_of(self._device, self._kind, self._macros(rows, columns))

    def _macros(self, rows: bool, columns: bool) -> dict[str, Any]:
        form, whole = self._format, self._kind.element == "int8_t"
        shape, rest = _INSTRUCTIONS[self._kind.element]
        rest += f", {int(not rows)}, {int(not columns)}" if form.takes_columns else ""
        lines = [
            f"#define _SPY_ACC {'int' if whole else 'float'}",
            f'#define _SPY_SUM \\"{"+r" if whole else "+f"}\\"',
            f'#define _SPY_SHAPE \\"{shape}\\"',
            f'#define _SPY_REST \\"{rest}\\"',
            f"#pragma slangpy_rt_shared_bytes {_SHARED}",
            f"#pragma slangpy_rt_kernel __launch_bounds__({_THREADS}, 1)",
            "",
        ]
        return {
            **macros_of(self._device, self._kind),
            "SPY_WGMMA": 1,
            "SPY_PTX": True,
            "SPY_PRELUDE": '"' + "\\n".join(lines) + '"',
            "SPY_A_ROWS": rows,
            "SPY_B_COLUMNS": columns,
            "SPY_PASSES": form.parts,
        }

    def description(self, operand: Described, address: int, kept: bool) -> NDBuffer:
        """Return the description of an operand at an address, on the device; if ``kept``, it stays there."""
        if self._lasting is not None:
            return self._lasting.description(operand, address, kept)
        known = self.descriptions(operand)
        found = known.get(address)
        if found is not None:
            if kept:
                self._kept[found.address] = found
            return found
        view, height = operand
        count, rows, columns = view.shape
        # The accelerator takes no stride of 0: a single matrix is described, and the kernel reads it for each result.
        single = view.strides[0] == 0 or count == 1
        # A stride that is not used has to be a multiple of 16, too.
        size = self._format.size
        steps = (
            size * view.strides[1] if rows > 1 else ALIGNED,
            ALIGNED if single else size * view.strides[0],
        )
        sizes = columns, rows, 1 if single else count
        buffer = self._maker.tensor_map(address, self._kind.element, sizes, steps, (_LINE // size, height, 1))
        found = NDBuffer.of(self._described, buffer, buffer.address)
        if self._number >= _MOST_MAPS:
            # Queued kernels may read those that are dropped.
            self._device.backend.sync_all()
            self._retired = list(chain.from_iterable(each.values() for each in self._maps.values()))
            for each in self._maps.values():
                each.clear()
            self._maps.clear()
            self._number = 0
        self.descriptions(operand)[address] = found
        self._number += 1
        if kept:
            self._kept[found.address] = found
        return found

    def captures(self, arrays: Arrays) -> bool:
        """Return whether launches on arrays of a library are recorded now, to be repeated at any later time."""
        return arrays.captures() or self._maker.captures()

    def descriptions(self, operand: Described) -> dict[int, NDBuffer]:
        """Return the descriptions of an operand that are on the device, by address.

        They are removed when there are too many; later ones may be in another mapping.
        """
        if self._lasting is not None:
            return self._lasting.descriptions(operand)
        return self._maps.setdefault(operand, {})


def has_wgmma(device: DeviceCore, element: str) -> bool:
    """Return whether a device multiplies matrices of an element type by instructions of warp groups."""
    return "wgmma" in device.caps.features and element in FORMATS


def tensor_cores_of(device: DeviceCore, kind: Kind) -> TensorCores:
    """Return the kernels of a kind of products, made once for the device, or for the text of a user's function."""
    if isinstance(kind.activation, Inlined):
        return kind.activation.once(("tensor cores", *kind.types), lambda: TensorCores(device, kind))
    return device.once(f"matmul by tensor cores {kind}", lambda: TensorCores(device, kind))
