"""When something is no longer what it was: distributions, calibration, quality, and alarms that do not flicker."""

from __future__ import annotations

from random import Random

import pytest

from router.quality.drift import PATIENCE, RECENT, REFERENCE, Limit, calibration, fallen, psi, quantile
from router.quality.estimates import Verdict
from router.quality.opinions import LEAST_EACH, Opinion, differences, heard
from tests.core.test_quality import sample

BEFORE, AFTER = (0.12, 0.05), (0.5, 0.03)  # chances that the small answer is worse, and better


def drawn(rng: Random, count: int, chances: tuple[float, float]) -> list[float]:
    worse, better = chances
    draws = (rng.random() for _ in range(count))
    return [-1.0 if draw < worse else (1.0 if draw < worse + better else 0.0) for draw in draws]


def test_a_stability_index_tells_another_distribution_from_chance() -> None:
    rng = Random(1)
    first = [0] * 10
    same, other = [0] * 10, [0] * 10
    for counts, mean, n in ((first, 0.4, 2000), (same, 0.4, 1000), (other, 0.6, 1000)):
        for _ in range(n):
            counts[min(9, int(rng.betavariate(mean * 5, (1 - mean) * 5) * 10))] += 1
    assert psi(first, same) < 0.1
    assert psi(first, other) > 0.25


def test_a_quantile_of_a_histogram_is_the_edge_that_holds_it() -> None:
    assert quantile([90, 8, 2], (0.01, 0.1), 0.95) == 0.1
    assert quantile([90, 0, 10], (0.01, 0.1), 0.95) == float("inf")
    assert quantile([0, 0, 0], (0.01, 0.1), 0.95) is None


def test_scores_that_mean_what_they_say_have_no_calibration_error() -> None:
    rng = Random(2)
    right, wrong = [], []
    for n in range(1000):
        score = rng.random()
        verdict: Verdict = "small_worse" if rng.random() < score else "same"
        right.append(sample(n, verdict, score=score))
        wrong.append(sample(n, verdict, score=min(1.0, score + 0.3)))
    low, high = calibration(right), calibration(wrong)
    assert low is not None
    assert high is not None
    assert low < 0.06
    assert high > 0.15
    assert calibration(right[:50]) is None


def test_a_worse_model_is_noticed_and_an_unchanged_one_is_not() -> None:
    rng = Random(3)
    took = []
    for _ in range(20):
        found = fallen(drawn(rng, 500, BEFORE) + drawn(rng, 400, AFTER))
        assert found.first is not None
        assert found.at == found.first, "it stays up while the model is the worse one"
        took.append(found.first - 500)
    assert min(took) > 0
    assert sorted(took)[17] <= 120
    quiet = [fallen(drawn(rng, 2500, BEFORE)).first for _ in range(20)]
    assert sum(at is not None for at in quiet) <= 2
    assert fallen(drawn(rng, REFERENCE - 1, AFTER)).reference is None
    assert PATIENCE > 1000


def test_the_alarm_falls_once_the_newest_answers_are_as_good_as_the_first_ones() -> None:
    rng = Random(4)
    repaired = drawn(rng, 500, BEFORE) + drawn(rng, 200, AFTER) + drawn(rng, 4 * RECENT, (0.08, 0.05))
    found = fallen(repaired)
    assert found.first is not None
    assert found.at is None


def test_an_alarm_does_not_flicker_around_its_limit() -> None:
    limit = Limit(rise=0.25, fall=0.1)
    up = False
    seen = []
    for value in (0.2, 0.26, 0.24, 0.2, None, 0.12, 0.1, 0.2):
        up = limit.holds(value, up)
        seen.append(up)
    assert seen == [False, True, True, True, True, True, False, False]


# --- feedback --------------------------------------------------------------------------------------------


def opinion(number: int, served: str, quality: float, propensity: float = 1.0) -> Opinion:
    return Opinion(
        id=f"r{number}", tenant="", time=float(number), policy="p", route="d", small="small", large="large",
        served=served, quality=quality, propensity=propensity, score=0.45,
    )  # fmt: skip


def test_feedback_compares_groups_only_where_chance_chose_between_them() -> None:
    rng = Random(5)
    explored = []
    for n in range(4000):
        large = rng.random() < 0.2
        good = rng.random() < (0.9 if large else 0.7)
        explored.append(opinion(n, "large" if large else "small", float(good), 0.2 if large else 0.8))
    found = heard(explored).explored
    assert found is not None
    assert found.low <= -0.2 <= found.high
    assert found.high < 0.0
    certain = [opinion(n, "small" if n % 2 else "large", 1.0) for n in range(400)]
    assert heard(certain).explored is None
    assert heard(certain).groups["small"].low > 0.9
    assert differences(explored[:LEAST_EACH]) == []


def test_differences_from_feedback_are_right_on_average_whatever_the_chances() -> None:
    rng = Random(6)
    means = []
    for _ in range(200):
        some = []
        for n in range(600):
            large = rng.random() < 0.1
            some.append(opinion(n, "large" if large else "small", 0.8 if large else 0.5, 0.1 if large else 0.9))
        values = [value for _, value in differences(some)]
        means.append(sum(values) / len(values))
    assert sum(means) / len(means) == pytest.approx(-0.3, abs=0.02)
