"""Bodies seen before: a continuation is read as it would be alone, and what is kept has a bound."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from router import signals
from router.errors import BadRequest
from router.origins import carried
from router.seams import Codec
from router.types import Caller, Dialect, Request
from router.wire.chat import ChatCodec
from router.wire.messages import MessagesCodec
from router.wire.responses import ResponsesCodec
from router.wire.seen import Seen

KINDS: dict[Dialect, Any] = {"chat": ChatCodec, "messages": MessagesCodec, "responses": ResponsesCodec}
LONG = "Follow the conventions of the files around the one you edit. " * 100
CALLER = Caller(id="req_1")


def spoken(dialect: Dialect, seed: int, size: int = 0) -> list[dict[str, Any]]:
    """One step of a conversation: a user's words, a call, its result, thoughts."""
    text = f"step {seed} " + 'ünïcode \\ " , ] } { [ ' * (seed % 3) + "x" * size
    if dialect == "chat":
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": f'{{"path": "{seed}"}}'}}
        steps = [
            {"role": "user", "content": text},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": f"Error: no such file {seed}"},
        ]
    elif dialect == "messages":
        thought = {"type": "thinking", "thinking": "hm", "signature": f"signature-of-more-than-16-{seed}"}
        use = {"type": "tool_use", "id": "c", "name": "read", "input": {"path": str(seed), "role": "user"}}
        result = {"type": "tool_result", "tool_use_id": "c", "content": text, "is_error": seed % 2 == 0}
        steps = [
            {"role": "user", "content": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [thought, use]},
            {"role": "user", "content": [result]},
        ]
    else:
        steps = [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
            {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": f"encrypted-of-more-than-16-{seed}"},
            {"type": "function_call", "call_id": "c", "name": "shell", "arguments": f'{{"cmd": "ls {seed}"}}'},
            {"type": "function_call_output", "call_id": "c", "output": text},
        ]
    return steps[: 1 + seed % len(steps)]


def body(
    dialect: Dialect, said: list[dict[str, Any]], *, first: bool = True, indent: int | None = None, **more: Any
) -> bytes:
    """An agent's body; its model, system text and tools stand before the messages or behind them."""
    tools = [{"name": f"tool_{i}", "description": LONG, "input_schema": {"type": "object"}} for i in range(2)]
    around: dict[str, Any] = {"model": "auto", "tools": tools, "stream": True, "user": "u-1", **more}
    if dialect == "messages":
        around |= {"system": [{"type": "text", "text": LONG}], "max_tokens": 99, "metadata": {"user_id": "u"}}
    elif dialect == "responses":
        around |= {"instructions": LONG, "prompt_cache_key": "c-1"}
    else:
        around |= {"stream_options": {"include_usage": True}}
        said = [{"role": "system", "content": LONG}, *said]
    name = "input" if dialect == "responses" else "messages"
    whole = {**around, name: said} if first else {name: said, **around}
    return json.dumps(whole, indent=indent, ensure_ascii=False).encode()


def read(codec: Codec, sent: bytes) -> Request | tuple[str, str | None]:
    """What a body comes to, or why it is refused."""
    try:
        return codec.decode(sent)
    except BadRequest as error:
        return error.message, error.param


def same(known: Request | tuple[str, str | None], alone: Request | tuple[str, str | None]) -> None:
    """Both say the same, and everything that is found of them is the same."""
    if not isinstance(known, Request) or not isinstance(alone, Request):
        assert known == alone
        return
    plain = replace(alone, noted=None)
    assert replace(known, noted=None) == plain
    text = signals.user_text(plain)
    for _ in range(2):  # what is noted at first is read the second time
        assert signals.extract(known, CALLER, text=text) == signals.extract(plain, CALLER, text=text)
        assert signals.prefix(known) == signals.prefix(plain)
        if plain.dialect != "chat":
            assert carried(known) == carried(plain)


STEPS = st.lists(st.integers(0, 11), min_size=1, max_size=6)
DIALECTS = st.sampled_from(list(KINDS))


@settings(deadline=None)
@given(dialect=DIALECTS, seeds=STEPS, first=st.booleans(), indent=st.sampled_from([None, 1]), moving=st.booleans())
def test_each_step_is_read_as_if_it_were_the_first(
    dialect: Dialect, seeds: list[int], first: bool, indent: int | None, moving: bool
) -> None:
    codec, said = KINDS[dialect](Seen()), list[dict[str, Any]]()
    for at, seed in enumerate(seeds):
        said += spoken(dialect, seed, 1500 if at == 0 else 0)
        # Claude Code marks the newest messages for the cache, and takes the mark from those before.
        sent = [*said[:-1], {**said[-1], "cache_control": {"type": "ephemeral"}}] if moving else said
        told = body(dialect, sent, first=first, indent=indent)
        same(codec.decode(told), KINDS[dialect](Seen()).decode(told))


DAMAGE = st.sampled_from(
    [
        b"",
        b" ",
        b",",
        b"]",
        b"}",
        b"[",
        b"{",
        b'"',
        b"\\",
        b"\xff",
        b"null",
        b",{}",
        b"],",
        b'],"messages":[',
        b'"model":"b",',
    ]
)


@settings(deadline=None, max_examples=300)
@given(
    dialect=DIALECTS,
    seeds=STEPS,
    first=st.booleans(),
    where=st.floats(0, 1),
    near_end=st.booleans(),
    cut=st.integers(0, 3),
    put=DAMAGE,
)
def test_a_damaged_continuation_is_refused_or_read_as_it_would_be_alone(
    dialect: Dialect, seeds: list[int], first: bool, where: float, near_end: bool, cut: int, put: bytes
) -> None:
    codec, said = KINDS[dialect](Seen()), spoken(dialect, 2, 1500)
    codec.decode(body(dialect, said, first=first))
    told = body(dialect, said + [one for seed in seeds for one in spoken(dialect, seed)], first=first)
    at = len(body(dialect, said, first=True)) - 2 if near_end and first else int(where * len(told))
    told = told[:at] + put + told[at + cut :]
    same(read(codec, told), read(KINDS[dialect](Seen()), told))
    codec.decode(body(dialect, said, first=first))


@pytest.mark.parametrize("dialect", list(KINDS))
@pytest.mark.parametrize("first", [True, False])
def test_what_was_read_before_is_not_read_again(dialect: Dialect, first: bool) -> None:
    codec = KINDS[dialect](Seen())
    said = spoken(dialect, 2, 5000)
    bodies = [body(dialect, [*said, *spoken(dialect, 11)[:count]], first=first) for count in range(3)]
    for before, after in pairwise([codec.decode(one) for one in bodies]):
        assert all(a is b for a, b in zip(before.turns, after.turns, strict=False))
    other = codec.decode(body(dialect, [*said, *spoken(dialect, 5)], first=first))
    assert other.turns[0] is after.turns[0]  # a conversation that goes another way shares what is the same


def test_two_conversations_of_one_agent_share_its_system_text() -> None:
    codec = ChatCodec(Seen())
    one = codec.decode(body("chat", [{"role": "user", "content": "mend the parser"}]))
    two = codec.decode(body("chat", [{"role": "user", "content": "write a test"}]))
    assert two.turns[0] is one.turns[0]
    assert (one.turns[1].texts, two.turns[1].texts) == (("mend the parser",), ("write a test",))


@pytest.mark.parametrize(
    ("middle", "param"),
    [(b',{"role":"user"},5', "messages[3]"), (b",", None), (b',{"role":"user"},', None), (b"x", None)],
)
def test_what_comes_after_a_known_beginning_is_refused_as_ever(middle: bytes, param: str | None) -> None:
    codec, sent = ChatCodec(Seen()), body("chat", spoken("chat", 3, 1500), first=False)
    codec.decode(sent)
    end = sent.index(b'], "model"')
    with pytest.raises(BadRequest) as caught:
        codec.decode(sent[:end] + middle + sent[end:])
    assert caught.value.param == param


@pytest.mark.parametrize("space", [0, 1, 64, 5000])
def test_nothing_is_gone_on_from_where_there_was_no_message(space: int) -> None:
    codec, sent = ChatCodec(Seen()), b'{"user":"%b","messages":[%b],"model":"a"}' % (b"x" * 5000, b" " * space)
    assert codec.decode(sent).turns == ()
    with pytest.raises(BadRequest):
        codec.decode(sent.replace(b'],"model', b',{"role":"user"}],"model'))


def test_much_white_space_between_messages_is_passed_over() -> None:
    codec, space = ChatCodec(Seen()), b" \n" * 50_000
    said = b'[{"role":"user","content":"%b"}%b,%b{"role":"user","content":"b"}%b' % (
        b"a" * 200_000,
        space,
        space,
        space,
    )
    for end in (b"]", b',{"role":"user"}]', b',{"role":"user"},{"role":"user"}]'):
        sent = b'{"model":"a","messages":%b%b}' % (said, end)
        same(codec.decode(sent), ChatCodec(Seen()).decode(sent))


def test_bytes_that_are_no_utf8_are_refused_where_nobody_reads_them_too() -> None:
    codec, sent = ChatCodec(Seen()), body("chat", spoken("chat", 3, 1500), first=False)
    codec.decode(sent)
    end = sent.index(b'], "model"')
    with pytest.raises(BadRequest, match="UTF-8"):
        codec.decode(sent[:end] + b',{"role":"user","x":"\xff"}' + sent[end:])


def test_what_is_kept_has_a_bound() -> None:
    seen = Seen(kept=1_000_000)
    codec = ChatCodec(seen)
    for seed in range(50):
        codec.decode(body("chat", [{"role": "user", "content": f"{seed} " * 2000}], user=str(seed)))
        assert seen.weight <= 1_000_000
    held = len(seen)
    assert 0 < held < 16
    codec.decode(body("chat", [{"role": "user", "content": "x" * 300_000}]))  # one may not push out all others
    assert len(seen) == held


def test_a_conversation_takes_the_place_of_what_it_goes_on_from() -> None:
    seen, said = Seen(), list[dict[str, Any]]()
    codec = ChatCodec(seen)
    for seed in range(40):
        said += spoken("chat", seed, 900)
        codec.decode(body("chat", said))
        assert len(seen) == 1
