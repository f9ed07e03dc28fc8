"""A change of the files is noticed once it is complete, however it is made."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from router.errors import ConfigError
from router.policy_files import load, stamps, watch
from tests.support.config_files import GROUPS, POLICY, write

LIMIT_S = 20.0  # a test that waits this long fails; how soon a change is seen is measured elsewhere


class Seen:
    """Notices of changes, and what loading made of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notices: asyncio.Queue[str] = asyncio.Queue()

    async def on_change(self) -> None:
        try:
            self.notices.put_nowait(load(self.folder, {}).digest)
        except ConfigError:
            self.notices.put_nowait("refused")

    async def until(self, wanted: Callable[[str], bool]) -> str:
        async with asyncio.timeout(LIMIT_S):
            while not wanted(said := await self.notices.get()):
                pass
            return said


@contextlib.asynccontextmanager
async def watching(folder: Path, touched: str = "default.yaml") -> AsyncIterator[Seen]:
    """A running watch that has proved to be listening: it has noticed `touched`."""
    seen, stop = Seen(folder), asyncio.Event()
    task = asyncio.create_task(watch(folder, seen.on_change, stop))
    async with asyncio.timeout(LIMIT_S):
        while seen.notices.empty():
            (folder / touched).touch()
            await asyncio.sleep(0.1)
    try:
        yield seen
    finally:
        stop.set()
        await asyncio.wait_for(task, LIMIT_S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path)


async def test_a_rewritten_file_is_noticed(folder: Path) -> None:
    before = load(folder, {}).digest
    async with watching(folder) as seen:
        (folder / "default.yaml").write_text(POLICY.replace("0.5", "0.6"))
        after = await seen.until(lambda said: said not in (before, "refused"))
    assert after == load(folder, {}).digest


async def test_a_file_that_is_moved_into_place_is_noticed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = load(folder, {}).digest
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "new"
    elsewhere.write_text(GROUPS.replace("9001", "9009"))
    async with watching(folder) as seen:
        elsewhere.rename(folder / "groups.yaml")
        await seen.until(lambda said: said not in (before, "refused"))


async def test_F21_a_deleted_file_is_noticed_and_refused_and_the_next_valid_one_is_taken(folder: Path) -> None:
    before = load(folder, {}).digest
    async with watching(folder) as seen:
        (folder / "groups.yaml").unlink()
        await seen.until(lambda said: said == "refused")
        (folder / "groups.yaml").write_text(GROUPS)
        assert await seen.until(lambda said: said != "refused") == before


async def test_files_that_are_not_read_make_no_notice(folder: Path) -> None:
    async with watching(folder) as seen:
        await asyncio.sleep(1.0)  # the notices of the touching above
        while not seen.notices.empty():
            seen.notices.get_nowait()
        for name in (".default.yaml.swp", "default.yaml~", "notes.txt"):
            (folder / name).write_text("x")
        await asyncio.sleep(1.0)
        assert seen.notices.empty()
        (folder / "extra.yaml").write_text("x")
        await seen.until(lambda said: said == "refused")


async def test_a_mounted_config_map_is_noticed_when_its_link_is_swapped(tmp_path: Path) -> None:
    """Kubernetes keeps the files in a hidden folder, and swaps the link `..data` that the visible links go through."""
    mount = tmp_path / "mount"
    for number, port in (("1", "9001"), ("2", "9009")):
        version = mount / f"..version{number}"
        version.mkdir(parents=True)
        write(version, groups=GROUPS.replace("9001", port))
    (mount / "..data").symlink_to("..version1")
    for name in ("groups.yaml", "default.yaml"):
        (mount / name).symlink_to(f"..data/{name}")
    before = load(mount, {}).digest
    async with watching(mount, "more.yaml") as seen:
        (mount / "more.yaml").unlink()
        await seen.until(lambda said: said == before)
        (mount / "..data_tmp").symlink_to("..version2")
        (mount / "..data_tmp").rename(mount / "..data")
        await seen.until(lambda said: said not in (before, "refused"))
    assert load(mount, {}).deployments["small-a"].base_url.endswith("9009/v1")


async def test_a_directory_that_is_replaced_as_a_whole_is_noticed(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    before = load(write(config), {}).digest
    async with watching(config) as seen:
        config.rename(tmp_path / "old")
        await seen.until(lambda said: said == "refused")
        config.mkdir()
        write(config, default=POLICY.replace("0.5", "0.6"))
        await seen.until(lambda said: said not in (before, "refused"))
        (config / "default.yaml").write_text(POLICY)
        await seen.until(lambda said: said == before)


async def test_a_linked_directory_is_noticed_when_its_link_is_swapped(tmp_path: Path) -> None:
    for name, port in (("one", "9001"), ("two", "9009")):
        (tmp_path / name).mkdir()
        write(tmp_path / name, groups=GROUPS.replace("9001", port))
    current = tmp_path / "current"
    current.symlink_to("one")
    before = load(current, {}).digest
    async with watching(current) as seen:
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").rename(current)
        await seen.until(lambda said: said not in (before, "refused"))


async def test_a_linked_file_is_noticed_when_what_it_leads_to_changes(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "default.yaml").rename(elsewhere / "policy")
    (folder / "default.yaml").symlink_to(elsewhere / "policy")
    before = load(folder, {}).digest
    async with watching(folder) as seen:
        (elsewhere / "policy").write_text(POLICY.replace("0.5", "0.6"))
        await seen.until(lambda said: said not in (before, "refused"))


async def test_a_change_after_the_files_were_read_and_before_they_were_watched_is_noticed(folder: Path) -> None:
    seen, stop, read = Seen(folder), asyncio.Event(), stamps(folder)
    (folder / "default.yaml").write_text(POLICY.replace("auto", "other"))
    task = asyncio.create_task(watch(folder, seen.on_change, stop, seen=read))
    await seen.until(lambda said: said != "refused")
    stop.set()
    await asyncio.wait_for(task, LIMIT_S)


async def test_a_process_without_descriptors_left_notices_changes_once_it_has_some(folder: Path) -> None:
    code = """
import asyncio, os, resource, sys
from pathlib import Path
import anyio._backends._asyncio, watchfiles
from router.policy_files import watch

async def main():
    folder, noticed = Path(sys.argv[1]), asyncio.Event()
    async def on_change():
        noticed.set()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), most[1]))
    watching = asyncio.create_task(watch(folder, on_change))
    await asyncio.sleep(1.5)
    resource.setrlimit(resource.RLIMIT_NOFILE, most)
    noticed.clear()
    (folder / "default.yaml").write_text("x: 1")
    await asyncio.wait_for(noticed.wait(), 20)
    print("noticed", watching.done())
    os._exit(0)

asyncio.run(main())
"""
    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc to count descriptors in")
    made = await asyncio.create_subprocess_exec(sys.executable, "-u", "-c", code, str(folder), stdout=-1)
    said, _ = await asyncio.wait_for(made.communicate(), LIMIT_S * 2)
    assert said.strip() == b"noticed False"


async def test_a_directory_that_cannot_be_watched_any_more_is_looked_at_all_the_same(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    folder = write(real)
    linked = tmp_path / "linked"
    linked.symlink_to(folder)
    async with watching(linked) as seen:
        (tmp_path / "loop").symlink_to("loop")
        (tmp_path / "loop").rename(linked)  # a link to itself
        await seen.until(lambda said: said == "refused")
        (tmp_path / "again").symlink_to(folder)
        (tmp_path / "again").rename(linked)
        await seen.until(lambda said: said != "refused")
