"""keys.yaml as text: an entry put in or taken out, and everything else, comments too, left as it stands.

What the keys mean is not known here, and neither is where the text comes from or goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from router.policy_files.positions import read
from router.policy_files.shapes import mapping
from router.policy_files.variables import Variables

_FRESH: Final = "version: 1\nkeys: {}\n"
_HEAD: Final = re.compile(r"keys:[ \t]*(\{[ \t]*\})?[ \t]*(#.*)?")
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class CannotEdit(ValueError):
    """The text is written in a way that is not changed here."""


def names(text: str) -> list[str]:
    """The keys that stand in a text, in order; none where it cannot be read."""
    document, _ = read("keys.yaml", text.encode(), Variables({}), lambda path: False)
    return list(mapping(document.data.get("keys")) or {}) if document is not None else []


def added(text: str, name: str, fields: Mapping[str, object]) -> str:
    """The text with one more entry at the end of `keys`. Raises CannotEdit."""
    text = text if text.strip() else _FRESH
    before = names(text)
    if name in before:
        raise CannotEdit(f"there is a key '{name}' already; choose another --name, or revoke that one first")
    lines = text.splitlines()
    head, end = _block(lines)
    entries = [line for line in lines[head + 1 : end] if line.strip() and not line.lstrip().startswith("#")]
    indent = " " * (_indent(entries[0]) if entries else 2)
    entry = [f"{indent}{_key(name)}:"]
    entry += [f"{indent}  {key}: {json.dumps(value)}" for key, value in fields.items()]
    lines[head] = lines[head] if entries else re.sub(r"^keys:[ \t]*\{[ \t]*\}", "keys:", lines[head])
    return _checked([*lines[:end], *entry, *lines[end:]], [*before, name])


def removed(text: str, name: str) -> str:
    """The text without one entry. Raises CannotEdit."""
    before = names(text)
    if name not in before:
        known = f"; there is {', '.join(before)}" if before else ""
        raise CannotEdit(f"there is no key '{name}'{known}")
    lines = text.splitlines()
    head, end = _block(lines)
    own = re.compile(rf"[ ]+(?:{re.escape(name)}|{re.escape(json.dumps(name))}|'{re.escape(name)}')[ ]*:(?:[ ].*)?")
    first = next((i for i in range(head + 1, end) if own.fullmatch(lines[i])), None)
    if first is None:
        raise CannotEdit(f"the key '{name}' does not stand on lines of its own; take it out by hand")
    last = first + 1
    while last < end and (_indent(lines[last]) > _indent(lines[first]) or not lines[last].strip()):
        last += 1
    while not lines[last - 1].strip():
        last -= 1
    if len(before) == 1:
        lines[head] = re.sub(r"^keys:", "keys: {}", lines[head])
    return _checked([*lines[:first], *lines[last:]], [one for one in before if one != name])


def _block(lines: list[str]) -> tuple[int, int]:
    """Indices of the line `keys:` and of the one behind its last entry."""
    head = next((i for i, line in enumerate(lines) if _HEAD.fullmatch(line)), None)
    if head is None:
        raise CannotEdit("'keys:' does not stand on a line of its own in this file; change it by hand")
    end = last = head + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " #"):
        end += 1
        if lines[end - 1].startswith(" ") and lines[end - 1].strip():
            last = end
    return head, last


def _checked(lines: list[str], wanted: list[str]) -> str:
    """The lines as text, which must read as what was meant."""
    text = "\n".join(lines) + "\n"
    if names(text) != wanted:
        raise CannotEdit("this file is written in a way that is not understood here; change it by hand")
    return text


def _key(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
