"""Runs the script on machines, at the same time, over whatever leads there: ssh, or any command that reads a script."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from router.errors import NotFound
from router.survey import parse
from router.survey.script import SCRIPT
from router.survey.values import Facts, Silent

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 {host} sh -s"
WITHIN_S = 60.0
AT_ONCE = 16
Host = tuple[str, str]  # id, address


def hosts(lines: str) -> list[Host]:
    """A list of machines: `NAME ADDRESS` or only an address on a line, # for comments. Raises ValueError."""
    found: list[Host] = []
    for number, line in enumerate(lines.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 2:
            raise ValueError(f"line {number}: NAME ADDRESS is expected, and there are {len(words)} words")
        name, address = words if len(words) == 2 else (words[0], words[0].rpartition("@")[2])
        if any(name == other for other, _ in found):
            raise ValueError(f"line {number}: there are two machines called {name}")
        found.append((name, address))
    return found


def ask(machines: Sequence[Host], through: str = SSH, within_s: float = WITHIN_S) -> list[Facts | Silent]:
    """What each machine says, in the order given. `through`: a command that runs a script from its standard input on
    `{host}`."""

    def each(machine: Host) -> Facts | Silent:
        return _one(machine, through, within_s)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(each, machines))


def _one(machine: Host, through: str, within_s: float) -> Facts | Silent:
    node, address = machine
    argv = [word.replace("{host}", address).replace("{id}", node) for word in shlex.split(through)]
    try:
        done = subprocess.run(argv, input=SCRIPT, capture_output=True, text=True, errors="replace", timeout=within_s)  # noqa: S603
    except subprocess.TimeoutExpired:
        return Silent(id=node, address=address, why=f"no answer within {within_s:g} s")
    except OSError as error:
        return Silent(id=node, address=address, why=f"{argv[0]}: {error.strerror}")
    try:
        return parse.facts(node, address.rpartition("@")[2], done.stdout)
    except ValueError as error:
        last = done.stderr.strip().splitlines()[-1:]
        return Silent(id=node, address=address, why=f"{argv[0]}: {last[0] if last else error}")


def recorded(folder: Path) -> list[Facts | Silent]:
    """What was recorded of machines before: NAME.txt each, or NAME@ADDRESS.txt. Raises NotFound."""
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise NotFound(f"{folder} holds no NAME.txt; write them with `pointsman plan inventory --script`")
    found: list[Facts | Silent] = []
    for path in files:
        node, _, address = path.stem.partition("@")
        try:
            found.append(parse.facts(node, address or node, path.read_text(errors="replace")))
        except ValueError as error:
            found.append(Silent(id=node, address=address or node, why=f"{path}: {error}"))
    return found
