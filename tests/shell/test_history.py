"""Configurations that were in force are kept, listed, shown and written back; a running gateway follows."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from router import history, policy_files
from router.cli import main
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.config_files import GROUPS, POLICY, write
from tests.support.rig import groups, running

LOWER = POLICY.replace("0.5", "0.4")
EXTRA = POLICY.replace("name: default", "name: extra").replace("[auto]", "[auto-extra]")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return write(tmp_path / "config")


def put(state: Path, config: Path, time: float = 1.0, how: history.How = "reload", **files: str | None) -> str:
    """Files come into force; their digest."""
    write(config, **files)
    version = history.keep(state, config, None, how, time)
    assert version is not None
    return version


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_each_configuration_is_kept_byte_for_byte_with_its_variables_unresolved(tmp_path: Path, config: Path):
    version = put(tmp_path, config)
    assert version == policy_files.load(config, {"SMALL_KEY": "a-secret"}).digest
    assert history.files(tmp_path, version) == {"default.yaml": POLICY.encode(), "groups.yaml": GROUPS.encode()}
    assert (tmp_path / "history" / "versions").stat().st_mode & 0o077 == 0


def test_history_lists_each_change_with_the_files_that_changed(tmp_path: Path, config: Path):
    first = put(tmp_path, config, 1_700_000_000.0, "start")
    second = put(tmp_path, config, 1_700_000_100.0, default=LOWER, extra=EXTRA)
    rows = json.loads(call("history", "--state", tmp_path, "--json").output)
    assert [(row["digest"], row["how"], row["changed"]) for row in rows] == [
        (first, "start", []),
        (second, "reload", ["~default.yaml", "+extra.yaml"]),
    ]
    text = call("history", "--state", tmp_path).output.splitlines()
    assert [line.split()[0] for line in text] == [first[:12], second[:12]]
    assert text[1].endswith("~default.yaml +extra.yaml")


def test_a_rollback_brings_back_no_key_that_was_revoked(tmp_path: Path, config: Path):
    keys = "version: 1\nkeys: {{{}}}\n"
    entries = [f"{name}: {{tenant: t, sha256: {digit * 64}}}" for name, digit in (("a", "1"), ("b", "2"))]
    both = keys.format(", ".join(entries))
    first = put(tmp_path, config, 1.0, keys=both)
    assert put(tmp_path, config, 2.0, keys=keys.format("")) == first, "keys come and go without a version"
    put(tmp_path, config, 3.0, default=LOWER)
    assert "keys.yaml" not in history.files(tmp_path, first)
    assert call("rollback", first[:12], "--config", config, "--state", tmp_path).exit_code == 0
    assert (config / "default.yaml").read_text() == POLICY
    assert (config / "keys.yaml").read_text() == keys.format("")


def test_a_restart_with_the_same_files_is_no_new_line(tmp_path: Path, config: Path):
    put(tmp_path, config, 1.0, "start")
    put(tmp_path, config, 2.0, "start")
    assert len(history.applied(tmp_path)) == 1


def test_files_that_changed_since_they_were_loaded_are_left_to_the_next_reload(tmp_path: Path, config: Path):
    assert history.keep(tmp_path, config, "0" * 64, "reload", 1.0) is None
    assert history.applied(tmp_path) == []


def test_only_the_newest_versions_stay(tmp_path: Path, config: Path):
    versions = [
        put(tmp_path, config, float(number), default=POLICY.replace("0.5", f"0.{number + 100}"))
        for number in range(history.KEPT + 3)
    ]
    assert history.files(tmp_path, versions[2]) == {}
    assert history.files(tmp_path, versions[3]) != {}
    rows = json.loads(call("history", "--state", tmp_path, "--json").output)
    assert [row["kept"] for row in rows] == [False] * 3 + [True] * history.KEPT


def test_a_line_that_was_cut_short_does_not_hide_the_others(tmp_path: Path, config: Path):
    put(tmp_path, config)
    with (tmp_path / "history" / "applied.jsonl").open("a") as log:
        log.write('{"time": 2.0, "dig')
    assert len(history.applied(tmp_path)) == 1


def test_show_prints_the_files_and_what_they_changed(tmp_path: Path, config: Path):
    put(tmp_path, config)
    version = put(tmp_path, config, default=LOWER)
    whole = call("history", "show", version[:12], "--state", tmp_path).output
    assert "# ===== default.yaml\n" in whole
    assert "${SMALL_KEY:-none}" in whole
    diff = call("history", "--state", tmp_path, "show", version[:8], "--diff").output
    changed = [line for line in diff.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert [line[0] for line in changed] == ["-", "+"]
    assert "below: 0.5" in changed[0]
    assert "below: 0.4" in changed[1]


@pytest.mark.parametrize("prefix", ["feed", "abc", "../../etc"])
def test_a_version_that_is_not_there_is_an_error_that_says_where_to_look(tmp_path: Path, config: Path, prefix: str):
    put(tmp_path, config)
    done = call("history", "show", prefix, "--state", tmp_path)
    assert done.exit_code == 1
    assert "there is no version" in done.output
    assert "pointsman history" in done.output


def test_rollback_writes_the_files_back_and_keeps_what_stood_there(tmp_path: Path, config: Path):
    first = put(tmp_path, config)
    write(config, default=LOWER, extra=EXTRA)
    (config / "README").write_text("not ours")
    done = call("rollback", first[:12], "--config", config, "--state", tmp_path)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in config.iterdir()) == ["README", "default.yaml", "groups.yaml"]
    assert policy_files.load(config, {}).digest == first
    _, _, undo = done.output.rpartition(" rollback ")
    assert undo.split()[1:] == ["--config", str(config), "--state", str(tmp_path)]
    assert call("rollback", *undo.split()).exit_code == 0
    assert (config / "default.yaml").read_text() == LOWER
    assert (config / "extra.yaml").exists()


def test_rollback_keeps_even_what_does_not_check(tmp_path: Path, config: Path):
    first = put(tmp_path, config)
    (config / "default.yaml").write_bytes(b"routes: [\xff")
    done = call("rollback", first, "--config", config, "--state", tmp_path)
    assert done.exit_code == 0, done.output
    assert (
        history.files(tmp_path, history.find(tmp_path, done.output.rpartition(" rollback ")[2].split()[0]))[
            "default.yaml"
        ]
        == b"routes: [\xff"
    )


def test_rollback_to_what_no_longer_checks_writes_nothing(tmp_path: Path, config: Path):
    bad = put(tmp_path, config, default=POLICY.replace("default: large", "default: gone"))
    write(config, default=LOWER)
    done = call("rollback", bad, "--config", config, "--state", tmp_path)
    assert done.exit_code == 1
    assert "there is no group 'gone'" in done.output
    assert (config / "default.yaml").read_text() == LOWER
    assert len(history.applied(tmp_path)) == 1


def test_rollback_to_what_stands_there_says_so(tmp_path: Path, config: Path):
    version = put(tmp_path, config)
    assert "already" in call("rollback", version, "--config", config, "--state", tmp_path).output


def test_a_rollback_that_cannot_write_a_file_has_changed_none(tmp_path: Path, config: Path):
    first = put(tmp_path, config)
    write(config, default=LOWER)
    (config / f".groups.yaml.{os.getpid()}.tmp").mkdir()  # where that file would be written first
    done = call("rollback", first, "--config", config, "--state", tmp_path)
    assert done.exit_code == 1
    assert "cannot write" in done.output
    assert (config / "default.yaml").read_text() == LOWER
    assert not list(config.glob(".default*"))


async def test_a_running_gateway_keeps_what_it_takes_and_follows_a_rollback(tmp_path: Path):
    async with ScriptedServer(chat("hi")) as upstream:
        files = groups({"a": upstream, "b": upstream}, {"small": ["a"], "large": ["b"]})
        async with running(tmp_path, files) as rig:
            state = tmp_path / "state"
            first = rig.gateway.snapshot.config.digest
            assert (await rig.ask(score=0.45)).headers["x-pointsman-group"] == "small"
            policy = rig.config / "default.yaml"
            policy.write_text(policy.read_text().replace("0.5", "0.4"))
            assert await rig.gateway.reload()
            assert (await rig.ask(score=0.45)).headers["x-pointsman-group"] == "large"
            second = rig.gateway.snapshot.config.digest
            policy.write_text("routes: [")
            assert not await rig.gateway.reload()
            assert [(line.digest, line.how) for line in history.applied(state)] == [
                (first, "start"),
                (second, "reload"),
            ]
            done = await asyncio.to_thread(call, "rollback", first[:12], "--config", rig.config, "--state", state)
            assert done.exit_code == 0, done.output
            for _ in range(100):
                if rig.gateway.snapshot.config.digest == first:
                    break
                await asyncio.sleep(0.05)
            assert (await rig.ask(score=0.45)).headers["x-pointsman-group"] == "small"
            assert [line.how for line in history.applied(state)] == ["start", "reload", "replaced", "reload"]


async def test_a_gateway_whose_state_folder_cannot_be_written_serves_without_a_history(tmp_path: Path):
    (tmp_path / "state").write_text("a file where the folder should be")
    async with ScriptedServer(chat("hi")) as upstream:
        files = groups({"a": upstream}, {"small": ["a"], "large": ["a"]})
        async with running(tmp_path, files) as rig:
            assert (await rig.ask()).status_code == 200
