"""What recorded judgements say of the quality that other decisions would have had.

A judgement is of the answer of the group that served. What another group's would have been is known only where
chance could have sent the request there, and how often it does is known: `Decision.propensity`. A request that moves
from a group it was certain to reach says nothing, however many of them are judged, and then there is no figure.

Inverse propensity: each judged answer counts W_new - W_old times, W being the product over the conversation so far of
the chance that a policy gives what was done, divided by the chance that it had. Doubly robust: the same, around a guess
of the quality by group and score, which makes the interval shorter and the mean no worse (Dudik, Langford and Li 2011;
for the steps of a conversation Jiang and Li 2016). The guess for a conversation comes from other conversations.
Intervals are 95%, normal, over conversations, since the answers within one are not independent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import sqrt
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from router.types import Decision

ENOUGH = 30.0  # effective sample size below which a normal interval is too short to be believed
UNTRIED = 0.1  # share of the moved requests that no chance covers, above which a figure would be mostly a guess
_SLIGHT = 0.005  # share of all requests below which what is not known only widens the interval
_Z = 1.959964
_STRENGTH = 10.0  # judgements that a mean over more is worth, in the guess
_BINS = 10

Chances = Mapping[str, float]


class Judged(Struct, frozen=True, kw_only=True):
    """One judged answer. `before` and `weight` are W before and after this request; chances are by group."""

    conversation: str
    quality: float
    group: str
    score: float | None
    old: Chances
    new: Chances
    before: tuple[float, float]  # old, new
    weight: tuple[float, float]


class Estimate(Struct, frozen=True, kw_only=True):
    """Mean difference of the quality of a request, new minus old, and its 95% interval."""

    difference: float
    low: float
    high: float


class Quality(Struct, frozen=True, kw_only=True):
    """`judged` answers were looked at, `contrast` of them where the two configurations differ; `effective` is how many
    equally weighted ones these are worth, the lesser of the two sides."""

    difference: float
    low: float
    high: float
    method: str
    judged: int
    contrast: int
    effective: float
    inverse_propensity: Estimate | None = None


class Unknown(Struct, frozen=True, kw_only=True):
    """Not enough evidence, and what to do about it."""

    why: str
    judged: int
    contrast: int = 0
    effective: float = 0.0


class _Way(Struct):
    """How likely a conversation has been so far, compared with what was done, under both configurations."""

    root: str  # the key that it was known by first
    old: float = 1.0
    new: float = 1.0
    untried: float = 0.0  # how likely they were to have left for where no chance leads, both together


class Evidence:
    """Gathers judged answers, in time order within each conversation."""

    def __init__(self) -> None:
        self.judged: list[Judged] = []
        self.labelled: list[tuple[str, float]] = []  # conversation, difference
        self.labelled_moved = 0
        self.untried = 0.0  # requests that either side would have where no chance led when they were recorded
        self._ways: dict[str, _Way] = {}

    def add(
        self,
        conversation: str,
        earlier: str | None,
        did: Decision,
        old: Chances,
        new: Chances,
        *,
        quality: float | None,
        score: float | None,
    ) -> None:
        """One request. `earlier` is another key that its conversation may be known by. `did` is what the record
        decided; `old` and `new` are what each configuration would have done, with the conversation as it was;
        `quality` is None where the answer was not judged."""
        done = chances(did)
        way = self._ways.get(conversation)
        if way is None and earlier is not None and earlier in self._ways:
            way = self._ways[conversation] = replace(self._ways[earlier])  # others may have begun alike
        if way is None and old == done == new:
            if quality is not None:
                self._judge(conversation, quality, did, score, old, new, (1.0, 1.0), (1.0, 1.0))
            return
        if way is None:
            way = self._ways[conversation] = _Way(root=conversation)
        before = (way.old, way.new)
        for weight, side in zip(before, (old, new), strict=True):
            way.untried += weight * sum(chance for group, chance in side.items() if group not in done)
        self.untried += way.untried
        taken = done[did.group]
        way.old *= old.get(did.group, 0.0) / taken
        way.new *= new.get(did.group, 0.0) / taken
        if quality is not None:
            self._judge(way.root, quality, did, score, old, new, before, (way.old, way.new))

    def _judge(
        self,
        conversation: str,
        quality: float,
        did: Decision,
        score: float | None,
        old: Chances,
        new: Chances,
        before: tuple[float, float],
        weight: tuple[float, float],
    ) -> None:
        self.judged.append(
            Judged(
                conversation=conversation,
                quality=quality,
                group=did.group,
                score=score,
                old=old,
                new=new,
                before=before,
                weight=weight,
            )
        )

    def label(self, conversation: str, labels: Mapping[str, float], old: str, new: str) -> None:
        """Both groups' answers to one request were judged: the difference is seen and not estimated."""
        if old in labels and new in labels:
            self.labelled.append((conversation, labels[new] - labels[old]))
            self.labelled_moved += old != new

    def estimate(self, n: int, moved: int, left_out: int = 0) -> Quality | Unknown:
        """The expected change over `n` requests of which `moved` move; `left_out` are those that could not be decided,
        any of which might move."""
        judged, untried = len(self.judged), self.untried + left_out
        slight = untried <= _SLIGHT * (n + left_out)
        if n and not moved and slight:
            doubt, still = untried / n, "nothing moves"
            return Quality(
                difference=0.0, low=0.0 - doubt, high=doubt, method=still, judged=judged, contrast=0, effective=0.0
            )
        contrast = [one for one in self.judged if one.weight[0] != one.weight[1] or one.old != one.new]
        effective = min(_effective(one.weight[0] for one in contrast), _effective(one.weight[1] for one in contrast))
        if left_out > UNTRIED * moved and not slight:
            why = (
                f"{left_out} requests could not be decided, and any of them might move; without the prompts "
                "(record_prompts: true) a scorer that is new or changed can say nothing of them, and without an answer "
                "a cascade has nothing to verify"
            )
        elif self.labelled_moved >= ENOUGH:
            return self._seen()
        elif untried > UNTRIED * moved and not slight:
            why = (
                f"of {moved} requests that move, about {min(untried, moved):.0f} go where no chance led when they "
                "were recorded, so nothing is known of what would have come; let the policy in force explore for a "
                "while (explore: {share: 0.02}) and judge the answers"
            )
        elif effective < ENOUGH:
            why = (
                f"the judged answers that tell the two apart weigh as much as {effective:.0f}, and {ENOUGH:.0f} are "
                "needed; explore a larger share, judge more answers (POST /v1/feedback), or replay more records"
            )
        else:
            return self._weighed(len(contrast), effective, untried / n)
        return Unknown(why=why, judged=judged, contrast=len(contrast), effective=effective)

    def _seen(self) -> Quality:
        found = _mean(self.labelled)
        return Quality(
            difference=found.difference,
            low=found.low,
            high=found.high,
            method="both answers judged",
            judged=len(self.labelled),
            contrast=self.labelled_moved,
            effective=float(self.labelled_moved),
        )

    def _weighed(self, contrast: int, effective: float, untried: float) -> Quality:
        guesses = _guesses(self.judged)
        robust = _mean((one.conversation, _robust(one, guesses[_fold(one.conversation)])) for one in self.judged)
        plain = _mean((one.conversation, one.quality * (one.weight[1] - one.weight[0])) for one in self.judged)
        # What no chance covers may change quality by anything from -1 to 1.
        return Quality(
            difference=robust.difference,
            low=max(-1.0, robust.low - untried),
            high=min(1.0, robust.high + untried),
            method="doubly robust",
            judged=len(self.judged),
            contrast=contrast,
            effective=effective,
            inverse_propensity=plain,
        )


def chances(made: Decision | None) -> Chances:
    """How likely a decision is to lead to each group; nowhere where there is none."""
    if made is None:
        return {}
    if made.other is None or made.propensity >= 1.0:
        return {made.group: 1.0}
    return {made.group: made.propensity, made.other: 1.0 - made.propensity}


# --- arithmetic ------------------------------------------------------------------------------------------


def _effective(weights: Iterable[float]) -> float:
    """Kish's effective sample size."""
    total = squares = 0.0
    for weight in weights:
        total += weight
        squares += weight * weight
    return total * total / squares if squares else 0.0


def _mean(values: Iterable[tuple[str, float]]) -> Estimate:
    """Mean and interval of values that belong to conversations."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for conversation, value in values:
        one = sums[conversation]
        one[0] += value
        one[1] += 1.0
    n = sum(count for _, count in sums.values())
    mean = sum(total for total, _ in sums.values()) / n
    spread = sum((total - mean * count) ** 2 for total, count in sums.values())
    k = len(sums)
    half = _Z * sqrt(spread * k / max(1, k - 1)) / n
    return Estimate(difference=mean, low=mean - half, high=mean + half)


Guess = Mapping[tuple[str, int], float]


def _robust(one: Judged, guess: Guess) -> float:
    """The doubly robust value of one answer: new minus old."""
    at = _bin(one.score)

    def side(before: float, weight: float, chances_: Chances) -> float:
        expected = sum(chance * _guess(guess, group, at) for group, chance in chances_.items())
        return before * expected + weight * (one.quality - _guess(guess, one.group, at))

    return side(one.before[1], one.weight[1], one.new) - side(one.before[0], one.weight[0], one.old)


def _guesses(judged: Iterable[Judged]) -> tuple[Guess, Guess]:
    """Mean quality by group and score, drawn towards the group's and that towards the mean of all: for each half of
    the conversations from the other half."""
    halves: tuple[list[Judged], list[Judged]] = ([], [])
    for one in judged:
        halves[1 - _fold(one.conversation)].append(one)
    return _learned(halves[0]), _learned(halves[1])


def _learned(judged: list[Judged]) -> Guess:
    cells: dict[tuple[str, int], list[float]] = defaultdict(list)
    for one in judged:
        cells[one.group, _bin(one.score)].append(one.quality)
        cells[one.group, _ANY].append(one.quality)
        cells["", _ANY].append(one.quality)
    everything = cells.pop(("", _ANY), [])
    mean = sum(everything) / len(everything) if everything else 0.5
    learned: dict[tuple[str, int], float] = {("", _ANY): mean}
    for key, values in sorted(cells.items()):  # _ANY sorts first, so that the group's mean is there
        towards = mean if key[1] == _ANY else learned[key[0], _ANY]
        learned[key] = (sum(values) + _STRENGTH * towards) / (len(values) + _STRENGTH)
    return learned


_ANY = -2  # every score


def _guess(guess: Guess, group: str, at: int) -> float:
    found = guess.get((group, at))
    if found is None:
        found = guess.get((group, _ANY))
    return guess["", _ANY] if found is None else found


def _bin(score: float | None) -> int:
    return -1 if score is None else min(_BINS - 1, int(score * _BINS))


def _fold(conversation: str) -> int:
    return crc32(conversation.encode()) & 1
