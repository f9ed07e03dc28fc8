"""The gateway's log: one JSON object a line on stderr, or short lines for a person at a terminal.

What is written is safe: no prompt text (nothing passes any), no secret of the configuration (each line is
searched for their actual values), and no line that a caller's text can forge (control characters are
escaped). Lines below WARNING are formatted and written in batches by a thread, off the hot path.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from typing import Any, TextIO
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from router import record as records
from router.batch import Batcher
from router.config import Config
from router.types import Record

LEVEL_VARIABLE = "POINTSMAN_LOG"  # debug, info, warning, error
FORMAT_VARIABLE = "POINTSMAN_LOG_FORMAT"  # json, human
RECORDS_VARIABLE = "POINTSMAN_RECORDS"
ADMIN_TOKEN_VARIABLE = "POINTSMAN_ADMIN_TOKEN"  # noqa: S105 -- the variable's name

HIDDEN = "***"
_SHORTEST_SECRET = 6  # a shorter value ("none", "test") would blot out ordinary words
_SECRET_KEYS = re.compile(r"key|token|secret|password|authorization", re.IGNORECASE)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

FAILED = frozenset(("upstream_error", "upstream_truncated", "timeout", "refused"))  # logged at WARNING

# Names that every LogRecord has; what is left came through `extra`.
_PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def request(record: Record) -> None:
    """The one line of a request, read from its record by the writing thread: a request pays for an append."""
    handler = _handler
    if handler is not None and (handler.requests or record.outcome in FAILED):
        handler.put(record)


def configure(level: str | None = None, stream: TextIO | None = None, form: str | None = None) -> Handler:
    """Sends the root logger to stderr. `level` and `form` default to `$POINTSMAN_LOG` and `$POINTSMAN_LOG_FORMAT`,
    else to info, and to human at a terminal. Calling it again replaces the earlier handler."""
    out = stream or sys.stderr
    form = form or os.environ.get(FORMAT_VARIABLE) or ("human" if out.isatty() else "json")
    handler = Handler(out, Human() if form == "human" else Json())
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h, Handler)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    global _handler
    _handler = handler
    name = (level or os.environ.get(LEVEL_VARIABLE) or "info").upper()
    root.setLevel(logging.getLevelNamesMapping().get(name, logging.INFO))
    handler.requests = root.level <= logging.INFO
    for chatty in ("httpx", "httpcore", "asyncio", "watchfiles", "sqlalchemy"):
        logging.getLogger(chatty).setLevel(max(root.level, logging.WARNING))
    return handler


# --- secrets ---------------------------------------------------------------------------------------------

_hidden: tuple[str, ...] = ()  # this process's secrets, longest first; a log has one stream, so one list


def redact(config: Config) -> None:
    """Hides the configuration's secrets from every later line, along with those hidden before: an answer that
    was begun under the old configuration may still name an old key."""
    environment = (os.environ.get(ADMIN_TOKEN_VARIABLE, ""), *_in_url(os.environ.get(RECORDS_VARIABLE, "")))
    hide((*secrets(config), *environment))


def hide(values: Iterable[str]) -> None:
    """Hides these values too, as they are and as a URL would hold them."""
    global _hidden
    found = {v for value in values if len(value) >= _SHORTEST_SECRET for v in (value, quote(value, safe=""))}
    _hidden = tuple(sorted({*_hidden, *found}, key=lambda v: (-len(v), v)))


def hide_url(url: str | None) -> None:
    """Hides the password and query of a URL that is not in the configuration."""
    hide(_in_url(url or ""))


def secrets(config: Config) -> Iterator[str]:
    """Every secret value of a configuration: keys, passwords and queries of URLs, options that are named so."""
    for deployment in config.deployments.values():
        if deployment.api_key != "none":
            yield deployment.api_key
        yield from _in_url(deployment.base_url)
        yield from _in_options(deployment.options)
    for scorer in config.scorers.values():
        yield from _in_options(scorer.options)
    yield from _in_url(config.store or "")


def _in_url(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    if parts.password:
        yield from (parts.password, unquote(parts.password))
    yield from (value for _, value in parse_qsl(parts.query))


def _in_options(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _in_options({str(k): v for k, v in value.items()})  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        elif isinstance(value, str):
            if _SECRET_KEYS.search(name):
                yield value
            yield from _in_url(value)


def without_secrets(text: str) -> str:
    for secret in _hidden:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    return text


def has_secret(body: bytes) -> bool:
    """Whether any secret of the configuration stands in the bytes of an answer."""
    return any(secret.encode() in body for secret in _hidden)


# --- lines -----------------------------------------------------------------------------------------------


class RequestLine(msgspec.Struct, gc=False):
    """What a request's line says, in this order."""

    time: str
    request_id: str
    score: float | None
    attempts: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    ttft_s: float | None
    total_s: float
    errors: list[str] | msgspec.UnsetType  # left out where there are none
    level: str
    logger: str
    message: str
    policy: str
    route: str | None
    why: str | None
    group: str | None
    deployment: str | None
    model: str
    dialect: str
    stream: bool
    outcome: str


def _request(of: Record) -> RequestLine:
    decision, served = of.decision, records.served(of)
    score = route = why = group = deployment = None
    if decision is not None:
        score, route, why, group = decision.score, decision.route, decision.why, decision.group
    if served is not None:
        group, deployment = served.group, served.deployment
    return RequestLine(  # by place: a call with so many names costs a multiple
        _iso(of.time),
        of.id,
        score,
        len(of.attempts),
        of.usage.input,
        of.usage.output,
        of.cost,
        of.timing.ttft_s,
        of.timing.total_s,
        [a.error for a in of.attempts if a.error is not None] or msgspec.UNSET,
        _level(of),
        "pointsman.request",
        "request",
        of.policy,
        route,
        why,
        group,
        deployment,
        of.model,
        of.dialect,
        of.stream,
        of.outcome,
    )


def _level(of: Record) -> str:
    return "warning" if of.outcome in FAILED else "info"


def _fields(line: logging.LogRecord) -> dict[str, Any]:
    """The line's own fields, without secrets."""
    return {name: _clean(value) for name, value in line.__dict__.items() if name not in _PLAIN}


class Lines(logging.Formatter):
    """A formatter that also knows the lines of requests, made of names and numbers of the gateway's own."""

    def requests(self, of: Iterable[Record]) -> str:
        """With their line ends."""
        raise NotImplementedError


class Json(Lines):
    """One object a line, in ASCII: what is not ASCII is escaped, line ends of every kind with it."""

    def requests(self, of: Iterable[Record]) -> str:
        text = _encode_lines([_request(one) for one in of])
        if text.isascii():
            return text.decode()
        return "".join([f"{json.dumps(json.loads(line), separators=(',', ':'))}\n" for line in text.splitlines()])

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            **_fields(record),
        }
        if record.exc_info:
            record.exc_text = record.exc_text or self.formatException(record.exc_info)
        if record.exc_text:
            line["trace"] = without_secrets(record.exc_text)
        return json.dumps(line, ensure_ascii=True, default=lambda value: without_secrets(str(value)))


class Human(Lines):
    """For a terminal: time, level, message, then the fields that say something."""

    def requests(self, of: Iterable[Record]) -> str:
        return "".join([f"{_local(one.time)} {_level(one):7} {_escaped(_sentence(one))}\n" for one in of])

    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        text = f"{record.getMessage()} {extra}".rstrip()
        line = f"{_local(record.created)} {record.levelname.lower():7} {_escaped(without_secrets(text))}"
        if record.exc_info:
            record.exc_text = record.exc_text or self.formatException(record.exc_info)
        if record.exc_text:
            trace = without_secrets(record.exc_text).splitlines()
            line = "\n".join([line, *(f"         | {_escaped(part)}" for part in trace)])
        return line


_encode_lines = msgspec.json.Encoder().encode_lines


def _iso(time: float) -> str:
    whole = int(time)
    return f"{_iso_second(whole)}.{int((time - whole) * 1000):03d}Z"


@lru_cache(64)  # the lines of a batch share their second
def _iso_second(time: int) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _local(time: float) -> str:
    return datetime.fromtimestamp(time).astimezone().strftime("%H:%M:%S")


def _sentence(of: Record) -> str:
    served = records.served(of)
    place = f"{of.policy or '-'}/{of.decision.route if of.decision is not None else '-'}"
    where = f"{records.group(of) or '-'}/{served.deployment if served is not None else '-'}"
    score = f" score {of.decision.score:.2f}" if of.decision is not None and of.decision.score is not None else ""
    tries = f" after {len(of.attempts)} attempts" if len(of.attempts) > 1 else ""
    failed = [f"{one.deployment} {one.error}" for one in of.attempts if one.error is not None and not one.scout]
    tries += f" ({', '.join(failed)})" if failed else ""
    tokens = f"{of.usage.input}+{of.usage.output} tokens"
    return f"{of.outcome}: {place} -> {where}{score}{tries}, {tokens}, {of.timing.total_s * 1000:.0f} ms, {of.id}"


def _clean(value: object) -> object:
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, list | tuple):
        return [_clean(part) for part in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value if value is None or isinstance(value, bool | int | float) else without_secrets(str(value))


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


class Handler(logging.Handler):
    """Warnings and worse are written at once; the rest by a thread, many at a time, and counted when lost."""

    def __init__(self, stream: TextIO, lines: Lines) -> None:
        super().__init__()
        self.setFormatter(lines)
        self.requests = True  # whether requests that went well get a line
        self._lines = lines
        self._stream = stream
        self._batcher = Batcher[logging.LogRecord | Record]("log", self._write, limit=50_000, linger_s=0.1)
        self.put: Callable[[Record], None] = self._batcher.put
        self._batcher.start()

    @property
    def dropped(self) -> int:
        return self._batcher.dropped

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or record.exc_info:
            self._write([record])
        else:
            self._batcher.put(record)

    def flush(self) -> None:
        self._batcher.flush(2.0)

    def close(self) -> None:
        self._batcher.stop(2.0)
        super().close()

    def _write(self, lines: list[logging.LogRecord | Record]) -> None:
        try:
            self._stream.write(self._text(lines))
            self._stream.flush()
        except (OSError, ValueError, TypeError) as error:  # a closed pipe; a message whose arguments do not fit
            if not isinstance(error, OSError) and len(lines) > 1:
                for line in lines:
                    self._write([line])
            else:
                self._batcher.dropped += len(lines)

    def _text(self, lines: list[logging.LogRecord | Record]) -> str:
        """Requests many at a time, in the order in which all of them came."""
        parts: list[str] = []
        for kind, some in groupby(lines, type):
            if kind is Record:
                parts.append(self._lines.requests(some))  # pyright: ignore
            else:
                parts += (f"{self.format(line)}\n" for line in some)  # pyright: ignore
        return "".join(parts)


_handler: Handler | None = None  # the one that `configure` made last
