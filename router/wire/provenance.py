"""Whose thought is it: signatures and encrypted reasoning that cross a dialect and come back.

Only the provider that made a signature can read it. When a thought reaches a client of another dialect, the
signature is kept unchanged behind a mark of its origin, so that it can be given back to its maker and to no
one else. A thought without a signature came from an API that has none.
"""

from __future__ import annotations

from router.wire.parts import Seal, Thinking

_RESPONSES = "responses:"  # in Anthropic's `signature`: "responses:" item id ":" encrypted_content
_MESSAGES = "messages:"  # in OpenAI's `encrypted_content`: "messages:" signature
_REDACTED = "messages-redacted:"  # in OpenAI's `encrypted_content`: "messages-redacted:" data


def unsealed(thought: str, signature: str) -> Thinking:
    """The thought in an Anthropic thinking block."""
    if not signature:
        return Thinking(text=thought, source="chat")
    if signature.startswith(_RESPONSES):
        item, _, encrypted = signature.removeprefix(_RESPONSES).partition(":")
        return Thinking(text=thought, signature=encrypted, source="responses", id=item)
    return Thinking(text=thought, signature=signature, source="messages")


def sealed(seal: Seal) -> str:
    """The `signature` of an Anthropic thinking block."""
    return f"{_RESPONSES}{seal.id}:{seal.signature}" if seal.source == "responses" else seal.signature


def decrypted(thought: str, encrypted: str, item: str) -> Thinking:
    """The thought in a Responses reasoning item."""
    if not encrypted:
        return Thinking(text=thought, source="chat", id=item)
    for mark in (_MESSAGES, _REDACTED):
        if encrypted.startswith(mark):
            redacted = mark is _REDACTED
            return Thinking(text=thought, signature=encrypted[len(mark) :], source="messages", redacted=redacted)
    return Thinking(text=thought, signature=encrypted, source="responses", id=item)


def encrypted(seal: Seal) -> str:
    """The `encrypted_content` of a Responses reasoning item."""
    if seal.source == "responses":
        return seal.signature
    return (_REDACTED if seal.redacted else _MESSAGES) + seal.signature


def foreign(signature: str) -> bool:
    """Whether Anthropic's API would refuse this signature of a thinking block."""
    return not signature or signature.startswith(_RESPONSES)
