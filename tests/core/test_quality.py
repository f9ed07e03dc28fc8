"""Differences of quality from judged answers: how often their intervals are right, and what a judge's error costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from router.config import Band, Judge, Policy, Route, ScoreRule
from router.quality import sampling
from router.quality.estimates import Sample, Verdict, estimate
from router.quality.intervals import Floats, bootstrap, compared, effective, needed, once, sequence, wilson
from router.quality.judge_error import OUTCOMES, UNCORRECTED, WORTH, Correction, Outcome, correction
from router.types import Decision, Signals

# A judge that errs: verdicts by truth. It takes a fifth of the worse answers for the same, and finds small answers
# better that are not.
ERRING = {
    "small_worse": (0.65, 0.3, 0.05),
    "same": (0.05, 0.85, 0.1),
    "small_better": (0.05, 0.25, 0.7),
}
TRUE = (0.16, 0.78, 0.06)  # of the small group's answers: worse, same, better
VALUES: Floats = np.array([-1.0, 0.0, 1.0])


def sample(number: int, verdict: Verdict, **more: object) -> Sample:
    given: dict[str, object] = {
        "id": f"r{number}", "time": float(number), "policy": "p", "route": "d", "small": "small", "large": "large",
        "served": "small", "models": "m", "by": "judge", "propensity": 0.1, "rate": 0.1, "score": 0.3,
    }  # fmt: skip
    return Sample(verdict=verdict, **(given | more))  # pyright: ignore[reportArgumentType]


# --- intervals -------------------------------------------------------------------------------------------


def test_intervals_for_one_look_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    shares, means, many = 0, 0, 0
    runs = 1500
    for run in range(runs):
        n = int(rng.integers(150, 400))
        found = wilson(float(rng.binomial(n, 0.12)), n)
        shares += found.low <= 0.12 <= found.high
        drawn = rng.choice(VALUES, p=TRUE, size=n)
        weights = rng.choice([0.5, 2.0], size=n).tolist()
        one = bootstrap(drawn.tolist(), weights, seed=run, draws=400)
        means += one.low <= -0.1 <= one.high
        large = once(rng.choice(VALUES, p=TRUE, size=1200).tolist(), rng.choice([0.5, 2.0], size=1200).tolist(), run)
        many += large.low <= -0.1 <= large.high
    for covered in (shares, means, many):
        assert 0.93 <= covered / runs <= 0.97


# Verdicts far from the edge; near it twice as many are worse.
@pytest.mark.parametrize("shares", [TRUE, (0.25, 0.5, 0.25), (0.04, 0.93, 0.03)])
@pytest.mark.parametrize("n", [100, 400, 1500])
@pytest.mark.parametrize("near", [1, 2, 8])
def test_an_interval_for_one_look_at_weighted_differences_holds_at_every_size(
    shares: tuple[float, ...], n: int, near: int
) -> None:
    rng = np.random.default_rng(n + near)
    runs, right, share_near = 1500, 0, 0.25
    close: Floats = np.array([2 * shares[0], 1 - 2 * shares[0] - shares[2], shares[2]])
    rate = share_near * near + 1 - share_near
    truth = float(VALUES @ (share_near * close + (1 - share_near) * np.array(shares)))
    kinds = rng.random((runs, n)) < share_near * near / rate
    verdicts = np.where(
        kinds, rng.choice(VALUES, p=close, size=(runs, n)), rng.choice(VALUES, p=shares, size=(runs, n))
    )
    weights = np.where(kinds, rate / near, rate)
    for drawn, weigh in zip(verdicts, weights, strict=True):
        found = compared(drawn.tolist(), weigh.tolist())
        right += found.low <= truth <= found.high
    few = n / (rate * (share_near / near + 1 - share_near)) < 75  # effective samples
    assert 0.93 <= right / runs <= (1.0 if few or n * shares[0] < 10 else 0.97)  # wide where little is seen


def test_few_equal_pairs_prove_nothing() -> None:
    none = compared([0.0] * 50, [1.0] * 50)
    assert none.mean == 0.0
    assert none.low < -0.03, "one pair in thirty may well differ"
    assert none.high > 0.03
    assert (compared([], []).low, compared([], []).high) == (-1.0, 1.0)
    assert effective([2.0] * 50) == pytest.approx(50)
    assert effective([1.0] * 40 + [8.0] * 10) < 25


@pytest.mark.parametrize(("shares", "bound"), [(TRUE, 1.0), ((0.01, 0.985, 0.005), 1.0), (TRUE, 4.0)])
def test_a_confidence_sequence_holds_at_every_look(shares: tuple[float, ...], bound: float) -> None:
    rng = np.random.default_rng(2)
    runs, wrong = 150, 0
    truth = float(VALUES @ np.array(shares))
    for _ in range(runs):
        drawn = rng.choice(VALUES, p=shares, size=1000)
        if bound > 1:  # half the requests are rare among the samples, and weigh more
            weights = np.where(rng.random(1000) < 0.8, 0.625, 2.5)
            drawn = drawn * weights
        looks = (sequence(drawn[:n].tolist(), -bound, bound) for n in (5, 10, 20, 40, 80, 150, 300, 600, 1000))
        wrong += any(not look.low <= truth <= look.high for look in looks)
    assert wrong / runs <= 0.05


def test_a_confidence_sequence_narrows_and_does_not_depend_on_the_order() -> None:
    rng = np.random.default_rng(3)
    drawn: list[float] = rng.choice(VALUES, p=TRUE, size=2000).tolist()
    widths = [sequence(drawn[:n], -1, 1).half for n in (10, 100, 1000, 2000)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.04
    again, turned = sequence(drawn, -1, 1), sequence(drawn[::-1], -1, 1)
    assert (again.low, again.high) == pytest.approx((turned.low, turned.high))


def test_nothing_seen_means_anything_is_possible() -> None:
    assert (sequence([], -1, 1).low, sequence([], -1, 1).high) == (-1, 1)
    assert wilson(0, 0) == wilson(0, 0)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


def test_samples_still_needed_are_about_those_that_it_then_takes() -> None:
    rng = np.random.default_rng(4)
    drawn: list[float] = rng.choice(VALUES, p=TRUE, size=12_000).tolist()
    first = sequence(drawn[:300], -1, 1)
    more = needed(300, first.half, 0.0, 0.03)
    assert more is not None
    reached = sequence(drawn[: 300 + more], -1, 1)
    assert reached.half == pytest.approx(0.03, rel=0.25)
    assert needed(300, 0.02, 0.0, 0.03) == 0
    assert needed(300, 0.05, 0.03, 0.03) is None, "the labels alone leave that much open"
    assert needed(0, 1.0, 0.0, 0.02) is not None


# --- the judge's own error -------------------------------------------------------------------------------


def judged(rng: np.random.Generator, truth: Outcome) -> Outcome:
    return OUTCOMES[int(rng.choice(3, p=ERRING[truth]))]


def labelled(rng: np.random.Generator, each: int) -> list[tuple[Outcome, Outcome]]:
    return [(truth, judged(rng, truth)) for truth in OUTCOMES for _ in range(each)]


def test_a_corrected_difference_covers_the_truth_as_often_as_it_says_and_an_uncorrected_one_does_not() -> None:
    rng = np.random.default_rng(5)
    truth = float(VALUES @ np.array(TRUE))
    runs, once_right, always_right, naive_right = 400, 0, 0, 0
    for _ in range(runs):
        error = correction(labelled(rng, 100))
        assert isinstance(error, Correction)
        said = [judged(rng, OUTCOMES[int(t)]) for t in rng.choice(3, p=TRUE, size=1100)]
        samples = [sample(n, verdict) for n, verdict in enumerate(said)]
        found = estimate(samples, error=error).to_large
        assert found.once is not None
        once_right += found.once[0] <= truth <= found.once[1]
        always_right += found.low <= truth <= found.high
        naive = once([UNCORRECTED.worth[verdict] for verdict in said], [1.0] * len(said), seed=0)
        naive_right += naive.low <= truth <= naive.high
    assert 0.93 <= once_right / runs <= 0.97
    assert always_right / runs >= 0.95
    assert naive_right / runs < 0.6, "the correction is what makes it right"


def test_a_judge_that_never_errs_is_taken_at_its_word() -> None:
    found = correction([(outcome, outcome) for outcome in OUTCOMES for _ in range(20)])
    assert isinstance(found, Correction)
    assert found.worth == pytest.approx(WORTH)
    assert found.agreement == 1.0
    assert found.error({"same": 1.0}) > 0.0, "twenty pairs do not show that it never errs"


def test_a_judge_that_guesses_corrects_nothing_and_few_labels_neither() -> None:
    rng = np.random.default_rng(6)
    guesses = [(truth, OUTCOMES[int(rng.integers(3))]) for truth in OUTCOMES for _ in range(200)]
    assert "hardly tells" in str(correction(guesses))
    assert "small_better" in str(correction([("small_worse", "small_worse"), ("same", "same")] * 9))


# --- which are judged ------------------------------------------------------------------------------------

JUDGE = Judge(share=0.1, near_share=0.4, within=0.1, group="judge")
POLICY = Policy(
    name="p",
    models=("auto",),
    default="large",
    routes=(
        Route(name="images", when=None, group="vision"),
        Route(
            name="d",
            score=ScoreRule(scorer="s", bands=(Band(group="small", below=0.5, set={"a": 1}), Band(group="large"))),
            set={"b": 2},
        ),
    ),
    judge=JUDGE,
)


def decision(group: str = "small", route: str = "d", **more: object) -> Decision:
    return Decision(policy="p", route=route, group=group, why="score", **more)  # pyright: ignore[reportArgumentType]


def test_requests_near_the_edge_are_judged_more_often() -> None:
    near, far = decision(score=0.45, threshold=0.5), decision(score=0.1, threshold=0.5)
    assert (sampling.chance(JUDGE, near), sampling.chance(JUDGE, far)) == (0.4, 0.1)
    assert sampling.chance(JUDGE, decision()) == 0.1, "nothing to be near to"
    assert sampling.widest(JUDGE) == pytest.approx(4.0)
    assert sampling.widest(replace(JUDGE, near_share=None)) == 1.0


def test_requests_are_drawn_evenly_and_always_alike() -> None:
    draws = [sampling.draw(f"req_{n}") for n in range(4000)]
    assert abs(sum(draw < 0.2 for draw in draws) / 4000 - 0.2) < 0.02
    assert draws[7] == sampling.draw("req_7")


def test_an_answer_is_compared_with_the_other_end_of_its_route() -> None:
    small = sampling.arms(POLICY, decision())
    large = sampling.arms(POLICY, decision("large"))
    assert small is not None
    assert large is not None
    assert (small.other, large.other) == ("large", "small")
    alone = sampling.arms(POLICY, decision("vision", route="images"))
    assert alone is None or alone.served == "vision"
    kept = decision(within=("small",))
    assert sampling.arms(POLICY, kept) is None, "what a route keeps to itself is shown to nobody else"


def test_the_other_group_is_asked_as_its_band_would_ask_it() -> None:
    assert sampling.fields(POLICY, "d", "small") == {"a": 1, "b": 2}
    assert sampling.fields(POLICY, "d", "large") == {"b": 2}
    assert sampling.fields(POLICY, "pin", "large") == {}


@pytest.mark.parametrize(
    ("signals", "kind"),
    [
        (Signals(side_request=True, tools=3), "side"),
        (Signals(tools=3, code_share=0.9), "agent"),
        (Signals(code_share=0.9, language="de"), "code"),
        (Signals(language="de"), "language de"),
        (Signals(), "other"),
    ],
)
def test_a_request_is_of_one_domain(signals: Signals, kind: str) -> None:
    assert sampling.domain(signals) == kind


# --- estimates -------------------------------------------------------------------------------------------


def test_samples_weigh_what_they_stand_for() -> None:
    """Near the edge small answers are worse half of the time, elsewhere never; near ones are a fifth of all."""
    rng = np.random.default_rng(7)
    samples: list[Sample] = []
    rate = 0.2 * 0.4 + 0.8 * 0.1
    for n in range(40_000):
        near = bool(rng.random() < 0.2)
        propensity = 0.4 if near else 0.1
        if rng.random() < propensity:
            verdict: Verdict = "small_worse" if near and rng.random() < 0.5 else "same"
            samples.append(sample(n, verdict, propensity=propensity, rate=rate))
    found = estimate(samples, widest=4.0).to_large
    assert found.difference == pytest.approx(-0.1, abs=0.01)
    assert found.low <= -0.1 <= found.high
    plain = [replace_(one, propensity=0.1, rate=0.1) for one in samples]
    assert estimate(plain).to_large.difference < -0.2, "unweighted it would seem twice as bad"


def replace_(one: Sample, **more: float) -> Sample:
    from msgspec.structs import replace as replaced

    return replaced(one, **more)


def test_a_policy_loses_only_where_it_served_small_and_gains_only_where_it_served_large() -> None:
    worse = [sample(n, "small_worse") for n in range(60)]
    spared = [sample(100 + n, "small_worse", served="large") for n in range(40)]
    found = estimate([*worse, *spared])
    assert found.to_large.difference == pytest.approx(-0.6)
    assert found.to_small.difference == pytest.approx(0.4)
    assert (found.n, found.small_served, found.verdicts["small_worse"]) == (100, 60, 100)


def test_what_could_not_be_judged_is_counted_and_not_estimated_from() -> None:
    found = estimate([sample(0, "invalid"), sample(1, "same")])
    assert (found.n, found.verdicts["invalid"], found.to_large.once) == (1, 1, None)
    assert estimate([]).to_large.low == -1.0


def test_nothing_is_corrected_of_what_a_checker_found() -> None:
    error = correction([(t, v) for t in OUTCOMES for v, n in zip(OUTCOMES, (8, 1, 1), strict=True) for _ in range(n)])
    assert isinstance(error, str), "this judge says the same whatever the truth"
    rng = np.random.default_rng(8)
    erring = correction(labelled(rng, 300))
    assert isinstance(erring, Correction)
    by_checker = [sample(n, "small_worse", by="checker") for n in range(50)]
    assert estimate(by_checker, error=erring).to_large.difference == -1.0
