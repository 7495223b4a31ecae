"""Refuses methods of textures for which Slang writes nothing in CUDA.

Slang 2026.12 says so of the first kernels of a session. Once it has written one with textures, it leaves out such a
call, and the statements behind it, without a message. So each kernel with textures is first loaded in a session that
has written none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.slang.cuda_textures import NO_METHOD

_LACKS = re.compile(r"error\[E36107\].*?see using of '([^']+)'", re.S)


@contextmanager
def lacking_methods() -> Iterator[None]:
    """Name the method that CUDA lacks, if a block of code that loads modules and a kernel raises Slang's error of it.

    Any other CompileError is dropped, because the session that compiles the kernel raises it too.

    Raises
    ------
    UnsupportedError
        If the kernel calls such a method.
    """
    try:
        yield
    except CompileError as error:
        if lacks := _LACKS.search(str(error)):
            raise UnsupportedError(NO_METHOD.format(used=lacks[1])) from error
