"""`eval train --from-records`: traffic through a gateway, judged by its clients, becomes a scorer."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from evals import recorded
from evals.cases import BadData
from router import record
from router.cli import main
from router.scorers.lexical import Lexical
from router.types import Attempt, Decision, Prompt, Record, Score, Signals
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.rig import POLICY, groups, running

HARD = ("Prove that the sum of primes diverges", "Design a distributed lock", "Why does this deadlock under load?")
EASY = ("What is the capital of France?", "Tidy up this sentence: helo world", "Translate good night to Spanish")


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["eval", "train", *args])


def lines(
    n: int = 300, *, prompt: bool = True, feedback: bool = True, small_fails: bool = True, spread: bool = True
) -> list[dict[str, Any]]:
    """Records of a router that sends by chance, or, without `spread`, every hard prompt to large."""
    draw = random.Random(5)
    out: list[dict[str, Any]] = []
    for i in range(n):
        hard = i % 2 == 0
        group = draw.choice(["small", "large"]) if spread else "large" if hard else "small"
        right = draw.random() < (0.15 if hard and group == "small" else 0.9)
        made = Record(
            id=f"r{i}", time=float(i), policy="default", digest="d", dialect="chat", model="auto", stream=False,
            signals=Signals(), prompt=f"{draw.choice(HARD if hard else EASY)} ({i})" if prompt else None,
            decision=Decision(policy="default", route="r", group=group, why="score", score=0.8 if hard else 0.2),
            attempts=(Attempt(deployment=f"{group}-a", group=group, status=200),),
        )  # fmt: skip
        line = json.loads(record.encode(made))
        if feedback:
            line["feedback"] = {"score": float(right or not small_fails), "label": None}
        out.append(line)
    return out


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def hard_scores_higher(artifact: Path) -> bool:
    scorer = Lexical("x", artifact)
    found = [scorer.score(Prompt(text=p, signals=Signals())) for p in (*HARD, *EASY)]
    values = [s.value for s in found if isinstance(s, Score)]
    return len(values) == 6 and min(values[:3]) > max(values[3:])


async def test_traffic_that_clients_judged_trains_a_scorer(tmp_path: Path):
    draw = random.Random(1)
    async with ScriptedServer(chat("s")) as small, ScriptedServer(chat("l")) as large:
        files = groups({"small-a": small, "large-a": large}, {"small": ["small-a"], "large": ["large-a"]})
        async with running(tmp_path, files, POLICY + "record_prompts: true\n") as rig:
            opinions: list[dict[str, Any]] = []
            for i in range(240):
                hard, score = i % 2 == 0, draw.choice([0.1, 0.9])
                reply = await rig.ask(f"{draw.choice(HARD if hard else EASY)} ({i})", score=score)
                right = draw.random() < (0.15 if hard and score < 0.5 else 0.9)
                opinions.append({"request_id": reply.headers["x-pointsman-request-id"], "score": float(right)})
            await rig.records(240)  # written, so that no opinion waits for its record
            for said in opinions:
                assert (await rig.client.post("/v1/feedback", json=said)).status_code < 300
            await asyncio.to_thread(rig.gateway.recorder.flush)
            out = str(tmp_path / "records.jsonl")
            export = ["records", "export", "--out", out, "--state", str(tmp_path / "state")]
            assert (await asyncio.to_thread(CliRunner().invoke, main, export)).exit_code == 0
    done = await asyncio.to_thread(call, "--from-records", out, "--out", str(tmp_path / "a"))
    assert done.exit_code == 0, done.output
    assert "240 prompts" in done.output
    assert hard_scores_higher(tmp_path / "a")


def test_the_same_records_give_the_same_bytes_and_groups_may_have_other_names(tmp_path: Path):
    text = write(tmp_path / "r.jsonl", lines()).read_text().replace('"small', '"cheap').replace('"large', '"dear')
    (tmp_path / "r.jsonl").write_text(text)
    for name in "ab":
        done = call(
            "--from-records", str(tmp_path / "r.jsonl"), "--weak", "cheap", "--strong", "dear",
            "--out", str(tmp_path / name),
        )  # fmt: skip
        assert done.exit_code == 0, done.output
    (a,), (b,) = (list((tmp_path / name).iterdir()) for name in "ab")
    assert a.read_bytes() == b.read_bytes()
    assert (
        "only 0 prompts have a judged answer of the group 'small'"
        in call("--from-records", str(tmp_path / "r.jsonl"), "--out", str(tmp_path / "c")).output
    )


def test_the_estimated_gain_is_that_of_the_groups_although_the_router_chose_who_answers(tmp_path: Path):
    rows = lines(2000)
    kept = [r for i, r in enumerate(rows) if r["decision"]["group"] == "large" or i % 2 or i % 10 == 0]
    found = recorded.read([write(tmp_path / "r.jsonl", kept)], "small", "large")  # hard ones mostly went to large
    _, gain = recorded.estimate(found, lambda line: None)
    hard = np.array([p.startswith(HARD) for p in found.prompts])
    assert gain[hard].mean() == pytest.approx(0.75, abs=0.15)
    assert gain[~hard].mean() == pytest.approx(0.0, abs=0.1)


def test_a_logged_chance_is_used_and_a_prompt_asked_twice_is_one_row(tmp_path: Path):
    rows = lines(240)
    for row in rows:
        row["prompt"] = row["prompt"].rsplit(" (", 1)[0] + f" ({int(row['id'][1:]) % 120})"
        row["decision"]["propensity"] = 0.25
    found = recorded.read([write(tmp_path / "r.jsonl", rows * 2)], "small", "large")
    assert len(found.prompts) == len({r["prompt"] for r in rows})
    only_large = np.isnan(found.weak)
    chance, overlap = recorded.chance_of_strong(found)
    assert set(chance[only_large].tolist()) == {0.25}
    assert overlap == 1.0


def test_records_in_which_the_score_decided_alone_are_told_to_have_no_overlap(tmp_path: Path):
    said: list[str] = []
    found = recorded.read([write(tmp_path / "r.jsonl", lines(spread=False))], "small", "large")
    recorded.estimate(found, said.append)
    assert any("only one group could have served" in line for line in said)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "only 0 prompts"),
        (lines(3), "only"),
        (lines(prompt=False), "`record_prompts: true` in the policy"),
        (lines(feedback=False), "POST /v1/feedback"),
        (lines(small_fails=False), "has the score 1; nothing tells where it fails"),
        ([{"id": "x"}], "r.jsonl:1: not an exported record"),
        ([lines(1)[0] | {"feedback": {"score": 7}}], r"r.jsonl:1: not an exported record.*feedback"),
        ([lines(1)[0] | {"feedback": {"score": "good"}}], "r.jsonl:1: not an exported record"),
    ],
)
def test_records_that_teach_nothing_are_refused_with_what_is_missing(tmp_path: Path, rows: Any, says: str):
    with pytest.raises(BadData, match=says):
        recorded.read([write(tmp_path / "r.jsonl", rows)], "small", "large")


def test_a_file_that_is_not_there_or_torn_is_one_line(tmp_path: Path):
    absent = call("--from-records", str(tmp_path / "no.jsonl"), "--out", str(tmp_path / "a"))
    assert (absent.exit_code, "records export" in absent.output) == (1, True)
    (tmp_path / "r.jsonl").write_bytes(json.dumps(lines(1)[0]).encode() + b'\n{"id": "r1", "ti\xff')
    torn = call("--from-records", str(tmp_path / "r.jsonl"), "--out", str(tmp_path / "a"))
    assert (torn.exit_code, "r.jsonl:2" in torn.output, "Traceback" in torn.output) == (1, True, False)
