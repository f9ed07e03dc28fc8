"""One configuration over recorded traffic in time order: `decide` on the recorded signals, load and chance.

Whether a conversation was remembered is as recorded; which group it was kept in follows the decisions made here. Where
they are those of the record, so is the pin, failovers and all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from router import record as records
from router.config import Config, Policy, Price
from router.decide import decide, remember
from router.errors import UnknownModel
from router.policy import Selection, order, select
from router.record import cost
from router.replay.past import Past
from router.types import Abstain, Attempt, Decision, Load, NeedScore, Record, Score, Session, Target, Usage

_IDLE = Load()


class Side:
    """`changed` names, for the digest of the configuration that a record was made under, the scorers that this one
    has otherwise: their recorded scores say nothing here."""

    def __init__(self, config: Config, changed: Callable[[str], frozenset[str]]) -> None:
        self.config = config
        self._changed = changed
        self._moved: dict[str, Session] = {}  # conversations that are not where the record has them
        self._selections: dict[tuple[str, str], Selection | None] = {}  # by model and recorded policy
        self._largest = {name: order(policy)[-1] for name, policy in config.policies.items()}
        self._any_largest = frozenset(self._largest.values())
        self._prices = {name: d.price for name, d in config.deployments.items() if d.price is not None}
        self._by_group = {
            name: tuple({self._prices[d]: None for d in group.deployments if d in self._prices})
            for name, group in config.groups.items()
        }

    # --- decisions ---

    def scores(self, past: Past) -> dict[str, Score | Abstain]:
        """The recorded scores that hold here too."""
        changed = self._changed(past.record.digest)
        return {name: score for name, score in past.record.scores.items() if name not in changed}

    def decide(self, past: Past, scores: Mapping[str, Score | Abstain]) -> Decision | NeedScore | None:
        """None where no policy serves the model's name any more."""
        return self._decide(past.record, scores, self._session(past.record))

    def on_record(self, past: Past, scores: Mapping[str, Score | Abstain]) -> Decision | NeedScore | None:
        """As `decide`, with the conversation where the record has it."""
        return self._decide(past.record, scores, past.record.pinned)

    def strayed(self, past: Past) -> bool:
        """Whether the conversation is here elsewhere than the record has it."""
        return self._session(past.record) is not past.record.pinned

    def _decide(
        self, of: Record, scores: Mapping[str, Score | Abstain], session: Session | None
    ) -> Decision | NeedScore | None:
        chosen = self._select(of)
        if chosen is None or of.signals is None:
            return None
        load = self._load(of, chosen)
        made = decide(chosen, of.signals, scores, session, load, of.draw)
        if isinstance(made, Decision) and made.why == "cascade" and of.checked is not None and made.group == first(of):
            return decide(chosen, of.signals, scores, session, load, of.draw, of.checked)
        return made

    def _load(self, of: Record, chosen: Selection) -> Load:
        """The recorded load; of its thresholds in force only those that this configuration might have moved too."""
        load = of.load or _IDLE
        if not load.cuts or of.digest == self.config.digest or (isinstance(chosen, Policy) and chosen.target):
            return load
        return replace(load, cuts={})

    def unsettled(self, past: Past, made: Decision | None) -> bool:
        """Whether it is a cascade whose first answer was not recorded: where it would have ended nobody knows."""
        did = past.record.decision
        if made is None or made.why != "cascade" or did is None:
            return False
        return did.why != "cascade" or did.group != made.group

    def _select(self, of: Record) -> Selection | None:
        """Whether a conversation was on a canary is as recorded, where there is still one of that name."""
        try:
            return self._selections[of.model, of.policy]
        except KeyError:
            pass
        try:
            found = select(self.config, of.model)
            if isinstance(found, Policy) and found.canary is not None and found.canary.policy == of.policy:
                found = self.config.policies.get(of.policy, found)
        except UnknownModel:
            found = None
        self._selections[of.model, of.policy] = found
        return found

    def _session(self, of: Record) -> Session | None:
        pinned = of.pinned
        if pinned is None or not self._moved:
            return pinned
        # Without a client's id, the second request of a conversation reads what the first left under another key.
        found = self._moved.get(of.session or "") or self._moved.get(pinned.id)
        if found is None:
            return pinned
        return replace(pinned, group=found.group, deployment=found.deployment, route=found.route)

    def follow(self, past: Past, made: Decision | None) -> None:
        """Remembers where the conversation is after `made`."""
        of = past.record
        chosen = self._select(of)
        served = records.served(of)
        if made is None or chosen is None or served is None or of.session is None or of.signals is None:
            return
        was = of.decision
        as_recorded = was is not None and was.group == made.group
        session = self._session(of)
        if as_recorded and was is not None and was.route == made.route and session is of.pinned:
            self._moved.pop(of.session, None)
            return
        target = Target(
            deployment=served.deployment if as_recorded else "", group=served.group if as_recorded else made.group
        )
        after = remember(chosen, of.signals, made, session, key=of.session, served=target)
        if after is not None:
            self._moved[of.session] = replace(after, deployment=after.deployment or None)

    # --- what a decision means here ---

    def is_large(self, made: Decision) -> bool:
        """Whether the group is the largest of its policy; of any, where the client named it or the policy is gone."""
        largest = self._largest.get(made.policy)
        return made.group == largest if largest is not None else made.group in self._any_largest

    def cost(self, of: Record, made: Decision) -> float | None:
        """US dollars for the recorded tokens: at the deployment that served where the group is the recorded one, else
        at the mean of the group's prices; of a cascade for all its calls. None without a price."""
        if made.why in ("verified", "escalated"):
            return self._all_calls(of, made)
        served, did = records.served(of), of.decision
        if served is not None and did is not None and did.group == made.group and served.deployment in self._prices:
            return cost(of.usage, self._prices[served.deployment])
        return self._in_group(of.usage, made.group)

    def _in_group(self, usage: Usage, group: str) -> float | None:
        prices: tuple[Price, ...] = self._by_group.get(group, ())
        return sum(cost(usage, one) for one in prices) / len(prices) if prices else None

    def _all_calls(self, of: Record, made: Decision) -> float | None:
        """The first group's answer and the scouts', and after an escalation the second group's."""
        paid = [a for a in of.attempts if a.usage is not None]
        calls = [a for a in paid if a.scout or a.group == first(of)]
        total: list[float | None] = [] if made.why == "verified" else [self._second(of, made, paid)]
        for one in calls:
            price = self._prices.get(one.deployment)
            total.append(cost(one.usage, price) if price is not None and one.usage is not None else None)
        known = [one for one in total if one is not None]
        return sum(known) if len(known) == len(total) else None

    def _second(self, of: Record, made: Decision, paid: list[Attempt]) -> float | None:
        done = next((a for a in paid if not a.scout and a.group == made.group), None)
        if done is not None and done.usage is not None and done.deployment in self._prices:
            return cost(done.usage, self._prices[done.deployment])
        return self._in_group(of.usage, made.group)


def first(of: Record) -> str | None:
    """The group that was called first."""
    return next((attempt.group for attempt in of.attempts if not attempt.scout), None)
