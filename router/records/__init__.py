"""Keeping records: `SqlRecorder` writes them off the hot path, `SqlReader` reads them."""

from __future__ import annotations

import logging
from pathlib import Path

from router import state
from router.records.newest import Filter
from router.records.reader import SqlReader, instant
from router.records.recorder import SqlRecorder
from router.records.retention import Retention, limits
from router.records.sql import Feedback, open_engine

__all__ = [
    "Feedback",
    "Filter",
    "Retention",
    "SqlReader",
    "SqlRecorder",
    "instant",
    "limits",
    "open_engine",
    "open_recorder",
]

log = logging.getLogger(__name__)


def open_recorder(folder: Path, retention: Retention | None = None) -> SqlRecorder:
    """The recorder on the state folder's database, or on the one that `$POINTSMAN_RECORDS` names.

    A folder that cannot be made does not keep the gateway from starting: the recorder tries again by itself.
    """
    try:
        state.make(folder)
    except OSError as error:
        log.error("records: cannot create %s: %s; name another folder with --state", folder, error.strerror)
    return SqlRecorder(state.records_url(folder), retention=retention)
