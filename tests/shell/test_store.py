"""Sessions are remembered for their time and within their bound, and no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.errors import ConfigError
from router.store import build
from router.store.memory import MemoryStore
from router.types import Session
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.rig import groups, running


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_session_touched_is_found_and_an_unknown_one_is_not():
    store = MemoryStore()
    store.touch(Session(id="s", group="small"), 10.0)
    assert await store.session("s") == Session(id="s", group="small")
    assert await store.session("t") is None


async def test_a_session_is_forgotten_after_its_time_and_a_touch_begins_it_anew():
    clock = Clock()
    store = MemoryStore(clock=clock)
    store.touch(Session(id="s", group="small"), 10.0)
    clock.now = 9.0
    store.touch(Session(id="s", group="large"), 10.0)
    clock.now = 18.0
    assert await store.session("s") == Session(id="s", group="large")
    clock.now = 19.0
    assert await store.session("s") is None
    assert len(store) == 0


async def test_L19_a_hundred_thousand_conversations_stay_within_the_bound():
    store = MemoryStore(limit=1_000)
    for number in range(100_000):
        store.touch(Session(id=str(number)), 3600.0)
    assert len(store) == 1_000
    assert await store.session("99999") is not None
    assert await store.session("98999") is None


async def test_L19_expired_sessions_that_nobody_asks_for_go_as_others_come():
    clock = Clock()
    store = MemoryStore(clock=clock)
    for number in range(1_000):
        store.touch(Session(id=f"old-{number}"), 10.0)
    clock.now = 20.0
    for number in range(1_000):
        store.touch(Session(id=f"new-{number}"), 10.0)
    assert len(store) == 1_000


async def test_the_longest_unused_goes_first_and_reading_is_use():
    store = MemoryStore(limit=2)
    store.touch(Session(id="a"), 10.0)
    store.touch(Session(id="b"), 10.0)
    await store.session("a")
    store.touch(Session(id="c"), 10.0)
    assert await store.session("b") is None
    assert await store.session("a") is not None


async def test_no_store_configured_is_memory_and_an_unknown_kind_is_refused_by_name():
    assert isinstance(build(None), MemoryStore)
    with pytest.raises(ConfigError, match=r"groups\.yaml:1:1: store: no store of kind 'mongodb'"):
        build("mongodb://127.0.0.1/")


class Down:
    """A store that cannot be reached."""

    def __init__(self) -> None:
        self.asked = 0

    async def session(self, session_id: str) -> Session | None:
        self.asked += 1
        raise ConnectionError

    def touch(self, session: Session, ttl_s: float) -> None:
        self.asked += 1

    async def aclose(self) -> None:
        pass


async def test_a_store_that_is_down_costs_the_pin_and_not_the_request(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("fine")) as a,
        running(tmp_path, groups({"a": a, "b": a}, {"small": ["a"], "large": ["b"]})) as rig,
    ):
        store = rig.gateway.service.store = Down()
        said = [{"role": "user", "content": "hello"}]
        for score, group in ((0.9, "large"), (0.1, "small")):
            headers = {"x-score": str(score), "x-session-id": "c"}
            body = {"model": "auto", "messages": said}
            reply = await rig.client.post("/v1/chat/completions", json=body, headers=headers)
            assert (reply.status_code, reply.headers["x-pointsman-group"]) == (200, group)
        assert store.asked == 4, "it is looked up and touched by each request"
        assert [record.outcome for record in await rig.records(2)] == ["ok", "ok"]
