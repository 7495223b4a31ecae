"""Elements of slang-torch's views by every form of index, read and written, and the derivatives of these accesses."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from _slangtorch import ONE, Files, files

from tests.depth import one_device

__all__ = ["files"]  # the fixture

pytestmark = one_device

# By form of the index: its rank, and how it is written for the coordinates i, j, k and l.
FORMS = (
    (1, "i"), (2, "i, j"), (3, "i, j, k"), (4, "i, j, k, l"), (2, "uint2(i, j)"), (3, "uint3(i, j, k)"),
    (4, "uint4(i, j, k, l)"),
)  # fmt: skip
SIZES = (3, 2, 4, 2)
# One kernel for all forms: each takes a second to compile.
COPY = "b{n}[{index}] = a{n}[{index}];\n    c{n}.store({index}, a{n}.load({index}) + 1);"
SQUARE = "b{n}[{index}] = a{n}[{index}] * a{n}[{index}];\n    c{n}.store({vector}, 3 * a{n}.load({vector}));"


def kernel(head: str, view: str, line: str) -> str:
    """A kernel with the views a, b and c for each form."""
    functions, calls, parameters = "", "", []
    for n, (rank, index) in enumerate(FORMS):
        vector = index if index.startswith("u") or rank == 1 else f"uint{rank}({index})"
        where = "".join(f"uint {'ijkl'[d]} = at % {SIZES[d]}; at /= {SIZES[d]};\n    " for d in range(rank))
        views = [f"{view} {name}{n}" for name in "abc"]
        parameters += views
        functions += f"{head}\nvoid form{n}(no_diff uint at, {', '.join(views)})\n{{\n"
        functions += f"    if (at >= {prod(SIZES[:rank])}) return;\n    {where}"
        functions += f"{line.format(n=n, index=index, vector=vector)}\n}}\n"
        calls += f"    form{n}(cudaThreadIdx().x, a{n}, b{n}, c{n});\n"
    return f"{functions}[AutoPyBindCUDA] [CudaKernel] {head}\nvoid run({', '.join(parameters)})\n{{\n{calls}}}\n"


def test_every_form(files: Files) -> None:
    size = {"blockSize": (prod(SIZES), 1, 1), "gridSize": ONE}
    whole = files.on(torch.randn(SIZES))
    a = {f"a{n}": whole[(slice(None),) * rank + (0,) * (4 - rank)] for n, (rank, _) in enumerate(FORMS)}

    def others(make: Callable[..., torch.Tensor]) -> dict[str, torch.Tensor]:
        return {f"{name}{n}": make(t.shape, device=t.device) for name in "bc" for n, t in enumerate(a.values())}

    made = others(torch.zeros)
    files.load(kernel("", "TensorView<float>", COPY)).run(**a, **made).launchRaw(**size)
    for n, x in enumerate(a.values()):
        assert torch.equal(made[f"b{n}"], x) and torch.equal(made[f"c{n}"], x + 1), FORMS[n]

    m = files.load(kernel("[Differentiable]", "DiffTensorView", SQUARE))
    tangents = {name: torch.randn(t.shape, device=t.device) for name, t in a.items()}
    made, found = others(torch.zeros), others(torch.zeros)
    pairs = {name: (t, tangents[name]) for name, t in a.items()} | {name: (made[name], found[name]) for name in made}
    m.run.fwd(**pairs).launchRaw(**size)
    for n, (x, t) in enumerate(zip(a.values(), tangents.values(), strict=True)):
        torch.testing.assert_close([made[f"b{n}"], made[f"c{n}"]], [x * x, 3 * x])
        torch.testing.assert_close([found[f"b{n}"], found[f"c{n}"]], [2 * x * t, 3 * t])

    gradients, given = {name: torch.zeros(t.shape, device=t.device) for name, t in a.items()}, others(torch.randn)
    expected = [2 * x * given[f"b{n}"] + 3 * given[f"c{n}"] for n, x in enumerate(a.values())]
    pairs = {name: (t, gradients[name]) for name, t in a.items()} | {name: (made[name], given[name]) for name in made}
    m.run.bwd(**pairs).launchRaw(**size)
    torch.testing.assert_close(list(gradients.values()), expected)
    assert not any(t.any() for t in given.values())
