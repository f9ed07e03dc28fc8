"""Prompt text without what should not be kept: keys, passwords, card and account numbers, addresses of people.

Patterns, so neither all there is nor only that: it makes a kept prompt less dangerous, not harmless. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_KEY_HEAD = r"(?:sk|pk|rk|pm|ghp|gho|ghs|ghu|glpat|xox[abprs]|hf|npm|pypi|AIza|AKIA|ASIA|SG)"
_NAMED = r"(?:pass(?:word|wd|phrase)?|secret|token|api[_-]?key|access[_-]?key|authorization|bearer)"


def _card(found: re.Match[str]) -> str:
    """A number of 13 to 19 digits that passes the check of card numbers (Luhn); any other stays."""
    digits = [int(one) for one in found[0] if one.isdigit()]
    doubled = [one * 2 - 9 if one > 4 else one * 2 for one in digits[-2::-2]]
    return "[card]" if (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0 else found[0]


# In this order: what is inside a longer find is gone with it.
_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
        "[private key]",
    ),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), "[token]"),
    (re.compile(rf"\b{_KEY_HEAD}[-_]?[A-Za-z0-9_-]{{16,}}"), "[key]"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@]{1,64}:)[^\s/@]{1,256}@", re.I), r"\1[password]@"),
    (
        re.compile(rf"(\b{_NAMED}\b[\"']?\s*(?:[:=]|\bis\b)\s*[\"']?(?:bearer\s+)?)[^\s\"',;]{{4,}}", re.I),
        r"\1[secret]",
    ),
    (re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}\b"), "[email]"),
    (re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b"), "[account]"),
    (re.compile(r"(?<!\d)(?<!\d\.)\d(?:[ -]?\d){12,18}(?!\.?\d)"), _card),
    (re.compile(r"(?<![\w.])\+\d{1,3}(?:[ ().-]{0,2}\d){7,12}\b"), "[phone]"),
)


def redact(text: str) -> str:
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    return text
