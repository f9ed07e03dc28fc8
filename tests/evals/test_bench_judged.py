"""A simulated deployment whose true gap of quality is known, and a model that is swapped without a word."""

from __future__ import annotations

from evals.bench import judged


def test_the_true_gap_is_within_the_intervals_and_a_swapped_model_is_noticed() -> None:
    rows = judged.Rows(1500)
    for near in (1, 8):
        for one in judged.coverage(judged.World(rows, near=near), near, 20):
            looks = [share for share in one.single_look.values() if share is not None]
            assert sum(looks) / len(looks) >= 0.89, "of 60 to 100; 95% on average"
            assert one.every_look >= 0.95
            assert one.once_half < one.half
    world = judged.World(rows)
    worse = judged.swapped(world, "for Llama-2-7b", 5)
    assert worse["alarms"] == 1.0
    assert worse["median"] <= 600
    assert judged.swapped(world, "not at all", 5)["alarms"] <= 0.2
