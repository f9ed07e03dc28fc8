"""`python -m evals.bench.scaling`: the training of a generative scorer's head on one process and on several.

It makes a random model, trains on the same labelled prompts under torchrun, and says whether the artifacts are the same
bytes and what the prompts per second come to. One thread a process, so that processes and not threads are compared.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from evals.bench.tiny_llama import write_tiny_llama

_SPEED = re.compile(r"([0-9.]+) prompts/s")
_TIMEOUT_S = 600.0


def _write_data(path: Path, rows: int) -> None:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["prompt", "cheap", "dear"])
        for i in range(rows):
            text = f"prove claim {i}: " + "1 + 1 = 2; " * 40 if i % 2 else f"what is number {i}?"
            out.writerow([text, 1 - i % 2, 1])


def _train(model: Path, data: Path, out: Path, processes: int) -> float:
    """Train under torchrun; prompts read a second. Raises click.ClickException where it fails."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "evals.generative", "--data", str(data), "--weak", "cheap", "--strong", "dear"]
    command += ["--model", str(model), "--batch", "4", "--out", str(out)]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=one_thread)
    found = _SPEED.search(done.stderr)
    if done.returncode or found is None:
        raise click.ClickException(f"torchrun with {processes} processes failed:\n{done.stderr[-2000:]}")
    return float(found[1])


def _content(folder: Path) -> Mapping[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def measure(processes: int, rows: int, hidden: int, layers: int) -> dict[str, Any]:
    """Prompts per second on one process and on `processes`, their ratio, and whether the artifacts are the same."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        model, data = write_tiny_llama(folder / "model", hidden=hidden, layers=layers), folder / "pair.csv"
        _write_data(data, rows)
        one = _train(model, data, folder / "one", 1)
        many = _train(model, data, folder / "many", processes)
        return {
            "processes": processes,
            "cores": len(os.sched_getaffinity(0)),
            "load": round(os.getloadavg()[0], 1),
            "rows": rows,
            "prompts_s_one": one,
            "prompts_s_many": many,
            "ratio": round(many / one, 2),
            "same_bytes": _content(folder / "one") == _content(folder / "many"),
        }


@click.command()
@click.option("--processes", type=click.IntRange(2), default=2, show_default=True)
@click.option("--rows", type=click.IntRange(20), default=200, show_default=True)
@click.option("--hidden", type=click.IntRange(32), default=256, show_default=True, help="The model's width.")
@click.option("--layers", type=click.IntRange(2), default=6, show_default=True)
def command(processes: int, rows: int, hidden: int, layers: int) -> None:
    """Train a head on one process and on several; exit code 1 where the artifacts differ."""
    found = measure(processes, rows, hidden, layers)
    click.echo(json.dumps(found, indent=2))
    raise SystemExit(0 if found["same_bytes"] else 1)


if __name__ == "__main__":
    command()
