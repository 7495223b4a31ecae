"""What a backend states about itself and its kernels, as frozen values: Target, Caps and KernelInfo.

They lie below the backends because the compiler and the pass that describes kernels read them too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """What the Slang compiler has to emit for a backend.

    Attributes
    ----------
    format : str
        ``"cpp"``, ``"cuda"``, ``"spirv"``, ``"hlsl"``, ``"metal"`` or ``"wgsl"``.
    profile : str
        Slang profile, empty for the format's default.
    entry : str
        How the argument block reaches the kernel: ``"range"`` (``run(begin, end, call*)``), ``"value"``
        (a by-value kernel parameter), ``"pointer"`` (its address, pushed) or ``"handle"`` (a descriptor's index
        and an offset, as all addresses in it are: see shaders/_spy_handles.slang).
    program : bool
        Whether the backend compiles by itself: ``compile`` gets the Slang program, as ``Session.compile`` puts it
        down, and the format says what the compiler checks it for.
    """

    format: str
    profile: str
    entry: str
    program: bool = False


@dataclass(frozen=True)
class Caps:
    """Facts about a device that select kernels and tests.

    Attributes
    ----------
    max_groups : tuple of int
        Largest dispatch in x, y and z.
    scalars : frozenset of str
        Slang scalar types that kernels may load, store and compute with.
    features : frozenset of str
        Further capabilities: ``"zero_copy"`` (host arrays are device memory), ``"wave"``,
        ``"group_shared"``, ``"atomic_float"``, ``"cooperative_matrix"`` (waves multiply matrices), ``"pointers"``
        (functions may take and follow them).
    lanes : int
        Threads of a wave, 0 where there are no waves or their size is not known.
    """

    max_groups: tuple[int, int, int]
    scalars: frozenset[str]
    features: frozenset[str]
    lanes: int = 0


@dataclass(frozen=True)
class KernelInfo:
    """What a backend must know of a kernel besides its binary.

    Attributes
    ----------
    entry : str
        Name of the entry point in the binary.
    group_size : tuple of int
        Threads of one group in x, y and z; ``(1, 1, 1)`` for a range kernel, whose groups are elements.
    args_size : int
        Bytes of the argument block.
    written : tuple of bool
        For each buffer of a launch, whether the kernel writes to it.
    coarse : bool
        Of a range kernel, whether each range costs something by itself, so that a few large ones are best.
    title : str
        What it does, for people: in errors and in profilers.
    """

    entry: str
    group_size: tuple[int, int, int]
    args_size: int
    written: tuple[bool, ...]
    coarse: bool = False
    title: str = "kernel"
