"""Training steps a second of a hash grid and a network that learn a picture, beside the same model in PyTorch.

The model is that of tiny-cuda-nn's sample ``mlp_learning_an_image`` with its ``config_hash.json``: 16 levels of 2
features in 2^15 entries each, 16 to 7006 cells a side, a network of two hidden layers of 64 with ReLU, Adam, 2^18
random positions a step. Its README says that 1000 such steps take a bit over 1 second on an RTX 4090. It has no
wheels; built from its sources of April 2026, with kernels fused at run time, 1000 steps took 0.44 s on an H200.
On the CPU a step has 2^12 positions.

A step makes positions, reads the picture there, computes the loss and its gradients, and updates all parameters.
"float" and "half" are what the network multiplies; PyTorch's half is ``autocast``. PyTorch's grid is made of indexed
tensors.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from _common import OURS, Bench, whole

import slangpy_rt as spy

_LEVELS, _FEATURES, _ENTRIES, _COARSEST, _FINEST, _WIDTH = 16, 2, 1 << 15, 16, 7006, 64
_SIZES = (_LEVELS * _FEATURES, _WIDTH, _WIDTH, 3)
_SIDE = 512
_SOURCE = f"""
import mlp;
typealias Grid = HashGrid<2, {_LEVELS}, {_FEATURES}, {_ENTRIES}, {_COARSEST}, {_FINEST}>;
typealias Colours = Network<Grid.count, 3, {_WIDTH}, 2, ReLU, Identity, OPERAND>;
struct Model {{ Grid grid; Colours colours; }}

[Differentiable]
float loss(Model model, no_diff float2 position, Tensor<float3, 2> picture)
{{
    let wanted = picture[int2(position * float2(picture.shape[1], picture.shape[0]))];
    float target[3] = {{ wanted.x, wanted.y, wanted.z }};
    return l2Loss(model.colours.run(model.grid.encode(position)), target);
}}
"""


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("hash_grid", __doc__ or "")
    for name in bench.devices:
        batch = 1 << (12 if name == "cpu" or bench.quick else 18)
        count = 1 if name == "cpu" else 16
        with spy.Device(name) as device:
            for operand in ("float", "half"):
                if name == "cpu" and operand == "half":
                    continue  # there it is for the same numbers as a GPU's, not for speed
                samplers = {OURS: _sampler(*_ours(device, operand, batch), count)}
                if name != "vulkan" and (theirs := _torch(bench, name, operand, batch)):
                    samplers["torch"] = _sampler(*theirs, count)
                bench.compare(name, f"{operand}, {batch} positions", "steps/s", samplers)
        bench.save()
    return bench.finish()


def _sampler(step: Callable[[], Any], sync: Callable[[], Any], count: int) -> Callable[[], float]:
    timer = whole(step, sync, count)
    return lambda: 1 / timer()


def _start() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A picture, a table and a network's parameters."""
    random = np.random.default_rng(1)
    y, x = np.mgrid[:_SIDE, :_SIDE] / _SIDE
    picture = np.stack([np.sin(40 * x * y), np.cos(30 * (x - y)), x * y], -1).astype(np.float32)
    table = random.uniform(-1e-4, 1e-4, (_LEVELS * _ENTRIES, _FEATURES)).astype(np.float32)
    layers = []
    for rows, columns in pairwise(_SIZES):
        layers += [random.standard_normal(rows * columns) * math.sqrt(2 / rows), np.zeros(columns)]
    return picture, table, np.concatenate(layers).astype(np.float32)


def _ours(device: spy.Device, operand: str, batch: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    picture, *values = _start()
    module: Any = spy.Module.load_from_source(device, "hash_grid", _SOURCE.replace("OPERAND", operand))
    wanted = spy.Tensor.from_numpy(device, picture, "float3")
    parameters = [spy.Tensor.from_numpy(device, value).with_grads() for value in values]
    model = {"grid": parameters[0], "colours": parameters[1]}
    share = spy.Tensor.full(device, (1,), 1 / batch).broadcast_to((batch,))
    losses = spy.Tensor.empty(device, (batch,)).with_grads(grad_in=share)
    optimizer = spy.optim.Adam(parameters, lr=1e-2, betas=(0.9, 0.99), eps=1e-15)
    seed = iter(range(1 << 30))

    def step() -> None:
        optimizer.zero_grad()
        module.loss.bwds(model, spy.rand_float(0, 1, 2, seed=next(seed)), wanted, _result=losses)
        optimizer.step()

    return step, device.synchronize


def _torch(bench: Bench, name: str, operand: str, batch: int) -> tuple[Callable[[], Any], Callable[[], Any]] | None:
    try:
        import torch
    except ImportError as error:
        bench.miss(name, "torch", str(error))
        return None
    if name == "cuda" and not torch.cuda.is_available():
        return None
    picture, table, network = (torch.tensor(value, device=name) for value in _start())
    table.requires_grad_()
    network.requires_grad_()
    growth = math.log2(_FINEST / _COARSEST) / (_LEVELS - 1)
    sides = [round(_COARSEST * 2 ** (level * growth)) for level in range(_LEVELS)]

    def encode(position: Any) -> Any:
        features = []
        for level, side in enumerate(sides):
            inside = position * side
            low = inside.long().clamp(max=side - 1)
            part = inside - low
            sum_ = 0
            for corner in range(4):
                up = torch.tensor([corner & 1, corner >> 1], device=name)
                node = low + up
                if (side + 1) ** 2 <= _ENTRIES:
                    row = node[:, 0] + (side + 1) * node[:, 1]
                else:
                    row = (node[:, 0] ^ (node[:, 1] * 2654435761)) % _ENTRIES
                weight = torch.where(up > 0, part, 1 - part).prod(1, keepdim=True)
                sum_ = sum_ + weight * table[row + level * _ENTRIES]
            features.append(sum_)
        return torch.cat(features, 1)

    def loss(position: Any) -> Any:
        at, x = 0, encode(position)
        with torch.autocast(name, torch.float16, enabled=operand == "half"):
            for rows, columns in pairwise(_SIZES):
                weights = network[at : at + rows * columns].reshape(rows, columns)
                x = torch.addmm(network[at + rows * columns : at + (rows + 1) * columns], x, weights)
                x = torch.relu(x) if columns != 3 else x
                at += (rows + 1) * columns
        pixel = (position * _SIDE).long()
        return ((x.float() - picture[pixel[:, 1], pixel[:, 0]]) ** 2).sum(1).mean()

    optimizer = torch.optim.Adam([table, network], lr=1e-2, betas=(0.9, 0.99), eps=1e-15, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        loss(torch.rand(batch, 2, device=name)).backward()
        optimizer.step()

    return step, torch.cuda.synchronize if name == "cuda" else lambda: None


if __name__ == "__main__":
    sys.exit(main())
