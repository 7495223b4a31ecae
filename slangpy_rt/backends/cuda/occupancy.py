"""CudaOccupancy: how many threads of a kernel a GPU keeps running."""

from __future__ import annotations

import threading
from typing import Any

from slangpy_rt.backends.base import Kernel
from slangpy_rt.backends.cuda.driver import driver, query
from slangpy_rt.backends.cuda.kernel import CudaKernel
from slangpy_rt.backends.extras import Occupancy


class CudaOccupancy(Occupancy):
    """The part of ``CudaBackend`` that asks the driver, which knows a kernel's registers and group memory."""

    def resident_threads(self: Any, kernel: Kernel, threads: int) -> int:
        assert isinstance(kernel, CudaKernel)
        what = f"asking how many groups of {kernel.info.title} run at once"
        with self.inside[threading.get_ident()]:
            self.require_open()
            self._enter()
            count = driver().cuOccupancyMaxActiveBlocksPerMultiprocessor
            return threads * int(query(count, "int *", kernel.function, threads, kernel.shared_bytes, what=what))
