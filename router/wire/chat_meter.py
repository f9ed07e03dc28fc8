"""OpenAI chat completions as they are answered: metering a stream, reading usage, writing errors.

Reading a request is `chat`'s; translation to and from other dialects is not here either.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder, encode

from router.errors import BadAnswer, PointsmanError
from router.types import Usage
from router.wire import faults, sse
from router.wire.chat_chunks import MORE, NO_CALLS, NOTHING, Calls, apart, argue, rewritten, with_arguments
from router.wire.loose import count, is_object, mapping
from router.wire.stream import PassMeter, Verdict

DONE = b"data: [DONE]\n\n"
_LONGEST_ENDING = 200  # bytes
_LAST_EVENTS = 4  # of a stream: a finish reason, usage, [DONE]


class Delta(Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None


class Choice(Struct, gc=False):
    index: Any = None
    delta: Delta | None = None
    text: Any = None  # legacy completions
    finish_reason: Any = None


class Chunk(Struct, gc=False):
    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None


class Answer(Struct, gc=False):
    usage: Any = None


class InputDetails(Struct, gc=False):
    cached_tokens: int | None = None


class OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class Counted(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek's
    cached_tokens: int | None = None  # Moonshot's
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None


class Plain(Struct, gc=False):
    """An answer whose usage is as OpenAI's document has it."""

    usage: Counted | None = None


class WholeChoice(Struct, gc=False):
    message: Delta
    finish_reason: Any = None


class Whole(Struct, gc=False):
    choices: list[WholeChoice]


_CHUNK = Decoder(Chunk)
_WHOLE = Decoder(Whole)
_ANSWER = Decoder(Answer)
_PLAIN = Decoder(Plain)


def read_usage(usage: Any) -> Usage | None:
    """Usage from OpenAI's `usage` object of chat and completions."""
    if not is_object(usage):
        return None
    read, written = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    cached = count(mapping(read).get("cached_tokens")) if read else None
    return Usage(
        input=count(usage.get("prompt_tokens")) or 0,
        output=count(usage.get("completion_tokens")) or 0,
        cached=cached or count(usage.get("prompt_cache_hit_tokens")) or count(usage.get("cached_tokens")) or 0,
        reasoning=count(mapping(written).get("reasoning_tokens")) or 0 if written else 0,
    )


def usage_of(answer: bytes) -> Usage | None:
    """The usage in a buffered answer."""
    try:
        usage = _PLAIN.decode(answer).usage
        if usage is None:
            return None
        read, written = usage.prompt_tokens_details, usage.completion_tokens_details
        return Usage(
            input=max(0, usage.prompt_tokens or 0),
            output=max(0, usage.completion_tokens or 0),
            cached=max(0, (read and read.cached_tokens) or usage.prompt_cache_hit_tokens or usage.cached_tokens or 0),
            reasoning=max(0, written.reasoning_tokens or 0) if written is not None else 0,
        )
    except (ValidationError, DecodeError, RecursionError):
        pass  # read leniently below
    try:
        return read_usage(_ANSWER.decode(answer).usage)
    except ValidationError:
        return None
    except (DecodeError, RecursionError):
        raise BadAnswer("the upstream's answer is not JSON") from None


def has_content(choice: Choice) -> bool:
    delta = choice.delta
    return bool(
        choice.text
        or (
            delta is not None
            and (
                delta.content
                or delta.tool_calls
                or delta.reasoning_content
                or delta.reasoning
                or delta.refusal
                or delta.function_call
                or delta.audio
            )
        )
    )


def has_delta(choice: Choice) -> bool:
    return choice.delta is not None or choice.text is not None


# Begins a tool call, of which there is one a call; what a delta holds by chance only costs a parse.
CALL = b'"name"'
# Reasons that stay as they are when an answer holds tool calls; any other means that the tools shall be run (S15).
LIMITS = ("length", "max_tokens", "model_length", "max_output_tokens")  # as servers say it, in whichever case
FILTERS = ("content_filter", "content_filtered", "safety", "prohibited_content", "blocklist", "recitation", "refusal")
REASONS = frozenset(("tool_calls", "function_call", *LIMITS, *FILTERS))


def stays(reason: Any) -> bool:
    return isinstance(reason, str) and reason.lower() in REASONS


_REASON = re.compile(rb'("finish_reason"\s*:\s*)"[^"]*"')


def ask_for_tools(answer: bytes, reason: str = "tool_calls") -> bytes:
    """The answer or chunk with the finish reason that makes a client run the tools; all else as it came."""
    return _REASON.sub(rb'\1"%b"' % reason.encode(), answer)


def _ending(data: bytes) -> bytes:
    """How deltas like this one end, where it says nothing of the end, and its content stands before."""
    ending = data[max(0, data.rfind(b'"finish_reason"')) :]
    plain = ending.startswith((b'"finish_reason":null', b'"finish_reason": null')) and b'"delta"' not in ending
    return ending + b"\n\n" if plain and len(ending) < _LONGEST_ENDING and b"\n" not in ending else b""


def _after_last(run: bytes, at: int, ending: bytes) -> int:
    """Where the last event of the run ends that ends so; only the last few are looked at."""
    end = len(run)
    for _ in range(_LAST_EVENTS):
        if end <= at or run.endswith(ending, at, end):
            break
        end = sse.begin(run, at, end - 2)
    return end


class ChatMeter(PassMeter):
    """Chat completions. With `withhold`, the usage chunk that the gateway asked for is kept back.

    Most servers end every delta alike, from its `"finish_reason":null` on, and nothing else so. Counting that ending
    and the line ends tells that a run is only deltas, in less time than looking for all signs takes.
    """

    __slots__ = ("_calls", "_ending", "_finished", "_owed", "_tell", "_withhold")

    delta: ClassVar[bytes] = b'"delta"'
    # Words that a delta may hold by chance only cost a parse.
    signs: ClassVar[tuple[bytes, ...]] = (
        b"\r",
        b"[DONE]",
        b"error",
        b"prompt_tokens",
        b'"finish_reason":"',
        b'"finish_reason": "',
        CALL,
    )

    def __init__(self, *, withhold: bool = False, tell: bool = False) -> None:
        super().__init__()
        self._calls = NO_CALLS
        self._ending = b""  # how a delta ends here; empty = not known, or not always so
        self._withhold = withhold
        self._tell = tell  # the client asked for usage
        self._owed = b""  # usage that came with a finish reason, to be told by itself (S12)
        self._finished = False

    def feed(self, data: bytes) -> bytes:
        ending = self._ending
        if (  # one delta by itself, which is what a slow model's stream comes in
            ending
            and data.endswith(ending)
            and data.count(b"\n") == 2
            and data.find(b"\r") < 0
            and not (self.parsing or self.done or self._splitter.held)
            and data.find(CALL) < 0
        ):
            self.deltas += 1
            return data
        return super().feed(data)

    def _pass(self, run: bytes, at: int) -> int:
        ending = self._ending
        if not ending or run.find(b"\r", at) >= 0:
            return super()._pass(run, at)
        end = len(run) if run.endswith(ending, at) else _after_last(run, at, ending)
        count = run.count(ending, at, end)
        if run.count(b"\n", at, end) != 2 * count:
            self._ending = b""
            return super()._pass(run, at)
        if run.find(CALL, at, end) >= 0:
            return super()._pass(run, at)
        self.deltas += count
        return end

    def _see(self, name: str, data: bytes) -> Verdict | bytes:
        if data.strip() == b"[DONE]":
            self.done = True
            return self._owed + DONE if self._owed else "end"
        try:
            chunk = _CHUNK.decode(data)
        except (DecodeError, RecursionError):
            if name == "error" or faults.read(data):
                return "fail"
            if self.content:
                return "pass"
            raise BadAnswer("the upstream sent an event that is not a chat completion chunk") from None
        if chunk.error or name == "error" or (chunk.choices is None and faults.read(data)):
            return "fail"
        if chunk.usage is not None:
            self.usage = read_usage(chunk.usage) or self.usage
            if not chunk.choices:
                self._owed = b""
                if self._withhold:
                    return "drop"
        choices = chunk.choices or []
        mended = self._mend(choices)
        for choice in choices:
            if has_content(choice) or (self.content and not choice.finish_reason and has_delta(choice)):
                if not self.content and len(choices) == 1 and chunk.usage is None:  # else each says what it has cost
                    self._ending = _ending(data)
                self.content = True
                self.parsing = self._finished or self._calls.renumbered
                self.deltas += 1
        reasons = [choice.finish_reason for choice in choices if choice.finish_reason]
        if reasons:
            self._finished = self.parsing = True  # the few events that follow are all read
        wrong = self._wrong(choices) if reasons and self._calls.asks else {}
        said = data
        if mended == MORE or (wrong and len(choices) > 1):
            said = rewritten(data, [choice.delta and choice.delta.tool_calls for choice in choices], wrong)
        elif mended or wrong:
            said = with_arguments(data) if mended else data.replace(b"\n", b" ")
            said = ask_for_tools(said, wrong[0]) if wrong else said
        if reasons and chunk.usage is not None and (self._tell or self._withhold):
            said, usage = apart(said)
            self._owed = sse.event(usage, name) if self._tell and usage is not said else b""
        return "pass" if said is data else sse.event(said, name)

    def _mend(self, choices: list[Choice]) -> int:
        """Mends the tool calls of a chunk, in place, and says what there was to mend."""
        mended = NOTHING
        for choice in choices:
            delta = choice.delta
            if delta is not None and (delta.tool_calls or delta.function_call):
                if self._calls is NO_CALLS:
                    self._calls = Calls()
                number, old = count(choice.index) or 0, bool(delta.function_call)
                mended = max(mended, self._calls.mend(number, delta.tool_calls, old=old))
        return mended

    def _wrong(self, choices: list[Choice]) -> dict[int, str]:
        """The finish reasons that should be others, by place."""
        asks = self._calls.asks
        numbers = [count(choice.index) or 0 for choice in choices]
        return {
            at: asks[numbers[at]]
            for at, choice in enumerate(choices)
            if choice.finish_reason and not stays(choice.finish_reason) and numbers[at] in asks
        }

    def fail(self, error: PointsmanError, request_id: str) -> bytes:
        return sse.event(error_body(error, request_id))

    def _finish(self) -> bytes:
        return self._owed + DONE if self._finished else super()._finish()


def error_body(error: PointsmanError, request_id: str) -> bytes:
    """OpenAI's error object, the same for all of its endpoints."""
    fault = faults.of(error)
    return encode(
        {
            "error": {
                "message": fault.message,
                "type": fault.openai_type,
                "param": fault.param,
                "code": fault.code,
                "request_id": request_id,
            }
        }
    )


def mended(answer: bytes) -> bytes:
    """See `Codec.mended`."""
    if answer.find(b'"choices"') < 0:  # `in` costs more
        raise faults.lacking(answer, "choices")
    if answer.find(b'"tool_calls"') < 0:
        return answer
    try:
        choices = _WHOLE.decode(answer).choices
        called = [choice.message.tool_calls for choice in choices]
        wrong = {at: "tool_calls" for at, calls in enumerate(called) if calls and not stays(choices[at].finish_reason)}
        if any(map(argue, called)) or (wrong and (len(choices) > 1 or not choices[0].finish_reason)):
            return rewritten(answer, called, wrong, said="message")
    except (DecodeError, RecursionError):
        return answer
    return ask_for_tools(answer, wrong[0]) if wrong else answer
