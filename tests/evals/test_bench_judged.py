"""A simulated deployment whose true gap of quality is known, and a model that is swapped without a word."""

from __future__ import annotations

from evals.bench import judged


def test_the_true_gap_is_within_the_intervals_and_a_swapped_model_is_noticed() -> None:
    world = judged.World(1500)
    found = judged.coverage(world, 12)
    for one in found.values():
        assert one["single_look"] >= 0.75, "of 12; 95% on average"
        assert one["every_look"] >= 0.9
    worse = judged.swapped(world, "for Llama-2-7b", 5)
    assert worse["alarms"] == 1.0
    assert worse["median"] <= 600
    assert judged.swapped(world, "not at all", 5)["alarms"] <= 0.2
