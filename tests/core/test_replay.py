"""Recorded traffic decided again: what moves, how pins follow, what it costs, and when quality can be told."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from evals.bench import traffic
from router import record as records
from router.config import Band, Canary, Cascade, Config, Deployment, Explore, Group, Policy, Price, Route, ScoreRule
from router.replay import Limits, Past, Report, Run, Side, read
from router.replay.evidence import Evidence, Quality, Unknown, chances
from router.replay.tally import NOWHERE
from router.types import Attempt, Checked, Cut, Decision, Load, NeedScore, Record, Score, Session, Signals, Usage


def policy(edge: float = 0.5, **more: Any) -> Policy:
    rule = ScoreRule(scorer="difficulty", bands=(Band(group="small", below=edge), Band(group="large")))
    return Policy(
        name="default",
        models=("auto",),
        routes=(Route(name="difficulty", score=rule),),
        default="large",
        fallback={"small": ("large",), "large": ("small",)},
        **more,
    )


def config(of: Policy | None = None, digest: str = "new", **prices: Price | None) -> Config:
    chosen = of or policy()
    money = {"small": Price(input=1.0, output=2.0), "large": Price(input=10.0, output=20.0), **prices}
    return Config(
        policies={chosen.name: chosen},
        models=dict.fromkeys(chosen.models, chosen),
        groups={name: Group(name=name, deployments=(f"{name}-a",)) for name in ("small", "large")},
        deployments={f"{n}-a": Deployment(name=f"{n}-a", upstream="scripted", price=p) for n, p in money.items()},
        scorers={},
        digest=digest,
    )


def past(number: int = 0, score: float | None = 0.3, group: str = "small", **more: Any) -> Past:
    """A request that was sent to `group` by its score."""
    quality, labels = more.pop("quality", None), more.pop("labels", {})
    decision = Decision(
        policy="default", route="difficulty", group=group, why="score", scorer="difficulty", score=score, threshold=0.5
    )
    fields: dict[str, Any] = {
        "id": f"r{number}",
        "time": 1_700_000_000.0 + number,
        "policy": "default",
        "digest": "old",
        "dialect": "chat",
        "model": "auto",
        "stream": False,
        "signals": Signals(model="auto"),
        "scores": {} if score is None else {"difficulty": Score(scorer="difficulty", value=score)},
        "decision": decision,
        "attempts": (Attempt(deployment=f"{group}-a", group=group, status=200),),
        "usage": Usage(input=1_000_000, output=1_000_000),
        "session": f"c{number}",
    }
    return Past(record=Record(**fields | more), quality=quality, labels=labels)


def replayed(new: Config, pasts: Iterable[Past], old: Config | None = None) -> Run:
    """The driver, without scorers: what is not recorded is left out."""
    sides = [Side(one, lambda _: frozenset()) for one in (new, old) if one is not None]
    run = Run(sides[0], sides[1] if old is not None else None)
    for one in pasts:
        if run.takes(one):
            step(run, one)
    return run


def step(run: Run, one: Past) -> None:
    made: list[Decision | None] = []
    scores: list[Mapping[str, Any]] = []
    for side in run.sides():
        scores.append(side.scores(one))
        answer = side.decide(one, scores[-1])
        if isinstance(answer, NeedScore):
            run.unscored[answer.scorer] += 1
            return
        if side.unsettled(one, answer):
            run.unverified += 1
            return
        made.append(answer)
    run.add(one, one.record.decision if run.old is None else made[0], made[-1], (scores[0], scores[-1]))


def report(run: Run, **limits: float) -> dict[str, Any]:
    return Report(run, Limits(**limits), []).plain()


# --- what moves ------------------------------------------------------------------------------------------


def made_up(folder: Any, text: str, name: str = "old") -> Config:
    from router.policy_files import load

    (folder / name).mkdir()
    (folder / name / "groups.yaml").write_text(traffic.GROUPS)
    (folder / name / "default.yaml").write_text(text)
    return load(folder / name)


@pytest.fixture(scope="module")
def exploring(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return made_up(tmp_path_factory.mktemp("old"), traffic.POLICY + traffic.EXPLORE)


@pytest.fixture(scope="module")
def lower(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return made_up(tmp_path_factory.mktemp("new"), traffic.POLICY.replace("0.5", "0.45"))


def test_the_configuration_that_was_in_force_moves_nothing_and_costs_the_same(exploring: Config):
    made = list(traffic.traffic(exploring, 1500, 3, drift=0.1))
    run = replayed(exploring, (read(records.encode(one.record)) for one in made))
    assert (run.tally.n, run.tally.moved, run.left_out, run.disorder) == (1500, 0, 0, 0)
    spent = sum(one.record.cost or 0.0 for one in made)
    assert run.tally.cost == pytest.approx([spent, spent])
    assert len({one.record.decision.why for one in made if one.record.decision}) >= 4


def test_a_lower_edge_moves_the_scores_between_and_prices_them_at_the_other_group():
    run = replayed(config(policy(0.25)), [past(0, 0.2), past(1, 0.3), past(2, 0.6, "large")])
    assert (run.tally.n, run.tally.moved) == (3, 1)
    told = report(run)
    assert told["large_share"] == {"old": pytest.approx(1 / 3), "new": pytest.approx(2 / 3)}
    assert told["cost"] == {"old": 3.0 + 3.0 + 30.0, "new": 3.0 + 30.0 + 30.0, "priced": 3}
    assert told["moves"]["groups"] == [{"from": "small", "to": "large", "n": 1}]
    assert told["examples"] == [
        {
            "id": "r1",
            "score": 0.3,
            "group": {"old": "small", "new": "large"},
            "route": {"old": "difficulty", "new": "difficulty"},
            "why": {"old": "score", "new": "score"},
            "threshold": {"old": 0.5, "new": 0.25},
        }
    ]


def test_load_is_by_group_and_hour():
    run = replayed(config(policy(0.25)), [past(0, 0.3), past(3600, 0.2)])
    load = {
        (one["hour"], one["group"]): (one["old"]["requests"], one["new"]["requests"]) for one in report(run)["load"]
    }
    assert load == {("2023-11-14T22", "large"): (0, 1), ("2023-11-14T22", "small"): (1, 0), ("2023-11-14T23", "small"): (1, 1)}  # fmt: skip  # noqa: E501
    assert "small: 1 and 1000000 at 2023-11-14T22 -> 1 and 1000000 at 2023-11-14T23" in Report(run, Limits(), []).text()


def test_a_group_without_a_price_leaves_its_requests_out_of_the_cost():
    run = replayed(config(policy(0.25), large=None), [past(0, 0.2), past(1, 0.3)])
    assert report(run)["cost"] == {"old": 3.0, "new": 3.0, "priced": 1}
    assert "of the 1 requests that have a price" in Report(run, Limits(), []).text()


def test_a_request_refused_before_it_was_decided_is_counted_and_left_out():
    run = replayed(config(), [past(0), past(1, decision=None), past(2, signals=None)])
    assert (run.tally.n, run.refused) == (1, 2)


def test_a_model_that_nothing_serves_any_more_moves_nowhere():
    run = replayed(config(policy(), "new"), [past(0, model="gone")])
    assert run.tally.by_group == {("small", NOWHERE): 1}


def test_two_configurations_are_compared_with_each_other_and_not_with_the_record():
    run = replayed(
        config(policy(0.25)), [past(0, 0.3, "large"), past(1, 0.2, "large")], old=config(policy(0.5), "old2")
    )
    assert (run.tally.moved, run.tally.by_group) == (1, {("small", "large"): 1})


def test_records_out_of_order_are_told():
    run = replayed(config(), [past(5), past(3)])
    assert any(note.startswith("order: 1 records") for note in report(run)["notes"])


# --- pins ------------------------------------------------------------------------------------------------


def pinned(number: int, group: str, key: str, known_by: str, loop: bool = True, **more: Any) -> Past:
    decision = Decision(policy="default", route="pin", group=group, why="pin", deployment=f"{group}-a")
    session = Session(id=known_by, group=group, deployment=f"{group}-a", route="difficulty")
    signals = Signals(model="auto", tool_loop=loop)
    return past(number, None, group, session=key, pinned=session, signals=signals, **{"decision": decision, **more})


def test_a_conversation_follows_the_new_decision_of_its_beginning_under_whichever_key_it_was_kept():
    talk = [past(0, 0.3, session="opening"), pinned(1, "small", "full", "opening"), pinned(2, "small", "full", "full")]
    run = replayed(config(policy(0.25)), talk)
    assert run.tally.by_group == {("small", "large"): 3}
    assert run.tally.by_route == {("difficulty", "difficulty"): 1, ("pin", "pin"): 2}


def test_a_conversation_that_moves_down_needs_a_score_that_was_not_taken_and_is_left_out_where_there_is_none():
    talk = [past(0, 0.6, "large", session="a"), pinned(1, "large", "a", "a", loop=False), pinned(2, "large", "a", "a")]
    run = replayed(config(policy(0.7)), talk)
    assert (run.tally.n, run.tally.moved, run.unscored) == (2, 2, {"difficulty": 1})


def test_where_the_decisions_are_the_same_a_failover_holds_the_conversation_as_recorded():
    over = (Attempt(deployment="small-a", group="small", error="x"), Attempt(deployment="large-a", group="large"))
    talk = [past(0, 0.3, session="a", attempts=over), pinned(1, "large", "a", "a")]
    assert replayed(config(), talk).tally.moved == 0


def test_a_conversation_that_comes_back_is_as_recorded_again():
    free = {"pin": policy().pin, "order": ("small", "large")}
    talk = [past(0, 0.3, session="a"), past(1, 0.9, "large", session="a", pinned=Session(id="a", group="small"))]
    run = replayed(config(policy(0.25, **free)), [*talk, pinned(2, "large", "a", "a")])
    assert run.tally.by_group == {("small", "large"): 1}


# --- cascades and targets --------------------------------------------------------------------------------


def cascading() -> Config:
    route = Route(name="cheap", cascade=Cascade(first="small", then="large"))
    return config(replace(policy(), routes=(route,)))


def escalated(number: int = 0) -> Past:
    decision = Decision(policy="default", route="cheap", group="large", why="escalated", check="not_empty")
    calls = (
        Attempt(deployment="small-a", group="small", status=200, usage=Usage(input=1_000_000)),
        Attempt(deployment="large-a", group="large", status=200, usage=Usage(input=1_000_000)),
    )
    return past(number, None, "large", decision=decision, attempts=calls, checked=Checked(empty=True), cost=11.0)


def test_a_cascade_is_concluded_from_what_was_found_of_its_first_answer():
    run = replayed(cascading(), [escalated()], old=cascading())
    assert (run.tally.n, run.tally.moved) == (1, 0)
    assert run.tally.cost == [11.0, 11.0]


def test_a_cascade_that_was_not_asked_is_left_out_as_nobody_knows_where_it_would_end():
    run = replayed(cascading(), [past(0), escalated(1)])
    assert (run.tally.n, run.unverified) == (1, 1)
    assert "1 left out: a cascade" in Report(run, Limits(), []).text()


def test_a_threshold_that_a_target_had_moved_holds_only_where_there_is_still_a_target():
    load = Load(cuts={"difficulty": Cut(base=0.5, at=0.2)})
    moved = past(0, 0.3, "large", load=load)
    assert replayed(config(), [moved]).tally.moved == 1
    assert replayed(config(digest="old"), [moved]).tally.moved == 0


def test_a_conversation_that_was_on_a_canary_stays_on_it_while_there_is_one():
    tried = replace(policy(0.25), name="tried", models=("auto-tried",))
    base = policy(canary=Canary(policy="tried", share=0.1))
    with_canary = replace(config(base), policies={"default": base, "tried": tried})
    decision = Decision(policy="tried", route="difficulty", group="large", why="score", score=0.3)
    on_it = past(0, 0.3, "large", policy="tried", decision=decision)
    assert replayed(with_canary, [on_it, past(1, 0.3)]).tally.moved == 0
    assert replayed(config(), [on_it, past(1, 0.3)]).tally.by_group == {("large", "small"): 1}


# --- quality ---------------------------------------------------------------------------------------------


def judged(of: Config, count: int, seed: int, share: float = 0.5, **how: Any) -> list[Past]:
    chance = random.Random(seed)
    return [
        Past(record=one.record, quality=float(chance.random() < one.quality) if chance.random() < share else None)
        for one in traffic.traffic(of, count, seed, **how)
    ]


def truth(old: Config, new: Config, count: int, seed: int) -> float:
    means = [sum(one.quality for one in traffic.traffic(of, count, seed)) / count for of in (old, new)]
    return means[1] - means[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_exploring_the_interval_holds_the_difference_that_there_is(exploring: Config, lower: Config, seed: int):
    run = replayed(lower, judged(exploring, 4000, seed))
    found = run.evidence.estimate(run.tally.n, run.tally.moved)
    assert isinstance(found, Quality)
    assert found.low <= truth(exploring, lower, 8000, 77) <= found.high
    assert found.effective > 100
    plain = found.inverse_propensity
    assert plain is not None
    assert found.high - found.low < plain.high - plain.low < 0.2


def test_without_exploring_there_is_no_figure_and_it_says_what_to_do(tmp_path: Any, lower: Config):
    certain = made_up(tmp_path, traffic.POLICY)
    run = replayed(lower, judged(certain, 1500, 1, share=1.0))
    found = run.evidence.estimate(run.tally.n, run.tally.moved)
    assert isinstance(found, Unknown)
    assert "explore" in found.why
    told = report(run, min_quality=-0.5)
    assert told["quality"] is None
    assert told["not_enough_evidence"]["judged"] == found.judged
    assert not told["ok"]


def test_moves_within_a_conversation_that_chance_never_makes_are_not_guessed_at(exploring: Config, lower: Config):
    run = replayed(lower, judged(exploring, 1500, 1, share=1.0, drift=0.15))
    assert isinstance(run.evidence.estimate(run.tally.n, run.tally.moved), Unknown)


def test_a_few_judgements_are_not_enough_and_their_weight_is_told(exploring: Config, lower: Config):
    run = replayed(lower, judged(exploring, 1500, 1, share=0.02))
    found = run.evidence.estimate(run.tally.n, run.tally.moved)
    assert isinstance(found, Unknown)
    assert "are needed" in found.why
    assert found.effective < 30


def test_what_does_not_move_does_not_change_quality(exploring: Config):
    run = replayed(exploring, judged(exploring, 500, 1))
    found = run.evidence.estimate(run.tally.n, run.tally.moved)
    assert isinstance(found, Quality)
    assert (found.difference, found.low, found.high) == (0.0, 0.0, 0.0)


def test_answers_of_both_groups_that_were_judged_need_no_chance():
    labels = [{"small": 0.4, "large": 0.4 + 0.01 * (i % 20)} for i in range(80)]
    run = replayed(config(policy(0.25)), [past(i, 0.3, labels=labels[i]) for i in range(80)])
    found = run.evidence.estimate(80, 80)
    assert isinstance(found, Quality)
    assert found.method == "both answers judged"
    assert found.difference == pytest.approx(0.095)
    assert found.low < 0.095 < found.high


def by_chance(count: int = 200) -> Evidence:
    """Half went to each group by chance; the small one's answers are worth 0.4, the large one's 0.8."""
    evidence = Evidence()
    for i in range(count):
        group, other = ("small", "large") if i % 2 else ("large", "small")
        did = Decision(policy="p", route="r", group=group, why="score", propensity=0.5, other=other)
        quality = 0.4 if group == "small" else 0.8
        evidence.add(f"c{i}", None, did, {"small": 1.0}, {"large": 1.0}, quality=quality, score=0.5)
    return evidence


def test_each_answer_weighs_as_the_inverse_of_its_chance():
    found = by_chance().estimate(200, 200)
    assert isinstance(found, Quality)
    assert found.inverse_propensity is not None
    assert found.inverse_propensity.difference == pytest.approx(0.4)
    assert found.difference == pytest.approx(0.4, abs=0.01)
    assert found.effective == pytest.approx(100)
    assert (found.low, found.high) == pytest.approx((0.4, 0.4), abs=0.05)


def test_an_answer_that_a_failover_gave_says_nothing_of_the_group_decided_on():
    over = (Attempt(deployment="small-a", group="small", error="x"), Attempt(deployment="large-a", group="large"))
    run = replayed(config(policy(0.25)), [past(0, 0.3, attempts=over, quality=1.0)])
    assert run.evidence.judged == []


def test_the_chances_of_a_decision_are_those_that_it_names():
    made = Decision(policy="p", route="r", group="a", why="explore", propensity=0.1, other="b")
    assert chances(made) == {"a": 0.1, "b": 0.9}
    assert chances(Decision(policy="p", route="r", group="a", why="score")) == {"a": 1.0}
    assert chances(None) == {}


def test_the_answers_of_one_conversation_are_not_independent():
    """Ten equal answers of one conversation are one answer."""
    apart, together = Evidence(), Evidence()
    for i in range(400):
        group, other = ("small", "large") if i % 2 else ("large", "small")
        did = Decision(policy="p", route="r", group=group, why="score", propensity=0.5, other=other)
        quality = float(i % 4 < 2)
        apart.add(f"c{i}", None, did, {"small": 1.0}, {"large": 1.0}, quality=quality, score=0.5)
        for j in range(10):  # later requests of the conversation that are pinned
            later = did if j == 0 else Decision(policy="p", route="pin", group=group, why="pin")
            same = {group: 1.0}
            sides = ({"small": 1.0}, {"large": 1.0}) if j == 0 else (same, same)
            together.add(f"c{i}", None, later, *sides, quality=quality, score=None)
    one, many = apart.estimate(400, 400), together.estimate(4000, 4000)
    assert isinstance(one, Quality)
    assert isinstance(many, Quality)
    assert one.inverse_propensity is not None
    assert many.inverse_propensity is not None
    widths = [found.high - found.low for found in (one.inverse_propensity, many.inverse_propensity)]
    assert widths[0] == pytest.approx(widths[1], rel=0.01)


# --- limits ----------------------------------------------------------------------------------------------


def test_limits_are_passed_by_what_could_not_be_decided_too():
    three = [past(0, 0.2), past(1, 0.2), past(2, None)]
    told = report(replayed(config(), three), max_moved=0.3, max_cost=1.1)
    assert [(one["limit"], one["value"], one["ok"]) for one in told["limits"]] == [
        ("max-moved", pytest.approx(1 / 3), False),
        ("max-cost", None, False),
    ]


def test_cost_is_held_to_as_a_ratio():
    run = replayed(config(policy(0.25)), [past(0, 0.2), past(1, 0.3)])
    assert report(run, max_cost=5.0)["limits"][0]["value"] == pytest.approx(33 / 6)
    assert not report(run, max_cost=5.0)["ok"]
    assert report(run, max_cost=5.5, max_moved=0.5)["ok"]


def test_nothing_to_decide_is_within_no_limit():
    assert not report(replayed(config(), []), max_moved=0.5)["ok"]
    assert not report(replayed(config(), []), min_quality=-1.0)["ok"]


# --- lines -----------------------------------------------------------------------------------------------


def test_a_line_may_hold_a_judgement_a_label_of_each_group_or_feedback():
    line = records.encode(past().record)
    with_ = lambda more: read(line[:-1] + b"," + more + b"}")  # noqa: E731
    assert with_(b'"quality": 0.5').quality == 0.5
    assert with_(b'"feedback": {"score": 0.25, "label": "meh"}').quality == 0.25
    assert with_(b'"quality": 1, "feedback": {"score": 0.25}').quality == 1.0
    both = with_(b'"quality": {"small": 0.1, "large": 0.9}')
    assert (both.quality, both.labels) == (None, {"small": 0.1, "large": 0.9})
    assert read(line) == past()


@pytest.mark.parametrize("more", [b'"quality": 2', b'"quality": "good"', b'"feedback": {"score": -1}'])
def test_a_judgement_that_is_none_is_refused(more: bytes):
    with pytest.raises(msgspec.ValidationError):
        read(records.encode(past().record)[:-1] + b"," + more + b"}")


def test_an_explored_share_of_the_new_policy_counts_as_chance_and_not_as_its_decision():
    """What a policy does by chance tells of itself with the weight of that chance."""
    new = config(policy(0.25, explore=Explore(share=0.5, within=0.2)))
    run = replayed(new, [past(i, 0.3, "small", quality=0.5, draw=0.5 + 0.9 / 2**24) for i in range(10)])
    assert [one.weight for one in run.evidence.judged] == [(1.0, 0.5)] * 10
