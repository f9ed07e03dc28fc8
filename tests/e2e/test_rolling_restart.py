"""Two replicas behind a balancer that asks /readyz, restarted one after the other under load."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from pathlib import Path

import httpx
import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat, chat_stream
from tests.support.redis_server import redis_server
from tests.support.rig import groups
from tests.support.served import serving, write

WORDS = [f"w{i} " for i in range(10)]


class Balancer:
    """Sends to the replicas in turn that said they are ready when last asked, a fifth of a second ago; tries once."""

    def __init__(self) -> None:
        self.replicas: list[httpx.AsyncClient] = []
        self._ready: list[httpx.AsyncClient] = []
        self._turn = itertools.count()

    async def look(self) -> None:
        while True:
            self._ready = [replica for replica in self.replicas if await self._is_ready(replica)]
            await asyncio.sleep(0.2)

    async def _is_ready(self, replica: httpx.AsyncClient) -> bool:
        """A replica that does not say in time, on a machine with other work, is what it was."""
        try:
            return (await replica.get("/readyz", timeout=1.0)).status_code == 200
        except httpx.TimeoutException:
            return replica in self._ready
        except httpx.TransportError:
            return False

    def next(self) -> httpx.AsyncClient:
        return self._ready[next(self._turn) % len(self._ready)]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self._ready) < count:
                await asyncio.sleep(0.05)


async def load(balancer: Balancer, number: int, groups_seen: set[str], failures: list[str]) -> int:
    """A client that asks until it is cancelled, streamed and not, in one conversation."""
    done = 0
    while True:
        stream = done % 2 == 0
        body = {"model": "auto", "stream": stream, "messages": [{"role": "user", "content": "hello"}]}
        # The first request pins the conversation to the large group; those that follow would go to the small one.
        headers = {"x-session-id": f"c{number}", "x-score": "0.9" if done == 0 else "0.1"}
        try:
            reply = await balancer.next().post("/v1/chat/completions", json=body, headers=headers)
        except asyncio.CancelledError:
            return done
        except httpx.HTTPError as error:
            failures.append(f"{type(error).__name__} after {done}")
            continue
        if reply.status_code != 200 or (stream and not reply.content.endswith(b"data: [DONE]\n\n")):
            failures.append(f"{reply.status_code}: {reply.text[-200:]}")
        groups_seen.add(reply.headers.get("x-pointsman-group", "none"))
        done += 1
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
            continue
        return done


@pytest.mark.slow
async def test_F19_two_replicas_restarted_in_turn_under_load_fail_no_request_and_keep_conversations(
    tmp_path: Path,
) -> None:
    balancer, failures, seen = Balancer(), list[str](), set[str]()
    looking = asyncio.create_task(balancer.look())
    with redis_server(tmp_path) as redis:
        async with (
            ScriptedServer(
                lambda seen: chat_stream(WORDS, gap_s=0.05) if seen.json().get("stream") else chat("hi")(seen)
            ) as a,
            contextlib.AsyncExitStack() as stack,
        ):
            config = write(tmp_path, groups({"a": a, "b": a}, {"small": ["a"], "large": ["b"]}))
            running = []
            for number in range(2):
                folder = tmp_path / f"first-{number}"
                folder.mkdir()
                process, client, _ = await stack.enter_async_context(serving(folder, config, "--redis", redis.url))
                running.append((process, client))
                balancer.replicas.append(client)
            await balancer.until(2)
            asking = [asyncio.create_task(load(balancer, number, seen, failures)) for number in range(4)]
            await asyncio.sleep(1.0)
            for number, (process, client) in enumerate(running):
                process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(process.wait, 30) == 0
                balancer.replicas.remove(client)
                folder = tmp_path / f"second-{number}"
                folder.mkdir()
                _, fresh, _ = await stack.enter_async_context(serving(folder, config, "--redis", redis.url))
                balancer.replicas.append(fresh)
                await balancer.until(2)
            await asyncio.sleep(0.5)
            for task in asking:
                task.cancel()
            done = await asyncio.gather(*asking)
            looking.cancel()
    assert failures == []
    assert min(done) > 10
    assert seen == {"large"}, "each conversation kept its group, whichever replica answered"


@pytest.mark.slow
async def test_a_replica_that_drains_is_known_to_the_others_while_its_streams_run(tmp_path: Path) -> None:
    long = chat_stream(WORDS, gap_s=1.0)
    with redis_server(tmp_path) as redis:
        async with ScriptedServer(lambda _: long) as a, contextlib.AsyncExitStack() as stack:
            config = write(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]}))
            running = []
            for number in range(2):
                folder = tmp_path / str(number)
                folder.mkdir()
                running.append(await stack.enter_async_context(serving(folder, config, "--redis", redis.url)))
            (process, client, _), (_, _, other) = running
            asking = await stack.enter_async_context(httpx.AsyncClient(base_url=other, timeout=20))

            async def replicas() -> int:
                return len((await asking.get("/admin/config")).json()["replicas"])

            async with asyncio.timeout(60):
                while await replicas() != 1:
                    await asyncio.sleep(0.05)
                body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
                stream = asyncio.create_task(client.post("/v1/chat/completions", json=body))
                while not a.in_flight:
                    await asyncio.sleep(0.05)
                process.send_signal(signal.SIGTERM)
                while not stream.done():
                    if a.in_flight:
                        assert await replicas() == 1, "longer than the five seconds that a dead one is remembered"
                    await asyncio.sleep(0.2)
                assert (await stream).content.endswith(b"data: [DONE]\n\n")
                while await replicas():
                    await asyncio.sleep(0.05)
            assert await asyncio.to_thread(process.wait, 60) == 0
