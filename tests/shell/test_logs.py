"""The log: one line a request, and nothing in it that should not be."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from router import logs
from router.config import Config, Deployment, ScorerSpec
from router.types import Attempt, Decision, Record, Timing, Usage

log = logging.getLogger("pointsman.test")


class Log:
    """A configured log and what it wrote."""

    def __init__(self, form: str = "json") -> None:
        self.stream = io.StringIO()
        self.handler = logs.configure("debug", self.stream, form)

    @property
    def text(self) -> str:
        self.handler.flush()
        return self.stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def written() -> Iterator[Log]:
    yield from opened("json")


@pytest.fixture
def shown() -> Iterator[Log]:
    yield from opened("human")


def opened(form: str) -> Iterator[Log]:
    root = logging.getLogger()
    level = root.level
    made = Log(form)
    yield made
    root.removeHandler(made.handler)
    made.handler.close()
    root.setLevel(level)


def record(**given: Any) -> Record:
    fields: dict[str, Any] = {
        "id": "req-1",
        "time": 1.0,
        "policy": "default",
        "digest": "d",
        "dialect": "chat",
        "model": "auto",
        "stream": True,
        "signals": None,
        "decision": Decision(policy="default", route="difficulty", group="small", why="score", score=0.25),
        "attempts": (
            Attempt(deployment="small-a", group="small", error="upstream_unreachable"),
            Attempt(deployment="large-a", group="large", status=200),
        ),
        "usage": Usage(input=10, output=5),
        "timing": Timing(ttft_s=0.1, total_s=0.4),
        **given,
    }
    return Record(**fields)


def test_a_request_is_one_json_line_built_from_its_record(written: Log):
    logs.request(record())
    (line,) = written.lines
    expected = {
        "level": "info",
        "message": "request",
        "request_id": "req-1",
        "route": "difficulty",
        "why": "score",
        "score": 0.25,
        "group": "large",
        "deployment": "large-a",
        "outcome": "ok",
        "attempts": 2,
        "errors": ["upstream_unreachable"],
        "total_s": 0.4,
    }
    assert {key: line[key] for key in expected} == expected
    assert line["time"].endswith("Z")


def test_requests_and_other_lines_stand_in_the_order_in_which_they_came(written: Log):
    for number in range(3):
        log.info("before %d", number)
        logs.request(record(id=f"req-{number}"))
        logs.request(record(id=f"req-{number}b", attempts=()))
    own = [line.get("request_id") or line["message"] for line in written.lines]
    assert own == [name.format(n) for n in range(3) for name in ("before {}", "req-{}", "req-{}b")]
    assert "errors" not in written.lines[2]


def test_a_name_that_is_not_ascii_is_escaped_in_its_line_and_the_others_are_as_ever(written: Log):
    for policy in ("default", "größe\u2028", "default"):
        logs.request(record(policy=policy))
    assert written.text.isascii()
    assert [line["policy"] for line in written.lines] == ["default", "größe\u2028", "default"]


def test_a_line_of_the_gateway_carries_the_request_id_it_was_given(written: Log):
    log.warning("scorer %s failed", "judge", extra={"request_id": "req-2"})
    assert written.lines[0]["request_id"] == "req-2"
    assert written.lines[0]["message"] == "scorer judge failed"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_kind_of_line_end_in_a_value_begins_a_new_line(written: Log, end: str):
    log.warning("before%safter", end + '{"level":"error"}', extra={"request_id": f"a{end}b"})
    assert len(written.text.splitlines()) == 1
    assert written.lines[0]["request_id"] == f"a{end}b"


@pytest.mark.parametrize("end", ["\n", "\r", "\x1b[2J", "\x85", "\u2028"])
def test_a_terminal_sees_control_characters_escaped(shown: Log, end: str):
    log.warning("before%safter", end)
    assert len(shown.text.splitlines()) == 1
    assert end not in shown.text.rstrip("\n")


def test_a_person_reads_one_sentence_a_request(shown: Log):
    logs.request(record())
    assert (
        "ok: default/difficulty -> large/large-a score 0.25 after 2 attempts (small-a upstream_unreachable)"
        in shown.text
    )
    assert "req-1" in shown.text


def secretive() -> Config:
    return Config(
        policies={},
        models={},
        groups={},
        deployments={
            "a": Deployment(name="a", upstream="openai", api_key="canary-key/with+signs"),
            "b": Deployment(name="b", upstream="openai", base_url="https://user:canary-pass@host/v1?key=canary-query"),
            "c": Deployment(name="c", upstream="litellm", options={"nested": {"aws_secret_key": "canary-option"}}),
        },
        scorers={"judge": ScorerSpec(name="judge", kind="remote", options={"api_key": "canary-scorer"})},
        digest="d",
        store="redis://:canary%2Fredis@127.0.0.1/0",
    )


CANARIES = (
    "canary-key/with+signs", "canary-key%2Fwith%2Bsigns", "canary-pass", "canary-query", "canary-option",
    "canary-scorer", "canary/redis", "canary%2Fredis",
)  # fmt: skip


@pytest.mark.parametrize("form", ["json", "human"])
def test_X06_no_secret_of_the_configuration_is_in_any_line(form: str):
    for made in opened(form):
        logs.redact(secretive())
        for value in CANARIES:
            log.info("calling https://host/%s", value)
            log.warning("refused", extra={"answer": f"key {value} is wrong", "tried": [value], "at": Exception(value)})
            try:
                raise ValueError(f"no such key: {value}")
            except ValueError:
                log.exception("failed with %s", value)
        assert "refused" in made.text
        assert "canary" not in made.text
        assert logs.HIDDEN in made.text


def test_X06_a_key_of_the_configuration_before_stays_hidden(written: Log):
    logs.redact(secretive())
    logs.redact(Config(policies={}, models={}, groups={}, deployments={}, scorers={}, digest="e"))
    log.error("late answer: canary-key/with+signs")
    assert "canary" not in written.text


def test_words_that_stand_for_no_key_are_not_hidden(written: Log):
    logs.redact(
        Config(
            policies={},
            models={},
            groups={},
            deployments={"a": Deployment(name="a", upstream="openai", api_key="none")},
            scorers={},
            digest="d",
        )
    )
    log.info("there is none")
    assert written.lines[0]["message"] == "there is none"


def plain(level: int, message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("pointsman.test", level, __file__, 1, message, args, None)


def test_a_line_whose_arguments_do_not_fit_costs_only_itself():
    stream = io.StringIO()
    handler = logs.Handler(stream, logs.Json())
    for line in (plain(logging.INFO, "first"), plain(logging.INFO, "%d", "no number"), plain(logging.INFO, "last")):
        handler.handle(line)
    handler.flush()
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["first", "last"]
    assert handler.dropped == 1
    handler.close()


class Full(io.StringIO):
    def write(self, s: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_is_counted_and_does_not_raise():
    handler = logs.Handler(Full(), logs.Json())
    handler.handle(plain(logging.ERROR, "x"))
    handler.handle(plain(logging.INFO, "y"))
    handler.flush()
    assert handler.dropped == 2
    handler.close()


def test_warnings_do_not_wait_for_the_batch():
    stream = io.StringIO()
    handler = logs.Handler(stream, logs.Json())
    handler.handle(plain(logging.WARNING, "now"))
    assert "now" in stream.getvalue()
    handler.close()
