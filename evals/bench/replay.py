"""`python -m evals.bench.replay`: how long `pointsman replay` takes over made-up records, and that what it says of
quality agrees with what is known of them.

The gateway's own cost is `run`'s business.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from evals.bench import traffic
from router import record
from router.policy_files import load

LOWER = traffic.POLICY.replace("0.5", "0.45")


def config(folder: Path, policy: str) -> Path:
    """A configuration directory."""
    folder.mkdir()
    (folder / "groups.yaml").write_text(traffic.GROUPS)
    (folder / "default.yaml").write_text(policy)
    return folder


def lines(directory: Path, count: int, judged: float, seed: int = 1) -> Iterator[bytes]:
    """Exported records, of which a share is judged, each good or bad by its quality."""
    chance = random.Random(seed)
    for made in traffic.traffic(load(directory), count, seed):
        line = record.encode(made.record)
        if chance.random() < judged:
            line = line[:-1] + b',"quality":%d}' % (chance.random() < made.quality)
        yield line


def truth(folder: Path, count: int, seed: int = 2) -> float:
    """The difference in mean quality when each policy is in force over the same made-up users."""
    means: list[float] = []
    for name in ("old", "new"):
        made = traffic.traffic(load(folder / name), count, seed)
        means.append(sum(one.quality for one in made) / count)
    return means[1] - means[0]


def measure(count: int, judged: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old = config(folder / "old", traffic.POLICY + traffic.EXPLORE)
        config(folder / "new", LOWER)
        file = folder / "records.jsonl"
        with file.open("wb") as out:
            for line in lines(old, count, judged):
                out.write(line + b"\n")
        command = [sys.executable, "-m", "router", "replay", str(file), "--config", str(folder / "new"), "--json"]
        begun = perf_counter()
        # Without a state folder of its own it would look the records' configuration up in the user's.
        done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "POINTSMAN_STATE": name})
        wall_s = perf_counter() - begun
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        told = json.loads(done.stdout)
        return {
            "records": count,
            "megabytes": file.stat().st_size / 1e6,
            "wall_s": wall_s,
            "cpu_s": used.ru_utime + used.ru_stime,
            "peak_mb": used.ru_maxrss / 1024,
            "moved_share": told["moved_share"],
            "quality": told["quality"] or told["not_enough_evidence"],
            "true_difference": truth(folder, count),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--judged", type=float, default=0.3, help="share of the answers that are judged")
    given = parser.parse_args()
    print(json.dumps(measure(given.records, given.judged), indent=1))


if __name__ == "__main__":
    main()
