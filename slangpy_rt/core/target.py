"""What a backend states about itself and its kernels, as frozen values: Target, Caps and KernelInfo.

They are in ``core`` because the Slang package and the code that describes kernels read them too.
"""

from __future__ import annotations

from dataclasses import dataclass

# Levels of selections, loops or brackets inside of one another. Compilers recurse over them, those of drivers in this
# process, on the calling thread's stack.
NESTING = 1000
# Mesa's lavapipe has no more masks (LP_MAX_TGSI_NESTING): it ignores further levels, or crashes.
LAVAPIPE_NESTING = 80


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
    constants : tuple of str
        Lines of every kernel that give constants of our library the values that this device needs:
        ``"export static const bool _spy_cooperative = true;"``.
    backward_constants : tuple of str
        The same, of backward derivatives alone.
    element_constants : tuple of str
        The same, of calls over elements whose threads do not wait for each other, in groups of up to 256.
    bool_bytes : int
        How many bytes Slang's code takes for a bool behind a pointer; arrays have 1.
    aligned_vectors : bool
        Whether behind a pointer vectors of 2 and 4 lie at multiples of their size, and those of half at multiples of
        4 bytes; in arrays each scalar lies at a multiple of its own.
    fills_padding : bool
        Whether behind a pointer a field may lie in the padding at the end of the struct before it, where arrays have
        none.
    nesting : int
        ``Caps.nesting`` of the device.
    texture_modules : tuple of str
        Modules of ours that kernels import which take textures.
    lane_threads : bool
        Whether threads are the lanes of vectors on the cores of this machine. A vector then loads the elements of
        neighbouring threads at once, where a thread of a GPU loads several elements in pieces of 16 bytes, and few
        groups fill the machine.
    flags : tuple of str
        Options of Slang's command line, which a user gives besides: ``extraSlangFlags`` of slang-torch.
    """

    format: str
    profile: str
    entry: str
    program: bool = False
    constants: tuple[str, ...] = ()
    backward_constants: tuple[str, ...] = ()
    bool_bytes: int = 1
    aligned_vectors: bool = False
    nesting: int = NESTING
    flags: tuple[str, ...] = ()
    texture_modules: tuple[str, ...] = ()
    element_constants: tuple[str, ...] = ()
    fills_padding: bool = False
    lane_threads: bool = False

    @property
    def groups(self) -> bool:
        """Whether kernels run in thread groups; kernels of a ``"range"`` target run over elements."""
        return self.entry != "range"


@dataclass(frozen=True)
class Caps:
    """Facts about a device that select kernels and tests.

    Attributes
    ----------
    max_groups : tuple of int
        Largest dispatch in x, y and z.
    scalars : frozenset of str
        The Slang scalar types that kernels may load, store and compute with.
    features : frozenset of str
        Further capabilities: ``"zero_copy"`` (host arrays are device memory), ``"wave"``, ``"group_shared"``,
        ``"atomic_float"``, ``"atomic_int64"`` (D3D12 alone tells: 64-bit atomics on memory), ``"cooperative_matrix"``
        (waves multiply matrices), ``"pointers"`` (functions may take and follow them), ``"free_group_size"`` (a
        launch has the size of ``KernelInfo``, whatever the kernel's text says), ``"wgmma"`` (groups of four waves
        multiply matrices in group memory, as PTX has it), ``"textures"`` (``backends/images.py``), ``"mma"`` (waves
        multiply matrices as PTX has it from compute capability 8.0 on), ``"tiles_half"``,
        ``"tiles_bfloat16"`` and ``"tiles_int8_t"`` (waves of 32 multiply such matrices of 16 x 32 bytes as SPIR-V has
        it, and groups have 40 KiB of memory).
    lanes : int
        Threads of a wave, 0 where there are no waves or their size is not known.
    dlpack_device : int
        What DLPack calls the kind of memory that arrays lie in: 1 for the host's, 2 for that of a CUDA GPU; 0 where
        other libraries cannot reach it.
    nesting : int
        How many selections and loops inside of one another a kernel may have.
    processors : int
        How many thread groups of the largest size run at once, 0 where that is not known.
    """

    max_groups: tuple[int, int, int]
    scalars: frozenset[str]
    features: frozenset[str]
    lanes: int = 0
    dlpack_device: int = 0
    nesting: int = NESTING
    processors: int = 0


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
        Whether each range has a cost of its own, so that a few large ranges are fastest; for groups in lanes, whether
        a group runs many elements for each thread.
    title : str
        The name of the kernel's function, for error messages and profilers.
    textures : bool
        Whether its argument block has numbers of textures or samplers.
    streamed : tuple of tuple of int
        Its outputs whose elements follow each other, each written once and never read: the offset of the pointer in
        the argument block, and the bytes of an element. A raw kernel has none.
    """

    entry: str
    group_size: tuple[int, int, int]
    args_size: int
    written: tuple[bool, ...]
    coarse: bool = False
    title: str = "kernel"
    textures: bool = False
    streamed: tuple[tuple[int, int], ...] = ()
