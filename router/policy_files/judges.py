"""What a policy's `judge` says that cannot be meant: shares, a judge that is one of the judged, files that are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath

from router.config import Deployment, Group, Judge, Policy
from router.errors import Mistake
from router.policy import leads, reach
from router.policy_files.conditions import check_when
from router.policy_files.positions import Document, Path

_WIDEST = 20.0  # near_share over share: one rare sample would weigh as much as twenty


def check_judge(document: Document, policy: Policy, judge: Judge) -> Iterator[Mistake]:
    """Mistakes that the policy alone shows."""
    base: Path = ("judge",)
    for name in ("share", "near_share"):
        share: float | None = getattr(judge, name)
        if share is not None and not 0 < share <= 1:
            yield document.mistake((*base, name), "must be more than 0 and at most 1")
    near = judge.near_share
    fit = near is not None and 0 < near <= 1 and 0 < judge.share <= 1
    if near is not None and fit and not 1 / _WIDEST <= near / judge.share <= _WIDEST:
        message = f"is more than {_WIDEST:g} times the other share, so that single samples would decide everything"
        yield document.mistake((*base, "near_share"), message)
    for name, least in (("budget_per_day", 1), ("idle", 1)):
        count: int | None = getattr(judge, name)
        if count is not None and count < least:
            yield document.mistake((*base, name), f"must be at least {least}; leave judge out to judge nothing")
    if not 0 < judge.within <= 1:
        yield document.mistake((*base, "within"), "must be more than 0 and at most 1")
    if not 0 < judge.precision < 1:
        yield document.mistake((*base, "precision"), "must be more than 0 and less than 1")
    if judge.group is None and judge.checker is None:
        yield document.mistake(base, "nobody compares the answers; name a group that judges, or a checker", at_key=True)
    if judge.calibration is not None and judge.group is None:
        message = "measures a model that judges, and there is none; name its group, or remove this"
        yield document.mistake((*base, "calibration"), message, at_key=True)
    if judge.when is not None:
        yield from check_when(document, (*base, "when"), judge.when)
    if len({group for route in policy.routes for group in leads(route)} | {policy.default}) < 2:
        message = "there is one group only, and nothing to compare its answers with; remove judge"
        yield document.mistake(base, message, at_key=True)
    if judge.group is not None and judge.group in reach(policy):
        message = "this group answers requests of the policy itself; who is judged cannot judge, name another"
        yield document.mistake((*base, "group"), message)


def check_arms(
    document: Document, policy: Policy, groups: Mapping[str, Group], deployments: Mapping[str, Deployment]
) -> Iterator[Mistake]:
    """A judge under another name: a deployment, or a model, that answers requests of the policy."""
    judge = policy.judge
    group = groups.get(judge.group) if judge is not None and judge.group is not None else None
    if group is None or group.name in reach(policy):
        return
    answering = {name for one in reach(policy) if one in groups for name in groups[one].deployments}
    models = {(deployments[n].upstream, deployments[n].model) for n in answering if n in deployments}
    for name in group.deployments:
        one = deployments.get(name)
        if name in answering:
            message = f"deployment {name} of this group answers requests of the policy; who is judged cannot judge"
            yield document.mistake(("judge", "group"), message)
        elif one is not None and one.model and (one.upstream, one.model) in models:
            message = f"deployment {name} of this group is the model {one.model}, which answers requests of the policy"
            yield document.mistake(("judge", "group"), message)


def unread(document: Document, judge: Judge) -> Iterator[Mistake]:
    """Files that this machine does not have, and what goes uncorrected: warnings."""
    if judge.calibration is not None and not FilePath(judge.calibration).is_file():
        message = "is not on this machine; without it the judge is taken at its word"
        yield document.mistake(("judge", "calibration"), message)
    elif judge.group is not None and judge.calibration is None:
        message = "has no calibration: nobody knows how often this judge errs, and no interval allows for it"
        yield document.mistake(("judge", "group"), message, at_key=True)
