"""An upstream that makes an agent work: it calls the first tool that it knows, and is done when it sees the result.

The same conversation in three dialects, buffered and streamed, with a thought before each answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from router.types import Dialect
from router.upstreams.scripts import JSON, SSE, Head, Script, Seen, Send, Step, status
from tests.support.dialects import PATHS
from tests.wire.upstreams import chat_stream, event, messages_stream, responses_stream

DONE = "All done XYZZY."
ECHO = "hello-from-tool"
# What each client calls the tool that runs a command, or the one of the tests' own.
TOOLS: dict[str, dict[str, Any]] = {
    "Bash": {"command": f"echo {ECHO}", "description": "say hello"},
    "exec_command": {"cmd": f"echo {ECHO}"},
    "bash": {"command": f"echo {ECHO}", "description": "say hello"},
    "add": {"a": 2, "b": 3},
}
_RESULT = {"chat": '"role": "tool"', "messages": '"tool_result"', "responses": "_call_output"}
USAGE = {
    "chat": {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27},
    "messages": {"input_tokens": 20, "output_tokens": 7},
    "responses": {"input_tokens": 20, "output_tokens": 7, "total_tokens": 27},
}


def works(dialect: Dialect, tools: Mapping[str, Any] = TOOLS) -> Script:
    """The agent's upstream in one dialect; every other path is unknown to it."""

    def script(seen: Seen) -> Sequence[Step]:
        if not seen.path.split("?")[0].endswith(PATHS[dialect]):
            return status(404)
        body = seen.json()
        offered = json.dumps(body.get("tools", []))
        name = next((name for name in tools if f'"name": "{name}"' in offered), None)
        if name is None or _RESULT[dialect] in json.dumps(body):
            said, call = DONE, None
        else:
            said, call = "Let me look.", (name, json.dumps(tools[name]))
        if body.get("stream"):
            return [Head(200, SSE), Send(_STREAMS[dialect](said, call))]
        return [Head(200, JSON), Send(json.dumps(_ANSWERS[dialect](said, call)).encode())]

    return script


Call = tuple[str, str] | None


def _chat(said: str, call: Call) -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, {"reasoning_content": "Hm."}]
    deltas += [{"content": word + " "} for word in said.split()]
    if call is not None:
        function = {"name": call[0], "arguments": ""}
        deltas.append({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]})
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in (call[1][:5], call[1][5:])
        ]
    return chat_stream(deltas, "stop" if call is None else "tool_calls")


def _messages(said: str, call: Call) -> bytes:
    thought = [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "c2ln" * 8}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        ({"type": "thinking", "thinking": "", "signature": ""}, thought),
        ({"type": "text", "text": ""}, [{"type": "text_delta", "text": word + " "} for word in said.split()]),
    ]
    if call is not None:
        parts = [{"type": "input_json_delta", "partial_json": part} for part in (call[1][:5], call[1][5:])]
        blocks.append(({"type": "tool_use", "id": "toolu_1", "name": call[0], "input": {}}, parts))
    return messages_stream(blocks, "end_turn" if call is None else "tool_use")


def _items(said: str, call: Call) -> list[dict[str, Any]]:
    thought = [{"type": "summary_text", "text": "Hm."}]
    text = [{"type": "output_text", "text": said, "annotations": [], "logprobs": []}]
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": thought, "encrypted_content": "ZW5j" * 8},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": text},
    ]
    if call is not None:
        function = {"name": call[0], "arguments": call[1], "status": "completed"}
        items.append({"type": "function_call", "id": "fc_1", "call_id": "call_1", **function})
    return items


def _responses(said: str, call: Call) -> bytes:
    steps: list[tuple[dict[str, Any], list[bytes], dict[str, Any]]] = []
    for at, item in enumerate(_items(said, call)):
        where = {"item_id": item["id"], "output_index": at}
        if item["type"] == "reasoning":
            delta = event("response.reasoning_summary_text.delta", **where, summary_index=0, delta="Hm.")
            steps.append(({**item, "summary": []}, [delta], item))
        elif item["type"] == "message":
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            full = {**part, "text": said}
            between = [
                event("response.content_part.added", **where, content_index=0, part=part),
                event("response.output_text.delta", **where, content_index=0, delta=said, logprobs=[]),
                event("response.output_text.done", **where, content_index=0, text=said, logprobs=[]),
                event("response.content_part.done", **where, content_index=0, part=full),
            ]
            steps.append(({**item, "content": [], "status": "in_progress"}, between, item))
        else:
            delta = event("response.function_call_arguments.delta", **where, delta=item["arguments"])
            done = event(
                "response.function_call_arguments.done", **where, arguments=item["arguments"], name=item["name"]
            )
            steps.append(({**item, "arguments": "", "status": "in_progress"}, [delta, done], item))
    return responses_stream(steps)


def _whole_chat(said: str, call: Call) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said, "reasoning_content": "Hm.", "refusal": None}
    if call is not None:
        function = {"name": call[0], "arguments": call[1]}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    finish = "stop" if call is None else "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1700, "model": "m-up"}
    return {**head, "choices": [choice], "usage": USAGE["chat"]}


def _whole_messages(said: str, call: Call) -> dict[str, Any]:
    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln" * 8},
        {"type": "text", "text": said},
    ]
    if call is not None:
        content.append({"type": "tool_use", "id": "toolu_1", "name": call[0], "input": json.loads(call[1])})
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-up", "stop_sequence": None}
    stop = "end_turn" if call is None else "tool_use"
    return {**head, "content": content, "stop_reason": stop, "usage": USAGE["messages"]}


def _whole_responses(said: str, call: Call) -> dict[str, Any]:
    head = {"id": "resp_1", "object": "response", "created_at": 1700, "model": "m-up", "status": "completed"}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None, "metadata": {}}
    return {**head, **rest, "output": _items(said, call), "usage": USAGE["responses"]}


_STREAMS = {"chat": _chat, "messages": _messages, "responses": _responses}
_ANSWERS = {"chat": _whole_chat, "messages": _whole_messages, "responses": _whole_responses}
