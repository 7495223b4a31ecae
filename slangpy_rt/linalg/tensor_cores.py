"""TensorCores: products of 16-bit floats on CUDA devices that have wgmma, by ``shaders/matmul_wgmma.slang``.

It takes matrices that the tensor memory accelerator can read where they lie; others are left to ``Program``.
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

_TYPES = {"half": "f16", "bfloat16": "bf16"}
_RESULTS = ("half", "bfloat16", "float")
_TALL, _DEPTH, _THREADS = 128, 64, 384
# Group memory of a stage is 16 KiB for a and 128 bytes for each column of b; a group has 227 KiB.
_STAGES = {256: 4, 128: 6}
# Descriptions of operands that are kept on the device, 512 bytes each.
_MOST_MAPS = 4096
_MOST_ROWS = 2**31 - 2**10
# Tiles of each group from which on two groups share columns.
_SHARED_WAVES = 4
# Multiplications from which on operands are copied for tensor cores: those of 512 x 512 matrices.
_PACKED = 2**27


class Config(NamedTuple):
    """How a product is divided.

    Attributes
    ----------
    wide : int
        Columns of a tile: 128 or 256. It has 128 rows.
    cluster : int
        Groups that share columns: 1 or 2.
    stages : int
        Stages of the ring in group memory.
    grouped : int
        Rows of tiles that are computed together.
    turns : bool
        Whether two warp groups compute tiles in turns, of 128 columns, rather than halves of a tile.
    """

    wide: int = 256
    cluster: int = 2
    stages: int = 4
    grouped: int = 8
    turns: bool = False


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

    def __init__(self, device: DeviceCore, kind: Kind) -> None:
        assert isinstance(device.backend, TensorMaps)
        self._device = device
        self._kind = kind
        self._describe = device.backend.tensor_map
        self._described = layout_of(device, NDBuffer, scalar_type("uint64_t"), (16,))
        self._stored = storage_of(device, kind.element)[0]
        # A user's function ends with its module, and queued kernels may read descriptions then.
        self._lasting: TensorCores | None = None
        if isinstance(kind.activation, Inlined):
            self._lasting = tensor_cores_of(device, Kind(kind.element, kind.element))
        self._packs: Kernel | None = None
        self._configs: dict[Shape, Config] = {}
        self._kernels: dict[tuple[Config, bool, bool], Kernel] = {}
        # The copies of descriptions on the device, by operand and address.
        self._maps: dict[Described, dict[int, NDBuffer]] = {}
        self._number = 0
        # A thread may be about to launch a kernel that reads one of them.
        self._retired: list[NDBuffer] = []
        # Those that captured launches read.
        self._kept: dict[int, NDBuffer] = {}

    def config(self, c: View) -> Config:
        """Return how a result of three dimensions is best divided, by the columns that the busiest group computes."""
        found = self._configs.get(c.shape)
        if found is None:
            found = self._configs[c.shape] = self._best(*c.shape)
        return found

    def _best(self, count: int, rows: int, columns: int) -> Config:
        processors = max(1, self._device.caps.processors)
        waves = {wide: -(-(-(-rows // _TALL) * -(-columns // wide) * count) // processors) for wide in _STAGES}
        # A tile of half the columns reads more for each of them; the last tile's results are written after all else.
        # On an H100 this chooses the faster one for 1024, 2048, 4096 and 8192 each way, and for 64 of 512.
        cost = {wide: n * wide * (1.0 if wide == 256 else 1.05) + wide / 4 for wide, n in waves.items()}
        best = min(cost, key=lambda wide: cost[wide])
        # Groups that share columns read less, and wait for each other: 671 and 657 TFLOP/s for 4096, 454 and 478 for
        # 2048, 364 and 386 for 64 of 512.
        cluster = 2 if count == 1 and waves[best] >= _SHARED_WAVES else 1
        return Config(best, cluster, _STAGES[best])

    def division(self, a: View, b: View, c: View, config: Config | None = None) -> Division:
        """Return the launch for views of three dimensions for which ``fits`` holds and ``lines_of`` is not 0."""
        config = config or self.config(c)
        rows, columns = lines_of(a) == 2, lines_of(b) == 1
        kernel = self._kernels.get((config, rows, columns))
        if kernel is None:
            kernel = self._kernels[config, rows, columns] = self._kernel(config, rows, columns)
        count, height, width = c.shape
        units = -(-height // (_TALL * config.cluster)) * -(-width // config.wide) * count
        groups = min(units, max(1, self._device.caps.processors // config.cluster)) * config.cluster
        shared = config.wide // config.cluster
        left = Described(a if rows else a.transposed(), _TALL if rows else _DEPTH)
        right = Described(b.transposed() if columns else b, shared if columns else _DEPTH)
        repeated = (a.strides[0] == 0 and count > 1) + 2 * (b.strides[0] == 0 and count > 1)
        return Division(kernel, groups * _THREADS, groups, repeated, left, right)

    def run(
        self,
        commands: CommandList | None,
        a: tuple[Any, View, int],
        b: tuple[Any, View, int],
        c: tuple[Any, View],
        rest: list[Any],
        config: Config | None = None,
        kept: bool = False,
        uniforms: Mapping[str, Any] = NO_VALUES,
    ) -> None:
        """Launch a kernel, or record the launch in a command list.

        Parameters
        ----------
        a, b : tuple of array, View and int
            Operands of three dimensions, for which ``fits`` holds, with the address of the first element.
        c : tuple of array and View
            The result.
        rest : list
            The factor, and the bias if there is one.
        kept : bool
            Whether the launch may be repeated at any later time.
        uniforms : mapping
            Values of a user's function.
        """
        kernel, threads, groups, repeated, left, right = self.division(a[1], b[1], c[1], config)
        kernel = kernel.set(uniforms) if uniforms else kernel
        map_a, map_b = self.description(left, a[2], kept), self.description(right, b[2], kept)
        first, last = (a[0], b[0], c[0], rest[0], groups), (repeated, *rest[1:])
        if commands is None:
            # By address: streams need not be ordered by what nobody writes.
            kernel.dispatch(threads, *first, map_a.address, map_b.address, *last)
        else:
            kernel.append_to(commands, threads, *first, map_a, map_b, *last)

    def packed(
        self, commands: CommandList | None, arrays: Arrays, operand: tuple[Any, View], like: Any
    ) -> tuple[Any, View, int]:
        """Return a copy of an operand of three dimensions that the accelerator can read, made by a launch.

        Parameters
        ----------
        operand : tuple of array and View
            The array as ``Arrays.strided`` returns it, and its view.
        like : array
            The user's array.
        """
        array, view = operand
        turned = view.strides[1] == 1 and view.strides[2] != 1
        view = view.transposed() if turned else view
        count, rows, columns = view.shape
        room = -(-columns // 8) * 8
        target = View(view.element, (count, rows, columns), (rows * room, room, 1))
        copy = arrays.empty(self._device, (count, rows, room), self._stored, like)
        if turned:
            array = arrays.strided(array, View(view.element, view.shape, view.strides), self._stored)
        threads = (-(-columns // 8), rows, count)
        into = arrays.strided(copy, target, self._stored)
        if commands is None:
            self._pack.dispatch(threads, array, into)
        else:
            self._pack.append_to(commands, threads, array, into)
        if turned:
            target = target.transposed()
        return arrays.strided(copy, target, self._stored), target, arrays.address(copy)

    @property
    def _pack(self) -> Kernel:
        if self._lasting is not None:
            return self._lasting._pack
        if self._packs is None:
            macros = self._macros(Config(), True, True)
            self._packs = Module.load_from_file(self._device, FILE, defines=macros)["_spy_packed"]
        return self._packs

    def _kernel(self, config: Config, rows: bool, columns: bool) -> Kernel:
        return kernel_of(self._device, self._kind, self._macros(config, rows, columns))

    def _macros(self, config: Config, rows: bool, columns: bool) -> dict[str, Any]:
        stage = (_TALL + config.wide) * _DEPTH * 2
        lines = [
            f"#define _SPY_WIDE {config.wide}",
            f'#define _SPY_TYPE \\"{_TYPES[self._kind.element]}\\"',
            f'#define _SPY_MAJOR \\"{int(not rows)}, {int(not columns)}\\"',
            # Barriers of 8 bytes: two for each stage, and two for the turns of warp groups.
            f"#pragma slangpy_rt_shared_bytes {config.stages * (stage + 16) + 16}",
            f"#pragma slangpy_rt_kernel __launch_bounds__({_THREADS}, 1)"
            + f" __cluster_dims__({config.cluster}, 1, 1)" * (config.cluster > 1),
            "",
        ]
        return {
            **macros_of(self._device, self._kind),
            "SPY_WGMMA": 1,
            "SPY_PRELUDE": '"' + "\\n".join(lines) + '"',
            "SPY_A_ROWS": rows,
            "SPY_B_COLUMNS": columns,
            "SPY_WIDE": config.wide,
            "SPY_STAGES": config.stages,
            "SPY_CLUSTER": config.cluster,
            "SPY_GROUPED": config.grouped,
            "SPY_TURNS": config.turns,
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
        steps = (2 * view.strides[1] if rows > 1 else 16, 16 if single else 2 * view.strides[0])
        sizes = columns, rows, 1 if single else count
        buffer = self._describe(address, self._kind.element, sizes, steps, (64, height, 1))
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

    def descriptions(self, operand: Described) -> dict[int, NDBuffer]:
        """Return the descriptions of an operand that are on the device, by address.

        They are removed when there are too many; later ones may be in another mapping.
        """
        if self._lasting is not None:
            return self._lasting.descriptions(operand)
        return self._maps.setdefault(operand, {})


def takes(device: DeviceCore, kind: Kind) -> bool:
    """Return whether a device has tensor cores for a kind of products."""
    return "wgmma" in device.caps.features and kind.element in _TYPES and kind.result in _RESULTS


def fits(a: View, b: View, c: View) -> bool:
    """Return whether tensor cores multiply matrices of three dimensions, of which copies may have to be made."""
    if not a.shape[2] or (c.strides[2] != 1 and c.shape[2] > 1):
        return False
    # Positions and numbers of tiles are 32-bit integers.
    return max(*a.shape, *b.shape) <= _MOST_ROWS and prod(c.shape) // _TALL <= _MOST_ROWS


def readable(view: View, address: int) -> bool:
    """Return whether the accelerator can read an operand where it lies."""
    return address % 16 == 0 and lines_of(view) > 0


def worth_packing(a: View, b: View) -> bool:
    """Return whether a product takes so long that copies of its operands do not matter."""
    return prod(a.shape) * b.shape[2] >= _PACKED


def lines_of(view: View) -> int:
    """Return the dimension, 1 or 2, along which the accelerator reads lines of a view of three; 0 if there is none.

    Elements of a line follow each other, and lines and matrices lie at multiples of 16 bytes below 2^40.
    """
    for line, other in ((2, 1), (1, 2)):
        dense = view.strides[line] == 1 or view.shape[line] == 1
        used = [view.strides[d] for d in (other, 0) if view.shape[d] > 1]
        # Matrices may lie in one place, but not the lines of one.
        distinct = view.shape[other] == 1 or view.strides[other] > 0
        if dense and distinct and all(s % 8 == 0 and 0 <= s < 2**39 for s in used):
            return line
    return 0


def tensor_cores_of(device: DeviceCore, kind: Kind) -> TensorCores:
    """Return the kernels of a kind of products, made once for the device, or for the text of a user's function."""
    if isinstance(kind.activation, Inlined):
        return kind.activation.once(("tensor cores", *kind.types), lambda: TensorCores(device, kind))
    return device.once(f"matmul by tensor cores {kind}", lambda: TensorCores(device, kind))
