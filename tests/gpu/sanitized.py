"""A pytest plugin for runs under compute-sanitizer: ``pytest -p sanitized``, as tests/gpu/sanitize.sh does.

The tool knows allocations of the driver. The backend cuts its blocks from larger ones, where an access beyond a block
hits the next one unseen; here each block is an allocation of its own, of exactly the bytes that were asked for, and
small arguments get such blocks in place of parts of page-locked slabs, unless ``SANITIZED_SHARED`` is set. Random
tests make a tenth of their cases, or what ``SANITIZED_FEWER`` says, since the tool takes its time with every kernel.
"""

from __future__ import annotations

import os
from typing import Any

import hypothesis

from slangpy_rt.backends import shared_pool
from slangpy_rt.backends.cuda import backend as cuda

_FEWER = int(os.environ.get("SANITIZED_FEWER", "10"))
_SHARED = bool(os.environ.get("SANITIZED_SHARED"))
_init = hypothesis.settings.__init__


def pytest_configure() -> None:
    """Change the sizes before any device is opened, and the settings before any test makes its own."""
    cuda._SMALL, cuda._LARGE_STEP = 0, 1
    if not _SHARED:
        shared_pool.LARGEST = 0
    hypothesis.settings.__init__ = _init_fewer  # type: ignore[method-assign]


def pytest_sessionstart() -> None:
    """Fail where the backend takes no notice of them any more."""
    backend = cuda.CudaBackend()
    for n in (1, 100, 4097, 3_000_001):
        assert backend.alloc(n).nbytes == n, "blocks have other sizes than were asked for"
    assert _SHARED or backend.alloc_shared(100) is None, "small arguments share slabs"
    backend.close()


def _init_fewer(self: hypothesis.settings, *args: Any, **options: Any) -> None:
    examples = options.get("max_examples")
    if isinstance(examples, int):
        options["max_examples"] = max(1, examples // _FEWER)
    _init(self, *args, **options)
