"""Where the gateway keeps what it remembers: the state folder, the records database, Redis."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from time import perf_counter, time
from urllib.parse import urlsplit

from router import state
from router.doctor.finding import Finding, fail, ok, warn
from router.errors import ConfigError

LOW, EMPTY = 2 * 2**30, 200 * 2**20  # bytes left on the state folder's disk; records may take 1 GiB
SLOW_S = 0.05  # as long as a request waits for Redis
SKEW_S = 60.0


def folder(path: Path) -> list[Finding]:
    """Whether the state folder can be written, by nobody else, and its disk has room."""
    there = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return [fail("state folder", f"{there} cannot be written", "chown it, or name another with --state")]
    findings: list[Finding] = []
    if there == path:
        findings.append(ok("state folder", f"{path} can be written"))
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            told = f"other users can look into {path}, where records are"
            findings.append(warn("state folder", told, f"chmod 700 {path}"))
    else:
        findings.append(ok("state folder", f"{path} is not there yet and can be made"))
    left = shutil.disk_usage(there).free
    if left < EMPTY:
        findings.append(fail("disk", f"{left // 2**20} MB left for {path}", "make room: no record can be kept soon"))
    elif left < LOW:
        findings.append(warn("disk", f"{left / 2**30:.1f} GiB left for {path}", "records may take 1 GiB; make room"))
    return findings


def records(path: Path) -> list[Finding]:
    """Whether the records database opens. A SQLite file that is not there yet is made by the gateway."""
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError

    from router.records import open_engine

    url = state.records_url(path)
    if url.startswith("sqlite:") and not state.records_file(path).exists():
        return [ok("records", "no database yet; the gateway makes one")]
    shown = str(state.records_file(path)) if url.startswith("sqlite:") else _without_secrets(url)
    try:
        engine = open_engine(url, busy_s=2.0)
    except ImportError:
        return [fail("records", f"the driver for {shown} is not installed", "pip install 'pointsman[postgres]'")]
    except SQLAlchemyError:
        return [
            fail(
                "records", f"{state.RECORDS_VARIABLE} is no database's URL", "postgresql://user:password@host/database"
            )
        ]
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                sound = connection.execute(text("PRAGMA quick_check(1)")).scalar() == "ok"
                if not sound:
                    return [fail("records", f"{shown} is damaged", "the gateway moves it aside at its next start")]
            held = connection.execute(text("SELECT count(*) FROM records")).scalar()
    except (SQLAlchemyError, OSError) as error:
        return [
            fail(
                "records",
                f"{shown} cannot be read: {_first_line(error)}",
                f"check {state.RECORDS_VARIABLE}, its server and its rights",
            )
        ]
    finally:
        engine.dispose()
    return [ok("records", f"{shown} holds {held}")]


def _first_line(error: Exception) -> str:
    return (str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__])[0][:160]


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"


async def redis(url: str | None) -> list[Finding]:
    """Whether the shared store answers, how quickly, and what time it has."""
    if url is None or not url.startswith(("redis://", "rediss://", "unix://")):
        return []
    try:
        from redis.asyncio import Redis
        from redis.exceptions import RedisError
    except ImportError:
        return [fail("redis", "the package redis is not installed", "pip install 'pointsman[redis]'")]
    shown = _without_secrets(url)
    try:
        client = Redis.from_url(url, socket_timeout=2.0, socket_connect_timeout=2.0)  # pyright: ignore[reportUnknownMemberType]
    except (ValueError, ConfigError) as error:
        return [fail("redis", f"{shown}: {error}", "write redis://[:PASSWORD@]HOST:PORT/DB")]
    try:
        await client.ping()  # pyright: ignore[reportGeneralTypeIssues, reportUnknownMemberType, reportUnknownVariableType]
        began = perf_counter()
        seconds, _ = await client.time()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportGeneralTypeIssues]
        took_s = perf_counter() - began
    except (RedisError, OSError, TimeoutError) as error:
        return [
            fail("redis", f"{shown}: {_first_line(error)}", "start it, or correct `store` in groups.yaml or --redis")
        ]
    finally:
        await client.aclose()
    if took_s > SLOW_S:
        return [
            warn("redis", f"{shown} took {took_s * 1000:.0f} ms", "requests wait 50 ms for it at most; bring it nearer")
        ]
    skew_s = abs(float(seconds) - time())
    if skew_s > SKEW_S:
        return [warn("redis", f"its clock and this one differ by {skew_s:.0f} s", "set both: timedatectl set-ntp true")]
    return [ok("redis", f"{shown} answers in {took_s * 1000:.0f} ms")]
