"""Metrics agree with hand-worked cases and with a plain, slow way of computing them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals import metrics

WEAK = np.array([0.0, 0.0, 1.0, 1.0])
STRONG = np.array([1.0, 1.0, 1.0, 1.0])


def test_a_perfect_ranking_recovers_the_gap_in_the_first_half() -> None:
    score = np.array([0.9, 0.8, 0.2, 0.1])
    assert metrics.apgr(score, WEAK, STRONG) == pytest.approx(0.75)
    assert metrics.share_for(0.5, score, WEAK, STRONG) == pytest.approx(0.25)
    assert metrics.share_for(1.0, score, WEAK, STRONG) == pytest.approx(0.5)
    assert metrics.auroc(score, WEAK < 0.5) == 1.0


def test_a_scorer_that_always_says_the_same_is_as_good_as_random() -> None:
    same = np.full(4, 0.3)
    assert metrics.apgr(same, WEAK, STRONG) == pytest.approx(0.5)
    assert metrics.share_for(0.5, same, WEAK, STRONG) == pytest.approx(0.5)
    assert metrics.auroc(same, WEAK < 0.5) == 0.5


def test_ties_are_averaged_whatever_the_order_of_the_rows() -> None:
    score = np.array([0.9, 0.5, 0.5, 0.1])
    weak, strong = np.array([0.0, 0.0, 1.0, 1.0]), np.array([1.0, 1.0, 1.0, 0.0])
    forward = metrics.apgr(score, weak, strong)
    assert forward == pytest.approx(metrics.apgr(score[::-1], weak[::-1], strong[::-1]))
    swapped = [0, 2, 1, 3]
    assert forward == pytest.approx(metrics.apgr(score, weak[swapped], strong[swapped]))


def test_no_gap_has_no_apgr() -> None:
    assert np.isnan(metrics.apgr(np.arange(4.0), WEAK, WEAK))
    assert metrics.share_for(0.5, np.arange(4.0), WEAK, WEAK) is None


def test_auroc_needs_both_kinds() -> None:
    assert metrics.auroc(np.arange(3.0), np.ones(3, dtype=bool)) is None


def _slow_apgr(score: np.ndarray, weak: np.ndarray, strong: np.ndarray) -> float:
    """By the definition: walk down the distinct scores; inside one score the gain comes in evenly."""
    total, area, gained = float((strong - weak).sum()), 0.0, 0.0
    for value in sorted(set(score.tolist()), reverse=True):
        at = score == value
        gain = float((strong - weak)[at].sum())
        area += at.sum() / len(score) * (gained + gain / 2) / total
        gained += gain
    return area


ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=2, max_size=30
)


@settings(deadline=None)
@given(ROWS)
def test_apgr_is_its_definition_on_any_rows(rows: list[tuple[int, float, float]]) -> None:
    score, weak, strong = (np.array(c, dtype=float) for c in zip(*rows, strict=True))
    if abs(float((strong - weak).sum())) < 0.5:
        return
    assert metrics.apgr(score, weak, strong) == pytest.approx(_slow_apgr(score, weak, strong))


@settings(deadline=None, max_examples=20)
@given(ROWS)
def test_a_bootstrap_draw_is_apgr_of_the_drawn_rows(rows: list[tuple[int, float, float]]) -> None:
    score, weak, strong = (np.array(c, dtype=float) for c in zip(*rows, strict=True))
    drawn = metrics.bootstrap({"s": score}, weak, strong, seed=5, draws=4).draws["s"]
    rng = np.random.default_rng(5)
    picks = rng.integers(0, len(rows), size=(4, len(rows)))
    for value, pick in zip(drawn, picks, strict=True):
        if abs(float((strong - weak)[pick].sum())) < 0.5:
            assert np.isnan(value)
        else:
            assert value == pytest.approx(_slow_apgr(score[pick], weak[pick], strong[pick]))


def test_the_bootstrap_is_paired_so_equal_rankings_never_differ() -> None:
    rng = np.random.default_rng(0)
    score, weak = rng.random(200), (rng.random(200) < 0.5).astype(float)
    drawn = metrics.bootstrap({"a": score, "b": 10 * score}, weak, np.ones(200), seed=1, draws=200)
    difference = drawn.difference("a", "b")
    assert (difference.low, difference.high) == (0.0, 0.0)
    own = drawn.interval("a")
    assert own.low < metrics.apgr(score, weak, np.ones(200)) < own.high


def test_aiq_is_the_area_under_the_hull() -> None:
    assert metrics.aiq([(0.0, 0.5), (1.0, 1.0)]) == pytest.approx(0.75)
    assert metrics.aiq([(0.0, 0.5), (0.5, 1.0), (1.0, 0.8)]) == pytest.approx(0.875)
    assert metrics.aiq([(0.0, 0.5), (0.5, 0.6), (1.0, 1.0)]) == pytest.approx(0.75)  # a dip below the line is not used


def test_calibration_error_is_zero_when_scores_mean_what_they_say() -> None:
    score = np.repeat([0.25, 0.75], 400)
    outcome = np.tile([1.0, 0.0, 0.0, 0.0], 100).tolist() + np.tile([1.0, 1.0, 1.0, 0.0], 100).tolist()
    assert metrics.calibration_error(score, np.array(outcome), bins=2) == pytest.approx(0.0)
    assert metrics.calibration_error(score + 0.1, np.array(outcome), bins=2) == pytest.approx(0.1)
