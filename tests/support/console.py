"""The commands of a page of documentation, and what it says that they print."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(r"^```(?:console|sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Command(NamedTuple):
    """One command, as it is typed, and the lines shown below it. `...` stands for anything."""

    text: str
    shown: tuple[str, ...]


def commands(page: Path) -> list[Command]:
    """Every command of a page in order. In a block whose lines begin with `$ `, the others are what is printed."""
    return [command for block in _BLOCK.findall(page.read_text()) for command in _of_block(block)]


def _of_block(block: str) -> Iterator[Command]:
    lines = block.splitlines()
    prompts = any(line.startswith("$ ") for line in lines)
    at = 0
    while at < len(lines):
        if prompts and not lines[at].startswith("$ "):
            at += 1
            continue
        typed = [lines[at].removeprefix("$ ") if prompts else lines[at]]
        while typed[-1].endswith("\\"):
            at += 1
            typed.append(lines[at])
        at += 1
        shown: list[str] = []
        while prompts and at < len(lines) and not lines[at].startswith("$ "):
            shown.append(lines[at])
            at += 1
        text = "\n".join(typed)
        if text.partition("#")[0].strip():
            yield Command(text, tuple(shown))


def differs(shown: Sequence[str], printed: str) -> str | None:
    """The first shown line that was not printed where it should be, or None. Widths of columns do not matter."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    at, anywhere = 0, False
    for wanted in shown:
        if wanted.strip() == "...":
            anywhere = True
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in " ".join(wanted.split()).split("...")))
        found = next((n for n in range(at, len(lines)) if pattern.fullmatch(lines[n])), None)
        if found is None or (not anywhere and found != at):
            return wanted
        at, anywhere = found + 1, False
    return None
