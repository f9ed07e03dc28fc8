"""What feedback says of quality. It is of the one answer that was given, so that two groups can only be compared where
chance chose between them: on explored requests, weighed by the chance that each group had.

Each explored request counts as the difference of the two groups' means so far, corrected by how far its own answer was
off its group's mean, over the chance of that group (doubly robust, as in `replay.evidence`; the means come from earlier
requests only, so no value depends on itself).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from router.quality.intervals import Interval, once, sequence

LEAST_EACH = 30  # explored requests with feedback of each group, before the two are compared


class Opinion(Struct, frozen=True, kw_only=True):
    """Feedback on one request, and where it was served. `propensity` is the chance of that group, 1 where nothing was
    explored."""

    id: str
    tenant: str
    time: float  # Unix seconds
    policy: str
    route: str
    small: str
    large: str
    served: str
    quality: float  # 0 to 1
    propensity: float
    score: float | None = None


class Contrast(Struct, frozen=True, kw_only=True):
    """Small minus large over explored requests, for a single look; `small` and `large` count them."""

    small: int
    large: int
    difference: float
    low: float
    high: float


class Heard(Struct, frozen=True, kw_only=True):
    """What the feedback of one policy says: means by group, with intervals that hold at every look."""

    n: int
    groups: Mapping[str, Interval]
    explored: Contrast | None


def differences(opinions: Sequence[Opinion]) -> list[tuple[Opinion, float]]:
    """Of each explored request what it says of small minus large; nothing where too few are known of either group."""
    explored = [one for one in opinions if one.propensity < 1.0]
    large = sum(one.served == one.large for one in explored)
    if min(large, len(explored) - large) < LEAST_EACH:
        return []
    sums = {True: [0.5, 1.0], False: [0.5, 1.0]}  # by whether the large group served: sum and count, one guess each
    found: list[tuple[Opinion, float]] = []
    for one in explored:
        means = {side: total / count for side, (total, count) in sums.items()}
        is_large = one.served == one.large
        off = (one.quality - means[is_large]) / one.propensity
        found.append((one, means[False] - means[True] + (-off if is_large else off)))
        sums[is_large][0] += one.quality
        sums[is_large][1] += 1.0
    return found


def heard(opinions: Sequence[Opinion]) -> Heard:
    """What the feedback says together."""
    groups = sorted({one.served for one in opinions})
    by_group = {name: [one.quality for one in opinions if one.served == name] for name in groups}
    values = differences(opinions)
    contrast = None
    if values:
        single = once([value for _, value in values], [1.0] * len(values), seed=len(values))
        large = sum(one.served == one.large for one, _ in values)
        contrast = Contrast(
            small=len(values) - large,
            large=large,
            difference=single.mean,
            low=max(-1.0, single.low),
            high=min(1.0, single.high),
        )
    return Heard(
        n=len(opinions),
        groups={name: sequence(of, 0.0, 1.0) for name, of in by_group.items()},
        explored=contrast,
    )
