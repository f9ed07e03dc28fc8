"""A draft becomes files in a folder, where that neither overwrites anything unasked nor leaves a folder that does not
check."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from router.errors import ConfigError, Mistake
from router.policy_files import is_config_file, review, schema
from router.starter.draft import Draft, texts


class Occupied(Exception):
    """The folder holds a configuration already; the text says which files."""


def write(draft: Draft, folder: Path, *, force: bool) -> list[Path]:
    """Writes the files, each whole, and returns them. Those that they replace stay beside them as `NAME.bak`.

    Raises Occupied, ConfigError where the folder would not check afterwards, and OSError.
    """
    files = texts(draft)
    there = sorted(path.name for path in folder.iterdir() if is_config_file(path)) if folder.is_dir() else []
    if there and not force:
        raise Occupied(f"{folder} holds {', '.join(there)} already")
    folder.mkdir(parents=True, exist_ok=True)
    if mistakes := _mistakes(draft, files, folder):
        raise ConfigError(mistakes)
    written: list[Path] = []
    for name, content in {**files, "schema.json": json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"}.items():
        path = folder / name
        if path.exists() and is_config_file(path):
            path.replace(path.with_name(f"{name}.bak"))
        fresh = path.with_name(f".{name}.new")
        fresh.write_text(content, encoding="utf-8")
        fresh.replace(path)
        written.append(path)
    return written


def _mistakes(draft: Draft, files: Mapping[str, str], folder: Path) -> tuple[Mistake, ...]:
    """What `check` would say. A variable that is not set yet is no mistake of the files."""
    environ = dict.fromkeys(draft.variables, "to-be-set") | dict(os.environ)
    return review(folder, environ, instead={name: content.encode() for name, content in files.items()}).mistakes
