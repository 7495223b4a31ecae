"""Makes the Target of a backend: what a format of Slang's code and the device's features mean for kernels.

Packages above read the facts in ``Target``, and do not ask which format or device it is.
"""

from __future__ import annotations

from slangpy_rt.core.target import Caps, Target


def target_of(format: str, profile: str, entry: str, caps: Caps, program: bool = False) -> Target:
    """Return the Target of a format of code on a device with these Caps.

    Parameters
    ----------
    format, profile, entry, program
        As of ``Target``.
    caps : Caps
        What the device can do.
    """
    spirv = format == "spirv"
    constants: tuple[str, ...] = ()
    if "cooperative_matrix" in caps.features:
        constants += ("export static const bool _spy_cooperative = true;",)
    if spirv and "tiles_bfloat16" in caps.features:
        constants += ("export static const bool _spy_cooperativeBfloat16 = true;",)
    if spirv and "atomic_float" not in caps.features:
        constants += ("export static const bool _spy_float_atomics = false;",)
    waves = spirv and caps.lanes in (8, 16, 32, 64)
    backward = (f"export static const uint _spy_lanes = {caps.lanes};",) if waves else ()
    # As shaders/mlp_groups.slang has it.
    joins = ("mma" if format == "cuda" else "barriers_of_present") in caps.features
    groups = ("export static const bool _spy_groups = true;",) if joins and format in ("cuda", "spirv") else ()
    # Slang issues 3955, 8971 and 12384: without the C layout, which slang-rhi does not ask for, its SPIR-V has 4
    # bytes for a bool in memory and puts a field into the padding at the end of the struct before it; its CUDA aligns
    # vectors.
    natural = spirv and (program or entry == "handle")
    bool_bytes, aligned = 4 if natural else 1, format == "cuda"
    modules = ("_spy_descriptors",) if spirv and entry == "pointer" and not program else ()
    return Target(
        format, profile, entry, program, constants, backward, bool_bytes, aligned, caps.nesting,
        texture_modules=modules, element_constants=groups, fills_padding=natural or entry == "handle",
    )  # fmt: skip
