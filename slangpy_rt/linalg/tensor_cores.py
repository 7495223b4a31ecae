"""TensorCores: products on CUDA devices that have wgmma, by ``shaders/matmul_wgmma.slang``.

It reads operands where they lie if the tensor memory accelerator can, and copies others of products that take long
enough; the rest is left to ``Program``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from math import prod
from typing import Any, NamedTuple

from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.backends.extras import TensorMaps
from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.calls.module import Module
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.core.dtypes import scalar_type
from slangpy_rt.core.shapes import Shape
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.program import FILE, Kind, kernel_of, macros_of, storage_of
from slangpy_rt.linalg.user_functions import NO_VALUES, Inlined
from slangpy_rt.linalg.view import View
from slangpy_rt.runtime.core import DeviceCore

# Rows and columns of a tile, bytes of a line of a stage, stages, and threads of a group.
_TILE, _LINE, _STAGES, _THREADS = 128, 128, 6, 384
# A stage has lines of both operands and two barriers of 8 bytes; the warp groups' turns have two more.
_SHARED = _STAGES * (2 * _TILE * _LINE + 16) + 16
# The accelerator reads lines, and rows and matrices at multiples of 16 bytes.
ALIGNED = 16
# Descriptions of operands that are kept on the device, 512 bytes each.
_MOST_MAPS = 4096
_MOST_ROWS = 2**31 - 2**10


class Format(NamedTuple):
    """How tensor cores multiply elements of a type.

    Attributes
    ----------
    size : int
        Bytes of an element.
    shape : str
        Shape and types of the instruction.
    sums : str
        The type of sums in CUDA.
    factors : str
        Operands of the instruction behind its predicate: factors of 1.
    parts : int
        Matrices of numbers that the instruction takes, for each matrix of elements.
    packed : int
        Multiplications from which on operands are copied for tensor cores.
    """

    size: int
    shape: str
    sums: str = "float"
    factors: str = ", 1, 1"
    parts: int = 1
    packed: int = 2**27

    @property
    def takes_columns(self) -> bool:
        """Whether the instruction also takes matrices in which the elements of columns follow each other."""
        return self.size == 2


# Copies of floats are made of each product; the plain kernel takes 90 us for 2^29 multiplications on an H100.
_FORMATS = {
    "half": Format(2, "m64n128k16.f32.f16.f16"),
    "bfloat16": Format(2, "m64n128k16.f32.bf16.bf16"),
    "int8_t": Format(1, "m64n128k32.s32.s8.s8", "int", ""),
    "float": Format(4, "m64n128k8.f32.tf32.tf32", parts=3, packed=2**29),
    "tf32": Format(4, "m64n128k8.f32.tf32.tf32", packed=2**28),
}
_RESULTS = ("half", "bfloat16", "float", "int")


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


class Packing(NamedTuple):
    """How an operand is copied for the accelerator.

    Attributes
    ----------
    kernel : Kernel
        It takes arrays with the views ``source`` and ``copy``, and ``turned``.
    threads, turned : int
        Threads of the launch, and whether elements of the source's columns follow each other.
    source, copy : View
        The operand and its copy, in the order of the copy's lines.
    shape : tuple of int
        The shape of the new array.
    operand, first : View
        The copy in the order of the operand, with all parts of each matrix, and with as many matrices as the operand.
    """

    kernel: Kernel
    threads: int
    turned: int
    source: View
    copy: View
    shape: Shape
    operand: View
    first: View


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
        self._format = _FORMATS[kind.element]
        self._maker: TensorMaps = device.backend
        self._described = layout_of(device, NDBuffer, scalar_type("uint64_t"), (16,))
        self._stored = storage_of(device, kind.element)[0]
        if isinstance(kind.activation, Inlined):
            self._lasting = tensor_cores_of(device, kind._replace(activation=""))
        self._packs: Kernel | None = None
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
        units = -(-height // _TILE) * -(-width // _TILE) * count
        # Each group computes tiles until there are none: as many groups as run at once.
        groups = min(units, max(1, self._device.caps.processors))
        part = _LINE // self._format.size
        left = Described(a if rows else a.transposed(), _TILE if rows else part)
        right = Described(b.transposed() if columns else b, _TILE if columns else part)
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

    def packing(self, view: View, left: bool) -> Packing:
        """Return how an operand of three dimensions, ``a`` if ``left``, is copied for the accelerator."""
        form = self._format
        # Lines are along the elements that follow each other, or along those that are multiplied with each other.
        across = _are_turned(view) if form.takes_columns else not left
        source = view.transposed() if across else view
        turned = _are_turned(source)
        count, rows, columns = source.shape
        room = -(-columns * form.size // ALIGNED) * ALIGNED // form.size
        copy = View(view.element, (count * form.parts, rows, columns), (rows * room, room, 1))
        # Of the copy, kernels read how many elements are multiplied: its first part has as many as the operand.
        first = copy._replace(shape=source.shape)
        operand, first = (copy.transposed(), first.transposed()) if across else (copy, first)
        # A thread writes 32 bytes of each row, and takes rows whose elements have 4 bytes together.
        threads = count * -(-rows * (form.size if turned else 4) // 4) * -(-columns * form.size // 32)
        return Packing(
            self._pack, threads, int(turned), source, copy, (count * form.parts, rows, room), operand, first
        )

    def packed(
        self, commands: CommandList | None, arrays: Arrays, operand: tuple[Any, View], like: Any, left: bool
    ) -> tuple[Any, View, int]:
        """Return a copy of an operand of three dimensions that the accelerator can read, made by a launch.

        Parameters
        ----------
        operand : tuple of array and View
            The array as ``Arrays.strided`` returns it, and its view.
        like : array
            The user's array.
        left : bool
            Whether it is ``a``.
        """
        found, stored = self.packing(operand[1], left), self._stored
        copy = arrays.empty(self._device, found.shape, stored, like)
        source, target = arrays.strided(operand[0], found.source, stored), arrays.strided(copy, found.copy, stored)
        if commands is None:
            found.kernel.dispatch(found.threads, source, target, found.turned)
        else:
            found.kernel.append_to(commands, found.threads, source, target, found.turned)
        return arrays.strided(copy, found.first, stored), found.operand, arrays.address(copy)

    @property
    def _pack(self) -> Kernel:
        if self._lasting is not None:
            return self._lasting._pack
        if self._packs is None:
            macros = self._macros(True, True)
            self._packs = Module.load_from_file(self._device, FILE, defines=macros)["_spy_packed"]
        return self._packs

    def _kernel(self, rows: bool, columns: bool) -> Kernel:
        return kernel_of(self._device, self._kind, self._macros(rows, columns))

    def _macros(self, rows: bool, columns: bool) -> dict[str, Any]:
        form = self._format
        rest = form.factors + (f", {int(not rows)}, {int(not columns)}" if form.takes_columns else "")
        lines = [
            f"#define _SPY_ACC {form.sums}",
            f'#define _SPY_SUM \\"{"+r" if form.sums == "int" else "+f"}\\"',
            f'#define _SPY_SHAPE \\"{form.shape}\\"',
            f'#define _SPY_REST \\"{rest}\\"',
            f"#pragma slangpy_rt_shared_bytes {_SHARED}",
            f"#pragma slangpy_rt_kernel __launch_bounds__({_THREADS}, 1)",
            "",
        ]
        return {
            **macros_of(self._device, self._kind),
            "SPY_WGMMA": 1,
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


def takes(device: DeviceCore, kind: Kind) -> bool:
    """Return whether a device has tensor cores for a kind of products."""
    return "wgmma" in device.caps.features and kind.element in _FORMATS and kind.result in _RESULTS


def fits(a: View, b: View, c: View) -> bool:
    """Return whether tensor cores multiply matrices of three dimensions, of which copies may have to be made."""
    if not a.shape[2] or (c.strides[2] != 1 and c.shape[2] > 1):
        return False
    # Positions and numbers of tiles are 32-bit integers.
    return max(*a.shape, *b.shape, prod(c.shape) // _TILE) <= _MOST_ROWS


def readable(view: View, address: int, left: bool) -> bool:
    """Return whether the accelerator can read an operand, ``a`` or ``b``, where it lies."""
    form = _FORMATS[view.element]
    if address % ALIGNED or form.parts > 1:
        return False
    line = lines_of(view)
    return line > 0 if form.takes_columns else line == (2 if left else 1)


def worth_packing(a: View, b: View) -> bool:
    """Return whether a product takes so long that copies of its operands do not matter, if they can be made."""
    # Threads that copy, which have 8 elements or more but for the last of each row, are counted with 32 bits.
    threads = max(prod(x.shape) // 8 + prod(x.shape) // min(x.shape[1:]) for x in (a, b))
    return prod(a.shape) * b.shape[2] >= _FORMATS[a.element].packed and threads <= _MOST_ROWS


def lines_of(view: View) -> int:
    """Return the dimension, 1 or 2, along which the accelerator reads lines of a view of three; 0 if there is none.

    Elements of a line follow each other, and lines and matrices lie at multiples of 16 bytes below 2^40.
    """
    size = _FORMATS[view.element].size
    for line, other in ((2, 1), (1, 2)):
        dense = view.strides[line] == 1 or view.shape[line] == 1
        used = [size * view.strides[d] for d in (other, 0) if view.shape[d] > 1]
        # Matrices may lie in one place, but not the lines of one.
        distinct = view.shape[other] == 1 or view.strides[other] > 0
        if dense and distinct and all(s % ALIGNED == 0 and 0 <= s < 2**40 for s in used):
            return line
    return 0


def _are_turned(view: View) -> bool:
    """Return whether the elements of columns follow each other, and not those of rows."""
    return view.strides[1] == 1 and view.strides[2] != 1


def tensor_cores_of(device: DeviceCore, kind: Kind) -> TensorCores:
    """Return the kernels of a kind of products, made once for the device, or for the text of a user's function."""
    if isinstance(kind.activation, Inlined):
        return kind.activation.once(("tensor cores", *kind.types), lambda: TensorCores(device, kind))
    return device.once(f"matmul by tensor cores {kind}", lambda: TensorCores(device, kind))
