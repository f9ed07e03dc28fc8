"""A set-up looked over: what is there, what is not, and what to do about it. `examine` does it all and changes nothing;
no model is asked to write anything. Nothing here prints.
"""

from __future__ import annotations

from router.doctor.examination import Options, examine
from router.doctor.finding import Finding, Level, fail, ok, warn

__all__ = ["Finding", "Level", "Options", "examine", "fail", "ok", "warn"]
