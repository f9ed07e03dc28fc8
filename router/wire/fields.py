"""Every top-level field of the three dialects, and what becomes of it in the other two.

`ROWS` is the one table: translation reads it, `docs/wire.md` is written from it, and a test compares it with
the published schemas. A field that the target has no name for is dropped and listed, or refused where losing
it would change what the client gets or may rely on. How the structured fields are mapped is in each dialect's
request module.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from router.errors import BadRequest
from router.types import Dialect
from router.wire.parts import Conversation

Lost = Literal["drop", "refuse"]
DIALECTS: tuple[Dialect, Dialect, Dialect] = ("chat", "messages", "responses")


class Row(Struct, frozen=True):
    """One meaning and its field in each dialect ("" = none; a dot leads inside an object).

    `plain`: the value means the same everywhere. `idle`: values that ask for nothing, so nothing is lost.
    """

    name: str
    chat: str = ""
    messages: str = ""
    responses: str = ""
    lost: Lost = "drop"
    plain: bool = False
    idle: tuple[Any, ...] = ()
    note: str = ""

    def field(self, dialect: Dialect) -> str:
        return {"chat": self.chat, "messages": self.messages, "responses": self.responses}[dialect]


ROWS: tuple[Row, ...] = (
    Row("model", "model", "model", "model"),
    Row("messages", "messages", "messages", "input", note="message by message, see below"),
    Row("system", "messages", "system", "instructions", note="chat: a leading system message"),
    Row("stream", "stream", "stream", "stream"),
    Row("stream_options", "stream_options", "", "", note="chat: the gateway asks for usage itself"),
    Row("stream_options (responses)", "", "", "stream_options"),
    Row("max_tokens", "max_completion_tokens", "max_tokens", "max_output_tokens", note="8192 or >= 16, see below"),
    Row("max_tokens (old name)", "max_tokens", "max_tokens", "max_output_tokens", note="the smaller of the two"),
    Row("temperature", "temperature", "temperature", "temperature", plain=True, note="messages: cut to 1, and listed"),
    Row("top_p", "top_p", "top_p", "top_p", plain=True),
    Row("top_k", "", "top_k", "", plain=True),
    Row("stop", "stop", "stop_sequences", ""),
    Row("seed", "seed"),
    Row("n", "n", lost="refuse", idle=(1,)),
    Row("frequency_penalty", "frequency_penalty", idle=(0,)),
    Row("presence_penalty", "presence_penalty", idle=(0,)),
    Row("logit_bias", "logit_bias", idle=({},)),
    Row("logprobs", "logprobs", "", "include", idle=(False,), note="responses: `message.output_text.logprobs`"),
    Row("top_logprobs", "top_logprobs", "", "top_logprobs", plain=True, idle=(0,)),
    Row("tools", "tools", "tools", "tools", note="a server's own tools are dropped and listed"),
    Row("tools (old name)", "functions", "tools", "tools"),
    Row("tool_choice", "tool_choice", "tool_choice", "tool_choice", note="a server's own tool is refused"),
    Row("tool_choice (old name)", "function_call", "tool_choice", "tool_choice"),
    Row("parallel_tool_calls", "parallel_tool_calls", "tool_choice", "parallel_tool_calls"),
    Row("max_tool_calls", "", "", "max_tool_calls"),
    Row("format", "response_format", "output_config", "text", note="messages: json_object is listed"),
    Row("format (old name)", "response_format", "output_format", "text"),
    Row("verbosity", "verbosity", "", "text"),
    Row("effort", "reasoning_effort", "output_config", "reasoning"),
    Row("thinking", "reasoning_effort", "thinking", "reasoning", note="a budget of tokens becomes an effort"),
    Row("user", "user", "metadata", "user", note="messages: `user_id`; to the others only up to 64 characters"),
    Row("metadata", "metadata", "", "metadata", plain=True, idle=({},)),
    Row("safety_identifier", "safety_identifier", "", "safety_identifier", plain=True),
    Row("prompt_cache_key", "prompt_cache_key", "", "prompt_cache_key", plain=True),
    Row("prompt_cache_retention", "prompt_cache_retention", "", "prompt_cache_retention", plain=True),
    Row("prompt_cache_options", "prompt_cache_options", "", "prompt_cache_options", plain=True),
    Row("moderation", "moderation", "", "moderation", plain=True),
    Row("service_tier", "service_tier", "", "service_tier", plain=True, idle=("auto", "default")),
    Row("service_tier (messages)", "", "service_tier", "", idle=("auto",)),
    Row("store", "store", "", "store", plain=True, idle=(False,)),
    Row("modalities", "modalities", lost="refuse", idle=(["text"],)),
    Row("audio", "audio"),
    Row("prediction", "prediction"),
    Row("web_search_options", "web_search_options"),
    Row("previous_response_id", "", "", "previous_response_id", lost="refuse", note="state of one API"),
    Row("conversation", "", "", "conversation", lost="refuse", note="state of one API"),
    Row("prompt", "", "", "prompt", lost="refuse", note="a template kept by one API"),
    Row("background", "", "", "background", lost="refuse", idle=(False,)),
    Row("truncation", "", "", "truncation", idle=("disabled",)),
    Row("include", "", "", "include", note="the one value that maps is above; others are listed"),
    Row("context_management", "", "context_management", ""),
    Row("context_management (responses)", "", "", "context_management"),
    Row("cache_control", "", "cache_control", ""),
    Row("container", "", "container", "", lost="refuse", note="state of one API"),
    Row("thread", "", "thread", "", lost="refuse", note="state of one API"),
    Row("mcp_servers", "", "mcp_servers", "", lost="refuse", idle=([],)),
    Row("inference_geo", "", "inference_geo", "", lost="refuse", note="a promise about where data goes"),
    Row("betas", "", "betas", ""),
    Row("billing_policy", "", "billing_policy", ""),
    Row("compaction", "", "compaction", ""),
    Row("diagnostics", "", "diagnostics", ""),
    Row("fallback_credit_token", "", "fallback_credit_token", ""),
    Row("fallbacks", "", "fallbacks", ""),
    Row("speed", "", "speed", "", idle=("standard",)),
    Row("user_profile_id", "", "user_profile_id", ""),
    Row("workspace_id", "", "workspace_id", ""),
)  # fmt: skip

_BY_FIELD: dict[Dialect, dict[str, list[Row]]] = {
    dialect: {
        name: [row for row in ROWS if row.field(dialect) == name] for name in {row.field(dialect) for row in ROWS}
    }
    for dialect in DIALECTS
}


def account(body: dict[str, Any], source: Dialect, target: Dialect, said: Conversation) -> None:
    """Note every field of `body` that `target` has no name for. Raises `BadRequest` where that may not be.

    Fields that the table does not know are the client's own or newer than it; they are listed as dropped.
    """
    for field, value in body.items():
        if value is None:
            continue
        rows = _BY_FIELD[source].get(field)
        if rows is None:
            said.drop(field)
            continue
        row = next((row for row in rows if row.field(target)), None)
        if any(value == idle and type(value) is type(idle) for idle in rows[0].idle):
            continue  # nor is it sent on: strict upstreams refuse fields that they do not know, whatever they say
        if row is None:
            _lose(field, rows[0], target, said)
        elif row.plain:
            said.plain[row.name] = value


def _lose(field: str, row: Row, target: Dialect, said: Conversation) -> None:
    if row.name == "stream_options":
        return
    if row.lost == "refuse":
        raise BadRequest(f"`{field}` cannot be translated to the {target} API that serves this model", param=field)
    said.drop(field)


def plain(said: Conversation, target: Dialect) -> dict[str, Any]:
    """The fields of the target that keep their value."""
    named = {row.name: row.field(target) for row in ROWS if row.plain and row.field(target)}
    return {named[name]: value for name, value in said.plain.items() if name in named}


def markdown() -> str:
    """The table of `docs/wire.md`: for each dialect's fields, what becomes of them in the other two."""
    return "\n\n".join([_one(dialect) for dialect in DIALECTS])


def _one(source: Dialect) -> str:
    targets: list[Dialect] = [dialect for dialect in DIALECTS if dialect != source]
    lines = [f"### From {source}", "", f"| field | to {targets[0]} | to {targets[1]} | note |", "|---|---|---|---|"]
    for field, rows in sorted(_BY_FIELD[source].items()):
        if not field:
            continue
        fates = [_fate(rows, target) for target in targets]
        idle = [f"{value!r} asks for nothing" for value in rows[0].idle]
        notes = list(dict.fromkeys([*(row.note for row in rows if row.note), *idle]))
        lines.append(f"| `{field}` | {fates[0]} | {fates[1]} | {'; '.join(notes)} |")
    return "\n".join(lines)


def _fate(rows: list[Row], target: Dialect) -> str:
    names = list(dict.fromkeys([f"`{row.field(target)}`" for row in rows if row.field(target)]))
    if names:
        return ", ".join(names)
    if rows[0].name == "stream_options":
        return "not needed"
    return "**refused**" if rows[0].lost == "refuse" else "dropped"
