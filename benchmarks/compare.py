"""Measures two commits in turn and writes one page that compares them.

``python benchmarks/compare.py main . --scripts launch args --device cpu`` runs the scripts of each commit, A B B A,
in processes of their own with a kernel cache for each commit. ``.`` is the working tree as it is; it needs no commit.
The page says of each row how the medians of the runs differ, and calls a row changed only when every run of one
commit was faster than all runs of the other, by more than the runs of one commit differ among themselves.

Nothing is measured here, and nothing is written into ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import html
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from _common import OURS, UNSURE, describe_machine

_ROOT = Path(__file__).resolve().parent.parent
_SCRIPTS = ("launch", "args", "transfer", "throughput", "gradients", "batching")
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
body { color: #222; background: #fff }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #ddd; font-variant-numeric: tabular-nums }
th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left }
.faster { background: #dff3e3 } .slower { background: #fbe0e0 } .unsure { color: #a35c00 }
.bar { display: inline-block; height: .7em; background: #888 }
.faster .bar { background: #2b8a3e } .slower .bar { background: #c92a2a }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818 } th, td { border-color: #333 }
  .faster { background: #17331e } .slower { background: #401c1c } .unsure { color: #e0a050 }
}
"""

# Script, device, case, who, unit.
Key = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Change:
    """One row of both commits.

    Attributes
    ----------
    key : tuple of str
        Script, device, case, who, unit.
    before, after : tuple of float
        The median of each run, in the unit.
    """

    key: Key
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def speed(self) -> float:
        """How many times as fast the second commit is; 1.0 for equal ones."""
        first, second = median(self.before), median(self.after)
        if self.key[4].endswith("/s"):
            first, second = second, first
        return first / second if second else 1.0

    @property
    def noise(self) -> float:
        """The largest difference among runs of the same commit, as a share of their median."""
        return max(
            (max(runs) - min(runs)) / median(runs) if median(runs) else 0.0 for runs in (self.before, self.after)
        )

    @property
    def verdict(self) -> str:
        """``"faster"``, ``"slower"``, ``"unsure"`` where the runs of one commit differ too much, or ``"same"``."""
        apart = max(self.before) < min(self.after) or max(self.after) < min(self.before)
        if apart and abs(self.speed - 1) > self.noise and min(len(self.before), len(self.after)) > 1:
            return "faster" if self.speed > 1 else "slower"
        return "unsure" if self.noise > UNSURE else "same"


def main() -> int:
    """Run the scripts of both commits and write the page; the exit status is 1 when one of them failed."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0] if __doc__ else None,
        epilog="Options that this script does not know go to every benchmark: --device cpu, --quick.",
    )
    parser.add_argument("before", help="a commit, a branch, or . for the working tree")
    parser.add_argument("after", help="the same, for the other side")
    parser.add_argument(
        "--scripts", nargs="+", default=_SCRIPTS, metavar="NAME", help=f"default: {' '.join(_SCRIPTS)}"
    )
    parser.add_argument(
        "--runs", type=int, default=4, help="processes of each script a commit, at least 2; default 4"
    )
    parser.add_argument("--page", type=Path, default=Path("comparison.html"), help="default: comparison.html")
    options, others = parser.parse_known_args()
    if options.runs < 2:
        parser.error(f"--runs {options.runs}: noise is what runs of one commit differ by, so at least 2 are needed")
    unknown = [name for name in options.scripts if not (_ROOT / "benchmarks" / f"{name}.py").is_file()]
    if unknown:
        parser.error(f"--scripts: benchmarks/ has no {', '.join(f'{name}.py' for name in unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            trees = [
                unpacked(name, Path(folder) / side)
                for name, side in zip((options.before, options.after), "ab", strict=True)
            ]
        except ValueError as error:
            parser.error(str(error))
        runs: tuple[list[Path], list[Path]] = ([], [])
        failed = []
        try:
            for turn in range(options.runs):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    out = Path(folder) / f"results-{turn}-{side}"
                    for script in options.scripts:
                        print(
                            f"run {turn + 1} of {options.runs}: {(options.before, options.after)[side]}: {script}",
                            file=sys.stderr,
                        )
                        if not _run(trees[side], script, others, out, Path(folder) / f"cache-{side}"):
                            failed.append(f"{(options.before, options.after)[side]}: {script}")
                    runs[side].append(out)
        except KeyboardInterrupt:
            print("interrupted; the page shows the runs that are complete", file=sys.stderr)
        rows = changes([_rows(path) for path in runs[0]], [_rows(path) for path in runs[1]])
    if not rows:
        print("no row was measured in both commits; no page was written", file=sys.stderr)
        return 1
    title = f"{_described(options.before)} → {_described(options.after)}"
    options.page.write_text(page(title, rows, failed), encoding="utf-8")
    print(summary(rows))
    print(options.page)
    return int(bool(failed))


def unpacked(commit: str, folder: Path) -> Path:
    """Return the root of a commit's files, unpacked into a folder; of ``.``, the working tree.

    Raises
    ------
    ValueError
        If git does not know the commit.
    """
    if commit == ".":
        return _ROOT
    archive = subprocess.run(["git", "-C", str(_ROOT), "archive", commit], capture_output=True)
    if archive.returncode:
        raise ValueError(f"{commit!r} is no commit of this repository: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def changes(before: Sequence[dict[Key, float]], after: Sequence[dict[Key, float]]) -> list[Change]:
    """Return a Change for each row that every run of both commits has, in the order of the first run."""
    keys = [key for key in (before[0] if before else {}) if after and all(key in run for run in [*before, *after])]
    return [Change(key, tuple(run[key] for run in before), tuple(run[key] for run in after)) for key in keys]


def summary(rows: Sequence[Change]) -> str:
    """Return the rows that changed as text, those of ours, and how far the rows of others moved."""
    ours = [row for row in rows if row.key[3].startswith(OURS)]
    lines = [
        f"{row.verdict}: {row.speed:.2f} x  {' · '.join(row.key[:3])}: {_number(median(row.before))} -> "
        f"{_number(median(row.after))} {row.key[4]} (noise {row.noise:.0%})"
        for row in sorted(ours, key=lambda row: row.speed)
        if row.verdict in ("faster", "slower")
    ]
    count = {
        verdict: sum(row.verdict == verdict for row in ours) for verdict in ("faster", "slower", "same", "unsure")
    }
    lines.append(", ".join(f"{n} {verdict}" for verdict, n in count.items()) + f" of {len(ours)} rows of ours")
    others = [row.speed for row in rows if not row.key[3].startswith(OURS)]
    if others:
        lines.append(f"{len(others)} rows of others, which no commit changes: {median(others):.3f} x in the middle")
    return "\n".join(lines)


def page(title: str, rows: Sequence[Change], failed: Sequence[str] = ()) -> str:
    """Return the comparison as one HTML page that loads nothing."""
    machine = describe_machine()
    name, where = html.escape(title), ", ".join([machine["cpu"], f"{machine['cores']} cores", *machine["gpus"]])
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{name}</title><style>{_STYLE}</style>",
        f"<h1>{name}</h1>",
        f"<p>{html.escape(where)}. Each number is the median of the runs' medians. Speed says how many times as fast "
        "the second commit is; noise says how far runs of the same commit differ. A row is unsure when its noise is "
        f"over {UNSURE:.0%}.</p>",
        f"<pre>{html.escape(summary(rows))}</pre>",
    ]
    parts += [
        f"<p class='slower'>This run failed or missed a row of ours: {html.escape(name)}</p>" for name in failed
    ]
    for script in dict.fromkeys(row.key[0] for row in rows):
        parts.append(
            f"<h2>{html.escape(script)}</h2><table><tr><th>device</th><th>work</th><th>who</th><th>before</th><th>after</th>"
            "<th>unit</th><th>speed</th><th></th><th>noise</th><th></th></tr>"
        )
        parts += [_line(row) for row in rows if row.key[0] == script]
        parts.append("</table>")
    return "\n".join([*parts, "</html>\n"])


def _line(row: Change) -> str:
    _, device, case, who, unit = row.key
    width = min(8.0, 2.0 * row.speed)  # em; twice as fast is twice as long
    texts = (device, case, who, _number(median(row.before)), _number(median(row.after)), unit, f"{row.speed:.2f} x")
    cells = "".join(f"<td>{html.escape(text)}</td>" for text in texts)
    bar = f"<td style='text-align:left'><span class='bar' style='width:{width:.2f}em'></span></td>"
    return f"<tr class='{row.verdict}'>{cells}{bar}<td>{row.noise:.0%}</td><td>{row.verdict}</td></tr>"


def _run(tree: Path, script: str, arguments: Sequence[str], out: Path, cache: Path) -> bool:
    """Run one script of one tree; tell whether it measured ours."""
    paths = [str(tree), str(tree / "codegen"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SLANGPY_RT_CACHE_DIR": str(cache)}
    command = [sys.executable, str(tree / "benchmarks" / f"{script}.py"), *arguments, "--out", str(out)]
    return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode == 0


def _rows(folder: Path) -> dict[Key, float]:
    """Return the median of each row in the results of one run."""
    return dict(_medians(sorted(folder.glob("*.json"))))


def _medians(paths: Iterable[Path]) -> Iterable[tuple[Key, float]]:
    for path in paths:
        result = json.loads(path.read_text(encoding="utf-8"))
        for row in result["rows"]:
            yield (result["script"], row["device"], row["case"], row["who"], row["unit"]), row["median"]


def _described(commit: str) -> str:
    """Return a commit's name with its hash."""
    if commit == ".":
        return "the working tree"
    found = subprocess.run(["git", "-C", str(_ROOT), "rev-parse", "--short", commit], capture_output=True, text=True)
    short = found.stdout.strip()
    return commit if commit.startswith(short) else f"{commit} ({short})"


def _number(value: float) -> str:
    """Four digits that count."""
    return f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main())
