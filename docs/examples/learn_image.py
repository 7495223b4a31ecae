"""Learn a photograph: a hash grid and a small network are trained to give the colour at every position.

Run it from anywhere, on any device:

    python docs/examples/learn_image.py [--device cpu] [--seconds 60 | --steps 500] [--picture FILE] [--out FOLDER]

It shows its progress, and writes the reconstructions next to the photograph (``learn_image.png``) and the error over
time (``learn_image_loss.png``). It needs Pillow and rich. The photograph is Chelsea the cat, by Stéfan van der Walt,
CC0, as scikit-image has it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import slangpy_rt as spy

HERE = Path(__file__).parent
LEVELS, FEATURES, ENTRIES = 8, 4, 8192  # of the grid, as in learn_image.slang
RATE = 0.01
SNAPSHOTS = (1, 8, 64)  # steps after which the strip shows a reconstruction; then the last


class Model:
    """The parameters, their gradients, and what Adam remembers of them."""

    def __init__(self, device: spy.Device, module: Any) -> None:
        random = np.random.default_rng(1)
        table = random.uniform(-1e-4, 1e-4, (LEVELS * ENTRIES, FEATURES)).astype(np.float32)
        spread = module.deviation(np.arange(module.parameters(), dtype=np.int32))
        network = (random.standard_normal(len(spread)) * spread).astype(np.float32)
        self.tensors = [spy.Tensor.from_numpy(device, a).with_grads() for a in (table, network)]
        self.moments = [(spy.Tensor.zeros_like(t), spy.Tensor.zeros_like(t)) for t in self.tensors]
        self.argument = {"grid": self.tensors[0], "colours": self.tensors[1]}
        self._adam = module["adam"]

    def update(self, step: int, rate: float) -> None:
        """One step of Adam, after which the gradients are zero again."""
        for tensor, (mean, variance) in zip(self.tensors, self.moments, strict=True):
            self._adam(tensor, tensor.grad, mean, variance, rate, step)
            tensor.grad.clear()


def main() -> None:
    """Train until the time is up, or the steps are done."""
    options = _options()
    picture = np.asarray(Image.open(options.picture).convert("RGB"), np.float32) / 255
    device = spy.create_device(options.device)
    module: Any = spy.Module.load_from_file(device, HERE / "learn_image.slang")
    model = Model(device, module)
    wanted = spy.Tensor.from_numpy(device, picture, "float3")

    # Each sample's error counts equally: the gradient of their mean.
    batch = options.batch
    share = spy.Tensor.full(device, (1,), 1 / batch).broadcast_to((batch,))
    losses = spy.Tensor.empty(device, (batch,)).with_grads(grad_in=share)

    curve: list[tuple[float, float]] = []
    strip: list[npt.NDArray[np.float32]] = []
    started, step = time.perf_counter(), 0
    bar = Progress(
        TextColumn("step {task.fields[step]}"), BarColumn(), TextColumn("{task.fields[psnr]:.2f} dB"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with bar:
        task = bar.add_task("", total=1.0, step=0, psnr=0.0)
        while (done := _share(options, time.perf_counter() - started, step)) < 1:
            step += 1
            rate = RATE * 0.5 ** (4 * done)
            positions = spy.rand_float(0, 1, 2, seed=step)
            module.loss.bwds(model.argument, positions, wanted, _result=losses)
            model.update(step, rate)
            if step in SNAPSHOTS or step % options.look == 0:
                drawn = _draw(module, model, picture)
                curve.append((time.perf_counter() - started, _psnr(drawn, picture)))
                strip += [drawn] if step in SNAPSHOTS else []
                bar.update(task, completed=done, step=step, psnr=curve[-1][1])
    drawn = _draw(module, model, picture)
    psnr = _psnr(drawn, picture)
    curve.append((time.perf_counter() - started, psnr))
    options.out.mkdir(parents=True, exist_ok=True)
    _write_strip(options.out / "learn_image.png", [*strip, drawn, picture])
    _write_curve(options.out / "learn_image_loss.png", curve)
    reached = next((f"; 30 dB after {t:.1f} s" for t, p in curve if p >= 30), "")
    print(f"{device.info}: {step} steps of {batch} samples in {curve[-1][0]:.1f} s, PSNR {psnr:.2f} dB{reached}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="automatic", help="cuda, vulkan, cpu, or the best there is")
    parser.add_argument("--seconds", type=float, default=60, help="how long to train")
    parser.add_argument("--steps", type=int, help="train so many steps, however long they take")
    parser.add_argument("--batch", type=int, default=1 << 16, help="samples a step")
    parser.add_argument("--look", type=int, default=16, help="steps between two looks at the whole picture")
    parser.add_argument("--picture", type=Path, default=HERE / "cat.jpg")
    parser.add_argument("--out", type=Path, default=Path())
    return parser.parse_args()


def _share(options: argparse.Namespace, seconds: float, steps: int) -> float:
    """How much of the training is done."""
    return steps / options.steps if options.steps else seconds / options.seconds


def _draw(module: Any, model: Model, picture: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    rows, columns = picture.shape[:2]
    drawn: npt.NDArray[np.float32] = module.draw(
        model.argument, spy.grid((rows, columns)), (columns, rows), _result="numpy"
    )
    return drawn


def _psnr(drawn: npt.NDArray[np.float32], picture: npt.NDArray[np.float32]) -> float:
    """Peak signal to noise ratio in dB, of values from 0 to 1."""
    return float(-10 * np.log10(np.mean((drawn - picture) ** 2)))


def _write_strip(path: Path, pictures: list[npt.NDArray[np.float32]]) -> None:
    pixels = np.concatenate(pictures, axis=1)
    Image.fromarray((pixels * 255 + 0.5).astype(np.uint8)).save(path)


def _write_curve(path: Path, curve: list[tuple[float, float]]) -> None:
    """The mean squared error over seconds, with a line at each power of ten."""
    width, height, margin = 640, 360, 48
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    powers = [-psnr / 10 for _, psnr in curve]
    low, high = int(np.floor(min(powers))), int(np.ceil(max(powers)))

    def level(power: float) -> float:
        return height - margin - (power - low) / max(high - low, 1) * (height - 2 * margin)

    for power in range(low, high + 1):
        draw.line([(margin, level(power)), (width - margin, level(power))], fill="lightgray")
        draw.text((4, level(power) - 5), f"{10.0**power:g}", fill="black")
    points = [
        (margin + t / curve[-1][0] * (width - 2 * margin), level(p)) for (t, _), p in zip(curve, powers, strict=True)
    ]
    draw.line(points, fill="steelblue", width=2)
    draw.text((margin, 16), "mean squared error", fill="black")
    draw.text((width - margin - 40, height - margin + 8), f"{curve[-1][0]:.0f} s", fill="black")
    image.save(path)


if __name__ == "__main__":
    main()
