"""Names methods of textures for which Slang writes nothing in CUDA.

Slang 2026.12 refuses such a call, until a session has written a kernel with textures: from then on it leaves the
call out, and the statements behind it, without a message, in kernels without textures too. So each kernel with
textures has a session of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.slang.corrections.cuda_textures import NO_METHOD

_LACKS = re.compile(r"error\[E36107\].*?see using of '([^']+)'", re.S)


@contextmanager
def lacking_methods() -> Iterator[None]:
    """Name the method that CUDA lacks, if a block of code that compiles a kernel raises Slang's error of it.

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
        raise
