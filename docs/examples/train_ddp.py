"""Train the network of learn_image.py by PyTorch's DistributedDataParallel, on several GPUs or in several processes.

    torchrun --standalone --nproc-per-node 2 docs/examples/train_ddp.py [--steps 200] [--batch 65536] [--out FILE]

Each process has a GPU of its own and works through NCCL; without CUDA, or with ``--device cpu``, all share the CPU
and work through Gloo. Without torchrun it is one process. All draw the same batches and each takes its share, so that
the losses are those of one process but for rounding. ``--out`` takes them as JSON. It needs PyTorch, Pillow and rich.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import slangpy_rt as spy

HERE = Path(__file__).parent
LEVELS, FEATURES, ENTRIES = 8, 4, 8192  # of the grid, as in learn_image.slang
RATE = 0.01
LOOK = 16  # steps between two looks at the loss: each waits for the GPU


def main(arguments: Sequence[str] | None = None) -> tuple[list[float], torch.nn.Module]:
    """Train, and return the loss of each step and this process's model."""
    options = _options(arguments)
    place = _join(options.device)
    rank, world = dist.get_rank(), dist.get_world_size()
    if options.batch % world:
        raise SystemExit(f"--batch {options.batch} is not a multiple of {world}, the number of processes")
    with spy.create_torch_device(str(place)) as device:
        module: Any = spy.Module.load_from_file(device, HERE / "train_ddp.slang")
        learned = _model(module).to(place)
        model = torch.nn.parallel.DistributedDataParallel(learned, [place] if place.type == "cuda" else None)
        losses = _train(model, options, place)
    # Of each process's share; all shares are equally large.
    dist.all_reduce(losses)
    curve: list[float] = (losses / world).tolist()
    dist.destroy_process_group()
    if rank == 0:
        print(f"{world} x {place.type}: {options.steps} steps, loss from {curve[0]:.6f} to {curve[-1]:.6f}")
        if options.out:
            options.out.write_text(json.dumps(curve), encoding="utf-8")
    return curve, learned


def _train(model: torch.nn.Module, options: argparse.Namespace, place: torch.device) -> torch.Tensor:
    """Train, and return the loss of each step on this process's share of the batch."""
    picture = torch.from_numpy(np.array(Image.open(options.picture).convert("RGB"))).to(place) / 255
    size = torch.tensor([picture.shape[1], picture.shape[0]], device=place)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    random = torch.Generator(place).manual_seed(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    losses = torch.empty(options.steps, device=place)
    bar = Progress(
        TextColumn("step {task.completed}"), BarColumn(), TextColumn("{task.fields[psnr]:.2f} dB"),
        TimeRemainingColumn(), disable=rank > 0,
    )  # fmt: skip
    with bar:
        task = bar.add_task("", total=options.steps, psnr=0.0)
        for step in range(options.steps):
            batch = torch.rand(options.batch, 2, generator=random, device=place)
            pixel = (batch.chunk(world)[rank] * size).long()
            wanted = picture[pixel[:, 1], pixel[:, 0]]
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model((pixel + 0.5) / size), wanted)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses[step] = loss.detach()
            if step % LOOK == 0 or step == options.steps - 1:
                bar.update(task, completed=step + 1, psnr=-10 * math.log10(losses[step].item()))
    return losses


def _join(kind: str) -> torch.device:
    """Meet the other processes, if there are any; the device that this one works on."""
    place, backend = torch.device("cpu"), "gloo"
    if kind == "cuda":
        place, backend = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))), "nccl"
        torch.cuda.set_device(place)
    if dist.is_torchelastic_launched():
        dist.init_process_group(backend)
    else:
        alone = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=alone, rank=0, world_size=1)
    return place


def _model(module: Any) -> torch.nn.Module:
    """The network with first values, the same in every process."""
    random = np.random.default_rng(1)
    table = random.uniform(-1e-4, 1e-4, (LEVELS * ENTRIES, FEATURES)).astype(np.float32)
    spread = module.deviation(np.arange(module.parameters(), dtype=np.int32))
    network = (random.standard_normal(len(spread)) * spread).astype(np.float32)
    model: torch.nn.Module = spy.torch_module(
        module.colour, table=torch.from_numpy(table), network=torch.from_numpy(network)
    )
    return model


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    best = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cuda", "cpu"), default=best)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1 << 16, help="samples a step, of all processes together")
    parser.add_argument("--picture", type=Path, default=HERE / "cat.jpg")
    parser.add_argument("--out", type=Path, help="write the losses to this file, as JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
