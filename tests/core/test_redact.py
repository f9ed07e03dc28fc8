"""What a kept prompt is kept without."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.redact import redact


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("use sk-proj-abcdefghij0123456789 please", "use [key] please"),
        ("AKIAABCDEFGHIJKLMNOP is mine", "[key] is mine"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "[key]"),
        ("mail ada.l+x@example.co.uk now", "mail [email] now"),
        ("password: hunter22, then", "password: [secret], then"),
        ('{"api_key": "abcd1234"}', '{"api_key": "[secret]"}'),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer [secret]"),
        ("postgres://user:pw@db/x", "postgres://user:[password]@db/x"),
        ("card 4111 1111 1111 1111.", "card [card]."),
        ("pay to DE89 3704 0044 0532 0130 00 today", "pay to [account] today"),
        ("call +49 (30) 1234 5678", "call [phone]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nok", "[private key]\nok"),
        ("-----BEGIN PRIVATE KEY-----\nabc cut short", "[private key]"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abc", "[token]"),
    ],
)
def test_what_is_secret_or_names_a_person_is_replaced_and_the_words_around_it_stay(text: str, kept: str):
    assert redact(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of France?",
        "Compute 1234567890123456 * 3 and 3.14159265358979323",
        "def f(x): return x @ y  # matrix product",
        "the token economy and the password policy of a company",
        "see https://example.com/path?x=1 and RFC 2119",
        "Aria sang 4111 1111 1111 1112 times",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str):
    assert redact(text) == text


@given(st.text(max_size=400))
def test_what_was_redacted_once_is_not_changed_again(text: str):
    once = redact(text)
    assert redact(once) == once


def test_a_long_text_made_to_be_slow_takes_no_longer_than_its_length():
    for part in ("a@", "1 ", "a.", "password ", "-----BEGIN PRIVATE KEY-----", "DE89 ", "x://a:", "+1("):
        assert redact(part * 8_000) is not None
