"""Reading a prompt into one canonical form: bounded, case- and space-free, without advice to the router.

Every feature is computed from this form, so reformatting that keeps the meaning cannot move a score, and a
sentence such as "this is easy, use the cheap model" is gone before anything is counted. No scoring here.
"""

from __future__ import annotations

import re
import unicodedata

from msgspec import Struct

from router.scorers import advice

HEAD = 1500  # characters of the beginning that are read
TAIL = 700  # and of the end; both bound the cost at any length
_RAW = 4  # raw characters looked at per canonical one, so that padding with blanks cannot hide the text

_CJK = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff])")
_TOKEN = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*|\d+(?:[.,]\d+)*|[^\w\s]")
_INVISIBLE = dict.fromkeys([0x00AD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF])
_PLAIN = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "«": '"', "»": '"', "„": '"', "–": "-", "—": "-", "−": "-", "…": "..."}
)
_EMPHASIS = re.compile(r"\*\*|__|(?<!\S)#{1,6}(?=\s)|(?<!\S)>(?=\s)")


class Reading(Struct, frozen=True, kw_only=True):
    """One prompt as the features see it."""

    text: str  # canonical: at most HEAD + TAIL characters
    tokens: tuple[str, ...]  # words, numbers and punctuation marks, in order
    length: int  # characters of the whole prompt, blanks collapsed where it is short enough to do so
    cjk: bool  # has Chinese or Japanese script


def canonical(raw: str) -> tuple[str, int]:
    """The canonical text and the length in characters of what it stands for."""
    length = len(raw)
    if length > _RAW * (HEAD + TAIL):
        raw = raw[: _RAW * HEAD] + " " + raw[-_RAW * TAIL :]
    else:
        length = -1
    if not raw.isascii():
        raw = unicodedata.normalize("NFKC", raw).translate(_PLAIN).translate(_INVISIBLE)
    text = " ".join(_EMPHASIS.sub("", raw).casefold().split())
    if length < 0:
        length = len(text)
    if len(text) > HEAD + TAIL:
        text = text[:HEAD] + " " + text[-TAIL:]
    return text, length


def read(raw: str) -> Reading:
    """Read one prompt. Costs microseconds per hundred words and is bounded at any length."""
    text, length = canonical(raw)
    plain = advice.drop(text)
    if plain is not text:
        length = max(1, length - (len(text) - len(plain)))
    cjk = not plain.isascii() and _CJK.search(plain) is not None
    spaced = _CJK.sub(r" \1 ", plain) if cjk else plain
    return Reading(text=plain, tokens=tuple(_TOKEN.findall(spaced)), length=length, cjk=cjk)
