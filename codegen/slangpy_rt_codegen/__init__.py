"""Writes kernels: a frozen call description in, Slang text out. Imports only the standard library."""

from slangpy_rt_codegen.emit import emit
from slangpy_rt_codegen.layout import BlockField, block_fields
from slangpy_rt_codegen.spec import GROUP_SIZE, CallSpec, Operand, StructLayout, StructLayoutField

__all__ = [
    "GROUP_SIZE",
    "BlockField",
    "CallSpec",
    "Operand",
    "StructLayout",
    "StructLayoutField",
    "block_fields",
    "emit",
]
