"""Recorded traffic decided again: what another configuration would have done with it, what that would have cost, and
what can be said of its quality. Pure arithmetic on records; the decisions are those of `decide`.

`past` reads a line, `side` decides it again under one configuration, `tally` counts what moved, `evidence` weighs what
was judged, `report` puts it together. Files, databases and scorers belong to the caller.
"""

from router.replay.past import Past, read
from router.replay.report import Limits, Report, Run
from router.replay.side import Side

__all__ = ["Limits", "Past", "Report", "Run", "Side", "read"]
