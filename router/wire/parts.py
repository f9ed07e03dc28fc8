"""What stands between two dialects: conversations on the way up, parts of an answer on the way down.

A body is read into a `Conversation` and written from one; an answer, buffered or streamed, is read into
`Piece`s in order and written from them, so that both forms of an answer agree. Nothing here knows JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Literal

from msgspec import Struct

from router.types import Dialect, Usage
from router.wire.faults import Fault
from router.wire.loose import refusal

# --- the conversation ------------------------------------------------------------------------------------


class Text(Struct, frozen=True, kw_only=True):
    text: str
    cache: Any = None  # Anthropic's cache_control


class Image(Struct, frozen=True, kw_only=True):
    """`url` is http(s) or a data URI; `file` is an id in the provider's own store."""

    url: str = ""
    file: str = ""
    detail: str | None = None
    cache: Any = None


class File(Struct, frozen=True, kw_only=True):
    """A document: `url` is http(s) or a data URI, `text` plain text, `file` an id in the provider's store."""

    url: str = ""
    text: str = ""
    file: str = ""
    name: str = ""
    cache: Any = None


class Audio(Struct, frozen=True, kw_only=True):
    data: str  # base64
    format: str


class Refusal(Struct, frozen=True, kw_only=True):
    text: str


class Thinking(Struct, frozen=True, kw_only=True):
    """What a model thought. `source` is the dialect that made `signature` and alone can read it back.

    `redacted`: the signature is the thought itself, encrypted. `id` is a Responses item id.
    """

    text: str = ""
    signature: str = ""
    source: Dialect | None = None
    redacted: bool = False
    id: str = ""


NAME_LIMIT = 64  # characters of a tool's name in OpenAI's APIs; Anthropic's allows 128, and MCP tools use them


def flat(namespace: str, name: str) -> str:
    """A tool's name without its namespace, and short enough for every dialect; equal names stay equal."""
    return short(f"{namespace}__{name}" if namespace else name, NAME_LIMIT)


def short(name: str, limit: int) -> str:
    """At most so many characters of a name, the last of them a digest where it is cut: other names stay others."""
    return name if len(name) <= limit else f"{name[: limit - 9]}_{sha256(name.encode()).hexdigest()[:8]}"


class ToolUse(Struct, frozen=True, kw_only=True):
    """A call by the model; `arguments` is JSON text, or free text for a custom tool."""

    id: str
    name: str
    arguments: str = ""
    custom: bool = False
    namespace: str = ""
    cache: Any = None

    @property
    def flat(self) -> str:
        """The name that an upstream is told."""
        return flat(self.namespace, self.name)


class ToolOutput(Struct, frozen=True, kw_only=True):
    id: str
    parts: tuple[Text | Image | File, ...] = ()
    error: bool = False
    custom: bool = False
    cache: Any = None


Cached = Text | Image | File | ToolUse | ToolOutput  # those that Anthropic's cache_control may stand on
Part = Text | Image | File | Audio | Refusal | Thinking | ToolUse | ToolOutput


class Message(Struct, frozen=True, kw_only=True):
    role: str  # system | developer | user | assistant
    parts: tuple[Part, ...]
    name: str | None = None


_KINDS: dict[type[Part], str] = {Image: "image", File: "file", Audio: "input_audio"}


def saying(role: str, parts: Sequence[Part], where: str, target: Dialect) -> tuple[Part, ...]:
    """What a message says. Raises `BadRequest` for a part that no other dialect has in a message of this role (T16)."""
    if role != "user":
        for part in parts:
            if kind := _KINDS.get(type(part)):
                raise refusal(f"a part of type {kind} in a message with role {role}", where, target)
    return tuple(parts)


def returned(parts: Sequence[Part], where: str, target: Dialect) -> tuple[Text | Image | File, ...]:
    """What a tool returned. Raises `BadRequest` for a part that no other dialect has in it (T16)."""
    kept = tuple([part for part in parts if isinstance(part, Text | Image | File)])
    if len(kept) < len(parts):
        raise refusal("a part that is no text, image or file", where, target)
    return kept


class Tool(Struct, frozen=True, kw_only=True):
    """A tool the client runs. A custom tool takes free text instead of JSON; `schema` is then its `format`."""

    name: str
    description: str | None = None
    schema: Any = None
    strict: bool | None = None
    custom: bool = False
    namespace: str = ""
    cache: Any = None

    @property
    def flat(self) -> str:
        """The name that an upstream is told."""
        return flat(self.namespace, self.name)


class Choice(Struct, frozen=True, kw_only=True):
    """Which tool the model must call; `name` for mode "named"."""

    mode: Literal["auto", "none", "required", "named"]
    name: str = ""
    namespace: str = ""

    @property
    def flat(self) -> str:
        """The name that an upstream is told."""
        return flat(self.namespace, self.name)


class Format(Struct, frozen=True, kw_only=True):
    """The shape the answer must have: any JSON object, or one that fits `schema`."""

    schema: Any = None
    name: str = ""
    strict: bool | None = None
    description: str | None = None


class Conversation(Struct, kw_only=True):
    """A request without a dialect. `plain` holds fields that keep their value, by their neutral name."""

    messages: list[Message]
    tools: list[Tool] = []
    choice: Choice | None = None
    parallel: bool | None = None
    max_tokens: int | None = None
    stop: list[str] = []
    format: Format | None = None
    effort: str | None = None  # none | minimal | low | medium | high | xhigh | max
    thinking: bool | None = None  # switched on or off in so many words
    user: str | None = None
    stream: bool = False
    plain: dict[str, Any] = {}
    dropped: list[str] = []  # what the target cannot say, for the x-pointsman-dropped header

    def drop(self, what: str) -> None:
        if what not in self.dropped:
            self.dropped.append(what)

    def drop_rest(self, where: str, given: dict[str, Any], *known: str) -> None:
        """Note the fields of an object that a reader does not know."""
        for field, value in given.items():
            if value is not None and field not in known:
                self.drop(f"{where}.{field}")


# --- the answer ------------------------------------------------------------------------------------------

Reason = Literal["stop", "length", "tools", "filter", "pause"]


class Start(Struct, frozen=True, kw_only=True):
    id: str = ""
    model: str = ""
    created: int | None = None  # Unix seconds


class Delta(Struct, frozen=True, kw_only=True):
    """More of the text, the refusal or the thought that is being written. `fresh` begins a new block."""

    kind: Literal["text", "thinking", "refusal"]
    text: str
    logprobs: tuple[Any, ...] = ()  # OpenAI's objects, one a token
    fresh: bool = False


class Seal(Struct, frozen=True, kw_only=True):
    """The signature under the thought just written, or, where `redacted`, a thought on its own."""

    signature: str
    source: Dialect
    redacted: bool = False
    id: str = ""


class ToolDelta(Struct, frozen=True, kw_only=True):
    """More of the tool call `index`; `id` and `name` come with its first delta. `end`: it is complete."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    custom: bool = False
    end: bool = False


class Finish(Struct, frozen=True, kw_only=True):
    reason: Reason
    stop_sequence: str | None = None


class StreamError(Struct, frozen=True, kw_only=True):
    fault: Fault
    body: bytes


Piece = Start | Delta | Seal | ToolDelta | Finish | Usage | StreamError
