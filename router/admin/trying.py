"""What a request would do under the policies in force, or under one that is being edited: nothing is called, applied or
kept. The edited text stands in place of its file, everything else is as in the directory.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from router import catalogue, logs, policy_files, scorers
from router.admin.state import AdminState
from router.config import Config
from router.errors import BadRequest, Mistake, NotFound
from router.flight import Snapshot
from router.policy import named_headers
from router.policy_files.files import GROUPS, KEYS, SCORERS
from router.record import book
from router.types import Caller

_NAME = re.compile(r"^name:[ \t]*[\"']?([^\s\"'#]+)", re.M)


class Edited(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A policy's file as it would be."""

    file: str
    text: str


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request's body in any dialect, its headers, and the policy to try it under; None: those in force."""

    request: msgspec.Raw
    dialect: str | None = None
    headers: Mapping[str, str] = {}
    policy: Edited | None = None


def read(body: bytes) -> Question:
    """Raises BadRequest."""
    try:
        return msgspec.json.decode(body, type=Question)
    except msgspec.MsgspecError as error:
        said = "a body is {request, dialect?, headers?, policy?: {file, text}}"
        raise BadRequest(f"{said}: {error}") from None


async def answer(state: AdminState, question: Question) -> dict[str, Any]:
    """The decision with its explanation; `mistakes` and no decision where the edited policy is refused."""
    snapshot, mistakes, warnings = state.snapshot, (), ()
    if question.policy is not None:
        found = await asyncio.to_thread(_review, state.directory, question.policy)
        mistakes, warnings = found.mistakes, found.warnings
        if found.config is None:
            return {"decision": None, "mistakes": _told(mistakes), "warnings": _told(warnings)}
        snapshot = _beside(snapshot, found.config)
    else:
        snapshot = _beside(snapshot, snapshot.config)
    headers = {name.lower(): value for name, value in question.headers.items()}
    body = bytes(question.request)
    dialect = catalogue.dialect_of(body, question.dialect, headers)
    caller = Caller(id=uuid4().hex, headers=headers)
    decided = await catalogue.decision(state.service, dialect, body, caller, snapshot=snapshot)
    in_words = await catalogue.decision(state.service, dialect, body, caller, snapshot=snapshot, as_text=True)
    return {"decision": decided, "in_words": in_words, "mistakes": [], "warnings": _told(warnings)}


def _review(directory: Path, edited: Edited) -> policy_files.Review:
    """Raises NotFound for a file that is no policy's, BadRequest for a text that would read the environment."""
    if edited.file not in _policy_files(directory):
        raise NotFound("no policy has that file; GET /admin/policies lists them")
    if "${" in edited.text:
        raise BadRequest("variables are not read here: write the value in place of ${...}", param="policy.text")
    return policy_files.review(directory, instead={edited.file: edited.text.encode()})


def _beside(current: Snapshot, config: Config) -> Snapshot:
    """A snapshot to decide by: without upstreams, without keys, with the scorers that run already."""
    same = {n: s for n, s in current.scorers.items() if config.scorers.get(n) == current.config.scorers.get(n)}
    return Snapshot(
        config=config,
        upstreams={},
        scorers=same,
        book=book(config),
        named_headers=named_headers(config) | scorers.named_headers(config.scorers.values()),
        generation=current.generation,
    )


def _told(mistakes: tuple[Mistake, ...]) -> list[dict[str, Any]]:
    return [
        {"file": Path(m.file).name, "line": m.line, "column": m.column, "path": m.path, "message": m.message}
        for m in mistakes
    ]


def _policy_files(directory: Path) -> dict[str, bytes]:
    found = policy_files.read_directory(directory)
    return {name: content for name, content in found.items() if name not in (GROUPS, SCORERS, KEYS)}


def policies(directory: Path) -> list[dict[str, Any]]:
    """Each policy's file as it stands in the directory, without the configuration's secrets. Raises ConfigError."""
    shown: list[dict[str, Any]] = []
    for file, content in _policy_files(directory).items():
        text = content.decode("utf-8", "replace")
        name = _NAME.search(text)
        shown.append({"file": file, "policy": name[1] if name else Path(file).stem, "text": logs.without_secrets(text)})
    return shown
