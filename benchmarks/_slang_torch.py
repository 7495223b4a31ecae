"""The kernels that ``slang_torch.py`` runs, ours and slang-torch's own, from the same files with the same arguments.

Nothing here takes a time. slang-torch keeps what it compiles beside the Slang file, so it gets copies of the files.
"""

from __future__ import annotations

import importlib
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "docs" / "examples" / "slang_torch"
SQUARE = """
[AutoPyBindCUDA]
[CudaKernel]
[Differentiable]
void square(DiffTensorView input, DiffTensorView output)
{
    uint3 at = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
    if (at.x >= input.size(0))
        return;
    output[at.x] = input[at.x] * input[at.x];
}

[AutoPyBindCUDA]
[CudaKernel]
void square_plain(TensorView<float> input, TensorView<float> output)
{
    uint3 at = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
    if (at.x >= input.size(0))
        return;
    output[at.x] = input[at.x] * input[at.x];
}

[TorchEntryPoint]
TorchTensor<float> square_of(TorchTensor<float> input)
{
    let result = TorchTensor<float>.emptyLike(input);
    __dispatch_kernel(square_plain, uint3((input.size(0) + 255) / 256, 1, 1), uint3(256, 1, 1))(input, result);
    return result;
}
"""

_TRIANGLES = 32

Triple = tuple[int, int, int]


def _as_named(values: dict[str, Any]) -> dict[str, Any]:
    return values


@dataclass(frozen=True)
class Arguments:
    """What a kernel is launched with.

    Attributes
    ----------
    read, written : dict
        Tensors of the ``DiffTensorView`` that it reads, which get gradients, and of those that it writes, which have
        them.
    block, grid : tuple of int
        Sizes of the launch.
    arranged : callable
        The kernel's arguments of these tensors, or of their pairs with gradients, by the same names.
    """

    read: dict[str, Any]
    written: dict[str, Any]
    block: Triple
    grid: Triple
    arranged: Callable[[dict[str, Any]], dict[str, Any]] = _as_named


@dataclass(frozen=True)
class Work:
    """A kernel whose time on the device is taken, forward and backward.

    Attributes
    ----------
    name : str
        What the tables call it.
    kernel : str
        Its function in the file.
    file : str
        A file of ``docs/examples/slang_torch``; empty for ``SQUARE``.
    make : callable
        ``make(torch, place, small)`` returns its arguments; ``small`` where the host's own cores compute.
    defines : dict
        Macros that the file needs.
    """

    name: str
    kernel: str
    file: str
    make: Callable[[Any, str, bool], Arguments]
    defines: dict[str, Any] = field(default_factory=dict)

    def path(self, folder: Path) -> Path:
        """The file, copied into a folder.

        Raises
        ------
        FileNotFoundError
            If it is not there.
        """
        found = folder / (self.file or "square.slang")
        if not self.file:
            if not found.exists():
                found.write_text(SQUARE)
        elif not found.exists():
            if not (EXAMPLES / self.file).is_file():
                raise FileNotFoundError(f"docs/examples/slang_torch/{self.file} is not there")
            shutil.copy(EXAMPLES / self.file, found)
        return found


class Run:
    """A kernel of one library with arguments of its own, on which it is launched again and again."""

    def __init__(self, torch: Any, module: Any, work: Work, arguments: Arguments) -> None:
        self._kernel = getattr(module, work.kernel)
        self._arguments = arguments
        self._given = {name: torch.zeros_like(tensor) for name, tensor in arguments.written.items()}
        self.gradients = {name: torch.zeros_like(tensor) for name, tensor in arguments.read.items()}
        self.results = arguments.written
        tensors, gradients = arguments.read | arguments.written, self.gradients | self._given
        self._tensors = arguments.arranged(tensors)
        self._pairs = arguments.arranged({name: (tensor, gradients[name]) for name, tensor in tensors.items()})

    def forward(self) -> None:
        """Launch the kernel."""
        a = self._arguments
        self._kernel(**self._tensors).launchRaw(blockSize=a.block, gridSize=a.grid)

    def backward(self) -> None:
        """Launch its backward derivative."""
        a = self._arguments
        self._kernel.bwd(**self._pairs).launchRaw(blockSize=a.block, gridSize=a.grid)

    def fill(self) -> None:
        """Make the gradients of what it writes 1: a backward launch may leave zeros there."""
        for gradient in self._given.values():
            gradient.fill_(1)

    def once(self) -> dict[str, Any]:
        """Run both from cleared results, and return the results and the gradients by what they are."""
        for tensor in (*self.results.values(), *self.gradients.values()):
            tensor.zero_()
        self.forward()
        self.fill()
        self.backward()
        found = {name: tensor.clone() for name, tensor in self.results.items()}
        return found | {f"gradient of {name}": tensor.clone() for name, tensor in self.gradients.items()}


def ours(path: Path, device: str, defines: dict[str, Any] | None = None) -> Any:
    """Our module of a file, loaded as users of slang-torch do; Vulkan has to be named."""
    library: Any = importlib.import_module("slangpy_rt.slangtorch")
    return library.loadModule(str(path), defines=defines or {}, device="vulkan" if device == "vulkan" else None)


def upstream(path: Path, defines: dict[str, Any] | None = None) -> Any:
    """slang-torch's own module of a file."""
    library: Any = importlib.import_module("slangtorch")
    return library.loadModule(str(path), defines=defines or {})


def difference(torch: Any, ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The largest relative difference of what two libraries computed, each tensor as a whole."""
    found = 0.0
    for name, wanted in theirs.items():
        wanted = wanted.double()
        found = max(found, float(torch.linalg.norm(ours[name].double() - wanted) / torch.linalg.norm(wanted)))
    return found if math.isfinite(found) else math.inf


def _square(torch: Any, place: str, small: bool) -> Arguments:
    """2^24 floats, or 2^22."""
    count = 1 << (22 if small else 24)
    x = _random(torch, place, count)
    return Arguments({"input": x}, {"output": torch.empty_like(x)}, (256, 1, 1), (count // 256, 1, 1))


def _bezier(torch: Any, place: str, small: bool) -> Arguments:
    """2^20 points of a curve through 64 knots, or 2^16."""
    count = 1 << (16 if small else 20)
    points = torch.zeros(count, 2, device=place)
    return Arguments(
        {"knots": _random(torch, place, 64, 2, 2)}, {"points": points}, (128, 1, 1), (count // 128, 1, 1)
    )


def _triangles(torch: Any, place: str, small: bool) -> Arguments:
    """512 x 512 pixels, or 64 x 64; the first color is the background's."""
    size = 64 if small else 512
    read = {"corners": _random(torch, place, _TRIANGLES, 3, 2), "colors": _random(torch, place, 1 + _TRIANGLES, 3)}
    written = {"image": torch.zeros(size, size, 3, device=place)}

    def arranged(values: dict[str, Any]) -> dict[str, Any]:
        scene = {"corners": values["corners"], "colors": values["colors"]}
        return {"scene": scene, "softness": 0.02, "image": values["image"]}

    return Arguments(read, written, (16, 16, 1), (size // 16, size // 16, 1), arranged)


def _random(torch: Any, place: str, *shape: int) -> Any:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(*shape, generator=generator).to(place)


WORKS = (
    Work("square", "square", "", _square),
    Work("bezier", "trace", "bezier.slang", _bezier),
    Work("soft_rasterizer", "paint", "soft_rasterizer.slang", _triangles, {"TRIANGLES": _TRIANGLES}),
)
