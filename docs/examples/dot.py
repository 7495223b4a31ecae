"""PyTriton's tutorial: a kernel from text whose tiles are searched, as an operation that PyTorch differentiates.

The Python is the tutorial's, but for the names; the kernel, dot.slang, is Slang. It is plain on purpose: the fast
product is ``spy.matmul``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

import slangpy_rt as spy


class _dot(torch.autograd.Function):
    kernel = spy.kernel(Path(__file__).with_suffix(".slang").read_text())

    @staticmethod
    def _call(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> Any:
        # shapes
        M, Ka = a.shape
        Kb, N = b.shape
        if transpose_a:
            M, Ka = Ka, M
        if transpose_b:
            Kb, N = N, Kb
        # contiguous dimensions
        lda = M if transpose_a else Ka
        ldb = Kb if transpose_b else N
        ldc = N
        dtype = a.dtype
        c = spy.empty([M, N], dtype=dtype, device=a.device)
        # launch grid
        grid = lambda opt: [spy.cdiv(M, opt.d("TM")), spy.cdiv(N, opt.d("TN"))]  # noqa: E731
        # macros; a list is searched on the device
        defines = {
            "TYPE": dtype,
            "AT": transpose_a,
            "BT": transpose_b,
            "TM": [16, 64],
            "TN": [64],
            "TK": [4, 16],
        }
        return _dot.kernel(a, b, c, M, N, Ka, lda, ldb, ldc, grid=grid, num_warps=4, defines=defines)

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
        ctx.save_for_backward(a, b)
        ctx.t_a = transpose_a
        ctx.t_b = transpose_b
        return _dot._call(a, b, transpose_a, transpose_b)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        a, b = ctx.saved_tensors
        t_a, t_b = ctx.t_a, ctx.t_b
        dy = dy.contiguous()
        if not t_a and not t_b:
            da = _dot._call(dy, b, False, True)
            db = _dot._call(a, dy, True, False)
        elif not t_a and t_b:
            da = _dot._call(dy, b, False, False)
            db = _dot._call(dy, a, True, False)
        elif t_a and not t_b:
            da = _dot._call(b, dy, False, True)
            db = _dot._call(a, dy, False, False)
        else:
            da = _dot._call(b, dy, True, True)
            db = _dot._call(dy, a, True, True)
        return da, db, None, None


dot = _dot.apply


def main() -> None:
    """Compare product and gradients with PyTorch's, for all four ways to lie in memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    n = options.size
    torch.manual_seed(1)
    for t_a in (False, True):
        for t_b in (False, True):
            a, b = (torch.randn(n, n, device=options.device, requires_grad=True) for _ in range(2))
            weights = torch.randn(n, n, device=options.device)
            (dot(a, b, t_a, t_b) * weights).sum().backward()
            found = [a.grad, b.grad]
            a.grad = b.grad = None
            ((a.t() if t_a else a) @ (b.t() if t_b else b) * weights).sum().backward()
            worst = max(
                float((x - y).abs().max() / y.abs().max()) for x, y in zip(found, (a.grad, b.grad), strict=True)
            )
            print(f"transposed {t_a!s:5} {t_b!s:5}: gradients differ from PyTorch's by {worst:.1e} of the largest")
    print(_dot.kernel)


if __name__ == "__main__":
    main()
