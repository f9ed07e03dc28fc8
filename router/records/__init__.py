"""Keeping records: `SqlRecorder` writes them off the hot path, `SqlReader` reads them."""

from __future__ import annotations

from router.records.reader import Filter, SqlReader
from router.records.recorder import SqlRecorder
from router.records.retention import Retention
from router.records.sql import Feedback, open_engine

__all__ = ["Feedback", "Filter", "Retention", "SqlReader", "SqlRecorder", "open_engine"]
