"""Configurations that change under requests in flight: nothing is dropped, nothing is counted wrongly."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from router.config import Config, Deployment
from router.health import Health
from router.policy_files import read_directory
from router.seams import Others
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Step, chat, chat_stream, status
from tests.support.rig import Rig, groups, running, text

WORDS = [f"w{i} " for i in range(20)]


async def put(rig: Rig, groups_yaml: str) -> None:
    """Put another groups.yaml in force."""
    (rig.config / "groups.yaml").write_text(groups_yaml)
    assert await rig.gateway.reload()


async def gauge(rig: Rig, line: str) -> list[str]:
    async with httpx.AsyncClient() as client:
        shown = (await client.get(f"{rig.admin}/metrics")).text
    return [found for found in shown.splitlines() if found.startswith(line)]


async def until_called(server: ScriptedServer) -> None:
    while not server.visits:
        await asyncio.sleep(0.01)


async def test_F20_a_stream_outlives_two_reloads_of_which_only_the_second_drops_its_deployment(tmp_path: Path) -> None:
    async with ScriptedServer(lambda seen: chat_stream(WORDS, gap_s=0.05)) as a, ScriptedServer(chat("other")) as b:
        before = groups({"a": a}, {"small": ["a"], "large": ["a"]})
        async with running(tmp_path, before) as rig:
            streaming = asyncio.create_task(rig.events())
            await until_called(a)
            await put(rig, before + "# a comment\n")
            await put(rig, groups({"b": b}, {"small": ["b"], "large": ["b"]}))
            events = await streaming
            assert text(events) == "".join(WORDS)
            assert events[-1] == "[DONE]"
            assert (await rig.ask()).status_code == 200
            assert len(b.visits) == 1


async def test_the_connections_of_a_dropped_deployment_are_closed_once_its_streams_have_ended(tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda seen: chat_stream(WORDS, gap_s=0.02)) as a,
        ScriptedServer(chat("other")) as b,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        streaming = asyncio.create_task(rig.events())
        await until_called(a)
        await put(rig, groups({"b": b}, {"small": ["b"], "large": ["b"]}))
        await streaming
        async with asyncio.timeout(20):
            while len(rig.gateway.snapshot.upstreams) > 1 or a.in_flight:
                await asyncio.sleep(0.01)


async def test_the_in_flight_gauge_never_goes_below_zero_when_a_busy_deployment_leaves_the_files(
    tmp_path: Path,
) -> None:
    async with ScriptedServer(lambda seen: chat_stream(WORDS, gap_s=0.03)) as a, ScriptedServer(chat("other")) as b:
        before = groups({"a": a}, {"small": ["a"], "large": ["a"]})
        async with running(tmp_path, before) as rig:
            streaming = asyncio.create_task(rig.events())
            await until_called(a)
            await put(rig, groups({"b": b}, {"small": ["b"], "large": ["b"]}))
            await put(rig, before)
            await streaming
            shown = await gauge(rig, "pointsman_in_flight{")
            assert shown, "the gauge is shown"
            assert all(float(line.rsplit(" ", 1)[1]) == 0.0 for line in shown), shown
            assert rig.gateway.health.of("a", 0.0)["in_flight"] == 0


BAD = {
    "empty": "",
    "half written": "version: 1\ngroups:\n  small: {deplo",
    "an unknown key": "version: 1\ngroups: {}\ndeployments: {}\ncolour: red\n",
    "an unset variable": 'version: 1\nstore: "${NO_SUCH_VARIABLE_HERE}"\ngroups: {}\ndeployments: {}\n',
    "a tag": "version: !!python/object/apply:os.getcwd []\n",
    "an alias bomb": "version: 1\na: &a [x, x]\n"
    + "".join(f"b{i}: &b{i} [*{n}, *{n}]\n" for i, n in enumerate(["a", *[f"b{k}" for k in range(24)]])),
    "a port beyond all ports": "version: 1\ngroups: {small: {deployments: [a]}, large: {deployments: [a]}}\n"
    'deployments: {a: {upstream: openai, base_url: "http://127.0.0.1:99999/v1", model: m}}\n',
    "an upstream that is not installed": "version: 1\ngroups: {small: {deployments: [a]}, large: {deployments: [a]}}\n"
    "deployments: {a: {upstream: local, path: /no/such.gguf}}\n",
    "a directory": None,
}


@pytest.mark.parametrize("name", BAD)
async def test_F21_a_refused_file_changes_nothing_and_the_next_good_one_is_taken(tmp_path: Path, name: str) -> None:
    async with ScriptedServer(chat("hi")) as a:
        good = groups({"a": a}, {"small": ["a"], "large": ["a"]})
        async with running(tmp_path, good) as rig:
            digest = rig.gateway.snapshot.config.digest
            file, bad = rig.config / "groups.yaml", BAD[name]
            file.unlink()
            if bad is None:
                file.mkdir()
            else:
                file.write_text(bad)
            assert not await rig.gateway.reload()
            assert rig.gateway.last_error is not None
            assert "groups.yaml:" in rig.gateway.last_error
            assert await gauge(rig, "pointsman_config_reload_ok") == ["pointsman_config_reload_ok 0.0"]
            assert (await rig.ask()).headers["x-pointsman-policy"] == f"default@{digest[:12]}"
            if bad is None:
                file.rmdir()
            await put(rig, good + "# mended\n")
            assert (await rig.ask()).headers["x-pointsman-policy"] != f"default@{digest[:12]}"
            assert await gauge(rig, "pointsman_config_reload_ok") == ["pointsman_config_reload_ok 1.0"]


async def test_a_scorer_whose_model_is_not_there_is_refused_at_its_name(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        (rig.config / "scorers.yaml").write_text("version: 1\nscorers: {difficulty: {kind: lexical, artifact: /no}}\n")
        assert not await rig.gateway.reload()
        assert rig.gateway.last_error is not None
        assert "scorers.yaml:1:1: scorers.difficulty: artifact: cannot read /no" in rig.gateway.last_error
        assert await gauge(rig, "pointsman_config_reload_ok") == ["pointsman_config_reload_ok 0.0"]
        assert (await rig.ask()).status_code == 200


async def test_a_pipe_among_the_files_neither_stops_a_reload_nor_the_next(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        os.mkfifo(rig.config / "pipe.yaml")
        async with asyncio.timeout(20):
            assert not await rig.gateway.reload()
            (rig.config / "pipe.yaml").unlink()
            assert await rig.gateway.reload()


def swap(file: Path, content: str) -> None:
    """The whole file at once, as a careful editor writes it."""
    beside = file.with_name(f".{file.name}.tmp")
    beside.write_text(content)
    beside.replace(file)


async def asked(rig: Rig, until: asyncio.Event) -> list[tuple[int, str, str, str]]:
    """Requests one after another until the event: status, policy and digest, deployment, and what was answered."""
    seen: list[tuple[int, str, str, str]] = []
    while not until.is_set():
        reply = await rig.ask()
        said = reply.json()["choices"][0]["message"]["content"] if reply.status_code == 200 else reply.text
        headers = reply.headers
        place = (headers.get("x-pointsman-policy", ""), headers.get("x-pointsman-deployment", ""))
        seen.append((reply.status_code, *place, said))
    return seen


async def test_G01_under_load_a_file_that_names_an_unknown_group_fails_no_request(tmp_path: Path) -> None:
    async with ScriptedServer(chat("hi")) as a:
        files = groups({"a": a}, {"small": ["a"], "large": ["a"]})
        async with running(tmp_path, files) as rig:
            before = rig.gateway.snapshot.config.digest
            policy = rig.config / "default.yaml"
            good, done = policy.read_text(), asyncio.Event()
            clients = [asyncio.create_task(asked(rig, done)) for _ in range(4)]
            for _ in range(5):
                swap(policy, good.replace("group: large", "group: nowhere"))
                assert not await rig.gateway.reload()
                assert "there is no group 'nowhere'" in (rig.gateway.last_error or "")
                await asyncio.sleep(0.02)
            assert await gauge(rig, "pointsman_config_reload_ok") == ["pointsman_config_reload_ok 0.0"]
            done.set()
            seen = [one for answers in await asyncio.gather(*clients) for one in answers]
    assert len(seen) > 20
    assert {(status, named) for status, named, _, _ in seen} == {(200, f"default@{before[:12]}")}


async def test_G04_while_the_files_flip_each_request_holds_one_configuration_retries_included(tmp_path: Path) -> None:
    """Two configurations under which small means two different places; one of each always fails before content."""
    async with (
        ScriptedServer(chat("from a")) as a,
        ScriptedServer(chat("from b")) as b,
        ScriptedServer(lambda seen: status(500)) as broken,
    ):
        servers = {"a": a, "b": b, "broken": broken}
        sides = [groups(servers, {"small": ["broken"], "large": [name]}) for name in ("a", "b")]
        async with running(tmp_path, sides[0]) as rig:
            done = asyncio.Event()
            clients = [asyncio.create_task(asked(rig, done)) for _ in range(4)]
            digests: dict[str, str] = {rig.gateway.snapshot.config.digest[:12]: "a"}
            for flip in range(1, 21):
                swap(rig.config / "groups.yaml", sides[flip % 2])
                assert await rig.gateway.reload()
                digests[rig.gateway.snapshot.config.digest[:12]] = "ab"[flip % 2]
                await asyncio.sleep(0.05)
            done.set()
            seen = [one for answers in await asyncio.gather(*clients) for one in answers]
    assert len(digests) == 2
    assert {code for code, *_ in seen} == {200}
    for _, named, deployment, said in seen:
        side = digests[named.partition("@")[2]]
        assert (deployment, said) == (side, f"from {side}")
    assert {deployment for _, _, deployment, _ in seen} == {"a", "b"}


async def test_G06_a_cooldown_outlives_a_change_elsewhere_and_goes_with_its_deployment(tmp_path: Path) -> None:
    limited = status(429, {"retry-after": "60"})
    async with ScriptedServer(lambda seen: limited) as a, ScriptedServer(chat("hi")) as b:
        both = {"small": ["a", "b"], "large": ["b"]}
        async with running(tmp_path, groups({"a": a, "b": b}, both)) as rig:
            while not a.visits:  # ties are settled by chance
                await rig.ask()
            await put(rig, groups({"a": a, "b": b}, both) + "# elsewhere\n")
            kept = rig.gateway.snapshot.upstreams["a"]
            for _ in range(12):
                assert (await rig.ask()).headers["x-pointsman-deployment"] == "b"
            assert len(a.visits) == 1
            assert await gauge(rig, 'pointsman_deployment_up{deployment="a"}') == [
                'pointsman_deployment_up{deployment="a"} 0.0'
            ]
            await put(rig, groups({"b": b}, {"small": ["b"], "large": ["b"]}))
            await put(rig, groups({"a": a, "b": b}, both))
            assert rig.gateway.snapshot.upstreams["a"] is not kept
            while len(a.visits) == 1:
                await rig.ask()


@pytest.mark.parametrize(
    ("answer", "was", "is_"),
    [
        (status(401), "api_key: none", "api_key: sk-the-right-one"),
        (status(429, {"retry-after": "200"}), "model: m-a", "model: m-a-2"),
        (status(429, {"retry-after": "200"}), "/v1", "/v2"),
    ],
    ids=["another key", "another model", "another address"],
)
async def test_G06_a_deployment_that_is_mended_in_the_files_serves_at_once(
    tmp_path: Path, answer: Sequence[Step], was: str, is_: str
) -> None:
    async with ScriptedServer(lambda _: answer) as a, ScriptedServer(chat("hi")) as b:
        files = groups({"a": a, "b": b}, {"small": ["a"], "large": ["b"]})
        async with running(tmp_path, files) as rig:
            assert (await rig.ask()).headers["x-pointsman-deployment"] == "b"
            assert (await rig.ask()).headers["x-pointsman-attempts"] == "1", "it is out"
            a.script = chat("hello")
            await put(rig, files + "# elsewhere\n")
            assert (await rig.ask()).headers["x-pointsman-deployment"] == "b"
            await put(rig, files.replace(was, is_, 1))
            assert (await rig.ask()).headers["x-pointsman-deployment"] == "a"


async def test_G06_a_drained_deployment_that_is_changed_stays_drained(tmp_path: Path) -> None:
    async with ScriptedServer(chat("hi")) as a, ScriptedServer(chat("hi")) as b:
        files = groups({"a": a, "b": b}, {"small": ["a"], "large": ["b"]})
        async with running(tmp_path, files) as rig:
            await rig.client.post(f"{rig.admin}/admin/deployments/a/drain")
            await put(rig, files.replace("model: m-a", "model: m-a-2"))
            assert (await rig.ask()).headers["x-pointsman-deployment"] == "b"
            await rig.client.post(f"{rig.admin}/admin/deployments/a/undrain")
            assert (await rig.ask()).headers["x-pointsman-deployment"] == "a"


def test_G06_what_others_tell_of_the_place_that_a_deployment_was_is_not_believed() -> None:
    def of(url: str) -> Config:
        one = Deployment(name="a", upstream="openai", model="m", base_url=url)
        return Config(policies={}, models={}, groups={}, deployments={"a": one}, scorers={}, digest="d")

    told = Others(cooling={"a": 200.0}, limited=frozenset("a"))
    health = Health()
    health.use(of("http://old/v1"), 100.0)
    health.meet(told, 100.0)
    assert health.load(100.0).cooling == {"a": 300.0}
    health.use(of("http://new/v1"), 101.0)
    health.meet(told, 101.5)
    assert not health.load(101.5).cooling
    health.meet(told, 107.0)
    assert health.load(107.0).cooling == {"a": 307.0}, "by now they mean the new one"


def test_G04_files_that_are_swapped_while_they_are_read_are_all_old_or_all_new(tmp_path: Path) -> None:
    for version in ("1", "2"):
        folder = tmp_path / f"..{version}"
        folder.mkdir()
        for name in ("groups.yaml", "default.yaml"):
            (folder / name).write_text(version)
    (tmp_path / "..data").symlink_to("..1")
    for name in ("groups.yaml", "default.yaml"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    done = threading.Event()

    def swap() -> None:
        version = 1
        while not done.wait(0.002):
            version = 3 - version
            (tmp_path / "..tmp").symlink_to(f"..{version}")
            (tmp_path / "..tmp").rename(tmp_path / "..data")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        seen = [frozenset(read_directory(tmp_path).values()) for _ in range(3000)]
    finally:
        done.set()
        swapping.join()
    assert set(seen) == {frozenset([b"1"]), frozenset([b"2"])}
