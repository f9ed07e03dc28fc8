"""`eval run --live` against a whole gateway in front of scripted models: what it asks, keeps, judges and reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from evals import asking, cases
from router.cli import main
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, Head, Script, Seen, Send, Step, status
from tests.support.rig import Rig, groups, running

ROWS = 40


def hard(prompt: str) -> bool:
    return prompt.startswith("Prove")


def prompts() -> dict[str, list[Any]]:
    asked = [f"Prove lemma {i} by induction on its length" if i % 2 else f"What is {i} plus 1?" for i in range(ROWS)]
    return {"prompt": asked, "right": [f"answer {i}" for i in range(ROWS)], "kind": [str(i % 2) for i in range(ROWS)]}


def said(seen: Seen) -> str:
    return str(seen.json()["messages"][-1]["content"])


def completion(text: str, *, input_: int = 100, output: int = 50) -> list[Step]:
    body = {
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": input_, "completion_tokens": output, "total_tokens": input_ + output},
    }  # fmt: skip
    return [Head(200, JSON), Send(json.dumps(body).encode())]


def model(knows: Callable[[str], bool]) -> Script:
    """A model that gives the right answer to the prompts that it knows."""
    right = dict(zip(*(prompts()[c] for c in ("prompt", "right")), strict=True))

    def script(seen: Seen) -> Sequence[Step]:
        prompt = said(seen)
        return completion(f"The answer is: {right[prompt]}." if knows(prompt) else "I do not know.")

    return script


def weak_knows(prompt: str) -> bool:
    return not hard(prompt)


def strong_knows(prompt: str) -> bool:
    return True


@asynccontextmanager
async def gateway(
    folder: Path, small: Script, large: Script, judge: Script | None = None
) -> AsyncIterator[tuple[Rig, list[ScriptedServer]]]:
    scripts = {"small": small, "large": large} | ({"judge": judge} if judge is not None else {})
    servers = {name: ScriptedServer(script) for name, script in scripts.items()}
    for server in servers.values():
        await server.start()
    files = groups({f"{n}-a": s for n, s in servers.items()}, {n: [f"{n}-a"] for n in servers})
    try:
        async with running(folder, files) as rig:
            yield rig, list(servers.values())
    finally:
        for server in servers.values():
            await server.stop()


async def ask(folder: Path, rig: Rig | None, *args: str, judge: str = "exact") -> Result:
    data = folder / "prompts.csv"
    if not data.exists():
        cases.write(data, prompts())
    url = f"http://127.0.0.1:{rig.port}" if rig is not None else "http://127.0.0.1:9"
    more = ("--reference", "right") if judge != "llm" else ()
    command = (
        "eval", "run", "--live", "--url", url, "--data", str(data), "--weak-model", "small", "--strong-model", "large",
        "--judge", judge, *more, "--out", str(folder / "out.jsonl"), "--json", str(folder / "r.json"), "--draws", "200",
    )  # fmt: skip
    return await asyncio.to_thread(CliRunner().invoke, main, [*command, *args])


async def test_both_groups_are_asked_judged_and_measured_with_costs_in_dollars(tmp_path: Path):
    async with gateway(tmp_path, model(weak_knows), model(strong_knows)) as (rig, servers):
        done = await ask(tmp_path, rig, "--price", "small=1:2", "--price", "large=10:30")
        assert done.exit_code == 0, done.output
        result = json.loads((tmp_path / "r.json").read_text())
        assert (result["n"], result["weak"], result["strong"]) == (ROWS, 0.5, 1.0)
        assert result["apgr_ci"][0] <= result["apgr"] <= result["apgr_ci"][1]
        assert result["dollars"]["per_1k"]["weak"] == pytest.approx(1e3 * (100 * 1 + 50 * 2) / 1e6)
        assert result["dollars"]["per_1k"]["strong"] == pytest.approx(1e3 * (100 * 10 + 50 * 30) / 1e6)
        assert result["dollars"]["output_tokens_from"]["small"] == "output_tokens:small"
        assert result["live"]["answers"] == 2 * ROWS
        assert result["live"]["failed"] == {}
        assert [len(s.visits) for s in servers] == [ROWS, ROWS]
        assert {v.seen.json()["model"] for v in servers[0].visits} == {"m-small-a"}
        assert f"rows answered and judged: {ROWS} of {ROWS}" in done.output
        table = cases.read(tmp_path / "out.jsonl")
        assert table.columns["correct:small"] == [float(i % 2 == 0) for i in range(ROWS)]
        assert table.columns["kind"] == prompts()["kind"]
        assert table.columns["answer:large"][3] == "The answer is: answer 3."


async def test_a_run_that_stops_goes_on_where_it_stopped_and_asks_nothing_twice(tmp_path: Path):
    calls = 0
    whole = model(strong_knows)

    def dies(seen: Seen) -> Sequence[Step]:
        nonlocal calls
        calls += 1
        return whole(seen) if calls <= 15 else status(404)

    async with gateway(tmp_path, model(weak_knows), dies) as (rig, servers):
        stopped = await ask(tmp_path, rig, "--concurrency", "1")
        assert stopped.exit_code == 1
        assert "run the same command again" in stopped.output
        assert "Traceback" not in stopped.output
        journal = tmp_path / "out.jsonl.answers.jsonl"
        with journal.open("ab") as f:
            f.write(b'{"kind":"answer","row":39,"mod')  # what a crash leaves
        servers[1].script = whole
        asked = [len(s.visits) for s in servers]
        done = await ask(tmp_path, rig, "--concurrency", "3")
        assert done.exit_code == 0, done.output
        assert [len(s.visits) - a for s, a in zip(servers, asked, strict=True)] == [ROWS - 16, ROWS - 15]
        assert json.loads((tmp_path / "r.json").read_text())["live"]["reused"] == 31
        assert sum(b'"kind": "answer"' in line for line in journal.read_bytes().splitlines()) == 2 * ROWS


async def test_other_data_or_settings_are_not_mixed_into_a_journal(tmp_path: Path):
    async with gateway(tmp_path, model(weak_knows), model(strong_knows)) as (rig, _):
        assert (await ask(tmp_path, rig)).exit_code == 0
        other = await ask(tmp_path, rig, "--system", "Be brief.")
        assert (other.exit_code, "other data or settings" in other.output) == (1, True)
        again = await ask(tmp_path, rig, judge="choice")  # another judge of the same answers
        assert "nothing to rank" in again.output


async def test_a_server_that_says_retry_after_is_asked_again_and_not_before(tmp_path: Path):
    whole, refused = model(weak_knows), 0

    def busy(seen: Seen) -> Sequence[Step]:
        nonlocal refused
        refused += 1
        return status(429, {"retry-after": "1"}) if refused == 1 else whole(seen)

    async with gateway(tmp_path, busy, model(strong_knows)) as (rig, servers):
        done = await ask(tmp_path, rig, "--concurrency", "1")
        assert done.exit_code == 0, done.output
        assert json.loads((tmp_path / "r.json").read_text())["live"]["failed"] == {}
        first, second = servers[0].visits[:2]
        assert second.started - first.started >= 1.0


async def test_a_row_that_a_model_refuses_is_left_out_and_told(tmp_path: Path):
    whole = model(weak_knows)

    def picky(seen: Seen) -> Sequence[Step]:
        return status(400, message="too long") if said(seen) == "What is 4 plus 1?" else whole(seen)

    async with gateway(tmp_path, picky, model(strong_knows)) as (rig, _):
        done = await ask(tmp_path, rig)
        assert done.exit_code == 0, done.output
        result = json.loads((tmp_path / "r.json").read_text())
        assert result["n"] == ROWS - 1
        assert list(result["live"]["failed"]) == ["4/small"]
        assert cases.read(tmp_path / "out.jsonl").columns["correct:small"][4] is None


async def test_a_model_judges_both_orders_and_a_liking_for_a_place_cancels_out(tmp_path: Path):
    seen_by_judge: list[str] = []

    def judge(seen: Seen) -> Sequence[Step]:
        text = said(seen)
        seen_by_judge.append(text)
        if "What is" in text:
            return completion("A")  # likes the first place
        return completion("B" if "do not know" in text.split("second answer>")[0] else "A")

    async with gateway(tmp_path, model(weak_knows), model(strong_knows), judge) as (rig, _):
        done = await ask(tmp_path, rig, "--judge-model", "judge", judge="llm")
        assert done.exit_code == 0, done.output
        result = json.loads((tmp_path / "r.json").read_text())
        table = cases.read(tmp_path / "out.jsonl")
        assert table.columns["correct:small"] == [0.5 if i % 2 == 0 else 0.0 for i in range(ROWS)]
        assert table.columns["correct:large"] == [0.5 if i % 2 == 0 else 1.0 for i in range(ROWS)]
        assert result["live"]["judge"]["ties"] == ROWS // 2
        assert len(seen_by_judge) == 2 * ROWS
        one = await ask(tmp_path, rig, "--judge-model", "small", judge="llm")
        assert "name a third" in one.output


async def test_the_labelled_file_trains_a_scorer(tmp_path: Path):
    async with gateway(tmp_path, model(weak_knows), model(strong_knows)) as (rig, _):
        assert (await ask(tmp_path, rig)).exit_code == 0
    command = ["eval", "train", "--data", str(tmp_path / "out.jsonl"), "--weak", "small", "--strong", "large"]
    done = await asyncio.to_thread(CliRunner().invoke, main, [*command, "--out", str(tmp_path / "artifact")])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "no gateway answers at http://127.0.0.1:9"),
        (("--reference", "wrong"), "no column 'wrong'"),
        (("--judge", "llm"), "needs --judge-model"),
        (("--judge", "regex", "--pattern", "("), "no regular expression"),
        (("--strong-model", "small"), "both 'small'"),
        (("--fields", "[1]"), "--fields wants a JSON object"),
        (("--sample", "5"), "at least 20"),
        (("--url", "localhost:8080"), "--url wants an address"),
    ],
)
async def test_a_mistake_is_told_before_anything_is_asked(tmp_path: Path, args: tuple[str, ...], says: str):
    done = await ask(tmp_path, None, *args)
    assert done.exit_code == 1
    assert says in done.output
    assert "Traceback" not in done.output


async def test_a_model_that_the_gateway_does_not_have_is_named_with_those_it_has(tmp_path: Path):
    async with gateway(tmp_path, model(weak_knows), model(strong_knows)) as (rig, servers):
        done = await ask(tmp_path, rig, "--strong-model", "huge")
        assert "no model 'huge'; it has" in done.output
        assert "small" in done.output
        assert [len(s.visits) for s in servers] == [0, 0]


@pytest.mark.parametrize(
    ("said", "waits"),
    [("2", 2.0), ("-1", 0.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("Wed, 21 Oct 2015 07:28:00 -0000", 0.0),
     ("soon", None), ("", None)],
)  # fmt: skip
def test_retry_after_is_read_as_seconds_or_as_a_date(said: str, waits: float | None):
    assert asking.retry_after({"retry-after": said}) == waits
