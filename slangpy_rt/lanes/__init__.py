"""Translates compute kernels from SPIR-V to LLVM IR in which W threads of a group run in the lanes of vectors.

The package takes words and returns text: it knows no device, no buffers and no compiler of LLVM IR. Instructions that
it does not know are refused by name with ``UnsupportedKernel``. ``docs/design/0077-lanes.md`` has the semantics. The
files, in the order in which a kernel passes through them:

``module``, ``inline``
    SPIR-V as tables; one body without calls and without phi instructions.
``flow``, ``scopes``
    Structured control flow as a tree, in which every value is used inside the scope that defines it.
``variables``, ``liveness``, ``uniform``
    Facts about the tree, complete before the first line is written.
``writer``
    Writes each kernel once, by these facts; ``instructions`` writes the instructions, with ``numbers``,
    ``functions``, ``leaves``, ``places``, ``threads``, ``waves`` and ``atomics``.
``translate``
    All of these in order.
"""
