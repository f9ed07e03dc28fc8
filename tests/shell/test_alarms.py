"""Alarms of drift: when they rise and fall, and who is told."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import httpx
import pytest

from router.config import Config, Policy, ScorerSpec
from router.judging.alarms import REFERENCE, WINDOW, Alarms, Reading
from router.metrics import Metrics
from router.quality.drift import Fallen
from router.tallies import SCORER_S
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.rig import groups, running

SLOW = len(SCORER_S) - 3
POLICY = Policy(name="default", models=("auto",), default="large")
CONFIG = Config(
    policies={"default": POLICY},
    models={},
    groups={},
    deployments={},
    scorers={"difficulty": ScorerSpec(name="difficulty", kind="lexical")},
    digest="d",
)


def reading(at: int, count: int, *, bucket: int = 5, abstained: int = 0, before: Reading | None = None) -> Reading:
    """Counts so far: `count` more scores in one tenth, answered within one bucket of time."""
    scores = list(before.scores) if before is not None else [0] * 11
    seconds = list(before.seconds) if before is not None else [0] * (len(SCORER_S) + 1)
    scores[at] += count
    seconds[bucket] += count
    return Reading(scores=scores, seconds=seconds, abstained=abstained + (before.abstained if before else 0))


def test_a_scorer_that_gives_other_scores_or_slower_ones_or_none_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics(CONFIG)
    alarms = Alarms(metrics, lambda: 7.0)
    first = reading(3, REFERENCE)
    alarms.scorers({"difficulty": first})
    same = reading(3, WINDOW, before=first)
    alarms.scorers({"difficulty": same})
    assert alarms.view() == []
    with caplog.at_level(logging.INFO, logger="pointsman.alarms"):
        shifted = reading(8, WINDOW, bucket=SLOW, abstained=50, before=same)
        alarms.scorers({"difficulty": shifted})
        assert {one["kind"] for one in alarms.view()} == {"score_drift", "scorer_latency", "abstentions"}
        assert all((one["of"], one["since"]) == ("difficulty", 7.0) for one in alarms.view())
        assert b'pointsman_alarm{kind="score_drift",of="difficulty"} 1.0' in metrics.render()
        alarms.scorers({"difficulty": reading(3, WINDOW, before=shifted)})
    assert alarms.view() == []
    assert b'pointsman_alarm{kind="score_drift",of="difficulty"} 0.0' in metrics.render()
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "is over" in line]) == 3
    assert any("spread otherwise than at first" in line for line in said)


def test_too_few_scores_say_nothing() -> None:
    alarms = Alarms(Metrics(CONFIG))
    alarms.scorers({"difficulty": reading(3, REFERENCE)})
    alarms.scorers({"difficulty": reading(8, WINDOW - 1, before=reading(3, REFERENCE))})
    assert alarms.view() == []


def test_quality_and_calibration_of_a_policy_are_told_with_their_numbers() -> None:
    alarms = Alarms(Metrics(CONFIG))
    alarms.policy("default", 0.2, Fallen(reference=-0.05, recent=-0.3, at=420, first=420))
    assert [one["kind"] for one in alarms.view()] == ["calibration", "quality"]
    assert "-0.300 over the newest" in alarms.view()[1]["why"]
    alarms.policy("default", 0.12, Fallen(reference=-0.05, recent=-0.05, at=None, first=420))
    assert [one["kind"] for one in alarms.view()] == ["calibration"], "it falls under a lower limit than it rises over"
    alarms.forget(("calibration",), [])
    assert alarms.view() == []


async def test_answers_of_another_model_raise_an_alarm_on_a_running_gateway(tmp_path: Path) -> None:
    async with ScriptedServer(chat("hi")) as server:
        yaml = groups({"a": server, "b": server}, {"small": ["a"], "large": ["b"]})
        async with running(tmp_path, yaml) as rig:
            await rig.ask(score=0.1)
            alarms = rig.gateway.judging.alarms
            alarms.served(rig.gateway.health.other_models)
            async with httpx.AsyncClient() as client:
                (shown,) = (await client.get(rig.admin + "/admin/quality")).json()["alarms"]
                assert (shown["kind"], shown["of"]) == ("served_model", "a")
                assert (
                    'pointsman_alarm{kind="served_model",of="a"} 1.0' in (await client.get(rig.admin + "/metrics")).text
                )
            alarms.served(rig.gateway.health.other_models)
            assert alarms.view() == []
            await asyncio.sleep(0)
