"""Where the gateway keeps what outlives it: the records database and the configuration's history.

The folder is the one given, else `$POINTSMAN_STATE`, else the user's state folder. Nothing here opens a file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs

FOLDER_VARIABLE = "POINTSMAN_STATE"
RECORDS_VARIABLE = "POINTSMAN_RECORDS"


def folder(given: str | Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """The state folder; it may not exist yet."""
    named = given or environ.get(FOLDER_VARIABLE)
    return Path(named).expanduser() if named else platformdirs.user_state_path("pointsman")


def make(path: Path) -> Path:
    """Creates the folder, private to its owner. Raises `OSError`."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def records_file(path: Path) -> Path:
    """The embedded records database of a state folder."""
    return path.resolve() / "records.sqlite3"


def records_url(path: Path, environ: Mapping[str, str] = os.environ) -> str:
    """The records database: `$POINTSMAN_RECORDS` (`postgresql://...`), else a SQLite file in the state folder."""
    return environ.get(RECORDS_VARIABLE) or f"sqlite:///{records_file(path)}"


def changes_file(path: Path) -> Path:
    """What the gateway changed by itself, in a state folder."""
    return path / "changes.jsonl"
