"""GroupScans: scans and sorts by thread groups that share memory, ``_spy_scan.slang`` and ``_spy_sort.slang``."""

from __future__ import annotations

from math import prod
from typing import Any

from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.calls.raw_kernel import Kernel

_SCAN, _SORT = "_spy_scan.slang", "_spy_sort.slang"
_THREADS = 256
# The most groups of a launch, which every API allows.
_MOST = 32768
# Bytes of a group's memory for what its threads exchange; all APIs have twice as much for a group.
_KEPT = 16384
_DIGITS = 256


class GroupScans:
    """The kernels of one device.

    Parameters
    ----------
    device : Device
        A device with groups.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._kernels: dict[tuple[Any, ...], Kernel] = {}

    def scan(self, row: NDBuffer, result: NDBuffer, held: str, of: str, into: str) -> None:
        """Write the running sums along the last axis of an array of scalars.

        Parameters
        ----------
        row, result : NDBuffer
            Arrays of one shape, of ``held`` and of ``into``, with elements.
        of : str
            The scalar type that is computed in.
        """
        items = _items(of)
        tiles = -(-row.shape[-1] // (_THREADS * items))
        types = {
            "SPY_HELD": held,
            "SPY_OF": of,
            "SPY_INTO": into,
            "SPY_RANK": len(row.shape),
            "SPY_PLACES": False,
            "SPY_TEST": "true",
            "SPY_ITEMS": items,
        }
        sums = self._tiles(row, tiles, of, types)
        self._run(_SCAN, "_spy_scan", types, prod(row.shape[:-1]), tiles, row, sums, result)

    def nonzero(self, row: NDBuffer, held: str, test: str) -> Tensor:
        """Return the places of a row's elements ``x`` of which a test is true, as ``int``."""
        items = _items("int")
        tiles = -(-row.shape[0] // (_THREADS * items))
        types = {
            "SPY_HELD": held,
            "SPY_OF": "int",
            "SPY_INTO": "int",
            "SPY_RANK": 1,
            "SPY_PLACES": True,
            "SPY_TEST": test,
            "SPY_ITEMS": items,
        }
        sums = self._tiles(row, tiles, "int", types, always=True)
        found = Tensor.empty(self._device, int(sums[0, -1].item()), "int")
        if found.size:
            self._run(_SCAN, "_spy_scan", types, 1, tiles, row, sums, found)
        return found

    def order(self, keys: Tensor, bits: int) -> Tensor:
        """Return the places of the keys of each row in rising order, as ``int``; equal ones keep their order.

        Parameters
        ----------
        keys : Tensor
            Of ``uint`` or ``uint64_t``, contiguous, with elements.
        bits : int
            How many of a key's bits, from the lowest, can differ.
        """
        name = keys.dtype.name
        rows, size = prod(keys.shape[:-1]), keys.shape[-1]
        keys, none = keys.reshape(rows, size), Tensor.empty(self._device, (0, 0), name)
        places = sums = Tensor.empty(self._device, (0, 0), "int")
        items = _items(name)
        types = {"SPY_KEY": name, "SPY_ITEMS": items}
        tiles = -(-size // (_THREADS * items))
        step = bits if tiles == 1 else 8
        for shift in range(0, bits, step):
            if tiles > 1:
                counts = Tensor.empty(self._device, (rows, _DIGITS * tiles), "int")
                self._run(_SORT, "_spy_digits", types, rows, tiles, keys, counts, shift)
                sums = Tensor.empty(self._device, counts.shape, "int")
                self.scan(counts, sums, "int", "int", "int")
            first, last = shift == 0, shift + step >= bits
            next_keys = none if last else Tensor.empty(self._device, (rows, size), name)
            next_places = Tensor.empty(self._device, (rows, size), "int")
            rest = (shift, step, int(first), int(last))
            self._run(_SORT, "_spy_put", types, rows, tiles, keys, places, sums, next_keys, next_places, *rest)
            keys, places = next_keys, next_places
        return places

    def _tiles(self, row: NDBuffer, tiles: int, of: str, types: dict[str, Any], always: bool = False) -> Tensor:
        """Return the running sums of the sums of the tiles of each row; nothing for one tile, unless ``always``."""
        rows = prod(row.shape[:-1])
        if tiles == 1 and not always:
            return Tensor.empty(self._device, (0, 0), of)
        totals = Tensor.empty(self._device, (rows, tiles), of)
        self._run(_SCAN, "_spy_totals", types, rows, tiles, row, totals)
        if tiles == 1:
            return totals
        sums = Tensor.empty(self._device, totals.shape, of)
        self.scan(totals, sums, of, of, of)
        return sums

    def _run(self, file: str, name: str, types: dict[str, Any], rows: int, tiles: int, *arguments: Any) -> None:
        """Launch a kernel with a group for each tile of each row, or with as many as a launch may have."""
        key = (name, *types.values())
        kernel: Any = self._kernels.get(key)
        if kernel is None:
            kernel = self._kernels[key] = Module.load_from_file(self._device, file, defines=types)[name]
        units = rows * tiles
        groups = min(_MOST, units)
        kernel.dispatch(groups * _THREADS, *arguments, tiles, units, groups)


def _items(scalar: str) -> int:
    """Return how many elements a thread has, so that those of a group fit into its memory."""
    return _KEPT // (_THREADS * (8 if scalar in ("int64_t", "uint64_t", "double") else 4))
