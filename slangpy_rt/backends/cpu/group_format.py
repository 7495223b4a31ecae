"""How binaries and argument blocks of kernels that use thread groups begin. Nothing here makes or reads one."""

from __future__ import annotations

import struct

# The first bytes of a binary from ``group_code``, and of SPIR-V.
MARK = b"slangpy_rt groups\n"
SPIRV = b"\x03\x02\x23\x07"
# The number of groups each way, and the address and the bytes of what is written past the caches: before the argument
# block, whose 16 byte alignment it keeps.
HEAD = struct.Struct("<3qQq8x")
# Options of Slang's command line for a debugger: lines and variables in SPIR-V that is not optimized.
DEBUG_FLAGS = ("-g2", "-O0")
