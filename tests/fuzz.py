"""Fuzzing by hand: `python -m tests.fuzz SECONDS [SEED]`.

Bodies made of the words of the three APIs, and recorded streams that were damaged, go through every codec, meter and
translation. Anything but an error of ours is a crash, and the seed that caused it is printed. So is a body that is read
otherwise after what came before it in its conversation than alone.
"""
# ruff: noqa: SIM905

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from typing import Any

from msgspec.structs import replace

from router.errors import PointsmanError
from router.seams import Codec
from router.types import Dialect
from router.wire import CODECS, sse
from router.wire.body import outgoing
from router.wire.chat import ChatCodec
from router.wire.messages import MessagesCodec
from router.wire.responses import ResponsesCodec
from router.wire.seen import Seen
from router.wire.translate import translate
from tests.wire.upstreams import STREAMS

DIALECTS: tuple[Dialect, ...] = ("chat", "messages", "responses")
AGENTS: dict[str, Any] = {"chat": ChatCodec, "messages": MessagesCodec, "responses": ResponsesCodec}
KEYS = """role content type text id name input arguments function custom tool_calls tool_call_id tool_use_id tools
tool_choice parameters input_schema image_url url source media_type data file file_data thinking signature summary
encrypted_content call_id output schema json_schema response_format output_config reasoning_effort reasoning stop
stop_sequences system instructions metadata user_id max_tokens max_completion_tokens max_output_tokens include n
is_error refusal reasoning_content index delta choices finish_reason usage message content_block partial_json
stop_reason item response item_id output_index content_index part error code status sequence_number stream
stream_options strict""".split()
VALUES: list[Any] = [
    *"""user assistant system developer tool function text image image_url input_text output_text input_image document
    tool_use tool_result thinking redacted_thinking reasoning function_call function_call_output custom message base64
    url auto any none required high enabled message_start content_block_start content_block_delta content_block_stop
    message_delta message_stop text_delta input_json_delta thinking_delta signature_delta error ping response.created
    response.output_item.added response.output_text.delta response.function_call_arguments.delta response.completed
    response.failed stop tool_calls length end_turn max_tokens""".split(),
    *("", "{}", '{"a":', "data:,x", "ü\u2028", None, True, False, 0, 1, -1, 2**70, 1.5),
]

SCRAPS = (b"\r", b"\n", b"\r\n", b": c\n", b"data:", b"null", b"[]", b"{}", b'"', b"\\", b"\xff", b"1e999", b"[DONE]")


class Made:
    """Random values of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, depth: int) -> Any:
        draw = self.random.random()
        if depth <= 0 or draw < 0.45:
            return self.random.choice(VALUES)
        if draw < 0.7:
            return [self.value(depth - 1) for _ in range(self.random.randrange(4))]
        return {self.random.choice(KEYS): self.value(depth - 1) for _ in range(self.random.randrange(5))}

    def message(self) -> dict[str, Any]:
        roles = ("user", "assistant", "system", "tool", "developer")
        made = {"role": self.random.choice(roles), "content": self.value(4)}
        if self.random.random() < 0.5:
            made["type"] = self.random.choice(VALUES)
        return made | {self.random.choice(KEYS): self.value(3) for _ in range(self.random.randrange(4))}

    def body(self, dialect: Dialect) -> bytes:
        messages = [self.message() for _ in range(self.random.randrange(1, 4))]
        body = {"model": "a", "input" if dialect == "responses" else "messages": messages}
        if dialect == "messages":
            body["max_tokens"] = 9
        body |= {self.random.choice(KEYS): self.value(4) for _ in range(self.random.randrange(5))}
        return json.dumps(body | {"model": "a"}).encode()

    def agent(self, dialect: Dialect) -> list[bytes]:
        """Bodies that go on from one another, as an agent's do; some are damaged where the new begins."""
        name = "input" if dialect == "responses" else "messages"
        said = [{"role": "user", "content": "x" * 5000}]
        around = {"model": "a"} | {self.random.choice(KEYS): self.value(3) for _ in range(self.random.randrange(4))}
        behind = {self.random.choice(KEYS): self.value(3) for _ in range(self.random.randrange(4))}
        behind.pop(name, None)
        bodies: list[bytes] = []
        for _ in range(4):
            said = [*said, *(self.message() for _ in range(self.random.randrange(3)))]
            body = bytearray(json.dumps({**around, name: said} | behind).encode())
            if bodies and self.random.random() < 0.4:
                at = self.random.randrange(5000, len(body) + 1)
                body[at : at + self.random.randrange(3)] = self.random.choice(SCRAPS)
            bodies.append(bytes(body))
        return bodies

    def stream(self, dialect: Dialect) -> list[bytes]:
        """A recorded stream, damaged, and cut anywhere."""
        data = bytearray(STREAMS[dialect])
        for _ in range(self.random.randrange(1, 6)):
            at, draw = self.random.randrange(len(data) + 1), self.random.random()
            if draw < 0.3:
                data[at:at] = self.random.choice(SCRAPS)
            elif draw < 0.6:
                del data[at : at + self.random.randrange(1, 30)]
            elif draw < 0.8:
                other = self.random.randrange(len(data) + 1)
                data[at:at] = data[other : other + self.random.randrange(200)]
            else:
                events = sse.split(bytes(data))
                self.random.shuffle(events)
                data = bytearray(b"".join(events))
        cuts = sorted(self.random.randrange(len(data) + 1) for _ in range(self.random.randrange(6)))
        return [bytes(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def once(made: Made, dialect: Dialect) -> int:
    """One body through everything; the number of translations tried. Raises what is no error of ours."""
    tried = 0
    try:
        request = CODECS[dialect].decode(made.body(dialect))
        outgoing(request, "m", usage=True)
    except PointsmanError:
        return 0
    for target in DIALECTS:
        tried += 1
        try:
            translation = None if target == dialect else translate(request, target, "m")
            meter = CODECS[dialect].meter(request) if translation is None else translation.meter("req_1", 1.0)
        except PointsmanError:
            continue
        try:
            for data in made.stream(target):
                meter.feed(data)
            meter.close()
        except PointsmanError as error:
            meter.fail(error, "req_1")
    return tried


def outcome(codec: Codec, body: bytes) -> object:
    try:
        return replace(codec.decode(body), noted=None)
    except PointsmanError as error:
        return str(error)


def again(made: Made, dialect: Dialect) -> None:
    """What goes on from a body that was seen comes to what it does alone. Raises where it does not."""
    codec = AGENTS[dialect](Seen())
    for body in made.agent(dialect):
        if outcome(codec, body) != outcome(AGENTS[dialect](Seen()), body):
            raise AssertionError(f"read otherwise after what came before it: {body[4900:]!r}")


def main(seconds: float, seed: int) -> int:
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for dialect in DIALECTS:
            seed += 1
            try:
                count += once(Made(seed), dialect)
                again(Made(seed), dialect)
            except Exception:  # noqa: BLE001  finding these is the purpose
                traceback.print_exc()
                print(f"crash: {dialect}, seed {seed}: {Made(seed).body(dialect)[:2000]!r}")
                return 1
    print(f"{count} passages through codecs and translations, no crash; last seed {seed}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
