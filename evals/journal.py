"""What a long run has found so far, in a file beside its result: appended as it comes, read when it goes on.

The first line holds a digest of the data and the settings, so that two runs never mix. A last line that a crash
left half-written is dropped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from evals.cases import BadData


class Journal:
    """Lines of one run. `entries` are those found in the file when it was opened."""

    def __init__(self, path: Path, digest: str) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = path.read_bytes() if path.is_file() else b""
        whole = kept[: kept.rfind(b"\n") + 1]
        if whole:
            self.entries = self._read(whole, digest)
        self._file = path.open("r+b" if kept else "wb")
        self._file.truncate(len(whole))
        self._file.seek(len(whole))
        if not whole:
            self.add({"digest": digest})

    def _read(self, whole: bytes, digest: str) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                read = json.loads(line)
            except ValueError as e:
                raise BadData(f"{self.path}:{number}: not a line of a run; remove the file to begin anew") from e
            if not isinstance(read, dict):
                raise BadData(f"{self.path}:{number}: not a line of a run; remove the file to begin anew")
            lines.append(cast("dict[str, Any]", read))
        if lines[0].get("digest") != digest:
            raise BadData(f"{self.path}: of a run on other data or settings; remove it, or name another --out")
        return lines[1:]

    def add(self, entry: dict[str, Any]) -> None:
        """One line, on its way to the disk before this returns."""
        self._file.write(json.dumps(entry, ensure_ascii=True).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
