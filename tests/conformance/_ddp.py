"""Runs docs/examples/train_ddp.py in one process, or in two by torchrun; as a script it is one of the processes."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "train_ddp.py"


def check_that_two_processes_train_as_one(folder: Path, device: str, steps: int, batch: int) -> None:
    """They have the same losses as one, and the same parameters as each other."""
    options = ["--device", device, "--steps", str(steps), "--batch", str(batch)]
    (one,) = _train(1, folder / "one", options)
    first, second = _train(2, folder / "two", options)
    assert first.keys() == second.keys() == {"losses", "table", "network"}
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)
    losses = one["losses"]
    assert losses.shape == (steps,)
    np.testing.assert_allclose(first["losses"], losses, rtol=1e-3)
    assert json.loads((folder / "two" / "losses.json").read_text()) == first["losses"].tolist()
    # A network with small features and without biases is black: its error is the mean of the picture's squares. That
    # of the best single colour is the variance.
    assert abs(losses[0] - 0.232) < 0.02 and losses[-1] < 0.0179, losses


def _train(processes: int, folder: Path, options: list[str]) -> list[dict[str, npt.NDArray[np.float64]]]:
    """What each process ends with: the losses and the parameters."""
    folder.mkdir()
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *(launcher if processes > 1 else []), __file__, str(folder), *options]
    # A process that aborts says where.
    env = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(processes)]


def _be_one_of_them(folder: Path, options: list[str]) -> None:
    losses, model = runpy.run_path(str(EXAMPLE))["main"]([*options, "--out", str(folder / "losses.json")])
    parameters = {name: value.detach().cpu().numpy() for name, value in model.named_parameters()}
    np.savez(folder / f"{os.environ.get('RANK', '0')}.npz", losses=losses, **parameters)


if __name__ == "__main__":
    _be_one_of_them(Path(sys.argv[1]), sys.argv[2:])
